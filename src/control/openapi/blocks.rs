//! What requests may hold that is checked by hand and not read into a type. These types are for the document alone.
#![expect(dead_code, reason = "only their schemas are used")]

use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::model::Timestamp;

/// A frame of a stream. Its `data` is the JSON of an event.
#[derive(Serialize, ToSchema)]
pub struct EventFrame {
    /// The cursor from which a stream goes on after this.
    id: String,
    /// The type of the event.
    event: String,
    #[schema(content_media_type = "application/json")]
    data: String,
}

/// What is told about the log itself, in place of an event: `log.reset` and `log.compacted`.
#[derive(Serialize, ToSchema)]
pub struct LogNotice {
    #[serde(rename = "type")]
    kind: String,
    #[schema(value_type = Object)]
    data: Value,
}

/// The value of one of the agent's config options.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub enum OptionValue {
    Text(String),
    Switch(bool),
}

/// A block of a prompt, as ACP has it. What is optional may be null.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub enum ContentBlock {
    Text(TextBlock),
    Image(ImageBlock),
    Audio(AudioBlock),
    ResourceLink(ResourceLinkBlock),
    Resource(ResourceBlock),
}

#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TextBlock {
    #[serde(rename = "type")]
    #[schema(pattern = "^text$")]
    kind: String,
    text: String,
    #[schema(value_type = Option<Object>)]
    annotations: Option<Value>,
    #[schema(value_type = Option<Object>)]
    _meta: Option<Value>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ImageBlock {
    #[serde(rename = "type")]
    #[schema(pattern = "^image$")]
    kind: String,
    /// Base64.
    #[schema(min_length = 1)]
    data: String,
    /// Begins with `image/`.
    mime_type: String,
    uri: Option<String>,
    #[schema(value_type = Option<Object>)]
    annotations: Option<Value>,
    #[serde(rename = "_meta")]
    #[schema(value_type = Option<Object>)]
    meta: Option<Value>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AudioBlock {
    #[serde(rename = "type")]
    #[schema(pattern = "^audio$")]
    kind: String,
    /// Base64.
    #[schema(min_length = 1)]
    data: String,
    /// Begins with `audio/`.
    mime_type: String,
    #[schema(value_type = Option<Object>)]
    annotations: Option<Value>,
    #[serde(rename = "_meta")]
    #[schema(value_type = Option<Object>)]
    meta: Option<Value>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ResourceLinkBlock {
    #[serde(rename = "type")]
    #[schema(pattern = "^resource_link$")]
    kind: String,
    uri: String,
    name: String,
    mime_type: Option<String>,
    title: Option<String>,
    description: Option<String>,
    size: Option<u64>,
    #[schema(value_type = Option<Object>)]
    annotations: Option<Value>,
    #[serde(rename = "_meta")]
    #[schema(value_type = Option<Object>)]
    meta: Option<Value>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ResourceBlock {
    #[serde(rename = "type")]
    #[schema(pattern = "^resource$")]
    kind: String,
    resource: EmbeddedResource,
    #[schema(value_type = Option<Object>)]
    annotations: Option<Value>,
    #[serde(rename = "_meta")]
    #[schema(value_type = Option<Object>)]
    meta: Option<Value>,
}

/// Exactly one of `text` and `blob`, which is base64.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EmbeddedResource {
    uri: String,
    mime_type: Option<String>,
    text: Option<String>,
    blob: Option<String>,
    #[serde(rename = "_meta")]
    #[schema(value_type = Option<Object>)]
    meta: Option<Value>,
}

/// A record of a session. What else it has is kept.
#[derive(Serialize, ToSchema)]
pub struct SessionRecord {
    #[schema(min_length = 5, max_length = 512)]
    session_id: String,
    actions: Vec<RecordAction>,
    checkpoints: Option<Vec<RecordCheckpoint>>,
    outcomes: Option<Vec<RecordOutcome>>,
    /// In seconds.
    duration: Option<f64>,
    started_at: Option<Timestamp>,
    /// Of a session of acpd's own, null while it can go on.
    ended_at: Option<Timestamp>,
    /// Of a session of acpd's own: whether older actions or states were left out.
    truncated: Option<bool>,
}

#[derive(Serialize, ToSchema)]
pub struct RecordAction {
    #[serde(rename = "type")]
    kind: String,
    /// `success`, `failure` or `warning` of a session of acpd's own.
    result: String,
    #[schema(value_type = Option<Object>)]
    details: Option<Value>,
    timestamp: Option<Timestamp>,
}

#[derive(Serialize, ToSchema)]
pub struct RecordCheckpoint {
    name: String,
    timestamp: Timestamp,
    #[schema(value_type = Option<Object>)]
    state: Option<Value>,
}

#[derive(Serialize, ToSchema)]
pub struct RecordOutcome {
    #[serde(rename = "type")]
    kind: String,
    /// What it is about.
    id: Option<String>,
    #[schema(value_type = Option<Object>)]
    details: Option<Value>,
}
