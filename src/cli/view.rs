//! How the events of a stream are shown: as they came, in lines, or on a terminal.

use std::io::{Stderr, Stdout};
use std::time::Instant;

use super::error::ClientError;
use super::output::Output;
use super::render::{Beside, Canvas, Glyphs, Live, Plain, Scope, ThoughtsShown, Wait};
use super::stream::Event;
use super::style::is_dumb;
use super::text::clean_json;

pub enum View {
    Json(Output),
    Plain(Box<Plain<Stdout, Stderr>>),
    Live(Box<Live>),
}

impl View {
    pub fn new(output: Output, scope: Scope, thoughts: ThoughtsShown) -> Self {
        if output.json {
            return Self::Json(output);
        }
        if (!output.stderr_is_terminal && !output.stdout_is_terminal) || is_dumb() {
            let is_shared = output.stdout_is_terminal && output.stderr_is_terminal;
            let (stdout, stderr) = (std::io::stdout(), std::io::stderr());
            return Self::Plain(Box::new(Plain::new(stdout, stderr, is_shared, output.note_style, scope)));
        }
        let glyphs = Glyphs::of_environment();
        let (canvas, beside) = match (output.stdout_is_terminal, output.stderr_is_terminal) {
            // The notes were sent elsewhere: what stays on the terminal is the answer.
            (_, false) => {
                let canvas = Canvas::on_terminal(std::io::stdout(), output.style, glyphs.ellipsis);
                (canvas, Beside::Notes(std::io::stderr()))
            }
            (is_shared, true) => {
                let canvas = Canvas::on_terminal(std::io::stderr(), output.note_style, glyphs.ellipsis);
                (canvas, if is_shared { Beside::Nothing } else { Beside::answer(std::io::stdout()) })
            }
        };
        Self::Live(Box::new(Live::new(canvas, beside, glyphs, scope, thoughts)))
    }

    pub fn event(&mut self, event: &Event) -> Result<(), ClientError> {
        match self {
            Self::Json(output) => output.print(&clean_json(&event.json)),
            Self::Plain(renderer) => renderer.event(event).map_err(ClientError::Output),
            Self::Live(live) => live.event(event).map_err(ClientError::Output),
        }
    }

    /// An event beside the turn that is followed: it only tells what is being waited for.
    pub fn beside(&mut self, event: &Event) -> Result<(), ClientError> {
        // A notice that belongs to no turn concerns all of them, for example that acpd has switched the agent's mode.
        let is_notice = event.turn_id.is_none() && event.data["content"]["type"] == "notice";
        match self {
            Self::Live(_) | Self::Plain(_) if is_notice => self.event(event),
            Self::Live(live) if event.kind.starts_with("process.") => live.event(event).map_err(ClientError::Output),
            Self::Plain(renderer) if event.kind == "process.waiting" => {
                renderer.event(event).map_err(ClientError::Output)
            }
            _ => Ok(()),
        }
    }

    /// What is waited for from now on; told where that can be taken back.
    pub fn wait_for(&mut self, wait: Wait) -> bool {
        match self {
            Self::Live(live) => {
                live.wait_for(wait);
                true
            }
            Self::Json(_) | Self::Plain(_) => false,
        }
    }

    /// Whether the daemon cannot be heard now.
    pub fn cut_off(&mut self, is_lost: bool) {
        if let Self::Live(live) = self {
            live.cut_off(is_lost);
        }
    }

    /// Whether keys mean something while it goes on.
    pub fn takes_keys(&self) -> bool {
        matches!(self, Self::Live(_))
    }

    pub fn key(&mut self, key: char) {
        if let Self::Live(live) = self {
            live.key(key);
        }
    }

    pub fn disturbed(&mut self) {
        if let Self::Live(live) = self {
            live.disturbed();
        }
    }

    pub fn next_frame(&self, is_caught_up: bool) -> Option<Instant> {
        match self {
            Self::Live(live) => live.next_frame(is_caught_up),
            Self::Json(_) | Self::Plain(_) => None,
        }
    }

    pub fn paint(&mut self) -> Result<(), ClientError> {
        match self {
            Self::Live(live) => live.paint().map_err(ClientError::Output),
            Self::Json(_) | Self::Plain(_) => Ok(()),
        }
    }

    /// Makes room on stderr. Where stdout goes to a program, nothing is added to it.
    pub fn interrupt(&mut self) -> Result<(), ClientError> {
        match self {
            Self::Json(_) => Ok(()),
            Self::Plain(renderer) => renderer.interrupt().map_err(ClientError::Output),
            Self::Live(live) => live.interrupt().map_err(ClientError::Output),
        }
    }

    pub fn close(&mut self) -> Result<(), ClientError> {
        match self {
            Self::Json(_) => Ok(()),
            Self::Plain(renderer) => renderer.close().map_err(ClientError::Output),
            Self::Live(live) => live.close().map_err(ClientError::Output),
        }
    }
}
