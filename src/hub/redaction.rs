//! The one gate to the store: replaces the secrets of a unit's owner in everything that is appended.
//!
//! acpd redacts what it records, not what agents say: it carries out an agent's request unchanged, because a file that the
//! agent writes may hold its own key. The match covers every operation: a new one does not compile without a decision.

use std::borrow::Cow;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::{RawValue, to_raw_value};

use crate::agent::Redactor;
use crate::model::event::RedactedBody;
use crate::model::permission::question::Permission;
use crate::model::permission::standing::StandingRule;
use crate::model::{Announced, By, EventBody};
use crate::store::{
    Catalogue, ChoicesChange, Imported, NewCheckpoint, NewMessage, NewObservation, NewSession, Op, SessionChange, Unit,
};

/// Takes every secret out of what a session has to say, and out of what others say of one. What else is in the catalogue
/// names directories and profiles, which hold none.
pub fn redact(redactor: &Redactor, unit: &mut Unit) {
    for change in &mut unit.catalogue {
        if let Catalogue::Observe(new) = change {
            observation(redactor, new);
        }
    }
    for (_, op) in &mut unit.ops {
        redact_op(redactor, op);
    }
}

fn redact_op(redactor: &Redactor, op: &mut Op) {
    match op {
        Op::Event { body, .. } => event(redactor, body),
        Op::Message(NewMessage { content, tool_call_id, model, by, .. }) => {
            raw(redactor, content);
            peer(redactor, by);
            texts(redactor, [tool_call_id, model].into_iter().flatten());
        }
        Op::CreateSession(new) => new_session(redactor, new),
        Op::Import(imported) => self::imported(redactor, imported),
        Op::ChangeSession(SessionChange { title, tags, limits: _, context, permissions: _, keep: _, by }) => {
            peer(redactor, by);
            texts(redactor, title);
            texts(redactor, tags.iter_mut().flatten());
            values(redactor, context);
        }
        // An agent that names its conversation by a secret is asked for one that it does not know, and gets the transcript.
        Op::SetAgentSession { agent_session_id, .. } => text(redactor, agent_session_id),
        Op::SetLastError(error) => text(redactor, &mut error.message),
        Op::FinishTurn { stop_reason, error, .. } => {
            texts(redactor, stop_reason);
            texts(redactor, error.iter_mut().map(|error| &mut error.message));
            texts(redactor, error.iter_mut().filter_map(|error| error.hint.as_mut()));
        }
        Op::SetChoices(change) => choices(redactor, change),
        Op::AskPermission(asked) => {
            let Permission { tool_call_id, title, action, options, request, .. } = &mut **asked;
            texts(redactor, tool_call_id);
            text(redactor, title);
            value(redactor, action);
            value(redactor, options);
            raw(redactor, request);
        }
        Op::ResolvePermission(resolved) => {
            texts(redactor, &mut resolved.tool_call_id);
            texts(redactor, &mut resolved.resolution.option_id);
        }
        Op::AddRule(rule) => standing(redactor, rule),
        Op::SetTurnContext { context, .. } => value(redactor, &mut **context),
        Op::AddCheckpoint(new) => {
            let NewCheckpoint { id: _, name, state, by } = &mut **new;
            text(redactor, name);
            raw(redactor, state);
            peer(redactor, by);
        }
        Op::SetOrigin(origin) => text(redactor, &mut origin.name),
        Op::SetStatus { by, .. }
        | Op::QueueTurn { by, .. }
        | Op::RequestCancel { by, .. }
        | Op::RemoveRule { by, .. } => peer(redactor, by),
        // Ids, numbers and words of ours.
        Op::SetContextRestored(_)
        | Op::SetProcess(_)
        | Op::ClearProcess
        | Op::StartTurn { .. }
        | Op::SetUsage(_)
        | Op::SetPaused(_)
        | Op::SetPromptAbilities(_)
        | Op::KeepMedia { .. }
        | Op::KeepForPrompt(_)
        | Op::ForgetWaiting(_)
        | Op::OweLinks(_)
        | Op::OweInstructions(_)
        | Op::Remember(_)
        | Op::SetWorkspaceIdentity(_)
        | Op::SetSandbox(_)
        | Op::Purge => {}
    }
}

fn imported(redactor: &Redactor, imported: &mut Imported) {
    let Imported { new, steps, observations, .. } = imported;
    new_session(redactor, new);
    for new in observations {
        observation(redactor, new);
    }
    for (_, step) in steps {
        redact_op(redactor, step);
    }
}

fn observation(redactor: &Redactor, new: &mut NewObservation) {
    raw(redactor, &mut new.content);
    peer(redactor, &mut new.by);
}

fn new_session(redactor: &Redactor, new: &mut NewSession) {
    // The workspace is the key that it is found by, and the profile has names only. MCP servers with a secret in them were
    // refused.
    let NewSession { title, tags, chosen, context, by, .. } = new;
    peer(redactor, by);
    text(redactor, title);
    texts(redactor, tags);
    value(redactor, chosen);
    value(redactor, context);
}

/// What a program calls itself is its own to choose.
fn peer(redactor: &Redactor, by: &mut By) {
    let Some(Cow::Owned(redacted)) =
        by.as_deref().and_then(|peer| peer.program.as_deref()).map(|name| redactor.text(name))
    else {
        return;
    };
    if let Some(peer) = by {
        Arc::make_mut(peer).program = Some(redacted);
    }
}

/// A rule for something with a secret in it holds until the daemon ends; what is kept of it matches nothing then.
fn standing(redactor: &Redactor, rule: &mut StandingRule) {
    let Ok(json) = to_raw_value(&rule.subject) else { return };
    let redacted = redactor.json(&json).and_then(|json| serde_json::from_str(json.get()).ok());
    if let Some(subject) = redacted {
        rule.subject = subject;
    }
}

fn choices(redactor: &Redactor, change: &mut ChoicesChange) {
    let ChoicesChange { announced, mode, model, chosen, config_options, commands, by } = change;
    peer(redactor, by);
    let Announced { modes, models, commands: known_commands, config_options: known_options } = announced;
    for json in [modes, models, known_commands, known_options].into_iter().flatten() {
        raw(redactor, json);
    }
    texts(redactor, [mode, model].into_iter().flatten());
    values(redactor, chosen);
    values(redactor, config_options);
    texts(redactor, commands.iter_mut().flatten());
}

/// Text goes by the thousand a second, so it is looked at as it is. Of the others the JSON is.
fn event(redactor: &Redactor, body: &mut EventBody) {
    if let EventBody::MessageDelta { text, .. } = body {
        return self::text(redactor, text);
    }
    // What has no JSON is not written either.
    let Ok(json) = to_raw_value(body) else { return };
    if let Some(data) = redactor.json(&json) {
        *body = EventBody::Redacted(RedactedBody { kind: body.kind(), data });
    }
}

fn text(redactor: &Redactor, text: &mut String) {
    if let Cow::Owned(redacted) = redactor.text(text) {
        *text = redacted;
    }
}

fn texts<'a>(redactor: &Redactor, texts: impl IntoIterator<Item = &'a mut String>) {
    for text in texts {
        self::text(redactor, text);
    }
}

fn raw(redactor: &Redactor, json: &mut Box<RawValue>) {
    if let Some(redacted) = redactor.json(json) {
        *json = redacted;
    }
}

fn values<'a, T: Serialize + DeserializeOwned + Default + 'a>(
    redactor: &Redactor,
    values: impl IntoIterator<Item = &'a mut T>,
) {
    for value in values {
        self::value(redactor, value);
    }
}

/// By way of its JSON. A value whose secret was part of its shape is as nobody set it.
fn value<T: Serialize + DeserializeOwned + Default>(redactor: &Redactor, value: &mut T) {
    let Ok(json) = to_raw_value(value) else { return };
    if let Some(redacted) = redactor.json(&json) {
        *value = serde_json::from_str(redacted.get()).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::agent::{Known, Secrets};
    use crate::model::{
        Chosen, Content, ErrorCode, LastError, MessageId, Peer, Role, SessionContext, SessionId, TurnError, TurnId,
        TurnStatus,
    };

    const SECRET: &str = "hunter2-\"hunter2\"";

    fn json(value: &serde_json::Value) -> Box<RawValue> {
        to_raw_value(value).unwrap()
    }

    #[test]
    fn no_operation_carries_a_secret_to_the_record() {
        let secrets = Arc::new(Secrets::default()).of(None);
        secrets.learn(Known::new("KEY", SECRET).into_iter().collect());
        let context = SessionContext {
            variables: BTreeMap::from([("x".to_owned(), SECRET.to_owned())]),
            ..SessionContext::default()
        };
        let chosen = Chosen { mode: Some(SECRET.to_owned()), ..Chosen::default() };
        let error = TurnError::new(ErrorCode::Protocol, format!("it says {SECRET}"));
        let update = json(&serde_json::json!({ "deep": [{ "text": SECRET }] }));
        let body = EventBody::ToolUpdated { tool_call_id: SECRET.to_owned(), update: update.clone() };
        let content = Content::Text { text: format!("a {SECRET} b"), partial: false };
        let message = NewMessage::new(MessageId::new(), None, Role::User, &content);
        let announced = Announced { modes: Some(update), ..Announced::default() };
        let choices = ChoicesChange { announced, chosen: Some(chosen), ..ChoicesChange::default() };
        let (turn, id) = (TurnId::new(), SECRET.to_owned());
        let change = SessionChange {
            title: Some(SECRET.to_owned()),
            tags: Some(vec![SECRET.to_owned()]),
            limits: None,
            context: Some(context.clone()),
            permissions: None,
            keep: None,
            by: Some(Arc::new(Peer { uid: 1, pid: None, program: Some(SECRET.to_owned()) })),
        };
        let (status, stop_reason) = (TurnStatus::Failed, Some(SECRET.to_owned()));
        let ops = vec![
            Op::Event { turn: None, body },
            Op::Message(message.of_tool_call(SECRET.to_owned()).by_model(Some(SECRET.to_owned()))),
            Op::ChangeSession(change),
            Op::SetAgentSession {
                agent_session_id: id,
                context_restored: crate::model::ContextRestored::Fresh,
                supports_resume: false,
            },
            Op::SetLastError(LastError::new(&error)),
            Op::FinishTurn { turn, status, stop_reason, error: Some(error), usage: None, at: None },
            Op::SetChoices(Box::new(choices)),
            Op::SetTurnContext { turn, context: Box::new(context) },
        ];
        let session = SessionId::new();
        let mut unit = Unit { catalogue: vec![], ops: ops.into_iter().map(|op| (session, op)).collect() };
        redact(&secrets.redactor().unwrap(), &mut unit);
        for (_, op) in &unit.ops {
            let shown = format!("{op:?}");
            assert!(!shown.contains("hunter2") && shown.contains("[redacted:KEY]"), "{shown}");
        }
        let Op::Event { body, .. } = &unit.ops[0].1 else { panic!() };
        assert_eq!(body.kind(), "tool.updated");
        let told = serde_json::to_string(body).unwrap();
        assert_eq!(told, r#"{"toolCallId":"[redacted:KEY]","update":{"deep":[{"text":"[redacted:KEY]"}]}}"#);
    }
}
