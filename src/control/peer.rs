//! Who connects, and whether they may.

use std::io;
use std::os::fd::OwnedFd;

use nix::sys::socket::{getsockopt, sockopt};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::net::UnixStream;

use crate::agent::{Descent, Host};
use crate::model::Peer;
use crate::security::{Security, SecurityEvent};

/// What becomes of a connection.
pub enum Admitted {
    Served(Peer),
    /// An agent's: every request of it is answered, with a refusal.
    Agents(Peer),
    /// It is closed without a word.
    No,
}

/// The daemon serves its own user and root, and none of its agents.
pub fn admit(stream: &UnixStream, security: &Security, host: &Host) -> io::Result<Admitted> {
    let credentials = stream.peer_cred()?;
    let own = rustix::process::geteuid().as_raw();
    // Whoever is in a namespace that this one does not see into has no number here, and is nobody whom acpd has started.
    let pid = credentials.pid().filter(|pid| *pid > 0);
    let peer = Peer { uid: credentials.uid(), pid, program: pid.and_then(program_of) };
    if peer.uid != own && peer.uid != 0 {
        security.refused(SecurityEvent::ForeignUser, Some(&peer), None, "a connection of another user");
        return Ok(Admitted::No);
    }
    let descent = match pid.filter(|_| host.has_had_agents()) {
        Some(pid) => {
            let identity = Identity::of(stream);
            host.descent(pid, || identity.is_there())
        }
        None => Descent::Others,
    };
    Ok(match descent {
        Descent::Others => Admitted::Served(peer),
        Descent::Agents => {
            security.refused(SecurityEvent::AgentPeer, Some(&peer), None, "a connection of an agent");
            Admitted::Agents(peer)
        }
        // Whose question it was cannot be told any more: an agent's could leave its connection to others.
        Descent::Unknown => {
            security.refused(SecurityEvent::AgentPeer, Some(&peer), None, "a connection of somebody who is gone");
            Admitted::Agents(peer)
        }
    })
}

/// The peer itself, not its number, which may be somebody else's by now.
enum Identity {
    Pinned(OwnedFd),
    /// The kernel does not tell (before Linux 6.5); then the number has to do.
    Unpinned,
    Gone,
}

impl Identity {
    fn of(stream: &UnixStream) -> Self {
        match getsockopt(stream, sockopt::PeerPidfd) {
            Ok(pidfd) => Self::Pinned(pidfd),
            Err(nix::errno::Errno::ENOPROTOOPT | nix::errno::Errno::EOPNOTSUPP) => Self::Unpinned,
            Err(_) => Self::Gone,
        }
    }

    fn is_there(&self) -> bool {
        match self {
            // It becomes readable when the process ends.
            Self::Pinned(pidfd) => {
                let mut ready = [PollFd::new(pidfd, PollFlags::IN)];
                matches!(poll(&mut ready, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(0))
            }
            Self::Unpinned => true,
            Self::Gone => false,
        }
    }
}

fn program_of(pid: i32) -> Option<String> {
    let name = std::fs::read(format!("/proc/{pid}/comm")).ok()?;
    Some(String::from_utf8_lossy(&name).trim_end().to_owned())
}
