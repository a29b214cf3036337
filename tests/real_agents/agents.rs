//! The agents: where each is, how it reaches the stand-in, and what its user has chosen.

use std::path::{Path, PathBuf};

use serde_json::json;

pub const KEY: &str = "a-key-of-the-test";
pub const MODEL: &str = "stand-in";
pub const OTHER_MODEL: &str = "stand-in-other";

/// What is written before the test, for an agent that is to ask the stand-in at this address.
pub struct Setup {
    /// Variables of the agent's env file.
    pub variables: Vec<(&'static str, String)>,
    /// A file in the user's home.
    pub file: Option<(&'static str, String)>,
}

pub struct Agent {
    /// The name that acpd knows it by.
    pub name: &'static str,
    pub program: fn(&Path) -> PathBuf,
    /// More lines of its profile.
    pub profile: &'static str,
    pub setup: fn(&str) -> Setup,
    /// The mode that acpd must start it in under the policy `ask`.
    pub mode_at_first: &'static str,
    /// A mode that grants no more.
    pub other_mode: &'static str,
    /// A model that is not the current one, and a part of its name in requests. Agents do not choose it by themselves, as some do
    /// for titles.
    pub other_model: (&'static str, &'static str),
}

/// The name of npm's packages for this machine's processor.
fn processor() -> &'static str {
    if cfg!(target_arch = "aarch64") { "arm64" } else { "x64" }
}

/// The directory of the Node.js that claude, codex and qwen need.
pub fn node(packages: &Path) -> PathBuf {
    packages.join(format!("node-linux-{}/bin", processor()))
}

pub const CLAUDE: Agent = Agent {
    name: "claude",
    program: |packages| packages.join(".bin/claude-agent-acp"),
    profile: "",
    setup: |address| Setup {
        variables: vec![
            ("ANTHROPIC_BASE_URL", address.to_owned()),
            ("ANTHROPIC_API_KEY", KEY.to_owned()),
            ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1".to_owned()),
        ],
        file: None,
    },
    mode_at_first: "default",
    other_mode: "plan",
    other_model: ("sonnet", "sonnet"),
};

pub const CODEX: Agent = Agent {
    name: "codex",
    program: |packages| packages.join(".bin/codex-acp"),
    profile: "auth_method = \"api-key\"\n",
    setup: |address| Setup {
        variables: vec![("OPENAI_API_KEY", KEY.to_owned())],
        file: Some((
            ".codex/config.toml",
            format!(
                "model = \"gpt-5.5\"\nmodel_provider = \"stand-in\"\ncheck_for_update_on_startup = false\n[analytics]\nenabled = false\n\
                [model_providers.stand-in]\nname = \"The stand-in\"\nbase_url = \"{address}/v1\"\n\
                wire_api = \"responses\"\nenv_key = \"OPENAI_API_KEY\"\n"
            ),
        )),
    },
    mode_at_first: "permission-profile:acpd",
    other_mode: "read-only",
    other_model: ("gpt-5.6-terra", "gpt-5.6-terra"),
};

pub const OPENCODE: Agent = Agent {
    name: "opencode",
    program: |packages| {
        let name = if processor() == "x64" { "opencode-linux-x64-baseline" } else { "opencode-linux-arm64" };
        packages.join(name).join("bin/opencode")
    },
    profile: "",
    setup: |address| Setup {
        variables: vec![("OPENCODE_DISABLE_MODELS_FETCH", "1".to_owned())],
        file: Some((
            ".config/opencode/opencode.json",
            json!({
                "model": format!("mine/{MODEL}"),
                "provider": {"mine": {
                    "npm": "@ai-sdk/openai-compatible",
                    "options": {"baseURL": format!("{address}/v1"), "apiKey": KEY},
                    "models": {MODEL: {"name": "One"}, OTHER_MODEL: {"name": "Other"}},
                }},
            })
            .to_string(),
        )),
    },
    mode_at_first: "build",
    other_mode: "plan",
    other_model: ("mine/stand-in-other", OTHER_MODEL),
};

pub const QWEN: Agent = Agent {
    name: "qwen",
    program: |packages| packages.join(".bin/qwen"),
    profile: "",
    setup: |address| {
        let model = |id: &str| json!({"id": id, "baseUrl": format!("{address}/v1"), "envKey": "OPENAI_API_KEY"});
        Setup {
            variables: vec![
                ("OPENAI_BASE_URL", format!("{address}/v1")),
                ("OPENAI_API_KEY", KEY.to_owned()),
                ("OPENAI_MODEL", MODEL.to_owned()),
            ],
            file: Some((
                ".qwen/settings.json",
                json!({
                    "general": {"enableAutoUpdate": false},
                    "privacy": {"usageStatisticsEnabled": false},
                    "modelProviders": {"openai": [model(MODEL), model(OTHER_MODEL)]},
                })
                .to_string(),
            )),
        }
    },
    mode_at_first: "default",
    other_mode: "plan",
    other_model: ("stand-in-other(openai)", OTHER_MODEL),
};
