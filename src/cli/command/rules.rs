//! `acpd rules`: what a session's agent was allowed or refused for good.

use clap::Args;
use serde_json::value::RawValue;

use crate::cli::account;
use crate::cli::context::{Context, read};
use crate::cli::error::ClientError;
use crate::cli::exit::Exit;
use crate::cli::lookup;
use crate::cli::question::{self, Found};
use crate::cli::style::Paint;
use crate::cli::table::{Cell, Fit, Table};
use crate::cli::text::{age, short_id};
use crate::control::wire::permissions::{PermissionRule, PermissionRuleList};
use crate::model::permission::question::{Decider, Decision};
use crate::model::permission::shown;
use crate::model::{RuleId, Timestamp};

/// List or revoke the rules made by answering "always"
#[derive(Args, Debug)]
pub struct Rules {
    /// Session: id, id prefix or suffix, exact title, or - for the newest one here
    pub session: String,
    /// Revoke the rule with this id, id prefix or suffix, and print its id
    #[arg(long, value_name = "RULE")]
    pub revoke: Option<String>,
}

impl Rules {
    pub async fn execute(self, context: &Context) -> Result<Exit, ClientError> {
        let daemon = context.daemon().await?;
        let session = lookup::session(&daemon, &self.session).await?;
        let path = format!("/v1/sessions/{session}/rules");
        let answer: Box<RawValue> = daemon.get(&path).await?;
        if let Some(name) = &self.revoke {
            let id = chosen(read::<PermissionRuleList>(&answer)?.rules, name)?;
            let revoked: Box<RawValue> = daemon.delete(&format!("{path}/{id}")).await?;
            return context.show(&revoked, |rule: PermissionRule| rule.id.to_string());
        }
        let output = context.output;
        let exit = context
            .show(&answer, |list: PermissionRuleList| table(&list.rules).render(output.width(), output.style))?;
        if read::<PermissionRuleList>(&answer)?.rules.is_empty() {
            output.aside("no rules; `acpd approve --always` adds one");
        }
        Ok(exit)
    }
}

fn chosen(rules: Vec<PermissionRule>, name: &str) -> Result<RuleId, ClientError> {
    match question::among(rules, |rule| rule.id, name) {
        Found::One(rule) => Ok(rule.id),
        Found::None => {
            Err(ClientError::local(format!("the session has no rule {name:?}"), "`acpd rules SESSION` lists them"))
        }
        Found::Several(rules) => {
            let ids: Vec<String> = rules.iter().map(|rule| short_id(rule.id)).collect();
            let message = format!("{} rules match {name:?}: {}", rules.len(), ids.join(", "));
            Err(ClientError::local(message, "give a longer part of the id"))
        }
    }
}

fn table(rules: &[PermissionRule]) -> Table {
    let now = Timestamp::now();
    let mut table = Table::new([
        ("ID", Fit::Whole),
        ("AGE", Fit::Number),
        ("DECISION", Fit::Whole),
        ("MATCHES", Fit::CutEnd),
        ("BY", Fit::CutEnd),
    ]);
    for rule in rules {
        let decision = match rule.decision {
            Decision::Allow => "allow",
            Decision::Reject => "reject",
        };
        let paint = if rule.decision == Decision::Allow { Paint::Green } else { Paint::Red };
        table.cells([
            short_id(rule.id).into(),
            age(rule.made_at, now).into(),
            Cell::new(decision, paint),
            subject(rule).into(),
            account::decided_by(&Decider::Person(rule.made_by.clone())).into(),
        ]);
    }
    table
}

/// The kind and the one of three that the rule goes by.
fn subject(rule: &PermissionRule) -> String {
    let kind = serde_json::to_value(rule.subject.kind).ok();
    let kind = kind.as_ref().and_then(|kind| kind.as_str()).unwrap_or("other");
    let cwd = Some(rule.subject.cwd.as_str()).filter(|cwd| !cwd.is_empty());
    let shown = |command| shown::with_surroundings(shown::command_text(command), cwd, &rule.subject.env);
    let command = rule.subject.command.as_ref().map(shown);
    let paths = rule.subject.paths.as_ref().map(|paths| paths.join(", "));
    let named = command.or(paths).or_else(|| rule.subject.tool.clone()).unwrap_or_default();
    shown::visible_line(&format!("{kind}: {named}"))
}
