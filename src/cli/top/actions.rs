//! What keys ask of the daemon, and what came of it.

use hyper::StatusCode;
use serde_json::value::RawValue;

use crate::cli::account;
use crate::cli::connection::Daemon;
use crate::cli::error::ClientError;
use crate::cli::question::{verdict, what};
use crate::cli::text::{cut_end, one_line, short_id};
use crate::control::wire::permissions::{AnswerPermission, ElicitationAction, Permission, PermissionList};
use crate::control::wire::{Cancel, CancelAccepted};
use crate::model::error::chain;
use crate::model::permission::question::{Decider, Decision};
use crate::model::{PermissionId, SessionId, TurnId};

use super::model::Deed;
use super::question::Question;

/// Questions of one session that are looked at for the oldest. It has not so many.
const QUESTIONS_MAX: usize = 100;
/// Of who has answered: a rule may have a long name.
const DECIDER_COLUMNS: usize = 40;

/// What became of a deed.
#[derive(Debug)]
pub enum Done {
    Said(String),
    Asked(Box<Question>),
    /// What a question was answered with and by whom, when it was.
    Checked {
        question: PermissionId,
        answer: Option<String>,
    },
    Failed {
        message: String,
        hint: String,
    },
}

impl Done {
    fn failed(error: &ClientError) -> Self {
        Self::Failed {
            message: with_short_ids(&one_line(&chain(error))),
            hint: with_short_ids(&one_line(error.hint())),
        }
    }
}

pub async fn perform(daemon: &Daemon, deed: Deed) -> Done {
    let outcome = match deed {
        Deed::Cancel { session, turn } => cancel(daemon, session, turn).await,
        Deed::FindQuestion { session } => find_question(daemon, session).await,
        Deed::CheckQuestion { question } => return check_question(daemon, question).await,
        Deed::Answer { question, decision, always } => answer(daemon, &question, decision, always).await,
        Deed::Resume { session } => {
            change(daemon, session, "resume").await.map(|()| Done::Said("session resumed".to_owned()))
        }
        Deed::Archive { session } => {
            let said = format!("session archived; `acpd messages {}` shows its messages", short_id(session));
            change(daemon, session, "archive").await.map(|()| Done::Said(said))
        }
    };
    outcome.unwrap_or_else(|error| Done::failed(&error))
}

async fn change(daemon: &Daemon, session: SessionId, verb: &str) -> Result<(), ClientError> {
    let path = format!("/v1/sessions/{session}/{verb}");
    daemon.post::<Box<RawValue>>(&path, &serde_json::json!({})).await.map(drop)
}

async fn cancel(daemon: &Daemon, session: SessionId, turn: Option<TurnId>) -> Result<Done, ClientError> {
    // By its id: a turn that has ended meanwhile is not the next one.
    let body = Cancel { turn_id: turn, queued: false };
    match daemon.post::<CancelAccepted>(&format!("/v1/sessions/{session}/cancel"), &body).await {
        Ok(_) => Ok(Done::Said("cancelling the turn".to_owned())),
        Err(ClientError::Api { status: StatusCode::CONFLICT, .. }) => {
            Ok(Done::Said("the turn has already ended".to_owned()))
        }
        Err(error) => Err(error),
    }
}

async fn find_question(daemon: &Daemon, session: SessionId) -> Result<Done, ClientError> {
    let path = format!("/v1/sessions/{session}/permissions?limit={QUESTIONS_MAX}");
    let list: PermissionList = daemon.get(&path).await?;
    // Ids sort by their age.
    let oldest = list.permissions.iter().min_by_key(|permission| permission.id);
    Ok(match oldest {
        Some(permission) => Done::Asked(Box::new(Question::of(permission))),
        None => Done::Said("no permission request is open".to_owned()),
    })
}

/// What cannot be asked for now is asked for with the next list.
async fn check_question(daemon: &Daemon, question: PermissionId) -> Done {
    let permission: Option<Permission> = daemon.get(&format!("/v1/permissions/{question}")).await.ok();
    Done::Checked { question, answer: permission.and_then(|permission| answered_meanwhile(&permission)) }
}

/// Who has answered it and how, which comes first: what was asked may be longer than the screen is wide.
fn answered_meanwhile(permission: &Permission) -> Option<String> {
    let resolution = permission.resolution.as_ref()?;
    let by = cut_end(&one_line(&account::decided_by(&resolution.by)), DECIDER_COLUMNS);
    let how = match resolution.by {
        Decider::Person(_) | Decider::Policy { .. } => format!("already answered by {by} ({})", verdict(resolution)),
        Decider::Timeout | Decider::Cancelled { .. } => format!("no longer open ({by})"),
    };
    Some(format!("{how}: {}", what(permission)))
}

/// On one line of a screen nobody wants to read whole ids.
fn with_short_ids(text: &str) -> String {
    let words = text.split(' ').map(|word| {
        let bare = word.trim_matches(|character: char| !character.is_ascii_hexdigit());
        let is_id = bare.len() == uuid::fmt::Hyphenated::LENGTH && uuid::Uuid::try_parse(bare).is_ok();
        if is_id { word.replace(bare, &short_id(bare)) } else { word.to_owned() }
    });
    words.collect::<Vec<_>>().join(" ")
}

async fn answer(daemon: &Daemon, question: &Question, decision: Decision, always: bool) -> Result<Done, ClientError> {
    let body = match (question.is_elicitation, decision) {
        (true, Decision::Allow) => {
            return Ok(Done::Failed {
                message: "the agent requests values, which cannot be typed here".to_owned(),
                hint: format!("use `acpd attach`, or `acpd approve {} --content JSON`", short_id(question.id)),
            });
        }
        (true, Decision::Reject) => {
            AnswerPermission { action: Some(ElicitationAction::Decline), ..AnswerPermission::default() }
        }
        (false, decision) => {
            let always = always.then_some(true);
            AnswerPermission { decision: Some(decision), always, ..AnswerPermission::default() }
        }
    };
    // By its id: what was shown is what is answered, whatever the agent asks meanwhile.
    let path = format!("/v1/permissions/{}", question.id);
    let answered = match daemon.post::<Permission>(&path, &body).await {
        Err(error) if error.is_api("permission_answered") => {
            let permission: Permission = daemon.get(&path).await?;
            return answered_meanwhile(&permission).map(Done::Said).ok_or(error);
        }
        answered => answered?,
    };
    let word = answered.resolution.as_ref().map(verdict).unwrap_or_default();
    Ok(Done::Said(format!("{word}: {}", question.what)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_as_short_as_elsewhere_on_the_screen() {
        let text = "the session 019a8b1c-7f2e-7c3a-9d4e-5f6a7b8c9d0e, (019a8b1c-7f2e-7c3a-9d4e-5f6a7b8c9d0f) is  gone";
        assert_eq!(with_short_ids(text), "the session 5f6a7b8c9d0e, (5f6a7b8c9d0f) is  gone");
    }
}
