//! ACP's content blocks: where their data is, how it is taken out of them and put back.
//!
//! In the record a block has, in place of its data, how large that is and what it is called (`size` and `sha256`). The
//! data itself is kept once, beside the message.

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde_json::{Map, Value};

use crate::model::block::{Blob, BlobHash, BlockKind};

/// Padding is not insisted on, because it says nothing; it is always written.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);
/// What data is called that nobody has given a type.
const UNTYPED: &str = "application/octet-stream";

/// Which kind of block it is, when it is one that we know.
pub fn kind(block: &Value) -> Option<BlockKind> {
    block.get("type").and_then(Value::as_str)?.parse().ok()
}

/// The object that holds a block's data, and the name of its field there; nothing, for kinds that have none.
fn holder(block: &mut Value) -> Option<(&mut Map<String, Value>, &'static str)> {
    match kind(block)? {
        BlockKind::Image | BlockKind::Audio => Some((block.as_object_mut()?, "data")),
        BlockKind::Resource => Some((block.get_mut("resource")?.as_object_mut()?, "blob")),
        BlockKind::Text | BlockKind::ResourceLink => None,
    }
}

/// Takes the data out of a block and leaves its name. Nothing, when the block has none; what is wrong, when it cannot be
/// read or is more than `bytes_max`, and then the block is as it was.
pub fn detach(block: &mut Value, bytes_max: usize) -> Result<Option<Blob>, String> {
    let Some((object, field)) = holder(block) else { return Ok(None) };
    let Some(text) = object.get(field).and_then(Value::as_str) else { return Ok(None) };
    // Looked at before it is decoded: what is too large is not copied first.
    let bytes = base64::decoded_len_estimate(text.trim_end_matches('=').len());
    if bytes > bytes_max.saturating_add(2) {
        return Err(format!("has about {bytes} bytes; the maximum is {bytes_max}"));
    }
    let data = BASE64.decode(text).map_err(|error| format!("is not valid base64: {error}"))?;
    if data.is_empty() {
        return Err("is empty".to_owned());
    }
    if data.len() > bytes_max {
        return Err(format!("has {} bytes; the maximum is {bytes_max}", data.len()));
    }
    let hash = BlobHash::of(&data);
    let mime_type = object.get("mimeType").and_then(Value::as_str).unwrap_or(UNTYPED).to_owned();
    object.shift_remove(field);
    object.insert("size".to_owned(), data.len().into());
    object.insert("sha256".to_owned(), hash.to_string().into());
    Ok(Some(Blob { hash, mime_type, data: data.into() }))
}

/// The name of the data that was taken out of a block.
pub fn detached(block: &Value) -> Option<BlobHash> {
    let object = match kind(block)? {
        BlockKind::Image | BlockKind::Audio => block,
        BlockKind::Resource => block.get("resource")?,
        BlockKind::Text | BlockKind::ResourceLink => return None,
    };
    object.get("sha256").and_then(Value::as_str)?.parse().ok()
}

/// Puts the data back into a block.
pub fn attach(block: &mut Value, data: &[u8]) {
    let Some((object, field)) = holder(block) else { return };
    object.shift_remove("size");
    object.shift_remove("sha256");
    object.insert(field.to_owned(), encoded(data).into());
}

/// Data as a block has it.
pub fn encoded(data: &[u8]) -> String {
    BASE64.encode(data)
}

/// Whether a block of an agent's has what its kind needs.
pub fn is_sound(block: &Value) -> bool {
    let has = |pointer: &str| block.pointer(pointer).is_some_and(Value::is_string);
    match kind(block) {
        Some(BlockKind::Text) => has("/text"),
        Some(BlockKind::Image | BlockKind::Audio) => has("/data") && has("/mimeType"),
        Some(BlockKind::ResourceLink) => has("/uri"),
        Some(BlockKind::Resource) => has("/resource/uri") && (has("/resource/text") || has("/resource/blob")),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn data_is_taken_out_and_put_back() {
        for (mut block, kept) in [
            (
                json!({"type": "image", "data": "AAEC", "mimeType": "image/png", "uri": "file:///a.png"}),
                json!({"type": "image", "mimeType": "image/png", "uri": "file:///a.png", "size": 3}),
            ),
            (
                json!({"type": "resource", "resource": {"uri": "x:y", "blob": "AAEC"}, "_meta": {"a": 1}}),
                json!({"type": "resource", "resource": {"uri": "x:y", "size": 3}, "_meta": {"a": 1}}),
            ),
        ] {
            let whole = block.clone();
            let blob = detach(&mut block, 3).unwrap().unwrap();
            assert_eq!(&blob.data[..], [0, 1, 2]);
            assert_eq!(detached(&block), Some(blob.hash));
            let mut without = block.clone();
            holder(&mut without).unwrap().0.shift_remove("sha256");
            assert_eq!(without, kept);
            attach(&mut block, &blob.data);
            assert_eq!(block, whole);
        }
    }

    #[test]
    fn what_cannot_be_taken_out_stays() {
        for (data, problem) in [
            ("AAEC", "has 3 bytes"),
            ("AAECAAECAAEC", "has about 9 bytes"),
            ("!", "is not valid base64"),
            ("", "is empty"),
        ] {
            let mut block = json!({"type": "audio", "data": data, "mimeType": "audio/wav"});
            let before = block.clone();
            let error = detach(&mut block, 2).unwrap_err();
            assert!(error.starts_with(problem), "{error}");
            assert_eq!(block, before);
        }
        let mut text = json!({"type": "text", "text": "hi", "data": "AAEC"});
        assert!(detach(&mut text, 2).unwrap().is_none());
        let mut unpadded = json!({"type": "image", "data": "AA", "mimeType": "image/png"});
        assert_eq!(detach(&mut unpadded, 2).unwrap().unwrap().data.len(), 1);
    }
}
