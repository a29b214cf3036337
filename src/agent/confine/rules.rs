//! Landlock's rules, and what of them the kernel has really put into force.

use std::os::fd::OwnedFd;
use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, NetPort, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;

use super::calls::{self, Extent};
use super::{Confinement, Network};
use crate::model::{Sandbox, SandboxLevel};

/// The version whose rights are all asked for (Linux 6.12): less of them than this is partial.
const TARGET: ABI = ABI::V6;
/// The same, as a number for people.
pub const LANDLOCK_WANTED: i32 = TARGET as i32;

/// What programs write to without keeping anything.
const DEVICES: [&str; 7] =
    ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx"];
const SHARED_MEMORY: &str = "/dev/shm";
/// Isolated agents have terminals of their own there. Others would write to those of their user.
const TERMINALS: &str = "/dev/pts";

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
    /// Why no system calls are refused, if so.
    pub calls: Result<(), String>,
}

/// Confines this process, which must have one thread, and all that it starts.
pub fn enforce(confinement: &Confinement, is_isolated: bool) -> Result<Enforced, String> {
    let refused = |error: RulesetError| format!("cannot confine the agent: Landlock: {error}");
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(TARGET))
        .map_err(refused)?
        .scope(Scope::from_all(TARGET))
        .map_err(refused)?;
    if let Network::Ports { .. } = confinement.network {
        ruleset = ruleset.handle_access(AccessNet::from_all(TARGET)).map_err(refused)?;
    }
    let mut created = ruleset.create().map_err(refused)?;
    let root = PathFd::new("/").map_err(|error| format!("cannot open /: {error}"))?;
    created = created.add_rule(PathBeneath::new(root, AccessFs::from_read(TARGET))).map_err(refused)?;
    let home = confinement.isolation.as_ref().filter(|_| is_isolated).and_then(|isolation| isolation.home.as_ref());
    for directory in confinement.writable.iter().chain(home.map(|home| &home.path)) {
        created = created.add_rule(PathBeneath::new(open_real(directory)?, in_directories())).map_err(refused)?;
    }
    // Not every container has every device.
    let directories = [SHARED_MEMORY].into_iter().chain(is_isolated.then_some(TERMINALS));
    let directories = directories.map(|path| (path, in_directories() | AccessFs::IoctlDev));
    for (path, access) in DEVICES.into_iter().map(|path| (path, AccessFs::from_file(TARGET))).chain(directories) {
        if let Ok(device) = PathFd::new(path) {
            created = created.add_rule(PathBeneath::new(device, access)).map_err(refused)?;
        }
    }
    for port in ports(&confinement.network) {
        created = created.add_rule(port).map_err(refused)?;
    }
    let status = created.restrict_self().map_err(refused)?;
    let rules = match status.ruleset {
        RulesetStatus::FullyEnforced => Rules::All,
        RulesetStatus::PartiallyEnforced => Rules::Some,
        RulesetStatus::NotEnforced => Rules::None,
    };
    let extent = Extent { shares_namespaces: !is_isolated, network: confinement.network.reach() };
    let calls = calls::refuse(extent);
    Ok(Enforced { rules, abi: status.landlock.into(), no_new_privs: status.no_new_privs, calls })
}

/// Everything but to make devices, by which root would reach the disks past every rule.
fn in_directories() -> BitFlags<AccessFs> {
    let devices = AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev;
    AccessFs::from_all(TARGET) & !devices
}

fn ports(network: &Network) -> Vec<NetPort> {
    let Network::Ports { connect, bind } = network else { return Vec::new() };
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

/// The level in force: the strongest one of which nothing is missing.
pub fn judge(confinement: &Confinement, enforced: Enforced, is_isolated: bool) -> Sandbox {
    let Enforced { rules, abi, no_new_privs, calls } = enforced;
    let abi = if rules == Rules::None { ABI::Unsupported } else { abi };
    // bubblewrap can only hide files that exist.
    let exposed = confinement.exposed.iter().filter(|path| !is_isolated || !path.exists());
    let exposed = exposed.map(|path| {
        format!("{} belongs to acpd and is inside a directory that the agent may write to", path.display())
    });
    let mut missing: Vec<String> = missing_to_confine_writes(abi, confinement, is_isolated).chain(exposed).collect();
    missing.extend(calls.err());
    let confines_writes = missing.is_empty();
    // Network namespaces separate abstract sockets too.
    if is_isolated && abi < ABI::V6 && confinement.network != Network::None {
        missing.push("the agent can reach abstract sockets outside (needs Landlock 6, Linux 6.12)".to_owned());
    }
    let level = match (confines_writes, is_isolated) {
        _ if !no_new_privs || (rules == Rules::None && !is_isolated) => SandboxLevel::None,
        (false, _) => SandboxLevel::Partial,
        (true, true) if missing.is_empty() => SandboxLevel::Isolated,
        (true, _) => SandboxLevel::WritesOnly,
    };
    let landlock_abi = (rules != Rules::None).then_some(abi as i32);
    Sandbox { level, landlock_abi, missing }
}

/// What is missing to confine writes, the network and control of other processes.
fn missing_to_confine_writes(
    abi: ABI,
    confinement: &Confinement,
    is_isolated: bool,
) -> impl Iterator<Item = String> + use<> {
    const NO_LANDLOCK: &str = "the kernel does not support Landlock, or it is disabled";
    let has_ports = matches!(confinement.network, Network::Ports { .. });
    let has_landlock = abi != ABI::Unsupported;
    // In its namespaces the agent sees no devices, no processes and no writable files outside.
    let parts = [
        (ABI::V1, !is_isolated, NO_LANDLOCK),
        (ABI::V3, !is_isolated && has_landlock, "the agent can truncate files outside (needs Linux 6.2)"),
        (ABI::V4, has_ports, "no rules for ports (needs Landlock 4, Linux 6.7)"),
        (ABI::V5, !is_isolated && has_landlock, "the agent can control devices outside (needs Linux 6.10)"),
        (
            ABI::V6,
            !is_isolated && has_landlock,
            "the agent can signal processes outside and reach abstract sockets (needs Linux 6.12)",
        ),
    ];
    let missing = move |(since, wanted, _): &(ABI, bool, &str)| abi < *since && *wanted;
    parts.into_iter().filter(missing).map(|(_, _, text)| text.to_owned())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    const FULL: Enforced = Enforced { rules: Rules::All, abi: ABI::V7, no_new_privs: true, calls: Ok(()) };
    const OLD: Enforced = Enforced { rules: Rules::Some, abi: ABI::V3, no_new_privs: true, calls: Ok(()) };
    /// Under a foreign seccomp filter: the version is known, and nothing is in force.
    const NONE: Enforced = Enforced { rules: Rules::None, abi: ABI::V7, no_new_privs: true, calls: Ok(()) };

    #[test]
    fn the_level_is_never_stronger_than_what_is_in_force() {
        use SandboxLevel::{Isolated, None, Partial, WritesOnly};
        let plain = Confinement::default();
        let exposed = vec![PathBuf::from("/home/me/no/such/file")];
        let at_home = Confinement { exposed, ..plain.clone() };
        let network = Network::Ports { connect: vec![443], bind: vec![] };
        let with_ports = Confinement { network, ..plain.clone() };
        let offline = Confinement { network: Network::None, ..plain.clone() };
        for (confinement, enforced, alone, isolated) in [
            (&plain, FULL, WritesOnly, Isolated),
            (&plain, OLD, Partial, WritesOnly),
            (&plain, NONE, None, WritesOnly),
            (&plain, Enforced { no_new_privs: false, ..FULL }, None, None),
            (&plain, Enforced { calls: Err("no seccomp".to_owned()), ..FULL }, Partial, Partial),
            (&at_home, FULL, Partial, Partial),
            (&with_ports, FULL, WritesOnly, Isolated),
            (&with_ports, OLD, Partial, Partial),
            (&offline, OLD, Partial, Isolated),
        ] {
            let level = |is_isolated| judge(confinement, enforced.clone(), is_isolated).level;
            assert_eq!((level(false), level(true)), (alone, isolated), "{confinement:?} {enforced:?}");
        }
        let told = judge(&plain, OLD, false);
        assert_eq!((told.landlock_abi, told.missing.len()), (Some(3), 2), "{told:?}");
        let told = judge(&plain, NONE, false);
        assert_eq!((told.landlock_abi, told.missing.len()), (Option::None, 1), "{told:?}");
    }
}
