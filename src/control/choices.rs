//! Modes, models and options as requests name them and as answers show them.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::error::ApiError;
use crate::model::{Announced, Chosen};

const NAME_CHARS_MAX: usize = 200;
const OPTIONS_MAX: usize = 64;

/// The choices that the agent offers, in its own format, with acpd's updates of the current values.
#[derive(Debug, Default, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = AgentOffers)]
pub struct Offered {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modes: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub models: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    pub commands: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    pub config_options: Option<Box<RawValue>>,
}

impl Offered {
    pub fn new(announced: Announced, mode: Option<&str>, model: Option<&str>) -> Self {
        let current = |raw: Option<Box<RawValue>>, field: &str, current: Option<&str>| {
            let mut value: Value = serde_json::from_str(raw?.get()).ok()?;
            if let (Some(object), Some(current)) = (value.as_object_mut(), current) {
                object.insert(field.to_owned(), current.into());
            }
            Some(value)
        };
        Self {
            modes: current(announced.modes, "currentModeId", mode),
            models: current(announced.models, "currentModelId", model),
            commands: announced.commands,
            config_options: announced.config_options,
        }
    }
}

/// What a request chooses, within bounds. Whether there is such a mode is for the agent to say.
pub fn chosen(
    mode: Option<String>,
    model: Option<String>,
    config_options: BTreeMap<String, Value>,
) -> Result<Chosen, ApiError> {
    for (field, name) in [("mode", &mode), ("model", &model)] {
        if let Some(name) = name {
            check_name(field, name)?;
        }
    }
    if config_options.len() > OPTIONS_MAX {
        return Err(ApiError::invalid("configOptions", format!("must be at most {OPTIONS_MAX}")));
    }
    for (id, value) in &config_options {
        check_name("configOptions", id)?;
        let field = format!("configOptions.{id}");
        match value {
            Value::String(value) => check_name(&field, value)?,
            Value::Bool(_) => {}
            _ => return Err(ApiError::invalid(field, "must be a string, true or false")),
        }
    }
    Ok(Chosen { mode, model, config_options })
}

fn check_name(field: &str, name: &str) -> Result<(), ApiError> {
    if name.is_empty() || name.chars().count() > NAME_CHARS_MAX || name.chars().any(char::is_control) {
        return Err(ApiError::invalid(field, format!("must have 1 to {NAME_CHARS_MAX} printable characters")));
    }
    Ok(())
}
