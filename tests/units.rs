//! The unit files, as systemd reads them: what `acpd install-service --print` shows is what would be installed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod harness;

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

/// What the units may score at the most, in tenths; docs/systemd.md tells what keeps it there.
const SYSTEM_EXPOSURE_MAX: &str = "46";
const USER_EXPOSURE_MAX: &str = "87";

/// The files that would be installed, in a directory of the test's own. `manager` is the flag for whose.
fn printed(manager: Option<&str>) -> TempDir {
    let mut command = Command::new(env!("CARGO_BIN_EXE_acpd"));
    command.args(["install-service", "--print"]).args(manager);
    let output = command.env_clear().env("HOME", "/home/me").env("PATH", "/opt/50%/bin:/usr/bin").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let mut file = None;
    for line in text.lines() {
        // Each file has its path above it.
        if let Some(path) = line.strip_prefix("# /").filter(|path| !path.contains(' ')) {
            let name = Path::new(path).file_name().expect("the path of a file");
            file = Some(fs::File::create(directory.path().join(name)).unwrap());
        } else {
            writeln!(file.as_mut().expect("a path comes first"), "{line}").unwrap();
        }
    }
    directory
}

/// systemd-analyze on both units; nothing, with a word on stderr, where there is none.
fn analyze(units: &TempDir, manager: Option<&str>, arguments: &[&str]) -> Option<Output> {
    let mut command = Command::new("systemd-analyze");
    command.args(manager).args(arguments).env("XDG_RUNTIME_DIR", units.path());
    match command.current_dir(units.path()).output() {
        Ok(output) => Some(output),
        Err(error) => {
            harness::skip(&format!("systemd-analyze cannot be run ({error}), so the units were not checked"));
            None
        }
    }
}

#[test]
fn systemd_has_nothing_to_say_about_the_units() {
    for manager in [None, Some("--user")] {
        let units = printed(manager);
        let arguments = ["verify", "--man=no", "./acpd.service", "./acpd.socket"];
        let Some(output) = analyze(&units, manager, &arguments) else { return };
        // Of a key that it does not know it only warns.
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{manager:?}");
        assert!(output.status.success(), "{manager:?}");
    }
}

#[test]
fn the_units_are_as_closed_as_they_can_be() {
    for (manager, exposure_max) in [(None, SYSTEM_EXPOSURE_MAX), (Some("--user"), USER_EXPOSURE_MAX)] {
        let units = printed(manager);
        let threshold = format!("--threshold={exposure_max}");
        let arguments = ["security", "--offline=yes", "--no-pager", &threshold, "./acpd.service"];
        let Some(output) = analyze(&units, manager, &arguments) else { return };
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    }
}
