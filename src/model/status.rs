//! The session's status: four states, one table.
//!
//! ```text
//!              Shutdown      Fatal       Archive         Resume
//! active       suspended     error       archived        active
//! suspended    suspended     error       archived        active
//! archived     archived      archived    archived        denied: archived is final
//! error        error         error       denied          denied: error is final
//! ```
//!
//! Invariants:
//! 1. Facts (`Shutdown`, `Fatal`) are never denied; requests (`Archive`, `Resume`) may be, with a named reason.
//! 2. A process exit is not a trigger: no crash, stop or idle timeout can change a status.
//! 3. There is no wildcard arm: a new status or trigger does not compile until every cell is decided.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum SessionStatus {
    Active,
    Suspended,
    Archived,
    Error,
}

/// What can happen to a session as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// Fact: the daemon stops.
    Shutdown,
    /// Fact: something truly prevents going on.
    Fatal,
    /// Request: a person is done with it.
    Archive,
    /// Request: a person goes on with it.
    Resume,
}

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    #[error("the session is archived: it can only be read or deleted")]
    ArchivedIsFinal,
    #[error("the session is in error: it can only be read or deleted")]
    ErrorIsFinal,
}

impl SessionStatus {
    pub const ALL: [Self; 4] = [Self::Active, Self::Suspended, Self::Archived, Self::Error];

    /// The one function that says what becomes of a status.
    pub const fn on(self, trigger: Trigger) -> Result<Self, Denied> {
        use SessionStatus::{Active, Archived, Error, Suspended};
        use Trigger::{Archive, Fatal, Resume, Shutdown};
        match (self, trigger) {
            (Active, Shutdown) => Ok(Suspended),
            (Active, Fatal) => Ok(Error),
            (Active, Archive) => Ok(Archived),
            (Active, Resume) => Ok(Active),

            (Suspended, Shutdown) => Ok(Suspended),
            (Suspended, Fatal) => Ok(Error),
            (Suspended, Archive) => Ok(Archived),
            (Suspended, Resume) => Ok(Active),

            (Archived, Shutdown) => Ok(Archived),
            (Archived, Fatal) => Ok(Archived),
            (Archived, Archive) => Ok(Archived),
            (Archived, Resume) => Err(Denied::ArchivedIsFinal),

            (Error, Shutdown) => Ok(Error),
            (Error, Fatal) => Ok(Error),
            (Error, Archive) => Err(Denied::ErrorIsFinal),
            (Error, Resume) => Err(Denied::ErrorIsFinal),
        }
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Suspended => "suspended",
            Self::Archived => "archived",
            Self::Error => "error",
        }
    }
}

impl fmt::Display for SessionStatus {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

impl FromStr for SessionStatus {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|status| status.as_str() == text)
            .ok_or_else(|| format!("{text:?} is not a session status; use active, suspended, archived or error"))
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use super::*;

    const TRIGGERS: [Trigger; 4] = [Trigger::Shutdown, Trigger::Fatal, Trigger::Archive, Trigger::Resume];

    #[test]
    fn the_table_is_the_contracts() {
        let mut table = String::new();
        for status in SessionStatus::ALL {
            for trigger in TRIGGERS {
                let outcome = match status.on(trigger) {
                    Ok(next) if next == status => format!("{next} (no change)"),
                    Ok(next) => next.to_string(),
                    Err(denied) => format!("denied: {denied}"),
                };
                let trigger = format!("{trigger:?}");
                writeln!(table, "{status:<10} {trigger:<9} -> {outcome}").unwrap();
            }
        }
        insta::assert_snapshot!(table);
    }

    proptest::proptest! {
        #[test]
        fn facts_are_never_denied_and_final_states_stay(steps in proptest::collection::vec((0usize..4, 0usize..4), 1..40)) {
            let mut status = SessionStatus::Active;
            for (_, step) in steps {
                let trigger = TRIGGERS[step];
                let outcome = status.on(trigger);
                if matches!(trigger, Trigger::Shutdown | Trigger::Fatal) {
                    proptest::prop_assert!(outcome.is_ok());
                }
                let next = outcome.unwrap_or(status);
                if matches!(status, SessionStatus::Archived | SessionStatus::Error) {
                    proptest::prop_assert_eq!(next, status);
                }
                status = next;
            }
        }
    }
}
