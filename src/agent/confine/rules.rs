//! Landlock's rules, and what of them the kernel has really put into force.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, NetPort, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;

use super::{Confinement, Ports};
use crate::model::{Sandbox, SandboxLevel};

/// The version whose rights are all asked for (Linux 6.12): less of them than this is partial.
const TARGET: ABI = ABI::V6;
/// The same, as a number for people.
pub const LANDLOCK_WANTED: i32 = TARGET as i32;

/// What programs write to without keeping anything.
const DEVICES: [&str; 7] =
    ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx"];
/// The same, as directories: terminals, and shared memory.
const DEVICE_DIRECTORIES: [&str; 2] = ["/dev/pts", "/dev/shm"];

/// How much of the rules is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rules {
    All,
    Some,
    None,
}

/// What the kernel says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enforced {
    pub rules: Rules,
    pub abi: ABI,
    /// Programs that change their user cannot leave the confinement behind.
    pub no_new_privs: bool,
    /// Why the limits of processes outside can be set, if they can.
    pub unguarded: Option<String>,
}

/// Confines this process, which must have one thread, and all that it starts.
pub fn enforce(confinement: &Confinement) -> Result<Enforced, String> {
    let refused = |error: RulesetError| format!("cannot confine the agent: Landlock: {error}");
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(TARGET))
        .map_err(refused)?
        .scope(Scope::from_all(TARGET))
        .map_err(refused)?;
    if confinement.ports.is_some() {
        ruleset = ruleset.handle_access(AccessNet::from_all(TARGET)).map_err(refused)?;
    }
    let mut created = ruleset.create().map_err(refused)?;
    let root = PathFd::new("/").map_err(|error| format!("cannot open /: {error}"))?;
    created = created.add_rule(PathBeneath::new(root, AccessFs::from_read(TARGET))).map_err(refused)?;
    for directory in &confinement.writable {
        created = created.add_rule(PathBeneath::new(open_real(directory)?, in_directories())).map_err(refused)?;
    }
    // Not every container has every device.
    let directories = DEVICE_DIRECTORIES.iter().map(|path| (path, in_directories() | AccessFs::IoctlDev));
    for (path, access) in DEVICES.iter().map(|path| (path, AccessFs::from_file(TARGET))).chain(directories) {
        if let Ok(device) = PathFd::new(path) {
            created = created.add_rule(PathBeneath::new(device, access)).map_err(refused)?;
        }
    }
    for port in ports(confinement.ports.as_ref()) {
        created = created.add_rule(port).map_err(refused)?;
    }
    let status = created.restrict_self().map_err(refused)?;
    let rules = match status.ruleset {
        RulesetStatus::FullyEnforced => Rules::All,
        RulesetStatus::PartiallyEnforced => Rules::Some,
        RulesetStatus::NotEnforced => Rules::None,
    };
    Ok(Enforced { rules, abi: status.landlock.into(), no_new_privs: status.no_new_privs, unguarded: None })
}

/// Everything but to make devices, by which root would reach the disks past every rule.
fn in_directories() -> BitFlags<AccessFs> {
    let devices = AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev;
    AccessFs::from_all(TARGET) & !devices
}

fn ports(ports: Option<&Ports>) -> Vec<NetPort> {
    let Some(Ports { connect, bind }) = ports else { return Vec::new() };
    let connect = connect.iter().map(|port| NetPort::new(*port, AccessNet::ConnectTcp));
    connect.chain(bind.iter().map(|port| NetPort::new(*port, AccessNet::BindTcp))).collect()
}

/// A directory by its real path: a link that somebody has put in its way since is no way to elsewhere.
fn open_real(path: &Path) -> Result<OwnedFd, String> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS);
    let opened = match opened {
        // A kernel that is too old for this has no Landlock either, and what is opened serves nobody.
        Err(Errno::NOSYS) => openat(CWD, path, flags | OFlags::NOFOLLOW, Mode::empty()),
        opened => opened,
    };
    opened.map_err(|error| format!("cannot confine the agent: cannot open {}: {error}", path.display()))
}

/// What is in force, or why that is not enough. `is_wrapped`: bubblewrap holds the process besides.
pub fn judge(confinement: &Confinement, enforced: Enforced, is_wrapped: bool) -> Result<Sandbox, String> {
    let Enforced { rules, abi, no_new_privs, unguarded } = enforced;
    let abi = if rules == Rules::None { ABI::Unsupported } else { abi };
    let mut missing = missing(abi, confinement.ports.is_some());
    // bubblewrap hides what is there, and cannot hide what somebody may yet make.
    let exposed: Vec<&PathBuf> = confinement.exposed.iter().filter(|path| !is_wrapped || !path.exists()).collect();
    let told = |path: &&PathBuf| {
        format!("{} belongs to acpd and is inside a directory that the agent may write to", path.display())
    };
    missing.extend(exposed.iter().map(told));
    if !is_wrapped {
        // In bubblewrap there are no processes outside.
        missing.extend(unguarded);
    }
    let level = match rules {
        _ if !no_new_privs => SandboxLevel::None,
        _ if is_wrapped => SandboxLevel::Bubblewrap,
        Rules::None => SandboxLevel::None,
        Rules::All if missing.is_empty() => SandboxLevel::Landlock,
        Rules::All | Rules::Some => SandboxLevel::Partial,
    };
    // Bubblewrap keeps writes in by itself, but it knows nothing of ports.
    let is_enough = match level {
        SandboxLevel::Landlock => true,
        SandboxLevel::Bubblewrap => exposed.is_empty() && (confinement.ports.is_none() || abi >= ABI::V4),
        SandboxLevel::Partial | SandboxLevel::None => false,
    };
    if confinement.required && !is_enough {
        let missing = missing.join("; ");
        return Err(format!(
            "cannot confine the agent as sandbox.mode = \"required\" demands: {missing}; acpd starts no unconfined \
                agent: use a newer kernel, or set sandbox.mode to \"best-effort\""
        ));
    }
    let landlock_abi = (rules != Rules::None).then_some(abi as i32);
    Ok(Sandbox { level, landlock_abi, missing })
}

/// What Landlock of this version lacks of what was asked for.
fn missing(abi: ABI, has_ports: bool) -> Vec<String> {
    if abi == ABI::Unsupported {
        return vec!["the kernel does not support Landlock, or it is disabled".to_owned()];
    }
    let parts = [
        (ABI::V2, true, "the agent cannot move files between directories"),
        (ABI::V3, true, "the agent can truncate files outside (needs Linux 6.2)"),
        (ABI::V4, has_ports, "no rules for ports (needs Linux 6.7)"),
        (ABI::V5, true, "the agent can control devices outside (needs Linux 6.10)"),
        (ABI::V6, true, "the agent can signal processes outside and reach abstract sockets (needs Linux 6.12)"),
    ];
    parts.into_iter().filter(|(since, wanted, _)| abi < *since && *wanted).map(|(_, _, text)| text.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: Enforced = Enforced { rules: Rules::All, abi: ABI::V7, no_new_privs: true, unguarded: None };
    const OLD: Enforced = Enforced { rules: Rules::Some, abi: ABI::V3, no_new_privs: true, unguarded: None };
    /// A seccomp filter leaves it like this: the version is known, and nothing is in force.
    const NONE: Enforced = Enforced { rules: Rules::None, abi: ABI::V7, no_new_privs: true, unguarded: None };

    fn level(confinement: &Confinement, enforced: Enforced, is_wrapped: bool) -> Option<SandboxLevel> {
        judge(confinement, enforced, is_wrapped).ok().map(|sandbox| sandbox.level)
    }

    #[test]
    fn the_level_is_what_the_kernel_says() {
        use SandboxLevel::{Bubblewrap, Landlock, None, Partial};
        let plain = Confinement::default();
        let at_home = Confinement { exposed: vec![PathBuf::from("/home/me/state")], ..plain.clone() };
        for (confinement, enforced, alone, wrapped) in [
            (&plain, FULL, Landlock, Bubblewrap),
            (&plain, OLD, Partial, Bubblewrap),
            (&plain, NONE, None, Bubblewrap),
            (&plain, Enforced { no_new_privs: false, ..FULL }, None, None),
            (&plain, Enforced { unguarded: Some("no seccomp".to_owned()), ..FULL }, Partial, Bubblewrap),
            (&at_home, FULL, Partial, Bubblewrap),
        ] {
            assert_eq!(level(confinement, enforced.clone(), false), Some(alone), "{enforced:?}");
            assert_eq!(level(confinement, enforced.clone(), true), Some(wrapped), "{enforced:?}");
        }
        let told = judge(&plain, OLD, false).unwrap();
        assert_eq!((told.landlock_abi, told.missing.len()), (Some(3), 2), "{told:?}");
        let told = judge(&plain, NONE, false).unwrap();
        assert_eq!((told.landlock_abi, told.missing.len()), (Option::None, 1), "{told:?}");
    }

    #[test]
    fn what_is_required_and_not_in_force_is_an_error_that_names_the_key() {
        let required = Confinement { required: true, ..Confinement::default() };
        assert_eq!(level(&required, FULL, false), Some(SandboxLevel::Landlock));
        assert_eq!(level(&required, NONE, true), Some(SandboxLevel::Bubblewrap));
        for enforced in [OLD, NONE, Enforced { no_new_privs: false, ..FULL }] {
            let error = judge(&required, enforced, false).unwrap_err();
            assert!(error.contains("sandbox.mode") && error.contains("cannot confine"), "{error}");
        }
        let ports = Some(Ports { connect: vec![443], bind: vec![] });
        let offline = Confinement { ports, ..required };
        assert_eq!(level(&offline, FULL, true), Some(SandboxLevel::Bubblewrap));
        assert_eq!(level(&offline, NONE, true), None, "bubblewrap knows nothing of ports");
    }
}
