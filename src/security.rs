//! Security events: refused attempts to reach what belongs to others. Every one is counted. They have one shape in the log,
//! whose lines are limited, because an agent can cause any number of them.

use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::model::Peer;

/// Log lines of one kind in one period; acpd suppresses more.
const LINES_MAX: u64 = 20;
const LINES_PERIOD: Duration = Duration::from_mins(1);

/// What was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecurityEvent {
    /// A connection of a user whom the daemon does not serve.
    ForeignUser,
    /// A workspace that is not inside the roots, or does not stay there.
    OutsideRoots,
    /// A path that an agent or a context named, and that leads out of its workspace.
    PathEscape,
    /// A connection of an agent, or of what one has started.
    AgentPeer,
    /// A connection to the tools of a session, of whoever is not its agent.
    ForeignAgent,
}

impl SecurityEvent {
    pub const ALL: [Self; 5] =
        [Self::ForeignUser, Self::OutsideRoots, Self::PathEscape, Self::AgentPeer, Self::ForeignAgent];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ForeignUser => "foreign_user",
            Self::OutsideRoots => "outside_roots",
            Self::PathEscape => "path_escape",
            Self::AgentPeer => "agent_peer",
            Self::ForeignAgent => "foreign_agent",
        }
    }
}

/// The counts since the daemon started.
#[derive(Debug, Default)]
pub struct Security {
    events: [(AtomicU64, LogLimit); SecurityEvent::ALL.len()],
    agent_lines: LogLimit,
}

impl Security {
    /// Counts and logs a refusal. `peer` is the client, and `path` what it reached for.
    pub fn refused(&self, event: SecurityEvent, peer: Option<&Peer>, path: Option<&Path>, why: impl fmt::Display) {
        let Some((count, lines)) = self.events.get(event as usize) else { return };
        count.fetch_add(1, Ordering::Relaxed);
        let (uid, pid) = (peer.map(|peer| peer.uid), peer.and_then(|peer| peer.pid));
        let program = peer.and_then(|peer| peer.program.as_deref());
        let path = path.map(|path| path.display().to_string());
        let event = event.as_str();
        lines.log(Instant::now(), |suppressed| {
            tracing::warn!(security = true, event, uid, pid, program, path, suppressed, "refused: {why}");
        });
    }

    /// Logs that acpd cannot use what an agent wrote.
    pub fn skipped(&self, what: impl fmt::Display) {
        self.agent_lines.log(Instant::now(), |suppressed| tracing::warn!(suppressed, "{what}; skipped it"));
    }

    pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let names = SecurityEvent::ALL.iter().map(|event| event.as_str());
        names.zip(&self.events).map(|(name, (count, _))| (name, count.load(Ordering::Relaxed)))
    }
}

/// Limits the log lines of one kind: when the period began, and how many lines came in it.
#[derive(Debug, Default)]
struct LogLimit(Mutex<(Option<Instant>, u64)>);

impl LogLimit {
    /// Calls `log` unless the line is suppressed. The first line of a period gets the number of those that were suppressed.
    fn log(&self, now: Instant, log: impl FnOnce(Option<u64>)) {
        let mut period = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (began, lines) = *period;
        let is_over = began.is_none_or(|began| now.duration_since(began) >= LINES_PERIOD);
        *period = if is_over { (Some(now), 1) } else { (began, lines + 1) };
        if period.1 <= LINES_MAX {
            drop(period);
            log(is_over.then(|| lines.saturating_sub(LINES_MAX)).filter(|count| *count > 0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_limited_and_the_next_one_tells_of_those_before() {
        let (limit, start) = (LogLimit::default(), Instant::now());
        let mut told = Vec::new();
        for (count, periods) in [(LINES_MAX + 1000, 0), (2, 1), (1, 2)] {
            (0..count).for_each(|_| limit.log(start + periods * LINES_PERIOD, |suppressed| told.push(suppressed)));
        }
        let first = usize::try_from(LINES_MAX).unwrap();
        assert_eq!((told.len(), &told[first..]), (first + 3, &[Some(1000), None, None][..]));
    }
}
