//! What agents announce of their modes, models, commands and config options: kept in their own JSON, and read by what we
//! look for.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::model::{Announced, Known, option_of};

/// What an answer or an update says about what can be chosen.
#[derive(Clone, Debug, Default)]
pub struct News {
    pub announced: Announced,
    /// Which modes, models and options there are, of those that were announced.
    pub known: Known,
    pub mode: Option<String>,
    pub model: Option<String>,
    /// The names of the commands.
    pub commands: Option<Vec<String>>,
    /// The options' current values.
    pub config_options: Option<BTreeMap<String, Value>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Fields {
    modes: Option<Box<RawValue>>,
    models: Option<Box<RawValue>>,
    available_commands: Option<Box<RawValue>>,
    config_options: Option<Box<RawValue>>,
    current_mode_id: Option<String>,
}

/// Reads an answer to `session/new`, `session/load`, `session/resume` or `session/set_config_option`, or an update. What
/// is larger than `bytes_max` is as if it were not there.
pub fn news(raw: &RawValue, bytes_max: usize) -> News {
    let mut news = News::default();
    let Ok(fields) = serde_json::from_str::<Fields>(raw.get()) else { return news };
    let fits = |raw: Option<Box<RawValue>>| {
        let raw = raw.filter(|raw| raw.get().len() <= bytes_max)?;
        let value = serde_json::from_str::<Value>(raw.get()).ok()?;
        Some((raw, value))
    };
    // Options come first: an agent that has modes or models of its own tells the current ones there.
    if let Some((raw, value)) = fits(fields.config_options)
        && let Some(options) = value.as_array()
    {
        news.read_options(options);
        news.announced.config_options = Some(raw);
    }
    if let Some((raw, value)) = fits(fields.modes).filter(|(_, value)| value.is_object()) {
        news.known.modes = Some(names(&value["availableModes"], "id"));
        news.mode = text(&value["currentModeId"]).or(news.mode);
        news.announced.modes = Some(raw);
    }
    if let Some((raw, value)) = fits(fields.models).filter(|(_, value)| value.is_object()) {
        news.known.models = Some(names(&value["availableModels"], "modelId"));
        news.model = text(&value["currentModelId"]).or(news.model);
        news.announced.models = Some(raw);
    }
    if let Some((raw, value)) = fits(fields.available_commands).filter(|(_, value)| value.is_array()) {
        news.commands = Some(names(&value, "name"));
        news.announced.commands = Some(raw);
    }
    news.mode = fields.current_mode_id.filter(|id| !id.is_empty()).or(news.mode);
    news
}

impl News {
    fn read_options(&mut self, options: &[Value]) {
        let current = |what: &str| option_of(options, what).and_then(|option| text(&option["currentValue"]));
        (self.mode, self.model) = (current("mode"), current("model"));
        let mut known = BTreeMap::new();
        let mut values = BTreeMap::new();
        for option in options {
            let Some(id) = text(&option["id"]) else { continue };
            let current = &option["currentValue"];
            if current.is_string() || current.is_boolean() {
                values.insert(id.clone(), current.clone());
            }
            known.insert(id, option_values(option));
        }
        self.known.config_options = Some(known);
        self.config_options = Some(values);
    }
}

/// The values of an option that has a list of them, which may be in groups.
fn option_values(option: &Value) -> Option<Vec<String>> {
    let list = option["options"].as_array()?;
    let groups = list.iter().filter_map(|group| group["options"].as_array()).flatten();
    Some(list.iter().chain(groups).filter_map(|value| text(&value["value"])).collect())
}

fn names(list: &Value, field: &str) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(|item| text(&item[field])).collect()
}

fn text(value: &Value) -> Option<String> {
    value.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(value: &Value) -> News {
        news(&serde_json::value::to_raw_value(value).unwrap(), 4096)
    }

    #[test]
    fn the_real_gemini_cli_announces_modes_and_models() {
        let transcript = include_str!("../../tests/data/gemini-0.61-transcript.jsonl");
        let line = transcript.lines().find(|line| line.contains("currentModelId")).unwrap();
        let entry: Value = serde_json::from_str(line).unwrap();
        let news = read(&entry["msg"]["result"]);
        assert_eq!((news.mode.as_deref(), news.model.as_deref()), (Some("default"), Some("auto")));
        assert_eq!(news.known.modes, Some(["default", "autoEdit", "yolo", "plan"].map(str::to_owned).into()));
        assert!(news.announced.models.is_some() && news.announced.commands.is_none());
    }

    #[test]
    fn options_tell_their_values_and_the_current_model() {
        let news = read(&json!({"configOptions": [
            {"id": "model", "category": "model", "type": "select", "currentValue": "a",
             "options": [{"group": "g", "name": "G", "options": [{"value": "a"}, {"value": "b"}]}]},
            {"id": "brave", "type": "boolean", "currentValue": true}, 7]}));
        assert_eq!(news.model.as_deref(), Some("a"));
        let known = news.known.config_options.unwrap();
        assert_eq!(known["model"], Some(vec!["a".to_owned(), "b".to_owned()]));
        assert_eq!(known["brave"], None);
        assert_eq!(news.config_options.unwrap()["brave"], true);
    }

    #[test]
    fn what_is_strange_or_too_large_is_not_there() {
        for strange in [json!([]), json!({"modes": 7, "models": [], "availableCommands": {}}), json!(null)] {
            let news = read(&strange);
            assert_eq!((news.known, news.mode, news.commands), (Known::default(), None, None), "{strange}");
        }
        let large = json!({"availableCommands": [{"name": "x".repeat(5000)}], "currentModeId": "plan"});
        let news = read(&large);
        assert!(news.announced.commands.is_none() && news.mode.as_deref() == Some("plan"));
    }
}
