//! Errors: one shape, made by one total match.

mod ailment;
mod bounds;
mod config;
mod import;
mod mcp;
pub mod plain;
mod profiles;
mod records;
mod standing;
mod store;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

pub use self::ailment::Ailment;
pub use self::records::RecordRefusal;
use self::store::{backup_answer, search_answer, store_answer};
use super::misreading;
use super::wire::ErrorBody;
use super::wire::permissions::Permission;
use crate::agent::WorkspaceError;
use crate::config::ConfigError;
use crate::model::error::chain;
use crate::model::status::Denied;
use crate::model::{Choice, FsScope, SessionStatus, TurnId};
use crate::registry::{ImportError, RegistryError};
use crate::session::Refusal;
use crate::store::{BackupError, SearchError, SearchQueryError, StoreError};

/// Everything that a request can be answered with instead of what it asked for.
#[derive(Debug)]
pub enum ApiError {
    /// What was sent cannot be understood: the field and what is wrong with it.
    Invalid {
        field: String,
        problem: String,
    },
    /// The same, with what to do about it.
    Misunderstood {
        field: String,
        problem: String,
        hint: String,
    },
    /// What is looked for makes no sense.
    SearchQuery(SearchQueryError),
    Search(SearchError),
    UnsupportedMediaType {
        found: String,
    },
    /// The body is compressed, or something like it.
    UnsupportedEncoding {
        found: String,
    },
    BodyTooLarge {
        max: usize,
    },
    BodyTimeout,
    /// It never became a request: its head did not come in time, or has no end, or is none.
    HeadTimeout,
    HeadTooLarge,
    UriTooLong,
    NotHttp,
    /// There is no memory to spend on it now, or no place for it.
    Overloaded {
        what: &'static str,
    },
    TooManyStreams {
        max: usize,
    },
    NoRoute {
        path: String,
    },
    MethodNotAllowed {
        method: String,
        path: String,
    },
    /// It comes from an agent, or from what one has started.
    AgentsNotServed,
    /// It comes to the tools of a session from somebody who is not its agent.
    NotItsAgent,
    /// An agent reaches for another session than its own.
    OtherSession,
    /// Nobody knows whose request it is.
    NoCaller,
    /// It concerns everybody's sessions, and comes from somebody who has only their own.
    RootOnly,
    NoSuchSession(String),
    NoSuchTurn(String),
    NoSuchWorkspace(String),
    NoSuchAgent(String),
    NoSuchBlob(String),
    NoSuchPermission(String),
    NoSuchRule(String),
    /// Of a checkpoint or a record.
    Record(RecordRefusal),
    /// Somebody else was first.
    PermissionAnswered(Box<Permission>),
    /// More of these than the setting allows.
    TooOften {
        what: &'static str,
        setting: &'static str,
        wait: Duration,
    },
    /// The key stands for another request.
    IdempotencyMismatch {
        key: String,
    },
    /// Something is wrong with the daemon or its store.
    Unhealthy(Ailment),
    Backup(BackupError),
    /// The configuration file cannot be loaded.
    ConfigInvalid(ConfigError),
    Import(Box<ImportError>),
    Registry(RegistryError),
}

impl From<RegistryError> for ApiError {
    fn from(error: RegistryError) -> Self {
        Self::Registry(error)
    }
}

impl From<RecordRefusal> for ApiError {
    fn from(refusal: RecordRefusal) -> Self {
        Self::Record(refusal)
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        Self::Registry(RegistryError::Store(error))
    }
}

/// What an error becomes on the wire.
struct Answer {
    status: StatusCode,
    code: &'static str,
    message: String,
    hint: String,
    details: Value,
    retry_after: Option<u128>,
}

impl Answer {
    fn new(status: StatusCode, code: &'static str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), hint: hint.into(), details: json!({}), retry_after: None }
    }

    fn details(mut self, details: Value) -> Self {
        self.details = details;
        self
    }

    fn retry_after(mut self, wait: Duration) -> Self {
        // Rounded up: whoever comes back as told must not be too early.
        self.retry_after = Some((wait.as_millis().div_ceil(1000)).max(1));
        self
    }
}

/// How long to wait when every process is busy.
const PROCESS_LIMIT_WAIT: Duration = Duration::from_mins(1);
const QUEUE_WAIT: Duration = Duration::from_secs(10);
const OVERLOAD_WAIT: Duration = Duration::from_secs(1);
/// The longest message. What it tells back may be as long as a request is.
const WORDS_CHARS_MAX: usize = 4000;

const SESSIONS_HINT: &str = "list the sessions with `acpd ls --all` or GET /v1/sessions";
const TURNS_HINT: &str = "list the session's turns with `acpd turns` or GET /v1/sessions/{id}/turns";
const WORKSPACES_HINT: &str = "list the workspaces with `acpd workspaces` or GET /v1/workspaces";
const AGENTS_HINT: &str = "list the agents with `acpd agents` or GET /v1/agents; add one with `acpd agents add`, or \
    as [agents.NAME] in config.toml and run `acpd reload`";
const LATE_CHOICE_HINT: &str =
    "the agent may still apply it: check the session's mode, model and configOptions (GET /v1/sessions/{id})";
const KEPT_CHOICE_HINT: &str = "nothing else was changed; GET /v1/sessions/{id} shows the agent's current settings \
    and choices";
const LOG_HINT: &str = "read `acpd logs`";

impl ApiError {
    pub fn invalid(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Invalid { field: misreading::shortened(field), problem: problem.into() }
    }

    pub fn misunderstood(field: impl Into<String>, problem: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Misunderstood { field: misreading::shortened(field), problem: problem.into(), hint: hint.into() }
    }

    fn answer(self) -> Answer {
        use StatusCode as S;
        match self {
            Self::Invalid { field, problem } => invalid_answer(&field, problem),
            Self::Misunderstood { field, problem, hint } => Answer { hint, ..invalid_answer(&field, problem) },
            Self::Search(error) => search_answer(&error),
            Self::SearchQuery(SearchQueryError { problem, hint }) => {
                Answer::new(S::BAD_REQUEST, "invalid_request", format!("q: {problem}"), hint)
                    .details(json!({ "field": "q" }))
            }
            Self::UnsupportedMediaType { found } => media_type_answer(&found),
            Self::UnsupportedEncoding { found } => bounds::unsupported_encoding(&found),
            Self::BodyTooLarge { max } => bounds::body_too_large(max),
            Self::Overloaded { what } => bounds::no_room(what),
            Self::TooManyStreams { max } => bounds::too_many_streams(max),
            Self::BodyTimeout => bounds::body_timeout(),
            Self::HeadTimeout => plain::head_timeout(),
            Self::HeadTooLarge => plain::head_too_large(),
            Self::UriTooLong => plain::uri_too_long(),
            Self::NotHttp => plain::not_http(),
            Self::NoRoute { path } => no_route_answer(path),
            Self::MethodNotAllowed { method, path } => {
                let message = format!("{path} does not support {method}");
                Answer::new(
                    S::METHOD_NOT_ALLOWED,
                    "method_not_allowed",
                    message,
                    "the Allow header lists the supported methods",
                )
            }
            Self::AgentsNotServed => agents_answer(),
            Self::NotItsAgent => standing::not_its_agent_answer(),
            Self::OtherSession => standing::other_session_answer(),
            Self::RootOnly => standing::root_only_answer(),
            Self::NoCaller => standing::no_caller_answer(),
            Self::NoSuchSession(id) => {
                Answer::new(S::NOT_FOUND, "session_not_found", format!("there is no session {id}"), SESSIONS_HINT)
            }
            Self::NoSuchTurn(id) => {
                Answer::new(S::NOT_FOUND, "turn_not_found", format!("the session has no turn {id}"), TURNS_HINT)
            }
            Self::NoSuchWorkspace(id) => standing::no_workspace_answer(&id),
            Self::NoSuchAgent(slug) => {
                Answer::new(S::NOT_FOUND, "agent_not_found", format!("there is no agent {slug:?}"), AGENTS_HINT)
                    .details(json!({ "agent": misreading::shortened(slug) }))
            }
            Self::NoSuchBlob(hash) => {
                let hint = "a message shows the sha256 of each blob; a blob is deleted with the last session that \
                    uses it";
                Answer::new(S::NOT_FOUND, "blob_not_found", format!("there is no blob {hash}"), hint)
            }
            Self::NoSuchPermission(id) => no_permission(&id),
            Self::NoSuchRule(id) => no_rule(format!("the session has no rule {id}")),
            Self::Record(refusal) => records::answer(refusal),
            Self::PermissionAnswered(permission) => answered_answer(&permission),
            Self::TooOften { what, setting, wait } => {
                let hint = format!("wait and send fewer requests, or raise {setting}");
                Answer::new(S::TOO_MANY_REQUESTS, "rate_limited", format!("too many {what}"), hint).retry_after(wait)
            }
            Self::IdempotencyMismatch { key } => mismatch_answer(&key),
            Self::Unhealthy(ailment) => ailment::answer(ailment),
            Self::Backup(error) => backup_answer(error),
            Self::ConfigInvalid(error) => config::invalid_answer(&error),
            Self::Import(error) => import::answer(*error),
            Self::Registry(error) => registry_answer(error),
        }
    }

    /// As status and body, for whoever says more than that.
    pub fn told(self) -> (StatusCode, ErrorBody) {
        let Answer { status, code, message, hint, details, retry_after: _ } = self.answer();
        (status, ErrorBody { error: code.to_owned(), message, hint, details })
    }
}

fn no_route_answer(path: String) -> Answer {
    let hint = misreading::nearest_route(&path);
    let message = format!("there is no route {}", misreading::shortened(path));
    Answer::new(StatusCode::NOT_FOUND, "route_not_found", message, hint)
}

fn media_type_answer(found: &str) -> Answer {
    let message = if found.is_empty() {
        "the body has no Content-Type".to_owned()
    } else {
        format!("the body has Content-Type {found:?}, not JSON")
    };
    let hint = "send Content-Type: application/json";
    Answer::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", message, hint)
}

fn agents_answer() -> Answer {
    let message = "acpd does not serve agents: this connection comes from an agent or from a process that it started";
    let hint = "send the request from outside the session; a program that passes its connection on must run until it \
        has the answer";
    Answer::new(StatusCode::FORBIDDEN, "agents_not_served", message, hint)
}

fn mismatch_answer(key: &str) -> Answer {
    let message = format!("the Idempotency-Key {key:?} was used for a request with another body");
    let hint = "use a new key for each request; use a key again only to repeat the same request";
    Answer::new(StatusCode::UNPROCESSABLE_ENTITY, "idempotency_mismatch", message, hint)
}

fn invalid_answer(field: &str, problem: String) -> Answer {
    let message = if field.is_empty() { problem } else { format!("{field}: {problem}") };
    let hint = "correct the request and send it again; GET /v1/openapi.json describes it";
    Answer::new(StatusCode::BAD_REQUEST, "invalid_request", message, hint).details(json!({ "field": field }))
}

fn registry_answer(error: RegistryError) -> Answer {
    use StatusCode as S;
    let message = error.to_string();
    match error {
        RegistryError::NotFound(_) => Answer::new(S::NOT_FOUND, "session_not_found", message, SESSIONS_HINT),
        RegistryError::Refused(refusal) => refusal_answer(refusal),
        RegistryError::InError { cause } => standing::in_error_answer(cause.as_ref()),
        RegistryError::ProcessLimit { max } => {
            let hint = "wait for a turn or an agent check to end, archive a session, or raise limits.processes";
            Answer::new(S::TOO_MANY_REQUESTS, "process_limit", message, hint)
                .details(json!({ "max": max }))
                .retry_after(PROCESS_LIMIT_WAIT)
        }
        RegistryError::ProcessShare { max } => {
            let hint = "wait for one of your turns or agent checks to end, archive a session, or raise \
                limits.processes_per_user";
            Answer::new(S::TOO_MANY_REQUESTS, "process_limit", message, hint)
                .details(json!({ "max": max, "perUser": true }))
                .retry_after(PROCESS_LIMIT_WAIT)
        }
        RegistryError::TrialLimit { .. } => bounds::overloaded(message),
        RegistryError::UnknownAgent(slug) => Answer::new(S::NOT_FOUND, "agent_not_found", message, AGENTS_HINT)
            .details(json!({ "agent": misreading::shortened(slug) })),
        RegistryError::AgentNotInstalled { agent, command, hint, .. } => {
            Answer::new(S::UNPROCESSABLE_ENTITY, "agent_not_installed", message, hint)
                .details(json!({ "agent": agent, "command": command }))
        }
        RegistryError::WiderPermissions { agent, granted, asked } => {
            let hint = format!(
                "choose a stricter mode; or, as the daemon's user, run `acpd config set agents.{agent}.permissions_max \
                    {asked}` and create a new session"
            );
            Answer::new(S::FORBIDDEN, "wider_permissions", message, hint).details(json!({ "granted": granted }))
        }
        RegistryError::WiderScope { agent, granted, .. } => {
            let hint = format!("a session may only narrow its profile: raise agents.{agent}.fs_scope to allow this");
            Answer::new(S::FORBIDDEN, "scope_not_allowed", message, hint).details(json!({ "granted": granted }))
        }
        RegistryError::Mcp(refusal) => mcp::answer(refusal),
        RegistryError::Profile(refusal) => profiles::answer(refusal),
        RegistryError::FullScope => {
            let hint =
                "use the scope project and list more directories in workspace.extra, or set sandbox.allow_full = true";
            let granted = FsScope::Project.as_str();
            Answer::new(S::FORBIDDEN, "scope_not_allowed", message, hint).details(json!({ "granted": granted }))
        }
        RegistryError::Workspace(error) => workspace_answer(error),
        RegistryError::UnknownWorkspace(_) => {
            Answer::new(S::NOT_FOUND, "workspace_not_found", message, WORKSPACES_HINT)
        }
        RegistryError::OthersWorkspace { path, .. } => standing::others_workspace_answer(message, &path),
        RegistryError::WorkspaceInUse { sessions, .. } => {
            let hint = "delete its sessions first (`acpd rm --purge`, ?purge=true)";
            Answer::new(S::CONFLICT, "workspace_in_use", message, hint).details(json!({ "sessions": sessions }))
        }
        RegistryError::CheckpointExists(name) => records::checkpoint_exists(message, &name),
        RegistryError::CheckpointLimit { max } => records::checkpoint_limit(message, max),
        RegistryError::RecordFull { what, max } => records::record_full(message, what, max),
        RegistryError::Store(error) => store_answer(&error),
        RegistryError::ActorFailed => Answer::new(S::INTERNAL_SERVER_ERROR, "internal", message, LOG_HINT),
    }
}

fn refusal_answer(refusal: Refusal) -> Answer {
    use StatusCode as S;
    let message = refusal.to_string();
    match refusal {
        Refusal::NotActive(status) => not_active(status),
        Refusal::Denied(denied) => match denied {
            Denied::ArchivedIsFinal => not_active(SessionStatus::Archived),
            Denied::ErrorIsFinal => not_active(SessionStatus::Error),
        },
        Refusal::QueueFull { waiting } => {
            let hint = "wait for a turn to end, cancel waiting prompts (`acpd cancel --queued`), or raise \
                sessions.queue";
            Answer::new(S::TOO_MANY_REQUESTS, "queue_full", message, hint)
                .details(json!({ "waiting": waiting }))
                .retry_after(QUEUE_WAIT)
        }
        Refusal::WaitingFull { waiting } => {
            let hint = "send a prompt: the waiting messages go to the agent with it";
            Answer::new(S::TOO_MANY_REQUESTS, "queue_full", message, hint)
                .details(json!({ "waiting": waiting }))
                .retry_after(QUEUE_WAIT)
        }
        Refusal::UnsupportedContent { index, agent, takes, .. } => {
            let hint = "remove the block, send the file as a resource_link, or use an agent that accepts it";
            let takes: Vec<&str> = takes.split(", ").collect();
            Answer::new(S::UNPROCESSABLE_ENTITY, "unsupported_content", message, hint)
                .details(json!({ "field": format!("content[{index}]"), "agent": agent, "takes": takes }))
        }
        Refusal::WiderMode { choice, agent, .. } => {
            let hint = format!("add it to agents.{agent}.modes_allowed, or give the session a wider policy");
            Answer::new(S::FORBIDDEN, "wider_mode", message, hint).details(json!({ "field": choice.field() }))
        }
        Refusal::PermissionClosed(id) => {
            let hint = "GET /v1/permissions/{id} shows the answer";
            Answer::new(S::CONFLICT, "permission_answered", message, hint).details(json!({ "permissionId": id }))
        }
        Refusal::UnknownOption { options, .. } => {
            let ids: Vec<&str> = options.iter().map(|option| option.option_id.as_str()).collect();
            let hint = format!("the options are: {}", ids.join(", "));
            Answer::new(S::BAD_REQUEST, "invalid_request", format!("optionId: {message}"), hint)
                .details(json!({ "field": "optionId", "options": options }))
        }
        Refusal::UnfitAnswer { field, problem } => invalid_answer(field, problem),
        Refusal::NoSuchRule(_) => no_rule(message),
        Refusal::Workspace(error) => session_workspace_answer(error),
        Refusal::Context(problem) => {
            let answer = invalid_answer(&problem.field, problem.problem);
            Answer { hint: problem.hint.map_or(answer.hint, str::to_owned), ..answer }
        }
        Refusal::Purged => Answer::new(S::NOT_FOUND, "session_not_found", message, SESSIONS_HINT),
        Refusal::NotExpired => Answer::new(S::CONFLICT, "not_expired", message, "acpd keeps the session"),
        Refusal::NoTurn => Answer::new(S::CONFLICT, "no_turn", message, TURNS_HINT),
        Refusal::StaleTurn(turn) => stale_turn(message, turn),
        Refusal::UnknownChoice { choice, known } => {
            choice_answer(S::UNPROCESSABLE_ENTITY, "unknown_choice", message, &choice, &known)
        }
        Refusal::AgentRefused { choice, known, .. } => {
            choice_answer(S::CONFLICT, "agent_refused", message, &choice, &known)
        }
        Refusal::AgentSilent { choice } => Answer::new(S::GATEWAY_TIMEOUT, "agent_timeout", message, LATE_CHOICE_HINT)
            .details(json!({ "field": choice.field(), "known": [] })),
        Refusal::AgentGone { choice } => choice_answer(S::CONFLICT, "agent_refused", message, &choice, &[]),
        Refusal::Kept { refusal, kept } => kept_answer(*refusal, message, &kept),
        Refusal::NeedsSlot | Refusal::Overloaded => bounds::overloaded(message),
        Refusal::ShuttingDown => {
            let hint = "try again when the daemon is running";
            Answer::new(S::SERVICE_UNAVAILABLE, "shutting_down", message, hint).retry_after(OVERLOAD_WAIT)
        }
        Refusal::Store(error) => store_answer(Arc::as_ref(&error)),
    }
}

/// Of a session's own workspace, which was fine once.
fn session_workspace_answer(error: WorkspaceError) -> Answer {
    match error {
        WorkspaceError::OutsideRoots { .. }
        | WorkspaceError::Reserved { .. }
        | WorkspaceError::Owner(_)
        | WorkspaceError::NotLooked(_) => workspace_answer(error),
        error => {
            let hint = error.hint().unwrap_or_else(|| "restore the directory, then send the prompt again".to_owned());
            Answer::new(StatusCode::CONFLICT, "workspace_missing", chain(&error), hint)
        }
    }
}

fn no_permission(id: &str) -> Answer {
    let hint = "list open permission requests with GET /v1/permissions, and all with ?status=all";
    Answer::new(StatusCode::NOT_FOUND, "permission_not_found", format!("there is no permission request {id}"), hint)
}

fn no_rule(message: String) -> Answer {
    Answer::new(
        StatusCode::NOT_FOUND,
        "rule_not_found",
        message,
        "list the session's rules with GET /v1/sessions/{id}/rules",
    )
}

/// The answer that counts is the one that came first.
fn answered_answer(permission: &Permission) -> Answer {
    let by = permission.resolution.as_ref().map(|resolution| format!(" ({})", resolution.by)).unwrap_or_default();
    let message = format!("permission request {} is already {}{by}", permission.id, permission.status.as_str());
    let details =
        json!({ "permissionId": permission.id, "status": permission.status, "resolution": permission.resolution });
    let hint = "the first answer counts; details.resolution shows it";
    Answer::new(StatusCode::CONFLICT, "permission_answered", message, hint).details(details)
}

/// Nothing was changed; the hint lists what there is instead.
fn choice_answer(status: StatusCode, code: &'static str, message: String, choice: &Choice, known: &[String]) -> Answer {
    let hint = if known.is_empty() {
        "nothing was changed; GET /v1/sessions/{id} shows what the agent offers".to_owned()
    } else {
        format!("nothing was changed; choose one of: {}", known.join(", "))
    };
    let details = json!({ "field": choice.field(), "known": known });
    Answer::new(status, code, message, hint).details(details)
}

/// The agent stays with a part of what was asked of it.
fn kept_answer(refusal: Refusal, message: String, kept: &[Choice]) -> Answer {
    let may_be_late = matches!(refusal, Refusal::AgentSilent { .. });
    let hint = if may_be_late { LATE_CHOICE_HINT } else { KEPT_CHOICE_HINT };
    let mut answer = Answer { message, hint: hint.to_owned(), ..refusal_answer(refusal) };
    if let Some(details) = answer.details.as_object_mut() {
        details.insert("kept".to_owned(), kept.iter().map(Choice::field).collect());
    }
    answer
}

fn not_active(status: SessionStatus) -> Answer {
    use StatusCode as S;
    match status {
        // An active session refuses nothing for its status.
        SessionStatus::Active => Answer::new(S::CONFLICT, "session_active", "the session is active", ""),
        SessionStatus::Suspended => {
            let hint = "resume it with POST /v1/sessions/{id}/resume or `acpd resume`";
            Answer::new(S::CONFLICT, "session_suspended", "the session is suspended", hint)
        }
        SessionStatus::Archived => {
            let hint = "you can read or delete it; create a new session to continue";
            Answer::new(S::CONFLICT, "session_archived", "the session is archived and cannot continue", hint)
        }
        SessionStatus::Error => standing::in_error_answer(None),
    }
}

fn stale_turn(message: String, turn: TurnId) -> Answer {
    Answer::new(StatusCode::CONFLICT, "stale_turn", message, TURNS_HINT).details(json!({ "turnId": turn }))
}

fn workspace_answer(error: WorkspaceError) -> Answer {
    use StatusCode as S;
    let message = chain(&error);
    match error {
        WorkspaceError::NotAbsolute(_) => {
            Answer::new(S::BAD_REQUEST, "invalid_request", message, "give an absolute path")
        }
        WorkspaceError::Missing { source, .. } => {
            let hint = match source.kind() {
                std::io::ErrorKind::NotFound => "create the directory first",
                _ => "let the daemon's user enter the directory",
            };
            Answer::new(S::BAD_REQUEST, "workspace_missing", message, hint)
        }
        WorkspaceError::Closed { .. } => {
            Answer::new(S::BAD_REQUEST, "workspace_missing", message, error.hint().unwrap_or_default())
        }
        WorkspaceError::NotADirectory(_) | WorkspaceError::NotUtf8(_) => {
            Answer::new(S::BAD_REQUEST, "invalid_request", message, "give the path of a directory")
        }
        WorkspaceError::Owner(error) => Answer::new(S::FORBIDDEN, "unknown_user", message, error.hint()),
        WorkspaceError::NotLooked(_) => Answer::new(S::INTERNAL_SERVER_ERROR, "internal", message, LOG_HINT),
        WorkspaceError::Moved { .. } => {
            let hint = "give the path that it now leads to, or restore the registered directory";
            Answer::new(S::CONFLICT, "workspace_missing", message, hint)
        }
        WorkspaceError::Reserved { .. } => {
            let hint = "choose a directory outside of it: agents must not write to acpd's own files";
            Answer::new(S::FORBIDDEN, "workspace_reserved", message, hint)
        }
        WorkspaceError::OutsideRoots { roots, .. } => {
            let roots: Vec<String> = roots.iter().map(|root: &PathBuf| root.display().to_string()).collect();
            let hint = format!(
                "allowed roots are {}; to add one, change workspace.roots with `acpd config edit`",
                roots.join(", ")
            );
            Answer::new(S::FORBIDDEN, "outside_roots", message, hint).details(json!({ "roots": roots }))
        }
    }
}

/// What a response was refused with, for whoever counts.
#[derive(Clone, Copy, Debug)]
pub struct RefusedWith(pub &'static str);

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let Answer { status, code, message, hint, details, retry_after } = self.answer();
        let (message, hint) = (misreading::cut(message, WORDS_CHARS_MAX), misreading::cut(hint, WORDS_CHARS_MAX));
        tracing::debug!(%status, code, message, "refused");
        let body = ErrorBody { error: code.to_owned(), message, hint, details };
        let mut response = Response::new(Body::from(serde_json::to_vec(&body).unwrap_or_default()));
        *response.status_mut() = status;
        response.extensions_mut().insert(RefusedWith(code));
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(seconds) = retry_after {
            response
                .headers_mut()
                .insert(header::RETRY_AFTER, HeaderValue::from(u64::try_from(seconds).unwrap_or(u64::MAX)));
        }
        response
    }
}
