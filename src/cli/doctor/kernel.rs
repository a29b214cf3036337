//! What the kernel gives: what holds agents, what ends them, and how many files may be open.

use super::Patient;
use crate::agent::Features;
use crate::agent::confine::LANDLOCK_WANTED;
use crate::cli::findings::Finding;
use crate::config::{BubblewrapMode, Config, SandboxMode};
use crate::control::wire::Info;

/// With fewer open files than this a daemon meets the limit in daily use.
const DESCRIPTORS_MIN: u64 = 1024;

/// What is known of it, by whoever knows.
#[expect(clippy::struct_excessive_bools, reason = "each is a feature that is there or not")]
struct Kernel {
    release: String,
    /// Nothing, when no daemon has tried.
    cgroup: Option<(bool, Vec<String>)>,
    cgroup_mode: String,
    landlock: Option<i32>,
    landlock_mode: String,
    openat2: bool,
    pidfd: bool,
    user_namespaces: bool,
    bubblewrap: Option<String>,
    bubblewrap_mode: String,
    is_bubblewrap_there: bool,
    descriptors: Option<(Option<u64>, Option<u64>)>,
}

pub fn look(patient: &Patient<'_>) -> Vec<Finding> {
    let told = patient.info().and_then(of_daemon);
    let kernel = told.unwrap_or_else(|| from_here(patient.config.as_ref().ok()));
    let mut found = vec![Finding::ok("release", &kernel.release)];
    found.push(landlock(&kernel));
    found.push(cgroup(&kernel));
    found.push(missing(
        kernel.openat2,
        "openat2",
        "acpd can serve files of the workspace to agents",
        "use Linux 5.6 or newer; until then agents cannot read or write files through acpd",
    ));
    found.push(missing(
        kernel.pidfd,
        "pidfd",
        "acpd can kill processes safely",
        "use Linux 5.3 or newer; until then processes of a crashed daemon may keep running",
    ));
    found.push(bubblewrap(&kernel));
    found.extend(kernel.descriptors.map(descriptors));
    found
}

fn of_daemon(info: &Info) -> Option<Kernel> {
    let kernel = info.kernel.as_ref()?;
    let limit = info.rlimits.as_ref().map(|limits| (limits.nofile.soft, limits.nofile.hard));
    Some(Kernel {
        release: kernel.release.clone(),
        cgroup: Some((kernel.cgroup.in_use, kernel.cgroup.controllers.clone())),
        cgroup_mode: kernel.cgroup.mode.clone(),
        landlock: kernel.landlock.abi,
        landlock_mode: kernel.landlock.mode.clone(),
        openat2: kernel.openat2,
        pidfd: kernel.pidfd,
        user_namespaces: kernel.user_namespaces,
        bubblewrap: kernel.bubblewrap.program.clone(),
        bubblewrap_mode: kernel.bubblewrap.mode.clone(),
        // A guest is not told where it is.
        is_bubblewrap_there: kernel.bubblewrap.program.is_some() || info.state_dir.is_none(),
        descriptors: limit,
    })
}

fn from_here(config: Option<&Config>) -> Kernel {
    let features = Features::from_here();
    let defaults = Config::default();
    let config = config.unwrap_or(&defaults);
    let landlock_mode = match config.sandbox.mode {
        SandboxMode::Required => "required",
        SandboxMode::BestEffort => "best-effort",
        SandboxMode::Off => "off",
    };
    let bubblewrap_mode = match config.sandbox.bubblewrap {
        BubblewrapMode::Never => "never",
        BubblewrapMode::Prefer => "prefer",
    };
    Kernel {
        release: features.release,
        cgroup: None,
        cgroup_mode: String::new(),
        landlock: features.landlock_abi,
        landlock_mode: landlock_mode.to_owned(),
        openat2: features.openat2,
        pidfd: features.pidfd,
        user_namespaces: features.user_namespaces,
        is_bubblewrap_there: features.bubblewrap.is_some(),
        bubblewrap: features.bubblewrap.map(|program| program.display().to_string()),
        bubblewrap_mode: bubblewrap_mode.to_owned(),
        descriptors: None,
    }
}

fn missing(is_there: bool, check: &str, message: &str, hint: &str) -> Finding {
    if is_there { Finding::ok(check, message) } else { Finding::warning(check, "missing in this kernel", hint) }
}

fn landlock(kernel: &Kernel) -> Finding {
    let check = "Landlock";
    match (kernel.landlock_mode.as_str(), kernel.landlock) {
        ("off", _) => {
            let hint = "set sandbox.mode = \"best-effort\" to confine agents as far as the kernel can";
            Finding::warning(check, "disabled: agents can write wherever their user can", hint)
        }
        ("required", None) => {
            let hint = "boot a kernel with Landlock (lsm=landlock,…), or set sandbox.mode = \"best-effort\"";
            Finding::problem(check, "required, but missing in this kernel: no agent starts", hint)
        }
        (_, None) => {
            let hint = "boot a kernel with Landlock (CONFIG_SECURITY_LANDLOCK, lsm=landlock,…)";
            Finding::warning(check, "missing in this kernel: agents can write wherever their user can", hint)
        }
        (_, Some(abi)) if abi < LANDLOCK_WANTED => {
            let message = format!("version {abi} of {LANDLOCK_WANTED}: agents are partly confined");
            Finding::note(check, message, "a newer kernel confines more; Linux 6.12 has everything that acpd uses")
        }
        (_, Some(abi)) => Finding::ok(check, format!("version {abi}, agents are confined")),
    }
}

fn cgroup(kernel: &Kernel) -> Finding {
    let check = "cgroup";
    match (&kernel.cgroup, kernel.cgroup_mode.as_str()) {
        (None, _) => Finding::note(check, "unknown while no daemon runs", ""),
        (Some((true, controllers)), _) if controllers.is_empty() => {
            let message = "one per agent, without controllers: memory and process counts are not limited";
            Finding::note(check, message, "set Delegate=yes in the systemd unit")
        }
        (Some((true, controllers)), _) => Finding::ok(check, format!("one per agent ({})", controllers.join(", "))),
        (Some((false, _)), "off") => Finding::note(check, "disabled (processes.cgroup)", ""),
        (Some((false, _)), _) => {
            let message = "not delegated to the daemon: limits.memory_max and limits.pids_max have no effect";
            Finding::note(check, message, "run the daemon from systemd with Delegate=yes; all else works without it")
        }
    }
}

fn bubblewrap(kernel: &Kernel) -> Finding {
    let check = "bubblewrap";
    let place = kernel.bubblewrap.clone().unwrap_or_else(|| "installed".to_owned());
    let is_required = kernel.landlock_mode == "required";
    let (problem, hint) = match (kernel.is_bubblewrap_there, kernel.user_namespaces) {
        _ if kernel.bubblewrap_mode == "never" => {
            let found = if kernel.is_bubblewrap_there { place.as_str() } else { "not installed" };
            return Finding::note(check, format!("{found}, not used (sandbox.bubblewrap)"), "");
        }
        (true, true) => return Finding::ok(check, format!("{place}; whether an agent is isolated, `acpd show` says")),
        (false, _) => ("not installed", "install the package bubblewrap"),
        (true, false) => (
            "needs unprivileged user namespaces, which are disabled",
            "enable them: sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone=1",
        ),
    };
    if is_required {
        Finding::problem(check, format!("{problem}: no agent starts (sandbox.mode = \"required\")"), hint)
    } else {
        Finding::warning(check, format!("{problem}: agents are not isolated (`writes-only`)"), hint)
    }
}

fn descriptors((soft, hard): (Option<u64>, Option<u64>)) -> Finding {
    let shown = |limit: Option<u64>| limit.map_or_else(|| "unlimited".to_owned(), |limit| limit.to_string());
    let message = format!("{} open files, at most {}", shown(soft), shown(hard));
    if soft.is_some_and(|soft| soft < DESCRIPTORS_MIN) {
        let hint = "raise the limit: `ulimit -n 4096` before `acpd serve`, or LimitNOFILE= in the unit";
        return Finding::warning("open files", message, hint);
    }
    Finding::ok("open files", message)
}
