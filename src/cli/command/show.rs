//! `acpd show`: one session, whole.

use clap::Args;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::cli::context::Context;
use crate::cli::error::ClientError;
use crate::cli::exit::Exit;
use crate::cli::lookup;
use crate::cli::style::Style;
use crate::cli::text::one_line;
use crate::cli::transcript::{self, MessageView};
use crate::control::wire::Session;
use crate::model::Usage;

/// Show one session with its newest messages
#[derive(Args, Debug)]
pub struct Show {
    /// An id or a part of it, a title, or - for the newest session here
    pub session: String,
}

#[derive(Deserialize)]
struct View {
    #[serde(flatten)]
    session: Session,
    #[serde(default)]
    messages: Vec<MessageView>,
}

impl Show {
    pub async fn execute(self, context: &Context) -> Result<Exit, ClientError> {
        let daemon = context.daemon().await?;
        let id = lookup::session(&daemon, &self.session).await?;
        let answer: Box<RawValue> = daemon.get(&format!("/v1/sessions/{id}")).await?;
        let style = context.output.style;
        context.show(&answer, |view: View| {
            let head = facts(&view.session, style);
            let messages = transcript::render(&view.messages, style);
            if messages.is_empty() { head } else { format!("{head}\n\n{messages}") }
        })
    }
}

fn facts(session: &Session, style: Style) -> String {
    let process = session.pid.map_or_else(String::new, |pid| format!(" (pid {pid})"));
    let mut facts = vec![
        ("id", session.id.to_string()),
        ("title", session.title.clone()),
        ("status", session.status.to_string()),
        ("process", format!("{}{process}", session.process_state.as_str())),
        ("agent", session.agent.clone()),
        ("workspace", session.workspace.clone()),
        ("permissions", session.permissions.mode.as_str().to_owned()),
        ("sandbox", session.sandbox.clone()),
        ("turns", session.turns.to_string()),
        ("created", session.created_at.to_string()),
        ("last active", session.last_active_at.to_string()),
    ];
    if let Some(owner) = lookup::other_owner(session.owner) {
        facts.insert(2, ("owner", owner));
    }
    if !session.tags.is_empty() {
        facts.insert(2, ("tags", session.tags.join(", ")));
    }
    if let Some(mode) = &session.mode {
        facts.push(("mode", mode.clone()));
    }
    if let Some(model) = &session.model {
        facts.push(("model", model.clone()));
    }
    if let Some(usage) = &session.usage {
        facts.push(("usage", used(usage)));
    }
    if session.open_permissions > 0 {
        facts.push(("asks", format!("{}, see `acpd permissions`", session.open_permissions)));
    }
    if let Some(paused) = &session.paused {
        facts.push(("paused", paused.clone()));
    }
    if let Some(expires_at) = session.expires_at {
        facts.push(("expires", expires_at.to_string()));
    }
    if let Some(restored) = session.context_restored {
        facts.push(("context", restored.as_str().to_owned()));
    }
    if let Some(error) = &session.last_error {
        facts.push(("last error", format!("{} ({}, {})", error.message, error.code, error.at)));
    }
    let lines = facts.iter().map(|(name, value)| format!("{} {}", style.dim(&format!("{name:<11}")), one_line(value)));
    lines.collect::<Vec<_>>().join("\n")
}

/// Tokens, cost and context on one line, as far as they are known.
fn used(usage: &Usage) -> String {
    let tokens = usage.tokens.total.map(|total| format!("{total} tokens"));
    let cost = usage.cost.as_ref().map(|cost| format!("{} {}", cost.amount, cost.currency));
    let context = usage.context.map(|context| format!("context {} of {}", context.used, context.size));
    [tokens, cost, context].into_iter().flatten().collect::<Vec<_>>().join(", ")
}
