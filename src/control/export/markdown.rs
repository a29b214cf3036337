//! A session for people to read, on GitHub or wherever Markdown is shown: a heading per turn, what the user wrote as a
//! quotation, what the agent said as it meant it, and everything else folded or set apart.
//!
//! Messages are read once, in order. Turns run one after the other, but a prompt is recorded when it is accepted: one that
//! waits is passed over until its turn begins, and then read again. A tool call is held until its result comes, which is the
//! next message as a rule, so that both are told in one place.

use std::collections::{HashMap, VecDeque};
use std::fmt::Write;

use serde_json::Value;

use super::contained::{fenced, html, inline, link, markdown, quoted};
use super::pieces::{Failure, Out};
use super::tools;
use crate::model::message::{Message, PlanStep};
use crate::model::session::Session;
use crate::model::turn::Turn;
use crate::model::{Content, Role, Timestamp, TurnError, TurnId, Usage};
use crate::store::Snapshot;

/// Turns that have been accepted and have not begun. More wait nowhere, but a damaged record may say so.
const WAITING_MAX: usize = 4096;
/// Calls that have begun and not ended, and what is held of them. What is more is told without its result.
const CALLS_MAX: usize = 256;
const CALLS_BYTES_MAX: usize = 2 << 20;

pub async fn write(snapshot: &Snapshot, out: &mut Out) -> Result<(), Failure> {
    out.text(&head(snapshot.session())).await?;
    let mut document = Document::new(snapshot, out);
    let mut after = 0;
    loop {
        let page = snapshot.messages(after).await?;
        let Some(last) = page.last() else { return document.end().await };
        after = last.sequence;
        for message in &page {
            document.read(message).await?;
        }
    }
}

/// The title, and what is known of the session as a whole.
fn head(session: &Session) -> String {
    let title =
        if session.title.trim().is_empty() { format!("Session {}", session.id) } else { inline(&session.title) };
    let code = |text: &str| format!("<code>{}</code>", html(text).replace('|', "&#124;"));
    let mut facts = vec![
        ("Session", code(&session.id.to_string())),
        ("Agent", format!("{} ({})", inline(&session.profile.name), code(&session.profile.slug))),
        ("Workspace", code(&session.workspace)),
        ("Status", session.status.as_str().to_owned()),
        ("Created", session.created_at.to_string()),
        ("Last active", session.last_active_at.to_string()),
        ("Turns", session.turns.to_string()),
    ];
    facts.extend(session.model.as_deref().map(|model| ("Model", code(model))));
    facts.extend(session.mode.as_deref().map(|mode| ("Mode", code(mode))));
    facts.extend(session.usage.as_ref().and_then(used).map(|used| ("Usage", used)));
    if !session.tags.is_empty() {
        facts.push(("Tags", session.tags.iter().map(|tag| code(tag)).collect::<Vec<_>>().join(", ")));
    }
    let mut text = format!("# {title}\n\n| | |\n|---|---|\n");
    for (name, value) in facts {
        let _ = writeln!(text, "| {name} | {value} |");
    }
    text
}

/// What was used, as far as it is known.
fn used(usage: &Usage) -> Option<String> {
    let tokens = [(usage.tokens.input, "input"), (usage.tokens.output, "output"), (usage.tokens.total, "total")];
    let tokens = tokens.into_iter().filter_map(|(count, name)| Some(format!("{} {name}", count?)));
    let tokens = tokens.collect::<Vec<_>>().join(", ");
    let tokens = Some(tokens).filter(|tokens| !tokens.is_empty()).map(|tokens| format!("{tokens} tokens"));
    let cost = usage.cost.as_ref().map(|cost| format!("{} {}", cost.amount, inline(&cost.currency)));
    let parts: Vec<String> = tokens.into_iter().chain(cost).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

struct Document<'a> {
    snapshot: &'a Snapshot,
    out: &'a mut Out,
    /// Turns whose prompts have been seen and that have not begun, with where those are.
    waiting: VecDeque<(TurnId, i64)>,
    /// The turn that is being told.
    turn: Option<Turn>,
    number: usize,
    /// Whether anything of the agent's was told in this turn.
    is_answered: bool,
    /// The code of the last notice in it.
    noticed: Option<String>,
    calls: VecDeque<Call>,
    calls_bytes: usize,
    /// What calls are called whose results come later.
    names: HashMap<String, String>,
}

/// A tool call whose result has not come yet.
struct Call {
    id: String,
    name: String,
    kind: String,
    arguments: Value,
    bytes: usize,
}

impl<'a> Document<'a> {
    fn new(snapshot: &'a Snapshot, out: &'a mut Out) -> Self {
        Self {
            snapshot,
            out,
            waiting: VecDeque::new(),
            turn: None,
            number: 0,
            is_answered: false,
            noticed: None,
            calls: VecDeque::new(),
            calls_bytes: 0,
            names: HashMap::new(),
        }
    }

    async fn read(&mut self, message: &Message) -> Result<(), Failure> {
        match (message.role, message.turn_id) {
            (Role::User, Some(turn)) => {
                self.waiting.push_back((turn, message.sequence));
                if self.waiting.len() > WAITING_MAX { self.begin_next().await } else { Ok(()) }
            }
            (_, Some(turn)) => {
                // Those before it ended without a word.
                while self.waiting.iter().any(|(waiting, _)| *waiting == turn) {
                    self.begin_next().await?;
                }
                self.tell(message).await
            }
            (_, None) => self.tell(message).await,
        }
    }

    /// The heading of the turn that waits first, and its prompt.
    async fn begin_next(&mut self) -> Result<(), Failure> {
        let Some((id, sequence)) = self.waiting.pop_front() else { return Ok(()) };
        self.end_turn().await?;
        let turn = self.snapshot.turn(id).await?;
        self.number += 1;
        let prompt = self.snapshot.message(sequence).await?;
        let prompt = said(&serde_json::from_str(prompt.content.get())?);
        self.block(&format!("## Turn {}", self.number)).await?;
        self.block(&format!("<sub>{}</sub>", about(&turn))).await?;
        self.block("**User**").await?;
        self.block(quoted(&prompt).trim_end()).await?;
        self.turn = Some(turn);
        Ok(())
    }

    /// What went wrong in the turn that was told.
    async fn end_turn(&mut self) -> Result<(), Failure> {
        self.tell_calls().await?;
        self.names.clear();
        self.is_answered = false;
        let noticed = self.noticed.take();
        match self.turn.take().and_then(|turn| turn.error) {
            // Most are told by a notice too, which has no hint.
            Some(error) if error.hint.is_none() && noticed.as_deref() == Some(error.code.as_str()) => Ok(()),
            Some(error) => self.block(&failure(&error)).await,
            None => Ok(()),
        }
    }

    async fn end(mut self) -> Result<(), Failure> {
        while !self.waiting.is_empty() {
            self.begin_next().await?;
        }
        self.end_turn().await
    }

    async fn tell(&mut self, message: &Message) -> Result<(), Failure> {
        let content: Content = serde_json::from_str(message.content.get())?;
        match content {
            Content::ToolCall { id, name, title, kind, arguments, .. } => {
                let name = Content::tool_label(&name, title.as_deref());
                let bytes = message.content.get().len();
                self.calls_bytes += bytes;
                self.calls.push_back(Call { id, name, kind, arguments, bytes });
                while self.calls.len() > CALLS_MAX || self.calls_bytes > CALLS_BYTES_MAX {
                    self.tell_call().await?;
                }
                Ok(())
            }
            Content::ToolResult { status, result, error, .. } => {
                let id = message.tool_call_id.as_deref().unwrap_or_default();
                let call = self.calls.iter().position(|call| call.id == id).and_then(|at| self.calls.remove(at));
                self.calls_bytes -= call.as_ref().map_or(0, |call| call.bytes);
                let (name, kind, arguments) = match &call {
                    Some(call) => (call.name.as_str(), call.kind.as_str(), &call.arguments),
                    None => (self.names.get(id).map_or(id, String::as_str), "", &Value::Null),
                };
                let text = tools::call(name, kind, arguments, Some((&status, &result, error.as_deref())));
                self.answer(&text).await
            }
            Content::Text { .. } | Content::Blocks { .. } if message.role == Role::Agent => {
                self.tell_calls().await?;
                self.answer(&said(&content)).await
            }
            other => {
                self.tell_calls().await?;
                if let Content::Notice { code, .. } = &other {
                    self.noticed = Some(code.clone());
                }
                let text = aside(message.role, &other);
                if message.role == Role::Agent { self.answer(&text).await } else { self.block(&text).await }
            }
        }
    }

    /// A call whose result comes later, if it does.
    async fn tell_call(&mut self) -> Result<(), Failure> {
        let Some(Call { id, name, kind, arguments, bytes }) = self.calls.pop_front() else { return Ok(()) };
        self.calls_bytes -= bytes;
        let text = tools::call(&name, &kind, &arguments, None);
        if self.names.len() < CALLS_MAX {
            self.names.insert(id, name);
        }
        self.answer(&text).await
    }

    async fn tell_calls(&mut self) -> Result<(), Failure> {
        while !self.calls.is_empty() {
            self.tell_call().await?;
        }
        Ok(())
    }

    /// Something of the agent's, under its name.
    async fn answer(&mut self, text: &str) -> Result<(), Failure> {
        if !std::mem::replace(&mut self.is_answered, true) {
            let name = format!("**{}**", inline(&self.snapshot.session().profile.name));
            self.block(&name).await?;
        }
        self.block(text).await
    }

    async fn block(&mut self, text: &str) -> Result<(), Failure> {
        if text.is_empty() {
            return Ok(());
        }
        self.out.text("\n").await?;
        self.out.text(text).await?;
        self.out.text("\n").await
    }
}

/// How a turn went, in one line.
fn about(turn: &Turn) -> String {
    let started = turn.started_at.unwrap_or(turn.queued_at);
    let took = turn.started_at.zip(turn.finished_at).map(|(from, to)| format!("took {}", seconds(from, to)));
    let used = turn.usage.as_ref().and_then(used);
    let parts = [Some(turn.status.as_str().to_owned()), Some(started.to_string()), took, used];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" · ")
}

fn seconds(from: Timestamp, to: Timestamp) -> String {
    let millis = to.since(from).as_millis();
    format!("{}.{} s", millis / 1000, millis % 1000 / 100)
}

fn failure(error: &TurnError) -> String {
    let hint = error.hint.as_deref().map(|hint| format!("\n\nHint: {}", inline(hint))).unwrap_or_default();
    let text = format!("[!CAUTION]\n{} (<code>{}</code>){hint}", inline(&error.message), error.code.as_str());
    quoted(&text).trim_end().to_owned()
}

/// What the user or the agent said.
fn said(content: &Content) -> String {
    match content {
        Content::Text { text, partial } => {
            let cut = if *partial { "\n\n*(cut off)*" } else { "" };
            format!("{}{cut}", markdown(text))
        }
        Content::Blocks { blocks } => blocks.iter().map(block).collect::<Vec<_>>().join("\n\n"),
        _ => String::new(),
    }
}

/// What is said beside the conversation.
fn aside(role: Role, content: &Content) -> String {
    let note = |kind: &str, text: &str| quoted(&format!("[!{kind}]\n{text}")).trim_end().to_owned();
    match content {
        Content::Thought { text, .. } => tools::folded("Thought", &markdown(text)),
        Content::Plan { steps } => steps.iter().map(step).collect::<Vec<_>>().join("\n"),
        Content::Notice { code, text } => note("WARNING", &format!("{} (<code>{}</code>)", inline(text), html(code))),
        Content::Text { .. } | Content::Blocks { .. } if role == Role::System => {
            note("NOTE", &format!("Context for the agent:\n\n{}", said(content)))
        }
        // Roles and contents that do not go together.
        Content::Text { .. } | Content::Blocks { .. } => said(content),
        Content::ToolCall { .. } | Content::ToolResult { .. } => String::new(),
    }
}

fn step(PlanStep { content, status, .. }: &PlanStep) -> String {
    let content = inline(content);
    match status.as_str() {
        "completed" => format!("- [x] {content}"),
        "in_progress" => format!("- [ ] {content} *(in progress)*"),
        _ => format!("- [ ] {content}"),
    }
}

/// A block of a message. Data is named and not shown.
pub fn block(block: &Value) -> String {
    if block["type"] == "text" {
        return markdown(block["text"].as_str().unwrap_or_default());
    }
    // What is embedded says what it is one level further down.
    let about = if block["resource"].is_object() { &block["resource"] } else { block };
    let field = |name: &str| about[name].as_str().filter(|text| !text.is_empty());
    let name = field("title").or(field("name")).or(field("uri"));
    if let Some(text) = field("text") {
        return tools::folded(&html(name.unwrap_or("document")), &fenced("", text));
    }
    let kind = block["type"].as_str().unwrap_or("attachment");
    let named = match (name, field("uri")) {
        (Some(name), Some(uri)) => link(name, uri),
        (Some(name), None) => inline(name),
        (None, _) => inline(kind),
    };
    let details = [
        field("mimeType").map(inline),
        about["size"].as_u64().map(|size| format!("{size} bytes")),
        field("sha256").map(|hash| format!("<code>{}</code>", html(hash))),
    ];
    let details: Vec<String> = details.into_iter().flatten().collect();
    let details = if details.is_empty() { String::new() } else { format!(" ({})", details.join(", ")) };
    format!("*Attachment:* {named}{details}")
}
