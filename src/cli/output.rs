//! Where output goes: data to stdout, everything for people to stderr. Nothing else in the client prints, but for the
//! rendering of streams.

use std::io::{self, IsTerminal, Write};

use serde_json::value::RawValue;

use crate::model::error::chain;

use super::error::ClientError;
use super::exit::Exit;
use super::style::{Style, is_dumb};
use super::text::{clean, clean_json};

#[derive(Clone, Copy, Debug)]
pub struct Output {
    /// Whether stdout gets the interface's JSON.
    pub json: bool,
    pub stdout_is_terminal: bool,
    pub stderr_is_terminal: bool,
    /// For stdout.
    pub style: Style,
    /// For stderr.
    pub note_style: Style,
}

impl Output {
    pub fn new(json: bool) -> Self {
        let stdout_is_terminal = io::stdout().is_terminal();
        let stderr_is_terminal = io::stderr().is_terminal();
        Self {
            json,
            stdout_is_terminal,
            stderr_is_terminal,
            style: Style::for_stream(stdout_is_terminal),
            note_style: Style::for_stream(stderr_is_terminal),
        }
    }

    /// How wide the terminal is; nothing when stdout is none, so that nothing is cut for a program.
    pub fn width(self) -> Option<usize> {
        if !self.stdout_is_terminal {
            return None;
        }
        let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
        (size.ws_col > 0).then(|| size.ws_col.into())
    }

    /// One text on stdout, with its line end. The caller has cleaned what others wrote in it.
    #[expect(clippy::unused_self, reason = "who prints has an output at hand, and all of them look alike")]
    pub fn print(self, text: &str) -> Result<(), ClientError> {
        if text.is_empty() {
            return Ok(());
        }
        let mut stdout = io::stdout().lock();
        writeln!(stdout, "{text}").and_then(|()| stdout.flush()).map_err(ClientError::Output)
    }

    /// A piece of a text on stdout, without a line end. The caller has cleaned what others wrote in it.
    #[expect(clippy::unused_self, reason = "who prints has an output at hand, and all of them look alike")]
    pub fn print_part(self, text: &str) -> Result<(), ClientError> {
        io::stdout().lock().write_all(text.as_bytes()).map_err(ClientError::Output)
    }

    /// The interface's JSON as it came, on one line.
    pub fn print_json(self, json: &RawValue) -> Result<(), ClientError> {
        self.print(&clean_json(json.get()))
    }

    /// A word to the person, beside the data.
    pub fn note(self, text: &str) {
        self.tell(&format!("acpd: {}", clean(text)));
    }

    /// A word that only helps someone who is looking.
    pub fn aside(self, text: &str) {
        if self.stderr_is_terminal && !self.json {
            self.tell(&self.note_style.dim(&clean(text)));
        }
    }

    pub fn error(self, error: &ClientError) {
        // A reader that has gone away, and Ctrl-C, need no explanation.
        if matches!(error, ClientError::Left) || Exit::of(error) == Exit::Ok {
            return;
        }
        self.tell(&format!("{} {}", self.note_style.red("error:"), clean(&chain(error))));
        if !error.hint().is_empty() {
            self.hint(error.hint());
        }
        if let Some(wait) = error.retry_after() {
            let seconds = wait.as_secs();
            let unit = if seconds == 1 { "second" } else { "seconds" };
            self.hint(&format!("try again in {seconds} {unit}"));
        }
    }

    /// What a person can do.
    pub fn hint(self, text: &str) {
        self.tell(&format!("{} {}", self.note_style.yellow("hint:"), clean(text)));
    }

    /// Asks the person at the terminal; only a yes is one.
    pub fn agrees(self, question: &str) -> Result<bool, ClientError> {
        self.show(question);
        let mut line = String::new();
        io::stdin().read_line(&mut line).map_err(|source| ClientError::io("read the answer", source))?;
        Ok(matches!(line.trim().to_lowercase().as_str(), "y" | "yes"))
    }

    /// Whether what is on the screen can be painted over.
    pub fn can_repaint(self) -> bool {
        self.stdout_is_terminal && !is_dumb() && !self.json
    }

    /// A text on stderr as it is, without a line end of its own. The caller has cleaned what others wrote in it.
    #[expect(clippy::unused_self, reason = "who prints has an output at hand, and all of them look alike")]
    pub fn show(self, text: &str) {
        let mut stderr = io::stderr().lock();
        let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
    }

    /// Nobody is left to be told when stderr cannot be written.
    #[expect(clippy::unused_self, reason = "who prints has an output at hand, and all of them look alike")]
    fn tell(self, line: &str) {
        let _ = writeln!(io::stderr().lock(), "{line}");
    }
}
