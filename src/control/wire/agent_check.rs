//! The JSON of a trial of an agent.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::acp::introduction::{self, TerminalSignIn};
use crate::model::adapter::Asks;
use crate::model::{AgentProfile, ErrorCode};
use crate::session::{Trial, TrialError, asks};

/// What is offered to whom a check was too short.
const LONG_SECONDS: u64 = 300;

/// How to check an agent.
#[derive(Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CheckAgent {
    /// Also start a conversation. This can show whether a user is signed in, and which modes and models the agent
    /// offers.
    #[serde(default)]
    pub session: bool,
    /// Seconds from the agent's start to its last response, from 1 to 600. The timeouts in `[processes]` apply as well.
    /// The time to stop the agent is extra.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 600)]
    pub timeout_seconds: Option<u64>,
}

impl CheckAgent {
    pub const SECONDS_MAX: u64 = 600;
}

/// The result of an agent check. Absent fields were not reached, or the agent did not report them.
#[derive(Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentCheck {
    pub slug: String,
    /// Whether the whole check succeeded.
    pub ok: bool,
    /// Whether the command is installed.
    pub found: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The name that the agent reports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol_version: Option<u16>,
    /// The capabilities that the agent reports, in its own format.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capabilities: Option<Value>,
    #[serde(default)]
    pub auth_methods: Vec<AuthMethod>,
    /// Whether the agent has a valid sign-in. Null if unknown: no conversation was started, or the agent accepts one without a
    /// sign-in.
    pub signed_in: Option<bool>,
    /// Whether the agent asks before it changes a file or runs a command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asks: Option<Asks>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub modes: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<String>,
    /// The sandbox in force: `none`, `partial`, `writes-only` or `isolated`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
    /// Time from the agent's start to its response to `initialize`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initialize_ms: Option<u64>,
    /// Time for `session/new`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_ms: Option<u64>,
    /// Problems with its MCP servers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Duration of the whole check, including the stop.
    pub took_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<CheckProblem>,
}

/// A sign-in method that the agent offers.
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct AuthMethod {
    pub id: String,
    pub name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// What the agent's command gets beside its usual arguments and environment to sign a person in, in a terminal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminal: Option<TerminalSignIn>,
}

/// Why the check failed.
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct CheckProblem {
    /// `agent_not_installed`, or the error code of a turn that fails for the same reason: `agent_exited`, `timeout`,
    /// `auth_required`, `rate_limited`, `agent_error`, `protocol` or `interrupted`.
    pub code: String,
    pub message: String,
    pub hint: String,
}

impl AgentCheck {
    pub fn new(profile: &AgentProfile, trial: Trial, took: Duration) -> Self {
        let introduction = trial.introduction;
        let capabilities = introduction.capabilities.and_then(|raw| serde_json::from_str(raw.get()).ok());
        let methods = introduction.auth_methods.into_iter();
        let methods = methods.map(|introduction::AuthMethod { id, name, description, terminal }| AuthMethod {
            id,
            name,
            description,
            terminal,
        });
        let is_cut_short = trial.is_cut_short;
        let error = trial.error.map(|error| CheckProblem::new(profile, error, is_cut_short));
        // It said so itself, and a prompt would fail.
        let unknown = (trial.signed_in == Some(false) && error.is_none()).then(|| CheckProblem {
            code: ErrorCode::AuthRequired.as_str().to_owned(),
            message: "the agent reports that no user is signed in".to_owned(),
            hint: profile.how_to_sign_in(),
        });
        let error = error.or(unknown);
        Self {
            slug: profile.slug.clone(),
            ok: error.is_none(),
            found: trial.program.is_some(),
            path: trial.program.map(|program| program.display().to_string()),
            name: introduction.name,
            title: introduction.title,
            version: introduction.version,
            protocol_version: trial.protocol_version,
            capabilities,
            auth_methods: methods.collect(),
            signed_in: trial.signed_in,
            asks: Some(asks(profile.adapter, &profile.command, profile.mode.as_deref())),
            modes: trial.modes,
            models: trial.models,
            sandbox: trial.sandbox.map(|sandbox| sandbox.level.as_str().to_owned()),
            initialize_ms: trial.initialize_took.map(millis),
            session_ms: trial.session_took.map(millis),
            warnings: trial.warnings,
            took_ms: millis(took),
            error,
        }
    }
}

impl AgentCheck {
    /// What there is to tell of one that the daemon did not try.
    pub fn refused(slug: &str, found: bool, error: CheckProblem) -> Self {
        Self { slug: slug.to_owned(), found, error: Some(error), ..Self::default() }
    }
}

impl CheckProblem {
    fn new(profile: &AgentProfile, error: TrialError, is_cut_short: bool) -> Self {
        let error = match error {
            TrialError::Failed(error) => error,
            TrialError::NoProgram(problem) => {
                return Self {
                    code: "agent_not_installed".to_owned(),
                    message: problem.to_string(),
                    hint: problem.advice().unwrap_or_else(|| profile.how_to_install()),
                };
            }
        };
        let by_code = || match error.code {
            ErrorCode::AuthRequired => profile.how_to_sign_in(),
            ErrorCode::Timeout => {
                let more_time = if is_cut_short {
                    format!("`acpd agents check {} --timeout {LONG_SECONDS}s`", profile.slug)
                } else {
                    "the setting named in the message".to_owned()
                };
                format!(
                    "run the agent's command in a terminal to see what it waits for; if it downloads something at its \
                        first start, allow more time ({more_time})"
                )
            }
            ErrorCode::AgentExited => {
                format!(
                    "run the agent's command in a terminal to see its output; `acpd agents show {}` shows how acpd \
                        starts it",
                    profile.slug
                )
            }
            ErrorCode::RateLimited => "the provider limits the rate of requests; try again later".to_owned(),
            ErrorCode::Interrupted => "start the daemon again".to_owned(),
            ErrorCode::AgentError => {
                "the agent or the service behind it failed; run the agent's command in a terminal to see its output"
                    .to_owned()
            }
            ErrorCode::Protocol
            | ErrorCode::Internal
            | ErrorCode::TurnLimit
            | ErrorCode::CostLimit
            | ErrorCode::UnsupportedContent
            | ErrorCode::WorkspaceEscaped
            | ErrorCode::RecordDamaged => {
                "check that the agent supports ACP version 1 and that its arguments make it speak ACP".to_owned()
            }
        };
        let hint = error.hint.clone().unwrap_or_else(by_code);
        Self { code: error.code.as_str().to_owned(), message: error.message, hint }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
