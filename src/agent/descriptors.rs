//! The one place with `unsafe`: open descriptors are kept from whatever is started.
//!
//! A daemon inherits what its starter had open: a lock, a pipe, a terminal. Its own descriptors are all marked to close
//! when another program is executed, but those are not, and no safe interface names a descriptor that somebody else opened.
#![expect(unsafe_code, reason = "marking descriptors that this program did not open has no safe interface")]

use nix::libc;

/// The first descriptor after standard input, output and error.
const FIRST: libc::c_uint = 3;

/// Marks every open descriptor but the standard ones to close in children. A kernel before 5.11 does not know how, and
/// then they stay as they are.
pub fn keep_from_children() {
    // SAFETY: with CLOSE_RANGE_CLOEXEC nothing is closed and no memory is touched. The call sets a flag on descriptors,
    // which no code relies on the absence of: whoever hands a descriptor to a child clears the flag in that child.
    unsafe {
        libc::syscall(libc::SYS_close_range, FIRST, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC);
    }
}
