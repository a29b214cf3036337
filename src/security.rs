//! Security events: whoever reached for what is not theirs is refused where that happens, and told of here, so that every
//! one is in the log in one shape and counted.

use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::model::Peer;

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
    counts: [AtomicU64; SecurityEvent::ALL.len()],
}

impl Security {
    /// Logs and counts a refusal. `peer` is whoever asked for it, and `path` what was reached for.
    pub fn refused(&self, event: SecurityEvent, peer: Option<&Peer>, path: Option<&Path>, why: impl fmt::Display) {
        if let Some(count) = self.counts.get(event as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        let (uid, pid) = (peer.map(|peer| peer.uid), peer.and_then(|peer| peer.pid));
        let program = peer.and_then(|peer| peer.program.as_deref());
        let path = path.map(|path| path.display().to_string());
        tracing::warn!(security = true, event = event.as_str(), uid, pid, program, path, "refused: {why}");
    }

    pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        SecurityEvent::ALL
            .iter()
            .zip(&self.counts)
            .map(|(event, count)| (event.as_str(), count.load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_event_is_counted_by_its_name() {
        let security = Security::default();
        security.refused(SecurityEvent::OutsideRoots, None, Some(Path::new("/etc")), "a test");
        let counts: Vec<_> = security.counts().filter(|(_, count)| *count > 0).collect();
        assert_eq!(counts, [("outside_roots", 1)]);
    }
}
