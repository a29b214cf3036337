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

/// A file, whatever its path is.
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
        let is_root = found.is_ok_and(|found| found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT));
        is_root && Inode::of(path).is_ok_and(|inode| inode == *expected)
    };
    match mounted.iter().find(|entry| !is_mounted(entry)) {
        None => Ok(()),
        Some((path, _)) => Err(format!("cannot confine the agent: {} was replaced while it started", path.display())),
    }
}

impl Isolated {
    /// Makes the command for `directory`, where the agent starts. `programs` are files that must be visible. The second value says
    /// why the home is read-only, if the system mounts no overlay on it. Containers and mounts in the home are reasons.
    pub fn new(
        confinement: &mut Confinement,
        programs: &[&Path],
        directory: &Path,
    ) -> Result<(Self, Option<String>), String> {
        let mut isolation = confinement.isolation.clone().unwrap_or_default();
        let whole = Self::tried(confinement, &isolation, programs, directory);
        let Err(why) = whole else { return whole.map(|isolated| (isolated, None)) };
        if isolation.home.take().is_none() {
            return Err(why);
        }
        let isolated = Self::tried(confinement, &isolation, programs, directory)?;
        confinement.isolation = Some(isolation);
        Ok((isolated, Some(format!("the home is read-only for the agent: {why}"))))
    }

    /// The whole command is tried, which takes some milliseconds: what the system allows can change while acpd runs.
    fn tried(
        confinement: &Confinement,
        isolation: &Isolation,
        programs: &[&Path],
        directory: &Path,
    ) -> Result<Self, String> {
        let bubblewrap = find_program(PROGRAM, PATH).ok_or("bubblewrap (bwrap) is not installed")?;
        let guarded = isolation.guarded(confinement);
        let mounted = guarded.iter().map(|(path, _)| Ok((path.clone(), Inode::of(path)?))).collect::<io::Result<_>>();
        let mounted = mounted.map_err(|error| format!("cannot examine the workspace: {error}"))?;
        let inner = isolation.arguments(confinement, &guarded, programs, directory);
        let isolated = match &isolation.home {
            None => Self { program: bubblewrap, arguments: inner, mounted },
            Some(home) => {
                let mut arguments: Vec<OsString> = home_layer::arguments(&home.path, &home.layer).into();
                arguments.push(bubblewrap.into());
                arguments.extend(inner);
                Self { program: PathBuf::from(SELF_PROGRAM), arguments, mounted }
            }
        };
        // The last argument is bubblewrap itself by the time it is executed.
        let trial = Command::new(&isolated.program)
            .args(&isolated.arguments)
            .args([SELF_PROGRAM, "--version"])
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .output()
            .map_err(|error| format!("cannot execute {}: {error}", isolated.program.display()))?;
        if trial.status.success() {
            return Ok(isolated);
        }
        let why = String::from_utf8_lossy(&trial.stderr);
        Err(format!("this system does not allow isolation: {}", why.lines().next().unwrap_or("no reason given")))
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
    fn guarded(&self, confinement: &Confinement) -> Vec<(PathBuf, View)> {
        let is_directory = |path: &PathBuf| path.symlink_metadata().is_ok_and(|metadata| metadata.is_dir());
        let is_writable = |path: &Path| confinement.writable.iter().any(|directory| path.starts_with(directory));
        let mut guarded = vec![(self.workspace.clone(), View::ReadOnly)];
        let own = self.workspace.join(GIT);
        if is_writable(&own) && is_directory(&own) {
            // What does not exist cannot be read-only.
            std::fs::create_dir(own.join(GIT_READ_ONLY[0])).ok();
            guarded.extend(GIT_READ_ONLY.map(|name| (own.join(name), View::ReadOnly)));
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
        guarded.retain(|(path, _)| path.symlink_metadata().is_ok_and(|metadata| !metadata.is_symlink()));
        guarded
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
            isolation.arguments(&confinement, &isolation.guarded(&confinement), &[], &path("home/work/deep"));
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
