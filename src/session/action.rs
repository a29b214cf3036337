//! What a tool call is about to do, as far as it tells: its kind, the files that it names, and the command that it runs.

use std::path::{Component, Path, PathBuf};

use globset::GlobBuilder;
use serde_json::{Map, Value, json};

use crate::acp::update::ToolCall;
use crate::agent;
use crate::model::permission::input::Input;
use crate::model::permission::{Action, Located, Place, ToolKind, command};
use crate::model::{Adapter, BlobHash};

/// Words of a command that are looked up as paths. It takes a few system calls for each.
const MENTIONED_MAX: usize = 256;
/// Paths of one action that are looked up. One with more is nowhere for sure.
const PATHS_MAX: usize = 64;
/// Directory entries that the globs of one action are compared with.
const GLOB_ENTRIES_MAX: usize = 4096;
const GLOB: [char; 4] = ['*', '?', '[', '{'];

/// The action of a call, of which some may have been told before.
pub(super) fn of(call: &ToolCall, before: Option<&ToolCall>, adapter: Adapter) -> Action {
    let kind = call.kind.as_deref().or_else(|| before?.kind.as_deref());
    let kind = kind.map_or_else(ToolKind::default, ToolKind::from_protocol);
    let calls = || [Some(call), before].into_iter().flatten();
    let mut inputs = calls().filter_map(|call| call.raw_input.as_ref());
    let given = inputs.next();
    let mut input = given.map(Input::of).unwrap_or_default();
    for earlier in inputs.map(Input::of) {
        input.is_unclear |= earlier.is_unclear || (input.command.is_none() && earlier.command.is_some());
        if input.command.is_none() {
            (input.command, input.cwd, input.env) = (earlier.command, earlier.cwd, earlier.env);
        }
        input.paths.extend(earlier.paths);
        input.mentioned.extend(earlier.mentioned);
    }
    let mut paths: Vec<String> = Vec::new();
    for path in calls().flat_map(ToolCall::paths).chain(input.paths) {
        if !paths.contains(&path) {
            paths.push(path);
        }
    }
    // Changes that are not a list were too large to keep.
    let content = call.content.as_ref().or_else(|| before?.content.as_ref());
    let is_cut = content.is_some_and(|content| !content.is_array() && !content.is_null());
    let shown = call.texts().find_map(|text| adapter.directory_shown(text)).filter(|_| input.command.is_some());
    let is_told = |input: &&Value| kind != ToolKind::Execute || **input != Value::Object(Map::new());
    // Where the input is only shown, the title may be all that tells two calls of one tool apart.
    let title = call.title.as_ref().filter(|_| adapter.quirks().tools_named_in_ids);
    let told = title.map(|title| json!([title, given])).or_else(|| given.filter(is_told).cloned());
    Action {
        kind,
        paths,
        command: input.command,
        cwd: input.cwd.or(shown.map(str::to_owned)),
        env: input.env,
        input: told.map(|input| BlobHash::of(input.to_string().as_bytes()).to_string()),
        mentioned: input.mentioned,
        texts: input.texts,
        is_unclear: input.is_unclear || is_cut,
    }
}

/// An action with all that it names looked up, if that is possible. The workspace is a real path.
pub(super) fn located(action: &Action, workspace: &Path, can_look: bool) -> Located {
    let mut eyes = Eyes { workspace, can_look, seen: 0, swept: Vec::new() };
    let directory = workspace.join(action.cwd.as_deref().unwrap_or_default());
    let places: Vec<Place> =
        action.paths.iter().take(PATHS_MAX).flat_map(|path| eyes.places(workspace, path)).collect();
    let can_be = |path: &&String| !can_look || can_be_path(workspace, path);
    let mut mentioned: Vec<(&Path, &String)> =
        action.mentioned.iter().filter(can_be).map(|path| (workspace, path)).collect();
    if action.cwd.is_some() {
        // The tool may look for them in its own directory.
        mentioned.extend(action.paths.iter().chain(&action.mentioned).map(|path| (directory.as_path(), path)));
    }
    let mut beside: Vec<Place> =
        mentioned.iter().take(PATHS_MAX).flat_map(|(from, path)| eyes.places(from, path)).collect();
    let beyond = action.paths.get(PATHS_MAX).or_else(|| mentioned.get(PATHS_MAX).map(|(_, path)| *path));
    beside.extend(beyond.map(|path| Place::Outside { named: path.clone() }));
    let mut located = Located {
        said: action.kind,
        command: action.command.clone(),
        beside,
        cwd: action.cwd.as_ref().and_then(|cwd| eyes.places(workspace, cwd).pop()),
        env: action.env.clone(),
        input: action.input.clone(),
        texts: action.texts.clone(),
        is_unclear: action.is_unclear,
        ..Located::default()
    };
    let words = located.whole_command().as_ref().map(command::paths).unwrap_or_default();
    located.mentioned = words.iter().take(MENTIONED_MAX).flat_map(|word| eyes.places(&directory, word)).collect();
    let takes_away = matches!(action.kind, ToolKind::Delete | ToolKind::Move);
    let holds_git = |place: &Place| place.real().is_some_and(|real| agent::holds_git(workspace, real));
    located.holds_git = takes_away && places.iter().any(holds_git);
    Located { places, swept: eyes.swept, ..located }
}

struct Eyes<'a> {
    workspace: &'a Path,
    can_look: bool,
    /// Directory entries that globs were compared with.
    seen: usize,
    /// Directories of which a glob may match everything.
    swept: Vec<Place>,
}

impl Eyes<'_> {
    /// Where a path leads, or a glob and all that it matches. What a tool or a shell may read in another way is outside.
    fn places(&mut self, from: &Path, path: &str) -> Vec<Place> {
        let outside = Place::Outside { named: path.to_owned() };
        if !self.can_look || path.starts_with(['~', '$']) || path.contains(char::is_control) {
            return vec![outside];
        }
        let whole = from.join(path);
        let look = |path: &Path| agent::place(self.workspace, &path.to_string_lossy());
        if !path.contains(GLOB) || whole.symlink_metadata().is_ok() {
            return vec![look(&whole)];
        }
        let Some(found) = matches(&whole, &mut self.seen) else {
            let is_plain = |component: &Component<'_>| !component.as_os_str().to_string_lossy().contains(GLOB);
            self.swept.push(look(&whole.components().take_while(is_plain).collect::<PathBuf>()));
            return vec![outside];
        };
        // A new file may have a name that looks like a glob: `[id].ts`.
        let is_file = found.is_empty() && !path.contains(['*', '?']);
        let last = if is_file { look(&whole) } else { outside };
        found.iter().map(|found| look(found)).chain([last]).collect()
    }
}

/// What a glob matches; none if that is too much to say. As in a shell, only a glob that begins with a dot matches a name
/// that does.
fn matches(glob: &Path, seen: &mut usize) -> Option<Vec<PathBuf>> {
    let mut found = vec![PathBuf::new()];
    for component in glob.components() {
        let name = component.as_os_str().to_string_lossy();
        if !name.contains(GLOB) {
            found = found.into_iter().map(|path| path.join(component)).collect();
            continue;
        }
        if name.contains("**") {
            return None;
        }
        let matcher = GlobBuilder::new(&name).build().ok()?.compile_matcher();
        let mut next = Vec::new();
        for entry in found.iter().flat_map(std::fs::read_dir).flatten().flatten() {
            *seen += 1;
            if *seen > GLOB_ENTRIES_MAX {
                return None;
            }
            let is_hidden = entry.file_name().as_encoded_bytes().starts_with(b".") && !name.starts_with('.');
            if matcher.is_match(entry.file_name()) && !is_hidden {
                next.push(entry.path());
            }
        }
        found = next;
    }
    found.retain(|path| path.symlink_metadata().is_ok());
    Some(found)
}

/// Whether a string is a path: it looks like one, or begins with a name that the workspace has.
fn can_be_path(workspace: &Path, text: &str) -> bool {
    let first = text.split('/').next().unwrap_or(text);
    text.starts_with(['/', '.', '~', '$', '*'])
        || (text.contains(['/', '.', '*', '?']) && !text.contains(char::is_whitespace))
        || workspace.join(first).symlink_metadata().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::permission::CommandText;

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
            raw_input: Some(serde_json::json!({"path": "/index", "url": "https://example.org/x"})),
            ..ToolCall::default()
        };
        let fetch = of(&fetch, None, Adapter::Generic);
        assert_eq!((fetch.paths, fetch.mentioned), (vec!["/index".to_owned()], vec![]));
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
        assert_eq!(of(&call, None, Adapter::Generic).command, None);
        let command = CommandText::Shell("touch /home/me/ws_e2e/touched && echo made".to_owned());
        let action = of(&call.completed_by(Adapter::Gemini), None, Adapter::Gemini);
        assert_eq!((action.command, action.cwd.as_deref()), (Some(command), Some("/home/me/ws_e2e")));
    }
}
