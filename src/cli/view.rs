//! How the events of a stream are shown: as they came, or to people.

use std::io::{Stderr, Stdout};

use super::error::ClientError;
use super::output::Output;
use super::render::{Renderer, Scope};
use super::stream::Event;
use super::text::clean_json;

pub enum View {
    Json(Output),
    People(Box<Renderer<Stdout, Stderr>>),
}

impl View {
    pub fn new(output: Output, scope: Scope) -> Self {
        if output.json {
            return Self::Json(output);
        }
        let is_shared = output.stdout_is_terminal && output.stderr_is_terminal;
        Self::People(Box::new(Renderer::new(std::io::stdout(), std::io::stderr(), is_shared, output.note_style, scope)))
    }

    pub fn event(&mut self, event: &Event) -> Result<(), ClientError> {
        match self {
            Self::Json(output) => output.print(&clean_json(&event.json)),
            Self::People(renderer) => renderer.event(event).map_err(ClientError::Output),
        }
    }

    /// Makes room on stderr. Where stdout goes to a program, nothing is added to it.
    pub fn interrupt(&mut self) -> Result<(), ClientError> {
        match self {
            Self::Json(_) => Ok(()),
            Self::People(renderer) => renderer.interrupt().map_err(ClientError::Output),
        }
    }

    pub fn close(&mut self) -> Result<(), ClientError> {
        match self {
            Self::Json(_) => Ok(()),
            Self::People(renderer) => renderer.close().map_err(ClientError::Output),
        }
    }
}
