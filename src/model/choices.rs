//! What can be chosen of an agent (its modes, models and config options) and what was.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

/// What an agent announces, in its own JSON. What is absent was not announced, or is as before.
#[derive(Clone, Debug, Default)]
pub struct Announced {
    pub modes: Option<Box<RawValue>>,
    pub models: Option<Box<RawValue>>,
    pub commands: Option<Box<RawValue>>,
    pub config_options: Option<Box<RawValue>>,
}

/// What somebody chose. It is applied again to every new process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Chosen {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub config_options: BTreeMap<String, Value>,
}

impl Chosen {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// With a change made: what it does not name stays.
    pub fn changed_by(&self, change: &Self) -> Self {
        let mut config_options = self.config_options.clone();
        config_options.extend(change.config_options.clone());
        Self {
            mode: change.mode.clone().or_else(|| self.mode.clone()),
            model: change.model.clone().or_else(|| self.model.clone()),
            config_options,
        }
    }

    /// One by one, in the order in which an agent is told. Options come last, because a model may decide which there are.
    pub fn each(&self) -> Vec<Choice> {
        let mode = self.mode.clone().map(Choice::Mode);
        let model = self.model.clone().map(Choice::Model);
        let options = self.config_options.iter().map(|(id, value)| Choice::Option(id.clone(), value.clone()));
        mode.into_iter().chain(model).chain(options).collect()
    }
}

/// One thing that was chosen.
#[derive(Clone, Debug, PartialEq)]
pub enum Choice {
    Mode(String),
    Model(String),
    Option(String, Value),
}

impl Choice {
    /// The field of the interface that it comes in.
    pub fn field(&self) -> String {
        match self {
            Self::Mode(_) => "mode".to_owned(),
            Self::Model(_) => "model".to_owned(),
            Self::Option(id, _) => format!("configOptions.{id}"),
        }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mode(id) => write!(formatter, "the mode {id:?}"),
            Self::Model(id) => write!(formatter, "the model {id:?}"),
            Self::Option(id, value) => write!(formatter, "{value} for the option {id:?}"),
        }
    }
}

/// The config option in which an agent announces its modes (`what` is `mode`) or its models (`model`). Some agents announce two
/// options of the category: the one with that id counts, or else the first.
pub fn option_of<'a>(options: &'a [Value], what: &str) -> Option<&'a Value> {
    let is_named = |option: &&Value| option["id"] == what;
    let of_category = || options.iter().filter(|option| option["category"] == what);
    of_category().find(is_named).or_else(|| of_category().next()).or_else(|| options.iter().find(is_named))
}

/// Which modes, models and options there are, as far as an agent has announced them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    pub modes: Option<Vec<String>>,
    pub models: Option<Vec<String>>,
    /// With each option's values, when it has a list of them.
    pub config_options: Option<BTreeMap<String, Option<Vec<String>>>>,
}

impl Known {
    /// The names that there are in place of this one; nothing, when it is not known which there are.
    pub fn instead_of(&self, choice: &Choice) -> Option<Vec<String>> {
        match choice {
            Choice::Mode(_) => self.modes.clone(),
            Choice::Model(_) => self.models.clone(),
            Choice::Option(id, _) => {
                let options = self.config_options.as_ref()?;
                match options.get(id) {
                    Some(values) => values.clone(),
                    None => Some(options.keys().cloned().collect()),
                }
            }
        }
    }

    /// The choice of this value for the option that is called so in whatever spelling, when the agent has announced both.
    pub fn option_for(&self, name: &str, value: &str) -> Option<Choice> {
        let spelled = |text: &str| text.replace(['-', '_', ' '], "").to_ascii_lowercase();
        let (id, values) = self.config_options.iter().flatten().find(|(id, _)| spelled(id) == spelled(name))?;
        let is_offered = values.iter().flatten().any(|offered| offered == value);
        is_offered.then(|| Choice::Option(id.clone(), value.into()))
    }

    /// Whether it may be chosen, as far as is known.
    pub fn allows(&self, choice: &Choice) -> bool {
        let is_among = |names: &Option<Vec<String>>, name: &str| {
            // A list of none says nothing of which there are.
            names.as_ref().is_none_or(|names| names.is_empty() || names.iter().any(|known| known == name))
        };
        match choice {
            Choice::Mode(id) => is_among(&self.modes, id),
            Choice::Model(id) => is_among(&self.models, id),
            Choice::Option(id, value) => match &self.config_options {
                None => true,
                Some(options) => options.get(id).is_some_and(|values| match value {
                    Value::String(value) => is_among(values, value),
                    _ => values.is_none(),
                }),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_choice_is_checked_against_what_is_known() {
        let known = Known {
            modes: Some(vec!["plan".into(), "default".into()]),
            models: None,
            config_options: Some([("effort".into(), Some(vec!["low".into()])), ("brave".into(), None)].into()),
        };
        assert!(known.allows(&Choice::Mode("plan".into())) && !known.allows(&Choice::Mode("yolo".into())));
        assert!(known.allows(&Choice::Model("any".into())), "nothing is known of models");
        let option = |id: &str, value: Value| Choice::Option(id.into(), value);
        assert!(known.allows(&option("effort", json!("low"))) && known.allows(&option("brave", json!(true))));
        for bad in [option("effort", json!("high")), option("effort", json!(true)), option("other", json!("x"))] {
            assert!(!known.allows(&bad), "{bad}");
        }
        assert_eq!(known.instead_of(&option("other", json!("x"))), Some(vec!["brave".into(), "effort".into()]));
        assert_eq!(known.instead_of(&option("effort", json!("x"))), Some(vec!["low".into()]));
    }

    #[test]
    fn a_change_leaves_what_it_does_not_name() {
        let before = Chosen { mode: Some("plan".into()), model: Some("a".into()), ..Chosen::default() };
        let change = Chosen {
            model: Some("b".into()),
            config_options: [("effort".into(), json!("low"))].into(),
            ..Chosen::default()
        };
        let after = before.changed_by(&change);
        let fields: Vec<String> = after.each().iter().map(Choice::field).collect();
        assert_eq!(fields, ["mode", "model", "configOptions.effort"]);
        assert_eq!((after.mode.as_deref(), after.model.as_deref()), (Some("plan"), Some("b")));
    }
}
