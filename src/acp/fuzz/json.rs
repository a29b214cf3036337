//! JSON as texts, so that it can have what a value cannot: names that are there twice, numbers at the edges, halves of
//! surrogate pairs, depth without end.

use proptest::prelude::*;
use serde_json::json;

/// Numbers at the edges, and what only looks like one.
fn number() -> impl Strategy<Value = String> {
    let edges = [
        "0",
        "-0",
        "1",
        "-1",
        "1.0",
        "1e2",
        "0.1",
        "-0.0",
        "255",
        "65536",
        "4294967296",
        "9007199254740993",
        "9223372036854775807",
        "9223372036854775808",
        "-9223372036854775809",
        "18446744073709551615",
        "18446744073709551616",
        "1e308",
        "1e309",
        "-1e400",
        "1e-400",
        "00",
        "01",
        "+1",
        "1.",
        ".5",
        "NaN",
        "Infinity",
        "-",
    ];
    prop_oneof![
        3 => proptest::sample::select(edges.to_vec()).prop_map(str::to_owned),
        2 => any::<i64>().prop_map(|number| number.to_string()),
        1 => any::<f64>().prop_map(|number| number.to_string()),
    ]
}

fn string() -> impl Strategy<Value = String> {
    let odd = [
        r#""\ud800""#,
        r#""\udc00\ud800""#,
        r#""\u0000""#,
        r#""\/""#,
        r#""\u007f""#,
        "\"\u{2028}\"",
        r#""\ud83d\ude00""#,
        r#""\x""#,
        r#""\u12""#,
        "\"\u{feff}\"",
        r#""""#,
    ];
    prop_oneof![
        1 => proptest::sample::select(odd.to_vec()).prop_map(str::to_owned),
        2 => ".{0,20}".prop_map(|text| json!(text).to_string()),
        2 => word().prop_map(|text| json!(text).to_string()),
    ]
}

/// Words that mean something to somebody.
pub fn word() -> impl Strategy<Value = &'static str> {
    proptest::sample::select(vec![
        "jsonrpc",
        "id",
        "method",
        "params",
        "result",
        "error",
        "code",
        "message",
        "data",
        "sessionId",
        "update",
        "sessionUpdate",
        "agent_message_chunk",
        "agent_thought_chunk",
        "user_message_chunk",
        "tool_call",
        "tool_call_update",
        "plan",
        "usage_update",
        "current_mode_update",
        "available_commands_update",
        "content",
        "type",
        "text",
        "image",
        "audio",
        "resource",
        "resource_link",
        "mimeType",
        "uri",
        "blob",
        "AAEC",
        "toolCallId",
        "title",
        "kind",
        "status",
        "rawInput",
        "locations",
        "path",
        "entries",
        "priority",
        "options",
        "optionId",
        "name",
        "allow_once",
        "reject_once",
        "toolCall",
        "stopReason",
        "protocolVersion",
        "agentCapabilities",
        "modes",
        "_meta",
        "session/update",
        "session/request_permission",
        "fs/read_text_file",
        "fs/write_text_file",
        "terminal/create",
        "$/cancel_request",
        "requestId",
        "elicitation/create",
        "mode",
        "form",
        "command",
        "args",
        "env",
        "line",
        "limit",
    ])
}

/// Any JSON, and what is nearly that.
pub fn value() -> BoxedStrategy<String> {
    let leaf = prop_oneof![
        1 => proptest::sample::select(vec!["null", "true", "false", "nul", ""]).prop_map(str::to_owned),
        2 => number(),
        3 => string(),
    ];
    let nested = leaf.prop_recursive(5, 40, 6, |inner| {
        prop_oneof![
            1 => proptest::collection::vec(inner.clone(), 0..5).prop_map(|items| format!("[{}]", items.join(","))),
            3 => object(word().boxed(), inner),
        ]
    });
    prop_oneof![20 => nested, 1 => deep()].boxed()
}

/// Deeper than anything that is read.
fn deep() -> impl Strategy<Value = String> {
    (1_usize..400, any::<bool>()).prop_map(|(depth, is_list)| {
        let (open, close) = if is_list { ("[", "]") } else { ("{\"a\":", "}") };
        format!("{}1{}", open.repeat(depth), close.repeat(depth))
    })
}

/// An object of these names, some of them twice.
pub fn object(
    names: BoxedStrategy<&'static str>,
    values: impl Strategy<Value = String> + 'static,
) -> BoxedStrategy<String> {
    let field = (names, values, proptest::sample::select(vec!["", " ", "\r", "\t "]))
        .prop_map(|(name, value, space)| format!("{space}\"{name}\":{space}{value}"));
    proptest::collection::vec(field, 0..7).prop_map(|fields| format!("{{{}}}", fields.join(","))).boxed()
}

fn update() -> impl Strategy<Value = String> {
    let kinds = proptest::sample::select(vec![
        "agent_message_chunk",
        "agent_thought_chunk",
        "tool_call",
        "tool_call_update",
        "plan",
        "usage_update",
        "current_mode_update",
        "config_option_update",
        "available_commands_update",
        "brand_new",
    ]);
    let blocks = proptest::sample::select(vec!["text", "image", "audio", "resource", "resource_link", "other"]);
    let chunk = (kinds.clone(), blocks, string(), value()).prop_map(|(kind, block, text, more)| {
        format!(
            r#"{{"sessionUpdate":"{kind}","content":{{"type":"{block}","text":{text},"data":"AAEC","mimeType":"a/b","resource":{more}}}}}"#
        )
    });
    let call = (kinds, value(), value(), value()).prop_map(|(kind, input, content, locations)| {
        format!(
            r#"{{"sessionUpdate":"{kind}","toolCallId":"c","title":"t","rawInput":{input},"content":[{content}],"locations":[{locations}],"entries":[{locations}],"used":{input},"size":1}}"#
        )
    });
    prop_oneof![chunk, call, value()]
}

/// A line of an agent's, or nearly one.
pub fn acp_line() -> BoxedStrategy<String> {
    let methods = proptest::sample::select(vec![
        "session/update",
        "session/request_permission",
        "fs/read_text_file",
        "fs/write_text_file",
        "terminal/create",
        "terminal/output",
        "$/cancel_request",
        "elicitation/create",
        "session\\/update",
        "what/ever",
        "",
    ]);
    let id = prop_oneof![(0_u64..9).prop_map(|id| id.to_string()), number(), string(), value()];
    let params = prop_oneof![
        3 => update().prop_map(|update| format!(r#"{{"sessionId":"s","update":{update}}}"#)),
        2 => value(),
        1 => (value(), value()).prop_map(|(call, option)| format!(
            r#"{{"sessionId":"s","toolCall":{call},"options":[{option}],"path":"/a","content":"x","command":"c","args":[{option}]}}"#
        )),
    ];
    let said = (methods, id.clone(), params, 0_u8..3).prop_map(|(method, id, params, shape)| match shape {
        0 => format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{params}}}"#),
        1 => format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#),
        _ => format!(r#"{{"method":"{method}","params":{params},"id":null}}"#),
    });
    let answer = (id, value(), any::<bool>()).prop_map(|(id, value, is_error)| {
        let name = if is_error { "error" } else { "result" };
        format!(r#"{{"id":{id},"{name}":{value}}}"#)
    });
    prop_oneof![4 => said, 2 => answer, 1 => value()].boxed()
}

/// The bytes of a text with a few of them changed, taken out or put in. A line stays one line.
pub fn damaged(text: BoxedStrategy<String>) -> impl Strategy<Value = Vec<u8>> {
    let byte = any::<u8>().prop_filter("a line has no end in it", |byte| *byte != b'\n');
    let change = (any::<proptest::sample::Index>(), byte, 0_u8..4);
    (text, proptest::collection::vec(change, 1..5)).prop_map(|(text, changes)| {
        let mut bytes = text.into_bytes();
        for (at, byte, kind) in changes {
            let at = at.index(bytes.len() + 1);
            match kind {
                0 => bytes.insert(at, byte),
                1 => bytes.truncate(at),
                _ if at == bytes.len() => {}
                2 => bytes[at] = byte,
                _ => drop(bytes.remove(at)),
            }
        }
        bytes
    })
}
