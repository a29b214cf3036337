//! Packages of `PyPI`, of the releases that a requirements.txt pins, installed once into cargo's own directory.
//!
//! `target/tmp/NAME-python-HASH` is a virtual environment, complete when it has the file `installed`: it cannot be renamed,
//! because its programs name their own path. `NAME` is the directory in `tests` that has the requirements, and the hash is
//! of them, so another release is another directory.

use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{runs_in_full, skip};

/// The programs of the packages that `tests/NAME` pins, among them `python`, or `None` after a message that the test is
/// skipped. A full run fails instead.
pub async fn python_packages(name: &'static str) -> Option<PathBuf> {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    if !runs_in_full(&test) {
        return None;
    }
    let installing = tokio::task::spawn_blocking(move || installed(name)).await.expect("installing does not panic");
    match installing {
        Ok(directory) => Some(directory.join("bin")),
        Err(problem) => {
            skip(&format!("{test} was not run, because the packages of tests/{name} cannot be installed: {problem}"));
            None
        }
    }
}

/// Threads and processes that need the same packages wait for the one that installs them.
fn installed(name: &str) -> Result<PathBuf, String> {
    let requirements = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name).join("requirements.txt");
    let base = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let mut hasher = DefaultHasher::new();
    std::fs::read(&requirements).expect("the requirements are there").hash(&mut hasher);
    let directory = base.join(format!("{name}-python-{:016x}", hasher.finish()));
    let mark = directory.join("installed");
    let lock = File::create(base.join(format!("{name}-python.lock"))).map_err(|error| format!("no lock: {error}"))?;
    lock.lock().map_err(|error| format!("no lock: {error}"))?;
    if !mark.exists() {
        let _ = std::fs::remove_dir_all(&directory);
        run(Command::new("python3").args(["-m", "venv"]).arg(&directory))?;
        let mut pip = Command::new(directory.join("bin/pip"));
        run(pip.args(["install", "--quiet", "--disable-pip-version-check", "-r"]).arg(&requirements))?;
        std::fs::write(&mark, "").map_err(|error| format!("cannot write {}: {error}", mark.display()))?;
    }
    Ok(directory)
}

fn run(command: &mut Command) -> Result<(), String> {
    let output =
        command.stdin(Stdio::null()).output().map_err(|error| format!("{command:?} cannot be run: {error}"))?;
    let told = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.status.success() { Ok(()) } else { Err(format!("{command:?}: {}\n{told}", output.status)) }
}
