//! What requests may hold that is checked by hand and not read into a type. These types are for the document alone.
#![expect(dead_code, reason = "only their schemas are used")]

use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::model::Timestamp;

/// A frame of an event stream. Its `data` is the JSON of an event.
#[derive(Serialize, ToSchema)]
pub struct EventFrame {
    /// The cursor from which a stream continues after this frame.
    id: String,
    /// The type of the event.
    event: String,
    #[schema(content_media_type = "application/json")]
    data: String,
}

/// A notice about the event log itself, sent instead of an event: `log.reset` or `log.compacted`.
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

/// A list of 1 to 64 content blocks, or an object with the text alone.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub enum PromptContent {
    Blocks(Vec<ContentBlock>),
    Text(PlainText),
}

#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PlainText {
    text: String,
}

/// A content block of a prompt, as defined by ACP. Optional fields may be null.
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
    /// Starts with `image/`.
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
    /// Starts with `audio/`.
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

/// Exactly one of `text` and `blob` is present. `blob` is base64.
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

/// A session record. Other fields are stored too. Earlier versions also accepted records without `started_at`, with numbers as
/// `id`, and with other values than objects as `details` and `state`.
#[derive(Serialize, ToSchema)]
pub struct SessionRecord {
    #[schema(min_length = 5, max_length = 512)]
    session_id: String,
    #[schema(min_items = 1)]
    actions: Vec<RecordAction>,
    checkpoints: Option<Vec<RecordCheckpoint>>,
    outcomes: Option<Vec<RecordOutcome>>,
    /// Duration in seconds.
    duration: Option<f64>,
    /// Required in a submitted record.
    started_at: Option<Timestamp>,
    /// For a session of acpd: null while the session can continue.
    ended_at: Option<Timestamp>,
    /// For a session of acpd: whether older actions or states were omitted.
    truncated: Option<bool>,
}

#[derive(Serialize, ToSchema)]
pub struct RecordAction {
    #[serde(rename = "type")]
    kind: String,
    /// `success`, `failure` or `warning` for a session of acpd.
    result: String,
    details: Option<Value>,
    timestamp: Option<Timestamp>,
}

#[derive(Serialize, ToSchema)]
pub struct RecordCheckpoint {
    name: String,
    timestamp: Timestamp,
    state: Option<Value>,
}

#[derive(Serialize, ToSchema)]
pub struct RecordOutcome {
    #[serde(rename = "type")]
    kind: String,
    /// The entity that the outcome concerns, a string.
    id: Option<Value>,
    details: Option<Value>,
}
