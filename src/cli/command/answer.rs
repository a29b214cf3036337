//! `acpd approve` and `acpd reject`: answer what an agent asks.

use clap::Args;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::cli::account;
use crate::cli::context::{Context, read};
use crate::cli::error::ClientError;
use crate::cli::exit::Exit;
use crate::cli::question;
use crate::cli::text::{age, short_id};
use crate::control::wire::permissions::{AnswerPermission, ElicitationAction, Permission};
use crate::model::Timestamp;
use crate::model::permission::question::{Decider, Decision, PermissionKind, Resolution};

/// Allow a permission request and print its id
///
/// The first answer counts. If the request was already answered, prints who answered it and exits with code 9.
#[derive(Args, Debug)]
pub struct Approve {
    #[command(flatten)]
    pub answer: Answer,
    /// Answer to an elicitation, as a JSON object
    #[arg(long, value_name = "JSON", value_parser = object, conflicts_with_all = ["always", "option"])]
    pub content: Option<Map<String, Value>>,
}

/// Reject a permission request and print its id
///
/// The first answer counts. If the request was already answered, prints who answered it and exits with code 9.
#[derive(Args, Debug)]
pub struct Reject {
    #[command(flatten)]
    pub answer: Answer,
}

#[derive(Args, Debug)]
pub struct Answer {
    /// Request id, or a prefix or suffix of it (see `acpd permissions`); optional if only one request is open
    pub permission: Option<String>,
    /// Give the same answer to identical requests of this session, until `acpd rules SESSION --revoke`
    #[arg(long)]
    pub always: bool,
    /// Choose one of the agent's own options, by its id
    #[arg(long, value_name = "OPTION", conflicts_with = "always")]
    pub option: Option<String>,
}

impl Approve {
    pub async fn execute(self, context: &Context) -> Result<Exit, ClientError> {
        self.answer.give(context, Decision::Allow, self.content).await
    }
}

impl Reject {
    pub async fn execute(self, context: &Context) -> Result<Exit, ClientError> {
        self.answer.give(context, Decision::Reject, None).await
    }
}

impl Answer {
    async fn give(
        self,
        context: &Context,
        decision: Decision,
        content: Option<Map<String, Value>>,
    ) -> Result<Exit, ClientError> {
        let daemon = context.daemon().await?;
        let permission = question::permission(&daemon, self.permission.as_deref()).await?;
        let body = self.body(&permission, decision, content)?;
        let answer: Result<Box<RawValue>, _> = daemon.post(&format!("/v1/permissions/{}", permission.id), &body).await;
        let answer = answer.map_err(|error| late(&permission, error))?;
        let answered: Permission = read(&answer)?;
        // To a program the question's id, to a person in words, wherever that one looks.
        let is_person = context.output.stdout_is_terminal;
        let words = told(&answered);
        if !is_person {
            context.output.aside(&words);
        }
        if self.always && !answered.resolution.is_some_and(|resolution| resolution.always) {
            context.output.note(question::APPLIES_ONCE);
        }
        context.show(&answer, |permission: Permission| if is_person { words } else { permission.id.to_string() })
    }

    fn body(
        &self,
        permission: &Permission,
        decision: Decision,
        content: Option<Map<String, Value>>,
    ) -> Result<AnswerPermission, ClientError> {
        let empty = AnswerPermission::default();
        if let Some(option) = &self.option {
            return Ok(AnswerPermission { option_id: Some(option.clone()), ..empty });
        }
        match (permission.kind, decision) {
            (PermissionKind::Elicitation, Decision::Allow) => {
                if content.is_none() && is_form(permission) {
                    let message = format!("the agent requests values: {}", question::what(permission));
                    let hint = "pass them with --content '{\"name\": …}'; `acpd permissions --json` shows the fields in \
                                request.requestedSchema";
                    return Err(ClientError::local(message, hint));
                }
                Ok(AnswerPermission { action: Some(ElicitationAction::Accept), content, ..empty })
            }
            (_, Decision::Allow) if content.is_some() => {
                Err(ClientError::local("the agent requests no values", "omit --content"))
            }
            _ => Ok(AnswerPermission { decision: Some(decision), always: self.always.then_some(true), ..empty }),
        }
    }
}

fn is_form(permission: &Permission) -> bool {
    serde_json::from_str::<Value>(permission.request.get()).is_ok_and(|request| request["mode"] == "form")
}

fn told(permission: &Permission) -> String {
    let verdict = permission.resolution.as_ref().map(question::verdict).unwrap_or_default();
    format!("{verdict}: {}", question::what(permission))
}

/// The daemon's refusal, with the winner in words.
fn late(permission: &Permission, error: ClientError) -> ClientError {
    let ClientError::Api { status, mut body, retry_after } = error else { return error };
    if body.error == "permission_answered"
        && let Ok(resolution) = serde_json::from_value::<Resolution>(body.details["resolution"].clone())
    {
        let by = match &resolution.by {
            Decider::Cancelled { reason } => format!(" because {reason}"),
            by @ (Decider::Person(_) | Decider::Policy { .. } | Decider::Timeout) => {
                format!(" by {}", account::decided_by(by))
            }
        };
        body.message = format!(
            "{} was {} {} ago{by}: {}",
            short_id(permission.id),
            question::verdict(&resolution),
            age(resolution.at, Timestamp::now()),
            question::what(permission),
        );
        "the first answer counts".clone_into(&mut body.hint);
    }
    ClientError::Api { status, body, retry_after }
}

fn object(text: &str) -> Result<Map<String, Value>, String> {
    serde_json::from_str(text).map_err(|error| format!("not a JSON object: {error}"))
}
