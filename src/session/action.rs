//! What a tool call is about to do, as far as it tells: its kind, the files that it names, and the command that it runs.

use serde_json::Value;

use crate::acp::update::ToolCall;
use crate::model::permission::{Action, CommandText, ToolKind};

/// The names under which agents have a file in a tool's arguments.
const PATH_ARGUMENTS: [&str; 3] = ["file_path", "path", "absolute_path"];

/// The action of a call, of which some may have been told before.
pub(super) fn of(call: &ToolCall, before: Option<&ToolCall>) -> Action {
    let kind = call.kind.as_deref().or_else(|| before?.kind.as_deref());
    let kind = kind.map_or_else(ToolKind::default, ToolKind::from_protocol);
    let mut paths = Vec::new();
    for call in [Some(call), before].into_iter().flatten() {
        for path in paths_of(call, kind) {
            if !paths.contains(&path) {
                paths.push(path);
            }
        }
    }
    Action { kind, paths, command: command_of(call).or_else(|| command_of(before?)) }
}

/// All files that a call names: where it says that it works, what it shows as changed, and what it was given.
fn paths_of(call: &ToolCall, kind: ToolKind) -> Vec<String> {
    let locations = call.locations.iter().flatten().cloned();
    let items = call.content.as_ref().and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let diffs = items.iter().filter(|item| item["type"] == "diff").filter_map(|item| text(&item["path"]));
    // What is fetched has a path too, and it is no file's.
    let input = call.raw_input.as_ref().filter(|_| kind != ToolKind::Fetch);
    let given = PATH_ARGUMENTS.iter().filter_map(|name| text(input?.get(name)?));
    locations.chain(diffs).chain(given).collect()
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

/// What a call runs, where its arguments say so in the way that most agents have.
fn command_of(call: &ToolCall) -> Option<CommandText> {
    match call.raw_input.as_ref()?.get("command")? {
        Value::String(text) => Some(CommandText::Shell(text.clone())),
        Value::Array(words) => {
            let words = words.iter().map(|word| word.as_str().map(str::to_owned));
            words.collect::<Option<_>>().map(CommandText::Arguments)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_names_its_files_in_many_ways_and_what_was_told_before_counts() {
        let before = ToolCall {
            kind: Some("edit".to_owned()),
            raw_input: Some(serde_json::json!({"file_path": "a", "command": ["x", "y"]})),
            ..ToolCall::default()
        };
        let call = ToolCall {
            locations: Some(vec!["/w/b".to_owned(), "a".to_owned()]),
            content: Some(serde_json::json!([{"type": "diff", "path": "c", "newText": ""}, {"type": "content"}])),
            ..ToolCall::default()
        };
        let action = of(&call, Some(&before));
        assert_eq!((action.kind, action.paths), (ToolKind::Edit, ["/w/b", "a", "c"].map(str::to_owned).to_vec()));
        assert_eq!(action.command, Some(CommandText::Arguments(vec!["x".to_owned(), "y".to_owned()])));
        let fetch = ToolCall {
            kind: Some("fetch".to_owned()),
            raw_input: Some(serde_json::json!({"path": "/index"})),
            ..ToolCall::default()
        };
        assert_eq!(of(&fetch, None).paths, Vec::<String>::new());
    }
}
