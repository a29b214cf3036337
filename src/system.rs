//! The one place with `unsafe`: what this program does to itself that no safe interface offers. Each call argues for
//! itself.
#![expect(
    unsafe_code,
    reason = "marking foreign descriptors and bounding the C library's allocator have no safe interface"
)]

use nix::libc;

/// The first descriptor after standard input, output and error.
const FIRST: libc::c_uint = 3;

/// Heaps that threads allocate from. By default there are eight for each processor, and each keeps what it once needed.
#[cfg(target_env = "gnu")]
const ARENAS_MAX: libc::c_int = 2;
/// What is larger than this goes back to the system when it is freed. By default the bound grows with what is freed.
#[cfg(target_env = "gnu")]
const KEPT_BYTES_MAX: libc::c_int = 1 << 20;

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
