//! The exit codes: one enum, one mapping from errors, one mapping from turns, one text for the help.

use crate::model::TurnStatus;

use super::error::ClientError;

/// How a client command ends. 2 is not here: it is clap's, for a command line that makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    Ok,
    Error,
    Unreachable,
    TurnFailed,
    TurnCancelled,
    TurnInterrupted,
    Limit,
    /// Of `serve` and `migrate`, which are no clients.
    Store,
    /// Somebody else has answered the question.
    AnsweredBefore,
    /// The agent refused, or was not allowed what it asked for and left it at that.
    Denied,
    Left,
}

/// For the help.
pub const HELP: &str = "\
Exit codes:
  0    success
  1    error, or nothing found (search, timeline)
  2    usage error
  3    the daemon cannot be reached
  4    the turn failed
  5    the turn was cancelled
  6    the turn was interrupted, because the daemon stopped
  7    a limit is reached or the daemon is overloaded; try again later
  8    the store cannot be opened: directory, space or data (serve, migrate)
  9    the permission request was already answered (approve, reject)
  10   denied: the agent refused, or stopped after a rejected request
  130  detached with Ctrl-C; the session continues";

/// `text`, and the exit codes after it.
pub fn long_help(text: &str) -> String {
    format!("{text}\n\n{HELP}")
}

impl Exit {
    pub const fn code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Error => 1,
            Self::Unreachable => 3,
            Self::TurnFailed => 4,
            Self::TurnCancelled => 5,
            Self::TurnInterrupted => 6,
            Self::Limit => 7,
            Self::Store => 8,
            Self::AnsweredBefore => 9,
            Self::Denied => 10,
            Self::Left => 130,
        }
    }

    pub fn of(error: &ClientError) -> Self {
        match error {
            error if error.is_overload() => Self::Limit,
            error if error.is_api("permission_answered") => Self::AnsweredBefore,
            ClientError::Api { .. } => Self::Error,
            ClientError::Unreachable { .. } | ClientError::Broken { .. } | ClientError::TooSlow { .. } => {
                Self::Unreachable
            }
            ClientError::Silent { .. } | ClientError::NotStarted { .. } | ClientError::Lost { .. } => Self::Unreachable,
            ClientError::Answer { .. } | ClientError::Local { .. } | ClientError::Io { .. } => Self::Error,
            // Whoever read our output has seen enough: `acpd ls | head -1` is not a failure.
            ClientError::Output(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Self::Ok,
            ClientError::Output(_) => Self::Error,
            ClientError::Left => Self::Left,
        }
    }

    /// What the end of the followed turn means. A turn that has not ended does not end a command.
    pub const fn of_turn(status: TurnStatus) -> Self {
        match status {
            TurnStatus::Completed | TurnStatus::Queued | TurnStatus::Running => Self::Ok,
            TurnStatus::Failed => Self::TurnFailed,
            TurnStatus::Cancelled => Self::TurnCancelled,
            TurnStatus::Interrupted => Self::TurnInterrupted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_in_the_help() {
        let all = [
            Exit::Ok,
            Exit::Error,
            Exit::Unreachable,
            Exit::TurnFailed,
            Exit::TurnCancelled,
            Exit::TurnInterrupted,
            Exit::Limit,
            Exit::Store,
            Exit::AnsweredBefore,
            Exit::Denied,
            Exit::Left,
        ];
        for exit in all {
            assert!(HELP.contains(&format!("\n  {:<5}", exit.code())), "{exit:?} is not in the help");
        }
    }
}
