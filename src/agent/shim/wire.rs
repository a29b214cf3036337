//! What goes over the sockets between the daemon, the shim and the stage before the agent: descriptors, and JSON after its
//! length. Nothing is buffered, because a buffer would swallow what follows.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Descriptors that one message carries at most: standard input, the workspace and the three files of a cgroup.
const DESCRIPTORS_MAX: usize = 5;

/// The largest JSON. A socket holds this much before anybody is there to read it: Linux gives it 208 KiB.
const JSON_BYTES_MAX: usize = 128 << 10;

/// Sends the descriptors with one byte. The socket holds them until somebody is there to take them.
pub fn hand_over(control: impl AsFd, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::other("too many descriptors for one message"));
    }
    sendmsg(control, &[IoSlice::new(&[0])], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Takes descriptors; none, when the other end is gone.
pub fn receive_descriptors(control: impl AsFd) -> Result<Vec<OwnedFd>, String> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(control, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)
        .map_err(|error| format!("cannot receive descriptors: {error}"))?;
    let descriptors = ancillary.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => descriptors.collect::<Vec<OwnedFd>>(),
        _ => Vec::new(),
    });
    Ok(descriptors.collect())
}

pub fn send_json(mut control: &UnixStream, value: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_vec(value)?;
    match u32::try_from(text.len()) {
        Ok(length) if text.len() <= JSON_BYTES_MAX => control.write_all(&[&length.to_be_bytes(), &text[..]].concat()),
        _ => Err(io::Error::other("the agent's environment is larger than 128KiB; reduce its env and env_pass")),
    }
}

pub fn receive_json<T: DeserializeOwned>(control: impl AsFd) -> Result<T, String> {
    const WHAT: &str = "cannot receive the agent's start settings";
    let failed = |error: io::Error| format!("{WHAT}: {error}");
    let mut control = File::from(control.as_fd().try_clone_to_owned().map_err(failed)?);
    let mut length = [0; size_of::<u32>()];
    control.read_exact(&mut length).map_err(failed)?;
    let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
    if length > JSON_BYTES_MAX {
        return Err(format!("{WHAT}: it is too large"));
    }
    let mut text = vec![0; length];
    control.read_exact(&mut text).map_err(failed)?;
    serde_json::from_slice(&text).map_err(|error| format!("{WHAT}: {error}"))
}
