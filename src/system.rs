//! The one place with `unsafe`: what this program does to itself that no safe interface offers. Each call argues for
//! itself.
#![expect(
    unsafe_code,
    reason = "marking foreign descriptors, owning one, bounding the C library's allocator, letting go of code and asking for the \
              groups of a peer have no safe interface"
)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::libc;
use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit};

/// The first descriptor after standard input, output and error.
const FIRST: libc::c_uint = 3;

/// Heaps that threads allocate from. By default there are eight for each processor, and each keeps what it once needed.
#[cfg(target_env = "gnu")]
const ARENAS_MAX: libc::c_int = 2;
/// What is larger than this goes back to the system when it is freed. By default the bound grows with what is freed.
#[cfg(target_env = "gnu")]
const KEPT_BYTES_MAX: libc::c_int = 1 << 20;

/// The socket option that tells the supplementary groups of the peer (Linux 4.13). The library has no name for it.
const SO_PEERGROUPS: libc::c_int = if cfg!(any(target_arch = "sparc", target_arch = "sparc64")) { 0x3d } else { 59 };
/// Groups that one process can have at the most (`NGROUPS_MAX`).
const GROUPS_MAX: usize = 65536;
/// Groups that there is room for at first: more than anybody has.
const GROUPS_USUAL: usize = 64;

/// The limit of core dumps: too few bytes for any. The kernel ignores 0, but not 1, where a program takes the core dumps.
const CORE_BYTES_MAX: u64 = 1;

/// Keeps this program's memory, which contains keys and conversations, out of core dumps and from other processes of its user.
/// Agents inherit the limit, and may raise it.
pub fn hide_memory() -> io::Result<()> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    let limit = getrlimit(Resource::Core);
    let core = limit.maximum.map_or(CORE_BYTES_MAX, |maximum| maximum.min(CORE_BYTES_MAX));
    Ok(setrlimit(Resource::Core, Rlimit { current: Some(core), ..limit })?)
}

/// Marks every open descriptor but the standard ones to close in children.
///
/// A daemon inherits what its starter had open: a lock, a pipe, a terminal. Its own descriptors are all marked to close
/// when another program is executed, but those are not, and no safe interface names a descriptor that somebody else opened.
/// A kernel before 5.11 does not know how, and then they stay as they are.
pub fn keep_descriptors_from_children() {
    // SAFETY: with CLOSE_RANGE_CLOEXEC nothing is closed and no memory is touched. The call sets a flag on descriptors,
    // which no code relies on the absence of: whoever hands a descriptor to a child clears the flag in that child.
    unsafe {
        libc::syscall(libc::SYS_close_range, FIRST, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC);
    }
}

/// The descriptor that whoever started this program opened for it, as its own from here on. It is given out once, and None is
/// also the answer when there is none.
pub fn take_inherited(descriptor: RawFd) -> Option<OwnedFd> {
    static IS_TAKEN: AtomicBool = AtomicBool::new(false);
    let is_free =
        u32::try_from(descriptor).is_ok_and(|number| number >= FIRST) && !IS_TAKEN.swap(true, Ordering::Relaxed);
    // SAFETY: `fcntl(F_GETFD)` takes a number, touches no memory, and fails for what is not open.
    if !is_free || unsafe { libc::fcntl(descriptor, libc::F_GETFD) } == -1 {
        return None;
    }
    // SAFETY: it is open, as was just seen. Nobody in this program owns it: it is called before anything is opened, with a number
    // that the service manager has named (`LISTEN_FDS`), and what the manager passes on is the program's to keep and to
    // close. Whoever asks again gets nothing, so it has one owner.
    Some(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Has memory that a flood of output took go back to the system, so that a daemon of months is as small as one of minutes.
/// Other C libraries than GNU's do not keep it in the first place.
pub fn bound_kept_memory() {
    #[cfg(target_env = "gnu")]
    for (setting, value) in [
        (libc::M_ARENA_MAX, ARENAS_MAX),
        (libc::M_MMAP_THRESHOLD, KEPT_BYTES_MAX),
        (libc::M_TRIM_THRESHOLD, KEPT_BYTES_MAX),
    ] {
        // SAFETY: mallopt takes two numbers and no memory of ours. It may be called at any time, and is called before there
        // is a second thread. What it does not know it refuses, and nothing depends on it but how much memory is kept.
        unsafe {
            libc::mallopt(setting, value);
        }
    }
}

/// Takes the program's code out of this process's memory, from where whatever runs comes back by itself. What a start needs
/// is most of what a daemon ever touches: the whole command line, the migrations, the reading of the configuration. It would
/// stay resident for months.
pub fn let_go_of_code() {
    let Ok(program) = std::fs::read_link("/proc/self/exe") else { return };
    let Ok(maps) = std::fs::read_to_string("/proc/self/maps") else { return };
    for (start, bytes) in maps.lines().filter_map(|line| code_of(&program, line)) {
        // SAFETY: the range is this program's own code, which is mapped for as long as the process lives, so it is what it was
        // when the list was read. It is mapped from the file and not writable, so no page of it differs from the file, and
        // what is dropped here is read again when it is touched, by this thread or any other. No memory is freed or moved.
        unsafe {
            libc::madvise(std::ptr::with_exposed_provenance_mut(start), bytes, libc::MADV_DONTNEED);
        }
    }
}

/// Where a line of `/proc/self/maps` has code of the program, and how much.
fn code_of(program: &Path, line: &str) -> Option<(usize, usize)> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let is_code = fields.next() == Some("r-xp") && fields.nth(3).map(Path::new) == Some(program);
    let (start, end) = (usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?);
    is_code.then_some((start, end.checked_sub(start)?))
}

/// The supplementary groups of whoever is at the other end of a Unix socket, as they were when it connected.
pub fn peer_groups(socket: BorrowedFd<'_>) -> io::Result<Vec<u32>> {
    let mut groups: Vec<libc::gid_t> = vec![0; GROUPS_USUAL];
    loop {
        let room = groups.len() * size_of::<libc::gid_t>();
        let mut bytes = libc::socklen_t::try_from(room).map_err(io::Error::other)?;
        // SAFETY: the descriptor is borrowed, so it is open. The kernel writes no more than `bytes` into `groups`, which has
        // as many, are aligned for what is written there (numbers of 32 bits, of which any is valid), and live until after
        // the call; and it writes to `bytes` how much it wrote, or would have written, which is checked below.
        let outcome = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut bytes,
            )
        };
        let count = usize::try_from(bytes).map_err(io::Error::other)? / size_of::<libc::gid_t>();
        if outcome == 0 {
            groups.truncate(count);
            return Ok(groups);
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::ERANGE) || count <= groups.len() || count > GROUPS_MAX {
            return Err(error);
        }
        groups.resize(count, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_that_was_let_go_runs_again() {
        let program = std::fs::read_link("/proc/self/exe").unwrap();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let code: Vec<(usize, usize)> = maps.lines().filter_map(|line| code_of(&program, line)).collect();
        let here = let_go_of_code as fn() as usize;
        assert!(code.iter().any(|(start, bytes)| (*start..start + bytes).contains(&here)), "{code:?}");
        let_go_of_code();
        let line = "7f00-8f00 r-xp 00000000 fe:00 42 /usr/bin/acpd";
        assert_eq!(code_of(Path::new("/usr/bin/acpd"), line), Some((0x7f00, 0x1000)));
        for other in [line.replace("r-xp", "r--p"), line.replace("acpd", "libc.so"), line.replace("/usr/bin/acpd", "")]
        {
            assert_eq!(code_of(Path::new("/usr/bin/acpd"), &other), None, "{other}");
        }
    }
}
