//! What each operation can be refused with. The handlers say what they answer when all is well; the errors are here, in one
//! table, because most of them come from far below a handler.

/// A status and the code of an error that comes with it.
pub type Failure = (u16, &'static str);

/// What an error's code means, in one line.
pub const CODES: &[(&str, &str)] = &[
    ("agent_archived", "the agent is archived and takes no new sessions"),
    ("agent_base_missing", "the agent's base is no longer in the configuration"),
    ("agent_exists", "another agent has this slug"),
    ("agent_limit", "the user has made the maximum number of agents"),
    ("agent_not_found", "there is no such agent"),
    ("agent_not_installed", "the agent's command is not installed on this machine"),
    ("agent_read_only", "the agent is defined in the configuration and can only be changed there"),
    ("agent_refused", "the agent refused the mode, model or option, or ended before it answered"),
    ("agent_timeout", "the agent did not answer in time; it may still apply the mode, model or option"),
    ("agents_not_served", "the request comes from an agent or from a process that an agent started"),
    ("backup_running", "another backup is running"),
    ("bad_request", "the bytes are not an HTTP/1.1 request"),
    ("blob_not_found", "there is no such blob"),
    ("body_timeout", "the body did not arrive in time"),
    ("body_too_large", "the body is larger than control.body_max, or an import is larger than control.import_max"),
    ("checkpoint_exists", "the session already has a checkpoint with this name"),
    ("checkpoint_limit", "the session has the maximum number of checkpoints"),
    ("checkpoint_not_found", "the session has no such checkpoint"),
    ("config_invalid", "the configuration file is invalid; details.problems lists each key"),
    ("file_exists", "a file with this name exists"),
    ("head_timeout", "the request head did not arrive in time"),
    ("head_too_large", "the request head is larger than 32 KiB or has more than 100 fields"),
    ("idempotency_mismatch", "the idempotency key was used for a request with another body"),
    ("insufficient_storage", "there is too little disk space for new work"),
    ("internal", "an internal error of acpd; its log says more"),
    ("invalid_request", "the request is invalid; details.field names the field"),
    ("mcp_server_not_allowed", "the profile allows only its own MCP servers"),
    ("mcp_url_not_allowed", "the MCP server's address is on this machine or its local network"),
    ("method_not_allowed", "the path does not support the method; the Allow header lists the supported methods"),
    ("no_turn", "no turn is running or waiting"),
    ("not_expired", "the session's retention has not ended"),
    ("not_its_agent", "the socket is for the tools of one session, and the request does not come from its agent"),
    ("other_session", "an agent used its tools for another session than its own"),
    ("outside_roots", "the directory is outside the configured roots"),
    ("overloaded", "acpd is overloaded; try again"),
    ("permission_answered", "the permission request was already answered; the first answer counts"),
    ("permission_not_found", "there is no such permission request"),
    ("process_limit", "the maximum number of processes runs, and none is idle"),
    ("queue_full", "the queue is full"),
    ("rate_limited", "too many requests or prompts in a short time"),
    ("record_damaged", "what acpd stored of this cannot be read any more"),
    ("record_full", "the session record has the maximum number of entries"),
    ("record_not_found", "there is no such session record"),
    ("route_not_found", "there is no such route"),
    ("root_only", "the request affects the sessions of all users, and only root may do that"),
    ("rule_not_found", "the session has no such rule"),
    ("schema_validation_failed", "the session record is invalid; details name the field and what it must be"),
    ("scope_not_allowed", "the scope is wider than the profile or the configuration allows"),
    ("session_active", "the session is active"),
    ("session_archived", "the session is archived; archived sessions cannot continue"),
    ("session_error", "the session is in error; such sessions cannot continue"),
    ("session_not_found", "there is no such session"),
    ("session_suspended", "the session is suspended; resume it first"),
    ("shutting_down", "the daemon is stopping"),
    ("stale_turn", "the named turn has ended, or another turn is running"),
    ("store_damaged", "the database is damaged, so acpd cannot read what was requested"),
    ("store_stalled", "a test write to the store did not finish in time"),
    ("store_unwritable", "a test write to the store failed"),
    ("too_many_searches", "the user has the maximum number of running and waiting searches"),
    ("too_many_streams", "the user has the maximum number of event streams and exports, and reads all of them"),
    ("turn_not_found", "the session has no such turn"),
    ("unknown_choice", "the agent does not offer this mode, model or option"),
    ("unknown_user", "the user is not in the user database, or has no home directory there"),
    ("unsupported_content", "the agent does not accept this kind of content block"),
    ("unsupported_media_type", "the body is not application/json, or is compressed"),
    ("uri_too_long", "the request target is too long"),
    ("wider_mode", "the mode lets the agent do more than the session's policy allows"),
    ("wider_permissions", "the permission mode is wider than the profile allows"),
    ("workspace_in_use", "sessions use the workspace"),
    ("workspace_missing", "the directory does not exist, or the daemon's user cannot enter it"),
    ("workspace_not_found", "there is no such workspace"),
    (
        "workspace_of_another",
        "the workspace belongs to another user; the session's owner must register the directory too",
    ),
    ("workspace_reserved", "the directory belongs to acpd"),
];

/// Whatever is asked for.
const ALWAYS: &[Failure] = &[
    (400, "invalid_request"),
    (403, "agents_not_served"),
    (429, "rate_limited"),
    (500, "internal"),
    (500, "record_damaged"),
    (500, "store_damaged"),
    (503, "overloaded"),
    (503, "shutting_down"),
];

/// Where a body is read.
const OF_BODIES: &[Failure] = &[(408, "body_timeout"), (413, "body_too_large"), (415, "unsupported_media_type")];

/// Where the path names a session.
const OF_SESSIONS: &[Failure] = &[(404, "session_not_found")];

/// Where something is begun that needs room on the disk, or anything at all is recorded: that fails when nothing is left.
const OF_WORK: &[Failure] = &[(507, "insufficient_storage")];

/// Where a session must be one that can go on.
const OF_FINAL: &[Failure] = &[(409, "session_archived"), (409, "session_error")];

/// Where a session must be active.
const OF_INACTIVE: &[Failure] = &[(409, "session_archived"), (409, "session_error"), (409, "session_suspended")];

/// Where a directory is looked up.
const OF_DIRECTORIES: &[Failure] = &[
    (400, "workspace_missing"),
    (403, "outside_roots"),
    (403, "unknown_user"),
    (403, "workspace_reserved"),
    (409, "workspace_missing"),
];

/// Where a prompt is accepted.
const OF_PROMPTS: &[Failure] = &[
    (403, "outside_roots"),
    (403, "unknown_user"),
    (403, "workspace_reserved"),
    (409, "workspace_missing"),
    (422, "idempotency_mismatch"),
    (422, "unsupported_content"),
    (429, "process_limit"),
    (429, "queue_full"),
];

/// Where modes, models and policies are chosen.
const OF_CHOICES: &[Failure] = &[(403, "wider_mode"), (403, "wider_permissions"), (422, "unknown_choice")];

/// Where a session is made in a workspace.
const OF_NEW_SESSIONS: &[Failure] = &[
    (403, "mcp_server_not_allowed"),
    (403, "mcp_url_not_allowed"),
    (403, "scope_not_allowed"),
    (404, "agent_not_found"),
    (404, "session_not_found"),
    (404, "workspace_not_found"),
    (409, "agent_archived"),
    (409, "agent_base_missing"),
    (409, "workspace_of_another"),
    (422, "agent_not_installed"),
    (422, "idempotency_mismatch"),
    (429, "process_limit"),
];

/// Where a profile is written.
const OF_PROFILES: &[Failure] = &[
    (403, "mcp_server_not_allowed"),
    (403, "mcp_url_not_allowed"),
    (403, "root_only"),
    (403, "wider_mode"),
    (403, "wider_permissions"),
];

/// Where one that is there is changed.
const OF_NAMED_PROFILES: &[Failure] = &[(404, "agent_not_found"), (409, "agent_read_only")];

/// Where the answer takes as long as its reader.
const OF_STREAMS: &[Failure] = &[(429, "too_many_streams")];

const OF_ANSWERS: &[Failure] = &[(404, "permission_not_found"), (409, "permission_answered")];

/// What an operation can be refused with beside what is always possible, in groups. Nothing for one that is not known.
fn groups(operation: &str) -> Option<Vec<&'static [Failure]>> {
    let groups: &[&'static [Failure]] = match operation {
        "getHealth" => &[&[
            (503, "insufficient_storage"),
            (503, "store_damaged"),
            (503, "store_stalled"),
            (503, "store_unwritable"),
        ]],
        "getInfo" | "getOpenapi" | "listWorkspaces" | "listAgents" | "listSessions" | "listPermissions"
        | "listProcesses" | "listCheckpoints" | "listRecords" | "getTimeline" => &[],
        "searchMessages" => &[&[(429, "too_many_searches")]],
        "followAll" => &[OF_STREAMS],
        "getMetrics" => &[&[(403, "root_only")]],
        "registerWorkspace" => &[OF_BODIES, OF_WORK, OF_DIRECTORIES],
        "getWorkspace" => &[&[(404, "workspace_not_found")]],
        "removeWorkspace" => &[OF_WORK, &[(404, "workspace_not_found"), (409, "workspace_in_use")]],
        "getAgent" => &[&[(404, "agent_not_found")]],
        "checkAgent" => &[
            OF_BODIES,
            &[(403, "mcp_server_not_allowed"), (403, "mcp_url_not_allowed"), (404, "agent_not_found")],
            &[(409, "agent_base_missing"), (429, "process_limit")],
        ],
        "createAgent" => &[OF_BODIES, OF_WORK, OF_PROFILES, &[(409, "agent_exists"), (409, "agent_limit")]],
        "changeAgent" => &[OF_BODIES, OF_WORK, OF_PROFILES, OF_NAMED_PROFILES],
        "archiveAgent" => &[OF_WORK, OF_NAMED_PROFILES],
        "submitRecord" => &[OF_BODIES, OF_WORK, &[(409, "record_full"), (422, "schema_validation_failed")]],
        "getRecord" => &[&[(404, "record_not_found")]],
        "getPermission" => &[&[(404, "permission_not_found")]],
        // The session can be deleted between the look for the question and its answer.
        "answerPermission" => &[OF_BODIES, OF_SESSIONS, OF_WORK, OF_ANSWERS],
        "getBlob" => &[&[(404, "blob_not_found")]],
        "collectGarbage" => &[OF_BODIES, OF_WORK, &[(403, "root_only")]],
        "importSessions" => &[
            OF_BODIES,
            OF_WORK,
            OF_DIRECTORIES,
            &[(403, "mcp_server_not_allowed"), (403, "mcp_url_not_allowed"), (404, "agent_not_found")],
            &[(409, "agent_archived"), (409, "agent_base_missing"), (409, "record_full")],
        ],
        "reloadConfig" => &[OF_BODIES, OF_WORK, &[(403, "root_only"), (422, "config_invalid")]],
        "createBackup" => &[OF_BODIES, OF_WORK, &[(403, "root_only"), (409, "backup_running"), (409, "file_exists")]],
        _ => return groups_of_sessions(operation),
    };
    Some(groups.to_vec())
}

/// The same of what is below a session, and of sessions themselves.
fn groups_of_sessions(operation: &str) -> Option<Vec<&'static [Failure]>> {
    let groups: &[&'static [Failure]] = match operation {
        "createSession" => &[OF_BODIES, OF_WORK, OF_DIRECTORIES, OF_CHOICES, OF_NEW_SESSIONS],
        "createCheckpoint" => &[
            OF_BODIES,
            OF_SESSIONS,
            OF_WORK,
            OF_FINAL,
            &[(409, "checkpoint_exists"), (409, "checkpoint_limit"), (422, "idempotency_mismatch")],
        ],
        "getCheckpoint" => &[OF_SESSIONS, &[(404, "checkpoint_not_found")]],
        "restoreCheckpoint" => &[
            OF_BODIES,
            OF_SESSIONS,
            OF_WORK,
            OF_DIRECTORIES,
            OF_NEW_SESSIONS,
            &[(403, "wider_mode"), (403, "wider_permissions"), (404, "checkpoint_not_found")],
        ],
        "followSession" | "exportSession" => &[OF_SESSIONS, OF_STREAMS],
        "getSession"
        | "listSessionCheckpoints"
        | "getSessionRecord"
        | "listMessages"
        | "listTurns"
        | "listSessionPermissions"
        | "listRules" => &[OF_SESSIONS],
        "changeSession" => &[
            OF_BODIES,
            OF_SESSIONS,
            OF_WORK,
            OF_FINAL,
            OF_CHOICES,
            &[(403, "outside_roots"), (403, "unknown_user"), (403, "workspace_reserved"), (409, "workspace_missing")],
            &[(409, "agent_refused"), (504, "agent_timeout")],
        ],
        "resumeSession" => &[OF_BODIES, OF_SESSIONS, OF_WORK, OF_FINAL],
        "archiveSession" => &[OF_BODIES, OF_SESSIONS, OF_WORK, &[(409, "session_error")]],
        "removeSession" => &[OF_SESSIONS, OF_WORK, &[(409, "session_error")]],
        "addMessage" | "promptSession" => &[OF_BODIES, OF_SESSIONS, OF_WORK, OF_INACTIVE, OF_PROMPTS],
        "cancelTurn" => &[OF_BODIES, OF_SESSIONS, OF_WORK, &[(409, "no_turn"), (409, "stale_turn")]],
        "getTurn" => &[OF_SESSIONS, &[(404, "turn_not_found")]],
        "answerSessionPermission" => &[OF_BODIES, OF_SESSIONS, OF_WORK, OF_ANSWERS],
        "revokeRule" => &[OF_SESSIONS, OF_WORK, &[(404, "rule_not_found")]],
        _ => return None,
    };
    Some(groups.to_vec())
}

/// All that an operation can be refused with, by status and code, each once. One that has no row here has none.
pub fn of(operation: &str) -> Vec<Failure> {
    let Some(groups) = groups(operation) else { return Vec::new() };
    let mut failures: Vec<Failure> = groups.concat();
    failures.extend(ALWAYS);
    failures.sort_unstable();
    failures.dedup();
    failures
}

pub fn meaning(code: &str) -> &'static str {
    CODES.iter().find(|(known, _)| *known == code).map_or("", |(_, meaning)| meaning)
}
