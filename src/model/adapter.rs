//! What differs from agent to agent beyond how it is started.
//!
//! The core asks the adapter, and never the agent's name. An adapter is data: its [`Quirks`] are all that it can say, and
//! `docs/adapters.md` tells what each is for. What it needs on the disk is in `agent::adapter_home`.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::permission::PermissionMode;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Adapter {
    /// For agents that keep to the protocol.
    #[default]
    Generic,
    Gemini,
    Claude,
    Codex,
    Opencode,
    Qwen,
}

/// When the history that an agent repeats on `session/load` is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayEnd {
    /// With the answer, as the protocol has it.
    Answer,
    /// With the update of the available commands that follows the answer.
    CommandsUpdate,
}

/// How an agent is given its profile's system prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SystemPromptWay {
    /// As the first block of the first prompt, since the protocol has no place for it.
    FirstBlock,
    /// Beside the protocol, as `_meta.systemPrompt` of whatever begins a conversation or takes one up again.
    Meta,
}

/// All that an adapter can say. Whoever adds to it adds a line to `docs/adapters.md`.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct Quirks {
    /// Variables that the agent needs when nobody runs it by hand. The profile's own go before them.
    pub environment: &'static [(&'static str, &'static str)],
    /// An argument that older releases do not know, and what they call it. They say so with these words, and end.
    pub older_argument: Option<OlderArgument>,
    /// Whether it has a place of its own in the session's home also when it is not confined.
    pub always_has_own_home: bool,
    pub replay_end: ReplayEnd,
    /// Whether the title of a tool call that executes something is the command, and the only place where it is.
    pub titles_are_commands: bool,
    /// What stands, up to a `]`, before the directory that a command runs in, in what is shown of its tool call.
    pub directory_shown_after: &'static [&'static str],
    /// Whether the agent reads a file before it makes it, and takes an error there for the failure of the whole: then a
    /// file that is not there reads as an empty one.
    pub reads_new_files: bool,
    /// What a piece of the agent's text begins with that is no text, but tells its mode.
    pub mode_told_after: Option<&'static str>,
    /// Ways to sign in that need a person, whom nobody asks for: `agents.SLUG.auth_method` may not be one of them.
    pub methods_of_people: &'static [&'static str],
    pub system_prompt: SystemPromptWay,
    /// What the agent writes to standard output when it wants a person to sign in. It reads the code from standard input,
    /// so that nothing must be said to it any more.
    pub login_prompt: Option<&'static str>,
    /// Whether the agent refuses `session/new` until a person has signed in. Then its answer proves a sign-in.
    pub new_session_needs_login: bool,
    /// The key that the agent's provider gives out, for `acpd agents key`.
    pub key: Option<ApiKey>,
    /// A part of the error with which the agent refuses a prompt because it has lost its session.
    pub session_lost: Option<&'static str>,
}

#[derive(Debug)]
pub struct ApiKey {
    pub variable: &'static str,
    /// What `auth_method` must be, for an agent that uses the key only then.
    pub auth_method: Option<&'static str>,
}

const fn key(variable: &'static str) -> ApiKey {
    ApiKey { variable, auth_method: None }
}

#[derive(Debug)]
pub struct OlderArgument {
    pub argument: &'static str,
    pub older: &'static str,
    pub refusal: &'static str,
}

const EXPERIMENTAL: OlderArgument =
    OlderArgument { argument: "--acp", older: "--experimental-acp", refusal: "Unknown argument: acp" };

/// What an agent that keeps to the protocol has: none.
const PLAIN: Quirks = Quirks {
    environment: &[],
    older_argument: None,
    always_has_own_home: false,
    replay_end: ReplayEnd::Answer,
    titles_are_commands: false,
    directory_shown_after: &[],
    reads_new_files: false,
    mode_told_after: None,
    methods_of_people: &[],
    system_prompt: SystemPromptWay::FirstBlock,
    login_prompt: None,
    new_session_needs_login: false,
    key: None,
    session_lost: None,
};

const GEMINI: Quirks = Quirks {
    environment: &[
        // One process instead of two, of which the first swallows signals.
        ("GEMINI_CLI_NO_RELAUNCH", "true"),
        // Nobody could answer the question whether the folder is trusted; who registered it has.
        ("GEMINI_CLI_TRUST_WORKSPACE", "true"),
        // Nobody sits before the browser that it would open.
        ("NO_BROWSER", "true"),
    ],
    older_argument: Some(EXPERIMENTAL),
    // Its settings must be others than the user's, or it deletes conversations that it has loaded.
    always_has_own_home: true,
    // It answers a load before it has repeated the conversation.
    replay_end: ReplayEnd::CommandsUpdate,
    titles_are_commands: true,
    directory_shown_after: &["[current working directory ", "[in "],
    reads_new_files: true,
    mode_told_after: Some("[MODE_UPDATE] "),
    methods_of_people: &["oauth-personal"],
    system_prompt: SystemPromptWay::FirstBlock,
    login_prompt: Some("Please visit the following URL to authorize the application"),
    new_session_needs_login: true,
    key: Some(key("GEMINI_API_KEY")),
    session_lost: None,
};

const CLAUDE: Quirks = Quirks {
    system_prompt: SystemPromptWay::Meta,
    key: Some(key("ANTHROPIC_API_KEY")),
    // claude-agent-acp, when the process below it has just ended. Later it no longer knows the session's id.
    session_lost: Some("The Claude Agent process exited unexpectedly"),
    ..PLAIN
};

const CODEX: Quirks = Quirks {
    // Nobody sits before the browser that it would open.
    environment: &[("NO_BROWSER", "1")],
    methods_of_people: &["chat-gpt", "chat-gpt-device-code"],
    new_session_needs_login: true,
    key: Some(ApiKey { variable: "OPENAI_API_KEY", auth_method: Some("api-key") }),
    ..PLAIN
};

const OPENCODE: Quirks = Quirks {
    // The next release is for its owner to install, not for a session.
    environment: &[("OPENCODE_DISABLE_AUTOUPDATE", "true")],
    methods_of_people: &["opencode-login"],
    ..PLAIN
};

const QWEN: Quirks = Quirks {
    // It comes from Gemini CLI, and its older releases are said to have kept the argument of that time.
    older_argument: Some(EXPERIMENTAL),
    new_session_needs_login: true,
    key: Some(key("OPENAI_API_KEY")),
    ..PLAIN
};

impl Adapter {
    pub const fn quirks(self) -> &'static Quirks {
        match self {
            Self::Generic => &PLAIN,
            Self::Claude => &CLAUDE,
            Self::Gemini => &GEMINI,
            Self::Codex => &CODEX,
            Self::Opencode => &OPENCODE,
            Self::Qwen => &QWEN,
        }
    }

    /// Where a command runs, out of what the agent shows of a tool call that executes it.
    pub fn directory_shown(self, text: &str) -> Option<&str> {
        let directory = self.quirks().directory_shown_after.iter().find_map(|before| text.strip_prefix(before))?;
        directory.split_once(']').map(|(directory, _)| directory)
    }

    /// The mode that a piece of text tells, when it is no text.
    pub fn mode_told(self, text: &str) -> Option<&str> {
        text.strip_prefix(self.quirks().mode_told_after?)
    }

    /// Whether it is given a system prompt beside the protocol.
    pub fn takes_system_prompt(self) -> bool {
        self.quirks().system_prompt == SystemPromptWay::Meta
    }

    /// The arguments that an older release takes, when one has ended because of the usual ones.
    pub fn older_arguments(self, arguments: &[String], stderr: &str) -> Option<Vec<String>> {
        let older = self.quirks().older_argument.as_ref().filter(|older| stderr.contains(older.refusal))?;
        let is_meant = |argument: &String| argument == older.argument;
        arguments.iter().any(is_meant).then(|| {
            let called = |argument: &String| if is_meant(argument) { older.older.to_owned() } else { argument.clone() };
            arguments.iter().map(called).collect()
        })
    }

    /// Whether a line of the agent's wants a person to sign in.
    pub fn is_login_prompt(self, line: &str) -> bool {
        self.quirks().login_prompt.is_some_and(|prompt| line.contains(prompt))
    }
}

/// What an agent in this mode grants itself without asking; none for a mode that is not known to grant anything. Agents
/// call such modes by habit, and all have the habit.
pub fn mode_grant(mode: &str) -> Option<PermissionMode> {
    const ALL: [&str; 6] = ["yolo", "bypass", "danger", "fullaccess", "fullauto", "autopilot"];
    const EDITS: [&str; 3] = ["acceptedit", "autoedit", "auto"];
    let name: String = mode.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
    let is_called = |words: &[&str]| words.iter().any(|word| name.contains(word));
    if is_called(&ALL) {
        return Some(PermissionMode::Allow);
    }
    is_called(&EDITS).then_some(PermissionMode::Edit)
}

impl FromStr for Adapter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "generic" => Ok(Self::Generic),
            "gemini" => Ok(Self::Gemini),
            "claude" => Ok(Self::Claude),
            "codex" => Ok(Self::Codex),
            "opencode" => Ok(Self::Opencode),
            "qwen" => Ok(Self::Qwen),
            _ => Err(format!("{text:?} is not an adapter; use generic, gemini, claude, codex, opencode or qwen")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_release_gets_the_argument_that_it_knows() {
        let arguments = ["--acp", "--model", "x"].map(str::to_owned);
        let stderr = "Unknown argument: acp\nUsage: gemini [options] [command]";
        let older = Adapter::Gemini.older_arguments(&arguments, stderr).unwrap();
        assert_eq!(older, ["--experimental-acp", "--model", "x"]);
        assert_eq!(Adapter::Gemini.older_arguments(&older, stderr), None, "once");
        assert_eq!(Adapter::Gemini.older_arguments(&arguments, "Unknown argument: workspace"), None);
        assert_eq!(Adapter::Generic.older_arguments(&arguments, stderr), None);
    }

    #[test]
    fn what_gemini_says_beside_the_protocol_is_known() {
        assert_eq!(Adapter::Gemini.mode_told("[MODE_UPDATE] autoEdit"), Some("autoEdit"));
        assert_eq!(Adapter::Gemini.mode_told("what is [MODE_UPDATE] autoEdit?"), None);
        assert_eq!(Adapter::Generic.mode_told("[MODE_UPDATE] autoEdit"), None);
        let line = "\u{1b}[2J\u{1b}[HPlease visit the following URL to authorize the application:";
        assert!(Adapter::Gemini.is_login_prompt(line) && !Adapter::Generic.is_login_prompt(line));
        assert_eq!(Adapter::Gemini.directory_shown("[in /x] (y)"), Some("/x"));
    }
}
