//! bubblewrap: the agent in a mount namespace of its own, where files and sockets can be hidden, as Landlock cannot.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use super::Confinement;
use crate::agent::command::find_program;

pub const PROGRAM: &str = "bwrap";
/// Where it is looked for: not where the agent's user may put something in its place.
pub const PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// Agents that are confined share no temporary directory with anybody.
const SHARED_TMP: &str = "/tmp";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bubblewrap {
    /// Without it the agent does not start.
    pub required: bool,
    pub workspace: PathBuf,
    pub hidden: Vec<PathBuf>,
    /// What is there all the same.
    pub shown: Vec<PathBuf>,
}

/// The program, when it is installed and can do here what it is for. It is tried each time, which takes some milliseconds
/// beside an agent's seconds: what the system allows can change while acpd runs.
pub fn find() -> Result<PathBuf, String> {
    let program = find_program(PROGRAM, PATH).ok_or("bubblewrap (bwrap) is not installed")?;
    let mut trial = Command::new(&program);
    trial.args(["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-pid", "--", "/proc/self/exe"]);
    trial.arg("--version").env_clear().stdin(Stdio::null()).stdout(Stdio::null());
    let output = trial.output().map_err(|error| format!("cannot execute bubblewrap: {error}"))?;
    if output.status.success() {
        return Ok(program);
    }
    let why = String::from_utf8_lossy(&output.stderr);
    Err(format!("bubblewrap does not work here: {}", why.lines().next().unwrap_or("it gives no reason")))
}

/// What is to be seen at a path. In order: what is shown there comes after what is hidden there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum View {
    Hidden,
    ReadOnly,
    Writable,
}

/// Its arguments, up to the program that it is to execute in `directory`. `shown` are files that must be there to be
/// executed.
pub fn arguments(confinement: &Confinement, wrap: &Bubblewrap, shown: &[&Path], directory: &Path) -> Vec<OsString> {
    let mut views = vec![(Path::new(SHARED_TMP), View::Hidden), (&wrap.workspace, View::ReadOnly)];
    views.extend(wrap.hidden.iter().map(|path| (path.as_path(), View::Hidden)));
    views.extend(confinement.writable.iter().map(|path| (path.as_path(), View::Writable)));
    views.extend(wrap.shown.iter().map(|path| (path.as_path(), View::ReadOnly)));
    views.extend(shown.iter().map(|path| (*path, View::ReadOnly)));
    // What is in a directory comes after it: so the state directory is hidden, and the session's own directories in it are
    // there again; and a workspace is there, and the keys in it are hidden.
    views.sort();
    let fixed = ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-pid"];
    let mut arguments: Vec<OsString> = fixed.map(OsString::from).into();
    for (path, view) in views {
        match view {
            View::Hidden if path.is_dir() => arguments.extend(["--tmpfs".into(), path.into()]),
            View::Hidden if path.exists() => arguments.extend(["--ro-bind".into(), "/dev/null".into(), path.into()]),
            View::Hidden => {}
            View::ReadOnly => arguments.extend(["--ro-bind".into(), path.into(), path.into()]),
            View::Writable => arguments.extend(["--bind".into(), path.into(), path.into()]),
        }
    }
    arguments.extend(["--chdir".into(), directory.into(), "--".into()]);
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_in_something_comes_after_it() {
        let base = tempfile::tempdir_in("/tmp").unwrap();
        let path = |name: &str| base.path().join(name);
        for name in ["home/.ssh", "home/state/run/1/tmp"] {
            std::fs::create_dir_all(path(name)).unwrap();
        }
        let confinement =
            Confinement { writable: vec![path("home/state/run/1/tmp"), path("home")], ..Confinement::default() };
        let hidden = vec![path("home/state"), path("home/.ssh"), path("home/.none")];
        let shown = vec![path("home/state/run/1/tools.sock")];
        let wrap = Bubblewrap { required: true, workspace: path("home"), hidden, shown };
        let arguments = arguments(&confinement, &wrap, &[], &path("home/deep"));
        let root = base.path().to_str().unwrap();
        let text: Vec<String> = arguments.iter().map(|word| word.to_str().unwrap().replace(root, "")).collect();
        let expected = "--tmpfs /tmp --ro-bind /home /home --bind /home /home --tmpfs /home/.ssh --tmpfs /home/state --bind \
                        /home/state/run/1/tmp /home/state/run/1/tmp --ro-bind /home/state/run/1/tools.sock \
                        /home/state/run/1/tools.sock --chdir /home/deep --";
        assert_eq!(text[8..].join(" "), expected);
    }
}
