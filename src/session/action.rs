//! What a tool call is about to do, as far as it tells: its kind, the files that it names, and the command that it runs.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use crate::acp::update::ToolCall;
use crate::agent;
use crate::model::permission::{Action, CommandText, Located, Place, ToolKind, command};
use crate::model::{Adapter, BlobHash};

/// The names under which agents have a file in a tool's arguments.
const PATH_ARGUMENTS: [&str; 3] = ["file_path", "path", "absolute_path"];

/// The names under which they have a command's directory there.
const DIRECTORY_ARGUMENTS: [&str; 3] = ["cwd", "workdir", "directory"];
/// Words of a command that are looked up as paths. It takes a few system calls for each.
const MENTIONED_MAX: usize = 256;

/// Paths of one action that are looked up. One with more is nowhere for sure.
const PATHS_MAX: usize = 64;

/// The action of a call, of which some may have been told before.
pub(super) fn of(call: &ToolCall, before: Option<&ToolCall>, adapter: Adapter) -> Action {
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
    let title = call.title.as_ref().or_else(|| before?.title.as_ref());
    let title = title.filter(|_| kind == ToolKind::Execute && adapter.quirks().titles_are_commands);
    let command = command_of(call).or_else(|| command_of(before?));
    let command = command.or_else(|| title.map(|title| CommandText::Shell(title.clone())));
    let input = call.raw_input.as_ref().or_else(|| before?.raw_input.as_ref());
    let given = input.filter(|_| command.is_some());
    let shown = command.as_ref().and_then(|_| directory_shown(call, adapter));
    Action {
        kind,
        paths,
        command,
        cwd: DIRECTORY_ARGUMENTS.iter().find_map(|name| text(given?.get(name)?)).or(shown),
        env: given.and_then(|input| input.get("env")).map(variables).unwrap_or_default(),
        input: input.map(|input| BlobHash::of(input.to_string().as_bytes()).to_string()),
    }
}

/// An action with all that it names looked up by `look`. The workspace is a real path.
pub(super) fn located(action: &Action, workspace: &Path, look: fn(&Path, &str) -> Place) -> Located {
    let mut places: Vec<Place> = action.paths.iter().take(PATHS_MAX).map(|path| look(workspace, path)).collect();
    if let Some(path) = action.paths.get(PATHS_MAX) {
        places.push(Place::Outside { named: path.clone() });
    }
    let cwd = action.cwd.as_ref().map(|cwd| look(workspace, cwd));
    let directory = workspace.join(action.cwd.as_deref().unwrap_or_default());
    let place = |word: &String| look(workspace, &directory.join(word).to_string_lossy());
    let words = action.command.as_ref().map(command::paths).unwrap_or_default();
    let takes_away = matches!(action.kind, ToolKind::Delete | ToolKind::Move);
    let holds_git = |place: &Place| place.real().is_some_and(|real| agent::holds_git(workspace, real));
    Located {
        said: action.kind,
        command: action.command.clone(),
        tool: None,
        mentioned: words.iter().take(MENTIONED_MAX).map(place).collect(),
        holds_git: takes_away && places.iter().any(holds_git),
        places,
        cwd,
        env: action.env.clone(),
        input: action.input.clone(),
    }
}

/// Where a path leads when nobody can look: it cannot be said, so outside.
pub(super) fn blindly(_: &Path, path: &str) -> Place {
    Place::Outside { named: path.to_owned() }
}

fn directory_shown(call: &ToolCall, adapter: Adapter) -> Option<String> {
    let items = call.content.as_ref().and_then(Value::as_array)?;
    items.iter().find_map(|item| adapter.directory_shown(item["content"]["text"].as_str()?)).map(str::to_owned)
}

fn variables(value: &Value) -> BTreeMap<String, String> {
    let shown = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    value.as_object().into_iter().flatten().map(|(name, value)| (name.clone(), shown(value))).collect()
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
        let action = of(&call, Some(&before), Adapter::Generic);
        assert_eq!((action.kind, action.paths), (ToolKind::Edit, ["/w/b", "a", "c"].map(str::to_owned).to_vec()));
        assert_eq!(action.command, Some(CommandText::Arguments(vec!["x".to_owned(), "y".to_owned()])));
        let fetch = ToolCall {
            kind: Some("fetch".to_owned()),
            raw_input: Some(serde_json::json!({"path": "/index"})),
            ..ToolCall::default()
        };
        assert_eq!(of(&fetch, None, Adapter::Generic).paths, Vec::<String>::new());
    }

    #[test]
    fn the_command_of_gemini_is_its_title() {
        let transcript = include_str!("../../tests/data/gemini-0.61-transcript.jsonl");
        let messages = transcript.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let request = messages
            .map(|line| line["msg"].clone())
            .find(|message| {
                message["method"] == "session/request_permission" && message["params"]["toolCall"]["kind"] == "execute"
            })
            .unwrap();
        let params = serde_json::value::to_raw_value(&request["params"]).unwrap();
        let call = crate::acp::incoming::permission_request(&params).unwrap().tool_call;
        let command = CommandText::Shell("touch /home/me/ws_e2e/touched && echo made".to_owned());
        let action = of(&call, None, Adapter::Gemini);
        assert_eq!((action.command, action.cwd.as_deref()), (Some(command), Some("/home/me/ws_e2e")));
        assert_eq!(of(&call, None, Adapter::Generic).command, None);
    }

    #[test]
    fn a_command_has_its_directory_and_its_variables() {
        let call = ToolCall {
            raw_input: Some(serde_json::json!({"command": "make", "cwd": "sub", "env": {"A": "b", "N": 1}})),
            ..ToolCall::default()
        };
        let action = of(&call, None, Adapter::Generic);
        assert_eq!(action.cwd.as_deref(), Some("sub"));
        assert_eq!(action.env, [("A", "b"), ("N", "1")].map(|(name, value)| (name.into(), value.into())).into());
    }
}
