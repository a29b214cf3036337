//! What it means when an agent refuses something, or ends: for programs a code, for people what happened and what to do.

use std::borrow::Cow;

use crate::acp::RpcError;
use crate::agent::{Cause, Exit};
use crate::config::Config;
use crate::model::{ErrorCode, TurnError};

/// What is told of what an agent says about itself.
const MESSAGE_BYTES_MAX: usize = 4 << 10;
/// What comes before the time that a service wants to be left alone for.
const WAITS: [&str; 6] =
    ["retry in ", "retry after ", "try again in ", "reset after ", "resets in ", "\"retrydelay\":\""];
/// Words that such a time has at most: "1 hour 2 minutes 3 seconds".
const WAIT_WORDS_MAX: usize = 6;

/// What is known of how the agent signs in, and what a person does about that.
#[derive(Clone, Debug, Default)]
pub struct SignIn {
    pub account: Option<String>,
    pub advice: String,
}

/// An agent's answer to a request that is a refusal. Agents hand the statuses of their model's service on as codes.
pub fn refused(method: &str, error: &RpcError, sign_in: &SignIn) -> TurnError {
    let RpcError { code, message, .. } = error;
    let told = format!("the agent refused {method}: {} (code {code})", cut(message));
    match *code {
        RpcError::AUTH_REQUIRED | 401 | 403 => auth_required(&told, sign_in),
        429 => {
            let wait = wait_told(message);
            let hint = match wait {
                Some(seconds) => format!("try again in {seconds} s"),
                None => "try again later; the service behind the agent did not say when".to_owned(),
            };
            let error = TurnError::new(ErrorCode::RateLimited, told).with_hint(hint);
            TurnError { retry_after_seconds: wait, ..error }
        }
        RpcError::PARSE_ERROR | RpcError::INVALID_REQUEST | RpcError::METHOD_NOT_FOUND | RpcError::INVALID_PARAMS => {
            TurnError::new(ErrorCode::Protocol, told)
        }
        _ => TurnError::new(ErrorCode::AgentError, told),
    }
}

/// The agent does not know who works with it.
pub fn auth_required(told: &str, sign_in: &SignIn) -> TurnError {
    let account = sign_in.account.as_ref().map(|account| format!("; {account}")).unwrap_or_default();
    TurnError::new(ErrorCode::AuthRequired, format!("{told}{account}")).with_hint(&sign_in.advice)
}

/// The agent wants a person to sign in, and would take the next line for the code.
pub const LOGIN_PROMPT: &str = "the agent asks for a sign-in in a browser, which acpd cannot do";

/// An answer that is none.
pub fn unreadable(method: &str, error: &str) -> TurnError {
    let message = format!("cannot parse the agent's response to {method}: {error}");
    TurnError::new(ErrorCode::Protocol, message)
}

/// What is told of an agent that ended when it should not have.
pub fn exited(config: &Config, phase: &str, exit: &Exit) -> TurnError {
    let how = match (exit.code, exit.signal) {
        (Some(code), _) => format!("with code {code}"),
        (None, Some(signal)) => format!("on signal {signal}"),
        (None, None) => "without a status".to_owned(),
    };
    let message = match &exit.cause {
        Cause::Ended => format!("the agent exited {how} during {phase}"),
        Cause::NotStarted(why) => format!("cannot start the agent: {why}"),
        Cause::ShimLost => format!(
            "the agent's shim was killed during {phase}, and the agent with it; if the kernel \
                ran out of memory, the system log says so"
        ),
        Cause::OutOfMemory => {
            let limit = config.limits.memory_max;
            let limit = limit.map(|limit| format!(" of {limit}")).unwrap_or_default();
            format!(
                "the agent was killed during {phase} because it exceeded its memory limit{limit} (limits.memory_max)"
            )
        }
    };
    with_stderr(TurnError::new(ErrorCode::AgentExited, message), &exit.stderr)
}

/// An error with the end of what the agent has written to standard error.
pub fn with_stderr(mut error: TurnError, tail: &str) -> TurnError {
    if !tail.is_empty() {
        error.message = format!("{}; its standard error ends with: {tail}", error.message);
    }
    error
}

/// A text that is shown whole, unless it is none that anybody reads.
fn cut(text: &str) -> Cow<'_, str> {
    if text.len() <= MESSAGE_BYTES_MAX {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!("{}… (of {} bytes)", &text[..text.floor_char_boundary(MESSAGE_BYTES_MAX)], text.len()))
}

/// The seconds that a service wants to be left alone for, out of what it says.
fn wait_told(message: &str) -> Option<u32> {
    let message = cut(message).to_ascii_lowercase().replace("\": \"", "\":\"");
    let mut places =
        WAITS.iter().flat_map(|words| message.match_indices(words).map(|(at, words)| &message[at + words.len()..]));
    places.find_map(wait_at)
}

/// The seconds that a text begins with.
fn wait_at(after: &str) -> Option<u32> {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | ' ');
    let after = &after[..after.find(|letter| !is_part(letter)).unwrap_or(after.len())];
    let words: Vec<&str> = after.split_ascii_whitespace().take(WAIT_WORDS_MAX).collect();
    // Where it ends is where it stops being one.
    (1..=words.len()).rev().find_map(|count| {
        let text = words[..count].join(" ");
        let duration: jiff::SignedDuration = text.trim_end_matches('.').parse().ok()?;
        u32::try_from(duration.as_millis().checked_add(999)? / 1000).ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_read_out_of_what_services_say() {
        for (message, seconds) in [
            ("You exceeded your current quota. Please retry in 37.345s.", Some(38)),
            ("Your quota will reset after 13h2m3s.", Some(46_923)),
            ("Rate limited; retry after 30 seconds, please", Some(30)),
            ("Try again in 1 minute 30 seconds or so", Some(90)),
            (r#"{"@type":"RetryInfo","retryDelay": "7s"}"#, Some(7)),
            ("Do not retry in a loop. Please retry in 5s.", Some(5)),
            ("Retry after lunch", None),
            ("Rate limit exceeded. Try again later.", None),
            ("retry in -5s", None),
            ("retry in 99999999999999h", None),
            ("", None),
        ] {
            assert_eq!(wait_told(message), seconds, "{message}");
        }
    }

    #[test]
    fn statuses_of_the_models_service_are_told_by_what_they_mean() {
        let sign_in =
            SignIn { account: Some("nobody is signed in".to_owned()), advice: "run `gemini` once".to_owned() };
        let of = |code| refused("session/prompt", &RpcError { code, message: "no".to_owned(), data: None }, &sign_in);
        for code in [-32000, 401, 403] {
            let error = of(code);
            assert_eq!(error.code, ErrorCode::AuthRequired);
            assert!(error.message.ends_with("; nobody is signed in"), "{}", error.message);
            assert_eq!(error.hint.as_deref(), Some("run `gemini` once"));
        }
        assert_eq!((of(429).code, of(429).retry_after_seconds), (ErrorCode::RateLimited, None));
        for code in [400, 404, 500, 503, -32603, -32002, 0] {
            assert_eq!(of(code).code, ErrorCode::AgentError, "{code}");
        }
        for code in [-32700, -32600, -32601, -32602] {
            assert_eq!(of(code).code, ErrorCode::Protocol, "{code}");
        }
    }

    #[test]
    fn nobody_is_told_more_than_they_can_read() {
        let error = RpcError { code: 500, message: "é".repeat(1 << 20), data: None };
        let told = refused("session/prompt", &error, &SignIn::default()).message;
        assert!(told.len() < 2 * MESSAGE_BYTES_MAX && told.contains("of 2097152 bytes"), "{}", told.len());
    }

    proptest::proptest! {
        #[test]
        fn whatever_a_service_says_is_no_panic(message in "(retry in )?\\PC*") {
            let _ = wait_told(&message);
        }
    }
}
