//! Checkpoints: a name and a state that a session is given, to be found again by that name.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::id::{CheckpointId, SessionId, TurnId};
use super::peer::Peer;
use super::time::Timestamp;

pub const NAME_CHARS_MAX: usize = 128;
/// Checkpoints that one session may have.
pub const CHECKPOINTS_MAX: i64 = 256;

/// A checkpoint of a session.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Checkpoint {
    pub id: CheckpointId,
    pub session_id: SessionId,
    pub name: String,
    /// Any JSON value; null if none was given.
    #[schema(value_type = serde_json::Value)]
    pub state: Box<RawValue>,
    /// The turn that was running when the checkpoint was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<TurnId>,
    /// The checkpoint's sequence number in the session's event log.
    pub sequence: i64,
    pub created_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Peer>,
}

/// The checkpoint from which a session was created.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Origin {
    pub session_id: SessionId,
    pub checkpoint_id: CheckpointId,
    pub name: String,
}

impl Checkpoint {
    pub fn origin(&self) -> Origin {
        Origin { session_id: self.session_id, checkpoint_id: self.id, name: self.name.clone() }
    }

    /// What an agent is told that goes on from here.
    pub fn as_context(&self) -> String {
        format!(
            "This session continues from the checkpoint {:?}, which the session {} reached at {}. Its state, as \
                JSON:\n{}",
            self.name,
            self.session_id,
            self.created_at,
            self.state.get()
        )
    }
}

/// What is wrong with a checkpoint's name, if anything is.
pub fn check_name(name: &str) -> Result<(), String> {
    if name.trim().is_empty() {
        return Err("must not be empty".to_owned());
    }
    if name.chars().count() > NAME_CHARS_MAX {
        return Err(format!("is longer than {NAME_CHARS_MAX} characters"));
    }
    if name.chars().any(char::is_control) {
        return Err("must not have control characters".to_owned());
    }
    // It stands in paths, where these two lead elsewhere.
    if matches!(name, "." | "..") {
        return Err(format!("{name:?} is not a valid name"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_printable_and_bounded() {
        for name in ["a", "before the merge", "v1.0/rc", "..a", "ä", &"x".repeat(NAME_CHARS_MAX)] {
            assert_eq!(check_name(name), Ok(()), "{name:?}");
        }
        for name in ["", "  ", "a\nb", ".", "..", &"x".repeat(NAME_CHARS_MAX + 1)] {
            assert!(check_name(name).is_err(), "{name:?}");
        }
    }
}
