//! Records of sessions (`agent_session`): documents that other tools read and write, in the words that those know. Their
//! fields are `snake_case`, and what acpd does not know in them is kept.
//!
//! [`validate`] says what a document from outside must be, [`derive`] makes one of acpd's own session; here is what
//! observations of one session become together.

pub mod derive;
pub mod validate;

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::time::Timestamp;

/// Observations that one session may have.
pub const OBSERVATIONS_MAX: i64 = 1000;
/// Sessions of which one user may submit records.
pub const ENTITIES_MAX: i64 = 100_000;
/// What the observations of one session may come to together, field by field, as a multiple of what one may be.
pub const SNAPSHOT_MULTIPLE_MAX: usize = 4;
/// Characters of an outcome's id by which it is found.
const REFERENCE_CHARS_MAX: usize = 1024;

/// The snapshot after another observation: of each field the latest counts. A field that is null says nothing.
pub fn merged(mut snapshot: Map<String, Value>, observation: &Map<String, Value>) -> Map<String, Value> {
    for (field, value) in observation.iter().filter(|(_, value)| !value.is_null()) {
        snapshot.insert(field.clone(), value.clone());
    }
    snapshot
}

/// By what an observation is recognized, however its fields are ordered and spaced.
pub fn content_hash(content: &Map<String, Value>) -> [u8; 32] {
    Sha256::digest(sorted(&Value::Object(content.clone())).to_string()).into()
}

fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields: BTreeMap<&String, &Value> = fields.iter().collect();
            Value::Object(fields.into_iter().map(|(name, value)| (name.clone(), sorted(value))).collect())
        }
        Value::Array(values) => Value::Array(values.iter().map(sorted).collect()),
        other => other.clone(),
    }
}

/// A time in a document, if it is one.
pub fn time(value: Option<&Value>) -> Option<Timestamp> {
    validate::rfc3339(value?.as_str()?)
}

/// The name of the session in a document.
pub fn session_id(document: &Map<String, Value>) -> &str {
    document.get("session_id").and_then(Value::as_str).unwrap_or_default()
}

/// A checkpoint or an outcome of a document, for a timeline.
#[derive(Clone, Debug, PartialEq)]
pub struct Moment {
    /// What an outcome is about.
    pub reference: Option<String>,
    pub at: Option<Timestamp>,
    pub data: Value,
}

/// The checkpoints of a document. Their states are left out: a timeline tells when, not what.
pub fn checkpoints(document: &Map<String, Value>) -> Vec<Moment> {
    let moment = |checkpoint: &Value| {
        let mut data = checkpoint.as_object().cloned().unwrap_or_default();
        data.shift_remove("state");
        Moment { reference: None, at: time(checkpoint.get("timestamp")), data: Value::Object(data) }
    };
    listed(document, "checkpoints").iter().map(moment).collect()
}

/// The outcomes of a document. An outcome has the time that its details give it.
pub fn outcomes(document: &Map<String, Value>) -> Vec<Moment> {
    let moment = |outcome: &Value| Moment {
        reference: reference(outcome.get("id")),
        at: time(outcome.get("details").and_then(|details| details.get("timestamp"))),
        data: outcome.clone(),
    };
    listed(document, "outcomes").iter().map(moment).collect()
}

/// Other programs number what they make.
fn reference(id: Option<&Value>) -> Option<String> {
    let text = match id? {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return None,
    };
    (1..=REFERENCE_CHARS_MAX).contains(&text.chars().count()).then_some(text)
}

fn listed<'a>(document: &'a Map<String, Value>, field: &str) -> &'a [Value] {
    document.get(field).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn map(value: &Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn of_each_field_the_latest_counts_and_null_says_nothing() {
        let first = map(&json!({"session_id": "s-100", "duration": 1, "tool": "x", "outcomes": [{"type": "a"}]}));
        let second = map(&json!({"session_id": "s-100", "duration": 2, "tool": null, "outcomes": [], "more": true}));
        let snapshot = merged(merged(Map::new(), &first), &second);
        let expected = json!({"session_id": "s-100", "duration": 2, "tool": "x", "outcomes": [], "more": true});
        assert_eq!(Value::Object(snapshot), expected);
    }

    #[test]
    fn the_same_content_has_the_same_hash() {
        let hash = |text: &str| content_hash(&map(&serde_json::from_str(text).unwrap()));
        assert_eq!(hash(r#"{"a": 1, "b": {"c": [1, 2], "d": null}}"#), hash(r#"{"b":{"d":null,"c":[1,2]},"a":1}"#));
        assert_ne!(hash(r#"{"a": [1, 2]}"#), hash(r#"{"a": [2, 1]}"#));
    }

    #[test]
    fn moments_have_their_times_and_what_they_are_about() {
        let document = map(&json!({
            "checkpoints": [{"name": "half", "timestamp": "2026-01-01T00:00:01Z", "state": {"big": 1}}],
            "outcomes": [{"type": "issue", "id": 7, "details": {"timestamp": "2026-01-01T00:00:02+00:00"}},
                {"type": "note", "details": "none"}],
        }));
        let [checkpoint] = checkpoints(&document).try_into().unwrap();
        assert_eq!(checkpoint.at, Some("2026-01-01T00:00:01Z".parse().unwrap()));
        assert_eq!(checkpoint.data, json!({"name": "half", "timestamp": "2026-01-01T00:00:01Z"}));
        let [issue, note] = outcomes(&document).try_into().unwrap();
        assert_eq!((issue.reference.as_deref(), issue.at), (Some("7"), Some("2026-01-01T00:00:02Z".parse().unwrap())));
        assert_eq!((note.reference, note.at), (None, None));
    }
}
