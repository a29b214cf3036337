//! The words of labels: closed sets, each with a total match.

use crate::model::event::ExitReason;
use crate::model::permission::question::{Decider, Decision};

/// The code of what did not fail.
pub const NO_CODE: &str = "none";
/// Who answered a permission request that was cancelled without an answer.
pub const NOBODY: &str = "none";

pub const EXIT_REASONS: [ExitReason; 9] = [
    ExitReason::Idle,
    ExitReason::Evicted,
    ExitReason::Crash,
    ExitReason::Archive,
    ExitReason::Shutdown,
    ExitReason::Timeout,
    ExitReason::Limit,
    ExitReason::Policy,
    ExitReason::Auth,
];

pub const fn exit_reason_name(reason: ExitReason) -> &'static str {
    match reason {
        ExitReason::Idle => "idle",
        ExitReason::Evicted => "evicted",
        ExitReason::Crash => "crash",
        ExitReason::Archive => "archive",
        ExitReason::Shutdown => "shutdown",
        ExitReason::Timeout => "timeout",
        ExitReason::Limit => "limit",
        ExitReason::Policy => "policy",
        ExitReason::Auth => "auth",
    }
}

/// A rung of the ladder by which a process is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopStep {
    /// The agent is told to end its turn.
    Cancel,
    /// Its standard input ends.
    Eof,
    /// SIGTERM to its group.
    Terminate,
    /// SIGKILL to all that it has started.
    Kill,
    /// Its shim did not act, and is killed.
    Shim,
}

impl StopStep {
    pub const ALL: [Self; 5] = [Self::Cancel, Self::Eof, Self::Terminate, Self::Kill, Self::Shim];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Eof => "eof",
            Self::Terminate => "term",
            Self::Kill => "kill",
            Self::Shim => "shim",
        }
    }
}

/// How it went with a notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotificationOutcome {
    Succeeded,
    /// It ended with another code than 0, or could not be started.
    Failed,
    TimedOut,
    /// It was never started, because too many waited or the daemon stopped.
    Dropped,
}

impl NotificationOutcome {
    pub const ALL: [Self; 4] = [Self::Succeeded, Self::Failed, Self::TimedOut, Self::Dropped];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
            Self::Dropped => "dropped",
        }
    }
}

pub const fn decision_name(decision: Option<Decision>) -> &'static str {
    match decision {
        Some(Decision::Allow) => "allow",
        Some(Decision::Reject) => "reject",
        None => "cancelled",
    }
}

pub const fn decider_name(by: &Decider) -> &'static str {
    match by {
        Decider::Person(_) => "person",
        Decider::Policy { .. } => "policy",
        Decider::Timeout => "timeout",
        Decider::Cancelled { .. } => NOBODY,
    }
}
