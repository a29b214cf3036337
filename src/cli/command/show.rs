//! `acpd show`: one session, in groups of facts, and the newest of what was said.

use clap::Args;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::cli::account;
use crate::cli::connection::{Daemon, with_query};
use crate::cli::context::{Context, read};
use crate::cli::error::ClientError;
use crate::cli::exit::Exit;
use crate::cli::facts::Facts;
use crate::cli::output::Output;
use crate::cli::processes::Processes;
use crate::cli::stream::EventStream;
use crate::cli::style::Paint;
use crate::cli::text::{age, one_line, short_id, size, thousands};
use crate::cli::transcript::{self, MessageView};
use crate::cli::{lookup, question};
use crate::control::wire::Session;
use crate::control::wire::permissions::{Permission, PermissionList};
use crate::model::permission::question::Decider;
use crate::model::{Peer, SessionStatus, Timestamp, Usage};

use super::choice::{Kind, Offers};
use super::ls::{below_home, status_paint};

/// Of the newest messages so many are shown, a line each.
const MESSAGES_SHOWN_MAX: usize = 8;
/// Archiving is among the last things that happen to a session: so many events before the end are looked at for it.
const LAST_EVENTS: i64 = 50;

/// Show one session: status, usage, open permission requests
#[derive(Args, Debug)]
pub struct Show {
    /// Session: id, id prefix or suffix, exact title, or - for the newest one here
    pub session: String,
}

#[derive(Deserialize)]
struct View {
    #[serde(flatten)]
    session: Session,
    #[serde(default)]
    messages: Vec<MessageView>,
    #[serde(default)]
    cursor: i64,
}

impl Show {
    pub async fn execute(self, context: &Context) -> Result<Exit, ClientError> {
        let daemon = context.daemon().await?;
        let id = lookup::session(&daemon, &self.session).await?;
        let answer: Box<RawValue> = daemon.get(&format!("/v1/sessions/{id}")).await?;
        let output = context.output;
        if output.json {
            output.print_json(&answer)?;
            return Ok(Exit::Ok);
        }
        let view: View = read(&answer)?;
        let session = &view.session;
        let processes = Processes::ask(&daemon, session.owner.is_some()).await?;
        let mut facts = Facts::default();
        what(&mut facts, session);
        how(&mut facts, &daemon, output, &view).await?;
        facts.group();
        facts.tell("process", &process(session, &processes));
        runs(&mut facts, session, &read(&answer)?);
        facts.group();
        uses(&mut facts, session, &processes);
        facts.group();
        asks(&mut facts, &daemon, session).await?;
        output.print(&facts.render(output.width(), output.style))?;
        output.print(&newest(&view, output))?;
        if !view.messages.is_empty() {
            output.aside(&format!("`acpd messages {}` shows the whole conversation", short_id(session.id)));
        }
        Ok(Exit::Ok)
    }
}

fn what(facts: &mut Facts, session: &Session) {
    let home = std::env::var("HOME").unwrap_or_default();
    facts.painted("title", &session.title, Paint::Bold);
    facts.tell("id", &session.id.to_string());
    facts.maybe("owner", lookup::other_owner(session.owner));
    facts.tell("tags", &session.tags.join(", "));
    facts.tell("agent", &session.agent);
    facts.tell("workspace", &below_home(&session.workspace, &home));
    facts.tell("created", &when(session.created_at));
}

/// The status, since when, and by whom and why where somebody has ended it.
async fn how(facts: &mut Facts, daemon: &Daemon, output: Output, view: &View) -> Result<(), ClientError> {
    let session = &view.session;
    facts.painted("status", session.status.as_str(), status_paint(session.status));
    if session.status == SessionStatus::Archived {
        let by = archiver(daemon, output, view).await?;
        let by = by.map(|peer| format!(", by {}", account::decided_by(&Decider::Person(peer)))).unwrap_or_default();
        facts.tell("archived", &format!("{}{by}", when(session.status_changed_at)));
        facts.maybe("reason", reason(&view.messages));
    } else {
        facts.tell("last active", &when(session.last_active_at));
    }
    facts.maybe("paused", session.paused.clone());
    if let Some(error) = &session.last_error {
        let told = format!("{} ({}, {} ago)", error.message, error.code, age(error.at, Timestamp::now()));
        facts.painted("last error", &told, Paint::Red);
    }
    facts.maybe("expires", session.expires_at.map(|at| at.to_string()));
    facts.maybe("kept", session.keep.then(|| "yes, it never expires".to_owned()));
    Ok(())
}

/// Who archived it, as the log has it.
async fn archiver(daemon: &Daemon, output: Output, view: &View) -> Result<Option<Peer>, ClientError> {
    let after = (view.cursor - LAST_EVENTS).max(0);
    let mut stream = EventStream::new(daemon, output, view.session.id, Some(after), false);
    let mut by = None;
    while let Some(event) = stream.next().await? {
        if event.kind == "session.status" && event.data["to"] == "archived" {
            by = serde_json::from_value(event.data["by"].clone()).ok();
        }
    }
    Ok(by)
}

/// What was given as the reason, which is in the record as a notice.
fn reason(messages: &[MessageView]) -> Option<String> {
    let notice = messages.iter().rev().find(|message| message.content["code"] == "deleted")?;
    notice.content["text"].as_str().map(str::to_owned)
}

fn process(session: &Session, processes: &Processes) -> String {
    let state = processes.state(session);
    let pid = session.pid.map(|pid| format!("pid {pid}"));
    let running = processes.of(session.id);
    let memory = running.map(|running| size(running.rss_bytes));
    let seconds =
        running.map(|running| format!("{}.{} s CPU", running.cpu_millis / 1000, running.cpu_millis % 1000 / 100));
    let tool = running.and_then(|running| running.tool.as_ref()).map(|tool| one_line(&tool.title));
    let state = if session.pid.is_none() && running.is_none() { "none".to_owned() } else { state.to_owned() };
    [Some(state), pid, memory, seconds, tool].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn runs(facts: &mut Facts, session: &Session, offers: &Offers) {
    for (name, kind) in [("mode", Kind::Mode), ("model", Kind::Model)] {
        let offer = offers.of(kind);
        let others = offer.choices.iter().filter(|choice| !choice.is_current).map(|choice| choice.id.as_str());
        let others = others.collect::<Vec<_>>().join(", ");
        let current = offer.choices.iter().find(|choice| choice.is_current).map(|choice| choice.id.clone());
        let current = current.or_else(|| session_choice(session, kind)).unwrap_or_default();
        let others = if others.is_empty() { others } else { format!(" (others: {others})") };
        facts.tell(name, &format!("{current}{others}"));
    }
    facts.maybe("requests", session.asks.warning().map(|warning| format!("the agent {warning}")));
    facts.tell("permissions", session.permissions.mode.as_str());
    let missing = session.sandbox_details.as_ref().map(|details| details.missing.join(", ")).unwrap_or_default();
    let missing = if missing.is_empty() { missing } else { format!(" (without {missing})") };
    facts.tell("sandbox", &format!("{}{missing}", session.sandbox));
    facts.maybe("git", session.context.git_ref.clone());
    let origin = session.restored_from.as_ref();
    facts.maybe("continues", origin.map(|from| format!("{} of {}", from.name, short_id(from.session_id))));
    facts.maybe("context", session.context_restored.map(|restored| restored.as_str().to_owned()));
}

fn session_choice(session: &Session, kind: Kind) -> Option<String> {
    match kind {
        Kind::Mode => session.mode.clone(),
        Kind::Model => session.model.clone(),
    }
}

fn uses(facts: &mut Facts, session: &Session, processes: &Processes) {
    let queued = processes.queued(session.id);
    let queued = if queued > 0 { format!(", {} of them queued", thousands(queued)) } else { String::new() };
    facts.tell("turns", &format!("{}{queued}", thousands(session.turns.unsigned_abs())));
    let Some(usage) = &session.usage else { return };
    facts.tell("tokens", &tokens(usage));
    facts.maybe("cost", usage.cost.as_ref().map(|cost| format!("{} {}", cost.amount, cost.currency)));
    facts.maybe(
        "window",
        usage.context.map(|window| {
            let percent = window.used.saturating_mul(100).checked_div(window.size).unwrap_or(0);
            format!("{} of {} tokens ({percent} %)", thousands(window.used), thousands(window.size))
        }),
    );
}

fn tokens(usage: &Usage) -> String {
    let tokens = &usage.tokens;
    let parts = [("in", tokens.input), ("out", tokens.output), ("thought", tokens.thought)];
    let parts = parts.into_iter().filter_map(|(name, number)| Some(format!("{} {name}", thousands(number?))));
    let parts = parts.collect::<Vec<_>>().join(", ");
    match (tokens.total, parts.is_empty()) {
        (Some(total), true) => thousands(total),
        (Some(total), false) => format!("{} ({parts})", thousands(total)),
        (None, _) => parts,
    }
}

/// Each open question, and what to type.
async fn asks(facts: &mut Facts, daemon: &Daemon, session: &Session) -> Result<(), ClientError> {
    if session.open_permissions == 0 {
        return Ok(());
    }
    let path = format!("/v1/sessions/{}/permissions", session.id);
    let open: PermissionList = daemon.get(&with_query(&path, &[("status", "open".to_owned())])).await?;
    for permission in &open.permissions {
        facts.painted("asks", &question::what(permission), Paint::Yellow);
        facts.tell("", &answers(permission));
    }
    Ok(())
}

fn answers(permission: &Permission) -> String {
    let id = short_id(permission.id);
    format!("acpd approve {id}, or acpd reject {id}")
}

fn newest(view: &View, output: Output) -> String {
    if view.messages.is_empty() {
        return String::new();
    }
    let now = Timestamp::now();
    let from = view.messages.len().saturating_sub(MESSAGES_SHOWN_MAX);
    let lines = view.messages[from..].iter();
    let lines = lines.map(|message| transcript::brief(message, now, output.width(), output.style));
    format!("\n{}", lines.collect::<Vec<_>>().join("\n"))
}

/// A time as people ask for it, and as it is.
fn when(at: Timestamp) -> String {
    format!("{} ago, {at}", age(at, Timestamp::now()))
}
