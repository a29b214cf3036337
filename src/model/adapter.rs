//! What differs from agent to agent beyond how it is started.
//!
//! The core asks the adapter, and never the agent's name. An adapter is data: its [`Quirks`] are all that it can say, and
//! `docs/adapters.md` tells what each is for. What it needs on the disk is in `agent::adapter_home`.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use Asks::{Always, ExceptEdits, Model, Never, Unknown};

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

/// Whether an agent sends a permission request before it changes a file or runs a command, as far as its mode decides that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Asks {
    Always,
    ExceptEdits,
    /// It asks a model instead of a person.
    Model,
    Never,
    /// acpd has no adapter for the agent.
    #[default]
    Unknown,
}

impl Asks {
    /// What a person must know who relies on permission requests. The agent is the subject of the sentence.
    pub const fn warning(self) -> Option<&'static str> {
        match self {
            Self::Always => None,
            Self::ExceptEdits => Some("edits files without asking"),
            Self::Model => Some("asks a model instead of you"),
            Self::Never => Some("acts without asking"),
            Self::Unknown => Some("may act without asking"),
        }
    }
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
    /// Whether the history that the agent repeats on `session/load` ends with the update of the available commands that follows
    /// the answer. Otherwise it ends with the answer, as the protocol has it.
    pub replays_after_answer: bool,
    /// Whether a tool call gives the tool's name only in its id, and its input only in other fields: the title of one that executes
    /// something is the command.
    pub tools_named_in_ids: bool,
    /// What stands, up to a `]`, before the directory that a command runs in, in what is shown of its tool call.
    pub directory_shown_after: &'static [&'static str],
    /// Whether the agent reads a file before it makes it, and takes an error there for the failure of the whole: then a
    /// file that is not there reads as an empty one.
    pub reads_new_files: bool,
    /// What a piece of the agent's text begins with that is no text, but tells its mode.
    pub mode_told_after: Option<&'static str>,
    /// Ways to sign in that need a person, whom nobody asks for: `agents.SLUG.auth_method` may not be one of them.
    pub methods_of_people: &'static [&'static str],
    /// Whether the agent takes its profile's system prompt as `_meta.systemPrompt` of each request that begins or restores a
    /// conversation. Otherwise it is the first block of the first prompt, since the protocol has no place for it.
    pub takes_system_prompt: bool,
    /// What the agent writes to standard output when it wants a person to sign in. It reads the code from standard input,
    /// so that nothing must be said to it any more.
    pub login_prompt: Option<&'static str>,
    /// Whether the agent refuses `session/new` until a person has signed in. Then its answer proves a sign-in.
    pub new_session_needs_login: bool,
    /// The key that the agent's provider gives out, for `acpd agents key`.
    pub key: Option<ApiKey>,
    /// The agent's modes, by whether it asks in them. Of those in which it asks, acpd prefers the first.
    pub modes: &'static [(Asks, &'static [&'static str])],
    /// The variable by which the agent is made to ask.
    pub ask_variable: Option<&'static str>,
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
    replays_after_answer: false,
    tools_named_in_ids: false,
    directory_shown_after: &[],
    reads_new_files: false,
    mode_told_after: None,
    methods_of_people: &[],
    takes_system_prompt: false,
    login_prompt: None,
    new_session_needs_login: false,
    key: None,
    modes: &[],
    ask_variable: None,
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
    replays_after_answer: true,
    tools_named_in_ids: true,
    directory_shown_after: &["[current working directory ", "[in "],
    reads_new_files: true,
    mode_told_after: Some("[MODE_UPDATE] "),
    methods_of_people: &["oauth-personal"],
    takes_system_prompt: false,
    login_prompt: Some("Please visit the following URL to authorize the application"),
    new_session_needs_login: true,
    key: Some(key("GEMINI_API_KEY")),
    modes: &[(Always, &["default", "plan"]), (ExceptEdits, &["autoEdit"]), (Never, &["yolo"])],
    ask_variable: None,
    session_lost: None,
};

const CLAUDE: Quirks = Quirks {
    takes_system_prompt: true,
    key: Some(key("ANTHROPIC_API_KEY")),
    modes: &[
        // In dontAsk it refuses what the settings do not allow.
        (Always, &["default", "plan", "dontAsk"]),
        (ExceptEdits, &["acceptEdits"]),
        (Model, &["auto"]),
        (Never, &["bypassPermissions"]),
    ],
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
    modes: &[
        // `agent::adapter_home::codex` makes the first one.
        (Always, &["permission-profile:acpd", "read-only"]),
        (Model, &["agent"]),
        // In workspace-write it acts without asking within its own sandbox.
        (Never, &["workspace-write", "agent-full-access"]),
    ],
    ..PLAIN
};

const OPENCODE: Quirks = Quirks {
    // The next release is for its owner to install, not for a session.
    environment: &[("OPENCODE_DISABLE_AUTOUPDATE", "true")],
    methods_of_people: &["opencode-login"],
    modes: &[(Always, &["build", "plan"])],
    ask_variable: Some("OPENCODE_PERMISSION"),
    ..PLAIN
};

const QWEN: Quirks = Quirks {
    // It comes from Gemini CLI, and its older releases are said to have kept the argument of that time.
    older_argument: Some(EXPERIMENTAL),
    new_session_needs_login: true,
    key: Some(key("OPENAI_API_KEY")),
    modes: &[(Always, &["default", "plan"]), (ExceptEdits, &["auto-edit"]), (Model, &["auto"]), (Never, &["yolo"])],
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

    /// The tool's name in the id of a call: `read_file__1a2b`, or `read_file-1794794146351-1` with a time in milliseconds.
    pub fn tool_named_in(self, id: &str) -> Option<&str> {
        let is_number = |text: &str, digits| text.len() >= digits && text.bytes().all(|byte| byte.is_ascii_digit());
        let name = match id.rsplitn(3, '-').collect::<Vec<_>>()[..] {
            [count, millis, name] if is_number(count, 1) && is_number(millis, 13) => name,
            // Names of MCP tools can contain `__`; what follows the last one is the call's own id.
            _ => id.rsplit_once("__")?.0,
        };
        (self.quirks().tools_named_in_ids && !name.is_empty()).then_some(name)
    }

    /// The mode that a piece of text tells, when it is no text.
    pub fn mode_told(self, text: &str) -> Option<&str> {
        text.strip_prefix(self.quirks().mode_told_after?)
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

    /// Whether the agent asks in this mode. The strictest answer holds for a mode that the adapter does not list; of an agent
    /// without an adapter, only the mode's name can tell.
    pub fn asks(self, mode: &str) -> Asks {
        let modes = self.quirks().modes;
        let listed = modes.iter().find(|(_, modes)| modes.contains(&mode)).map(|(asks, _)| *asks);
        listed.unwrap_or_else(|| if modes.is_empty() { by_name(mode) } else { Never })
    }

    /// Whether a line of the agent's wants a person to sign in.
    pub fn is_login_prompt(self, line: &str) -> bool {
        self.quirks().login_prompt.is_some_and(|prompt| line.contains(prompt))
    }
}

/// What the name of a mode suggests. Most agents use such words.
pub fn by_name(mode: &str) -> Asks {
    const NEVER: [&str; 6] = ["yolo", "bypass", "danger", "fullaccess", "fullauto", "autopilot"];
    const EXCEPT_EDITS: [&str; 2] = ["acceptedit", "auto"];
    let name: String = mode.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
    let is_called = |words: &[&str]| words.iter().any(|word| name.contains(word));
    if is_called(&NEVER) {
        return Never;
    }
    if is_called(&EXCEPT_EDITS) { ExceptEdits } else { Unknown }
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
    fn what_gemini_says_beside_the_protocol_is_known() {
        assert_eq!(Adapter::Gemini.mode_told("[MODE_UPDATE] autoEdit"), Some("autoEdit"));
        assert_eq!(Adapter::Gemini.mode_told("what is [MODE_UPDATE] autoEdit?"), None);
        assert_eq!(Adapter::Generic.mode_told("[MODE_UPDATE] autoEdit"), None);
        let line = "\u{1b}[2J\u{1b}[HPlease visit the following URL to authorize the application:";
        assert!(Adapter::Gemini.is_login_prompt(line) && !Adapter::Generic.is_login_prompt(line));
        assert_eq!(Adapter::Gemini.directory_shown("[in /x] (y)"), Some("/x"));
    }
}
