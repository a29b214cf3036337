//! Refusals of imports: which document, which field of it, and what to do about it.

use axum::http::StatusCode;

use super::{Answer, invalid_answer, misreading, registry_answer};
use crate::agent::WorkspaceError;
use crate::registry::{ImportError, RegistryError};

const WORKSPACE_HINT: &str = "nothing was imported; choose a workspace on this machine (`acpd import --workspace \
    DIR`, or OLD=NEW for each), or";
const AGENT_HINT: &str = "nothing was imported; choose an agent (`acpd import --agent NAME`), or";

pub fn answer(error: ImportError) -> Answer {
    match error {
        ImportError::Misfit { index, misfit } => {
            let hint = "nothing was imported; correct the document, or export the session again";
            let field = misreading::shortened(format!("sessions[{index}].{}", misfit.field));
            Answer { hint: hint.to_owned(), ..invalid_answer(&field, misfit.problem) }
        }
        ImportError::Refused { index, field, source } => refused(&format!("sessions[{index}].{field}"), source),
        ImportError::Registry(error) => registry_answer(error),
    }
}

fn refused(field: &str, error: RegistryError) -> Answer {
    let beginning = match &error {
        RegistryError::Workspace(error) if !matches!(error, WorkspaceError::NotLooked(_)) => Some(WORKSPACE_HINT),
        RegistryError::UnknownAgent(_) => Some(AGENT_HINT),
        _ => None,
    };
    let mut answer = registry_answer(error);
    if answer.status == StatusCode::INTERNAL_SERVER_ERROR {
        return answer;
    }
    answer.message = format!("{field}: {}", answer.message);
    if let Some(details) = answer.details.as_object_mut() {
        details.insert("field".to_owned(), field.into());
    }
    if let Some(beginning) = beginning {
        answer.hint = format!("{beginning} {}", answer.hint);
    }
    answer
}
