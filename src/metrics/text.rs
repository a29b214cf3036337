//! What a scrape is answered with.
//!
//! The crate writes `OpenMetrics`. Whoever asks for the older text format, which has no end mark and calls a counter by the
//! name of its samples, gets that made of it.

use std::fmt;

use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::own::Own;
use super::{Label, Metrics};
use crate::model::Timestamp;

/// What is read when somebody asks.
#[derive(Debug)]
pub struct Now {
    pub version: &'static str,
    pub started_at: Timestamp,
    /// By state. A session without a process is none of these.
    pub processes: Vec<(&'static str, u64)>,
    pub process_slots: usize,
    /// By status.
    pub sessions: Vec<(&'static str, i64)>,
    pub turns_queued: i64,
    pub turns_running: i64,
    pub permissions_open: i64,
    pub writer_queue: usize,
    pub subscribers: usize,
    pub database_bytes: u64,
    pub journal_bytes: u64,
    pub connections: usize,
    pub connections_max: usize,
    /// By name.
    pub security: Vec<(&'static str, u64)>,
    /// What was refused or dropped under load.
    pub load: Vec<(&'static str, u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `text/plain; version=0.0.4`.
    Classic,
    OpenMetrics,
}

impl Format {
    /// By what a client says that it takes.
    pub fn accepted(accept: Option<&str>) -> Self {
        let (mut open_metrics, mut classic) = (0.0_f32, 0.0_f32);
        for range in accept.unwrap_or("").split(',') {
            let mut parts = range.split(';').map(str::trim);
            let kind = parts.next().unwrap_or("").to_ascii_lowercase();
            let quality = parts.find_map(|part| part.strip_prefix("q=")).and_then(|q| q.parse().ok()).unwrap_or(1.0);
            match kind.as_str() {
                "application/openmetrics-text" => open_metrics = open_metrics.max(quality),
                "text/plain" | "text/*" | "*/*" => classic = classic.max(quality),
                _ => {}
            }
        }
        if open_metrics > 0.0 && open_metrics >= classic { Self::OpenMetrics } else { Self::Classic }
    }

    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Classic => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

impl Metrics {
    pub fn scraped(&self, now: &Now, format: Format) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode_registry(&mut text, &self.registry)?;
        encode_registry(&mut text, &gauges(now))?;
        encode_registry(&mut text, &own(now))?;
        encode_eof(&mut text)?;
        Ok(match format {
            Format::OpenMetrics => text,
            Format::Classic => classic(&text),
        })
    }
}

fn gauges(now: &Now) -> Registry {
    let mut registry = Registry::with_prefix("acpd");
    let build: Family<Label, Gauge> = Family::default();
    build.get_or_create(&[("version", now.version)]).set(1);
    registry.register("build_info", "Version of the running program", build);
    let processes = by("state", now.processes.iter().map(|(state, count)| (*state, whole(*count))));
    registry.register("processes", "Agent processes, by state", processes);
    registry.register("process_slots", "Maximum number of agent processes (limits.processes)", {
        gauge(whole(now.process_slots))
    });
    registry.register("sessions", "Sessions, by status", by("status", now.sessions.iter().copied()));
    let turns = [("queued", now.turns_queued), ("running", now.turns_running)];
    registry.register("turns_open", "Turns waiting or running", by("status", turns.into_iter()));
    registry.register("permissions_open", "Open permission requests", gauge(now.permissions_open));
    let help = "Units waiting for the store's writer";
    registry.register("store_queue_units", help, gauge(whole(now.writer_queue)));
    let (database, journal) = (gauge(whole(now.database_bytes)), gauge(whole(now.journal_bytes)));
    registry.register("store_database_bytes", "Size of the database file", database);
    registry.register("store_journal_bytes", "Size of the write-ahead log", journal);
    registry.register("subscribers", "Open event streams", gauge(whole(now.subscribers)));
    let connections = gauge(whole(now.connections));
    registry.register("http_connections", "Open connections", connections);
    let help = "Maximum number of connections (control.connections)";
    registry.register("http_connections_max", help, gauge(whole(now.connections_max)));
    let security: Family<Label, Counter> = Family::default();
    for (name, count) in &now.security {
        security.get_or_create(&[("event", name)]).inc_by(*count);
    }
    registry.register(
        "security_events",
        "Refused attempts to access other users' data or files outside the allowed \
        directories",
        security,
    );
    let load: Family<Label, Counter> = Family::default();
    for (name, count) in &now.load {
        load.get_or_create(&[("event", name)]).inc_by(*count);
    }
    registry.register("load_events", "Connections, requests and streams refused or dropped under load", load);
    registry
}

/// What Prometheus expects of every process.
fn own(now: &Now) -> Registry {
    let mut registry = Registry::with_prefix("process");
    let Own { cpu_seconds, resident_bytes, virtual_bytes, open_descriptors, max_descriptors, threads } = Own::read();
    if let Some(seconds) = cpu_seconds {
        let counter = Counter::<f64, std::sync::atomic::AtomicU64>::default();
        counter.inc_by(seconds);
        registry.register("cpu_seconds", "Total user and system CPU time spent in seconds", counter);
    }
    let gauges = [
        ("resident_memory_bytes", "Resident memory size in bytes", resident_bytes),
        ("virtual_memory_bytes", "Virtual memory size in bytes", virtual_bytes),
        ("open_fds", "Number of open file descriptors", open_descriptors),
        ("max_fds", "Maximum number of open file descriptors", max_descriptors),
        ("threads", "Number of threads", threads),
    ];
    for (name, help, value) in gauges {
        if let Some(value) = value {
            registry.register(name, help, gauge(whole(value)));
        }
    }
    let started = gauge(now.started_at.as_millis() / 1000);
    registry.register("start_time_seconds", "Start time of the process since unix epoch in seconds", started);
    registry
}

fn gauge(value: i64) -> Gauge {
    let gauge = Gauge::default();
    gauge.set(value);
    gauge
}

fn by(label: &'static str, values: impl Iterator<Item = (&'static str, i64)>) -> Family<Label, Gauge> {
    let family: Family<Label, Gauge> = Family::default();
    for (name, value) in values {
        family.get_or_create(&[(label, name)]).set(value);
    }
    family
}

fn whole(value: impl TryInto<i64>) -> i64 {
    value.try_into().unwrap_or(i64::MAX)
}

/// The older format: no units, no end mark, and a counter's description has the name of its samples.
fn classic(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len());
    let mut lines = open_metrics.lines().peekable();
    while let Some(line) = lines.next() {
        if line.starts_with("# UNIT ") || line == "# EOF" {
            continue;
        }
        // The type follows its help at once.
        let is_counter = |line: &str| line.starts_with("# TYPE ") && line.ends_with(" counter");
        let is_counters = is_counter(line) || lines.peek().is_some_and(|next| is_counter(next));
        let described = line.strip_prefix("# HELP ").or_else(|| line.strip_prefix("# TYPE ")).filter(|_| is_counters);
        match described.and_then(|described| described.split_once(' ')) {
            Some((name, rest)) => text.extend([&line[..7], name, "_total ", rest]),
            None => text.push_str(line),
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_older_format_names_counters_by_their_samples() {
        let open = "# HELP a_turns Turns.\n# TYPE a_turns counter\na_turns_total{x=\"y\"} 1\n# HELP b_bytes B.\n\
                    # TYPE b_bytes gauge\n# UNIT b_bytes bytes\nb_bytes 2\n# EOF\n";
        let expected = "# HELP a_turns_total Turns.\n# TYPE a_turns_total counter\na_turns_total{x=\"y\"} 1\n\
                        # HELP b_bytes B.\n# TYPE b_bytes gauge\nb_bytes 2\n";
        assert_eq!(classic(open), expected);
    }

    #[test]
    fn who_takes_open_metrics_gets_it_unless_the_other_is_liked_better() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.4,*/*;q=0.1";
        assert_eq!(Format::accepted(Some(prometheus)), Format::OpenMetrics);
        for accept in [None, Some("*/*"), Some(""), Some("application/openmetrics-text;q=0.1,text/plain;q=0.2")] {
            assert_eq!(Format::accepted(accept), Format::Classic, "{accept:?}");
        }
        assert_eq!(Format::accepted(Some("application/openmetrics-text; q=0, text/plain")), Format::Classic);
    }
}
