//! `acpd mode` and `acpd model`: what the agent offers, and what is chosen of it.

use std::collections::BTreeMap;

use clap::Args;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::cli::connection::Daemon;
use crate::cli::context::{Context, read};
use crate::cli::error::ClientError;
use crate::cli::exit::Exit;
use crate::cli::style::Paint;
use crate::cli::table::{Cell, Fit, Table};
use crate::cli::{lookup, suggest};
use crate::control::wire::{PatchSession, Session};
use crate::model::option_of;

/// List the modes of a session's agent, or switch to one
///
/// Without MODE, lists the modes and marks the current one. acpd applies the chosen mode again to every new process of the
/// session.
#[derive(Args, Debug)]
pub struct Mode {
    /// Session: id, id prefix or suffix, exact title, or - for the newest one here
    pub session: String,
    /// Mode to switch to
    #[arg(value_name = "MODE")]
    pub name: Option<String>,
}

/// List the models of a session's agent, or switch to one
///
/// Without MODEL, lists the models and marks the current one. acpd applies the chosen model again to every new process of
/// the session.
#[derive(Args, Debug)]
pub struct Model {
    /// Session: id, id prefix or suffix, exact title, or - for the newest one here
    pub session: String,
    /// Model to switch to
    #[arg(value_name = "MODEL")]
    pub name: Option<String>,
}

/// The two things that an agent may let people choose.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Mode,
    Model,
}

/// One of those that are offered.
pub struct Choice {
    pub id: String,
    pub name: String,
    pub description: String,
    pub is_current: bool,
}

/// What is offered, and the option by which it is chosen where the agent has no better way.
pub struct Offer {
    pub choices: Vec<Choice>,
    option: Option<String>,
}

/// What the session's view says of choices.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Offers {
    mode: Option<String>,
    model: Option<String>,
    modes: Value,
    models: Value,
    config_options: Value,
}

impl Mode {
    pub async fn execute(self, context: &Context) -> Result<Exit, ClientError> {
        choose(context, Kind::Mode, &self.session, self.name).await
    }
}

impl Model {
    pub async fn execute(self, context: &Context) -> Result<Exit, ClientError> {
        choose(context, Kind::Model, &self.session, self.name).await
    }
}

impl Kind {
    const fn noun(self) -> &'static str {
        match self {
            Self::Mode => "mode",
            Self::Model => "model",
        }
    }
}

impl Offers {
    pub fn of(&self, kind: Kind) -> Offer {
        let (announced, list, current, id) = match kind {
            Kind::Mode => (&self.modes, "availableModes", &self.mode, "id"),
            Kind::Model => (&self.models, "availableModels", &self.model, "modelId"),
        };
        let is_current = |id: &str| current.as_deref() == Some(id);
        let choices = choices(&announced[list], id, is_current);
        let options = self.config_options.as_array().map(Vec::as_slice).unwrap_or_default();
        let option = option_of(options, kind.noun());
        // Codex has both, with different ids, and reports a change of the model with the option only.
        let option = option.filter(|_| choices.is_empty() || kind == Kind::Model);
        let Some(option) = option else { return Offer { choices, option: None } };
        let current = option["currentValue"].as_str();
        let choices = self::choices(&option["options"], "value", |value| current == Some(value));
        Offer { choices, option: option["id"].as_str().map(str::to_owned) }
    }
}

fn choices(list: &Value, id: &str, is_current: impl Fn(&str) -> bool) -> Vec<Choice> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let one = |value: &Value| {
        let id = value[id].as_str()?.to_owned();
        let is_current = is_current(&id);
        Some(Choice { id, name: text(&value["name"]), description: text(&value["description"]), is_current })
    };
    list.as_array().map(|list| list.iter().filter_map(one).collect()).unwrap_or_default()
}

async fn choose(context: &Context, kind: Kind, session: &str, name: Option<String>) -> Result<Exit, ClientError> {
    let daemon = context.daemon().await?;
    let id = lookup::session(&daemon, session).await?;
    let view: Box<RawValue> = daemon.get(&format!("/v1/sessions/{id}")).await?;
    let offers: Offers = read(&view)?;
    let offer = offers.of(kind);
    match name {
        Some(name) => set(context, &daemon, kind, &offer, &format!("/v1/sessions/{id}"), name).await,
        None => list(context, kind, &offer, &offers),
    }
}

fn list(context: &Context, kind: Kind, offer: &Offer, offers: &Offers) -> Result<Exit, ClientError> {
    let output = context.output;
    if output.json {
        let one = |choice: &Choice| {
            serde_json::json!({"id": choice.id, "name": choice.name, "description": choice.description,
                "current": choice.is_current})
        };
        let all: Vec<Value> = offer.choices.iter().map(one).collect();
        output.print(&crate::cli::text::clean_json(&Value::from(all).to_string()))?;
        return Ok(Exit::Ok);
    }
    let mut table =
        Table::new([("", Fit::Whole), ("ID", Fit::Whole), ("NAME", Fit::IfAny), ("DESCRIPTION", Fit::CutEnd)]);
    for choice in &offer.choices {
        let (mark, paint) = if choice.is_current { ("*", Paint::Green) } else { ("", Paint::Plain) };
        let name = if choice.name == choice.id { "" } else { &choice.name };
        table.cells([
            Cell::new(mark, paint),
            Cell::new(&choice.id, paint),
            name.into(),
            choice.description.as_str().into(),
        ]);
    }
    output.print(&table.render(output.width(), output.style))?;
    if offer.choices.is_empty() {
        let noun = kind.noun();
        let current = if kind == Kind::Mode { &offers.mode } else { &offers.model };
        output.aside(&match current {
            Some(current) => format!("the {noun} is {current:?}; the agent has listed no others"),
            None => format!("the agent has listed no {noun}s; if it has any, it lists them when its process starts"),
        });
    }
    Ok(Exit::Ok)
}

async fn set(
    context: &Context,
    daemon: &Daemon,
    kind: Kind,
    offer: &Offer,
    path: &str,
    name: String,
) -> Result<Exit, ClientError> {
    let noun = kind.noun();
    let is_named = |choice: &&Choice| choice.id == name || choice.name == name;
    let chosen = match offer.choices.iter().find(is_named) {
        Some(choice) => choice.id.clone(),
        // What an agent has not told of yet may be there all the same.
        None if offer.choices.is_empty() => name,
        None => {
            let ids: Vec<&str> = offer.choices.iter().map(|choice| choice.id.as_str()).collect();
            let hint = suggest::hint(&name, ids.iter().copied(), &format!("the {noun}s are {}", ids.join(", ")));
            return Err(ClientError::local(format!("the agent has no {noun} {name:?}"), hint));
        }
    };
    let mut change = PatchSession::default();
    match (&offer.option, kind) {
        (Some(option), _) => {
            change.config_options = BTreeMap::from([(option.clone(), Value::from(chosen.clone()))]);
        }
        (None, Kind::Mode) => change.mode = Some(chosen.clone()),
        (None, Kind::Model) => change.model = Some(chosen.clone()),
    }
    let answer: Box<RawValue> = daemon.patch(path, &change).await?;
    let is_seen = context.output.stdout_is_terminal;
    context.show(&answer, |_: Session| {
        let chosen = crate::cli::text::one_line(&chosen);
        if is_seen { format!("the {noun} is now {chosen}") } else { chosen }
    })
}
