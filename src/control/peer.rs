//! Who connects, and whether they may.

use std::io;

use tokio::net::UnixStream;

use crate::model::Peer;
use crate::security::{Security, SecurityEvent};

/// The daemon serves its own user and root, nobody else.
pub fn admit(stream: &UnixStream, security: &Security) -> io::Result<Option<Peer>> {
    let credentials = stream.peer_cred()?;
    let own = rustix::process::geteuid().as_raw();
    let program = credentials.pid().and_then(program_of);
    let peer = Peer { uid: credentials.uid(), pid: credentials.pid(), program };
    if peer.uid == own || peer.uid == 0 {
        return Ok(Some(peer));
    }
    security.refused(SecurityEvent::ForeignUser, Some(&peer), None, "a connection of another user");
    Ok(None)
}

fn program_of(pid: i32) -> Option<String> {
    let name = std::fs::read(format!("/proc/{pid}/comm")).ok()?;
    Some(String::from_utf8_lossy(&name).trim_end().to_owned())
}
