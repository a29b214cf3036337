//! Ids: UUID v7, so that they sort by the time they were made. One type a noun, so that they cannot be mixed up.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, de};
use sha2::{Digest, Sha256};
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

            /// The one that stands for these words, always the same; it sorts as if it had been made then.
            #[allow(dead_code, reason = "not every noun comes from elsewhere")]
            pub fn derived(at: Timestamp, words: &[&str]) -> Self {
                Self(derived(stringify!($name), at, words))
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

/// A UUID v7 whose random part is a hash. Each word is hashed with its length, so that no two lists are the same bytes.
fn derived(noun: &str, at: Timestamp, words: &[&str]) -> Uuid {
    let mut hash = Sha256::new();
    for word in [noun].iter().chain(words) {
        hash.update((word.len() as u64).to_be_bytes());
        hash.update(word);
    }
    let millis = u64::try_from(at.as_millis()).unwrap_or(0);
    let mut random = [0; 10];
    random.copy_from_slice(&hash.finalize()[..10]);
    uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid()
}

id!(
    /// The id of a session.
    SessionId
);
id!(
    /// The id of a turn.
    TurnId
);
id!(
    /// The id of a message.
    MessageId
);
id!(
    /// The id of a workspace.
    WorkspaceId
);
id!(
    /// The id of a permission request.
    PermissionId
);
id!(
    /// The id of a rule.
    RuleId
);
id!(
    /// The id of a checkpoint.
    CheckpointId
);
id!(
    /// The id of a session that submitted records describe.
    EntityId
);
id!(
    /// The id of an observation: one submitted session record.
    ObservationId
);
id!(
    /// The id of an agent.
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
    fn the_same_words_are_always_the_same_id_and_others_are_another() {
        let at = Timestamp::from_millis(1_763_262_000_007);
        let id = MessageId::derived(at, &["a", "bc"]);
        assert_eq!(id, MessageId::derived(at, &["a", "bc"]));
        assert_eq!(id.made_at(), Some(at), "it sorts by its time");
        assert_ne!(id, MessageId::derived(at, &["ab", "c"]));
        assert_ne!(id.to_string(), SessionId::derived(at, &["a", "bc"]).to_string());
        assert!(id.to_string().parse::<MessageId>().is_ok());
    }

    #[test]
    fn only_the_hyphenated_form_is_an_id() {
        let id = SessionId::new().to_string();
        assert!(id.replace('-', "").parse::<SessionId>().is_err());
        assert!(format!("{{{id}}}").parse::<SessionId>().is_err());
        assert!("last".parse::<SessionId>().is_err());
    }
}
