//! The real Gemini CLI, of one pinned release, installed once with npm into cargo's own directory.
//!
//! ```text
//! target/tmp/gemini-cli.lock              held by the one who installs
//! target/tmp/gemini-cli-HASH.unfinished   what is being installed, or what is left of an installation that was ended
//! target/tmp/gemini-cli-HASH              installed: it gets its name as the last step of all
//! ```
//!
//! The hash is of package-lock.json, which has the sum of every file that is fetched, so another release is another
//! directory.

use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::harness::{runs_in_full, skip};

const MANIFESTS: [&str; 2] = ["package.json", "package-lock.json"];
/// What the CLI needs. An older one installs it without a word, and cannot run it.
const NODE_MAJOR_MIN: u32 = 20;

/// The program, or `None` after a loud word that it is not to be had here. In CI that fails the test.
pub async fn gemini() -> Option<PathBuf> {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    if !runs_in_full(&test) {
        return None;
    }
    let installing = tokio::task::spawn_blocking(installed).await.expect("installing does not panic");
    match installing {
        Ok(program) => Some(program),
        Err(problem) => {
            skip(&format!("{test} was not run, because Gemini CLI cannot be installed: {problem}"));
            None
        }
    }
}

/// Where it is. Others, threads and processes, wait for the one who installs it.
fn installed() -> Result<PathBuf, String> {
    check_node()?;
    let manifests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/gemini");
    let base = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let mut hasher = DefaultHasher::new();
    std::fs::read(manifests.join(MANIFESTS[1])).expect("the lock file is there").hash(&mut hasher);
    let directory = base.join(format!("gemini-cli-{:016x}", hasher.finish()));
    let program = directory.join("node_modules/.bin/gemini");
    if directory.exists() {
        return Ok(program);
    }
    // The kernel gives the lock back when all who have it open are gone, however that came.
    let lock = File::create(base.join("gemini-cli.lock")).map_err(|error| format!("no lock file: {error}"))?;
    lock.lock().map_err(|error| format!("no lock: {error}"))?;
    if directory.exists() {
        return Ok(program);
    }
    let unfinished = directory.with_extension("unfinished");
    let _ = std::fs::remove_dir_all(&unfinished);
    install(&manifests, &unfinished, &lock)?;
    std::fs::rename(&unfinished, &directory).map_err(|error| format!("cannot rename: {error}"))?;
    drop(lock);
    Ok(program)
}

fn check_node() -> Result<(), String> {
    let version = run(Command::new("node").arg("--version").stdin(Stdio::null()))?;
    let major = version.trim_start_matches('v').split('.').next().and_then(|major| major.parse::<u32>().ok());
    let is_enough = major.is_some_and(|major| major >= NODE_MAJOR_MIN);
    is_enough.then_some(()).ok_or_else(|| format!("Node.js {NODE_MAJOR_MIN} is needed, here is {}", version.trim()))
}

/// Installs what the manifests name. npm has the lock too, and may outlive a test that is killed.
fn install(manifests: &Path, directory: &Path, lock: &File) -> Result<(), String> {
    std::fs::create_dir_all(directory).map_err(|error| format!("cannot make {}: {error}", directory.display()))?;
    for name in MANIFESTS {
        std::fs::copy(manifests.join(name), directory.join(name)).map_err(|error| format!("cannot copy: {error}"))?;
    }
    let mut npm = Command::new("npm");
    npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]);
    // Who cannot reach the registry is to say so soon.
    npm.args(["--fetch-retries=2", "--fetch-retry-maxtimeout=10000", "--fetch-timeout=120000"]);
    let lock = lock.try_clone().map_err(|error| format!("no second lock: {error}"))?;
    run(npm.current_dir(directory).stdin(lock)).map(drop)
}

/// What a program says.
fn run(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("{command:?} cannot be run: {error}"))?;
    let told = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.status.success() { Ok(told) } else { Err(format!("{command:?}: {}\n{told}", output.status)) }
}
