//! What is counted of requests. Routes are a closed set, known when the router is built, so what is counted of one is looked
//! up once and not at each request; and nothing is there of what was never asked for, or there would be thousands of zeros.

use std::sync::OnceLock;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;

/// A method may be any word, and a label may not: the last stands for all others.
const METHODS: [&str; 8] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "other"];
const CLASSES: [&str; 6] = ["1xx", "2xx", "3xx", "4xx", "5xx", "other"];

/// From a hundred microseconds to half a minute, which is what a request may wait for.
const SECONDS: [f64; 11] = [0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0];

type RouteLabel = [(&'static str, String); 1];
type Outcome = [(&'static str, &'static str); 2];

#[derive(Debug)]
pub struct Requests {
    pub(super) answered: Family<(RouteLabel, Outcome), Counter>,
    pub(super) durations: Family<RouteLabel, Histogram, fn() -> Histogram>,
}

/// What is counted of one route.
#[derive(Debug)]
pub struct RouteMetrics {
    label: RouteLabel,
    families: Requests,
    durations: OnceLock<Histogram>,
    answered: [[OnceLock<Counter>; CLASSES.len()]; METHODS.len()],
}

/// A method, as far as it is told apart.
#[derive(Clone, Copy, Debug)]
pub struct MethodLabel(usize);

impl From<&str> for MethodLabel {
    fn from(name: &str) -> Self {
        Self(METHODS.iter().position(|known| *known == name).unwrap_or(METHODS.len() - 1))
    }
}

impl Default for Requests {
    fn default() -> Self {
        Self { answered: Family::default(), durations: Family::new_with_constructor(|| Histogram::new(SECONDS)) }
    }
}

impl Requests {
    /// `route` is a template of the router's, or what stands for none.
    pub fn of(&self, route: &str) -> RouteMetrics {
        RouteMetrics {
            label: [("route", route.to_owned())],
            families: Self { answered: self.answered.clone(), durations: self.durations.clone() },
            durations: OnceLock::new(),
            answered: Default::default(),
        }
    }
}

impl RouteMetrics {
    pub fn answered(&self, method: MethodLabel, status: u16, took: Duration) {
        let durations = self.durations.get_or_init(|| self.families.durations.get_or_create(&self.label).clone());
        durations.observe(took.as_secs_f64());
        let class = usize::from(status / 100).wrapping_sub(1).min(CLASSES.len() - 1);
        let (Some(counters), Some(method)) = (self.answered.get(method.0), METHODS.get(method.0)) else { return };
        let (Some(counter), Some(class)) = (counters.get(class), CLASSES.get(class)) else { return };
        let labels = || (self.label.clone(), [("method", *method), ("status", *class)]);
        counter.get_or_init(|| self.families.answered.get_or_create(&labels()).clone()).inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_answered_is_counted_in_its_series_and_in_no_other() {
        let requests = Requests::default();
        let (route, again) = (requests.of("/x"), requests.of("/x"));
        for (method, status) in [("GET", 200), ("GET", 204), ("BREW", 418), ("GET", 999)] {
            route.answered(method.into(), status, Duration::ZERO);
        }
        again.answered("GET".into(), 201, Duration::ZERO);
        let count = |method, class| {
            let label = [("route", "/x".to_owned())];
            requests.answered.get(&(label, [("method", method), ("status", class)])).map_or(0, |counter| counter.get())
        };
        assert_eq!((count("GET", "2xx"), count("other", "4xx"), count("GET", "other")), (3, 1, 1));
        assert_eq!((count("GET", "4xx"), count("POST", "2xx")), (0, 0));
    }
}
