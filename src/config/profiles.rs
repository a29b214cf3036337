//! The agents that acpd knows without being told: how each is started, what it needs, and how a person gets there.
//!
//! One that is not installed costs nothing and is no mistake; it is listed as missing. docs/agents.md has what was seen of
//! each of them.

use std::collections::BTreeMap;

use super::SELF_COMMAND;
use crate::model::{Adapter, AgentProfile};

/// All of them, by name.
pub fn shipped() -> BTreeMap<String, AgentProfile> {
    [gemini(), claude(), codex(), opencode(), qwen(), demo()].map(|agent| (agent.slug.clone(), agent)).into()
}

fn names<const N: usize>(names: [&str; N]) -> Vec<String> {
    names.map(str::to_owned).into()
}

fn gemini() -> AgentProfile {
    AgentProfile {
        name: "Gemini CLI".to_owned(),
        description: "Google's Gemini CLI".to_owned(),
        command: "gemini".to_owned(),
        args: names(["--acp"]),
        env_pass: names([
            "GEMINI_API_KEY",
            "GEMINI_CLI_CUSTOM_HEADERS",
            "GOOGLE_API_KEY",
            "GOOGLE_APPLICATION_CREDENTIALS",
            "GOOGLE_CLOUD_ACCESS_TOKEN",
            "GOOGLE_CLOUD_LOCATION",
            "GOOGLE_CLOUD_PROJECT",
            "GOOGLE_GEMINI_BASE_URL",
            "GOOGLE_GENAI_USE_GCA",
            "GOOGLE_GENAI_USE_VERTEXAI",
        ]),
        env_plain: names([
            "GEMINI_CLI_HOME",
            "GOOGLE_APPLICATION_CREDENTIALS",
            "GOOGLE_CLOUD_LOCATION",
            "GOOGLE_CLOUD_PROJECT",
            "GOOGLE_GEMINI_BASE_URL",
            "GOOGLE_GENAI_USE_*",
        ]),
        adapter: Adapter::Gemini,
        install_hint:
            "install it with `npm install -g @google/gemini-cli` and sign in with `acpd agents login gemini`; \
            to try acpd without a key, use --agent demo"
                .to_owned(),
        login_hint: "sign in with `acpd agents login gemini`, or store a GEMINI_API_KEY with `acpd agents key gemini`"
            .to_owned(),
        login_command: names(["gemini"]),
        ..AgentProfile::new("gemini")
    }
}

fn claude() -> AgentProfile {
    AgentProfile {
        name: "Claude Code".to_owned(),
        description: "Anthropic's Claude Code, through claude-agent-acp".to_owned(),
        command: "claude-agent-acp".to_owned(),
        env_pass: names([
            "ANTHROPIC_API_KEY",
            "ANTHROPIC_AUTH_TOKEN",
            "ANTHROPIC_BASE_URL",
            "ANTHROPIC_MODEL",
            "CLAUDE_CODE_EXECUTABLE",
            "CLAUDE_CODE_OAUTH_TOKEN",
            "CLAUDE_CODE_USE_BEDROCK",
            "CLAUDE_CODE_USE_VERTEX",
        ]),
        env_plain: names([
            "ANTHROPIC_BASE_URL",
            "ANTHROPIC_MODEL",
            "CLAUDE_CODE_EXECUTABLE",
            "CLAUDE_CODE_USE_*",
            "CLAUDE_CONFIG_DIR",
        ]),
        adapter: Adapter::Claude,
        install_hint:
            "install it with `npm install -g @agentclientprotocol/claude-agent-acp`, which needs Node.js 22 or \
                       newer"
                .to_owned(),
        login_hint:
            "sign in with `acpd agents login claude`, or store an ANTHROPIC_API_KEY with `acpd agents key claude`"
                .to_owned(),
        login_command: names(["claude", "/login"]),
        ..AgentProfile::new("claude")
    }
}

fn codex() -> AgentProfile {
    AgentProfile {
        name: "Codex".to_owned(),
        description: "OpenAI's Codex, through codex-acp".to_owned(),
        command: "codex-acp".to_owned(),
        env_pass: names(["CODEX_API_KEY", "CODEX_PATH", "DEFAULT_AUTH_REQUEST", "OPENAI_API_KEY"]),
        env_plain: names(["CODEX_HOME", "CODEX_PATH", "DEFAULT_AUTH_REQUEST"]),
        adapter: Adapter::Codex,
        install_hint: "install it with `npm install -g @agentclientprotocol/codex-acp`, which includes Codex"
            .to_owned(),
        login_hint: "sign in with `acpd agents login codex`, or store an OPENAI_API_KEY with `acpd agents key codex`"
            .to_owned(),
        login_command: names(["npx", "-y", "@openai/codex", "login"]),
        ..AgentProfile::new("codex")
    }
}

fn opencode() -> AgentProfile {
    AgentProfile {
        name: "OpenCode".to_owned(),
        description: "OpenCode, for models of many providers".to_owned(),
        command: "opencode".to_owned(),
        args: names(["acp"]),
        env_pass: names([
            "ANTHROPIC_API_KEY",
            "GOOGLE_GENERATIVE_AI_API_KEY",
            "OPENAI_API_KEY",
            "OPENCODE_API_KEY",
            "OPENCODE_CONFIG",
            "OPENROUTER_API_KEY",
        ]),
        env_plain: names(["OPENCODE_CONFIG", "OPENCODE_DISABLE_*"]),
        adapter: Adapter::Opencode,
        install_hint: "install it with `npm install -g opencode-ai`".to_owned(),
        login_hint: "sign in with `acpd agents login opencode`, or store a provider's key with `acpd agents key opencode --variable NAME`".to_owned(),
        login_command: names(["opencode", "auth", "login"]),
        ..AgentProfile::new("opencode")
    }
}

fn qwen() -> AgentProfile {
    AgentProfile {
        name: "Qwen Code".to_owned(),
        description: "Alibaba's Qwen Code".to_owned(),
        command: "qwen".to_owned(),
        args: names(["--acp"]),
        env_pass: names([
            "BAILIAN_CODING_PLAN_API_KEY",
            "DASHSCOPE_API_KEY",
            "OPENAI_API_KEY",
            "OPENAI_BASE_URL",
            "OPENAI_MODEL",
        ]),
        env_plain: names(["OPENAI_BASE_URL", "OPENAI_MODEL", "QWEN_HOME"]),
        adapter: Adapter::Qwen,
        install_hint: "install it with `npm install -g @qwen-code/qwen-code`, which needs Node.js 22 or newer"
            .to_owned(),
        login_hint: "sign in with `acpd agents login qwen`, or store OPENAI_API_KEY, OPENAI_BASE_URL and OPENAI_MODEL with `acpd agents key qwen --variable NAME`".to_owned(),
        login_command: names(["qwen"]),
        ..AgentProfile::new("qwen")
    }
}

fn demo() -> AgentProfile {
    AgentProfile {
        name: "Demo agent".to_owned(),
        description: "Built into acpd; needs no key and no network".to_owned(),
        command: SELF_COMMAND.to_owned(),
        args: names(["demo-agent"]),
        env_pass: names(["ACPD_DEMO_PAUSE_MS"]),
        env_plain: names(["ACPD_DEMO_PAUSE_MS"]),
        ..AgentProfile::new("demo")
    }
}
