//! What people see of an action, wherever they see it. What is shown is what runs.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::{Action, CommandText};

/// One word before the command or the files, as in `Edit a.txt`.
const VERB_BYTES_MAX: usize = 16;
/// Blanks in a row that are shown as they are.
const BLANKS_MAX: usize = 40;
/// Printable by Unicode's tables, and yet without a picture.
const FILLERS: &str = "\u{34f}\u{115f}\u{1160}\u{17b4}\u{17b5}\u{180b}\u{180c}\u{180d}\u{180f}\u{2800}\u{3164}\u{ffa0}";

/// The text with every character escaped that shows nothing, acts on a terminal, reorders text or looks like a blank:
/// `\u{202e}`. Line feeds and tabs stay. Nothing is dropped; many blanks in a row are counted.
pub fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for part in text.split_inclusive(|character| character != ' ') {
        let (blanks, last) = (part.bytes().take_while(|byte| *byte == b' ').count(), part.trim_start_matches(' '));
        let counted = format!(" [{blanks} blanks] ");
        shown += if blanks > BLANKS_MAX { &counted } else { &part[..blanks] };
        match last.chars().next() {
            Some('\r') => shown.push_str("\\r"),
            Some(hidden) if is_hidden(hidden) => shown.extend(hidden.escape_unicode()),
            _ => shown.push_str(last),
        }
    }
    shown
}

fn is_hidden(character: char) -> bool {
    // Behind another character a combining mark is no reason to escape.
    let is_escaped = |character| format!(".{character}").escape_debug().count() > 2;
    let is_selector = matches!(character, '\u{fe00}'..='\u{fe0f}' | '\u{e0100}'..='\u{e01ef}');
    !matches!(character, ' '..='~' | '\n' | '\t')
        && (is_escaped(character) || is_selector || FILLERS.contains(character))
}

/// The same on one line, for a line feed in a command does something.
pub fn visible_line(text: &str) -> String {
    visible(text.trim()).replace('\n', "\\n").replace('\t', "\\t")
}

/// What is asked, on one line: the command or the files, and then the agent's title, unless it says the same.
pub fn question(title: &str, action: &Action) -> String {
    let (title, subject) = (visible_line(title), subject(action));
    let mark = if action.command.is_some() { "$ " } else { "" };
    let verb = title.strip_suffix(&subject).map(str::trim_end);
    let is_same = verb.is_some_and(|verb| verb.len() <= VERB_BYTES_MAX && !verb.contains(' '));
    if subject.is_empty() || (is_same && mark.is_empty()) {
        title
    } else if is_same || title.is_empty() {
        format!("{mark}{subject}")
    } else {
        format!("{mark}{subject} — {title}")
    }
}

/// The same of a `permission.requested` event.
pub fn question_of(data: &Value) -> String {
    let action = Action::deserialize(&data["action"]).unwrap_or_default();
    question(data["title"].as_str().unwrap_or_default(), &action)
}

fn subject(action: &Action) -> String {
    match &action.command {
        Some(command) => visible_line(&with_surroundings(command_text(command), action.cwd.as_deref(), &action.env)),
        None => visible_line(&action.paths.join(", ")),
    }
}

/// A command with its directory and its variables, if it has any.
pub fn with_surroundings(command: String, cwd: Option<&str>, env: &BTreeMap<String, String>) -> String {
    let variables = env.iter().map(|(name, value)| format!("with {name}={value:?}"));
    let surroundings: Vec<String> = cwd.map(|cwd| format!("in {cwd}")).into_iter().chain(variables).collect();
    if surroundings.is_empty() { command } else { format!("{command} ({})", surroundings.join(", ")) }
}

/// A command as people write it. It is shown and never run.
pub fn command_text(command: &CommandText) -> String {
    let word = |word: &String| {
        let is_plain = |character: char| character.is_alphanumeric() || "-_./=:,@%+".contains(character);
        if !word.is_empty() && word.chars().all(is_plain) { word.clone() } else { format!("{word:?}") }
    };
    match command {
        CommandText::Shell(text) => text.clone(),
        CommandText::Arguments(words) => words.iter().map(word).collect::<Vec<_>>().join(" "),
    }
}
