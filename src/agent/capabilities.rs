//! How a confined agent loses every capability. Without this an agent of root keeps all of them.

use rustix::io::{Errno, Result};
use rustix::thread::{
    CapabilitySet, CapabilitySets, no_new_privs, remove_capability_from_bounding_set, set_capabilities,
};

/// Drops all capabilities of this thread, in every set. No program that it executes gets any back.
pub fn drop_all() -> std::result::Result<(), String> {
    let failed = |error: Errno| format!("cannot drop the agent's capabilities: {error}");
    match drop_bounding_set() {
        // Without CAP_SETPCAP the bounding set stays. With no_new_privs it gives nothing to any program.
        Err(Errno::PERM) if no_new_privs().is_ok_and(|is_set| is_set) => {}
        outcome => outcome.map_err(failed)?,
    }
    let none = CapabilitySet::empty();
    // The kernel removes from the ambient set what is not permitted.
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none }).map_err(failed)
}

/// Drops every capability that a program could otherwise gain when it is executed. Needs `CAP_SETPCAP`.
pub fn drop_bounding_set() -> Result<()> {
    for number in 0..u64::BITS {
        match remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(1 << number)) {
            // The kernel has no capability with this number.
            Ok(()) | Err(Errno::INVAL) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
