//! How a stream of events is shown to people: [`Plain`] for programs and files, in lines; [`Live`] for a terminal, where the
//! answer is rendered as Markdown and what is still going on is repainted in place below it.

mod glyphs;
mod ink;
mod canvas;
mod diff;
mod markdown;
mod permission;
mod plain;
mod checklist;
mod thoughts;
mod tools;
mod waiting;
mod tally;
mod live;

use clap::ValueEnum;
use serde::Deserialize;
use serde_json::Value;

use crate::model::TurnStatus;

use self::markdown::{Markdown, Paper};
use super::style::Style;

pub use self::canvas::Canvas;
pub use self::diff::Change;
pub use self::glyphs::Glyphs;
pub use self::ink::{Colour, Ink, Line};
pub use self::live::{Beside, Live};
pub use self::plain::Plain;
pub use self::waiting::Wait;

/// How a turn ended, from `turn.completed`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    pub status: TurnStatus,
    #[serde(default)]
    pub stop_reason: Option<String>,
    #[serde(default)]
    error: Option<Failure>,
}

impl Outcome {
    /// Whether the turn failed because the agent is not signed in.
    pub fn needs_sign_in(&self) -> bool {
        self.error.as_ref().is_some_and(|error| error.code == "auth_required")
    }
}

/// The code is a text here: a newer daemon may know more of them.
#[derive(Debug, Deserialize)]
struct Failure {
    code: String,
    message: String,
    #[serde(default)]
    hint: Option<String>,
}

/// A whole text in Markdown, as lines for a terminal of this width.
pub fn markdown(text: &str, columns: usize, style: Style) -> String {
    let mut markdown = Markdown::new(Paper::new(Glyphs::of_environment(), style.is_enabled()));
    markdown.push(text);
    let lines: Vec<String> = markdown.end(columns).iter().map(|line| line.render(style)).collect();
    lines.join("\n")
}

/// That the log does not reach as far as what was asked for, be it that it was restored or that nobody has got there yet.
fn log_reset(data: &Value) -> String {
    match data["head"].as_u64() {
        Some(head) => {
            format!("the log ends at event {head}, before the requested start; showing it from the first event")
        }
        None => "the log ends before the requested start; showing it from the first event".to_owned(),
    }
}

/// Whose events are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// One turn's, to the person who has just written the prompt.
    Turn,
    /// A session's, to someone who looks on: prompts and changes of the session too.
    Session,
}

/// What becomes of the agent's thoughts on a terminal. Elsewhere they are never shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ThoughtsShown {
    /// Show the last lines while they stream, then one line
    #[default]
    Fold,
    /// Show all thoughts
    Show,
    /// Show no thoughts
    Hide,
}

/// What was not shown yet of a message that is whole now: nothing, when it is not the one that is coming in (its id, and its
/// text so far).
fn missing<'text>(open: Option<&(String, String)>, id: &Value, text: &'text str) -> Option<&'text str> {
    let (_, shown) = open.filter(|(open, _)| id == open.as_str())?;
    // Not its beginning: the stream was entered in the middle of the message, and it is complete.
    Some(text.strip_prefix(shown.as_str()).unwrap_or_default())
}
