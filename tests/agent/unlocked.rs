//! A kernel without Landlock, for whoever is started here: its system calls fail as if they were not there.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::libc;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

use crate::wire::End;

/// `--without-landlock PROGRAM ARGUMENT…`
pub fn execute(arguments: &[String]) -> Result<(), End> {
    let (program, arguments) = arguments.split_first().ok_or_else(|| End::bad_script("there is no program"))?;
    let calls = [libc::SYS_landlock_create_ruleset, libc::SYS_landlock_add_rule, libc::SYS_landlock_restrict_self];
    let rules: BTreeMap<i64, _> = calls.map(|call| (call, vec![])).into();
    let not_there = SeccompAction::Errno(libc::ENOSYS.cast_unsigned());
    let architecture = std::env::consts::ARCH.try_into().map_err(|error| End::refused("seccomp", error))?;
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, not_there, architecture);
    let program_of_filter: Result<BpfProgram, _> = filter.and_then(TryInto::try_into);
    let filter = program_of_filter.map_err(|error| End::refused("seccomp", error))?;
    seccompiler::apply_filter(&filter).map_err(|error| End::refused("seccomp", error))?;
    Err(End::refused("cannot execute", Command::new(program).args(arguments).exec()))
}
