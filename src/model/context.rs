//! The context that a tool gives a session: what it looks at, and words for its prompts.
//!
//! Nothing here looks at a file. That a path lies in the workspace is for those to see who have the workspace.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::message::Content;
use super::object;
use super::sandbox::FsScope;
use super::secret;

const PATH_BYTES_MAX: usize = 4096;
const GIT_REF_BYTES_MAX: usize = 255;
const VARIABLES_MAX: usize = 64;
const NAME_BYTES_MAX: usize = 64;
/// Names and values together. Every session in a list shows them.
const VARIABLES_BYTES_MAX: usize = 16 << 10;

const SECRET_HINT: &str = "remove it: acpd stores and shows variables as plain text; give the agent a secret in the env_file of \
    its profile, or choose another name if this is not a secret";

const OPEN: &str = "{{ctx.";
const CLOSE: &str = "}}";

/// The context of a session. Paths are relative to its workspace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionContext {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_file: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selection: Option<Selection>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git_ref: Option<String>,
    /// Fixed for the session's life. Older sessions have the narrowest scope.
    #[serde(default)]
    pub fs_scope: FsScope,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub variables: BTreeMap<String, String>,
}

/// A range of lines in a file, counted from 1, including both ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Selection {
    #[schema(min_length = 1, max_length = 4096)]
    pub file: String,
    #[schema(minimum = 1, maximum = 4_294_967_295_u32)]
    pub start_line: u32,
    #[schema(minimum = 1, maximum = 4_294_967_295_u32)]
    pub end_line: u32,
}

/// What is to become of a value: absent in JSON it stays, null removes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Change<T> {
    #[default]
    Keep,
    Remove,
    Set(T),
}

/// A change of a context: field by field, and for variables, name by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ContextChange {
    #[serde(default, skip_serializing_if = "Change::is_keep")]
    #[schema(value_type = Option<String>, min_length = 1, max_length = 4096)]
    pub active_file: Change<String>,
    #[serde(default, skip_serializing_if = "Change::is_keep", deserialize_with = "object::change")]
    #[schema(value_type = Option<Selection>)]
    pub selection: Change<Selection>,
    #[serde(default, skip_serializing_if = "Change::is_keep")]
    #[schema(value_type = Option<String>, min_length = 1, max_length = 255)]
    pub git_ref: Change<String>,
    /// Can only be set when the session is created.
    #[serde(default, skip_serializing_if = "Change::is_keep")]
    #[schema(value_type = Option<FsScope>)]
    pub fs_scope: Change<FsScope>,
    #[serde(default, skip_serializing_if = "Change::is_keep")]
    #[schema(value_type = Option<BTreeMap<String, Option<String>>>)]
    pub variables: Change<BTreeMap<String, Option<String>>>,
}

/// What is wrong with a context or with a prompt that uses it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct ContextProblem {
    pub field: String,
    pub problem: String,
    pub hint: Option<&'static str>,
}

impl ContextProblem {
    pub fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { field: field.into(), problem: problem.into(), hint: None }
    }

    /// A variable that must not be stored. Its value is not told.
    pub fn secret(name: &str, suspicion: &str) -> Self {
        Self { hint: Some(SECRET_HINT), ..Self::new(format!("context.variables.{name}"), suspicion) }
    }
}

impl<T> Change<T> {
    pub const fn is_keep(&self) -> bool {
        matches!(self, Self::Keep)
    }

    pub fn applied_to(self, before: Option<T>) -> Option<T> {
        match self {
            Self::Keep => before,
            Self::Remove => None,
            Self::Set(value) => Some(value),
        }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Change<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Option::deserialize(deserializer).map(|value| value.map_or(Self::Remove, Self::Set))
    }
}

impl<T: Serialize> Serialize for Change<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Set(value) => serializer.serialize_some(value),
            Self::Keep | Self::Remove => serializer.serialize_none(),
        }
    }
}

impl ContextChange {
    /// Takes everything away but the scope, which is for life.
    pub const fn removal() -> Self {
        Self {
            active_file: Change::Remove,
            selection: Change::Remove,
            git_ref: Change::Remove,
            fs_scope: Change::Keep,
            variables: Change::Remove,
        }
    }

    /// Whether it says anything about what the agent is shown.
    pub const fn touches_links(&self) -> bool {
        !self.active_file.is_keep() || !self.selection.is_keep()
    }

    /// Everything that can be said without the workspace and without the context that is changed.
    pub fn check(&self) -> Result<(), ContextProblem> {
        let wrong = |field, problem: String| Err(ContextProblem::new(field, problem));
        if let Change::Set(path) = &self.active_file {
            check_path("context.activeFile", path)?;
        }
        if let Change::Set(Selection { file, start_line, end_line }) = &self.selection {
            check_path("context.selection.file", file)?;
            if *start_line == 0 {
                return wrong("context.selection.startLine", "must be at least 1".to_owned());
            }
            if end_line < start_line {
                return wrong("context.selection.endLine", format!("is before startLine ({start_line})"));
            }
        }
        if let Change::Set(git_ref) = &self.git_ref
            && !is_git_ref(git_ref)
        {
            let problem = format!("must have 1 to {GIT_REF_BYTES_MAX} bytes without spaces");
            return wrong("context.gitRef", problem);
        }
        if let Change::Set(variables) = &self.variables
            && let Some(name) = variables.keys().find(|name| !is_name(name))
        {
            let problem = format!(
                "{name:?} is not a valid name: use 1 to {NAME_BYTES_MAX} letters, digits and _, not starting with a \
                    digit"
            );
            return wrong("context.variables", problem);
        }
        let suspect = |(name, value): (&str, &str)| {
            secret::suspicion(name, value).map(|suspicion| ContextProblem::secret(name, suspicion))
        };
        self.new_variables().find_map(suspect).map_or(Ok(()), Err)
    }

    /// The variables that it sets, without those that it removes.
    pub fn new_variables(&self) -> impl Iterator<Item = (&str, &str)> {
        let variables = if let Change::Set(variables) = &self.variables { Some(variables) } else { None };
        variables.into_iter().flatten().filter_map(|(name, value)| Some((name.as_str(), value.as_deref()?)))
    }
}

impl SessionContext {
    /// With a change made, when what comes of it is within its bounds.
    pub fn changed_by(&self, change: ContextChange) -> Result<Self, ContextProblem> {
        let before = self.clone();
        let mut variables = before.variables;
        match change.variables {
            Change::Keep => {}
            Change::Remove => variables.clear(),
            Change::Set(changes) => {
                for (name, value) in changes {
                    match value {
                        Some(value) => drop(variables.insert(name, value)),
                        None => drop(variables.remove(&name)),
                    }
                }
            }
        }
        let wrong = |problem| Err(ContextProblem::new("context.variables", problem));
        if variables.len() > VARIABLES_MAX {
            return wrong(format!("would be {}; the maximum is {VARIABLES_MAX}", variables.len()));
        }
        let bytes: usize = variables.iter().map(|(name, value)| name.len() + value.len()).sum();
        if bytes > VARIABLES_BYTES_MAX {
            return wrong(format!("would have {bytes} bytes with their names; the maximum is {VARIABLES_BYTES_MAX}"));
        }
        Ok(Self {
            active_file: change.active_file.applied_to(before.active_file),
            selection: change.selection.applied_to(before.selection),
            git_ref: change.git_ref.applied_to(before.git_ref),
            fs_scope: change.fs_scope.applied_to(Some(before.fs_scope)).unwrap_or_default(),
            variables,
        })
    }

    pub const fn has_links(&self) -> bool {
        self.active_file.is_some() || self.selection.is_some()
    }

    /// A prompt with the variables put in: in its texts and nowhere else. `bytes_max` bounds all its texts.
    pub fn fill_in(&self, prompt: Content, bytes_max: usize) -> Result<Content, ContextProblem> {
        let mut left = bytes_max;
        let mut fill = |field: String, text: String| {
            let text = if text.contains(OPEN) {
                interpolate(&text, &self.variables, left).map_err(|unfit| unfit.in_field(field, bytes_max))?
            } else {
                text
            };
            left = left.saturating_sub(text.len());
            Ok(text)
        };
        match prompt {
            Content::Text { text, partial } => Ok(Content::Text { text: fill("text".to_owned(), text)?, partial }),
            Content::Blocks { mut blocks } => {
                for (index, block) in blocks.iter_mut().enumerate() {
                    if block.get("type").and_then(Value::as_str) == Some("text")
                        && let Some(Value::String(text)) = block.get_mut("text")
                    {
                        *text = fill(format!("content[{index}].text"), std::mem::take(text))?;
                    }
                }
                Ok(Content::Blocks { blocks })
            }
            other => Ok(other),
        }
    }
}

/// Whether this can name a branch, a tag or a commit.
pub fn is_git_ref(text: &str) -> bool {
    (1..=GIT_REF_BYTES_MAX).contains(&text.len())
        && !text.chars().any(|character| character.is_control() || character.is_whitespace())
}

fn is_name(text: &str) -> bool {
    text.len() <= NAME_BYTES_MAX
        && text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && text.bytes().all(is_of_a_name)
}

const fn is_of_a_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn check_path(field: &str, path: &str) -> Result<(), ContextProblem> {
    let wrong = |problem: &str| Err(ContextProblem::new(field, problem));
    if path.is_empty() {
        return wrong("must not be empty");
    }
    if path.len() > PATH_BYTES_MAX {
        return wrong(&format!("is longer than {PATH_BYTES_MAX} bytes"));
    }
    if path.chars().any(char::is_control) {
        return wrong("must not have control characters");
    }
    Ok(())
}

/// Why the variables cannot be put into a text.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Unfit {
    Unknown(String),
    TooLong,
}

impl Unfit {
    fn in_field(self, field: String, bytes_max: usize) -> ContextProblem {
        let problem = match self {
            Self::Unknown(name) => format!("{OPEN}{name}{CLOSE} is not a variable of the context"),
            Self::TooLong => {
                format!("is too long with its variables; the maximum is {bytes_max} bytes (limits.prompt_max)")
            }
        };
        ContextProblem::new(field, problem)
    }
}

/// Puts the values where their names are. A value is not looked at again, and what is no name stays as it is.
fn interpolate(text: &str, variables: &BTreeMap<String, String>, bytes_max: usize) -> Result<String, Unfit> {
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(OPEN) {
        let after = &rest[start + OPEN.len()..];
        let length = after.bytes().take_while(|byte| is_of_a_name(*byte)).count();
        let (name, behind) = after.split_at(length);
        filled.push_str(&rest[..start]);
        if let Some(behind) = behind.strip_prefix(CLOSE).filter(|_| is_name(name)) {
            filled.push_str(variables.get(name).ok_or_else(|| Unfit::Unknown(name.to_owned()))?);
            rest = behind;
        } else {
            filled.push_str(OPEN);
            rest = after;
        }
        // A short text can name a long value very often.
        if filled.len() > bytes_max {
            return Err(Unfit::TooLong);
        }
    }
    filled.push_str(rest);
    if filled.len() > bytes_max { Err(Unfit::TooLong) } else { Ok(filled) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn change(json: Value) -> ContextChange {
        serde_json::from_value(json).unwrap()
    }

    fn variables(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn what_is_absent_stays_and_null_removes() {
        let given = json!({"activeFile": "a", "selection": {"file": "b", "startLine": 1, "endLine": 2},
            "gitRef": "main", "fsScope": "project", "variables": {"x": "1", "y": "2"}});
        let context = SessionContext::default().changed_by(change(given.clone())).unwrap();
        assert_eq!(serde_json::to_value(&context).unwrap(), given);
        assert_eq!(context.changed_by(change(json!({}))).unwrap(), context);
        let changes = json!({"activeFile": null, "variables": {"x": null, "z": "3"}});
        let changed = context.changed_by(change(changes.clone())).unwrap();
        assert_eq!(changed.active_file, None);
        assert_eq!(changed.selection, context.selection);
        assert_eq!(changed.variables, variables(&[("y", "2"), ("z", "3")]));
        let bare = SessionContext { fs_scope: FsScope::Project, ..SessionContext::default() };
        assert_eq!(context.changed_by(ContextChange::removal()).unwrap(), bare, "the scope is for life");
        assert_eq!(serde_json::to_value(change(changes.clone())).unwrap(), changes, "a client can say it too");
    }

    #[test]
    fn what_is_wrong_is_named() {
        let long = "x".repeat(5000);
        for (json, field) in [
            (json!({"activeFile": ""}), "context.activeFile"),
            (json!({"activeFile": "a\0b"}), "context.activeFile"),
            (json!({"activeFile": long}), "context.activeFile"),
            (json!({"selection": {"file": "", "startLine": 1, "endLine": 1}}), "context.selection.file"),
            (json!({"selection": {"file": "a", "startLine": 0, "endLine": 1}}), "context.selection.startLine"),
            (json!({"selection": {"file": "a", "startLine": 3, "endLine": 2}}), "context.selection.endLine"),
            (json!({"gitRef": ""}), "context.gitRef"),
            (json!({"gitRef": "a b"}), "context.gitRef"),
            (json!({"gitRef": long}), "context.gitRef"),
            (json!({"variables": {"": "x"}}), "context.variables"),
            (json!({"variables": {"1a": "x"}}), "context.variables"),
            (json!({"variables": {"a-b": "x"}}), "context.variables"),
            (json!({"variables": {"ä": "x"}}), "context.variables"),
            (json!({"variables": {"a".repeat(65): "x"}}), "context.variables"),
        ] {
            let problem = change(json.clone()).check().expect_err(&json.to_string());
            assert_eq!(problem.field, field, "{json}");
        }
        let fine = json!({"activeFile": "ä b", "gitRef": "feature/x", "variables": {"_a1": "any\n\"text\""},
            "selection": {"file": "a", "startLine": 2, "endLine": 2}});
        assert_eq!(change(fine).check(), Ok(()));
    }

    #[test]
    fn all_that_a_session_keeps_is_bounded() {
        let context = SessionContext { variables: variables(&[("first", "x")]), ..SessionContext::default() };
        let many: serde_json::Map<String, Value> = (0..VARIABLES_MAX).map(|i| (format!("v{i}"), json!(""))).collect();
        let problem = context.changed_by(change(json!({"variables": many}))).unwrap_err();
        assert!(problem.problem.contains("65"), "{problem}");
        let large = "x".repeat(VARIABLES_BYTES_MAX - 1);
        assert!(context.changed_by(change(json!({"variables": {"a": large}}))).is_err());
        assert!(context.changed_by(change(json!({"variables": {"a": large, "first": null}}))).is_ok());
    }

    #[test]
    fn only_names_are_filled_in_and_only_once() {
        let variables = variables(&[("a", "1"), ("b", "{{ctx.a}}"), ("_x9", "")]);
        for (text, filled) in [
            ("{{ctx.a}}{{ctx.a}}", "11"),
            ("{{{ctx.a}}}", "{1}"),
            ("{{ctx.b}}", "{{ctx.a}}"),
            ("[{{ctx._x9}}]", "[]"),
            ("{{a}} {{ctx}} {{ctx.}} {{ ctx.a }} {{ctx.a }} {{ctx.a-b}} {{ctx.1}} {{ctx.a} {{CTX.a}}", ""),
            ("{{ctx.{{ctx.a}}", "{{ctx.1"),
            ("ä{{ctx.a}}ö", "ä1ö"),
        ] {
            let expected = if filled.is_empty() { text } else { filled };
            assert_eq!(interpolate(text, &variables, 1000).as_deref(), Ok(expected), "{text}");
        }
        assert_eq!(interpolate("{{ctx.a}} {{ctx.no}}", &variables, 1000), Err(Unfit::Unknown("no".to_owned())));
        assert_eq!(interpolate(&"{{ctx.b}}".repeat(10), &variables, 89), Err(Unfit::TooLong));
        assert_eq!(interpolate(&"{{ctx.b}}".repeat(10), &variables, 90).unwrap().len(), 90);
    }

    #[test]
    fn of_blocks_only_texts_are_filled_in() {
        let context = SessionContext { variables: variables(&[("a", "1")]), ..SessionContext::default() };
        let blocks = vec![
            json!({"type": "text", "text": "{{ctx.a}}"}),
            json!({"type": "resource_link", "uri": "file:///{{ctx.a}}", "name": "{{ctx.no}}"}),
        ];
        let filled = context.fill_in(Content::Blocks { blocks: blocks.clone() }, 100).unwrap();
        let expected = vec![json!({"type": "text", "text": "1"}), blocks[1].clone()];
        assert_eq!(filled, Content::Blocks { blocks: expected });
        let blocks = vec![json!({"type": "text", "text": "x"}), json!({"type": "text", "text": "{{ctx.no}}"})];
        let problem = context.fill_in(Content::Blocks { blocks }, 100).unwrap_err();
        assert_eq!(problem.field, "content[1].text");
        assert!(problem.problem.contains("{{ctx.no}}"));
    }

    proptest! {
        #[test]
        fn text_around_the_names_never_changes(parts in prop::collection::vec("[^{}]{0,12}|[{}]{1,3}[a-z. ]{0,4}", 0..8)) {
            let variables = variables(&[("name", "<VALUE>")]);
            // Between the parts are names; what a part itself says is not to be taken for one.
            prop_assume!(parts.iter().all(|part| !part.contains("ctx") && !part.ends_with('{')));
            let text = parts.join("{{ctx.name}}");
            prop_assert_eq!(interpolate(&text, &variables, usize::MAX), Ok(parts.join("<VALUE>")));
        }

        #[test]
        fn a_text_without_names_is_what_it_was(text in "(\\{\\{|ctx|\\.|\\}\\}|[a-z -]|\\PC){0,40}") {
            let unchanged = interpolate(&text, &BTreeMap::new(), usize::MAX);
            match unchanged {
                Ok(unchanged) => prop_assert_eq!(unchanged, text),
                Err(Unfit::Unknown(name)) => {
                    let reference = format!("{OPEN}{name}{CLOSE}");
                    prop_assert!(text.contains(&reference));
                }
                Err(Unfit::TooLong) => prop_assert!(false, "there is no bound"),
            }
        }
    }
}
