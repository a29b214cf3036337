//! Fuzzing of what agents send: any bytes, and JSON that nearly makes sense. `PROPTEST_CASES=1000000 cargo test fuzz` runs
//! it for long (docs/fuzzing.md).
//!
//! What must hold: nothing panics; the next good line is read whatever came before it, however the bytes arrive; no more is
//! kept than is bounded; the short way of text and the long way agree; and what is understood means the same when it is
//! written down and read again.

pub mod json;

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio_util::codec::Decoder;

use super::update::UpdateParams;
use super::{Chunk, Envelope, Line, LineCodec, Update, choices, client, content, incoming, outgoing, update, usage};

const LINE_MAX: usize = 64;
const GOOD: &str = r#"{"jsonrpc":"2.0","id":7,"result":{"ok":true}}"#;

/// What the codec is to make of a stream, said as simply as it can be.
fn model(input: &[u8]) -> Vec<Line> {
    let item = |line: &[u8]| {
        if line.len() > LINE_MAX {
            return Some(Line::TooLong { bytes: line.len() });
        }
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        (!line.iter().all(u8::is_ascii_whitespace)).then(|| Line::Text(Bytes::copy_from_slice(line)))
    };
    input.split(|byte| *byte == b'\n').filter_map(item).collect()
}

/// Feeds the input in pieces of these sizes, again and again.
fn decoded(input: &[u8], pieces: &[usize]) -> Vec<Line> {
    let mut codec = LineCodec::new(LINE_MAX, Arc::new(Semaphore::new(0)));
    let (mut buffer, mut lines, mut rest) = (BytesMut::new(), Vec::new(), input);
    for piece in pieces.iter().cycle() {
        let (now, later) = rest.split_at((*piece).clamp(1, rest.len().max(1)).min(rest.len()));
        buffer.extend_from_slice(now);
        while let Some(line) = codec.decode(&mut buffer).unwrap() {
            lines.push(line);
        }
        assert!(buffer.len() <= LINE_MAX, "what is too long is not kept");
        rest = later;
        if rest.is_empty() {
            break;
        }
    }
    while let Some(line) = codec.decode_eof(&mut buffer).unwrap() {
        lines.push(line);
    }
    lines
}

/// Everything that may be done with a line of an agent's.
fn understand(line: &str) {
    let chunk = Chunk::read(line);
    let envelope = Envelope::parse(line);
    if let Some(chunk) = chunk {
        let Envelope::Notification { method, params: Some(params) } = &envelope else {
            panic!("a piece of text is no notification: {line}")
        };
        assert_eq!(method, "session/update");
        let params: UpdateParams<'_> = serde_json::from_str(params.get()).unwrap();
        assert_eq!(params.session_id, chunk.session_id);
        let long = match Update::read(params.update) {
            Update::AgentText { text } => (false, text),
            Update::AgentThought { text } => (true, text),
            other => panic!("the two ways differ: {other:?} for {line}"),
        };
        assert_eq!(long, (chunk.is_thought, chunk.text));
    }
    match envelope {
        Envelope::Request { id, method, params } => {
            assert_one_line(&outgoing::success(id, json!({"a\n": "\u{2028}\r\n"})));
            assert_one_line(&outgoing::failure(id, -1, "no\nway"));
            assert_one_line(&outgoing::permission(id, Some("x\ny")));
            let params = params.unwrap_or(RawValue::NULL);
            drop(client::read(&method, params));
            drop(incoming::permission_request(params));
            drop(incoming::elicitation_message(params));
            let method = json!(method);
            assert_means_the_same(line, &format!(r#"{{"id":{id},"method":{method},"params":{params}}}"#));
        }
        Envelope::Notification { method, params } => {
            let raw = params.unwrap_or(RawValue::NULL);
            drop(incoming::cancelled_request(raw));
            if let Ok(params) = serde_json::from_str::<UpdateParams<'_>>(raw.get()) {
                read_update(params.update);
            }
            let method = json!(method);
            assert_means_the_same(line, &format!(r#"{{"method":{method},"params":{raw}}}"#));
        }
        Envelope::Answer { id, outcome } => {
            let whole = match outcome {
                Ok(result) => {
                    drop(incoming::initialized(result));
                    drop(incoming::session_id(result));
                    drop(incoming::stop_reason(result));
                    let _ = usage::of_answer(result);
                    drop(choices::news(result, LINE_MAX));
                    format!(r#"{{"id":{id},"result":{result}}}"#)
                }
                // An error of another shape is told in its own words, and those may be any.
                Err(error) => json!({"id": id, "error": error}).to_string(),
            };
            assert_means_the_same(line, &whole);
        }
        Envelope::Noise => {}
    }
}

fn read_update(raw: &RawValue) {
    let _ = update::is_conversation(raw);
    drop(choices::news(raw, LINE_MAX));
    drop(usage::update(raw));
    if let Update::AgentBlock(mut block) = Update::read(raw) {
        let (_, whole) = (content::is_sound(&block), block.clone());
        if let Ok(Some(blob)) = content::detach(&mut block, LINE_MAX) {
            assert!(blob.data.len() <= LINE_MAX && content::detached(&block) == Some(blob.hash));
            content::attach(&mut block, &blob.data);
            assert_eq!(content::kind(&block), content::kind(&whole));
        }
    }
}

fn assert_one_line(line: &Bytes) {
    assert!(line.ends_with(b"\n") && !line[..line.len() - 1].contains(&b'\n'), "{line:?}");
}

/// What was understood of a line, written down, is understood in the same way.
fn assert_means_the_same(line: &str, written: &str) {
    assert_eq!(meaning(line), meaning(written), "{line} became {written}");
}

fn meaning(line: &str) -> String {
    // Raw JSON may have spaces in it, and numbers in other spellings: its value is what counts.
    let value = |raw: &RawValue| {
        serde_json::from_str::<Value>(raw.get()).map_or_else(|_| raw.get().to_owned(), |v| v.to_string())
    };
    match Envelope::parse(line) {
        Envelope::Request { id, method, params } => {
            format!("request {} {method} {}", value(id), params.map_or_else(|| "null".to_owned(), value))
        }
        Envelope::Notification { method, params } => {
            format!("notification {method} {}", params.map_or_else(|| "null".to_owned(), value))
        }
        Envelope::Answer { id, outcome: Ok(result) } => format!("answer {id} {}", value(result)),
        Envelope::Answer { id, outcome: Err(error) } => format!("error {id} {error:?}"),
        Envelope::Noise => "noise".to_owned(),
    }
}

/// Bytes in which line ends are common.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![2 => Just(b'\n'), 1 => Just(b'\r'), 2 => Just(b' '), 3 => Just(b'{'), 8 => any::<u8>()];
    proptest::collection::vec(byte, 0..200)
}

proptest! {
    #[test]
    fn fuzz_codec_is_its_model_however_bytes_arrive(
        input in bytes(),
        pieces in proptest::collection::vec(1_usize..120, 1..6),
    ) {
        prop_assert_eq!(decoded(&input, &pieces), model(&input));
    }

    #[test]
    fn fuzz_codec_reads_the_next_good_line(
        before in bytes(),
        pieces in proptest::collection::vec(1_usize..120, 1..6),
    ) {
        let mut input = before;
        input.extend_from_slice(b"\n");
        input.extend_from_slice(GOOD.as_bytes());
        input.extend_from_slice(b"\n");
        let lines = decoded(&input, &pieces);
        let Some(Line::Text(last)) = lines.last() else { panic!("no last line") };
        let last = std::str::from_utf8(last).unwrap();
        prop_assert!(matches!(Envelope::parse(last), Envelope::Answer { id: 7, outcome: Ok(_) }), "{}", last);
    }

    #[test]
    fn fuzz_codec_splits_a_line_at_every_point(line in json::acp_line(), after in json::acp_line()) {
        let input = format!("{line}\r\n\n{after}\n").into_bytes();
        let expected = model(&input);
        for at in 1..input.len().min(2 * LINE_MAX) {
            prop_assert_eq!(&decoded(&input, &[at, input.len()]), &expected, "split at {}", at);
        }
    }

    #[test]
    fn fuzz_envelope_any_text(line in "\\PC{0,200}") {
        understand(&line);
    }

    #[test]
    fn fuzz_envelope_any_json(line in json::value()) {
        understand(&line);
    }

    #[test]
    fn fuzz_envelope_acp(line in json::acp_line()) {
        understand(&line);
    }

    #[test]
    fn fuzz_envelope_acp_damaged(line in json::damaged(json::acp_line())) {
        understand(&String::from_utf8_lossy(&line));
    }

    #[test]
    fn fuzz_envelope_after_noise(noise in "[^{\\PC]{0,40}", line in json::acp_line()) {
        // A line that is JSON as a whole is not noise, whatever it begins with.
        let noisy = format!("{noise}{line}");
        understand(&noisy);
        if serde_json::from_str::<&RawValue>(&noisy).is_err() && line.starts_with('{') {
            prop_assert_eq!(meaning(&noisy), meaning(&line));
        }
    }
}
