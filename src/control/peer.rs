//! Who connects, and whether they may.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use nix::sys::socket::{getsockopt, sockopt};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use tokio::net::UnixStream;

use super::caller::{Caller, Standing};
use super::router::RefusedPeer;
use crate::agent::tools::OpenedTools;
use crate::agent::{Descent, Host};
use crate::config::ControlGroup;
use crate::model::Peer;
use crate::security::{Security, SecurityEvent};
use crate::system;

/// Who is at the other end, and whether every request of theirs is answered with a refusal. Nothing: the connection is closed
/// without a word.
pub type Admitted = Option<(Caller, Option<RefusedPeer>)>;

/// The daemon serves its own user and root, and a daemon of root the members of its group. It serves no agent of any daemon.
pub fn admit(
    stream: &UnixStream,
    group: Option<&ControlGroup>,
    security: &Security,
    host: &Host,
) -> io::Result<Admitted> {
    let own = rustix::process::geteuid().as_raw();
    let (peer, gid) = peer_of(stream)?;
    let is_member = || group.is_some_and(|group| is_member(stream, gid, group.gid));
    let Some(standing) = standing(own, peer.uid, is_member) else {
        security.refused(SecurityEvent::ForeignUser, Some(&peer), None, "connection from another user");
        return Ok(None);
    };
    let why = match descent_of(stream, &peer, host) {
        Descent::Others => None,
        Descent::Agents(_) => Some("connection from an agent"),
        // It may have been an agent that left its connection to another process.
        Descent::Unknown => Some("connection from a process that has exited"),
    };
    if let Some(why) = why {
        security.refused(SecurityEvent::AgentPeer, Some(&peer), None, why);
    }
    Ok(Some((Caller::new(Arc::new(peer), standing), why.map(|_| RefusedPeer::Agent))))
}

/// The tools of a session are for its own agent, and for what that has started.
pub fn admit_agent(stream: &UnixStream, tools: &OpenedTools, security: &Security, host: &Host) -> io::Result<Admitted> {
    let (peer, _) = peer_of(stream)?;
    if peer.uid != tools.user {
        let why = "connection from another user to a session's tools";
        security.refused(SecurityEvent::ForeignUser, Some(&peer), None, why);
        return Ok(None);
    }
    let why = match descent_of(stream, &peer, host) {
        Descent::Agents(Some(session)) if session == tools.session => None,
        Descent::Agents(_) => Some("connection from another session's agent to a session's tools"),
        Descent::Others => Some("connection from a process that is no agent to a session's tools"),
        Descent::Unknown => Some("connection from a process that has exited to a session's tools"),
    };
    if let Some(why) = why {
        security.refused(SecurityEvent::ForeignAgent, Some(&peer), None, format_args!("{why} ({})", tools.session));
    }
    let standing = Standing::Agent { session: tools.session, owner: tools.owner };
    Ok(Some((Caller::new(Arc::new(peer), standing), why.map(|_| RefusedPeer::NotItsAgent))))
}

/// Who is at the other end, and their group.
fn peer_of(stream: &UnixStream) -> io::Result<(Peer, u32)> {
    let credentials = stream.peer_cred()?;
    // A peer outside the daemon's PID namespace has no process id here. It is no agent of this daemon. Whether it is an agent of a
    // daemon outside cannot be determined, and acpd serves it: a client on the host may use a daemon in a container.
    let pid = credentials.pid().filter(|pid| *pid > 0);
    Ok((Peer { uid: credentials.uid(), pid, program: pid.and_then(program_of) }, credentials.gid()))
}

fn descent_of(stream: &UnixStream, peer: &Peer, host: &Host) -> Descent {
    let Some(pid) = peer.pid else { return Descent::Others };
    let identity = Identity::of(stream);
    host.descent(pid, || identity.is_there())
}

/// What a user is to the daemon of the user `own`; nothing, for whoever it does not serve.
fn standing(own: u32, user: u32, is_member: impl FnOnce() -> bool) -> Option<Standing> {
    match (own, user) {
        (0, 0) => Some(Standing::Root),
        (0, _) => is_member().then_some(Standing::Member),
        (_, 0) => Some(Standing::Own),
        (own, user) => (own == user).then_some(Standing::Own),
    }
}

/// By the groups that the kernel kept when the peer connected. The user database is not asked: whoever is in the group there
/// only, and not in the kernel's eyes, cannot open the socket's file either; and it may take its time over the network.
fn is_member(stream: &UnixStream, group_of_peer: u32, group: u32) -> bool {
    group_of_peer == group
        || system::peer_groups(stream.as_fd()).map_or_else(
            |error| {
                tracing::warn!(%error, "cannot read a peer's groups; treating the client as not a member of control.group");
                false
            },
            |groups| groups.contains(&group),
        )
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
            Self::Pinned(pidfd) => events_now(pidfd, PollFlags::IN).is_ok_and(|events| events.is_empty()),
            Self::Unpinned => true,
            Self::Gone => false,
        }
    }
}

/// The events of a descriptor at this moment. Even a `poll` that does not wait fails when a signal arrives, such as SIGCHLD at
/// the end of an agent, so it is repeated.
pub fn events_now(descriptor: &impl AsFd, wanted: PollFlags) -> rustix::io::Result<PollFlags> {
    let mut asked = [PollFd::new(descriptor, wanted)];
    retry_on_intr(|| poll(&mut asked, Some(&Timespec::default())))?;
    Ok(asked[0].revents())
}

/// Whether the kernel tells who is at the other end by a descriptor.
pub fn is_pinned(stream: &impl AsFd) -> bool {
    getsockopt(stream, sockopt::PeerPidfd).is_ok()
}

fn program_of(pid: i32) -> Option<String> {
    let name = std::fs::read(format!("/proc/{pid}/comm")).ok()?;
    Some(Peer::program_name(&name))
}

#[cfg(test)]
mod tests {
    use nix::sys::pthread::{pthread_kill, pthread_self};
    use nix::sys::signal::Signal;
    use signal_hook::consts::SIGURG;

    use super::*;

    const SIGNALS: usize = 200_000;

    #[test]
    fn who_is_served_by_whose_daemon() {
        let member = || true;
        let other = || false;
        assert_eq!(standing(1000, 1000, other), Some(Standing::Own));
        assert_eq!(standing(1000, 0, other), Some(Standing::Own));
        assert_eq!(standing(1000, 1001, member), None, "an ordinary user's daemon has no group");
        assert_eq!(standing(0, 0, other), Some(Standing::Root));
        assert_eq!(standing(0, 1000, other), None);
        assert_eq!(standing(0, 1000, member), Some(Standing::Member));
    }

    #[tokio::test]
    async fn a_signal_does_not_make_a_peer_look_gone() {
        let (stream, _other) = UnixStream::pair().unwrap();
        let (identity, thread) = (Identity::of(&stream), pthread_self());
        signal_hook::flag::register(SIGURG, Arc::default()).unwrap();
        let sender = std::thread::spawn(move || {
            for _ in 0..SIGNALS {
                pthread_kill(thread, Signal::SIGURG).unwrap();
            }
        });
        let (mut looks, mut gone) = (0, 0);
        while !sender.is_finished() {
            looks += 1;
            gone += usize::from(!identity.is_there());
        }
        sender.join().unwrap();
        assert_eq!(gone, 0, "of {looks} looks");
    }

    #[tokio::test]
    async fn the_kernel_tells_the_groups_of_a_peer() {
        let (stream, _other) = UnixStream::pair().unwrap();
        let mut own: Vec<u32> = nix::unistd::getgroups().unwrap().into_iter().map(nix::unistd::Gid::as_raw).collect();
        let mut told = system::peer_groups(stream.as_fd()).unwrap();
        own.sort_unstable();
        told.sort_unstable();
        assert_eq!(told, own);
        assert!(!is_member(&stream, 0, 4_294_967_294));
    }
}
