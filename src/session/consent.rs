//! Whether an agent may do what it is about to do: the policy judges, and what it does not answer waits for a person.
//!
//! Whatever needs consent comes here as a [`Deed`], with what is known of it as an [`Action`]. Every question is recorded,
//! also one that is answered at once, with the rule that answers it. A deed is carried out or refused once, after the
//! decision is committed.

use std::path::{Component, Path};

use bytes::Bytes;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::actor::SessionActor;
use super::files::{FileRead, FileWrite};
use super::grants::Shown;
use super::inbox::{Decided, Open, once};
use super::services::{Asked, CANCELLED};
use super::terminals::TerminalStart;
use crate::acp::{RpcError, outgoing};
use crate::model::permission::question::{
    Decider, Decision, OptionKind, Permission, PermissionKind, PermissionOption, PermissionStatus,
};
use crate::model::permission::{Action, CommandText, Located, Verdict, shown};
use crate::model::{PermissionId, Timestamp};
use crate::store::Op;

/// Characters of a question's title that are kept.
const TITLE_CHARS_MAX: usize = 500;
/// Bytes of an action's JSON that is stored whole.
const ACTION_BYTES_MAX: usize = 64 << 10;
/// Characters of each part of a larger one.
const PART_CHARS_MAX: usize = 2000;

/// What waits for consent.
pub(super) enum Deed {
    /// The agent does it itself, and asks first: it is told what was decided.
    Agents {
        id: Box<RawValue>,
        tool_call_id: String,
        title: String,
        tool: Option<String>,
        options: Vec<PermissionOption>,
        /// What it shows of the files that it changes, if it shows anything of them.
        shown: Option<Vec<Shown>>,
    },
    /// The agent wants to know something.
    Elicitation { id: Box<RawValue>, message: String },
    /// acpd gives it a file to read.
    Read(Box<FileRead>),
    /// acpd writes a file for it.
    Write(Box<FileWrite>),
    /// acpd runs a command for it.
    Terminal(Box<TerminalStart>),
}

/// What a person is told of a deed beside the action and the request.
pub(super) struct About {
    pub kind: PermissionKind,
    pub tool_call_id: Option<String>,
    pub title: String,
    /// What tells this tool from others, for an "always" that has neither files nor a command to go by.
    pub tool: Option<String>,
    pub options: Vec<PermissionOption>,
}

/// What was decided, as far as it concerns whoever asked.
pub(super) enum Told {
    Allowed { option: Option<String>, content: Option<Map<String, Value>> },
    Rejected { option: Option<String> },
    Cancelled,
}

impl About {
    /// Of what acpd is asked to do.
    fn of_acpd(kind: PermissionKind, title: String) -> Self {
        Self { kind, tool_call_id: None, title, tool: None, options: options_of_acpd() }
    }
}

/// The answers to what acpd is asked to do. Whoever asks has none of its own.
pub(super) fn options_of_acpd() -> Vec<PermissionOption> {
    let option = |id: &str, name: &str, decision| PermissionOption {
        option_id: id.to_owned(),
        name: name.to_owned(),
        kind: OptionKind::new(decision, false),
    };
    vec![option("allow", "Allow", Decision::Allow), option("reject", "Reject", Decision::Reject)]
}

impl Deed {
    fn about(&self) -> About {
        match self {
            Self::Agents { tool_call_id, title, tool, options, .. } => About {
                kind: PermissionKind::Tool,
                tool_call_id: Some(tool_call_id.clone()),
                title: title.clone(),
                tool: tool.clone(),
                options: options.clone(),
            },
            Self::Elicitation { message, .. } => About {
                kind: PermissionKind::Elicitation,
                tool_call_id: None,
                title: message.clone(),
                tool: None,
                options: Vec::new(),
            },
            Self::Read(read) => About::of_acpd(PermissionKind::File, read.title()),
            Self::Write(write) => About::of_acpd(PermissionKind::File, write.title()),
            Self::Terminal(start) => About::of_acpd(PermissionKind::Terminal, start.title()),
        }
    }

    /// Whether the agent does it itself.
    pub fn is_the_agents(&self) -> bool {
        matches!(self, Self::Agents { .. })
    }

    /// The id of the request that asks for it, in the agent's own JSON.
    pub fn request(&self) -> &str {
        match self {
            Self::Agents { id, .. } | Self::Elicitation { id, .. } => id.get(),
            Self::Read(_) | Self::Write(_) | Self::Terminal(_) => self.asked().map_or("", |asked| asked.id.get()),
        }
    }

    /// Who asked for what acpd does.
    fn asked(&self) -> Option<&Asked> {
        match self {
            Self::Agents { .. } | Self::Elicitation { .. } => None,
            Self::Read(read) => Some(&read.asked),
            Self::Write(write) => Some(&write.asked),
            Self::Terminal(start) => Some(&start.asked),
        }
    }

    /// What it holds in memory while it waits.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Agents { .. } | Self::Elicitation { .. } => 0,
            Self::Read(read) => read.content.len(),
            Self::Write(write) => write.content.len(),
            Self::Terminal(start) => start.bytes(),
        }
    }

    /// How the agent is told that nobody decides it any more.
    pub fn cancelled(&self) -> Bytes {
        match self {
            Self::Agents { id, .. } => outgoing::permission(id, None),
            Self::Elicitation { id, .. } => outgoing::elicitation(id, "cancel", None),
            Self::Read(read) => cancelled(&read.asked),
            Self::Write(write) => cancelled(&write.asked),
            Self::Terminal(start) => cancelled(&start.asked),
        }
    }
}

impl SessionActor {
    /// Has a deed judged, and does what follows. `question` is what a person is shown.
    pub(super) fn seek_consent(&mut self, action: &Action, question: Box<RawValue>, deed: Deed) {
        // A look at the disk may have come between: the turn is the one that it was asked in.
        let turn = deed.asked().map_or_else(|| self.running_turn(), |asked| asked.turn);
        let About { kind, tool_call_id, mut title, tool, options } = deed.about();
        // Before it is cut: half a secret is not recognized any more.
        self.shared.hub.secrets(self.owner_uid).redact(&mut title);
        let title: String = title.chars().take(TITLE_CHARS_MAX).collect();
        let located = self.located(action, tool);
        let mut verdict = self.judged(&located, &deed);
        if let Verdict::Ask = verdict
            && let Some(permission) = self.take_granted_deed(&located, &deed)
        {
            verdict = Verdict::Allow { by: format!("permission {permission}") };
        }
        let timeout = self.shared.config().permissions.timeout;
        let asked_at = Timestamp::now();
        let is_asked = matches!(verdict, Verdict::Ask);
        let expires_at = timeout.filter(|_| is_asked).and_then(|timeout| asked_at.after(timeout));
        let id = PermissionId::new();
        self.record(Op::AskPermission(Box::new(Permission {
            id,
            session: self.id,
            turn,
            kind,
            tool_call_id: tool_call_id.clone(),
            title: title.clone(),
            action: bounded(action, &self.workspace),
            options: options.clone(),
            request: question,
            status: PermissionStatus::Open,
            asked_at,
            expires_at,
            resolution: None,
        })));
        let expires_at = expires_at.and(timeout).map(|timeout| Instant::now() + timeout);
        let process = self.services.process();
        let open = Open { turn, kind, tool_call_id, title, options, located, deed, expires_at, process };
        // A policy tells agents "once" and nothing else. Where that is not offered, a person decides.
        let can_allow = !open.deed.is_the_agents() || once(&open.options, Decision::Allow).is_some();
        let (decision, rule) = match verdict {
            Verdict::Allow { by } if can_allow => (Decision::Allow, by),
            Verdict::Deny { by } => (Decision::Reject, by),
            Verdict::Ask | Verdict::Allow { .. } => match self.inbox.has_room(&open.deed) {
                Ok(()) => {
                    self.inbox.add(id, open);
                    return self.withdraw_if_ending(id);
                }
                Err(limit) => (Decision::Reject, format!("limit: {limit}")),
            },
        };
        let decided = Decided::new(Some(decision), &open.options, Decider::Policy { rule });
        self.settle_question(id, open, decided, None);
    }

    /// What the policy says of it as it is now.
    pub(super) fn judged(&self, located: &Located, deed: &Deed) -> Verdict {
        match deed {
            Deed::Elicitation { .. } => self.permissions.judge_question(),
            Deed::Agents { .. } | Deed::Read(_) | Deed::Write(_) | Deed::Terminal(_) => self.permissions.judge(located),
        }
    }

    /// The permission that covers a deed of acpd's, because the agent has asked for the same before.
    fn take_granted_deed(&mut self, located: &Located, deed: &Deed) -> Option<PermissionId> {
        match deed {
            Deed::Agents { .. } | Deed::Elicitation { .. } => None,
            Deed::Write(write) => self.take_grant(located, Some(&write.content)),
            Deed::Read(_) | Deed::Terminal(_) => self.take_grant(located, None),
        }
    }

    /// Carries a deed out, or refuses it: the decision is committed.
    pub(super) fn carry_out(&mut self, deed: Deed, told: Told, by: &str) {
        // Whoever asked does not wait for it any more, and nothing is begun for that.
        if deed.asked().is_some_and(|asked| self.is_too_late(asked)) {
            return self.send(deed.cancelled());
        }
        match (deed, told) {
            (Deed::Agents { id, .. }, Told::Allowed { option, .. } | Told::Rejected { option, .. }) => {
                self.send(outgoing::permission(&id, option.as_deref()));
            }
            (Deed::Elicitation { id, .. }, Told::Allowed { content, .. }) => {
                self.send(outgoing::elicitation(&id, "accept", content.as_ref()));
            }
            (Deed::Elicitation { id, .. }, Told::Rejected { .. }) => {
                self.send(outgoing::elicitation(&id, "decline", None));
            }
            (Deed::Read(read), Told::Allowed { .. }) => self.perform_read(*read, by),
            (Deed::Read(read), Told::Rejected { .. }) => self.refuse_read(&read, by),
            (Deed::Write(write), Told::Allowed { .. }) => self.perform_write(write, by),
            (Deed::Write(write), Told::Rejected { .. }) => self.refuse_write(&write, by),
            (Deed::Terminal(start), Told::Allowed { .. }) => self.perform_terminal(start, by),
            (Deed::Terminal(start), Told::Rejected { .. }) => self.refuse_terminal_start(&start, by),
            (deed, Told::Cancelled) => self.send(deed.cancelled()),
        }
    }
}

fn cancelled(asked: &Asked) -> Bytes {
    outgoing::failure(&asked.id, RpcError::CANCELLED, CANCELLED)
}

/// The action as people see it: with paths from the workspace on, if they are in it. Of one that is too large they see the beginning
/// of each part.
fn bounded(action: &Action, workspace: &Path) -> Action {
    let mut action = action.clone();
    action.cwd.take_if(|cwd| Path::new(cwd) == workspace);
    action.paths.iter_mut().chain(&mut action.cwd).for_each(|path| {
        let is_plain = |component| matches!(component, Component::Normal(_));
        let below =
            Path::new(path.as_str()).strip_prefix(workspace).ok().filter(|path| path.components().all(is_plain));
        if let Some(below) = below.and_then(Path::to_str).filter(|below| !below.is_empty()) {
            *path = below.to_owned();
        }
    });
    if serde_json::to_vec(&action).is_ok_and(|json| json.len() <= ACTION_BYTES_MAX) {
        return action;
    }
    let cut = |text: String| match text.char_indices().nth(PART_CHARS_MAX) {
        Some((end, _)) => format!("{}… [{} bytes]", &text[..end], text.len()),
        None => text,
    };
    let command = action.command.as_ref().map(|command| CommandText::Shell(cut(shown::command_text(command))));
    let env = Some(cut(format!("{:?}", action.env))).filter(|_| !action.env.is_empty());
    let paths = Some(cut(action.paths.join(", "))).filter(|_| !action.paths.is_empty()).into_iter().collect();
    let env = env.map(|env| ("…".to_owned(), env)).into_iter().collect();
    Action { kind: action.kind, paths, command, cwd: action.cwd.clone().map(cut), env, ..Action::default() }
}
