//! Rules of a policy: what they are about, and what they decide.
//!
//! A rule that allows has to be met by all that an action does; one that forbids or asks, by any of it. So doubt never
//! widens anything.

use std::fmt;

use globset::{GlobBuilder, GlobMatcher};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::{CommandText, Located, Place, ToolKind, command};

/// What is allowed of a single text in a rule.
const TEXT_BYTES_MAX: usize = 1024;
/// Entries of one list in a rule.
const ENTRIES_MAX: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Ruling {
    Allow,
    Deny,
    Ask,
}

/// A rule. Conditions that it does not name always match.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = PolicyRule)]
pub struct Rule {
    pub decision: Ruling,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_items = 1, max_items = 256)]
    pub kinds: Option<Vec<ToolKind>>,
    /// Globs of paths below the workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<String>>, min_items = 1, max_items = 256)]
    pub paths: Option<Vec<PathGlob>>,
    /// Prefixes of command lines, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<CommandText>>, min_items = 1, max_items = 256)]
    pub commands: Option<Vec<CommandPrefix>>,
}

impl Rule {
    /// What is wrong with it that no single field shows: a list of nothing would match everything or nothing.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        let lengths = [
            ("kinds", self.kinds.as_ref().map(Vec::len)),
            ("paths", self.paths.as_ref().map(Vec::len)),
            ("commands", self.commands.as_ref().map(Vec::len)),
        ];
        for (name, length) in lengths {
            match length {
                Some(0) => return Err((name, "is empty; leave it out to match everything".to_owned())),
                Some(length) if length > ENTRIES_MAX => {
                    return Err((name, format!("has more than {ENTRIES_MAX} entries")));
                }
                Some(_) | None => {}
            }
        }
        Ok(())
    }

    pub fn matches(&self, action: &Located) -> bool {
        match self.decision {
            Ruling::Allow => self.covers(action),
            Ruling::Deny | Ruling::Ask => self.touches(action),
        }
    }

    /// Whether all that the action does is named by the rule.
    fn covers(&self, action: &Located) -> bool {
        let is_inside = action.touched().chain(&action.cwd).all(|place| matches!(place, Place::Inside { .. }));
        // Variables make any program of a command.
        let is_plain = !action.is_unclear
            && action.env.is_empty()
            && !action.command.as_ref().is_some_and(command::sets_variables);
        let kinds = self.kinds.as_ref().is_none_or(|kinds| kinds.contains(&action.kind()));
        let paths = self.paths.as_ref().is_none_or(|globs| {
            // A command can touch any file, whichever it names.
            let is_named = !action.places.is_empty() && action.command.is_none();
            is_named && action.touched().all(|place| globs.iter().any(|glob| glob.covers(place)))
        });
        let commands = self.commands.as_ref().is_none_or(|prefixes| {
            let vector = action.command.as_ref().and_then(command::vector);
            vector.is_some_and(|vector| prefixes.iter().any(|CommandPrefix(prefix)| vector.starts_with(prefix)))
        });
        is_inside && is_plain && kinds && paths && commands && (!action.is_guarded() || self.names_guarded(action))
    }

    /// Whether anything that the action does is named by the rule.
    fn touches(&self, action: &Located) -> bool {
        let kinds =
            self.kinds.as_ref().is_none_or(|kinds| kinds.contains(&action.kind()) || kinds.contains(&action.said));
        let paths = self.paths.as_ref().is_none_or(|globs| {
            let touched = |place: &Place| place.names().any(|name| globs.iter().any(|glob| glob.matches(name)));
            let above = |name: &str| globs.iter().any(|glob| glob.is_below(name));
            let is_above = |place: &Place| place.names().any(above);
            // Whoever names a directory means what is in it, but commands name the workspace itself for many reasons.
            let is_mentioned =
                |place: &Place| touched(place) || place.names().any(|name| !name.is_empty() && above(name));
            action.touched().any(|place| touched(place) || (action.takes_away() && is_above(place)))
                || action.mentioned.iter().any(is_mentioned)
                || action.swept.iter().any(is_above)
        });
        let commands = self.commands.as_ref().is_none_or(|prefixes| {
            let command = action.whole_command();
            let mentions = |CommandPrefix(prefix): &CommandPrefix| {
                command.as_ref().is_some_and(|command| command::mentions(command, prefix))
            };
            action.is_unknown_command() || prefixes.iter().any(mentions)
        });
        kinds && paths && commands
    }

    /// Whether the rule speaks of what is guarded by its name, for each way in which the action touches that.
    fn names_guarded(&self, action: &Located) -> bool {
        let globs = self.paths.as_deref().unwrap_or_default();
        let prefixes = self.commands.as_deref().unwrap_or_default();
        let by_path = !action.is_guarded_by_path() || globs.iter().any(|glob| command::names_git_directory(&glob.text));
        let by_command = !action.is_guarded_by_command()
            || prefixes.iter().any(|CommandPrefix(prefix)| {
                let is_met =
                    action.command.as_ref().and_then(command::vector).is_some_and(|vector| vector.starts_with(prefix));
                is_met && command::names_guarded(prefix)
            });
        by_path && by_command
    }
}

/// A glob below the workspace. `*` stays within a directory, `**` does not.
#[derive(Clone, Debug)]
pub struct PathGlob {
    text: String,
    matcher: GlobMatcher,
}

impl PathGlob {
    pub fn new(text: &str) -> Result<Self, String> {
        if text.is_empty() || text.len() > TEXT_BYTES_MAX {
            return Err(format!("a glob has 1 to {TEXT_BYTES_MAX} bytes"));
        }
        let is_plain = |component: &str| !matches!(component, "" | "." | "..");
        if !text.split('/').all(is_plain) {
            return Err(format!(
                "{text:?} is not a valid glob: it must be a path below the workspace, without leading, trailing or \
                    double /, and without . or .."
            ));
        }
        let glob = GlobBuilder::new(text).literal_separator(true).build();
        let glob = glob.map_err(|error| format!("{text:?} is not a valid glob: {}", error.kind()))?;
        Ok(Self { text: text.to_owned(), matcher: glob.compile_matcher() })
    }

    fn matches(&self, name: &str) -> bool {
        self.matcher.is_match(name)
    }

    /// Whether all that it matches is below this, as far as its beginning tells.
    fn is_below(&self, name: &str) -> bool {
        let is_literal = |component: &&str| !component.contains(['*', '?', '[', '{', '\\']);
        let mut beginning = self.text.split('/').take_while(is_literal);
        name.is_empty() || name.split('/').all(|component| beginning.next() == Some(component))
    }

    /// By its real path: where a link leads is what is touched.
    fn covers(&self, place: &Place) -> bool {
        match place {
            Place::Inside { real, .. } => self.matches(real),
            Place::Outside { .. } => false,
        }
    }
}

impl PartialEq for PathGlob {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for PathGlob {}

impl Serialize for PathGlob {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for PathGlob {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(&String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

/// The first words of a command: `["cargo", "test"]`, or `"cargo test"`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CommandPrefix(pub Vec<String>);

impl CommandPrefix {
    fn new(words: Vec<String>) -> Result<Self, String> {
        let is_word =
            |word: &String| !word.is_empty() && word.len() <= TEXT_BYTES_MAX && !word.chars().any(char::is_control);
        if words.is_empty() || words.len() > ENTRIES_MAX || !words.iter().all(is_word) {
            return Err("a command is a list of words, or a string that is split into words".to_owned());
        }
        Ok(Self(words))
    }
}

impl<'de> Deserialize<'de> for CommandPrefix {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = CommandPrefix;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a list of words or a string")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<CommandPrefix, E> {
                let words = command::split(text);
                let words =
                    words.ok_or_else(|| E::custom(format!("{text:?} has characters that are special to a shell")))?;
                CommandPrefix::new(words).map_err(E::custom)
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, mut list: A) -> Result<CommandPrefix, A::Error> {
                let mut words = Vec::new();
                while let Some(word) = list.next_element::<String>()? {
                    words.push(word);
                }
                CommandPrefix::new(words).map_err(de::Error::custom)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}
