//! Ids: UUID v7, so that they sort by the time they were made. One type a noun, so that they cannot be mixed up.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, de};
use uuid::Uuid;

use super::Timestamp;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an id; ids are UUIDs such as 019a8b1c-7f2e-7c3a-9d4e-5f6a7b8c9d0e")]
pub struct NotAnId(String);

/// Fewer digits are more likely a slip than an id.
pub const PART_DIGITS_MIN: usize = 4;

/// The digits of what may be a part of an id, as they are in one without its hyphens; nothing, when it cannot be.
pub fn part_digits(text: &str) -> Option<String> {
    let digits = text.replace('-', "").to_lowercase();
    let is_part = digits.len() >= PART_DIGITS_MIN && digits.chars().all(|digit| digit.is_ascii_hexdigit());
    is_part.then_some(digits)
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, utoipa::ToSchema)]
        #[serde(transparent)]
        #[schema(value_type = String, format = Uuid)]
        pub struct $name(Uuid);

        impl $name {
            pub fn new() -> Self {
                Self(Uuid::now_v7())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(formatter)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(formatter)
            }
        }

        impl FromStr for $name {
            type Err = NotAnId;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                // Only the form that is printed is an id: the others would let one session have several addresses.
                match Uuid::try_parse(text) {
                    Ok(id) if id.hyphenated().to_string() == text => Ok(Self(id)),
                    _ => Err(NotAnId(text.to_owned())),
                }
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
            }
        }
    };
}

id!(
    /// One conversation with one agent in one workspace.
    SessionId
);
id!(
    /// One prompt and all that the agent did until it answered.
    TurnId
);
id!(
    /// One entry of the primary record.
    MessageId
);
id!(
    /// A registered directory.
    WorkspaceId
);
id!(
    /// A question of an agent's.
    PermissionId
);
id!(
    /// What a person has answered for good.
    RuleId
);
id!(
    /// A name and a state that a session was given.
    CheckpointId
);
id!(
    /// A session that others have told of.
    EntityId
);
id!(
    /// What somebody said of a session once.
    ObservationId
);
id!(
    /// An agent profile.
    AgentId
);

impl MessageId {
    /// When it was made.
    pub fn made_at(self) -> Option<Timestamp> {
        let (seconds, nanos) = self.0.get_timestamp()?.to_unix();
        let millis = i64::try_from(seconds).ok()?.checked_mul(1000)?;
        Some(Timestamp::from_millis(millis + i64::from(nanos / 1_000_000)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_read_back_what_they_print_and_sort_by_age() {
        let first = SessionId::new();
        let second = SessionId::new();
        assert_eq!(first.to_string().parse::<SessionId>().unwrap(), first);
        assert!(first < second, "v7 ids made one after the other sort that way");
    }

    #[test]
    fn an_id_tells_when_it_was_made() {
        let before = Timestamp::now();
        let made = MessageId::new().made_at().unwrap();
        assert!(before <= made && made <= Timestamp::now(), "{made}");
    }

    #[test]
    fn only_the_hyphenated_form_is_an_id() {
        let id = SessionId::new().to_string();
        assert!(id.replace('-', "").parse::<SessionId>().is_err());
        assert!(format!("{{{id}}}").parse::<SessionId>().is_err());
        assert!("last".parse::<SessionId>().is_err());
    }
}
