//! Whether systemd keeps the daemon running. Nobody has to have that.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

use super::Patient;
use crate::cli::findings::Finding;

const UNIT: &str = "acpd.service";
const RUNNING: &str = "/run/systemd/system";
const LINGER: &str = "/var/lib/systemd/linger";
const SYSTEM_PLACES: [&str; 3] = ["/etc/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"];
const USER_PLACES: [&str; 3] = ["/etc/systemd/user", "/usr/lib/systemd/user", "/usr/local/lib/systemd/user"];
/// systemctl answers at once, or something is wrong with it.
const PATIENCE: Duration = Duration::from_secs(3);

pub async fn look(patient: &Patient<'_>) -> Vec<Finding> {
    if !Path::new(RUNNING).is_dir() {
        return vec![Finding::note("systemd", "does not run this machine", "")];
    }
    let home = patient.context.paths().home.join(".config/systemd/user");
    let user_places = std::iter::once(home).chain(USER_PLACES.map(PathBuf::from));
    let installed = |mut places: Box<dyn Iterator<Item = PathBuf>>| {
        places.find_map(|place| Some(place.join(UNIT)).filter(|unit| unit.exists()))
    };
    let system = installed(Box::new(SYSTEM_PLACES.into_iter().map(PathBuf::from)));
    let user = installed(Box::new(user_places));
    let mut found = Vec::new();
    if let Some(unit) = &system {
        found.push(state(unit, false).await);
    }
    if let Some(unit) = &user {
        found.push(state(unit, true).await);
        found.extend(linger());
    }
    if found.is_empty() {
        let message = "no unit is installed: daemons are started when they are needed";
        found.push(Finding::note("unit", message, "docs/operations.md has one that keeps it running"));
    }
    found
}

async fn state(unit: &Path, is_users: bool) -> Finding {
    let (flag, shown) = if is_users { (Some("--user"), "systemctl --user") } else { (None, "systemctl") };
    let ask = async |verb: &str| {
        let mut command = Command::new("systemctl");
        command.args(flag).args([verb, UNIT]).kill_on_drop(true);
        let answer = timeout(PATIENCE, command.output()).await.ok().and_then(Result::ok);
        answer.map(|answer| String::from_utf8_lossy(&answer.stdout).trim().to_owned()).unwrap_or_default()
    };
    let (active, enabled) = (ask("is-active").await, ask("is-enabled").await);
    let check = if is_users { "user unit" } else { "unit" };
    let message = format!("{} is {active}, {enabled}", unit.display());
    match (active.as_str(), enabled.as_str()) {
        ("failed", _) => {
            let log = if is_users { "journalctl --user -u acpd" } else { "journalctl -u acpd" };
            Finding::problem(check, message, format!("`{log}` tells why; then `{shown} restart acpd`"))
        }
        ("active", "enabled" | "static" | "indirect") => Finding::ok(check, message),
        ("active", _) => Finding::note(check, message, format!("`{shown} enable acpd` starts it at boot, too")),
        ("", _) => Finding::warning(check, format!("{} is there, and systemctl does not answer", unit.display()), ""),
        (_, _) => Finding::warning(check, message, format!("`{shown} enable --now acpd` starts it now and at boot")),
    }
}

/// A user's units end with the user's last login, unless they linger.
fn linger() -> Option<Finding> {
    let name = std::env::var("USER").ok().filter(|name| !name.is_empty() && !name.contains('/'))?;
    Some(if Path::new(LINGER).join(&name).exists() {
        Finding::ok("linger", format!("{name}'s daemon goes on after the last logout"))
    } else {
        let message = format!("{name}'s daemon, and its agents, end with the last logout");
        Finding::warning("linger", message, "`loginctl enable-linger` keeps them")
    })
}
