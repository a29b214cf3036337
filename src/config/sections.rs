//! Which keys there are, section by section, and what must hold between them.

use super::read::Section;
use super::value::{MemoryMax, OneOrMore};
use super::{
    Config, Control, HomePaths, Limits, Log, Problem, Store, TURN_CAP, group, mcp, notifications, policy, sandbox,
};
use crate::model::mcp::reference::is_variable;
use crate::model::profile::{self, DefinitionProblem, SLUG_HINT, is_credential, is_slug};
use crate::model::{Adapter, AgentProfile, Policy};

/// The sections; a name in the environment that begins with one of them is a setting.
pub const NAMES: [&str; 11] = [
    "control",
    "store",
    "workspace",
    "sessions",
    "processes",
    "limits",
    "permissions",
    "sandbox",
    "log",
    "notifications",
    "agents",
];

pub fn read(root: &mut Section<'_>, config: &mut Config) {
    root.section("control", |section| read_control(section, &mut config.control));
    root.section("store", |section| read_store(section, &mut config.store));
    root.section("workspace", |section| {
        section.read("roots", &mut config.workspace.roots);
        section.read("extra", &mut config.workspace.extra);
    });
    root.section("sessions", |section| {
        let sessions = &mut config.sessions;
        section.read("agent", &mut sessions.agent);
        section.read("queue", &mut sessions.queue);
        section.read("resume_on_start", &mut sessions.resume_on_start);
        section.read("idle_timeout", &mut sessions.idle_timeout);
        // 0 is the same as absent.
        let mut turn_cap = Some(sessions.turn_cap);
        section.read("turn_cap", &mut turn_cap);
        sessions.turn_cap = turn_cap.unwrap_or(TURN_CAP);
        section.read("tool_call_cap", &mut sessions.tool_call_cap);
        section.read("cost_limit", &mut sessions.cost_limit);
        section.read("cost_on_exceed", &mut sessions.cost_on_exceed);
        section.read("turn_silence_timeout", &mut sessions.turn_silence_timeout);
        section.read("silence_notice", &mut sessions.silence_notice);
        section.read("transcript_max", &mut sessions.transcript_max);
        section.read("retention_suspended", &mut sessions.retention_suspended);
        section.read("retention_resumable", &mut sessions.retention_resumable);
        section.read("retention_error", &mut sessions.retention_error);
        section.read("retention_archived", &mut sessions.retention_archived);
    });
    root.section("processes", |section| {
        let processes = &mut config.processes;
        section.read("initialize_timeout", &mut processes.initialize_timeout);
        section.read("session_timeout", &mut processes.session_timeout);
        section.read("session_notice", &mut processes.session_notice);
        section.read("replay_timeout", &mut processes.replay_timeout);
        section.read("stdin_timeout", &mut processes.stdin_timeout);
        section.read("cancel_grace", &mut processes.cancel_grace);
        section.read("eof_grace", &mut processes.eof_grace);
        section.read("term_grace", &mut processes.term_grace);
        section.read("shutdown_timeout", &mut processes.shutdown_timeout);
        section.read("backoff_min", &mut processes.backoff_min);
        section.read("backoff_max", &mut processes.backoff_max);
        section.read("crash_limit", &mut processes.crash_limit);
        section.read("cgroup", &mut processes.cgroup);
    });
    root.section("limits", |section| read_limits(section, &mut config.limits));
    root.section("permissions", |section| {
        section.read("mode", &mut config.permissions.mode);
        section.read_as("rules", &mut config.permissions.rules, policy::rules);
        section.read("timeout", &mut config.permissions.timeout);
    });
    root.section("sandbox", |section| sandbox::read(section, &mut config.sandbox));
    root.section("log", |section| read_log(section, &mut config.log));
    root.section("notifications", |section| notifications::read(section, &mut config.notifications));
    read_agents(root, config);
}

fn read_control(section: &mut Section<'_>, control: &mut Control) {
    group::read(section, &mut control.group);
    section.read("connections", &mut control.connections);
    section.read("connections_per_user", &mut control.connections_per_user);
    section.read("streams_per_user", &mut control.streams_per_user);
    section.read("body_max", &mut control.body_max);
    section.read("bodies_max", &mut control.bodies_max);
    section.read("import_max", &mut control.import_max);
    section.read("answers_max", &mut control.answers_max);
    section.read("requests_per_second", &mut control.requests_per_second);
    section.read("prompts_per_minute", &mut control.prompts_per_minute);
    section.read("header_timeout", &mut control.header_timeout);
    section.read("body_timeout", &mut control.body_timeout);
    section.read("write_timeout", &mut control.write_timeout);
    section.read("idle_timeout", &mut control.idle_timeout);
    section.read("heartbeat", &mut control.heartbeat);
}

fn read_limits(section: &mut Section<'_>, limits: &mut Limits) {
    section.read("processes", &mut limits.processes);
    section.read("processes_per_user", &mut limits.processes_per_user);
    let mut memory = MemoryMax(limits.memory_max);
    section.read("memory_max", &mut memory);
    limits.memory_max = memory.0;
    section.read("pids_max", &mut limits.pids_max);
    section.read("line_max", &mut limits.line_max);
    section.read("long_lines", &mut limits.long_lines);
    section.read("prompt_max", &mut limits.prompt_max);
    section.read("media_max", &mut limits.media_max);
    section.read("payload_max", &mut limits.payload_max);
    section.read("checkpoint_max", &mut limits.checkpoint_max);
    section.read("record_max", &mut limits.record_max);
    section.read("stderr_tail", &mut limits.stderr_tail);
    section.read("file_max", &mut limits.file_max);
    section.read("terminals", &mut limits.terminals);
    section.read("terminal_output", &mut limits.terminal_output);
}

fn read_store(section: &mut Section<'_>, store: &mut Store) {
    section.read("read_connections", &mut store.read_connections);
    section.read("batch_rows", &mut store.batch_rows);
    section.read("batch_bytes", &mut store.batch_bytes);
    section.read("queue", &mut store.queue);
    section.read("busy_timeout", &mut store.busy_timeout);
    section.read("tail_max", &mut store.tail_max);
    section.read("backups", &mut store.backups);
    section.read("free_min", &mut store.free_min);
    section.read("reserve", &mut store.reserve);
    section.read("maintenance_delay", &mut store.maintenance_delay);
    section.read("replay_turns", &mut store.replay_turns);
    section.read("journal_max", &mut store.journal_max);
}

fn read_log(section: &mut Section<'_>, log: &mut Log) {
    section.read("level", &mut log.level);
    section.read("files", &mut log.files);
}

/// Profiles have the general permission policy unless they set their own.
fn read_agents(root: &mut Section<'_>, config: &mut Config) {
    let granted = Policy { mode: config.permissions.mode, rules: config.permissions.rules.clone() };
    for profile in config.agents.values_mut() {
        profile.permissions = granted.clone();
    }
    root.section("agents", |section| {
        section.named_sections(|slug, section| {
            let new = || AgentProfile { permissions: granted.clone(), ..AgentProfile::new(slug) };
            let mut profile = config.agents.get(slug).cloned().unwrap_or_else(new);
            read_agent(section, &mut profile);
            config.agents.insert(slug.to_owned(), profile);
        });
    });
}

fn read_agent(section: &mut Section<'_>, profile: &mut AgentProfile) {
    section.read("name", &mut profile.name);
    section.read("description", &mut profile.description);
    section.read("system_prompt", &mut profile.system_prompt);
    section.read("model", &mut profile.model);
    section.read("mode", &mut profile.mode);
    section.read("temperature", &mut profile.temperature);
    section.read("max_tokens", &mut profile.max_tokens);
    section.read("command", &mut profile.command);
    section.read("args", &mut profile.args);
    section.read("env", &mut profile.env);
    section.read("env_pass", &mut profile.env_pass);
    let mut files = OneOrMore(std::mem::take(&mut profile.env_file));
    section.read("env_file", &mut files);
    profile.env_file = files.0;
    section.read("credentials", &mut profile.credentials);
    section.read("env_plain", &mut profile.env_plain);
    section.read("adapter", &mut profile.adapter);
    section.read("auth_method", &mut profile.auth_method);
    let (granted, has_default) = (profile.permissions.clone(), section.has("permissions"));
    section.read_as("permissions", &mut profile.permissions, |value| policy::policy(value, granted));
    section.read("permissions_max", &mut profile.permissions_max);
    let mode = profile.permissions.mode;
    if let Some(max) = profile.permissions_max.filter(|max| has_default && !mode.narrows(*max)) {
        let message = format!("is {:?}, which is wider than permissions_max, {:?}", mode.as_str(), max.as_str());
        section.problem("permissions", message, "choose a stricter default, or a wider permissions_max");
    }
    section.read("modes_allowed", &mut profile.modes_allowed);
    section.read("client_files", &mut profile.client_files);
    section.read("terminal_commands", &mut profile.terminal_commands);
    section.read("terminal_env", &mut profile.terminal_env);
    mcp::read(section, profile);
    section.read("fs_scope", &mut profile.fs_scope);
    let mut shown = HomePaths::new(&profile.sandbox_show);
    section.read("sandbox_show", &mut shown);
    profile.sandbox_show = shown.into_texts();
    let mut copied = HomePaths::new(&profile.home_copy);
    section.read("home_copy", &mut copied);
    profile.home_copy = copied.into_texts();
    section.read("tags", &mut profile.tags);
    section.read("install_hint", &mut profile.install_hint);
    section.read("login_hint", &mut profile.login_hint);
    section.read("login_command", &mut profile.login_command);
}

/// What no single key can say.
pub fn check(config: &Config, problems: &mut Vec<Problem>) {
    sandbox::check(&config.sandbox, problems);
    notifications::check(&config.notifications, problems);
    let mut problem = |key: String, message: String, hint: &str| {
        problems.push(Problem { key, message, hint: hint.to_owned() });
    };
    for profile in config.agents.values() {
        let key = format!("agents.{}", profile.slug);
        if profile.command.is_empty() {
            let hint = "give the program that speaks ACP on its standard input and output";
            problem(format!("{key}.command"), "is missing".to_owned(), hint);
        }
        if profile.terminal_commands.iter().any(|command| command.trim().is_empty()) {
            let hint = "give the first words of commands, such as \"cargo\" or \"npm test\", or \"*\" for any command";
            problem(format!("{key}.terminal_commands"), "has an empty command".to_owned(), hint);
        }
        if !is_slug(&profile.slug) {
            problem(key, "is not a valid agent name".to_owned(), SLUG_HINT);
        }
        check_environment(profile, &mut problem);
        check_words(profile, &mut problem);
    }
    if !config.agents.contains_key(&config.sessions.agent) {
        let message = format!("names the agent {:?}, which is not configured", config.sessions.agent);
        problem("sessions.agent".to_owned(), message, "use the name of an [agents.NAME] section");
    }
    if config.processes.backoff_max < config.processes.backoff_min {
        let hint = "the delay between starts grows from backoff_min to backoff_max";
        problem("processes.backoff_max".to_owned(), "must be at least processes.backoff_min".to_owned(), hint);
    }
    if config.store.reserve.is_some_and(|reserve| reserve >= config.store.free_min) {
        let hint = "store.free_min includes the reserve: make free_min larger";
        problem("store.reserve".to_owned(), "must be below store.free_min".to_owned(), hint);
    }
    if config.control.bodies_max < config.control.body_max {
        let hint = "raise bodies_max: it must hold at least one body of control.body_max";
        problem("control.bodies_max".to_owned(), "must be at least control.body_max".to_owned(), hint);
    }
    if config.limits.long_lines < config.limits.line_max {
        let hint = "raise long_lines: it must hold at least one line of limits.line_max";
        problem("limits.long_lines".to_owned(), "must be at least limits.line_max".to_owned(), hint);
    }
    if config.limits.line_max < config.limits.payload_max {
        let hint = "raise line_max: a payload arrives as one line";
        problem("limits.line_max".to_owned(), "must be at least limits.payload_max".to_owned(), hint);
    }
}

/// Where an agent's environment comes from. What stands where a name or a path should is not shown: it may be a key.
fn check_environment(profile: &AgentProfile, problem: &mut impl FnMut(String, String, &str)) {
    let key = |name: &str| format!("agents.{}.{name}", profile.slug);
    if !profile.env_file.iter().all(|file| file.strip_prefix('-').unwrap_or(file).starts_with('/')) {
        let hint = "give the absolute path of a file; put - before it if the file is optional";
        problem(key("env_file"), "has a path that is not absolute".to_owned(), hint);
    }
    for (name, names) in [("env_pass", &profile.env_pass), ("terminal_env", &profile.terminal_env)] {
        if !names.iter().all(|name| is_variable(name.strip_suffix('*').unwrap_or(name))) {
            let hint =
                "give names of variables such as \"RUST_LOG\", or \"CARGO_*\" for all with this prefix, without values";
            problem(key(name), "has an invalid variable name".to_owned(), hint);
        }
    }
    if !profile.home_copy.iter().all(|path| path.starts_with("~/") && profile.adapter == Adapter::Generic) {
        let hint = "write paths such as \"~/.agent\", and only for an agent with the adapter \"generic\"";
        problem(key("home_copy"), "is not a list of paths in the home of an agent without adapter".to_owned(), hint);
    }
    let of_people = profile.adapter.quirks().methods_of_people;
    if let Some(method) = profile.auth_method.as_ref().filter(|method| of_people.contains(&method.as_str())) {
        let hint =
            "sign in once with the agent's own program and leave this empty, or choose a method that needs only a key";
        problem(
            key("auth_method"),
            format!("{method:?} needs a person at the terminal, and agents start without one"),
            hint,
        );
    }
    if !profile.credentials.keys().all(|name| is_variable(name)) {
        let message = "has an invalid variable name".to_owned();
        problem(key("credentials"), message, "use letters, digits and '_', not starting with a digit");
    }
    if !profile.credentials.values().all(|file| is_credential(file)) {
        let hint = "write { VARIABLE = \"credential\" } with the name from LoadCredential=, never the value";
        problem(key("credentials"), "has an invalid credential name".to_owned(), hint);
    }
}

/// What the agent is told, and what it is asked for.
fn check_words(profile: &AgentProfile, problem: &mut impl FnMut(String, String, &str)) {
    let checks = [
        profile.system_prompt.as_deref().map(|text| profile::check_system_prompt("system_prompt", text)),
        profile.model.as_deref().map(|model| profile::check_choice("model", model)),
        profile.mode.as_deref().map(|mode| profile::check_choice("mode", mode)),
    ];
    for wrong in checks.into_iter().flatten().filter_map(Result::err) {
        let DefinitionProblem { field, problem: message, hint } = wrong;
        problem(format!("agents.{}.{field}", profile.slug), message, hint);
    }
}
