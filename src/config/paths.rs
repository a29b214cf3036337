//! Where things are: the state directory, the socket and the configuration file.
//!
//! Flags and `ACPD_*` come first, then the directories that systemd gives a service, then the XDG base directories of
//! the user. Everything a daemon writes stays below its state directory and its socket's directory.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// What the flags (or `ACPD_CONFIG`, `ACPD_SOCKET`, `ACPD_STATE_DIR`) say.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    pub config: Option<PathBuf>,
    pub socket: Option<PathBuf>,
    pub state_dir: Option<PathBuf>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    /// The configuration file, when there is one.
    pub config: Option<PathBuf>,
    /// Where it is looked for, whether it is there or not.
    pub config_place: Option<PathBuf>,
    pub socket: PathBuf,
    /// Whether the socket's directory is the daemon's alone: nobody has named another one.
    pub has_own_socket_dir: bool,
    pub state_dir: PathBuf,
    pub home: PathBuf,
}

#[derive(Debug, thiserror::Error)]
#[error(
    "cannot choose a state directory: none of --state-dir, STATE_DIRECTORY, XDG_STATE_HOME and HOME is an absolute \
        path"
)]
pub struct NoHome;

impl Paths {
    pub fn resolve(overrides: &Overrides, environment: &BTreeMap<String, String>) -> Result<Self, NoHome> {
        let directory = |name: &str| directory(environment, name);
        let home = directory("HOME");
        let state_dir = overrides
            .state_dir
            .clone()
            .or_else(|| directory("STATE_DIRECTORY"))
            .or_else(|| below_home(environment, "XDG_STATE_HOME", ".local/state"))
            .ok_or(NoHome)?;
        // Whoever names a state directory means the daemon of that directory, and no other one.
        let runtime_dir = match overrides.state_dir {
            Some(_) => None,
            None => {
                directory("RUNTIME_DIRECTORY").or_else(|| directory("XDG_RUNTIME_DIR").map(|base| base.join("acpd")))
            }
        };
        let socket = overrides
            .socket
            .clone()
            .unwrap_or_else(|| runtime_dir.unwrap_or_else(|| state_dir.join("run")).join("acpd.sock"));
        let has_own_socket_dir = overrides.socket.is_none();
        let config = Self::config_file(overrides, environment);
        let config_place = Self::config_place(overrides, environment);
        let home = home.unwrap_or_else(|| PathBuf::from("/"));
        Ok(Self { config, config_place, socket, has_own_socket_dir, state_dir, home })
    }

    /// The configuration file as it is now: one that nobody named may appear and vanish while the daemon runs.
    pub fn config_file(overrides: &Overrides, environment: &BTreeMap<String, String>) -> Option<PathBuf> {
        Self::config_place(overrides, environment).filter(|path| overrides.config.is_some() || path.exists())
    }

    fn config_place(overrides: &Overrides, environment: &BTreeMap<String, String>) -> Option<PathBuf> {
        overrides.config.clone().or_else(|| {
            directory(environment, "CONFIGURATION_DIRECTORY")
                .or_else(|| below_home(environment, "XDG_CONFIG_HOME", ".config"))
                .map(|base| base.join("config.toml"))
        })
    }

    pub fn database(&self) -> PathBuf {
        self.state_dir.join("acpd.db")
    }

    /// Held by the daemon of this state directory; its text is where that daemon's socket is.
    pub fn lock(&self) -> PathBuf {
        self.state_dir.join("acpd.lock")
    }

    pub fn backups(&self) -> PathBuf {
        self.state_dir.join("backups")
    }

    pub fn logs(&self) -> PathBuf {
        self.state_dir.join("logs")
    }
}

/// A directory that the environment names.
fn directory(environment: &BTreeMap<String, String>, name: &str) -> Option<PathBuf> {
    environment.get(name).map(PathBuf::from).filter(|path| path.is_absolute())
}

/// Our directory in one of the XDG base directories.
fn below_home(environment: &BTreeMap<String, String>, name: &str, fallback: &str) -> Option<PathBuf> {
    let base = directory(environment, name);
    base.or_else(|| directory(environment, "HOME").map(|home| home.join(fallback))).map(|base| base.join("acpd"))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn resolve(environment: &[(&str, &str)]) -> Result<Paths, NoHome> {
        let environment = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Paths::resolve(&Overrides::default(), &environment)
    }

    #[test]
    fn a_users_daemon_lives_in_the_xdg_directories() {
        let paths = resolve(&[("HOME", "/home/me"), ("XDG_RUNTIME_DIR", "/run/user/1000")]).unwrap();
        assert_eq!(paths.state_dir, Path::new("/home/me/.local/state/acpd"));
        assert_eq!(paths.socket, Path::new("/run/user/1000/acpd/acpd.sock"));
        let paths = resolve(&[("HOME", "/home/me"), ("XDG_STATE_HOME", "/data")]).unwrap();
        assert_eq!(paths.socket, Path::new("/data/acpd/run/acpd.sock"));
    }

    #[test]
    fn a_service_lives_in_systemds_directories() {
        let paths = resolve(&[("STATE_DIRECTORY", "/var/lib/acpd"), ("RUNTIME_DIRECTORY", "/run/acpd")]).unwrap();
        assert_eq!(paths.state_dir, Path::new("/var/lib/acpd"));
        assert_eq!(paths.socket, Path::new("/run/acpd/acpd.sock"));
    }

    #[test]
    fn a_state_directory_that_is_named_has_its_own_socket() {
        let overrides = Overrides { state_dir: Some(PathBuf::from("/data/b")), ..Overrides::default() };
        let environment = [("HOME", "/home/me"), ("XDG_RUNTIME_DIR", "/run/user/1000")];
        let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let paths = Paths::resolve(&overrides, &environment).unwrap();
        assert_eq!(paths.socket, Path::new("/data/b/run/acpd.sock"));
    }

    #[test]
    fn a_configuration_file_that_nobody_named_may_appear_and_vanish() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join(".config/acpd/config.toml");
        let environment = BTreeMap::from([("HOME".to_owned(), home.path().to_str().unwrap().to_owned())]);
        let found = |overrides: &Overrides| Paths::config_file(overrides, &environment);
        assert_eq!(found(&Overrides::default()), None);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, "").unwrap();
        assert_eq!(found(&Overrides::default()), Some(file.clone()));
        std::fs::remove_file(&file).unwrap();
        assert_eq!(found(&Overrides::default()), None);
        let named = Overrides { config: Some(file.clone()), ..Overrides::default() };
        assert_eq!(found(&named), Some(file), "one that was named must be there");
    }

    #[test]
    fn without_a_home_it_says_so() {
        assert!(resolve(&[("HOME", "relative")]).is_err());
    }
}
