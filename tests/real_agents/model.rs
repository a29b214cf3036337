//! The stand-in model: what it says is in the last marker of the prompt.
//!
//! | marker | answer |
//! |---|---|
//! | `@@SAY text@@` | that text |
//! | `@@SHELL command@@` | a call of the agent's tool for commands |
//! | `@@WRITE path text@@` | a call of the agent's tool that writes files |
//! | `@@RECALL@@` | the codeword, if it is in the conversation |
//! | `@@HOLD@@` | the first words, and the last ones when the test releases the stream |
//!
//! After a tool has answered, the model repeats the tool's result. A request without tools is one of the agent's own, such as for
//! a title of the conversation: that one does not hold.

use serde_json::{Value, json};

pub const CODEWORD: &str = "ZEBRA42";
pub const FIRST_WORDS: &str = "These are the first words";
pub const LAST_WORDS: &str = " and these are the last ones.";
pub const NO_CODEWORD: &str = "The conversation has no codeword.";

/// The names that agents give to their tools. The first one that is offered counts.
const SHELL_TOOLS: [&str; 5] = ["Bash", "bash", "run_shell_command", "exec_command", "shell_command"];
const WRITE_TOOLS: [&str; 4] = ["Write", "write", "write_file", "apply_patch"];

/// One entry of a conversation, as all interfaces have it.
pub enum Entry {
    User(String),
    Result(String),
}

#[derive(Clone)]
pub struct Tool {
    pub name: String,
    pub schema: Value,
    /// Takes a text instead of JSON.
    pub is_freeform: bool,
}

pub enum Said {
    Words(String),
    Call { tool: Tool, arguments: Value },
    Hold,
}

/// What is between the last two `@@` of a text.
fn marker(text: &str) -> Option<&str> {
    let (before, _) = text.rsplit_once("@@")?;
    Some(before.rsplit_once("@@")?.1)
}

/// The last prompt with a marker, and where it is in the conversation.
fn last_prompt(conversation: &[Entry]) -> Option<(usize, &str)> {
    conversation.iter().enumerate().rev().find_map(|(index, entry)| match entry {
        Entry::User(text) => Some((index, marker(text)?)),
        Entry::Result(_) => None,
    })
}

pub fn prompt(conversation: &[Entry]) -> &str {
    last_prompt(conversation).map_or("", |(_, marker)| marker)
}

pub fn answer(conversation: &[Entry], tools: &[Tool]) -> Said {
    let Some((index, marker)) = last_prompt(conversation) else { return words("The prompt has no marker.") };
    let result = conversation[index..].iter().rev().find_map(|entry| match entry {
        Entry::User(_) => None,
        Entry::Result(text) => Some(text),
    });
    if let Some(result) = result {
        return words(&format!("The tool said: {result}"));
    }
    let (verb, rest) = marker.split_once(' ').unwrap_or((marker, ""));
    match verb {
        "SAY" => words(rest),
        "SHELL" => call(tools, &SHELL_TOOLS, &[(&["command", "cmd"], rest)]),
        "WRITE" => {
            let (path, text) = rest.split_once(' ').expect("a path and a text");
            let patch = format!("*** Begin Patch\n*** Add File: {path}\n+{text}\n*** End Patch\n");
            let known: [(&[&str], &str); 3] =
                [(&["file_path", "filePath", "path"], path), (&["content"], text), (&["input"], &patch)];
            call(tools, &WRITE_TOOLS, &known)
        }
        "RECALL" => {
            let is_known =
                conversation.iter().any(|entry| matches!(entry, Entry::User(text) if text.contains(CODEWORD)));
            words(if is_known { CODEWORD } else { NO_CODEWORD })
        }
        "HOLD" if !tools.is_empty() => Said::Hold,
        "HOLD" => words("A title"),
        _ => panic!("{verb:?} is not a marker"),
    }
}

fn words(text: &str) -> Said {
    Said::Words(text.to_owned())
}

/// A call of the first of these tools that the agent offers. Fields that the schema requires and the test does not know are
/// filled.
fn call(tools: &[Tool], names: &[&str], known: &[(&[&str], &str)]) -> Said {
    let find = |name: &&str| tools.iter().find(|tool| tool.name == **name);
    let Some(tool) = names.iter().find_map(find) else {
        let offered: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
        return words(&format!("No tool of {names:?} is in {offered:?}"));
    };
    let fields = tool.schema["properties"].as_object().into_iter().flatten();
    let required = |name: &str| tool.schema["required"].as_array().is_some_and(|names| names.contains(&json!(name)));
    let value = |name: &str, field: &Value| {
        let known = known.iter().find(|(names, _)| names.contains(&name));
        known.map(|(_, value)| json!(value)).or_else(|| required(name).then(|| instance(field)))
    };
    let arguments = fields.filter_map(|(name, field)| Some((name.clone(), value(name, field)?))).collect();
    Said::Call { tool: tool.clone(), arguments }
}

fn instance(schema: &Value) -> Value {
    if let Some(first) = schema["enum"].get(0) {
        return first.clone();
    }
    match schema["type"].as_str() {
        Some("boolean") => json!(false),
        Some("number" | "integer") => json!(1),
        Some("array") => json!([]),
        Some("object") => json!({}),
        _ => json!("what the test wants"),
    }
}
