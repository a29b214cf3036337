//! Confinement: what an agent may write to, laid down by the daemon and carried out by the agent's own process before it
//! becomes the agent.
//!
//! ```text
//! shim ──▶ [bubblewrap ──▶] this program as `__confined` (stage) ── Landlock, exec ──▶ agent
//! ```
//!
//! Why another stage: the shim must stay free, since it signals and reaps; and between fork and exec of a `Command` no code
//! of ours can run without `unsafe`. The stage is the child already, so what it does to itself is safe, and the process that
//! the shim started is the one that becomes the agent. With bubblewrap Landlock comes second, because whoever is in a
//! Landlock domain may not mount.

mod bubblewrap;
mod directories;
mod limits;
mod probe;
mod rules;
pub mod stage;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::config::{self, BubblewrapMode, HomePaths, NetworkMode, SandboxMode};
use crate::model::FsScope;

pub use bubblewrap::{Bubblewrap, PATH as BUBBLEWRAP_PATH, PROGRAM as BUBBLEWRAP};
pub use directories::{Directories, SessionDirectories};
pub use probe::landlock_abi;
pub use rules::LANDLOCK_WANTED;

/// How one agent is confined. Directories are real paths: when one has become a link meanwhile, the agent does not start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confinement {
    /// Less than all of it is not enough.
    pub required: bool,
    pub writable: Vec<PathBuf>,
    /// The only TCP ports, when not all are allowed.
    pub ports: Option<Ports>,
    /// What is acpd's own and lies in what is writable: Landlock cannot take it out again.
    pub exposed: Vec<PathBuf>,
    pub bubblewrap: Option<Bubblewrap>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ports {
    pub connect: Vec<u16>,
    pub bind: Vec<u16>,
}

/// What is acpd's own, and no agent's.
#[derive(Clone, Debug)]
pub struct Places {
    pub state_dir: PathBuf,
    pub socket: PathBuf,
    /// Whether nothing but acpd's own is in the socket's directory: a person may have put it anywhere.
    pub has_own_socket_dir: bool,
    /// The file that is read, or would be if it were there.
    pub config: Option<PathBuf>,
}

impl Places {
    /// The directories in which nobody works, by their real paths.
    pub fn reserved(&self) -> Vec<PathBuf> {
        let socket_dir = self.socket.parent().filter(|_| self.has_own_socket_dir);
        distinct([Some(self.state_dir.as_path()), socket_dir].into_iter().flatten().map(real))
    }

    fn all(&self) -> Vec<PathBuf> {
        distinct(self.named().map(real))
    }

    /// All of them, and besides the links that lead to them: whoever can put another link there has them as well.
    fn all_and_links(&self) -> Vec<PathBuf> {
        let link = |path: &Path| path.parent().zip(path.file_name()).map(|(parent, name)| real(parent).join(name));
        distinct(self.named().flat_map(|path| [Some(real(path)), link(path)]).flatten())
    }

    fn named(&self) -> impl Iterator<Item = &Path> {
        [Some(self.state_dir.as_path()), self.socket.parent(), self.config.as_deref()].into_iter().flatten()
    }
}

/// The real path, as far as it is there.
fn real(path: &Path) -> PathBuf {
    match (path.canonicalize(), path.parent().zip(path.file_name())) {
        (Ok(real), _) => real,
        (Err(_), Some((parent, name))) => real(parent).join(name),
        (Err(_), None) => path.to_owned(),
    }
}

fn distinct(paths: impl Iterator<Item = PathBuf>) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for path in paths {
        if !found.contains(&path) {
            found.push(path);
        }
    }
    found
}

/// All that decides how an agent is confined.
#[derive(Debug)]
pub struct Wish<'a> {
    pub scope: FsScope,
    pub workspace: &'a Path,
    /// Whether the session's policy lets nothing be written in the workspace.
    pub is_read_only: bool,
    pub sandbox: &'a config::Sandbox,
    pub extra: &'a HomePaths,
    /// Of the session's user.
    pub home: &'a Path,
    pub places: &'a Places,
    pub own: &'a SessionDirectories,
}

impl Wish<'_> {
    /// The scope that holds: one that was allowed when the session was made may not be any more.
    pub fn scope_in_force(&self) -> FsScope {
        match self.scope {
            FsScope::Full if !self.sandbox.allow_full => FsScope::Project,
            scope => scope,
        }
    }

    /// Nothing, when it is not confined at all.
    pub fn confinement(&self) -> Option<Confinement> {
        let scope = self.scope_in_force();
        if self.sandbox.mode == SandboxMode::Off || scope == FsScope::Full {
            return None;
        }
        let mut writable = vec![self.own.home.clone(), self.own.tmp.clone()];
        if !self.is_read_only {
            writable.push(self.workspace.to_owned());
        }
        if scope == FsScope::Project {
            let extra = self.extra.below(self.home);
            writable.extend(extra.iter().filter_map(|path| path.canonicalize().ok()).filter(|path| path.is_dir()));
        }
        let exposed = self.exposed(&writable);
        let ports = match self.sandbox.network {
            NetworkMode::Allow => None,
            NetworkMode::Deny => {
                Some(Ports { connect: self.sandbox.connect_ports.clone(), bind: self.sandbox.bind_ports.clone() })
            }
        };
        let required = self.sandbox.mode == SandboxMode::Required;
        Some(Confinement { required, writable, ports, exposed, bubblewrap: self.bubblewrap() })
    }

    /// What is acpd's own and lies in what is writable, or holds it. Of the session's own directories the state directory is
    /// meant to hold two.
    fn exposed(&self, writable: &[PathBuf]) -> Vec<PathBuf> {
        let own = [&self.own.home, &self.own.tmp];
        let others = || writable.iter().filter(|directory| !own.contains(directory));
        let within = self.places.all_and_links().into_iter();
        let within = within.filter(|place| writable.iter().any(|directory| place.starts_with(directory)));
        let around = self.places.reserved().into_iter();
        let around = around.filter(|place| others().any(|directory| directory.starts_with(place)));
        distinct(within.chain(around))
    }

    fn bubblewrap(&self) -> Option<Bubblewrap> {
        let required = match self.sandbox.bubblewrap {
            BubblewrapMode::Never => return None,
            BubblewrapMode::Prefer => false,
            BubblewrapMode::Require => true,
        };
        let mut hidden = self.places.all();
        hidden.extend(self.sandbox.hide.below(self.home).into_iter().filter_map(|path| path.canonicalize().ok()));
        Some(Bubblewrap { required, workspace: self.workspace.to_owned(), hidden, shown: Vec::new() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct World {
        base: tempfile::TempDir,
        sandbox: config::Sandbox,
        extra: HomePaths,
    }

    impl World {
        fn new() -> Self {
            let base = tempfile::tempdir().unwrap();
            for name in ["home/.cargo", "home/work", "home/state/run"] {
                std::fs::create_dir_all(base.path().join(name)).unwrap();
            }
            let extra = HomePaths::from_texts(&["~/.cargo", "~/.missing"]);
            Self { base, sandbox: config::Sandbox::default(), extra }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.base.path().canonicalize().unwrap().join(name)
        }

        fn confinement(&self, scope: FsScope, workspace: &str, is_read_only: bool) -> Option<Confinement> {
            let (home, state_dir) = (self.path("home"), self.path("home/state"));
            let own = SessionDirectories { home: state_dir.join("run/1/home"), tmp: state_dir.join("run/1/tmp") };
            let config = Some(self.path("home/.config/acpd/config.toml"));
            let places =
                Places { socket: state_dir.join("run/acpd.sock"), has_own_socket_dir: true, state_dir, config };
            let workspace = self.path(workspace);
            let (sandbox, extra) = (&self.sandbox, &self.extra);
            let wish = Wish {
                scope,
                workspace: &workspace,
                is_read_only,
                sandbox,
                extra,
                home: &home,
                places: &places,
                own: &own,
            };
            wish.confinement()
        }

        fn writable(&self, scope: FsScope, is_read_only: bool) -> Vec<PathBuf> {
            self.confinement(scope, "home/work", is_read_only).unwrap().writable
        }
    }

    #[test]
    fn a_scope_says_what_is_writable() {
        let mut world = World::new();
        let own = [world.path("home/state/run/1/home"), world.path("home/state/run/1/tmp")];
        let workspace = [own.to_vec(), vec![world.path("home/work")]].concat();
        let project = [workspace.clone(), vec![world.path("home/.cargo")]].concat();
        assert_eq!(world.writable(FsScope::Sandboxed, false), workspace);
        assert_eq!(world.writable(FsScope::Sandboxed, true), own);
        assert_eq!(world.writable(FsScope::Project, false), project, "and what is not there is left out");
        assert_eq!(world.writable(FsScope::Full, false), project, "what is not allowed any more is narrowed");
        world.sandbox.allow_full = true;
        assert_eq!(world.confinement(FsScope::Full, "home/work", false), None);
        world.sandbox.mode = SandboxMode::Off;
        assert_eq!(world.confinement(FsScope::Sandboxed, "home/work", false), None);
    }

    #[test]
    fn a_workspace_that_holds_the_state_directory_is_told() {
        let world = World::new();
        let exposed = |workspace: &str, is_read_only: bool| {
            world.confinement(FsScope::Sandboxed, workspace, is_read_only).unwrap().exposed
        };
        let [state, run, config] = ["home/state", "home/state/run", "home/.config/acpd/config.toml"];
        for (workspace, expected) in [
            ("home/work", vec![]),
            ("home", vec![state, run, config]),
            (state, vec![state, run]),
            ("home/state/run", vec![run, state]),
            ("home/state/logs", vec![state]),
            ("home/.config", vec![config]),
        ] {
            let expected: Vec<PathBuf> = expected.into_iter().map(|name| world.path(name)).collect();
            assert_eq!(exposed(workspace, false), expected, "{workspace}");
            assert!(exposed(workspace, true).is_empty(), "{workspace}");
        }
    }

    #[test]
    fn a_link_to_what_is_acpds_own_is_as_good_as_that() {
        let world = World::new();
        std::fs::create_dir_all(world.path("home/dotfiles")).unwrap();
        std::fs::create_dir_all(world.path("home/.config")).unwrap();
        std::fs::write(world.path("home/dotfiles/acpd.toml"), "").unwrap();
        let link = world.path("home/.config/config.toml");
        std::os::unix::fs::symlink(world.path("home/dotfiles/acpd.toml"), &link).unwrap();
        let places = Places {
            state_dir: world.path("home/state"),
            socket: world.path("home/acpd.sock"),
            has_own_socket_dir: false,
            config: Some(link.clone()),
        };
        let all = [world.path("home/state"), world.path("home"), world.path("home/dotfiles/acpd.toml")];
        assert_eq!(places.all(), all);
        assert_eq!(places.all_and_links(), [&all[..], &[link]].concat());
        assert_eq!(places.reserved(), all[..1], "a person has put the socket in the home");
    }
}
