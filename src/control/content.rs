//! What a prompt may be made of: each block is checked field by field, and what is wrong is named by its path. The data of
//! media is taken out of the blocks here, before anything is kept.

use serde_json::{Map, Value};

use super::error::ApiError;
use super::wire::Prompt;
use crate::acp::content;
use crate::config;
use crate::model::{Blob, BlockKind, Content};

pub const BLOCKS_MAX: usize = 64;
const MIME_TYPE_BYTES_MAX: usize = 255;
/// About what a number or a truth weighs in JSON.
const SCALAR_BYTES: usize = 8;
/// The quotes or brackets around a value, and the comma or colon after it: an empty value is not free.
const FRAME_BYTES: usize = 3;

/// A prompt's content, and the data that it names.
#[derive(Debug)]
pub struct Checked {
    pub content: Content,
    pub blobs: Vec<Blob>,
}

/// A text, also as the only field of the content, or blocks as ACP has them. Whether the agent takes them is its session's to say.
pub fn prompt(request: Prompt, limits: &config::Limits) -> Result<Checked, ApiError> {
    let Prompt { text, content, context: _ } = request;
    match (text, content) {
        (Some(text), None) => checked_text("text", text, limits),
        (None, Some(Value::Array(blocks))) => checked_blocks(blocks, limits),
        (None, Some(Value::Object(mut object))) => {
            check_fields("content", &mut object, fields(BlockKind::Text))?;
            checked_text("content.text", object["text"].as_str().unwrap_or_default().to_owned(), limits)
        }
        (None, Some(_)) => {
            Err(ApiError::invalid("content", "must be a list of content blocks, or an object with a text"))
        }
        (None, None) => Err(ApiError::invalid("text", "is missing; give text or content")),
        (Some(_), Some(_)) => Err(ApiError::invalid("content", "cannot be given together with text")),
    }
}

/// The text of a message that is nothing but text, in whichever of the two ways it is given.
pub fn text_only(request: Prompt, limits: &config::Limits) -> Result<String, ApiError> {
    match prompt(request, limits)?.content {
        Content::Text { text, .. } => Ok(text),
        Content::Blocks { blocks } => {
            let text = |(index, block): (usize, &Value)| match content::kind(block) {
                Some(BlockKind::Text) => Ok(block["text"].as_str().unwrap_or_default().to_owned()),
                _ => Err(ApiError::invalid(format!("content[{index}].type"), "must be text in a system message")),
            };
            let texts: Vec<String> = blocks.iter().enumerate().map(text).collect::<Result<_, _>>()?;
            Ok(texts.join("\n"))
        }
        // Nothing else is ever made of a prompt.
        _ => Err(ApiError::invalid("content", "must be text")),
    }
}

fn checked_text(field: &str, text: String, limits: &config::Limits) -> Result<Checked, ApiError> {
    if text.trim().is_empty() {
        return Err(ApiError::invalid(field, "is empty"));
    }
    within_prompt_max(field, text.len(), limits)?;
    Ok(Checked { content: Content::text(text), blobs: Vec::new() })
}

fn checked_blocks(mut blocks: Vec<Value>, limits: &config::Limits) -> Result<Checked, ApiError> {
    if blocks.is_empty() || blocks.len() > BLOCKS_MAX {
        return Err(ApiError::invalid("content", format!("must have 1 to {BLOCKS_MAX} blocks")));
    }
    let mut blobs = Vec::new();
    let (mut bytes, mut is_empty) = (0, true);
    for (index, block) in blocks.iter_mut().enumerate() {
        let path = format!("content[{index}]");
        let kind = check_block(&path, block)?;
        bytes += weight(block);
        let field = if kind == BlockKind::Resource { "resource.blob" } else { "data" };
        let blob = content::detach(block, limits.media_max.0).map_err(|problem| {
            let setting = if problem.contains("the maximum is") { " (limits.media_max)" } else { "" };
            ApiError::invalid(format!("{path}.{field}"), format!("{problem}{setting}"))
        })?;
        blobs.extend(blob);
        is_empty &= kind == BlockKind::Text && block["text"].as_str().is_some_and(|text| text.trim().is_empty());
    }
    if is_empty {
        return Err(ApiError::invalid("content", "must not be empty"));
    }
    within_prompt_max("content", bytes, limits)?;
    Ok(Checked { content: Content::Blocks { blocks }, blobs })
}

fn within_prompt_max(field: &str, bytes: usize, limits: &config::Limits) -> Result<(), ApiError> {
    let bytes_max = limits.prompt_max.0;
    if bytes <= bytes_max {
        return Ok(());
    }
    let besides = if field.ends_with("text") { "" } else { " without its media" };
    let problem = format!("has {bytes} bytes{besides}; the maximum is {bytes_max} (limits.prompt_max)");
    let hint = format!(
        "put long text in a file of the workspace and name the file in the prompt, or attach it with `--attach FILE`; or \
         raise limits.prompt_max, which is {}: `acpd config set limits.prompt_max 4MiB`",
        limits.prompt_max
    );
    Err(ApiError::misunderstood(field, problem, hint))
}

/// What a block weighs without its media: its texts, and whatever else is said in it. The names of the fields that ACP
/// has are not the prompt's.
fn weight(block: &Value) -> usize {
    fn all(value: &Value) -> usize {
        match value {
            Value::String(text) => FRAME_BYTES + text.len(),
            Value::Array(values) => FRAME_BYTES + values.iter().map(all).sum::<usize>(),
            Value::Object(fields) => {
                let weigh = |(name, value): (&String, &Value)| FRAME_BYTES + name.len() + all(value);
                FRAME_BYTES + fields.iter().map(weigh).sum::<usize>()
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => SCALAR_BYTES,
        }
    }
    let fields = block.as_object().into_iter().flatten();
    let weigh = |(name, value): (&String, &Value)| match name.as_str() {
        "type" | "data" | "blob" => 0,
        "resource" => weight(value),
        // A text of the block's own weighs what it would in a prompt that is nothing but text.
        _ => value.as_str().map_or_else(|| all(value), str::len),
    };
    fields.map(weigh).sum()
}

/// What a field of a block must be.
#[derive(Clone, Copy)]
enum Field {
    Needed,
    Optional,
    Number,
    /// Passed on as it is.
    Object,
}

/// The fields that each kind of block has, beside `type`, `annotations` and `_meta`.
const fn fields(kind: BlockKind) -> &'static [(&'static str, Field)] {
    match kind {
        BlockKind::Text => &[("text", Field::Needed)],
        BlockKind::Image => &[("data", Field::Needed), ("mimeType", Field::Needed), ("uri", Field::Optional)],
        BlockKind::Audio => &[("data", Field::Needed), ("mimeType", Field::Needed)],
        BlockKind::ResourceLink => &[
            ("uri", Field::Needed),
            ("name", Field::Needed),
            ("mimeType", Field::Optional),
            ("title", Field::Optional),
            ("description", Field::Optional),
            ("size", Field::Number),
        ],
        BlockKind::Resource => &[("resource", Field::Object)],
    }
}

const RESOURCE: &[(&str, Field)] = &[
    ("uri", Field::Needed),
    ("mimeType", Field::Optional),
    ("text", Field::Optional),
    ("blob", Field::Optional),
    ("_meta", Field::Object),
];

fn check_block(path: &str, block: &mut Value) -> Result<BlockKind, ApiError> {
    let object = block.as_object_mut().ok_or_else(|| ApiError::invalid(path, "must be a JSON object"))?;
    let kind = object.get("type").ok_or_else(|| ApiError::invalid(format!("{path}.type"), "is missing"))?;
    let kind = kind.as_str().ok_or_else(|| ApiError::invalid(format!("{path}.type"), "must be a string"))?;
    let kind: BlockKind = kind.parse().map_err(|problem: String| ApiError::invalid(format!("{path}.type"), problem))?;
    let everywhere = [("type", Field::Needed), ("annotations", Field::Object), ("_meta", Field::Object)];
    let known: Vec<(&str, Field)> = fields(kind).iter().copied().chain(everywhere).collect();
    check_fields(path, object, &known)?;
    match kind {
        BlockKind::Image => check_family(path, object, "image/")?,
        BlockKind::Audio => check_family(path, object, "audio/")?,
        BlockKind::Resource => check_resource(&format!("{path}.resource"), object.get_mut("resource"))?,
        BlockKind::Text | BlockKind::ResourceLink => {}
    }
    Ok(kind)
}

fn check_resource(path: &str, resource: Option<&mut Value>) -> Result<(), ApiError> {
    let object = resource.and_then(Value::as_object_mut).ok_or_else(|| ApiError::invalid(path, "is missing"))?;
    check_fields(path, object, RESOURCE)?;
    match (object.get("text"), object.get("blob")) {
        (Some(_), None) | (None, Some(_)) => Ok(()),
        (None, None) => Err(ApiError::invalid(format!("{path}.text"), "is missing; give text or blob")),
        (Some(_), Some(_)) => Err(ApiError::invalid(format!("{path}.blob"), "cannot be given together with text")),
    }
}

/// ACP lets what is optional be null, which says as much as its absence and is taken out.
fn check_fields(path: &str, object: &mut Map<String, Value>, known: &[(&str, Field)]) -> Result<(), ApiError> {
    let wrong = |name: &str, problem: &str| Err(ApiError::invalid(format!("{path}.{name}"), problem));
    if let Some(name) = object.keys().find(|name| known.iter().all(|(known, _)| known != name)) {
        let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
        return wrong(name, &format!("is unknown; the fields are {}", names.join(", ")));
    }
    object.retain(|_, value| !value.is_null());
    for (name, field) in known {
        match (object.get(*name), field) {
            (None, Field::Needed) => return wrong(name, "is missing"),
            (None, Field::Optional | Field::Number | Field::Object) => {}
            (Some(value), Field::Needed | Field::Optional) if !value.is_string() => {
                return wrong(name, "must be a string");
            }
            (Some(value), Field::Number) if !value.is_u64() => return wrong(name, "must be a whole number, 0 or more"),
            (Some(value), Field::Object) if !value.is_object() => return wrong(name, "must be a JSON object"),
            (Some(_), _) => {}
        }
    }
    match object.get("mimeType").and_then(Value::as_str) {
        Some(mime_type) if !is_mime_type(mime_type) => wrong("mimeType", "must be a media type such as text/plain"),
        _ => Ok(()),
    }
}

/// Whether a picture is called one, and a sound one.
fn check_family(path: &str, object: &Map<String, Value>, family: &str) -> Result<(), ApiError> {
    let mime_type = object.get("mimeType").and_then(Value::as_str).unwrap_or_default();
    if mime_type.starts_with(family) {
        return Ok(());
    }
    Err(ApiError::invalid(format!("{path}.mimeType"), format!("must start with {family}")))
}

/// `family/name`, with parameters perhaps: printable, and short enough for a header.
fn is_mime_type(text: &str) -> bool {
    let is_token = |part: &str| {
        let is_mark = |byte: u8| b"!#$&-^_.+".contains(&byte);
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || is_mark(byte))
    };
    let essence = text.split(';').next().unwrap_or_default().trim_end();
    let is_printable = text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    let named = essence.split_once('/').is_some_and(|(family, name)| is_token(family) && is_token(name));
    named && is_printable && text.len() <= MIME_TYPE_BYTES_MAX
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config::{ByteSize, Config};

    fn check(content: Value) -> Result<Checked, String> {
        let mut limits = Config::default().limits;
        (limits.prompt_max, limits.media_max) = (ByteSize(150), ByteSize(6));
        prompt(Prompt { content: Some(content), ..Prompt::default() }, &limits).map_err(|error| match error {
            ApiError::Invalid { field, problem } | ApiError::Misunderstood { field, problem, hint: _ } => {
                format!("{field}: {problem}")
            }
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn every_kind_of_block_is_taken_with_what_acp_gives_it() {
        let checked = check(json!([
            {"type": "text", "text": "look", "annotations": {"priority": 1}, "_meta": {}},
            {"type": "image", "data": "AAEC", "mimeType": "image/png", "uri": "file:///a.png"},
            {"type": "audio", "data": "AAEC", "mimeType": "audio/wav"},
            {"type": "resource_link", "uri": "file:///a", "name": "a", "mimeType": "text/plain", "size": 3},
            {"type": "resource", "resource": {"uri": "x:a", "text": "hi", "mimeType": "text/x-rust; charset=utf-8"}},
            {"type": "resource", "resource": {"uri": "x:b", "blob": "AAEC"}},
        ]))
        .unwrap();
        assert_eq!(checked.blobs.len(), 3);
        assert!(!serde_json::to_string(&checked.content).unwrap().contains("AAEC"));
    }

    #[test]
    fn what_is_optional_may_be_null_and_is_absent_then() {
        let checked = check(json!([
            {"type": "text", "text": "x", "annotations": null, "_meta": null},
            {"type": "resource_link", "uri": "x:a", "name": "a", "mimeType": null, "title": null, "size": null},
            {"type": "resource", "resource": {"uri": "x:b", "text": "y", "blob": null, "mimeType": null}},
        ]))
        .unwrap();
        let expected = json!([
            {"type": "text", "text": "x"},
            {"type": "resource_link", "uri": "x:a", "name": "a"},
            {"type": "resource", "resource": {"uri": "x:b", "text": "y"}},
        ]);
        assert_eq!(serde_json::to_value(&checked.content).unwrap()["blocks"], expected);
    }

    #[test]
    fn what_is_wrong_is_named_by_its_path() {
        let image = |data: &str, mime_type: &str| json!({"type": "image", "data": data, "mimeType": mime_type});
        let text = json!({"type": "text", "text": "x"});
        for (content, problem) in [
            (json!([]), "content: must have 1 to 64 blocks"),
            (json!([text, 7]), "content[1]: must be a JSON object"),
            (json!([{"text": "x"}]), "content[0].type: is missing"),
            (json!([{"type": "video"}]), "content[0].type: \"video\" is not a kind of content block"),
            (json!([{"type": "text"}]), "content[0].text: is missing"),
            (json!([{"type": "text", "text": "x", "size": 1}]), "content[0].size: is unknown"),
            (json!([{"type": "text", "text": " "}]), "content: must not be empty"),
            (json!([text, image("A", "image/png")]), "content[1].data: is not valid base64"),
            (json!([image("", "image/png")]), "content[0].data: is empty"),
            (
                json!([image("AAECAAECAAEC", "image/png")]),
                "content[0].data: has about 9 bytes; the maximum is 6 (limits",
            ),
            (json!([{"type": "image", "data": "AAEC"}]), "content[0].mimeType: is missing"),
            (json!([image("AAEC", "text/html")]), "content[0].mimeType: must start with image/"),
            (json!([image("AAEC", "image/a\nb")]), "content[0].mimeType: must be a media type"),
            (json!([image("AAEC", "image")]), "content[0].mimeType: must be a media type"),
            (json!([{"type": "resource_link", "uri": "x:y"}]), "content[0].name: is missing"),
            (
                json!([{"type": "resource_link", "uri": "x:y", "name": "n", "size": -1}]),
                "content[0].size: must be a whole number",
            ),
            (json!([{"type": "resource"}]), "content[0].resource: is missing"),
            (json!([{"type": "resource", "resource": {"uri": "x:y"}}]), "content[0].resource.text: is missing"),
            (json!([{"type": "resource", "resource": {"text": "x"}}]), "content[0].resource.uri: is missing"),
            (
                json!([{"type": "resource", "resource": {"uri": "x:y", "text": "a", "blob": "b"}}]),
                "content[0].resource.blob: cannot be given together",
            ),
            (
                json!([{"type": "resource", "resource": {"uri": "x:y", "blob": "?"}}]),
                "content[0].resource.blob: is not valid base64",
            ),
            (json!([{"type": "text", "text": "x", "annotations": 1}]), "content[0].annotations: must be a JSON object"),
            (json!([{"type": "text", "text": "x".repeat(151)}]), "content: has 151 bytes without its media"),
            (json!([{"type": "text", "text": "x", "_meta": {"a": "x".repeat(150)}}]), "content: has 161 bytes"),
            (json!([{"type": "text", "text": "x", "_meta": {"a": vec![json!([]); 50]}}]), "content: has 161 bytes"),
            (json!([{"type": "text", "text": "x", "_meta": {"a": vec![json!({}); 50]}}]), "content: has 161 bytes"),
            (json!([{"type": "text", "text": "x", "_meta": {"a": vec![json!(""); 50]}}]), "content: has 161 bytes"),
            (json!([{"type": "text", "text": null}]), "content[0].text: is missing"),
            (json!([{"type": "text", "text": "x", "size": null}]), "content[0].size: is unknown"),
        ] {
            let error = check(content).unwrap_err();
            assert!(error.starts_with(problem), "{error}\n{problem}");
        }
    }
}
