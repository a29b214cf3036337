//! Whose the files are, and who may reach them.

use std::fs::Metadata;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::Patient;
use rustix::fs::{Access, AtFlags, CWD, StatVfsMountFlags, accessat, statvfs};

use crate::cli::findings::Finding;
use crate::config::Config;
use crate::model::AgentProfile;

/// What others than the owner may do: with what is private, nothing; with directories that their own are in, only go through.
const OTHERS: u32 = 0o077;
const OTHERS_BUT_PASSING: u32 = 0o066;
const OTHERS_WRITING: u32 = 0o022;
/// Where a group is served, its members pass; everybody else does not.
const ALL_BUT_GROUP: u32 = 0o007;
const STICKY: u32 = 0o1000;
/// Directories of the machine. Whoever closes them closes them to everybody.
const SHARED: [&str; 11] =
    ["/", "/dev", "/dev/shm", "/etc", "/home", "/opt", "/run", "/srv", "/tmp", "/var", "/var/tmp"];

pub fn look(patient: &Patient<'_>) -> Vec<Finding> {
    if patient.is_guest() {
        let told = "not checked: the daemon and its files belong to another user";
        return vec![Finding::note("permissions", told, "")];
    }
    let mut found = Vec::new();
    let config = patient.config.as_ref().ok();
    let has_group = config.is_some_and(|config| config.control.group.is_some());
    let state_dir = || directory("state dir", &patient.state_dir, OTHERS_BUT_PASSING, "700", "--state-dir");
    found.extend(unwritable(&patient.state_dir).or_else(state_dir));
    found.extend(private("database", &patient.state_dir.join("acpd.db"), OTHERS, "600"));
    let (others, directory, socket) = if has_group { (ALL_BUT_GROUP, "750", "660") } else { (OTHERS, "700", "600") };
    if let Some(parent) = patient.context.socket.parent() {
        found.extend(self::directory("socket dir", parent, others, directory, "--socket"));
    }
    found.extend(private("socket", &patient.context.socket, others, socket));
    if let Some(file) = patient.config_file.as_deref().filter(|file| file.exists()) {
        found.extend(configuration(file, config));
    }
    for profile in config.into_iter().flat_map(|config| config.agents.values()) {
        found.extend(profile.env_file.iter().filter_map(|file| env_file(profile, file)));
    }
    if found.is_empty() {
        found.push(Finding::note("permissions", "no files exist yet", ""));
    }
    found
}

/// A file that is there; nothing, when it is not.
fn stat(check: &str, path: &Path) -> Option<Result<Metadata, Finding>> {
    match std::fs::metadata(path) {
        Ok(metadata) => Some(Ok(metadata)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => None,
        Err(error) => {
            let message = format!("cannot check {}: {error}", path.display());
            Some(Err(Finding::warning(check, message, "run `acpd doctor` as the daemon's user")))
        }
    }
}

/// A directory that is to be acpd's own. One that it shares is never closed to the others: another one is chosen.
fn directory(check: &str, path: &Path, others: u32, mode: &str, flag: &str) -> Option<Finding> {
    let metadata = match stat(check, path)? {
        Ok(metadata) => metadata,
        Err(finding) => return Some(finding),
    };
    let shown = path.display();
    if !metadata.is_dir() {
        let hint = format!("choose a directory with {flag}, or move that file away");
        return Some(Finding::problem(check, format!("{shown} is not a directory"), hint));
    }
    let is_own = metadata.uid() == rustix::process::geteuid().as_raw();
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let is_shared = metadata.mode() & STICKY != 0 || SHARED.iter().any(|shared| real == Path::new(shared));
    let is_open = metadata.mode() & others != 0;
    if is_shared || (!is_own && is_open) {
        let message = format!("{shown} is shared with other users, but the daemon needs its own directory");
        return Some(Finding::problem(check, message, format!("choose another directory with {flag}")));
    }
    private(check, path, others, mode)
}

/// Whether the daemon could not write there, were it started from here. What is not there yet is made in what is.
fn unwritable(state_dir: &Path) -> Option<Finding> {
    let there = state_dir.ancestors().find(|directory| directory.exists())?;
    let is_read_only = statvfs(there).is_ok_and(|system| system.f_flag.contains(StatVfsMountFlags::RDONLY));
    let shown = there.display();
    let hint = "choose another directory with --state-dir or ACPD_STATE_DIR";
    if is_read_only {
        return Some(Finding::problem("state dir", format!("{shown} is on a read-only file system"), hint));
    }
    let wanted = Access::WRITE_OK | Access::EXEC_OK;
    let is_directory = there.is_dir();
    let denied = accessat(CWD, there, wanted, AtFlags::EACCESS).err().filter(|_| is_directory)?;
    Some(Finding::problem("state dir", format!("cannot write to {shown}: {denied}"), hint))
}

fn private(check: &str, path: &Path, others: u32, mode: &str) -> Option<Finding> {
    let metadata = match stat(check, path)? {
        Ok(metadata) => metadata,
        Err(finding) => return Some(finding),
    };
    let shown = path.display();
    if let Some(foreign) = foreign(check, path, &metadata) {
        return Some(foreign);
    }
    let found = metadata.mode() & 0o777;
    if found & others == 0 {
        return Some(Finding::ok(check, format!("{shown} ({found:o})")));
    }
    let message = format!("other users can access {shown} (mode {found:o})");
    Some(Finding::problem(check, message, format!("chmod {mode} {shown}")))
}

/// What is neither ours nor root's is somebody's who could put anything there.
fn foreign(check: &str, path: &Path, metadata: &Metadata) -> Option<Finding> {
    let own = rustix::process::geteuid().as_raw();
    let is_known = [own, 0].contains(&metadata.uid()) || own == 0;
    (!is_known).then(|| {
        let message = format!("{} belongs to uid {}", path.display(), metadata.uid());
        Finding::problem(check, message, format!("chown {own} {}, or choose another path", path.display()))
    })
}

/// Others may read it, unless there are secrets in it; nobody else may change what the daemon runs.
fn configuration(path: &Path, config: Option<&Config>) -> Option<Finding> {
    let check = "configuration";
    let metadata = match stat(check, path)? {
        Ok(metadata) => metadata,
        Err(finding) => return Some(finding),
    };
    if let Some(foreign) = foreign(check, path, &metadata) {
        return Some(foreign);
    }
    let (shown, mode) = (path.display(), metadata.mode() & 0o777);
    if mode & OTHERS_WRITING != 0 {
        let message = format!("other users can change {shown} (mode {mode:o}), which says what the daemon runs");
        return Some(Finding::problem(check, message, format!("chmod go-w {shown}")));
    }
    let secret = config.filter(|_| mode & OTHERS != 0).and_then(secret_in);
    if let Some((agent, name)) = secret {
        let message =
            format!("other users can read {shown} (mode {mode:o}), which contains {name} of the agent {agent}");
        let hint = format!(
            "chmod 600 {shown}, or move the value to an env_file, or list it in env_plain if it is not a secret"
        );
        return Some(Finding::problem(check, message, hint));
    }
    Some(Finding::ok(check, format!("{shown} ({mode:o})")))
}

/// A value in the file that may be a secret: one that was not shipped, and is not said to be none.
fn secret_in(config: &Config) -> Option<(String, String)> {
    let shipped = Config::default().agents;
    let is_plain = |profile: &AgentProfile, name: &str| {
        profile.env_plain.iter().any(|plain| match plain.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => name == plain,
        })
    };
    let is_shipped = |profile: &AgentProfile, name: &str| {
        shipped.get(&profile.slug).is_some_and(|known| known.env.get(name) == profile.env.get(name))
    };
    config.agents.values().find_map(|profile| {
        // A value that begins with a placeholder is a place.
        let mut named = profile.env.iter().filter(|(_, value)| !value.reveal().starts_with('{'));
        let (secret, _) = named.find(|(name, _)| !is_plain(profile, name) && !is_shipped(profile, name))?;
        Some((profile.slug.clone(), secret.clone()))
    })
}

fn env_file(profile: &AgentProfile, file: &str) -> Option<Finding> {
    let check = format!("env_file {}", profile.slug);
    let may_be_missing = file.starts_with('-');
    let path = Path::new(file.strip_prefix('-').unwrap_or(file));
    match private(&check, path, OTHERS, "600") {
        None if may_be_missing => None,
        None => {
            let message = format!("{} does not exist, so the agent {} does not start", path.display(), profile.slug);
            Some(Finding::problem(
                check,
                message,
                format!("create it, or write \"-{}\" to make it optional", path.display()),
            ))
        }
        found => found,
    }
}
