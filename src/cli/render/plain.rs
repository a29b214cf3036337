//! How a stream of events is shown where there is no terminal: the agent's words on stdout as they come, and beside them, on
//! stderr, what it plans and does, what it was not allowed, and how the turn ended.
//!
//! The text of a message comes twice: in deltas, and whole when the message is complete. What has been shown is
//! remembered, so that the whole only adds what is missing (the deltas of old messages are compacted away).

mod plan;
mod screen;

use std::collections::HashMap;
use std::io::{self, Write};

use serde_json::Value;

use crate::model::TurnStatus;

use super::super::stream::Event;
use super::super::style::Style;
use super::super::text::{clean, one_line};
use super::super::transcript;
use super::permission::Permissions;
use super::{Outcome, Scope, missing};

use self::plan::Plan;
use self::screen::Screen;

/// Tool calls that have begun and not ended. An agent that never ends them loses titles here, nothing else.
const OPEN_TOOLS_MAX: usize = 256;

pub struct Plain<A: Write, N: Write> {
    screen: Screen<A, N>,
    scope: Scope,
    /// The message that is coming in: its id, and its text so far.
    open: Option<(String, String)>,
    plan: Plan,
    /// Titles of the running tool calls, because the update that ends one need not repeat it.
    tools: HashMap<String, String>,
    permissions: Permissions,
    /// A notice, held back until it is known not to be the error that the turn ends with.
    notice: Option<(String, String)>,
}

impl<A: Write, N: Write> Plain<A, N> {
    /// `is_shared`: whether both streams are terminals. `style` is that of the notes.
    pub fn new(answer: A, notes: N, is_shared: bool, style: Style, scope: Scope) -> Self {
        Self {
            screen: Screen::new(answer, notes, is_shared, style),
            scope,
            open: None,
            plan: Plan::default(),
            tools: HashMap::new(),
            permissions: Permissions::default(),
            notice: None,
        }
    }

    pub fn event(&mut self, event: &Event) -> io::Result<()> {
        let data = &event.data;
        if event.kind != "turn.completed" {
            self.tell_notice()?;
        }
        match event.kind.as_str() {
            "message.delta" => self.delta(data),
            "message.created" => self.message(data),
            "plan.updated" => self.plan_updated(data),
            "tool.started" => self.tool_started(data),
            "tool.completed" => self.tool_completed(data),
            "permission.requested" => {
                self.permissions.requested(data);
                Ok(())
            }
            "permission.resolved" => self.permission_resolved(data),
            "turn.completed" => self.turn_completed(data),
            "process.waiting" | "turn.waiting" => {
                let message = one_line(data["message"].as_str().unwrap_or_default());
                self.screen.note(&self.screen.style().dim(&message))
            }
            "session.status" | "process.exited" | "log.reset" if self.scope == Scope::Session => {
                self.session_changed(&event.kind, data)
            }
            // The rest is for programs; a person sees its effect.
            _ => Ok(()),
        }
    }

    /// Makes room for something else on stderr, in the middle of a turn.
    pub fn interrupt(&mut self) -> io::Result<()> {
        self.tell_notice()?;
        self.screen.make_room()
    }

    /// Ends whatever line is open, so that what is printed next begins a new one.
    pub fn close(&mut self) -> io::Result<()> {
        self.tell_notice()?;
        self.screen.end_thought();
        self.screen.end_answer()
    }

    fn delta(&mut self, data: &Value) -> io::Result<()> {
        let (Some(id), Some(text)) = (data["messageId"].as_str(), data["text"].as_str()) else {
            return Ok(());
        };
        if self.open.as_ref().is_none_or(|(open, _)| open != id) {
            self.end_message()?;
            self.open = Some((id.to_owned(), String::new()));
        }
        if let Some((_, shown)) = &mut self.open {
            shown.push_str(text);
        }
        self.show(data["type"] == "thought", text)
    }

    fn message(&mut self, data: &Value) -> io::Result<()> {
        let content = &data["content"];
        let text = content["text"].as_str().unwrap_or_default();
        match (data["role"].as_str(), content["type"].as_str()) {
            (Some("agent"), Some(kind @ ("text" | "thought"))) => {
                let missing = if let Some(missing) = missing(self.open.as_ref(), &data["id"], text) {
                    missing
                } else {
                    self.end_message()?;
                    text
                };
                self.show(kind == "thought", missing)?;
                self.end_message()
            }
            (Some("agent"), Some("blocks")) => {
                self.end_message()?;
                let blocks = content["blocks"].as_array().map(Vec::as_slice).unwrap_or_default();
                blocks
                    .iter()
                    .try_for_each(|block| self.screen.note(&self.screen.style().dim(&transcript::block(block))))
            }
            (Some("user"), _) if self.scope == Scope::Session => self.prompt(content),
            // The answer to the question has been told, with what to do about it.
            (Some("system"), Some("notice")) if content["code"] == "permission_rejected" => Ok(()),
            (Some("system"), Some("notice")) => {
                let code = content["code"].as_str().unwrap_or_default();
                self.notice = Some((code.to_owned(), text.to_owned()));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn show(&mut self, is_thought: bool, text: &str) -> io::Result<()> {
        if is_thought { self.screen.thought(text) } else { self.screen.answer(text) }
    }

    fn end_message(&mut self) -> io::Result<()> {
        self.open = None;
        self.screen.end_thought();
        self.screen.end_answer()
    }

    fn prompt(&mut self, content: &Value) -> io::Result<()> {
        let blocks = content["blocks"].as_array().map_or(std::slice::from_ref(content), Vec::as_slice);
        let texts: Vec<String> = blocks.iter().map(transcript::block).collect();
        let style = self.screen.style();
        for line in texts.join("\n").lines() {
            self.screen.note(&style.bold(&format!("> {line}")))?;
        }
        Ok(())
    }

    fn plan_updated(&mut self, data: &Value) -> io::Result<()> {
        let style = self.screen.style();
        for line in self.plan.update(&data["update"]) {
            self.screen.note(&style.dim(&line))?;
        }
        Ok(())
    }

    fn tool_started(&mut self, data: &Value) -> io::Result<()> {
        let update = &data["update"];
        let title = one_line(update["title"].as_str().unwrap_or("a tool"));
        let kind = one_line(update["kind"].as_str().unwrap_or_default());
        if let Some(id) = data["toolCallId"].as_str() {
            if self.tools.len() >= OPEN_TOOLS_MAX {
                self.tools.clear();
            }
            self.tools.insert(id.to_owned(), title.clone());
        }
        let kind = if kind.is_empty() || kind == "other" { String::new() } else { format!(" ({kind})") };
        self.screen.note(&self.screen.style().dim(&format!("→ {title}{kind}")))
    }

    fn tool_completed(&mut self, data: &Value) -> io::Result<()> {
        let known = data["toolCallId"].as_str().and_then(|id| self.tools.remove(id));
        let title = data["update"]["title"].as_str().map(one_line).or(known).unwrap_or_else(|| "a tool".to_owned());
        let style = self.screen.style();
        let line = match data["status"].as_str().or(data["update"]["status"].as_str()).unwrap_or("completed") {
            "completed" => format!("{} {}", style.green("✓"), style.dim(&title)),
            status => format!("{} {} {}", style.red("✗"), style.dim(&title), style.red(&one_line(status))),
        };
        self.screen.note(&line)
    }

    fn permission_resolved(&mut self, data: &Value) -> io::Result<()> {
        let style = self.screen.style();
        let Some(resolved) = self.permissions.resolved(data) else { return Ok(()) };
        self.screen.note(&style.yellow(&resolved.line))?;
        match resolved.hint {
            Some(hint) => self.screen.note(&format!("{} {hint}", style.yellow("hint:"))),
            None => Ok(()),
        }
    }

    fn turn_completed(&mut self, data: &Value) -> io::Result<()> {
        self.end_message()?;
        let Ok(outcome) = serde_json::from_value::<Outcome>(data.clone()) else {
            return self.tell_notice();
        };
        let style = self.screen.style();
        if outcome.error.as_ref().is_some_and(|error| self.notice.as_ref().is_some_and(|(code, _)| *code == error.code))
        {
            self.notice = None;
        }
        self.tell_notice()?;
        if let Some(error) = &outcome.error {
            self.screen.note(&format!("{} {}", style.red("error:"), clean(&error.message)))?;
            if let Some(hint) = &error.hint {
                self.screen.note(&format!("{} {}", style.yellow("hint:"), clean(hint)))?;
            }
            return Ok(());
        }
        let line = match (outcome.status, outcome.stop_reason.as_deref()) {
            (TurnStatus::Completed, None | Some("end_turn")) => return Ok(()),
            (TurnStatus::Completed, Some(reason)) => format!("the agent stopped: {}", one_line(reason)),
            (status, _) => format!("the turn is {status}"),
        };
        self.screen.note(&style.yellow(&line))
    }

    fn session_changed(&mut self, kind: &str, data: &Value) -> io::Result<()> {
        let text = |field: &str| one_line(data[field].as_str().unwrap_or_default());
        let line = match kind {
            "session.status" => format!("the session is {}", text("to")),
            "log.reset" => super::log_reset(data),
            _ if data["reason"] != "crash" => return Ok(()),
            _ if data["error"].is_string() => format!("the agent's process exited: {}", text("error")),
            _ => "the agent's process exited".to_owned(),
        };
        self.screen.note(&self.screen.style().dim(&line))
    }

    fn tell_notice(&mut self) -> io::Result<()> {
        match self.notice.take() {
            Some((_, text)) => self.screen.note(&self.screen.style().yellow(&clean(&text))),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
