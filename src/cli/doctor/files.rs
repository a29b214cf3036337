//! Whose the files are, and who may reach them.

use std::fs::Metadata;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::Patient;
use crate::cli::findings::Finding;
use crate::config::Config;
use crate::model::AgentProfile;

/// What others than the owner may do: with what is private, nothing; with directories that their own are in, only go through.
const OTHERS: u32 = 0o077;
const OTHERS_BUT_PASSING: u32 = 0o066;
const OTHERS_WRITING: u32 = 0o022;
/// Where a group is served, its members pass; everybody else does not.
const ALL_BUT_GROUP: u32 = 0o007;

pub fn look(patient: &Patient<'_>) -> Vec<Finding> {
    if patient.is_guest() {
        let told = "the daemon is another user's, and so are its files";
        return vec![Finding::note("permissions", told, "")];
    }
    let mut found = Vec::new();
    let config = patient.config.as_ref().ok();
    let has_group = config.is_some_and(|config| config.control.group.is_some());
    found.extend(private("state dir", &patient.state_dir, OTHERS_BUT_PASSING, "700"));
    found.extend(private("database", &patient.state_dir.join("acpd.db"), OTHERS, "600"));
    let (others, directory, socket) = if has_group { (ALL_BUT_GROUP, "750", "660") } else { (OTHERS, "700", "600") };
    if let Some(parent) = patient.context.socket.parent() {
        found.extend(private("socket dir", parent, others, directory));
    }
    found.extend(private("socket", &patient.context.socket, others, socket));
    if let Some(file) = patient.config_file.as_deref().filter(|file| file.exists()) {
        found.extend(configuration(file, config));
    }
    for profile in config.into_iter().flat_map(|config| config.agents.values()) {
        found.extend(profile.env_file.iter().filter_map(|file| env_file(profile, file)));
    }
    if found.is_empty() {
        found.push(Finding::note("permissions", "there are no files yet", ""));
    }
    found
}

/// A file that is there; nothing, when it is not.
fn stat(check: &str, path: &Path) -> Option<Result<Metadata, Finding>> {
    match std::fs::metadata(path) {
        Ok(metadata) => Some(Ok(metadata)),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => {
            let message = format!("{} cannot be looked at: {error}", path.display());
            Some(Err(Finding::warning(check, message, "look at it as the user whose daemon it is")))
        }
    }
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
    let message = format!("{shown} is open to others (mode {found:o})");
    Some(Finding::problem(check, message, format!("chmod {mode} {shown}")))
}

/// What is neither ours nor root's is somebody's who could put anything there.
fn foreign(check: &str, path: &Path, metadata: &Metadata) -> Option<Finding> {
    let own = rustix::process::geteuid().as_raw();
    let is_known = [own, 0].contains(&metadata.uid()) || own == 0;
    (!is_known).then(|| {
        let message = format!("{} belongs to uid {}", path.display(), metadata.uid());
        Finding::problem(check, message, format!("chown {own} {}, or choose another place", path.display()))
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
        let message = format!("{shown} can be changed by others (mode {mode:o}), and says what the daemon runs");
        return Some(Finding::problem(check, message, format!("chmod go-w {shown}")));
    }
    let secret = config.filter(|_| mode & OTHERS != 0).and_then(secret_in);
    if let Some((agent, name)) = secret {
        let message =
            format!("{shown} can be read by others (mode {mode:o}), and has {name} of the agent {agent} in it");
        let hint =
            format!("chmod 600 {shown}, or put the value into an env_file, or name it in env_plain if it is no secret");
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
        let secret = profile.env.keys().find(|name| !is_plain(profile, name) && !is_shipped(profile, name))?;
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
            let message = format!("{} is not there, so the agent {} does not start", path.display(), profile.slug);
            Some(Finding::problem(
                check,
                message,
                format!("make it, or write \"-{}\" if it need not be", path.display()),
            ))
        }
        found => found,
    }
}
