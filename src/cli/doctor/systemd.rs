//! Whether systemd keeps the daemon running. Nobody has to have that.

use std::path::Path;

use super::Patient;
use crate::cli::findings::Finding;
use crate::cli::service::{Manager, SERVICE};

const LINGER: &str = "/var/lib/systemd/linger";

pub async fn look(patient: &Patient<'_>) -> Vec<Finding> {
    if !Manager::System.runs() {
        return vec![Finding::note("systemd", "not running on this machine", "")];
    }
    let home = &patient.context.paths().home;
    let mut found = Vec::new();
    if let Some(unit) = Manager::System.installed(home) {
        found.push(state(&unit, Manager::System).await);
    }
    if let Some(unit) = Manager::User.installed(home) {
        found.push(state(&unit, Manager::User).await);
        found.extend(linger());
    }
    if found.is_empty() {
        let message = "no unit is installed: clients start the daemon when they need it";
        found.push(Finding::note("unit", message, "`acpd install-service --user` installs a service for you"));
    }
    found
}

async fn state(unit: &Path, manager: Manager) -> Finding {
    let systemctl = manager.systemctl();
    let (active, enabled) = (manager.ask("is-active", SERVICE).await, manager.ask("is-enabled", SERVICE).await);
    let check = if manager == Manager::User { "user unit" } else { "unit" };
    let message = format!("{} is {active}, {enabled}", unit.display());
    match (active.as_str(), enabled.as_str()) {
        ("failed", _) => {
            let log = manager.journalctl();
            let again = format!("`{systemctl} reset-failed acpd.service acpd.socket`, `{systemctl} start acpd`");
            Finding::problem(check, message, format!("find out why with `{log}`; then run {again}"))
        }
        ("active", "enabled" | "static" | "indirect") => Finding::ok(check, message),
        ("active", _) => {
            Finding::note(check, message, format!("to start it at boot too, run `{systemctl} enable acpd`"))
        }
        ("", _) => Finding::warning(check, format!("{} exists, but systemctl does not answer", unit.display()), ""),
        (_, _) => Finding::warning(
            check,
            message,
            format!("to start it now and at boot, run `{systemctl} enable --now acpd`"),
        ),
    }
}

/// A user's units end with the user's last login, unless they linger.
fn linger() -> Option<Finding> {
    let name = std::env::var("USER").ok().filter(|name| !name.is_empty() && !name.contains('/'))?;
    Some(if Path::new(LINGER).join(&name).exists() {
        Finding::ok("linger", format!("{name}'s daemon keeps running after logout"))
    } else {
        let message = format!("{name}'s daemon and its agents stop at the last logout");
        Finding::warning("linger", message, "to keep them running, run `loginctl enable-linger`")
    })
}
