//! What a notification tells: gathered from the record when it happens, and handed to the command three ways, as arguments,
//! as variables and as JSON.
//!
//! Titles, questions and answers are words of agents and of people: data. They are put on one line, without what acts on a
//! terminal, and bounded; and none of them makes an argument an option.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;

use crate::agent::fill;
use crate::config::{Notification, Occasion, PLACEHOLDERS};
use crate::model::peer::is_invisible;
use crate::model::permission::question::PermissionStatus;
use crate::model::permission::shown;
use crate::model::{Content, PermissionId, Role, SessionId, SessionStatus, Timestamp, TurnError, TurnId, TurnStatus};
use crate::store::{Store, StoreError, StoredEvent};

const TITLE_CHARS_MAX: usize = 200;
const SUMMARY_CHARS_MAX: usize = 500;
/// As long as a path can be.
const PATH_CHARS_MAX: usize = 4096;
/// The last words of a turn are looked for among so many messages: what an agent says comes after what it does.
const MESSAGES_MAX: i64 = 8;
/// What begins so names a variable that tells of the event.
const VARIABLE_PREFIX: &str = "ACPD_";

/// One thing that happened.
#[derive(Clone, Debug)]
pub struct Facts {
    pub occasion: Occasion,
    pub session: SessionId,
    /// Whose session it is, when that is not the daemon's own user.
    pub owner: Option<u32>,
    pub title: String,
    pub agent: String,
    pub workspace: String,
    pub tags: Vec<String>,
    pub turn: Option<TurnId>,
    pub permission: Option<PermissionId>,
    /// How a turn ended; `open` of a question, `error` of a session.
    pub status: &'static str,
    /// How long the turn took.
    pub took: Option<Duration>,
    pub summary: String,
    /// Its place in the log of all sessions.
    pub event_id: i64,
    pub at: Timestamp,
}

#[derive(Deserialize)]
struct TurnCompleted {
    status: TurnStatus,
    error: Option<TurnError>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PermissionRequested {
    permission_id: PermissionId,
}

#[derive(Deserialize)]
struct StatusChanged {
    to: SessionStatus,
    reason: String,
}

/// What is known of an event by itself.
struct Told {
    status: &'static str,
    permission: Option<PermissionId>,
    took: Option<Duration>,
    summary: String,
}

/// What an event of the log may be to a notification. Of the changes of a status only one is.
pub fn occasion(kind: &str) -> Option<Occasion> {
    match kind {
        "turn.completed" => Some(Occasion::TurnCompleted),
        "permission.requested" => Some(Occasion::PermissionRequested),
        "session.status" => Some(Occasion::SessionFailed),
        _ => None,
    }
}

impl Facts {
    /// What there is to tell of an event; nothing, when there is nobody to tell any more, or no need to.
    pub async fn gather(store: &Store, occasion: Occasion, event: &StoredEvent) -> Result<Option<Self>, StoreError> {
        // What happened elsewhere, maybe long ago, is no news.
        let imported_at = store.imported_at(event.session).await?;
        if imported_at.is_some_and(|imported_at| event.created_at < imported_at) {
            return Ok(None);
        }
        let told = match occasion {
            Occasion::TurnCompleted => turn_completed(store, event).await?,
            Occasion::PermissionRequested => permission_requested(store, event).await?,
            Occasion::SessionFailed => session_failed(event),
        };
        let Some(Told { status, permission, took, summary }) = told else { return Ok(None) };
        let Some(session) = store.session(event.session).await? else { return Ok(None) };
        let last_error = session.last_error.filter(|_| occasion == Occasion::SessionFailed);
        let summary = last_error.map_or(summary, |error| error.message);
        Ok(Some(Self {
            occasion,
            session: event.session,
            owner: session.owner_uid,
            title: one_line(&session.title, TITLE_CHARS_MAX),
            agent: session.profile.slug,
            workspace: one_line(&session.workspace, PATH_CHARS_MAX),
            tags: session.tags,
            turn: event.turn,
            permission,
            status,
            took,
            summary: one_line(&summary, SUMMARY_CHARS_MAX),
            event_id: event.id,
            at: event.created_at,
        }))
    }

    /// Whether a notification wants to tell of this.
    pub fn concern(&self, notification: &Notification) -> bool {
        let is_turn = self.occasion == Occasion::TurnCompleted;
        let has_status = notification.statuses.iter().any(|status| status.as_str() == self.status);
        let took_long = notification.after.is_none_or(|after| self.took.is_some_and(|took| took >= after));
        let has_tag = notification.tags.iter().any(|tag| self.tags.contains(tag));
        notification.on.contains(&self.occasion)
            && (!is_turn || ((notification.statuses.is_empty() || has_status) && took_long))
            && (notification.agents.is_empty() || notification.agents.contains(&self.agent))
            && (notification.tags.is_empty() || has_tag)
    }

    /// The command's arguments. What was filled in does not make an option of one: a blank comes before its dash.
    pub fn arguments(&self, notification: &Notification) -> Vec<String> {
        let values = self.values(notification);
        let names = PLACEHOLDERS.map(|name| format!("{{{name}}}"));
        let places: Vec<(&str, String)> = names.iter().map(String::as_str).zip(values).collect();
        let argument = |template: &String| {
            let filled = fill(template, &places);
            let became_option = filled.starts_with('-') && !template.starts_with('-');
            if became_option { format!(" {filled}") } else { filled }
        };
        notification.args.iter().map(argument).collect()
    }

    /// The same as variables: `ACPD_EVENT`, `ACPD_TITLE`, …
    pub fn variables(&self, notification: &Notification) -> BTreeMap<String, String> {
        let name = |placeholder: &str| match placeholder {
            // Without more, the session's is the mark of what an agent has started.
            "session" | "turn" | "permission" => format!("{VARIABLE_PREFIX}{}_ID", placeholder.to_uppercase()),
            placeholder => format!("{VARIABLE_PREFIX}{}", placeholder.to_uppercase()),
        };
        PLACEHOLDERS.into_iter().map(name).zip(self.values(notification)).collect()
    }

    /// And as JSON, on one line.
    pub fn json(&self, notification: &Notification) -> String {
        let facts = json!({
            "notification": notification.name,
            "event": self.occasion.as_str(),
            "eventId": self.event_id,
            "sessionId": self.session.to_string(),
            "title": self.title,
            "agent": self.agent,
            "workspace": self.workspace,
            "tags": self.tags,
            "turnId": self.turn.map(|turn| turn.to_string()),
            "permissionId": self.permission.map(|permission| permission.to_string()),
            "status": self.status,
            "seconds": self.took.map(|took| took.as_secs()),
            "summary": self.summary,
            "createdAt": self.at,
        });
        format!("{facts}\n")
    }

    /// In the order of [`PLACEHOLDERS`]; what there is not is empty.
    fn values(&self, notification: &Notification) -> [String; PLACEHOLDERS.len()] {
        [
            self.occasion.as_str().to_owned(),
            self.session.to_string(),
            self.title.clone(),
            self.agent.clone(),
            self.workspace.clone(),
            self.turn.map(|turn| turn.to_string()).unwrap_or_default(),
            self.permission.map(|permission| permission.to_string()).unwrap_or_default(),
            self.status.to_owned(),
            self.took.map(|took| took.as_secs().to_string()).unwrap_or_default(),
            self.summary.clone(),
            notification.name.clone(),
        ]
    }
}

async fn turn_completed(store: &Store, event: &StoredEvent) -> Result<Option<Told>, StoreError> {
    let (Some(TurnCompleted { status, error }), Some(id)) = (data(event), event.turn) else { return Ok(None) };
    let turn = store.turn(event.session, id).await?;
    let took = turn.and_then(|turn| Some(turn.finished_at?.since(turn.started_at?)));
    let summary = match error {
        Some(error) => error.message,
        None => last_words(store, event.session, id).await?.unwrap_or_else(|| format!("the turn is {status}")),
    };
    Ok(Some(Told { status: status.as_str(), permission: None, took, summary }))
}

/// What the agent said last in a turn.
async fn last_words(store: &Store, session: SessionId, turn: TurnId) -> Result<Option<String>, StoreError> {
    let messages = store.last_messages(session, MESSAGES_MAX).await?;
    let of_turn = messages.iter().rev().filter(|message| message.turn_id == Some(turn) && message.role == Role::Agent);
    let text = |content: Content| match content {
        Content::Text { text, .. } => Some(text),
        _ => None,
    };
    Ok(of_turn.filter_map(|message| serde_json::from_str(message.content.get()).ok()).find_map(text))
}

/// One that the policy has answered, or somebody who was quicker, needs nobody any more.
async fn permission_requested(store: &Store, event: &StoredEvent) -> Result<Option<Told>, StoreError> {
    let Some(PermissionRequested { permission_id }) = data(event) else { return Ok(None) };
    let permission = store.permission(permission_id).await?;
    let open = permission.filter(|permission| permission.status == PermissionStatus::Open);
    let summary = open.map(|permission| shown::question(&permission.title, &permission.action));
    Ok(summary.map(|summary| Told { status: "open", permission: Some(permission_id), took: None, summary }))
}

fn session_failed(event: &StoredEvent) -> Option<Told> {
    let StatusChanged { to, reason } = data(event)?;
    let status = SessionStatus::Error;
    (to == status).then(|| Told { status: status.as_str(), permission: None, took: None, summary: reason })
}

/// What of an event's data is looked at. All of it is acpd's own, so what does not read so is damaged.
fn data<'a, T: Deserialize<'a>>(event: &'a StoredEvent) -> Option<T> {
    let read = serde_json::from_str(event.data.get());
    read.inspect_err(|error| tracing::error!(event = event.id, %error, "cannot parse an event for notifications")).ok()
}

/// A text on one line, with one blank where there were any, and its beginning when it is too long.
pub fn one_line(text: &str, chars_max: usize) -> String {
    let words = text.split_whitespace().map(|word| word.chars().filter(|c| !is_invisible(*c)).collect::<String>());
    // No more is looked at than can be shown.
    let (mut line, mut count) = (String::new(), 0);
    for word in words.filter(|word| !word.is_empty()) {
        if count > 0 {
            line.push(' ');
            count += 1;
        }
        line.push_str(&word);
        count += word.chars().count();
        if count > chars_max {
            let kept: String = line.chars().take(chars_max.saturating_sub(1)).collect();
            return format!("{}…", kept.trim_end());
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::config::Config;

    fn facts() -> Facts {
        Facts {
            occasion: Occasion::TurnCompleted,
            session: SessionId::new(),
            owner: None,
            title: "-rf {summary} $(x)".to_owned(),
            agent: "demo".to_owned(),
            workspace: "/w".to_owned(),
            tags: vec!["work".to_owned()],
            turn: Some(TurnId::new()),
            permission: None,
            status: "failed",
            took: Some(Duration::from_millis(30_500)),
            summary: "it broke".to_owned(),
            event_id: 7,
            at: Timestamp::from_millis(0),
        }
    }

    fn notification(keys: &str) -> Notification {
        let text = format!("[notifications.n]\ncommand = \"x\"\n{keys}");
        let config = Config::read(&text, "config.toml", &[].into()).unwrap();
        (*config.notifications.commands["n"]).clone()
    }

    #[test]
    fn what_is_filled_in_is_data() {
        let facts = facts();
        let mine = notification(
            "on = [\"turn.completed\"]\nargs = [\"{title}\", \"--body={summary}\", \"{\\\"id\\\": {seconds}}\", \"{permission}\"]",
        );
        let arguments = facts.arguments(&mine);
        assert_eq!(arguments, [" -rf {summary} $(x)", "--body=it broke", "{\"id\": 30}", ""]);
        let variables = facts.variables(&mine);
        assert_eq!((&*variables["ACPD_TITLE"], &*variables["ACPD_NOTIFICATION"]), ("-rf {summary} $(x)", "n"));
        assert_eq!(variables["ACPD_SESSION_ID"], facts.session.to_string());
        assert!(!variables.contains_key("ACPD_SESSION"), "that is the mark of an agent's family");
        let json: serde_json::Value = serde_json::from_str(&facts.json(&mine)).unwrap();
        assert_eq!((&json["seconds"], &json["permissionId"]), (&json!(30), &json!(null)));
    }

    #[test]
    fn filters_narrow() {
        let facts = facts();
        for (keys, concerned) in [
            ("on = [\"turn.completed\"]", true),
            ("on = [\"permission.requested\", \"session.failed\"]", false),
            ("on = [\"turn.completed\"]\nstatuses = [\"failed\", \"interrupted\"]", true),
            ("on = [\"turn.completed\"]\nstatuses = [\"completed\"]", false),
            ("on = [\"turn.completed\"]\nafter = \"30s\"", true),
            ("on = [\"turn.completed\"]\nafter = \"31s\"", false),
            ("on = [\"turn.completed\"]\nagents = [\"demo\"]", true),
            ("on = [\"turn.completed\"]\nagents = [\"gemini\"]", false),
            ("on = [\"turn.completed\"]\ntags = [\"home\", \"work\"]", true),
            ("on = [\"turn.completed\"]\ntags = [\"home\"]", false),
        ] {
            assert_eq!(facts.concern(&notification(keys)), concerned, "{keys}");
        }
        let question = Facts { occasion: Occasion::PermissionRequested, status: "open", took: None, ..facts };
        let both = "on = [\"turn.completed\", \"permission.requested\"]\nstatuses = [\"failed\"]\nafter = \"9h\"";
        assert!(question.concern(&notification(both)), "those are of turns");
    }

    proptest! {
        #[test]
        fn a_line_is_one_line_and_bounded(text in any::<String>(), chars_max in 1usize..50) {
            let line = one_line(&text, chars_max);
            prop_assert!(line.chars().count() <= chars_max);
            prop_assert!(!line.chars().any(is_invisible) && line.trim() == line);
        }
    }
}
