//! Confinement: what an agent may touch. The daemon decides it, and the agent's own process carries it out before it becomes the
//! agent.
//!
//! ```text
//! writes-only: shim ──▶ `acpd __confined` (stage) ── Landlock, seccomp, exec ──▶ agent
//! isolated:    shim ──▶ `acpd __home` (home_layer) ── overlay, exec ──▶ bubblewrap ──▶ stage ──▶ agent
//! ```
//!
//! Why a stage: the shim must stay free, because it signals and reaps; and between fork and exec of a `Command` none of our code
//! can run without `unsafe`. The process that the shim starts is the one that becomes the agent. Landlock comes last, because a
//! process in a Landlock domain may not mount.

mod calls;
mod directories;
pub mod home_layer;
mod isolation;
mod probe;
mod rules;
pub mod stage;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use self::calls::Reach;
use self::isolation::Home;
use crate::config::{self, BubblewrapMode, HomePaths, NetworkMode, SandboxMode};
use crate::model::FsScope;

pub use directories::{Directories, SessionDirectories};
pub use isolation::{Isolation, PATH as BUBBLEWRAP_PATH, PROGRAM as BUBBLEWRAP};
pub use probe::landlock_abi;
pub use rules::LANDLOCK_WANTED;

/// How one agent is confined. Directories are real paths: if one is replaced by a link, the agent does not start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confinement {
    /// An agent that is not isolated does not start.
    pub required: bool,
    pub writable: Vec<PathBuf>,
    pub network: Network,
    /// Files of acpd inside of `writable`: Landlock cannot except them.
    pub exposed: Vec<PathBuf>,
    /// If it is wanted.
    pub isolation: Option<Isolation>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Network {
    #[default]
    Any,
    /// The only TCP ports.
    Ports {
        connect: Vec<u16>,
        bind: Vec<u16>,
    },
    None,
}

impl Network {
    const fn reach(&self) -> Reach {
        match self {
            Self::Any => Reach::Anything,
            Self::Ports { .. } => Reach::TcpPorts,
            Self::None => Reach::Nothing,
        }
    }
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

    /// What agents with this home do not see, and do not reach through the daemon.
    pub fn hidden(&self, sandbox: &config::Sandbox, home: &Path) -> Vec<PathBuf> {
        let others = sandbox.hide.below(home).into_iter().filter_map(|path| path.canonicalize().ok());
        self.all().into_iter().chain(others).collect()
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

/// What programs of a user read in the home, and execute what it says.
const START_FILES: &str = ".bash_login .bash_logout .bash_profile .bashrc .cargo/config.toml .cargo/env .config/autostart \
                           .config/environment.d .config/fish .config/systemd .local/share/systemd .profile .zprofile \
                           .zshenv .zshrc";

/// All that decides how an agent is confined.
#[derive(Debug)]
pub struct Wish<'a> {
    pub scope: FsScope,
    pub workspace: &'a Path,
    /// Whether the session's policy lets nothing be written in the workspace.
    pub is_read_only: bool,
    pub sandbox: &'a config::Sandbox,
    pub extra: &'a HomePaths,
    /// What the agent's profile excepts from what isolation hides.
    pub shown: &'a HomePaths,
    /// Of the session's user.
    pub home: &'a Path,
    /// The directories in which that user's shell finds programs.
    pub path: &'a str,
    pub places: &'a Places,
    pub own: &'a SessionDirectories,
}

impl Wish<'_> {
    /// The scope that holds: one that was allowed when the session was made may not be any more.
    pub fn scope_in_force(&self) -> FsScope {
        self.scope.within(self.sandbox.allow_full)
    }

    /// None if the agent is not confined at all.
    pub fn confinement(&self) -> Result<Option<Confinement>, RefusedDirectory> {
        let scope = self.scope_in_force();
        if self.sandbox.mode == SandboxMode::Off || scope == FsScope::Full {
            return Ok(None);
        }
        let mut writable = vec![self.own.home.clone(), self.own.tmp.clone()];
        if !self.is_read_only {
            writable.push(self.workspace.to_owned());
        }
        if scope == FsScope::Project {
            let extra = self.extra.below(self.home).into_iter().filter_map(|path| path.canonicalize().ok());
            let extra: Vec<PathBuf> = extra.filter(|path| path.is_dir()).collect();
            extra.iter().try_for_each(|directory| self.check_extra(directory))?;
            writable.extend(extra);
        }
        let exposed = self.exposed(&writable);
        let network = match self.sandbox.network {
            NetworkMode::Allow => Network::Any,
            NetworkMode::Ports => {
                Network::Ports { connect: self.sandbox.connect_ports.clone(), bind: self.sandbox.bind_ports.clone() }
            }
            NetworkMode::None => Network::None,
        };
        let required = self.sandbox.mode == SandboxMode::Required;
        let isolation = self.isolation(&writable);
        Ok(Some(Confinement { required, writable, network, exposed, isolation }))
    }

    /// An agent that could replace what its user executes later would leave its confinement.
    fn check_extra(&self, directory: &Path) -> Result<(), RefusedDirectory> {
        let on_path = std::env::split_paths(self.path).chain(["/etc", "/usr", "/lib"].map(PathBuf::from));
        let of_home = START_FILES.split(' ').map(|name| self.home.join(name));
        let executed = on_path.chain(of_home).chain(std::env::current_exe()).map(|path| real(&path));
        let is_held = |path: &PathBuf| path.starts_with(directory) || directory.starts_with(path);
        match executed.into_iter().find(is_held) {
            Some(holds) => Err(RefusedDirectory { directory: directory.to_owned(), holds }),
            None => Ok(()),
        }
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

    fn isolation(&self, writable: &[PathBuf]) -> Option<Isolation> {
        if self.sandbox.bubblewrap == BubblewrapMode::Never {
            return None;
        }
        let (places, shown) = (self.places.all(), self.shown.below(self.home).into_iter());
        let is_acpds = |path: &PathBuf| places.iter().any(|place| path.starts_with(place));
        let shown = shown.filter_map(|path| path.canonicalize().ok()).filter(|path| !is_acpds(path)).collect();
        let hidden = self.places.hidden(self.sandbox, self.home);
        let bytes_max = self.sandbox.home_max.0 as u64;
        let home = self.home.canonicalize().ok().filter(|home| home.parent().is_some() && home.is_dir());
        // What is writable is the user's own, and so is a home inside of it.
        let home = home.filter(|home| !writable.iter().any(|directory| home.starts_with(directory)));
        Some(Isolation {
            workspace: self.workspace.to_owned(),
            tmp: self.own.tmp.clone(),
            home: home.map(|path| Home { path, layer: self.own.layer.clone(), bytes_max }),
            hidden,
            shown,
        })
    }
}

/// A directory that no agent may be given to write to.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "workspace.extra must not make {} writable, because {} is executed outside of the sandbox; list the caches in it \
        instead, such as \"~/.cargo/registry\"", .directory.display(), .holds.display()
)]
pub struct RefusedDirectory {
    directory: PathBuf,
    holds: PathBuf,
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
            for name in ["home/.cargo/registry", "home/.cargo/bin", "home/work", "home/state/run"] {
                std::fs::create_dir_all(base.path().join(name)).unwrap();
            }
            let extra = HomePaths::from_words("~/.cargo/registry ~/.missing");
            Self { base, sandbox: config::Sandbox::default(), extra }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.base.path().canonicalize().unwrap().join(name)
        }

        fn confinement(&self, scope: FsScope, workspace: &str, is_read_only: bool) -> Option<Confinement> {
            self.wish(scope, workspace, is_read_only).unwrap()
        }

        fn wish(
            &self,
            scope: FsScope,
            workspace: &str,
            is_read_only: bool,
        ) -> Result<Option<Confinement>, RefusedDirectory> {
            let (home, state_dir) = (self.path("home"), self.path("home/state"));
            let own = SessionDirectories::in_directory(&state_dir.join("run/1"));
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
                shown: &HomePaths::default(),
                home: &home,
                path: &format!("/usr/bin:{}", home.join(".cargo/bin").display()),
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
        let project = [workspace.clone(), vec![world.path("home/.cargo/registry")]].concat();
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
    fn a_directory_with_what_its_user_executes_is_never_writable() {
        let mut world = World::new();
        for extra in ["~/.cargo", "~/.cargo/bin", "~/.config/systemd", "/usr/local"] {
            std::fs::create_dir_all(world.path("home/.config/systemd/user")).unwrap();
            world.extra = HomePaths::from_words(extra);
            let refused = world.wish(FsScope::Project, "home/work", false).unwrap_err().to_string();
            assert!(refused.contains("workspace.extra") && refused.contains(".cargo/registry"), "{refused}");
            assert!(world.wish(FsScope::Sandboxed, "home/work", false).is_ok(), "{extra}");
        }
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
