//! A machine that systemd runs: a container of the host's own files, booted with `systemd-nspawn`, for one test.
//!
//! ```text
//! test on the host ──▶ setpriv, unshare, systemd-nspawn ──▶ systemd ──▶ drive.service ──▶ this test program again, inside
//! ```
//!
//! What is written inside goes to memory and is gone with the machine. The test of the host is named as the one inside, which
//! is ignored elsewhere; its output and the journal are what a failure shows.

#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "every test file compiles its own copy and uses a part of it, and a test fails by panicking"
)]

mod inside;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::harness::{Cgroup, runs_in_full, say, skip};

pub use inside::{Account, acpd, journal, property, shell, systemctl, until, wait_for_property, write};

/// Set for the test program inside.
const INSIDE: &str = "ACPD_TEST_INSIDE_A_MACHINE";
/// Where the test's own files are, inside.
const SHARE: &str = "/share";
/// Systemd's words for confining an agent, which a container may not say by itself.
const LANDLOCK_CALLS: &str = "landlock_create_ruleset landlock_add_rule landlock_restrict_self";
/// How long a machine may live, in seconds. A test inside takes a few.
const LIFE_SECS: &str = "180";

/// What the host does: everything in a mount namespace of its own, so that nothing is left however it ends.
const BOOT: &str = r#"
set -eu
base=$1; shift
mount -t tmpfs tmpfs "$base"
mkdir "$base/upper" "$base/work" "$base/root" "$base/share"
mount -t overlay overlay -o "lowerdir=/,upperdir=$base/upper,workdir=$base/work" "$base/root"
printf %s "$UNIT" > "$base/root/etc/systemd/system/drive.service"
# What the host has of acpd is not this test's.
rm -rf "$base/root/etc/acpd" "$base/root/var/lib/acpd" "$base/root/root/.local/state/acpd"
rm -rf "$base/root/etc/systemd/system/acpd."* "$base/root/etc/sysusers.d/acpd.conf" "$base/root/etc/tmpfiles.d/acpd.conf"
echo 0 > "$CGROUP/cgroup.procs"
status=0
SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1 timeout --foreground --kill-after=5 "$LIFE" systemd-nspawn --quiet \
    --directory="$base/root" --register=no --keep-unit --private-network --console=pipe --link-journal=no \
    --bind="$base/share:/share" "$@" -b systemd.unit=drive.service > "$base/share/console" 2>&1 < /dev/null || status=$?
cat "$base/share/output" 2> /dev/null || true
if [ "$(cat "$base/share/result" 2> /dev/null)" = success ]; then exit 0; fi
echo "--- the machine (ended with $status) said:"; tail -n 30 "$base/share/console"
echo "--- its journal:"; tail -n 200 "$base/share/journal" 2> /dev/null || true
exit 1
"#;

/// Runs the ignored test of the same name inside a machine of its own.
pub fn run_inside(test: &str) {
    if !rustix::process::geteuid().is_root() {
        return say(&format!("SKIPPED: {test} needs root to boot a systemd"));
    }
    if !runs_in_full(test) {
        return;
    }
    let cgroup = match missing() {
        None => Cgroup::make().ok_or("no cgroup can be made".to_owned()),
        Some(missing) => Err(missing),
    };
    let cgroup = match cgroup {
        Ok(cgroup) => cgroup,
        Err(missing) => {
            return skip(&format!("{test} was not run in a booted systemd: {missing}"));
        }
    };
    let base = tempfile::Builder::new().prefix("acpd-machine-").tempdir().unwrap();
    let program = std::env::current_exe().unwrap();
    let acpd = PathBuf::from(env!("CARGO_BIN_EXE_acpd"));
    let agent = acpd.with_file_name("examples").join("test-agent");
    let mut command = Command::new("setpriv");
    // With the test its machine goes: everything is below the first process of a namespace, which dies with its parent.
    command.args(["--pdeathsig", "KILL", "unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc"]);
    command.args(["--propagation", "private", "sh", "-c", BOOT, "boot"]).arg(base.path());
    for (source, place) in [(&program, "driver"), (&acpd, "acpd"), (&agent, "test-agent")] {
        command.arg(format!("--bind-ro={}:/usr/local/bin/{place}", source.display()));
    }
    command.arg(format!("--system-call-filter={LANDLOCK_CALLS}"));
    command.env("CGROUP", cgroup.directory()).env("LIFE", LIFE_SECS).env("UNIT", drive_unit(test));
    let output = command.stdin(Stdio::null()).output().expect("setpriv is there, as was just seen");
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{errors}");
    // Whatever was left out is said where it is seen.
    for line in said.lines().filter(|line| line.contains("SKIPPED")) {
        say(line);
    }
}

/// What keeps a machine from being booted here.
fn missing() -> Option<String> {
    let is_there = |program: &&str| {
        let paths = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&paths).any(|directory| directory.join(program).exists())
    };
    let programs = ["systemd-nspawn", "setpriv", "unshare", "timeout"];
    let missing = programs.iter().find(|program| !is_there(program))?;
    Some(format!("there is no {missing} (Debian: apt-get install systemd-container)"))
}

/// The test inside, and the end of the machine after it.
fn drive_unit(test: &str) -> String {
    format!(
        "[Unit]\n\
         DefaultDependencies=no\n\
         Requires=basic.target dbus.service systemd-logind.service\n\
         After=basic.target dbus.service systemd-logind.service\n\
         [Service]\n\
         Type=oneshot\n\
         Environment={INSIDE}=1 HOME=/root RUST_BACKTRACE=0\n\
         ExecStart=/usr/local/bin/driver --ignored --exact inside::{test} --nocapture --test-threads=1\n\
         StandardOutput=file:{SHARE}/output\n\
         StandardError=file:{SHARE}/output\n\
         ExecStopPost=/bin/sh -c 'echo $SERVICE_RESULT > {SHARE}/result; journalctl --no-pager -o short-precise > {SHARE}/journal'\n\
         ExecStopPost=/bin/systemctl --no-block --force poweroff\n"
    )
}

/// The tests inside change the machine that they run on.
pub fn assert_inside() {
    assert!(std::env::var_os(INSIDE).is_some(), "this test is run by another one, in a machine that is made for it");
    assert!(Path::new(SHARE).is_dir());
}
