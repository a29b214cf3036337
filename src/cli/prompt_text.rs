//! The text of a prompt: the words of the command line, and what is piped into the command.

use std::io::{self, IsTerminal, Read};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use super::error::ClientError;
use super::output::Output;
use super::text::{one_line, shell_word};

/// The daemon's own limit is lower, and it is the one who tells.
const STDIN_BYTES_MAX: u64 = 64 << 20;
/// After this, a person who forgot about stdin wants to know what is being waited for.
const STDIN_PATIENCE: Duration = Duration::from_secs(3);

/// The prompt, if there is one. stdin is read when it is no terminal.
pub fn gather(words: &[String], output: Output) -> Result<Option<String>, ClientError> {
    let piped = if io::stdin().is_terminal() { String::new() } else { read_stdin(output)? };
    Ok(Some(join(&words.join(" "), &piped)).filter(|prompt| !prompt.is_empty()))
}

/// That there is none.
pub fn missing() -> ClientError {
    ClientError::local("the prompt is empty", "write it after the command, or pipe it into the command")
}

/// That there is none, where a word was taken for the session; likely it is the prompt when it names none.
pub fn missing_after(session: &str, is_session: bool) -> ClientError {
    let message = format!("the prompt is empty: {:?} was read as the session", one_line(session));
    let hint = if is_session && !session.contains(char::is_whitespace) {
        "write the prompt after the session, or pipe it into the command".to_owned()
    } else {
        format!("to send it to the newest session here: acpd prompt - {}", shell_word(&one_line(session)))
    };
    ClientError::local(message, hint)
}

fn join(words: &str, piped: &str) -> String {
    let (words, piped) = (words.trim(), piped.trim_end());
    match (words.is_empty(), piped.trim_start().is_empty()) {
        (_, true) => words.to_owned(),
        (true, false) => piped.to_owned(),
        (false, false) => format!("{words}\n\n{piped}"),
    }
}

fn read_stdin(output: Output) -> Result<String, ClientError> {
    let (sender, receiver) = sync_channel(1);
    // The thread ends with stdin or with the process; there is nothing to join it for.
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let read = io::stdin().lock().take(STDIN_BYTES_MAX + 1).read_to_end(&mut bytes);
        // The receiver waits as long as it takes.
        let _ = sender.send(read.map(|_| bytes));
    });
    let outcome = match receiver.recv_timeout(STDIN_PATIENCE) {
        Err(RecvTimeoutError::Timeout) => {
            output.note("reading the prompt from stdin until its end (skip it with `< /dev/null`)");
            receiver.recv().ok()
        }
        arrived => arrived.ok(),
    };
    let bytes = outcome.unwrap_or_else(|| Ok(Vec::new())).map_err(|source| ClientError::io("read stdin", source))?;
    if bytes.len() as u64 > STDIN_BYTES_MAX {
        return Err(ClientError::local(
            format!("stdin is larger than {} MiB", STDIN_BYTES_MAX >> 20),
            "put it in a file in the workspace and name it in the prompt",
        ));
    }
    String::from_utf8(bytes).map_err(|_| {
        ClientError::local("stdin is not valid UTF-8", "put it in a file in the workspace and name it in the prompt")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forgotten_session_is_recognized() {
        for (session, is_session) in [("fix the thing", false), ("fix the thing", true), ("fix", false)] {
            let expected = format!("acpd prompt - {}", shell_word(session));
            assert!(missing_after(session, is_session).hint().ends_with(&expected), "{session}");
        }
        assert!(!missing_after("-", true).hint().contains("acpd prompt"));
    }

    #[test]
    fn what_is_piped_follows_the_words_after_a_blank_line() {
        assert_eq!(join("explain this", "error: x\n"), "explain this\n\nerror: x");
        assert_eq!(join("", "  indented\n\n"), "  indented");
        assert_eq!(join(" explain ", " \n"), "explain");
        assert_eq!(join("", "\n"), "");
    }
}
