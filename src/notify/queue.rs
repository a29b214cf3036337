//! What waits to be told, bounded. Users take turns, so that nobody's flood keeps the others from being told.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::facts::Facts;
use crate::config::Notification;

/// One command that is to be run.
#[derive(Clone, Debug)]
pub struct Job {
    pub notification: Arc<Notification>,
    pub facts: Arc<Facts>,
}

impl Job {
    fn owner(&self) -> Option<u32> {
        self.facts.owner
    }
}

#[derive(Debug, Default)]
pub struct Queue {
    waiting: VecDeque<Job>,
}

impl Queue {
    /// Adds one. Where there are too many, the oldest goes of whoever has most: what is newer is worth more.
    pub fn push(&mut self, job: Job, jobs_max: usize) -> Option<Job> {
        self.waiting.push_back(job);
        if self.waiting.len() <= jobs_max {
            return None;
        }
        let mut counts = BTreeMap::<Option<u32>, usize>::new();
        for job in &self.waiting {
            *counts.entry(job.owner()).or_default() += 1;
        }
        let most = counts.into_iter().max_by_key(|(_, count)| *count).map(|(owner, _)| owner);
        let oldest = self.waiting.iter().position(|job| Some(job.owner()) == most);
        oldest.and_then(|index| self.waiting.remove(index))
    }

    /// Takes the oldest out of whoever has the fewest running. `running` are the users whose commands run, each for one.
    pub fn next(&mut self, running: &[Option<u32>]) -> Option<Job> {
        let running_of = |job: &Job| running.iter().filter(|owner| **owner == job.owner()).count();
        let (index, _) = self.waiting.iter().enumerate().min_by_key(|(_, job)| running_of(job))?;
        self.waiting.remove(index)
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Gives up what waits; how many there were.
    pub fn clear(&mut self) -> usize {
        let count = self.waiting.len();
        self.waiting.clear();
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Occasion};
    use crate::model::{SessionId, Timestamp};

    fn job(owner: u32, event_id: i64) -> Job {
        let text = "[notifications.n]\non = [\"session.failed\"]\ncommand = \"x\"";
        let config = Config::read(text, "config.toml", &[].into()).unwrap();
        let facts = Facts {
            occasion: Occasion::SessionFailed,
            session: SessionId::new(),
            owner: Some(owner),
            title: String::new(),
            agent: String::new(),
            workspace: String::new(),
            tags: Vec::new(),
            turn: None,
            permission: None,
            status: "error",
            took: None,
            summary: String::new(),
            event_id,
            at: Timestamp::from_millis(0),
        };
        Job { notification: Arc::clone(&config.notifications.commands["n"]), facts: Arc::new(facts) }
    }

    fn id(job: Option<Job>) -> Option<i64> {
        job.map(|job| job.facts.event_id)
    }

    #[test]
    fn a_flood_of_one_user_drops_that_users_oldest() {
        let mut queue = Queue::default();
        assert_eq!(id(queue.push(job(1, 0), 3)), None);
        assert_eq!(id(queue.push(job(2, 1), 3)), None);
        assert_eq!(id(queue.push(job(2, 2), 3)), None);
        assert_eq!(id(queue.push(job(2, 3), 3)), Some(1));
        assert_eq!(id(queue.push(job(2, 4), 3)), Some(2));
        assert_eq!(queue.clear(), 3);
        assert!(queue.is_empty());
    }

    #[test]
    fn users_take_turns() {
        let mut queue = Queue::default();
        for (owner, event_id) in [(1, 0), (1, 1), (1, 2), (2, 3), (2, 4)] {
            queue.push(job(owner, event_id), 9);
        }
        let mut next = |running: &[u32]| id(queue.next(&running.iter().copied().map(Some).collect::<Vec<_>>()));
        assert_eq!([next(&[]), next(&[1]), next(&[1, 2]), next(&[1, 1, 2])], [Some(0), Some(3), Some(1), Some(4)]);
        assert_eq!([next(&[3]), next(&[])], [Some(2), None]);
    }
}
