//! The files that make acpd a service. Their texts are those below `systemd/`, with this program's own path put in.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

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
/// Begins the first line of each file. A checksum of the other lines ends it, so that acpd replaces no file that a person has
/// written or changed.
const MARK: &str = "# Written by `acpd install-service`. ";
/// Digits of the sum.
const SUM_DIGITS: usize = 16;
/// Where a user's daemon looks for its own, when that is set: the service is to look there too.
const HOMES: [&str; 2] = ["XDG_CONFIG_HOME", "XDG_STATE_HOME"];

/// The machine's configuration, where there is none yet: who may use the daemon is what it cannot do without.
pub const SYSTEM_CONFIG_FILE: &str = "/etc/acpd/config.toml";
pub const SYSTEM_CONFIG: &str = "\
# Configuration of the machine's acpd. `acpd config --default` prints every key with its default.

[control]
# Members of this group can use the daemon; it runs their agents as those users. Add a member with `usermod -aG acpd NAME`.
# Keep it the same as SocketGroup= in acpd.socket.
group = \"acpd\"
";

/// A file of the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitFile {
    pub path: PathBuf,
    pub text: String,
}

/// Where units of the manager may be that are neither a package's nor the distribution's, the usual place first.
pub fn directories(manager: Manager, home: &Path) -> Vec<PathBuf> {
    match manager {
        Manager::System => vec![PathBuf::from(SYSTEM_UNITS)],
        Manager::User => {
            let named = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
            let all = std::iter::once(home.join(".config")).chain(named);
            all.map(|config| config.join("systemd/user")).collect()
        }
    }
}

/// All files, in the order in which they are needed, with the units in this directory. Of the variables a user's service gets
/// those that say where things are: where agents are looked for, and where its own are.
pub fn files(
    manager: Manager,
    units: &Path,
    program: &Path,
    variable: impl Fn(&str) -> Option<String>,
) -> Vec<UnitFile> {
    let program = quoted(&program.display().to_string());
    let unit = |name: &str, text: &str| UnitFile { path: units.join(name), text: marked(manager, text) };
    match manager {
        Manager::System => vec![
            UnitFile { path: PathBuf::from(SYSUSERS_FILE), text: marked(manager, SYSUSERS) },
            UnitFile { path: PathBuf::from(TMPFILES_FILE), text: marked(manager, TMPFILES) },
            unit(SOCKET, SYSTEM_SOCKET),
            unit(SERVICE, &with_value(SYSTEM_SERVICE, "ExecStart", &format!("{program} serve"))),
        ],
        Manager::User => {
            let service = with_value(USER_SERVICE, "ExecStart", &format!("{program} serve"));
            let set = |name: &str| Some(quoted(&format!("{name}={}", variable(name)?)));
            let variables: Vec<String> = std::iter::once("PATH").chain(HOMES).filter_map(set).collect();
            let service =
                if variables.is_empty() { service } else { with_value(&service, "Environment", &variables.join(" ")) };
            vec![unit(SOCKET, USER_SOCKET), unit(SERVICE, &service)]
        }
    }
}

/// Whether a file is one that `acpd install-service` wrote, also when somebody has changed it since.
pub fn is_ours(text: &str) -> bool {
    text.starts_with(MARK)
}

/// Whether a file is as `acpd install-service` wrote it.
pub fn is_untouched(text: &str) -> bool {
    text.split_once('\n').is_some_and(|(first, rest)| is_ours(first) && first.ends_with(&checksum(rest)))
}

fn marked(manager: Manager, text: &str) -> String {
    let systemctl = manager.systemctl();
    format!("{MARK}Put your changes into a drop-in: `{systemctl} edit acpd`. {}\n{text}", checksum(text))
}

fn checksum(text: &str) -> String {
    let sum = format!("{:x}", Sha256::digest(text));
    format!("({})", &sum[..SUM_DIGITS])
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

/// A word as systemd reads it: its specifiers are none here, and spaces do not part it. Variables it does not look for, neither
/// in a program's path nor in `Environment=`.
fn quoted(word: &str) -> String {
    let escaped = word.replace('%', "%%").replace('\\', "\\\\").replace('"', "\\\"");
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
        let variables = |name: &str| match name {
            "PATH" => Some("/opt/$x:/usr/bin".to_owned()),
            "XDG_STATE_HOME" => Some("/data/my state".to_owned()),
            _ => None,
        };
        let units = Path::new("/home/me/.config/systemd/user");
        let made = files(Manager::User, units, Path::new("/opt/my tools/100%/acpd"), variables);
        assert_eq!(made[1].path, units.join("acpd.service"));
        let service = &made[1].text;
        assert!(service.contains("\nExecStart=\"/opt/my tools/100%%/acpd\" serve\n"), "{service}");
        assert!(service.starts_with(MARK) && service.contains("`systemctl --user edit acpd`"), "{service}");
        let environment = "\nEnvironment=PATH=/opt/$x:/usr/bin \"XDG_STATE_HOME=/data/my state\"\n";
        assert!(service.contains(environment), "{service}");
        let others = |text: &str| {
            let kept = text.lines().filter(|line| !line.starts_with("ExecStart=") && !line.starts_with("Environment="));
            kept.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(others(service)[1..], others(USER_SERVICE)[..]);
        let made =
            files(Manager::System, Path::new("/etc/systemd/system"), Path::new("/usr/local/bin/acpd"), variables);
        assert_eq!(made[3].text, marked(Manager::System, SYSTEM_SERVICE), "that is where it is by default");
        assert!(made.iter().all(|file| is_ours(&file.text) && is_untouched(&file.text)));
        let changed = made[3].text.replace("WatchdogSec=60", "WatchdogSec=99");
        assert!(is_ours(&changed) && !is_untouched(&changed));
        assert!(!is_ours("# mine") && !is_untouched("# mine"));
        let made = files(Manager::User, units, Path::new("/usr/bin/acpd"), |_| None);
        assert!(made[1].text.contains("\nEnvironment=PATH=%h/.local/bin:"), "what nobody knows stays as it is");
    }
}
