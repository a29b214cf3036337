//! Events: the notification log. What happened, in order, numbered per session by the writer, replayable.
//!
//! [`EventBody`] is the closed set of what is logged; its JSON is the event's `data`. `docs/events.md` describes every
//! type for users, and a test below keeps the two together.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::context::SessionContext;
use super::id::{CheckpointId, MessageId, PermissionId, RuleId, SessionId, WorkspaceId};
use super::message::Role;
use super::peer::By;
use super::permission::Action;
use super::permission::policy::Policy;
use super::permission::question::{Decider, Decision, Outcome, PermissionKind, PermissionOption};
use super::sandbox::SandboxLevel;
use super::session::{ContextRestored, SessionLimits};
use super::status::SessionStatus;
use super::time::Timestamp;
use super::turn::{TurnError, TurnStatus};
use super::usage::Usage;

#[derive(Clone, Debug, Serialize)]
#[serde(untagged, rename_all_fields = "camelCase")]
pub enum EventBody {
    SessionCreated {
        workspace_id: WorkspaceId,
        workspace: String,
        agent: String,
        title: String,
        context: SessionContext,
        #[serde(skip_serializing_if = "Option::is_none")]
        imported_from: Option<Box<ImportedFrom>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        by: By,
    },
    SessionStatus {
        from: SessionStatus,
        to: SessionStatus,
        reason: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        by: By,
    },
    SessionUpdated {
        #[serde(skip_serializing_if = "Option::is_none")]
        title: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        tags: Option<Vec<String>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        limits: Option<SessionLimits>,
        #[serde(skip_serializing_if = "Option::is_none")]
        context: Option<SessionContext>,
        #[serde(skip_serializing_if = "Option::is_none")]
        permissions: Option<Policy>,
        #[serde(skip_serializing_if = "Option::is_none")]
        keep: Option<bool>,
        #[serde(skip_serializing_if = "Option::is_none")]
        mode: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        model: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        config_options: Option<BTreeMap<String, Value>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        commands: Option<Vec<String>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        by: By,
    },
    ProcessStarting {
        agent: String,
        workspace: String,
    },
    ProcessReady {
        pid: u32,
        agent_session_id: String,
        protocol_version: u16,
        agent_info: Option<Box<RawValue>>,
        context_restored: ContextRestored,
        sandbox: SandboxLevel,
    },
    ProcessWaiting {
        phase: &'static str,
        seconds: u64,
        servers: Vec<String>,
        message: String,
    },
    ProcessExited {
        pid: Option<u32>,
        reason: ExitReason,
        code: Option<i32>,
        signal: Option<i32>,
        stderr: String,
        error: Option<String>,
    },
    TurnQueued {
        position: usize,
        #[serde(skip_serializing_if = "Option::is_none")]
        by: By,
    },
    TurnStarted {},
    TurnWaiting {
        seconds: u64,
        message: String,
    },
    TurnCompleted {
        status: TurnStatus,
        stop_reason: Option<String>,
        error: Option<TurnError>,
        #[serde(skip_serializing_if = "Option::is_none")]
        usage: Option<Usage>,
        #[serde(skip_serializing_if = "Option::is_none")]
        by: By,
    },
    MessageDelta {
        message_id: MessageId,
        role: Role,
        #[serde(rename = "type")]
        kind: DeltaKind,
        text: String,
    },
    /// The JSON of the message itself. The writer makes this one, because it is the writer who numbers messages.
    MessageCreated(Box<RawValue>),
    ToolStarted {
        tool_call_id: String,
        update: Box<RawValue>,
    },
    ToolUpdated {
        tool_call_id: String,
        update: Box<RawValue>,
    },
    ToolCompleted {
        tool_call_id: String,
        status: String,
        update: Box<RawValue>,
    },
    PlanUpdated {
        update: Box<RawValue>,
    },
    UsageUpdated {
        update: Box<RawValue>,
    },
    PermissionRequested {
        permission_id: PermissionId,
        kind: PermissionKind,
        tool_call_id: Option<String>,
        title: String,
        action: Action,
        options: Vec<PermissionOption>,
        request: Box<RawValue>,
        #[serde(skip_serializing_if = "Option::is_none")]
        expires_at: Option<Timestamp>,
    },
    PermissionResolved {
        permission_id: PermissionId,
        tool_call_id: Option<String>,
        outcome: Outcome,
        decision: Option<Decision>,
        option_id: Option<String>,
        always: bool,
        decided_by: String,
        by: Decider,
    },
    PermissionRevoked {
        rule_id: RuleId,
        #[serde(skip_serializing_if = "Option::is_none")]
        by: By,
    },
    FileRead {
        path: String,
        bytes: usize,
        line: Option<u32>,
        limit: Option<u32>,
        decided_by: String,
    },
    FileWritten {
        path: String,
        bytes: usize,
        is_new: bool,
        decided_by: String,
    },
    FileRefused {
        path: String,
        operation: &'static str,
        reason: String,
        decided_by: Option<String>,
    },
    TerminalCreated {
        terminal_id: String,
        command: Vec<String>,
        cwd: String,
        env: BTreeMap<String, String>,
        decided_by: String,
    },
    TerminalExited {
        terminal_id: String,
        exit_code: Option<i32>,
        signal: Option<String>,
    },
    TerminalRefused {
        command: Vec<String>,
        reason: String,
        decided_by: Option<String>,
    },
    CheckpointCreated {
        checkpoint_id: CheckpointId,
        name: String,
        bytes: usize,
        #[serde(skip_serializing_if = "Option::is_none")]
        by: By,
    },
    AgentUpdate {
        update: Box<RawValue>,
    },
    /// One of the others, whose JSON had a secret in it.
    Redacted(RedactedBody),
}

/// An event without the secret that was in it. Its JSON is the data alone.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct RedactedBody {
    #[serde(skip)]
    pub kind: &'static str,
    pub data: Box<RawValue>,
}

/// Where a session was before it was imported, in the words of whoever exported it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ImportedFrom {
    pub session_id: SessionId,
    pub workspace: String,
    pub agent: String,
    /// When it was imported. All else in its log has the time at which it happened.
    pub at: Timestamp,
}

/// Why a process went away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ExitReason {
    Idle,
    Evicted,
    Crash,
    Archive,
    Shutdown,
    Timeout,
    Limit,
    Policy,
    Auth,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DeltaKind {
    Text,
    Thought,
}

/// Sent to a subscriber whose cursor lies beyond the head; never stored.
pub const LOG_RESET: &str = "log.reset";
/// Sent to a subscriber before it meets the first hole that compaction left; never stored.
pub const LOG_COMPACTED: &str = "log.compacted";

impl EventBody {
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::SessionCreated { .. } => "session.created",
            Self::SessionStatus { .. } => "session.status",
            Self::SessionUpdated { .. } => "session.updated",
            Self::ProcessStarting { .. } => "process.starting",
            Self::ProcessReady { .. } => "process.ready",
            Self::ProcessWaiting { .. } => "process.waiting",
            Self::ProcessExited { .. } => "process.exited",
            Self::TurnQueued { .. } => "turn.queued",
            Self::TurnStarted {} => "turn.started",
            Self::TurnWaiting { .. } => "turn.waiting",
            Self::TurnCompleted { .. } => "turn.completed",
            Self::MessageDelta { .. } => "message.delta",
            Self::MessageCreated(_) => "message.created",
            Self::ToolStarted { .. } => "tool.started",
            Self::ToolUpdated { .. } => "tool.updated",
            Self::ToolCompleted { .. } => "tool.completed",
            Self::PlanUpdated { .. } => "plan.updated",
            Self::UsageUpdated { .. } => "usage.updated",
            Self::PermissionRequested { .. } => "permission.requested",
            Self::PermissionResolved { .. } => "permission.resolved",
            Self::PermissionRevoked { .. } => "permission.revoked",
            Self::FileRead { .. } => "file.read",
            Self::FileWritten { .. } => "file.written",
            Self::FileRefused { .. } => "file.refused",
            Self::TerminalCreated { .. } => "terminal.created",
            Self::TerminalExited { .. } => "terminal.exited",
            Self::TerminalRefused { .. } => "terminal.refused",
            Self::CheckpointCreated { .. } => "checkpoint.created",
            Self::AgentUpdate { .. } => "agent.update",
            Self::Redacted(redacted) => redacted.kind,
        }
    }

    /// Whether losing this event to a power cut loses nothing that was promised: its text comes again, whole, in a
    /// message. Batches of nothing else need not wait for the disk.
    pub const fn is_delta(&self) -> bool {
        matches!(self, Self::MessageDelta { .. })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::{ErrorCode, Peer};

    fn raw(json: &str) -> Box<RawValue> {
        RawValue::from_string(json.to_owned()).unwrap()
    }

    /// A new type does not compile until it is added here; then add it to the samples, and to the documentation.
    fn is_in_samples(event: &EventBody) {
        match event {
            EventBody::SessionCreated { .. }
            | EventBody::SessionStatus { .. }
            | EventBody::SessionUpdated { .. }
            | EventBody::ProcessStarting { .. }
            | EventBody::ProcessReady { .. }
            | EventBody::ProcessWaiting { .. }
            | EventBody::ProcessExited { .. }
            | EventBody::TurnQueued { .. }
            | EventBody::TurnStarted {}
            | EventBody::TurnWaiting { .. }
            | EventBody::TurnCompleted { .. }
            | EventBody::MessageDelta { .. }
            | EventBody::MessageCreated(_)
            | EventBody::ToolStarted { .. }
            | EventBody::ToolUpdated { .. }
            | EventBody::ToolCompleted { .. }
            | EventBody::PlanUpdated { .. }
            | EventBody::UsageUpdated { .. }
            | EventBody::PermissionRequested { .. }
            | EventBody::PermissionResolved { .. }
            | EventBody::PermissionRevoked { .. }
            | EventBody::FileRead { .. }
            | EventBody::FileWritten { .. }
            | EventBody::FileRefused { .. }
            | EventBody::TerminalCreated { .. }
            | EventBody::TerminalExited { .. }
            | EventBody::TerminalRefused { .. }
            | EventBody::CheckpointCreated { .. }
            | EventBody::AgentUpdate { .. } => {}
            // It is one of those again.
            EventBody::Redacted(_) => {}
        }
    }

    fn somebody() -> Arc<Peer> {
        Arc::new(Peer { uid: 1000, pid: Some(1), program: Some("acpd".into()) })
    }

    /// One of each.
    fn samples() -> Vec<EventBody> {
        let mut samples = samples_of_sessions();
        samples.extend([
            EventBody::ProcessStarting { agent: "demo".into(), workspace: "/home/me/project".into() },
            EventBody::ProcessReady {
                pid: 1,
                agent_session_id: "s".into(),
                protocol_version: 1,
                agent_info: None,
                context_restored: ContextRestored::Fresh,
                sandbox: SandboxLevel::WritesOnly,
            },
            EventBody::ProcessWaiting {
                phase: "session/new",
                seconds: 10,
                servers: vec!["files".into()],
                message: "m".into(),
            },
            EventBody::ProcessExited {
                pid: Some(1),
                reason: ExitReason::Crash,
                code: Some(1),
                signal: None,
                stderr: String::new(),
                error: None,
            },
            EventBody::TurnQueued { position: 0, by: Some(somebody()) },
            EventBody::TurnStarted {},
            EventBody::TurnWaiting { seconds: 30, message: "m".into() },
            EventBody::TurnCompleted {
                status: TurnStatus::Completed,
                stop_reason: None,
                error: None,
                usage: Some(Usage::default()),
                by: Some(somebody()),
            },
            EventBody::MessageDelta {
                message_id: MessageId::new(),
                role: Role::Agent,
                kind: DeltaKind::Text,
                text: "hi".into(),
            },
            EventBody::MessageCreated(raw(
                r#"{"id":"","sessionId":"","sequence":1,"turnId":null,"role":"agent","content":{},"toolCallId":null,"model":"m","by":{},"createdAt":""}"#,
            )),
            EventBody::ToolStarted { tool_call_id: "c".into(), update: raw("{}") },
            EventBody::ToolUpdated { tool_call_id: "c".into(), update: raw("{}") },
            EventBody::ToolCompleted { tool_call_id: "c".into(), status: "completed".into(), update: raw("{}") },
            EventBody::PlanUpdated { update: raw("{}") },
            EventBody::UsageUpdated { update: raw("{}") },
            permission_requested(),
            permission_resolved(),
            EventBody::PermissionRevoked { rule_id: RuleId::new(), by: Some(somebody()) },
        ]);
        samples.extend(samples_of_services());
        samples.push(EventBody::CheckpointCreated {
            checkpoint_id: CheckpointId::new(),
            name: "half".into(),
            bytes: 2,
            by: Some(somebody()),
        });
        samples.push(EventBody::AgentUpdate { update: raw("{}") });
        samples
    }

    fn samples_of_sessions() -> Vec<EventBody> {
        vec![
            EventBody::SessionCreated {
                workspace_id: WorkspaceId::new(),
                workspace: "/home/me/project".into(),
                agent: "demo".into(),
                title: "hello".into(),
                context: SessionContext::default(),
                imported_from: Some(Box::new(ImportedFrom {
                    session_id: SessionId::new(),
                    workspace: "/home/me/project".into(),
                    agent: "demo".into(),
                    at: Timestamp::now(),
                })),
                by: Some(somebody()),
            },
            EventBody::SessionStatus {
                from: SessionStatus::Active,
                to: SessionStatus::Archived,
                reason: "archive",
                by: Some(somebody()),
            },
            EventBody::SessionUpdated {
                title: Some("t".into()),
                tags: Some(vec![]),
                limits: Some(SessionLimits::default()),
                context: Some(SessionContext::default()),
                permissions: Some(Policy::of(crate::model::PermissionMode::Ask)),
                keep: Some(true),
                mode: Some("plan".into()),
                model: Some("m".into()),
                config_options: Some(BTreeMap::new()),
                commands: Some(vec![]),
                by: Some(somebody()),
            },
        ]
    }

    /// Of what acpd does for an agent.
    fn samples_of_services() -> Vec<EventBody> {
        vec![
            EventBody::FileRead { path: "a".into(), bytes: 1, line: None, limit: None, decided_by: "policy".into() },
            EventBody::FileWritten { path: "a".into(), bytes: 1, is_new: true, decided_by: "policy".into() },
            EventBody::FileRefused { path: "a".into(), operation: "write", reason: "r".into(), decided_by: None },
            EventBody::TerminalCreated {
                terminal_id: "t".into(),
                command: vec!["cargo".into()],
                cwd: String::new(),
                env: BTreeMap::from([("CI".into(), "1".into())]),
                decided_by: "policy".into(),
            },
            EventBody::TerminalExited { terminal_id: "t".into(), exit_code: Some(0), signal: None },
            EventBody::TerminalRefused { command: vec!["rm".into()], reason: "r".into(), decided_by: None },
        ]
    }

    fn permission_requested() -> EventBody {
        EventBody::PermissionRequested {
            permission_id: PermissionId::new(),
            kind: PermissionKind::Tool,
            tool_call_id: Some("c".into()),
            title: "rm x".into(),
            action: Action::default(),
            options: vec![],
            request: raw("{}"),
            expires_at: Some(Timestamp::now()),
        }
    }

    fn permission_resolved() -> EventBody {
        EventBody::PermissionResolved {
            permission_id: PermissionId::new(),
            tool_call_id: Some("c".into()),
            outcome: Outcome::Selected,
            decision: Some(Decision::Allow),
            option_id: Some("once".into()),
            always: false,
            decided_by: "timeout".into(),
            by: Decider::Timeout,
        }
    }

    /// The documentation has one section an event and one table row a field of its data: no more, no less, in the same
    /// order.
    #[test]
    fn the_documentation_describes_every_event_and_field() {
        let page = include_str!("../../docs/events.md");
        let mut documented: Vec<(String, Vec<String>)> = Vec::new();
        for line in page.lines() {
            if let Some(kind) = line.strip_prefix("## `").and_then(|rest| rest.strip_suffix('`')) {
                documented.push((kind.to_owned(), Vec::new()));
            } else if let Some(field) = line.strip_prefix("| `")
                && let Some((_, fields)) = documented.last_mut()
            {
                fields.push(field.split('`').next().unwrap().to_owned());
            }
        }
        let mut expected: Vec<(String, Vec<String>)> = samples()
            .iter()
            .inspect(|event| is_in_samples(event))
            .map(|event| {
                let data = serde_json::to_value(event).unwrap();
                let fields = data.as_object().expect("data is an object").keys().cloned().collect();
                (event.kind().to_owned(), fields)
            })
            .collect();
        expected.push((LOG_RESET.to_owned(), vec!["head".to_owned()]));
        expected.push((LOG_COMPACTED.to_owned(), vec!["completeFrom".to_owned()]));
        assert_eq!(documented, expected);
        for code in ErrorCode::ALL {
            assert!(page.contains(&format!("`{}`", code.as_str())), "{code:?} is not described");
        }
    }
}
