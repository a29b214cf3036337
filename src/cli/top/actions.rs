//! What keys ask of the daemon, and what came of it.

use hyper::StatusCode;
use serde_json::value::RawValue;

use crate::cli::connection::Daemon;
use crate::cli::error::ClientError;
use crate::cli::text::{one_line, short_id};
use crate::control::wire::permissions::{AnswerPermission, ElicitationAction, Permission, PermissionList};
use crate::control::wire::{Cancel, CancelAccepted};
use crate::model::error::chain;
use crate::model::permission::question::Decision;
use crate::model::{SessionId, TurnId};

use super::model::Deed;
use super::question::Question;

/// Questions of one session that are looked at for the oldest. It has not so many.
const QUESTIONS_MAX: usize = 100;

/// What became of a deed.
#[derive(Debug)]
pub enum Done {
    Said(String),
    Asked(Box<Question>),
    Failed { message: String, hint: String },
}

impl Done {
    fn failed(error: &ClientError) -> Self {
        Self::Failed { message: one_line(&chain(error)), hint: one_line(error.hint()) }
    }
}

pub async fn perform(daemon: &Daemon, deed: Deed) -> Done {
    let outcome = match deed {
        Deed::Cancel { session, turn } => cancel(daemon, session, turn).await,
        Deed::FindQuestion { session } => find_question(daemon, session).await,
        Deed::Answer { question, decision } => answer(daemon, &question, decision).await,
        Deed::Resume { session } => {
            change(daemon, session, "resume").await.map(|()| Done::Said("the session is resumed".to_owned()))
        }
        Deed::Archive { session } => {
            let said = format!("archived; `acpd messages {}` shows what was said", short_id(session));
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
        Ok(_) => Ok(Done::Said("the turn is being cancelled".to_owned())),
        Err(ClientError::Api { status: StatusCode::CONFLICT, .. }) => {
            Ok(Done::Said("the turn has ended by itself".to_owned()))
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
        None => Done::Said("no question is open any more".to_owned()),
    })
}

async fn answer(daemon: &Daemon, question: &Question, decision: Decision) -> Result<Done, ClientError> {
    let body = match (question.is_elicitation, decision) {
        (true, Decision::Allow) => {
            return Ok(Done::Failed {
                message: "the agent wants to know something, which takes more than a yes".to_owned(),
                hint: format!("`acpd attach` asks for it, or `acpd approve {} --content JSON`", short_id(question.id)),
            });
        }
        (true, Decision::Reject) => {
            AnswerPermission { action: Some(ElicitationAction::Decline), ..AnswerPermission::default() }
        }
        (false, decision) => AnswerPermission { decision: Some(decision), ..AnswerPermission::default() },
    };
    // By its id: what was shown is what is answered, whatever the agent asks meanwhile.
    let _: Permission = daemon.post(&format!("/v1/permissions/{}", question.id), &body).await?;
    let word = match decision {
        Decision::Allow => "allowed",
        Decision::Reject => "rejected",
    };
    Ok(Done::Said(format!("{word}: {}", question.what)))
}
