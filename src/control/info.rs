//! What the daemon runs on, and the bounds that its clients may meet.

use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::extract::State;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::IntoParams;

use super::caller::Caller;
use super::error::ApiError;
use super::extract::{Json, Query};
use super::wire::{
    BubblewrapReport, CgroupReport, Info, Kernel, LandlockReport, ProcessCount, ResourceLimit, ResourceLimits, Versions,
};
use super::{Api, content, extract, idempotency, peer, sessions, turns};
use crate::acp::PROTOCOL_VERSION;
use crate::agent::confine::LANDLOCK_WANTED;
use crate::config::{BubblewrapMode, CgroupMode, Config, SandboxMode};
use crate::model::Timestamp;
use crate::{session, store};

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct InfoQuery {
    /// Count the sessions of all users. Only root can do this; for other users it has no effect.
    #[serde(default)]
    all: bool,
}

/// Show the daemon's version, counts, limits and configuration.
///
/// Members of `control.group` do not see details of the host.
#[utoipa::path(
    get,
    path = "/v1/info",
    operation_id = "getInfo",
    tag = "daemon",
    params(InfoQuery),
    responses((status = 200, description = "The daemon's version, settings and load.", body = Info)),
)]
pub async fn info(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Query(query): Query<InfoQuery>,
) -> Result<Json<Info>, ApiError> {
    let sight = caller.listing(query.all);
    let counts = api.registry.hub().store().count_by_status(sight).await?;
    let (config, origin) = api.registry.shared().config.get_with_origin();
    let uptime_millis = Timestamp::now().as_millis() - api.started_at.as_millis();
    let named = |counts: &mut dyn Iterator<Item = (&'static str, u64)>| {
        counts.map(|(name, count)| (name.to_owned(), count)).collect::<BTreeMap<_, _>>()
    };
    let info = Info {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        started_at: api.started_at,
        uptime_seconds: u64::try_from(uptime_millis / 1000).unwrap_or(0),
        state_dir: Some(api.state_dir.display().to_string()),
        socket: api.socket.display().to_string(),
        sessions: counts.into_iter().map(|(status, count)| (status.to_owned(), count)).collect(),
        processes: ProcessCount {
            running: api.registry.process_count(sight),
            max: config.limits.processes,
            checks: api.registry.trial_count(sight),
        },
        limits: limits(&config).into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        kernel: Some(kernel(&api)),
        versions: Some(versions()),
        rlimits: Some(resource_limits(&api)),
        config: Some(origin.as_ref().into()),
        store: Some((&api.registry.hub().store().health()).into()),
        load_events: named(&mut api.load.counts()),
        security_events: named(&mut api.registry.shared().security.counts()),
    };
    Ok(Json(if caller.is_guest() { without_inside(info) } else { info }))
}

/// As it is told to a guest: without what is the host's business.
fn without_inside(info: Info) -> Info {
    let without_paths = |kernel: Kernel| Kernel {
        cgroup: CgroupReport { path: None, ..kernel.cgroup },
        bubblewrap: BubblewrapReport { program: None, ..kernel.bubblewrap },
        ..kernel
    };
    Info {
        state_dir: None,
        config: None,
        store: None,
        rlimits: None,
        kernel: info.kernel.map(without_paths),
        load_events: BTreeMap::new(),
        security_events: BTreeMap::new(),
        ..info
    }
}

fn kernel(api: &Api) -> Kernel {
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

fn versions() -> Versions {
    let store::Versions { schema, sqlite } = store::versions();
    Versions {
        acpd: env!("CARGO_PKG_VERSION").to_owned(),
        acp_protocol: PROTOCOL_VERSION,
        store_schema: schema,
        sqlite: sqlite.to_owned(),
    }
}

fn resource_limits(api: &Api) -> ResourceLimits {
    let (soft, hard) = api.registry.shared().host.features.descriptors;
    ResourceLimits { nofile: ResourceLimit { soft, hard } }
}

/// The bounds that clients may meet, as they are in force. Times are in seconds, and null means none.
fn limits(config: &Config) -> Vec<(&'static str, Value)> {
    let Config { control, sessions: session, processes, limits, permissions, .. } = config;
    vec![
        ("processes", json!(limits.processes)),
        ("processesPerUser", json!(limits.share_of_user())),
        ("queue", json!(session.queue)),
        ("turnCap", json!(session.turn_cap)),
        ("toolCallCap", json!(session.tool_call_cap)),
        ("connections", json!(control.connections)),
        ("connectionsPerUser", json!(control.share_of_user())),
        ("streamsPerUser", json!(control.streams_per_user)),
        ("requestsPerSecond", json!(control.requests_per_second)),
        ("promptsPerMinute", json!(control.prompts_per_minute)),
        ("bodyBytes", json!(control.body_max.0)),
        ("importBytes", json!(control.import_max.0)),
        ("promptBytes", json!(limits.prompt_max.0)),
        ("mediaBytes", json!(limits.media_max.0)),
        ("lineBytes", json!(limits.line_max.0)),
        ("payloadBytes", json!(limits.payload_max.0)),
        ("checkpointBytes", json!(limits.checkpoint_max.0)),
        ("recordBytes", json!(limits.record_max.0)),
        ("costLimit", json!(session.cost_limit.as_ref().map(ToString::to_string))),
        ("idleTimeoutSeconds", optional(session.idle_timeout)),
        ("turnSilenceTimeoutSeconds", optional(session.turn_silence_timeout)),
        ("retentionSuspendedSeconds", optional(session.retention_suspended)),
        ("retentionResumableSeconds", optional(session.retention_resumable)),
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_limit_is_there_once_and_as_it_is_in_force() {
        let mut config = Config::default();
        config.limits.processes = 5;
        config.control.connections = 16;
        let limits = limits(&config);
        let names: BTreeSet<&str> = limits.iter().map(|(name, _)| *name).collect();
        assert_eq!(names.len(), limits.len(), "{limits:?}");
        let limit = |name: &str| limits.iter().find(|(known, _)| *known == name).unwrap().1.clone();
        assert_eq!((limit("processesPerUser"), limit("connectionsPerUser")), (json!(3), json!(14)));
    }
}
