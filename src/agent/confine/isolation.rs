//! Isolation: namespaces made by bubblewrap, where files, sockets and processes are hidden, which Landlock cannot do.

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags};
use serde::{Deserialize, Serialize};

use super::{Confinement, Network, home_layer};
use crate::agent::command::{SELF_PROGRAM, find_program};

pub const PROGRAM: &str = "bwrap";
/// The directories where acpd searches for it. The agent's user cannot put another program there.
pub const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// A read-only system with its own devices, processes, IPC objects and host name.
const NAMESPACES: &str = "--ro-bind / / --dev /dev --proc /proc --cap-drop ALL --unshare-user --unshare-pid --unshare-ipc \
                          --unshare-uts --unshare-cgroup-try";
/// Sockets of services: Docker, containerd, D-Bus, the user's session in /run/user, …
const SERVICES: &str = "/run";
/// Sockets that give root to their users, elsewhere.
const OTHER_SERVICES: [&str; 3] =
    ["/var/lib/incus/unix.socket", "/var/lib/lxd/unix.socket", "/var/snap/lxd/common/lxd/unix.socket"];
/// Resolving host names needs these, and NixOS keeps its programs there.
const OF_SERVICES_SHOWN: [&str; 7] = [
    "/run/systemd/resolve",
    "/run/resolvconf",
    "/run/NetworkManager/resolv.conf",
    "/run/nscd",
    "/run/current-system",
    "/run/wrappers",
    "/run/opengl-driver",
];
/// Holds sockets of tmux, X and SSH agents. The agent has the session's own temporary directory in its place.
const SHARED_TMP: &str = "/tmp";

const GIT: &str = ".git";
/// Programs that git executes for its user.
const GIT_READ_ONLY: [&str; 2] = ["hooks", "config"];

/// What an isolated agent sees.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Isolation {
    pub workspace: PathBuf,
    /// Stands in the place of /tmp.
    pub tmp: PathBuf,
    pub home: Option<Home>,
    pub hidden: Vec<PathBuf>,
    /// Exceptions from `hidden`.
    pub shown: Vec<PathBuf>,
}

/// The user's home, and where the session's changes to it are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Home {
    pub path: PathBuf,
    pub layer: PathBuf,
    pub bytes_max: u64,
}

/// A command that isolates the program that is appended to it.
pub struct Isolated {
    pub program: PathBuf,
    pub arguments: Vec<OsString>,
    /// What the stage must find mounted.
    pub mounted: Vec<(PathBuf, Inode)>,
}

/// A file, independent of its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inode {
    device: u64,
    number: u64,
}

impl Inode {
    /// Of the file itself, if the path is a link.
    pub fn of(path: &Path) -> io::Result<Self> {
        let metadata = path.symlink_metadata()?;
        Ok(Self { device: metadata.dev(), number: metadata.ino() })
    }
}

/// Checks inside the namespaces that each path is what bubblewrap was to mount. bubblewrap follows links, and an agent that writes
/// to a directory can replace what is in it by a link to what is hidden, in the moment between the check and the mount.
pub fn verify(mounted: &[(PathBuf, Inode)]) -> Result<(), String> {
    let is_mounted = |(path, expected): &&(PathBuf, Inode)| {
        let found = rustix::fs::statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::INO);
        // A kernel that does not report mounts (before 5.8) has no Landlock, so the agent is not called isolated there.
        let is_root = found.is_ok_and(|found| {
            let is_reported = found.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT);
            !is_reported || found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)
        });
        is_root && Inode::of(path).is_ok_and(|inode| inode == *expected)
    };
    match mounted.iter().find(|entry| !is_mounted(entry)) {
        None => Ok(()),
        Some((path, _)) => Err(format!("cannot confine the agent: {} was replaced while it started", path.display())),
    }
}

/// Why an agent is not isolated.
pub enum Obstacle {
    /// Nothing can be isolated on this system.
    System(String),
    /// This agent cannot. Its agent may have caused that to escape, so that it must not start in another way.
    Agent(String),
}

impl Isolated {
    /// Makes the command for `directory`, where the agent starts. `programs` are files that must be visible. The second value says
    /// why the home is read-only, if the system mounts no overlay on it. Containers and mounts in the home are reasons. The whole
    /// command is tried, which takes some milliseconds: what the system allows can change while acpd runs.
    pub fn new(
        confinement: &mut Confinement,
        programs: &[&Path],
        directory: &Path,
    ) -> Result<(Self, Option<String>), Obstacle> {
        let bubblewrap = find_program(PROGRAM, PATH).ok_or("bubblewrap (bwrap) is not installed".to_owned());
        let bubblewrap = bubblewrap.map_err(Obstacle::System)?;
        let mut isolation = confinement.isolation.clone().unwrap_or_default();
        let mut without_home = None;
        loop {
            let isolated = Self::made(&bubblewrap, confinement, &isolation, programs, directory);
            let tried = isolated.and_then(|isolated| isolated.tried().map(|()| isolated));
            match (tried, isolation.home.take()) {
                (Ok(isolated), home) => {
                    confinement.isolation = Some(Isolation { home, ..isolation });
                    return Ok((isolated, without_home));
                }
                (Err(why), Some(_)) => without_home = Some(format!("the home is read-only for the agent: {why}")),
                (Err(why), None) => {
                    let arguments = NAMESPACES.split(' ').map(OsString::from).collect();
                    let least = Self { program: bubblewrap, arguments, mounted: Vec::new() };
                    let obstacle = |()| Obstacle::Agent(format!("cannot isolate the agent: {why}"));
                    return Err(least.tried().map_or_else(Obstacle::System, obstacle));
                }
            }
        }
    }

    fn made(
        bubblewrap: &Path,
        confinement: &Confinement,
        isolation: &Isolation,
        programs: &[&Path],
        directory: &Path,
    ) -> Result<Self, String> {
        let failed = |error| format!("cannot examine the repository of the workspace: {error}");
        let guarded = isolation.guarded(confinement).map_err(failed)?;
        let mounted = guarded.iter().map(|(path, _)| Ok((path.clone(), Inode::of(path)?))).collect::<io::Result<_>>();
        let mounted = mounted.map_err(failed)?;
        let inner = isolation.arguments(confinement, &guarded, programs, directory);
        let Some(home) = &isolation.home else {
            return Ok(Self { program: bubblewrap.to_owned(), arguments: inner, mounted });
        };
        let outer = home_layer::arguments(&home.path, &home.layer);
        let arguments = outer.into_iter().chain([bubblewrap.into()]).chain(inner).collect();
        Ok(Self { program: PathBuf::from(SELF_PROGRAM), arguments, mounted })
    }

    /// Executes the command with bubblewrap itself, which `/proc/self/exe` is by then, at its end.
    fn tried(&self) -> Result<(), String> {
        let mut trial = Command::new(&self.program);
        trial.args(&self.arguments).args([SELF_PROGRAM, "--version"]).env_clear();
        let output = trial.stdin(Stdio::null()).stdout(Stdio::null()).output();
        let output = output.map_err(|error| format!("cannot execute {}: {error}", self.program.display()))?;
        if output.status.success() {
            return Ok(());
        }
        Err(String::from_utf8_lossy(&output.stderr).lines().next().unwrap_or("no reason given").to_owned())
    }
}

/// What stands at a path. If two stand at one path, the later one does.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum View {
    Hidden,
    ReadOnly,
    Writable(PathBuf),
}

impl Isolation {
    /// The arguments of bubblewrap, up to the program that it executes.
    fn arguments(
        &self,
        confinement: &Confinement,
        guarded: &[(PathBuf, View)],
        programs: &[&Path],
        directory: &Path,
    ) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = NAMESPACES.split(' ').map(OsString::from).collect();
        if confinement.network == Network::None {
            arguments.push("--unshare-net".into());
        }
        for (path, view) in self.views(confinement, guarded, programs) {
            match view {
                View::Hidden if path.is_dir() => arguments.extend(["--tmpfs".into(), path.into()]),
                View::Hidden if path.exists() => {
                    arguments.extend(["--ro-bind".into(), "/dev/null".into(), path.into()]);
                }
                View::ReadOnly if path.exists() => {
                    arguments.extend(["--ro-bind".into(), path.clone().into(), path.into()]);
                }
                View::Hidden | View::ReadOnly => {}
                View::Writable(source) => arguments.extend(["--bind".into(), source.into(), path.into()]),
            }
        }
        arguments.extend(["--chdir".into(), directory.into(), "--".into()]);
        arguments
    }

    /// In the order in which bubblewrap mounts them: what is in a directory comes after the directory. So the state directory is
    /// hidden, and the session's directories in it are visible.
    fn views(
        &self,
        confinement: &Confinement,
        guarded: &[(PathBuf, View)],
        programs: &[&Path],
    ) -> Vec<(PathBuf, View)> {
        let mut views = vec![
            (PathBuf::from(SERVICES), View::Hidden),
            (PathBuf::from(SHARED_TMP), View::Writable(self.tmp.clone())),
        ];
        views.extend(OTHER_SERVICES.map(|path| (PathBuf::from(path), View::Hidden)));
        views.extend(guarded.iter().cloned());
        views.extend(self.hidden.iter().map(|path| (path.clone(), View::Hidden)));
        views.extend(self.home.iter().map(|home| (home.path.clone(), View::Writable(home_layer::view(&home.layer)))));
        views.extend(confinement.writable.iter().map(|path| (path.clone(), View::Writable(path.clone()))));
        // A program that the agent can write to is visible anyway, and may have become a link to what is hidden.
        let is_writable = |path: &&&Path| confinement.writable.iter().any(|directory| path.starts_with(directory));
        let programs = programs.iter().filter(|path| !is_writable(path)).copied();
        let shown = OF_SERVICES_SHOWN.iter().map(Path::new).chain(programs);
        let shown = shown.map(Path::to_owned).chain(self.shown.iter().cloned());
        views.extend(shown.map(|path| (path, View::ReadOnly)));
        views.sort();
        views
    }

    /// Mounts of paths that an agent may be able to replace: the workspace, and repositories. Of the workspace's own repository,
    /// the hooks and the configuration are read-only; `.git` is a mount, so that it cannot be moved away. Of a repository around the
    /// workspace or elsewhere, everything is read-only: a commit would go to the session's layer of the home, and look done.
    fn guarded(&self, confinement: &Confinement) -> io::Result<Vec<(PathBuf, View)>> {
        let is_directory = |path: &PathBuf| path.symlink_metadata().is_ok_and(|metadata| metadata.is_dir());
        let is_writable = |path: &Path| confinement.writable.iter().any(|directory| path.starts_with(directory));
        let mut guarded = vec![(self.workspace.clone(), View::ReadOnly)];
        let own = self.workspace.join(GIT);
        if is_writable(&own) && is_directory(&own) {
            // What does not exist cannot be read-only.
            std::fs::create_dir(own.join(GIT_READ_ONLY[0])).ok();
            for path in GIT_READ_ONLY.map(|name| own.join(name)) {
                match path.symlink_metadata() {
                    Ok(metadata) if metadata.is_symlink() => {}
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    // The agent may have closed the directory to its user, so that nothing would be guarded.
                    found => guarded.push(found.map(|_| (path, View::ReadOnly))?),
                }
            }
            guarded.push((own.clone(), View::Writable(own.clone())));
        }
        let elsewhere = std::fs::read_to_string(&own).ok().and_then(|text| {
            let directory = self.workspace.join(text.strip_prefix("gitdir:")?.trim()).canonicalize().ok()?;
            directory.ancestors().find(|path| path.file_name() == Some(GIT.as_ref())).map(Path::to_owned)
        });
        let others = self.workspace.ancestors().skip(1).map(|directory| directory.join(GIT)).chain(elsewhere);
        let is_hidden = |path: &Path| self.hidden.iter().any(|hidden| path.starts_with(hidden));
        let others = others.filter(|path| is_directory(path) && !is_hidden(path) && !is_writable(path));
        guarded.extend(others.map(|path| (path, View::ReadOnly)));
        Ok(guarded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_was_replaced_or_is_not_mounted_is_found() {
        let entry = |path: &str| (PathBuf::from(path), Inode::of(Path::new(path)).unwrap());
        let (proc, bin) = (entry("/proc"), entry("/usr"));
        assert_eq!(verify(std::slice::from_ref(&proc)), Ok(()));
        assert!(verify(&[proc.clone(), bin.clone()]).unwrap_err().contains("/usr was replaced"));
        assert!(verify(&[(proc.0, bin.1)]).is_err());
    }

    #[test]
    fn what_is_in_a_directory_comes_after_it() {
        let base = tempfile::tempdir_in("/tmp").unwrap();
        let path = |name: &str| base.path().join(name);
        for name in ["home/.ssh", "home/state/run/1/tmp", "home/work/.git/hooks", "home/.git"] {
            std::fs::create_dir_all(path(name)).unwrap();
        }
        std::fs::write(path("home/work/.git/config"), "").unwrap();
        std::fs::write(path("home/state/run/1/tools.sock"), "").unwrap();
        let tmp = path("home/state/run/1/tmp");
        let confinement = Confinement { writable: vec![tmp.clone(), path("home/work")], ..Confinement::default() };
        let isolation = Isolation {
            workspace: path("home/work"),
            tmp,
            home: Some(Home { path: path("home"), layer: path("home/state/run/1/layer"), bytes_max: 1 }),
            hidden: vec![path("home/state"), path("home/.ssh"), path("home/.none")],
            shown: vec![path("home/state/run/1/tools.sock")],
        };
        let arguments =
            isolation.arguments(&confinement, &isolation.guarded(&confinement).unwrap(), &[], &path("home/work/deep"));
        let root = base.path().to_str().unwrap();
        let text: Vec<String> = arguments.iter().map(|word| word.to_str().unwrap().replace(root, "")).collect();
        let text = text.join(" ");
        let (_, text) = text.split_once("--tmpfs /run").unwrap();
        let (_, text) = text.split_once(" --bind /home/state/run/1/tmp /tmp ").unwrap();
        let expected = "--bind /home/state/run/1/layer/view /home --ro-bind /home/.git /home/.git --tmpfs /home/.ssh \
                        --tmpfs /home/state --bind /home/state/run/1/tmp /home/state/run/1/tmp --ro-bind \
                        /home/state/run/1/tools.sock /home/state/run/1/tools.sock --ro-bind /home/work /home/work --bind \
                        /home/work /home/work --bind /home/work/.git /home/work/.git --ro-bind /home/work/.git/config \
                        /home/work/.git/config --ro-bind /home/work/.git/hooks /home/work/.git/hooks --chdir \
                        /home/work/deep --";
        assert_eq!(text, expected);
    }
}
