//! Which requests of ours are open, what each is for, and until when its answer may come.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

#[derive(Debug)]
struct Open<T> {
    purpose: T,
    deadline: Option<Instant>,
}

/// Ids are given in order and never twice, so an answer that comes late meets nobody.
#[derive(Debug)]
pub struct Requests<T> {
    next_id: u64,
    open: BTreeMap<u64, Open<T>>,
}

impl<T> Default for Requests<T> {
    fn default() -> Self {
        Self { next_id: 0, open: BTreeMap::new() }
    }
}

impl<T> Requests<T> {
    /// The id for a new request. Without a timeout it is open until it is answered or the process is gone.
    pub fn begin(&mut self, purpose: T, timeout: Option<Duration>) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        self.open.insert(id, Open { purpose, deadline });
        id
    }

    /// What the answered request was for.
    pub fn answered(&mut self, id: u64) -> Option<T> {
        self.open.remove(&id).map(|open| open.purpose)
    }

    /// Whether there is an open one of this kind.
    pub fn any(&self, mut is_it: impl FnMut(&T) -> bool) -> bool {
        self.open.values().any(|open| is_it(&open.purpose))
    }

    /// When the next request is overdue.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.open.values().filter_map(|open| open.deadline).min()
    }

    /// Takes out one request whose deadline has passed.
    pub fn overdue(&mut self, now: Instant) -> Option<T> {
        let id = self.open.iter().find_map(|(id, open)| (open.deadline? <= now).then_some(*id))?;
        self.answered(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_finds_its_request_once() {
        let mut requests = Requests::default();
        let first = requests.begin("initialize", None);
        let second = requests.begin("session/new", None);
        assert_eq!(requests.answered(second), Some("session/new"));
        assert_eq!(requests.answered(second), None, "a second answer meets nobody");
        assert_eq!(requests.answered(first), Some("initialize"));
    }

    #[test]
    fn deadlines_are_found_in_order() {
        let mut requests = Requests::default();
        requests.begin("patient", None);
        assert_eq!(requests.next_deadline(), None);
        requests.begin("slow", Some(Duration::from_mins(1)));
        requests.begin("quick", Some(Duration::from_secs(1)));
        let due = requests.next_deadline().unwrap();
        assert_eq!(requests.overdue(Instant::now()), None);
        assert_eq!(requests.overdue(due), Some("quick"));
        assert_eq!(requests.overdue(due), None);
    }
}
