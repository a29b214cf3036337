//! `[notifications]`: commands that are run when something happens, and their bounds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use toml::Value;

use super::Problem;
use super::read::Section;
use super::value::FromValue;
use crate::model::TurnStatus;
use crate::model::profile::{SLUG_HINT, is_slug};

/// What can stand in an argument, in braces. `notify/facts.rs` has what takes its place.
pub const PLACEHOLDERS: [&str; 11] = [
    "event",
    "session",
    "title",
    "agent",
    "workspace",
    "turn",
    "permission",
    "status",
    "seconds",
    "summary",
    "notification",
];

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notifications {
    pub timeout: Duration,
    pub concurrent: usize,
    pub queue: usize,
    /// By name.
    pub commands: BTreeMap<String, Arc<Notification>>,
}

/// One command, and when it is run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notification {
    pub name: String,
    pub on: Vec<Occasion>,
    pub command: String,
    pub args: Vec<String>,
    /// Of turns: only those that ended so. Empty: all.
    pub statuses: Vec<TurnStatus>,
    /// Of turns: only those that took this long.
    pub after: Option<Duration>,
    /// Only sessions of these agents. Empty: all.
    pub agents: Vec<String>,
    /// Only sessions with one of these tags. Empty: all.
    pub tags: Vec<String>,
}

/// What can be told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occasion {
    TurnCompleted,
    PermissionRequested,
    SessionFailed,
}

impl Occasion {
    pub const ALL: [Self; 3] = [Self::TurnCompleted, Self::PermissionRequested, Self::SessionFailed];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TurnCompleted => "turn.completed",
            Self::PermissionRequested => "permission.requested",
            Self::SessionFailed => "session.failed",
        }
    }
}

impl Default for Notifications {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(10), concurrent: 4, queue: 64, commands: BTreeMap::new() }
    }
}

impl FromValue for Vec<Occasion> {
    const EXPECTED: &'static str =
        "write a list of \"turn.completed\", \"permission.requested\" and \"session.failed\"";

    fn from_value(value: Value) -> Option<Self> {
        let occasion = |word: &String| Occasion::ALL.into_iter().find(|occasion| occasion.as_str() == word);
        Vec::<String>::from_value(value)?.iter().map(occasion).collect()
    }
}

impl FromValue for Vec<TurnStatus> {
    const EXPECTED: &'static str =
        "write a list of \"completed\", \"failed\", \"cancelled\" and \"interrupted\"; [] for all";

    fn from_value(value: Value) -> Option<Self> {
        let status = |word: &String| word.parse().ok().filter(|status: &TurnStatus| status.is_final());
        Vec::<String>::from_value(value)?.iter().map(status).collect()
    }
}

pub fn read(section: &mut Section<'_>, notifications: &mut Notifications) {
    section.read("timeout", &mut notifications.timeout);
    section.read("concurrent", &mut notifications.concurrent);
    section.read("queue", &mut notifications.queue);
    section.named_tables(|name, section| {
        let mut read = Notification::new(name);
        section.read("on", &mut read.on);
        section.read("command", &mut read.command);
        section.read("args", &mut read.args);
        section.read("statuses", &mut read.statuses);
        section.read("after", &mut read.after);
        section.read("agents", &mut read.agents);
        section.read("tags", &mut read.tags);
        notifications.commands.insert(name.to_owned(), Arc::new(read));
    });
}

impl Notification {
    fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            on: Vec::new(),
            command: String::new(),
            args: Vec::new(),
            statuses: Vec::new(),
            after: None,
            agents: Vec::new(),
            tags: Vec::new(),
        }
    }
}

/// What no single key can say. Arguments are not shown: somebody may have written a key into one.
pub fn check(notifications: &Notifications, problems: &mut Vec<Problem>) {
    for notification in notifications.commands.values() {
        let mut problem = |key: &str, message: String, hint: String| {
            let key = format!("notifications.{}{key}", notification.name);
            problems.push(Problem { key, message, hint });
        };
        if !is_slug(&notification.name) {
            problem("", "is not a valid name for a notification".to_owned(), SLUG_HINT.to_owned());
        }
        if notification.on.is_empty() {
            problem(".on", "names no events".to_owned(), Vec::<Occasion>::EXPECTED.to_owned());
        }
        let is_path = notification.command.contains('/');
        if notification.command.is_empty() || (is_path && !notification.command.starts_with('/')) {
            let hint = "give a program on the daemon's PATH, such as \"notify-send\", or an absolute path; acpd starts it \
                    without a shell";
            problem(".command", "is missing, or is a relative path".to_owned(), hint.to_owned());
        }
        let is_of_turns = !notification.statuses.is_empty() || notification.after.is_some();
        if is_of_turns && !notification.on.contains(&Occasion::TurnCompleted) {
            let hint = "remove statuses and after, or add \"turn.completed\" to on".to_owned();
            problem(".on", "does not include \"turn.completed\", which statuses and after need".to_owned(), hint);
        }
        for agent in notification.agents.iter().filter(|agent| !is_slug(agent)) {
            let hint = "give names from `acpd agents`; [] for all agents".to_owned();
            problem(".agents", format!("has {agent:?}, which is not a valid agent name"), hint);
        }
        if let Some(unknown) = notification.args.iter().find_map(|argument| unknown_placeholder(argument)) {
            let known = PLACEHOLDERS.map(|name| format!("{{{name}}}")).join(", ");
            problem(".args", format!("has the unknown placeholder {{{unknown}}}"), format!("use {known}"));
        }
        if notification.args.iter().any(|argument| argument.contains('\0')) {
            problem(".args", "has a NUL byte".to_owned(), "remove the NUL byte".to_owned());
        }
    }
}

/// A word in braces that looks like a placeholder. What else may be in braces, such as JSON, is nobody's business.
fn unknown_placeholder(argument: &str) -> Option<&str> {
    let words = argument.split('{').skip(1).filter_map(|rest| Some(rest.split_once('}')?.0));
    let is_word = |word: &&str| !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    words.filter(is_word).find(|word| !PLACEHOLDERS.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn read(text: &str) -> Result<Config, String> {
        Config::read(text, "config.toml", &[].into()).map_err(|error| error.in_one_line())
    }

    #[test]
    fn a_notification_has_a_command_occasions_and_filters() {
        let config = read(
            "[notifications]\nqueue = 3\n[notifications.desktop]\non = [\"turn.completed\", \"session.failed\"]\n\
             command = \"notify-send\"\nargs = [\"--\", \"{title}\", \"{\\\"a\\\": 1}\"]\nstatuses = [\"failed\"]\n\
             after = \"30s\"\nagents = [\"demo\"]\ntags = [\"work\"]\n",
        );
        let notifications = config.unwrap().notifications;
        assert_eq!((notifications.queue, notifications.concurrent), (3, Notifications::default().concurrent));
        let desktop = &notifications.commands["desktop"];
        assert_eq!(desktop.on, [Occasion::TurnCompleted, Occasion::SessionFailed]);
        assert_eq!(
            (desktop.after, desktop.statuses.as_slice()),
            (Some(Duration::from_secs(30)), &[TurnStatus::Failed][..])
        );
    }

    #[test]
    fn the_examples_of_the_documents_hold() {
        let page = include_str!("../../docs/notifications.md");
        let examples: Vec<&str> = page.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
        assert!(examples.len() > 4);
        for example in examples {
            let names = read(example).unwrap_or_else(|problems| panic!("{problems}\n{example}")).notifications.commands;
            assert!(!names.is_empty(), "{example}");
        }
        for name in PLACEHOLDERS {
            assert!(page.contains(&format!("| `{{{name}}}` |")), "{name} is not described");
        }
        let comments = include_str!("../../config.toml").lines().filter_map(|line| line.strip_prefix("#   "));
        let example =
            comments.skip_while(|line| *line != "[notifications.desktop]").take(8).collect::<Vec<_>>().join("\n");
        assert_eq!(read(&example).unwrap().notifications.commands["desktop"].command, "notify-send");
    }

    #[test]
    fn every_problem_is_told_at_once() {
        let problems = read(
            "[notifications]\ntimeout = \"0s\"\ntimeouts = 1\n[notifications.a]\non = [\"turn.ended\"]\ncommand = \"x\"\n\
             [notifications.\"B c\"]\non = [\"session.failed\"]\ncommand = \"bin/x\"\nargs = [\"{titel}\"]\nafter = \"1s\"\n\
             agents = [\"Nobody!\"]\nstatuses = [\"running\"]\nshell = true\n",
        )
        .unwrap_err();
        for part in [
            "notifications.timeout: has an invalid value",
            "notifications.timeouts: is not a known key",
            "notifications.a.on: has an invalid value [\"turn.ended\"]",
            "notifications.B c: is not a valid name for a notification",
            "notifications.B c.command: is missing, or is a relative path",
            "notifications.B c.on: does not include",
            "notifications.B c.agents: has \"Nobody!\"",
            "notifications.B c.args: has the unknown placeholder {titel}",
            "notifications.B c.statuses: has an invalid value",
            "notifications.B c.shell: is not a known key",
        ] {
            assert!(problems.contains(part), "{part}\n{problems}");
        }
        assert_eq!(problems.matches("notifications.a.on:").count(), 1, "a wrong value is told once: {problems}");
    }
}
