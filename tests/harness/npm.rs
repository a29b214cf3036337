//! Packages of npm, of the releases that a lock file pins, installed once into cargo's own directory.
//!
//! ```text
//! target/tmp/NAME.lock              held by the process that installs
//! target/tmp/NAME-HASH.unfinished   an installation that runs or was interrupted
//! target/tmp/NAME-HASH              a complete installation: the rename is the last step
//! ```
//!
//! `NAME` is the directory in `tests` that has the manifests. The hash is of package-lock.json, which has the sum of every
//! package, so another release is another directory.

use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{runs_in_full, skip};

const MANIFESTS: [&str; 2] = ["package.json", "package-lock.json"];
/// npm and Gemini CLI need it.
const NODE_MAJOR_MIN: u32 = 20;

/// The `node_modules` of the packages that `tests/NAME` pins, or `None` after a message that the test is skipped. A full run
/// fails instead.
pub async fn npm_packages(name: &'static str) -> Option<PathBuf> {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    if !runs_in_full(&test) {
        return None;
    }
    let installing = tokio::task::spawn_blocking(move || installed(name)).await.expect("installing does not panic");
    match installing {
        Ok(directory) => Some(directory.join("node_modules")),
        Err(problem) => {
            skip(&format!("{test} was not run, because the packages of tests/{name} cannot be installed: {problem}"));
            None
        }
    }
}

/// Threads and processes that need the same packages wait for the one that installs them.
fn installed(name: &str) -> Result<PathBuf, String> {
    check_node()?;
    let manifests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name);
    let base = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let mut hasher = DefaultHasher::new();
    std::fs::read(manifests.join(MANIFESTS[1])).expect("the lock file is there").hash(&mut hasher);
    let directory = base.join(format!("{name}-{:016x}", hasher.finish()));
    if directory.exists() {
        return Ok(directory);
    }
    // The kernel releases the lock when every process that has the file open has ended.
    let lock = File::create(base.join(format!("{name}.lock"))).map_err(|error| format!("no lock file: {error}"))?;
    lock.lock().map_err(|error| format!("no lock: {error}"))?;
    if directory.exists() {
        return Ok(directory);
    }
    let unfinished = directory.with_extension("unfinished");
    let _ = std::fs::remove_dir_all(&unfinished);
    install(&manifests, &unfinished, &lock)?;
    std::fs::rename(&unfinished, &directory).map_err(|error| format!("cannot rename: {error}"))?;
    drop(lock);
    Ok(directory)
}

fn check_node() -> Result<(), String> {
    let version = run(Command::new("node").arg("--version").stdin(Stdio::null()))?;
    let major = version.trim_start_matches('v').split('.').next().and_then(|major| major.parse::<u32>().ok());
    let is_enough = major.is_some_and(|major| major >= NODE_MAJOR_MIN);
    is_enough.then_some(()).ok_or_else(|| format!("Node.js {NODE_MAJOR_MIN} is needed, here is {}", version.trim()))
}

/// Installs the packages of the manifests. npm holds the lock too, because it may outlive a test that is killed.
fn install(manifests: &Path, directory: &Path, lock: &File) -> Result<(), String> {
    std::fs::create_dir_all(directory).map_err(|error| format!("cannot make {}: {error}", directory.display()))?;
    for name in MANIFESTS {
        std::fs::copy(manifests.join(name), directory.join(name)).map_err(|error| format!("cannot copy: {error}"))?;
    }
    let mut npm = Command::new("npm");
    npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]);
    // A registry that cannot be reached is reported soon.
    npm.args(["--fetch-retries=2", "--fetch-retry-maxtimeout=10000", "--fetch-timeout=120000"]);
    let lock = lock.try_clone().map_err(|error| format!("no second lock: {error}"))?;
    run(npm.current_dir(directory).stdin(lock)).map(drop)
}

/// The output of a program.
fn run(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("{command:?} cannot be run: {error}"))?;
    let told = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.status.success() { Ok(told) } else { Err(format!("{command:?}: {}\n{told}", output.status)) }
}
