//! The document as it follows from the code: the handlers' descriptions, the schemas of the wire types, the table of failures. Only
//! tests make it, and hold what is checked in against it; a daemon that did would keep megabytes for what nobody may ask.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use utoipa::PartialSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::blocks::LogNotice;
use super::failures;
use crate::control::wire::{ErrorBody, Event};
use crate::control::{
    agents, backup, blobs, checkpoints, events, export, gc, health, import, info, messages, metrics, openapi,
    permissions, processes, records, reload, router, search, sessions, timeline, turns, workspaces,
};

macro_rules! described {
    ($($module:ident::$handler:ident),* $(,)?) => {
        OpenApiRouter::new()$(.routes(routes!($module::$handler)))*
    };
}

pub const TAGS: &[(&str, &str)] = &[
    ("daemon", "Health, information and maintenance of the daemon."),
    ("workspaces", "Directories in which sessions work."),
    ("agents", "Agents: from the configuration and made over the API."),
    ("sessions", "Conversations with an agent in a workspace."),
    ("turns", "Prompts, and everything the agent does until it has answered."),
    ("messages", "The stored conversation."),
    ("events", "Streams of events."),
    ("records", "Checkpoints of sessions, session records, and timelines."),
    ("permissions", "Permission requests of agents, their answers, and rules."),
];

/// The whole document.
pub fn document() -> Value {
    let described = router::with_every_route!(described).into_openapi();
    let mut document = serde_json::to_value(&described).unwrap_or_default();
    document["info"] = json!({
        "title": "acpd",
        "version": env!("CARGO_PKG_VERSION"),
        "description": "The HTTP API of acpd, served over its Unix socket (`acpd socket` prints the path).",
        "license": { "name": env!("CARGO_PKG_LICENSE"), "identifier": env!("CARGO_PKG_LICENSE") },
    });
    // The name of the host says nothing on a Unix socket.
    document["servers"] = json!([{ "url": "http://acpd" }]);
    document["tags"] =
        TAGS.iter().map(|(name, description)| json!({ "name": name, "description": description })).collect();
    let mut refusals = Map::new();
    for operations in document["paths"].as_object_mut().into_iter().flat_map(Map::values_mut) {
        for operation in operations.as_object_mut().into_iter().flat_map(Map::values_mut) {
            allow_no_body(operation);
            forbid_null(operation);
            add_refusals(operation, &mut refusals);
        }
    }
    let schemas = &mut document["components"]["schemas"];
    for (name, schema) in
        [("Error", ErrorBody::schema()), ("Event", Event::schema()), ("LogNotice", LogNotice::schema())]
    {
        schemas[name] = serde_json::to_value(schema).unwrap_or_default();
    }
    let [event, notice] = ["Event", "LogNotice"].map(|name| json!({ "$ref": format!("#/components/schemas/{name}") }));
    schemas["EventFrame"]["properties"]["data"]["contentSchema"] = json!({ "anyOf": [event, notice] });
    document["components"]["responses"] = Value::Object(refusals);
    document
}

/// A body that may be left out is described as one that may be null; but it is either there, whole, or it is not.
fn allow_no_body(operation: &mut Value) {
    let Some(body) = operation.get_mut("requestBody") else { return };
    let schema = &mut body["content"]["application/json"]["schema"];
    let alternative =
        schema["oneOf"].as_array().and_then(|schemas| schemas.iter().find(|schema| schema["$ref"].is_string()));
    let alternative = alternative.cloned();
    body["required"] = alternative.is_none().into();
    if let Some(alternative) = alternative {
        body["content"]["application/json"]["schema"] = alternative;
    }
}

/// A parameter that may be left out is described as one that may be null; but there is no null in a query or a header.
fn forbid_null(operation: &mut Value) {
    for parameter in operation.get_mut("parameters").and_then(Value::as_array_mut).into_iter().flatten() {
        let Some(kind) = parameter["schema"].get_mut("type") else { continue };
        let kinds = kind.as_array().cloned().unwrap_or_default();
        if let Some(only) = kinds.into_iter().find(|kind| kind != "null") {
            *kind = only;
        }
    }
}

/// Operations share their refusals as far as these are alike, so that the document stays readable.
fn add_refusals(operation: &mut Value, shared: &mut Map<String, Value>) {
    let failures = failures::of(operation["operationId"].as_str().unwrap_or_default());
    let mut by_status: BTreeMap<u16, Vec<&str>> = BTreeMap::new();
    for (status, code) in failures {
        by_status.entry(status).or_default().push(code);
    }
    let Some(responses) = operation["responses"].as_object_mut() else { return };
    for (status, codes) in by_status {
        let name = format!("{status}.{}", codes.join("."));
        responses.insert(status.to_string(), json!({ "$ref": format!("#/components/responses/{name}") }));
        shared.entry(name).or_insert_with(|| refusal(status, &codes));
    }
}

fn refusal(status: u16, codes: &[&str]) -> Value {
    let meanings: Vec<String> = codes.iter().map(|code| format!("`{code}`: {}", failures::meaning(code))).collect();
    let mut response = json!({
        "description": format!("{}.", meanings.join("; ")),
        "content": { "application/json": { "schema": {
            "allOf": [
                { "$ref": "#/components/schemas/Error" },
                { "properties": { "error": { "enum": codes } } },
            ],
        } } },
    });
    if matches!(status, 429 | 503) {
        response["headers"] = json!({ "Retry-After": {
            "description": "Seconds to wait before trying again, if known.",
            "schema": { "type": "integer", "minimum": 1 },
        } });
    }
    response
}
