//! What the daemon runs on, and the bounds that its clients may meet.

use std::os::unix::net::UnixStream;
use std::sync::OnceLock;
use std::time::Duration;

use serde_json::{Value, json};

use super::wire::{BubblewrapReport, CgroupReport, Kernel, LandlockReport, ResourceLimit, ResourceLimits, Versions};
use super::{Api, content, extract, idempotency, peer, sessions, turns};
use crate::acp::PROTOCOL_VERSION;
use crate::agent::confine::LANDLOCK_WANTED;
use crate::config::{BubblewrapMode, CgroupMode, Config, SandboxMode};
use crate::{session, store};

pub fn kernel(api: &Api) -> Kernel {
    let config = api.registry.shared().config();
    let features = &api.registry.shared().host.features;
    let cgroup = features.cgroup.as_ref();
    Kernel {
        release: features.release.clone(),
        cgroup: CgroupReport {
            mode: match config.processes.cgroup {
                CgroupMode::Auto => "auto",
                CgroupMode::Off => "off",
            }
            .to_owned(),
            in_use: cgroup.is_some(),
            path: cgroup.map(|(path, _)| path.display().to_string()),
            controllers: cgroup.map(|(_, controllers)| controllers.clone()).unwrap_or_default(),
        },
        landlock: LandlockReport {
            mode: match config.sandbox.mode {
                SandboxMode::Required => "required",
                SandboxMode::BestEffort => "best-effort",
                SandboxMode::Off => "off",
            }
            .to_owned(),
            abi: features.landlock_abi,
            abi_wanted: LANDLOCK_WANTED,
        },
        openat2: features.openat2,
        pidfd: features.pidfd,
        peer_pidfd: has_peer_pidfd(),
        // The daemon does not start without.
        subreaper: true,
        user_namespaces: features.user_namespaces,
        bubblewrap: BubblewrapReport {
            mode: match config.sandbox.bubblewrap {
                BubblewrapMode::Never => "never",
                BubblewrapMode::Prefer => "prefer",
                BubblewrapMode::Require => "require",
            }
            .to_owned(),
            program: features.bubblewrap.as_ref().map(|program| program.display().to_string()),
        },
    }
}

/// Asked of a connection to ourselves, once.
fn has_peer_pidfd() -> bool {
    static KNOWN: OnceLock<bool> = OnceLock::new();
    *KNOWN.get_or_init(|| UnixStream::pair().is_ok_and(|(stream, _other)| peer::is_pinned(&stream)))
}

pub fn versions() -> Versions {
    let store::Versions { schema, sqlite } = store::versions();
    Versions {
        acpd: env!("CARGO_PKG_VERSION").to_owned(),
        acp_protocol: PROTOCOL_VERSION,
        store_schema: schema,
        sqlite: sqlite.to_owned(),
    }
}

pub fn resource_limits(api: &Api) -> ResourceLimits {
    let (soft, hard) = api.registry.shared().host.features.descriptors;
    ResourceLimits { nofile: ResourceLimit { soft, hard } }
}

/// The bounds that only some clients meet, beside those that all do. Times are in seconds, and null means none.
pub fn limits(config: &Config) -> Vec<(&'static str, Value)> {
    let Config { control, sessions: session, processes, limits, permissions, .. } = config;
    vec![
        ("costLimit", json!(session.cost_limit.as_ref().map(ToString::to_string))),
        ("idleTimeoutSeconds", optional(session.idle_timeout)),
        ("turnSilenceTimeoutSeconds", optional(session.turn_silence_timeout)),
        ("transcriptBytes", json!(session.transcript_max.0)),
        ("initializeTimeoutSeconds", seconds(processes.initialize_timeout)),
        ("sessionTimeoutSeconds", seconds(processes.session_timeout)),
        ("cancelGraceSeconds", seconds(processes.cancel_grace)),
        ("crashLimit", json!(processes.crash_limit)),
        ("permissionTimeoutSeconds", optional(permissions.timeout)),
        ("openPermissions", json!(session::OPEN_MAX)),
        ("memoryBytes", json!(limits.memory_max.map(|size| size.0))),
        ("pids", json!(limits.pids_max)),
        ("stderrTailBytes", json!(limits.stderr_tail.0)),
        ("fileBytes", json!(limits.file_max.0)),
        ("terminals", json!(limits.terminals)),
        ("terminalOutputBytes", json!(limits.terminal_output.0)),
        ("headerTimeoutSeconds", seconds(control.header_timeout)),
        ("bodyTimeoutSeconds", seconds(control.body_timeout)),
        ("writeTimeoutSeconds", seconds(control.write_timeout)),
        ("connectionIdleSeconds", seconds(control.idle_timeout)),
        ("connectionsPerUser", json!(control.connections_per_user)),
        ("streamsPerUser", json!(control.streams_per_user)),
        ("processesPerUser", json!(limits.processes_per_user)),
        ("heartbeatSeconds", seconds(control.heartbeat)),
        ("listLimit", json!(extract::LIMIT_MAX)),
        ("mailbox", json!(session::MAILBOX_MAX)),
        ("contentBlocks", json!(content::BLOCKS_MAX)),
        ("titleChars", json!(sessions::TITLE_CHARS_MAX)),
        ("tags", json!(sessions::TAGS_MAX)),
        ("tagChars", json!(sessions::TAG_CHARS_MAX)),
        ("idempotencyKeyChars", json!(idempotency::KEY_CHARS_MAX)),
        ("turnWaitSeconds", json!(turns::WAIT_SECONDS_MAX)),
    ]
}

fn optional(time: Option<Duration>) -> Value {
    time.map_or(Value::Null, seconds)
}

/// Whole seconds as such.
fn seconds(time: Duration) -> Value {
    if time.subsec_nanos() == 0 { json!(time.as_secs()) } else { json!(time.as_secs_f64()) }
}
