//! The files that make acpd a service. Their texts are those below `systemd/`, with this program's own path put in.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use super::{Manager, SERVICE, SOCKET};

const SYSTEM_SERVICE: &str = include_str!("../../../systemd/system/acpd.service");
const SYSTEM_SOCKET: &str = include_str!("../../../systemd/system/acpd.socket");
const USER_SERVICE: &str = include_str!("../../../systemd/user/acpd.service");
const USER_SOCKET: &str = include_str!("../../../systemd/user/acpd.socket");
const SYSUSERS: &str = include_str!("../../../systemd/sysusers.d/acpd.conf");
const TMPFILES: &str = include_str!("../../../systemd/tmpfiles.d/acpd.conf");

const SYSTEM_UNITS: &str = "/etc/systemd/system";
pub const SYSUSERS_FILE: &str = "/etc/sysusers.d/acpd.conf";
pub const TMPFILES_FILE: &str = "/etc/tmpfiles.d/acpd.conf";
/// What begins each of them, so that nothing is ever replaced or removed that somebody else has written.
const MARK: &str = "# Written by `acpd install-service`.";

/// The machine's configuration, where there is none yet: who may use the daemon is what it cannot do without.
pub const SYSTEM_CONFIG_FILE: &str = "/etc/acpd/config.toml";
pub const SYSTEM_CONFIG: &str = "\
# The machine's acpd. Every key and its default: docs/configuration.md.

[control]
# Its members may use the daemon, and their agents run as them: `usermod -aG acpd NAME`. It is SocketGroup= of acpd.socket.
group = \"acpd\"
";

/// A file of the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitFile {
    pub path: PathBuf,
    pub text: String,
}

/// Where units of the manager are that are neither a package's nor the distribution's.
pub fn directory(manager: Manager, home: &Path) -> PathBuf {
    match manager {
        Manager::System => PathBuf::from(SYSTEM_UNITS),
        Manager::User => {
            let named = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
            named.unwrap_or_else(|| home.join(".config")).join("systemd/user")
        }
    }
}

/// All files, in the order in which they are needed. `search_path` is where a user's agents are looked for.
pub fn files(manager: Manager, home: &Path, program: &Path, search_path: &str) -> Vec<UnitFile> {
    let program = quoted(&program.display().to_string());
    let units = directory(manager, home);
    let unit = |name: &str, text: &str| UnitFile { path: units.join(name), text: marked(text) };
    match manager {
        Manager::System => vec![
            UnitFile { path: PathBuf::from(SYSUSERS_FILE), text: marked(SYSUSERS) },
            UnitFile { path: PathBuf::from(TMPFILES_FILE), text: marked(TMPFILES) },
            unit(SOCKET, SYSTEM_SOCKET),
            unit(SERVICE, &with_value(SYSTEM_SERVICE, "ExecStart", &format!("{program} serve"))),
        ],
        Manager::User => {
            let service = with_value(USER_SERVICE, "ExecStart", &format!("{program} serve"));
            let service = with_value(&service, "Environment", &quoted(&format!("PATH={search_path}")));
            vec![unit(SOCKET, USER_SOCKET), unit(SERVICE, &service)]
        }
    }
}

/// Whether a file is one that `acpd install-service` wrote.
pub fn is_ours(text: &str) -> bool {
    text.starts_with(MARK)
}

fn marked(text: &str) -> String {
    format!("{MARK}\n{text}")
}

/// The text with another value for the one line that sets the key.
fn with_value(text: &str, key: &str, value: &str) -> String {
    let mut changed = String::new();
    for line in text.lines() {
        let is_it = line.strip_prefix(key).is_some_and(|rest| rest.starts_with('='));
        let written = if is_it { writeln!(changed, "{key}={value}") } else { writeln!(changed, "{line}") };
        // A String takes whatever is written to it.
        written.ok();
    }
    changed
}

/// A word as systemd reads it: its specifiers and variables are none here, and spaces do not part it.
fn quoted(word: &str) -> String {
    let escaped = word.replace('%', "%%").replace('$', "$$").replace('\\', "\\\\").replace('"', "\\\"");
    if escaped.contains(|letter: char| letter.is_whitespace() || "\"'\\".contains(letter)) {
        format!("\"{escaped}\"")
    } else {
        escaped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_programs_path_and_the_users_are_put_in_and_nothing_else_is_changed() {
        let home = Path::new("/home/me");
        let made = files(Manager::User, home, Path::new("/opt/my tools/100%/acpd"), "/opt/$x:/usr/bin");
        let service = &made[1].text;
        assert!(service.contains("\nExecStart=\"/opt/my tools/100%%/acpd\" serve\n"), "{service}");
        assert!(service.contains("\nEnvironment=PATH=/opt/$$x:/usr/bin\n"), "{service}");
        let others = |text: &str| {
            let kept = text.lines().filter(|line| !line.starts_with("ExecStart=") && !line.starts_with("Environment="));
            kept.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(others(service)[1..], others(USER_SERVICE)[..]);
        let made = files(Manager::System, home, Path::new("/usr/local/bin/acpd"), "");
        assert_eq!(made[3].text, marked(SYSTEM_SERVICE), "that is where it is by default");
        assert!(made.iter().all(|file| is_ours(&file.text)));
    }
}
