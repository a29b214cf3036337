//! What a record from outside must be. Every rule names its field; what it does not name is not looked at.

use serde_json::{Map, Value};

use crate::model::time::Timestamp;

pub const SESSION_ID_CHARS_MIN: usize = 5;
pub const SESSION_ID_CHARS_MAX: usize = 512;
/// Characters of a word, such as a type or a result.
const WORD_CHARS_MAX: usize = 512;
pub const ACTIONS_MAX: usize = 10_000;
pub const CHECKPOINTS_MAX: usize = 1000;
pub const OUTCOMES_MAX: usize = 1000;
/// Seconds by which a duration may differ from the time between start and end before anybody is told.
const DURATION_TOLERANCE: f64 = 1.0;
/// Warnings that are told at the most.
const WARNINGS_MAX: usize = 100;
/// Characters that are told back of a value that is wrong.
const VALUE_CHARS_MAX: usize = 200;

/// Of a fraction of a second, with its point: nanoseconds.
const FRACTION_CHARS_MAX: usize = 10;

const TIME: &str = "an RFC 3339 time such as 2026-01-31T12:00:00Z";

/// What a document is refused for.
#[derive(Clone, Debug, PartialEq)]
pub struct Invalid {
    /// Where, such as `actions[0].result`.
    pub field: String,
    /// What is there, or its beginning.
    pub value: Value,
    pub expected: String,
    pub message: String,
}

/// A warning about a document that was accepted.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct Warning {
    pub field: String,
    pub message: String,
}

pub type Check = fn(&Map<String, Value>) -> Result<Vec<Warning>, Box<Invalid>>;

/// Checks a document rule by rule, and reports the first rule that it breaks.
pub fn check(document: &Map<String, Value>) -> Result<Vec<Warning>, Box<Invalid>> {
    let warnings = check_exported(document)?;
    for (name, field) in [("actions", "details"), ("checkpoints", "state"), ("outcomes", "id"), ("outcomes", "details")]
    {
        for (index, entry) in list(document, name, usize::MAX)?.iter().enumerate() {
            let value = entry.get(field).filter(|value| !value.is_null());
            let (is_right, expected) = match field {
                "id" => (value.is_none_or(Value::is_string), "a string"),
                _ => (value.is_none_or(Value::is_object), "an object"),
            };
            if !is_right {
                return Err(invalid(&format!("{name}[{index}].{field}"), value, expected));
            }
        }
    }
    let started = document.get("started_at");
    time("started_at", started)?.ok_or_else(|| invalid("started_at", started, TIME))?;
    Ok(warnings)
}

/// The rules of every version of acpd. Exports have records that earlier versions accepted.
pub fn check_exported(document: &Map<String, Value>) -> Result<Vec<Warning>, Box<Invalid>> {
    session_id(document.get("session_id"))?;
    let actions = list(document, "actions", ACTIONS_MAX)?;
    if actions.is_empty() {
        // The specification of the format has these words.
        let (expected, message) = ("min_length: 1".to_owned(), "Actions array must have at least 1 item".to_owned());
        return Err(Box::new(Invalid { expected, message, ..*invalid("actions", document.get("actions"), "") }));
    }
    for (index, action) in actions.iter().enumerate() {
        let at = format!("actions[{index}]");
        let action = object(&at, action)?;
        word(&format!("{at}.type"), action.get("type"))?;
        word(&format!("{at}.result"), action.get("result"))?;
        time(&format!("{at}.timestamp"), action.get("timestamp"))?;
    }
    let mut checkpoints = Vec::new();
    for (index, checkpoint) in list(document, "checkpoints", CHECKPOINTS_MAX)?.iter().enumerate() {
        let at = format!("checkpoints[{index}]");
        let checkpoint = object(&at, checkpoint)?;
        word(&format!("{at}.name"), checkpoint.get("name"))?;
        let field = format!("{at}.timestamp");
        let value = checkpoint.get("timestamp");
        let time = time(&field, value)?.ok_or_else(|| invalid(&field, value, TIME))?;
        checkpoints.push((field, time));
    }
    for (index, outcome) in list(document, "outcomes", OUTCOMES_MAX)?.iter().enumerate() {
        let at = format!("outcomes[{index}]");
        word(&format!("{at}.type"), object(&at, outcome)?.get("type"))?;
    }
    let started = time("started_at", document.get("started_at"))?;
    let ended = time("ended_at", document.get("ended_at"))?;
    if started.zip(ended).is_some_and(|(started, ended)| ended < started) {
        return Err(invalid("ended_at", document.get("ended_at"), "a time not before started_at"));
    }
    let duration = duration(document.get("duration"))?;
    Ok(warnings(started, ended, duration, checkpoints))
}

fn warnings(
    started: Option<Timestamp>,
    ended: Option<Timestamp>,
    duration: Option<f64>,
    checkpoints: Vec<(String, Timestamp)>,
) -> Vec<Warning> {
    let mut warnings = Vec::new();
    if let (Some(started), Some(ended), Some(duration)) = (started, ended, duration) {
        let between = ended.since(started).as_secs_f64();
        if (duration - between).abs() > DURATION_TOLERANCE {
            let message = format!("is {duration} seconds, but started_at and ended_at are {between} apart");
            warnings.push(Warning { field: "duration".to_owned(), message });
        }
    }
    for (field, at) in checkpoints {
        let is_before = started.is_some_and(|started| at < started);
        if is_before || ended.is_some_and(|ended| at > ended) {
            let message = if is_before { "is before started_at" } else { "is after ended_at" };
            warnings.push(Warning { field, message: message.to_owned() });
        }
    }
    warnings.truncate(WARNINGS_MAX);
    warnings
}

fn session_id(value: Option<&Value>) -> Result<(), Box<Invalid>> {
    let length = value.and_then(Value::as_str).map(|id| id.chars().count());
    if length.is_some_and(|length| (SESSION_ID_CHARS_MIN..=SESSION_ID_CHARS_MAX).contains(&length)) {
        return Ok(());
    }
    let expected = format!("a string of {SESSION_ID_CHARS_MIN} to {SESSION_ID_CHARS_MAX} characters");
    Err(invalid("session_id", value, &expected))
}

/// A list that may be left out.
fn list<'a>(document: &'a Map<String, Value>, field: &str, count_max: usize) -> Result<&'a [Value], Box<Invalid>> {
    let value = document.get(field);
    match value {
        None | Some(Value::Null) => Ok(&[]),
        Some(Value::Array(values)) if values.len() <= count_max => Ok(values),
        Some(_) => Err(invalid(field, value, &format!("a list of at most {count_max}"))),
    }
}

fn object<'a>(field: &str, value: &'a Value) -> Result<&'a Map<String, Value>, Box<Invalid>> {
    value.as_object().ok_or_else(|| invalid(field, Some(value), "an object"))
}

fn word(field: &str, value: Option<&Value>) -> Result<(), Box<Invalid>> {
    let text = value.and_then(Value::as_str);
    if text.is_some_and(|text| !text.trim().is_empty() && text.chars().count() <= WORD_CHARS_MAX) {
        return Ok(());
    }
    Err(invalid(field, value, &format!("a string of 1 to {WORD_CHARS_MAX} characters")))
}

/// A time that may be left out.
fn time(field: &str, value: Option<&Value>) -> Result<Option<Timestamp>, Box<Invalid>> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => rfc3339(text).map(Some).ok_or_else(|| invalid(field, value, TIME)),
        Some(_) => Err(invalid(field, value, TIME)),
    }
}

fn duration(value: Option<&Value>) -> Result<Option<f64>, Box<Invalid>> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_f64().filter(|duration| *duration > 0.0) {
            Some(duration) => Ok(Some(duration)),
            None => Err(invalid("duration", Some(value), "a number of seconds greater than 0")),
        },
    }
}

/// A whole time with its offset. Parsers of other forms take more than that.
pub fn rfc3339(text: &str) -> Option<Timestamp> {
    let (date, rest) = text.split_at_checked(10)?;
    let is_date = date.bytes().enumerate().all(|(index, byte)| match index {
        4 | 7 => byte == b'-',
        _ => byte.is_ascii_digit(),
    });
    let rest = rest.strip_prefix(['T', 't', ' '])?;
    let (clock, rest) = rest.split_at_checked(8)?;
    let is_clock = clock.bytes().enumerate().all(|(index, byte)| match index {
        2 | 5 => byte == b':',
        _ => byte.is_ascii_digit(),
    });
    let offset = match rest.strip_prefix('.') {
        Some(fraction) => {
            let offset = fraction.trim_start_matches(|digit: char| digit.is_ascii_digit());
            if offset.len() == fraction.len() {
                return None;
            }
            offset
        }
        None => rest,
    };
    let is_offset = match offset.as_bytes() {
        [b'Z' | b'z'] => true,
        [b'+' | b'-', hours @ .., b':', tens, ones] => {
            hours.len() == 2 && hours.iter().chain([tens, ones]).all(u8::is_ascii_digit) && hours < b"24".as_slice()
        }
        _ => false,
    };
    // There may be more digits than anybody can tell apart.
    let fraction = rest.strip_suffix(offset)?;
    let fraction = fraction.get(..FRACTION_CHARS_MAX).unwrap_or(fraction);
    if is_date && is_clock && is_offset { format!("{date}T{clock}{fraction}{offset}").parse().ok() } else { None }
}

fn invalid(field: &str, value: Option<&Value>, expected: &str) -> Box<Invalid> {
    let message = match value {
        None => format!("{field} is missing; it must be {expected}"),
        Some(_) => format!("{field} must be {expected}"),
    };
    let value = value.map_or(Value::Null, shortened);
    Box::new(Invalid { field: field.to_owned(), value, expected: expected.to_owned(), message })
}

/// The value, or the beginning of its JSON when that is long.
fn shortened(value: &Value) -> Value {
    let text = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    match text.char_indices().nth(VALUE_CHARS_MAX) {
        Some((end, _)) => Value::String(format!("{}…", text.get(..end).unwrap_or_default())),
        None => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn good() -> Value {
        json!({
            "session_id": "s-100",
            "actions": [{"type": "edit", "result": "success", "timestamp": "2026-01-01T00:00:05Z", "details": {}}],
            "checkpoints": [{"name": "half", "timestamp": "2026-01-01T00:00:30.5+00:00", "state": {"a": 1}}],
            "outcomes": [{"type": "issue", "id": "ISSUE-1"}],
            "started_at": "2026-01-01T00:00:00Z",
            "ended_at": "2026-01-01T00:01:00Z",
            "duration": 60,
            "tool": {"of": "another"},
        })
    }

    /// The document with another value at a place, or without one.
    fn with(path: &str, value: Option<Value>) -> Map<String, Value> {
        let mut document = good();
        let (parent, name) = path.rsplit_once('/').unwrap();
        match document.pointer_mut(parent).unwrap() {
            Value::Object(fields) => match value {
                Some(value) => drop(fields.insert(name.to_owned(), value)),
                None => drop(fields.remove(name)),
            },
            Value::Array(values) => values[name.parse::<usize>().unwrap()] = value.unwrap(),
            other => panic!("{other}"),
        }
        document.as_object().unwrap().clone()
    }

    #[test]
    fn every_rule_is_refused_with_its_field() {
        let long = || json!("x".repeat(1000));
        let cases: Vec<(&str, Option<Value>, &str)> = vec![
            ("/session_id", None, "session_id"),
            ("/session_id", Some(json!("s-10")), "session_id"),
            ("/session_id", Some(json!(12345)), "session_id"),
            ("/session_id", Some(long()), "session_id"),
            ("/actions", None, "actions"),
            ("/actions", Some(json!(null)), "actions"),
            ("/actions", Some(json!([])), "actions"),
            ("/actions", Some(json!("edit")), "actions"),
            ("/actions", Some(Value::Array(vec![json!({}); ACTIONS_MAX + 1])), "actions"),
            ("/actions/0", Some(json!("edit")), "actions[0]"),
            ("/actions/0/type", None, "actions[0].type"),
            ("/actions/0/type", Some(json!("  ")), "actions[0].type"),
            ("/actions/0/result", None, "actions[0].result"),
            ("/actions/0/result", Some(json!("")), "actions[0].result"),
            ("/actions/0/result", Some(json!(true)), "actions[0].result"),
            ("/actions/0/result", Some(long()), "actions[0].result"),
            ("/actions/0/timestamp", Some(json!("yesterday")), "actions[0].timestamp"),
            ("/actions/0/timestamp", Some(json!(5)), "actions[0].timestamp"),
            ("/checkpoints", Some(json!({})), "checkpoints"),
            ("/checkpoints", Some(Value::Array(vec![json!({}); CHECKPOINTS_MAX + 1])), "checkpoints"),
            ("/checkpoints/0", Some(json!(1)), "checkpoints[0]"),
            ("/checkpoints/0/name", None, "checkpoints[0].name"),
            ("/checkpoints/0/timestamp", None, "checkpoints[0].timestamp"),
            ("/checkpoints/0/timestamp", Some(json!("2026-01-01")), "checkpoints[0].timestamp"),
            ("/outcomes", Some(json!("issue")), "outcomes"),
            ("/outcomes", Some(Value::Array(vec![json!({}); OUTCOMES_MAX + 1])), "outcomes"),
            ("/outcomes/0", Some(json!(null)), "outcomes[0]"),
            ("/outcomes/0/type", None, "outcomes[0].type"),
            ("/started_at", None, "started_at"),
            ("/started_at", Some(json!("2026-01-01T00:00:00")), "started_at"),
            ("/ended_at", Some(json!("2026-13-01T00:00:00Z")), "ended_at"),
            ("/ended_at", Some(json!("2025-12-31T23:59:59Z")), "ended_at"),
            ("/duration", Some(json!(0)), "duration"),
            ("/duration", Some(json!(-1.5)), "duration"),
            ("/duration", Some(json!("60")), "duration"),
        ];
        for (path, value, field) in cases {
            let refused = check(&with(path, value.clone())).expect_err(path);
            assert_eq!(refused.field, field, "{path}: {value:?}");
            assert!(refused.value.to_string().chars().count() <= VALUE_CHARS_MAX + 3, "{refused:?}");
            let is_told = refused.message.starts_with(field) && refused.message.contains(&refused.expected);
            assert!(is_told || refused.expected == "min_length: 1", "{refused:?}");
        }
    }

    #[test]
    fn what_is_optional_may_be_left_out_or_null_and_a_result_is_any_word() {
        assert_eq!(check(good().as_object().unwrap()), Ok(vec![]));
        for field in ["checkpoints", "outcomes", "ended_at", "duration"] {
            assert_eq!(check(&with(&format!("/{field}"), None)), Ok(vec![]), "{field}");
            assert_eq!(check(&with(&format!("/{field}"), Some(json!(null)))), Ok(vec![]), "{field}");
        }
        assert_eq!(check(&with("/actions/0/result", Some(json!("skipped")))), Ok(vec![]));
    }

    #[test]
    fn another_duration_and_a_checkpoint_outside_only_warn() {
        let fields = |document| check(&document).unwrap().into_iter().map(|warning| warning.field).collect::<Vec<_>>();
        assert_eq!(fields(with("/duration", Some(json!(90)))), ["duration"]);
        assert_eq!(fields(with("/duration", Some(json!(60.9)))), Vec::<String>::new());
        for outside in ["2025-12-31T23:59:59Z", "2026-01-01T00:01:01Z"] {
            let document = with("/checkpoints/0/timestamp", Some(json!(outside)));
            assert_eq!(fields(document), ["checkpoints[0].timestamp"], "{outside}");
        }
    }

    #[test]
    fn only_whole_times_are_taken() {
        for time in ["2026-01-31T12:00:00Z", "2026-01-31t12:00:00.123456789z", "2026-01-31 12:00:00+01:30"] {
            assert!(rfc3339(time).is_some(), "{time}");
        }
        assert_eq!(rfc3339("2026-01-31T12:00:00.1239999999999-23:59"), rfc3339("2026-02-01T11:59:00.123Z"));
        let wrong = [
            "",
            "Z",
            "2026-01-31",
            "2026-01-31T12:00Z",
            "2026-01-31T12:00:00",
            "2026-01-31T12:00:00.Z",
            "2026-01-31T12:00:00+0100",
            "2026-01-31T12:00:00+24:00",
            "2026-01-31T12:00:00+01:60",
            "2026-01-31T12:00:00+01:00[Europe/Paris]",
            "2026-02-31T12:00:00Z",
            "+002026-01-31T12:00:00Z",
            "2026-01-31T24:00:01Z",
            "２026-01-31T12:00:00Z",
            "20260131T120000Z",
        ];
        for time in wrong {
            assert_eq!(rfc3339(time), None, "{time}");
        }
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::Bool),
            any::<f64>().prop_map(|number| json!(number)),
            any::<String>().prop_map(Value::String),
            "[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9:.]{8}[Zz+0-9:]{0,6}".prop_map(Value::String),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            let names = prop::sample::select(vec!["type", "result", "timestamp", "name", "details", "id"]);
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
                prop::collection::vec((names, inner), 0..4)
                    .prop_map(|fields| fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()),
            ]
        })
    }

    proptest! {
        #[test]
        fn no_document_makes_it_panic(
            place in prop::sample::select(vec!["/session_id", "/actions", "/actions/0", "/actions/0/timestamp",
                "/checkpoints", "/checkpoints/0", "/outcomes", "/started_at", "/ended_at", "/duration"]),
            value in any_json(),
        ) {
            let document = with(place, Some(value));
            let _verdict = check(&document);
            crate::model::record::outcomes(&document);
            crate::model::record::checkpoints(&document);
        }

        #[test]
        fn no_text_makes_the_clock_panic(text in any::<String>(), time in "[-0-9TtZz:.+ ]{0,40}") {
            rfc3339(&text);
            rfc3339(&time);
        }
    }
}
