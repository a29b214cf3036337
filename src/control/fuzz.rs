//! Fuzzing of what clients send: bodies for every request that has one, blocks of content, and queries.
//! `PROPTEST_CASES=1000000 cargo test fuzz` runs it for long (docs/fuzzing.md).
//!
//! What must hold: nothing panics; what is refused is 400 in the one shape, and when it is JSON at all, with the name of a
//! field; and what is accepted means the same when it is written down and read again.

use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::error::ApiError;
use super::extract::{PageQuery, from_json, from_query, page};
use super::wire::permissions::AnswerPermission;
use super::wire::{
    AddMessage, BackUp, Cancel, CollectGarbage, CreateAgent, CreateSession, ImportSessions, PatchAgent, PatchSession,
    Prompt, RegisterWorkspace,
};
use super::{content, events, health, permissions, search, sessions, turns};
use crate::acp::fuzz::json;
use crate::config::Config;
use crate::model::Content;

/// The names of the fields that requests have.
fn names() -> BoxedStrategy<&'static str> {
    proptest::sample::select(vec![
        "workspace",
        "workspaceId",
        "agent",
        "title",
        "tags",
        "permissions",
        "limits",
        "mode",
        "model",
        "configOptions",
        "context",
        "start",
        "text",
        "content",
        "role",
        "turnId",
        "queued",
        "path",
        "dryRun",
        "sessions",
        "optionId",
        "decision",
        "always",
        "action",
        "rules",
        "turnCap",
        "toolCallCap",
        "costLimit",
        "activeFile",
        "selection",
        "file",
        "startLine",
        "endLine",
        "gitRef",
        "fsScope",
        "variables",
        "type",
        "data",
        "mimeType",
        "uri",
        "resource",
        "blob",
        "name",
        "_meta",
        "annotations",
        "allow",
        "deny",
        "ask",
        "unknown",
        "",
    ])
    .boxed()
}

/// Values that some field takes, and others.
fn values() -> BoxedStrategy<String> {
    let known = proptest::sample::select(vec![
        r#""/tmp""#,
        r#""lazy""#,
        r#""eager""#,
        r#""user""#,
        r#""system""#,
        r#""ask""#,
        r#""deny""#,
        r#""sandboxed""#,
        r#""full""#,
        r#""allow""#,
        r#""reject""#,
        r#""accept""#,
        r#""01890000-0000-7000-8000-000000000000""#,
        r#"["a","b"]"#,
        "true",
        "[]",
        "{}",
        r#"{"mode":"ask"}"#,
        r#"{"turnCap":3}"#,
        r#"{"a":"b"}"#,
        r#"{"file":"a","startLine":1,"endLine":2}"#,
        "7",
        "\"\"",
    ]);
    prop_oneof![4 => known.prop_map(str::to_owned), 2 => json::value()].boxed()
}

fn body() -> BoxedStrategy<Vec<u8>> {
    let inner = prop_oneof![3 => values(), 1 => json::object(names(), values())];
    let object = json::object(names(), inner);
    prop_oneof![
        6 => object.clone().prop_map(String::into_bytes),
        2 => json::damaged(object),
        1 => json::value().prop_map(String::into_bytes),
        1 => proptest::collection::vec(any::<u8>(), 0..60),
    ]
    .boxed()
}

/// One block of content, or nearly one.
fn block() -> BoxedStrategy<String> {
    let kinds = proptest::sample::select(vec!["text", "image", "audio", "resource", "resource_link", "other"]);
    let data = proptest::sample::select(vec!["AAEC", "AA", "!", "", "AAECAAECAAEC"]);
    let resource =
        json::object(proptest::sample::select(vec!["uri", "text", "blob", "mimeType", "_meta"]).boxed(), values());
    let made = (kinds, data, values(), resource).prop_map(|(kind, data, more, resource)| match kind {
        "text" => format!(r#"{{"type":"text","text":{more}}}"#),
        "image" | "audio" => format!(r#"{{"type":"{kind}","data":"{data}","mimeType":"a/b","uri":{more}}}"#),
        "resource" => format!(r#"{{"type":"resource","resource":{resource}}}"#),
        _ => format!(r#"{{"type":"{kind}","uri":"file:///a","name":"a","size":{more}}}"#),
    });
    prop_oneof![3 => made, 1 => json::object(names(), values())].boxed()
}

/// A refusal is 400, in the one shape; it names a field when there was one to name.
fn assert_told(error: ApiError, must_name: bool, input: &[u8]) {
    let input = String::from_utf8_lossy(input);
    let (status, told) = error.told();
    assert_eq!((status.as_u16(), told.error.as_str()), (400, "invalid_request"), "{input}");
    assert!(!told.message.is_empty() && !told.hint.is_empty(), "{input}");
    let field = told.details["field"].as_str().expect("there is a field, if only an empty one");
    // A name may be empty, and then it is named.
    let is_named = !field.is_empty() || told.message.contains("field ``");
    assert!(!must_name || is_named, "no field is named: {} for {input}", told.message);
}

fn is_object(body: &[u8]) -> bool {
    serde_json::from_slice::<Value>(body).is_ok_and(|value| value.is_object())
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Option<T> {
    match from_json(body) {
        Ok(request) => Some(request),
        Err(error) => {
            assert_told(error, is_object(body), body);
            None
        }
    }
}

/// Reads a body, and what was understood of it again.
fn read_twice<T: DeserializeOwned + Serialize>(body: &[u8]) {
    let Some(first) = read::<T>(body) else { return };
    let written = serde_json::to_vec(&first).unwrap();
    let second: T =
        from_json(&written).unwrap_or_else(|_| panic!("not read again: {}", String::from_utf8_lossy(&written)));
    let (first, second) = (serde_json::to_value(&first).unwrap(), serde_json::to_value(&second).unwrap());
    let (first, second) = (rounded(first), rounded(second));
    assert_eq!(first, second, "{}", String::from_utf8_lossy(body));
}

/// The last digit of a fraction may change when it is read: `serde_json` trades that for speed.
fn rounded(value: Value) -> Value {
    match value {
        Value::Number(number) if number.is_f64() => format!("{:.10e}", number.as_f64().unwrap()).into(),
        Value::Array(values) => values.into_iter().map(rounded).collect(),
        Value::Object(fields) => fields.into_iter().map(|(name, value)| (name, rounded(value))).collect(),
        other => other,
    }
}

fn ask<T: DeserializeOwned>(query: &str) {
    if let Err(error) = from_query::<T>(query) {
        assert_told(error, false, query.as_bytes());
    }
}

proptest! {
    #[test]
    fn fuzz_body_of_every_request(body in body()) {
        read_twice::<CreateSession>(&body);
        read_twice::<PatchSession>(&body);
        read_twice::<CreateAgent>(&body);
        read_twice::<PatchAgent>(&body);
        read_twice::<Prompt>(&body);
        read_twice::<Cancel>(&body);
        read_twice::<RegisterWorkspace>(&body);
        read_twice::<CollectGarbage>(&body);
        read_twice::<BackUp>(&body);
        read_twice::<ImportSessions>(&body);
        read_twice::<AnswerPermission>(&body);
        drop(read::<AddMessage>(&body));
    }

    #[test]
    fn fuzz_content_of_prompts(blocks in proptest::collection::vec(block(), 0..5), text in any::<bool>()) {
        let text = if text { r#","text":"hi""# } else { "" };
        let body = format!(r#"{{"content":[{}]{text}}}"#, blocks.join(","));
        let limits = Config::default().limits;
        if let Some(request) = read::<Prompt>(body.as_bytes()) {
            match content::prompt(request, &limits) {
                Ok(checked) => {
                    prop_assert!(checked.blobs.iter().all(|blob| blob.data.len() <= limits.media_max.0));
                    if let Content::Blocks { blocks } = &checked.content {
                        let has_data = |block: &Value| {
                            let holder = if block["type"] == "resource" { &block["resource"] } else { block };
                            holder.get("blob").is_some() || (block["type"] != "resource_link" && holder.get("data").is_some())
                        };
                        prop_assert!(!blocks.iter().any(has_data), "data stays in the record: {}", body);
                    }
                }
                Err(error) => assert_told(error, true, body.as_bytes()),
            }
        }
    }

    #[test]
    fn fuzz_query_of_every_list(
        pairs in proptest::collection::vec((names_of_queries(), "\\PC{0,12}|-?[0-9]{0,22}|true|false|live|all|open"), 0..5),
        raw in "\\PC{0,40}",
    ) {
        let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(&pairs).finish();
        for query in [query.as_str(), raw.as_str()] {
            ask::<sessions::ListQuery>(query);
            ask::<sessions::MessagesQuery>(query);
            ask::<sessions::RemoveQuery>(query);
            ask::<turns::ShowQuery>(query);
            ask::<events::EventsQuery>(query);
            ask::<permissions::ListQuery>(query);
            ask::<search::SearchRequest>(query);
            ask::<health::HealthQuery>(query);
            if let Ok(PageQuery { limit, offset }) = from_query(query)
                && let Ok((limit, offset)) = page(limit, offset)
            {
                prop_assert!((1..=1000).contains(&limit) && offset >= 0);
            }
        }
    }
}

fn names_of_queries() -> impl Strategy<Value = &'static str> {
    proptest::sample::select(vec![
        "limit",
        "offset",
        "workspaceId",
        "agent",
        "status",
        "tag",
        "name",
        "includeArchived",
        "after",
        "since",
        "follow",
        "wait",
        "purge",
        "reason",
        "q",
        "probe",
        "sessionId",
        "all",
        "role",
        "",
    ])
}
