//! `acpd agents add`: writes a profile into the configuration file, and has the daemon read it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use toml_edit::{Array, DocumentMut, InlineTable, Item, Table, TableLike, value};

use crate::agent::{NoProgram, find_agent};
use crate::cli::config_file::{Access, ConfigFile, put};
use crate::cli::context::Context;
use crate::cli::error::ClientError;
use crate::cli::exit::Exit;
use crate::cli::sign_in;
use crate::config::Config;
use crate::model::profile::{SLUG_HINT, is_slug};
use crate::model::secret::is_secret_name;

const NPX_PLACES: [(&str, &str); 1] = [("npm_config_cache", "{home}/.npm")];
const UVX_PLACES: [(&str, &str); 3] = [
    ("UV_CACHE_DIR", "{home}/uv/cache"),
    ("UV_PYTHON_INSTALL_DIR", "{home}/uv/python"),
    ("UV_TOOL_DIR", "{home}/uv/tools"),
];

/// The sections that need no options.
const KNOWN: &str = include_str!("known.toml");

/// The section of an agent that is not shipped, but that acpd can add.
fn known(name: &str) -> Option<Table> {
    let section = KNOWN.parse::<DocumentMut>().ok()?.remove(name)?.into_table().ok()?;
    // Without its comments and its place in that file.
    Some(section.into_iter().collect())
}

/// Add an agent to the configuration file, or change one
///
/// Writes [agents.NAME] and leaves the rest of the file, including comments, unchanged. The file is not written if the
/// result would be an invalid configuration. For an agent that acpd knows (see `acpd agents`), only the options given here
/// change. copilot, goose, kimi, nanocoder and vibe need no options: acpd adds their program and what they need.
#[derive(Args, Debug)]
pub struct Add {
    /// Name of the agent: lower-case letters, digits, - and _
    #[arg(value_name = "NAME")]
    name: String,
    /// Program that speaks ACP on stdin and stdout
    #[arg(long, value_name = "PROGRAM", conflicts_with_all = ["npx", "uvx"])]
    command: Option<String>,
    /// Run an npm package with npx
    #[arg(long, value_name = "PACKAGE", conflicts_with = "uvx")]
    npx: Option<String>,
    #[arg(long, value_name = "PACKAGE", help = "Run a PyPI package with uvx")]
    uvx: Option<String>,
    /// Argument for the program; can be repeated. {workspace} is replaced by the workspace's path
    #[arg(long = "arg", value_name = "ARGUMENT", allow_hyphen_values = true)]
    args: Vec<String>,
    /// Environment variable, stored in the configuration file; for keys use --env-file; can be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = variable)]
    env: Vec<(String, String)>,
    /// Environment variable to pass on from the daemon's environment; can be repeated
    #[arg(long, value_name = "NAME")]
    env_pass: Vec<String>,
    /// File of NAME=value lines, read at each start; it must be readable only by you; can be repeated
    #[arg(long, value_name = "FILE")]
    env_file: Vec<PathBuf>,
    /// Sign-in method to use, by the agent's id for it (see `acpd agents check --json`)
    #[arg(long, value_name = "METHOD")]
    auth_method: Option<String>,
    /// Permission mode of its sessions: ask, read-only, edit, allow or deny
    #[arg(long, value_name = "MODE")]
    permissions: Option<String>,
    /// Widest permission mode that its sessions may have [default: allow for you, ask for members]
    #[arg(long, value_name = "MODE")]
    permissions_max: Option<String>,
    /// Description for lists
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// Make it the default agent
    #[arg(long)]
    default: bool,
    /// Change an agent that is already in the file: a program replaces the old program and its arguments, variables are added
    #[arg(long)]
    force: bool,
    /// Print the resulting file and do not write it
    #[arg(long)]
    dry_run: bool,
}

fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write NAME=VALUE".to_owned()),
    }
}

/// What is run, as the section has it.
struct Program {
    command: String,
    args: Vec<String>,
    /// Where it may keep what it fetches: confined, it cannot write to the user's caches.
    places: &'static [(&'static str, &'static str)],
}

impl Add {
    pub async fn execute(self, context: &Context) -> Result<Exit, ClientError> {
        if !is_slug(&self.name) {
            return Err(ClientError::local(format!("{:?} is not a valid agent name", self.name), SLUG_HINT));
        }
        let access = if self.dry_run { Access::Read } else { Access::Change };
        let mut file = ConfigFile::open(context, access).await?;
        let is_shipped = Config::default().agents.contains_key(&self.name);
        let is_there = file.agents()?.contains_key(&self.name);
        let section = if is_shipped || is_there { None } else { known(&self.name) };
        let program = self.program();
        if program.is_none() && !is_shipped && !is_there && section.is_none() {
            let message = format!("the agent {:?} has no program", self.name);
            let hint = "name its program with --command, or its package with --npx or --uvx; only copilot, goose, kimi, \
                nanocoder and vibe need none";
            return Err(ClientError::local(message, hint));
        }
        let has_section = program.is_some() || section.is_some() || self.says_more();
        if !has_section && !self.default {
            let message = format!("acpd already knows the agent {:?}, and no change was given", self.name);
            let hint = format!("check it with `acpd agents check {}`; pass it a key with --env-file", self.name);
            return Err(ClientError::local(message, hint));
        }
        if has_section {
            self.put(&mut file, program.as_ref(), section.clone())?;
        }
        if self.default {
            file.set("sessions", "agent", value(&self.name))?;
        }
        file.check()?;
        if self.dry_run {
            context.output.print(file.text().trim_end())?;
            return Ok(Exit::Ok);
        }
        let place = file.path().display().to_string();
        let mut done = Vec::new();
        if has_section {
            let what = if is_shipped || is_there { "changed the agent" } else { "added the agent" };
            done.push(format!("{what} {:?} in {place}", self.name));
        }
        if self.default {
            done.push(format!("{:?} is now the default agent in {place}", self.name));
        }
        super::write(context, &mut file, &self.name, &done).await?;
        if !context.output.json {
            context.output.aside(&format!("check it with `acpd agents check {}`", self.name));
        }
        self.warn(context, &file, program.as_ref(), section.as_ref());
        if !self.env_pass.is_empty()
            && let Ok(daemon) = context.running_daemon().await
            && let Some(advice) = sign_in::advice(context, &daemon, &self.name).await
        {
            context.output.note(&advice);
        }
        Ok(Exit::Ok)
    }

    /// What a person may not have meant.
    fn warn(&self, context: &Context, file: &ConfigFile, program: Option<&Program>, known: Option<&Table>) {
        if let Some((name, _)) = self.env.iter().find(|(name, _)| is_secret_name(name)) {
            context.output.note(&format!(
                "the value of {name} is now in the configuration file; use --env-file to keep it in a separate file"
            ));
            if file.is_open_to_others() {
                context.output.note("other users can read that file");
                context.output.hint(&format!("chmod 600 {}", file.path().display()));
            }
        }
        let text = |key: &str| known?.get(key)?.as_str();
        let Some(command) = program.map(|program| program.command.as_str()).or_else(|| text("command")) else { return };
        let Err(problem) = find_agent(command, &environment()) else { return };
        let words: Vec<&str> = self.command.as_deref().unwrap_or_default().split_whitespace().collect();
        let hint = match (problem.advice(), &problem) {
            (Some(advice), _) => advice,
            _ if words.len() > 1 => format!("pass arguments with --arg: --command {}", words.join(" --arg ")),
            _ if program.is_none() => text("install_hint").unwrap_or_default().to_owned(),
            (None, NoProgram::Missing(_)) => "correct the path".to_owned(),
            _ => "install it, or give its absolute path".to_owned(),
        };
        context.output.note(&problem.of_client());
        context.output.hint(&hint);
    }

    fn program(&self) -> Option<Program> {
        let (command, args, places): (_, _, &'static [_]) = match (&self.command, &self.npx, &self.uvx) {
            (Some(command), _, _) => (absolute_if_path(command), Vec::new(), &[]),
            (None, Some(package), _) => ("npx".to_owned(), vec!["-y".to_owned(), package.clone()], &NPX_PLACES),
            (None, None, Some(package)) => ("uvx".to_owned(), vec![package.clone()], &UVX_PLACES),
            (None, None, None) => return None,
        };
        Some(Program { command, args, places })
    }

    /// Whether anything is given for its section beside a program.
    fn says_more(&self) -> bool {
        let is_given = |list: &[String]| !list.is_empty();
        is_given(&self.args)
            || is_given(&self.env_pass)
            || !self.env.is_empty()
            || !self.env_file.is_empty()
            || self.auth_method.is_some()
            || self.permissions.is_some()
            || self.permissions_max.is_some()
            || self.description.is_some()
    }

    fn put(&self, file: &mut ConfigFile, program: Option<&Program>, new: Option<Table>) -> Result<(), ClientError> {
        let place = file.path().display().to_string();
        let agents = file.agents()?;
        let Some(known) = agents.get_mut(&self.name) else {
            let mut section = new.unwrap_or_default();
            self.fill(&mut section, program)?;
            return file.add_agent(&self.name, section);
        };
        if !self.force {
            let message = format!("the agent {:?} is already in {place}", self.name);
            return Err(ClientError::local(message, "change it with --force, or choose another name"));
        }
        let Some(section) = known.as_table_like_mut() else {
            return Err(not_a_section(&format!("agents.{}", self.name)));
        };
        if program.is_some() {
            forget_program(section);
        }
        self.fill(section, program)
    }

    /// Says in the section what is given: lists of variables and files grow, everything else is replaced.
    fn fill(&self, section: &mut dyn TableLike, program: Option<&Program>) -> Result<(), ClientError> {
        let mut args = Vec::new();
        let mut env: Vec<(&str, &str)> = Vec::new();
        let mut plain: Vec<String> = Vec::new();
        let mut set = |key: &str, item: Option<Item>| item.into_iter().for_each(|item| put(section, key, item));
        set("description", self.description.as_ref().map(value));
        if let Some(program) = program {
            set("command", Some(value(&program.command)));
            args.extend(program.args.iter().cloned());
            env.extend(program.places);
            plain.extend(program.places.iter().map(|(name, _)| (*name).to_owned()));
        }
        args.extend(self.args.iter().cloned());
        set("args", (!args.is_empty()).then(|| value(args.into_iter().collect::<Array>())));
        env.extend(self.env.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        merge(section, &env)?;
        grow(section, "env_plain", &plain);
        grow(section, "env_pass", &self.env_pass);
        let files = self.env_file.iter().map(|file| std::path::absolute(file).unwrap_or_else(|_| file.clone()));
        grow(section, "env_file", &files.map(|file| file.display().to_string()).collect::<Vec<_>>());
        let texts = [
            ("auth_method", &self.auth_method),
            ("permissions", &self.permissions),
            ("permissions_max", &self.permissions_max),
        ];
        for (key, text) in texts {
            if let Some(text) = text {
                put(section, key, value(text));
            }
        }
        Ok(())
    }
}

/// Variables that are there and not named again stay.
fn merge(section: &mut dyn TableLike, env: &[(&str, &str)]) -> Result<(), ClientError> {
    if env.is_empty() {
        return Ok(());
    }
    if !section.contains_key("env") {
        section.insert("env", value(InlineTable::new()));
    }
    let known = section.get_mut("env").and_then(Item::as_table_like_mut).ok_or_else(|| not_a_section("env"))?;
    for (name, text) in env {
        put(known, name, value(*text));
    }
    Ok(())
}

/// Adds to a list what is not in it. A single text is a list of one.
fn grow(section: &mut dyn TableLike, key: &str, more: &[String]) {
    if more.is_empty() {
        return;
    }
    if let Some(one) = section.get(key).and_then(Item::as_str).map(ToOwned::to_owned) {
        put(section, key, value(Array::from_iter([one])));
    }
    if section.get(key).is_none_or(|known| !known.is_array()) {
        return put(section, key, value(more.iter().collect::<Array>()));
    }
    if let Some(known) = section.get_mut(key).and_then(Item::as_array_mut) {
        for text in more {
            if !known.iter().any(|known| known.as_str() == Some(text)) {
                known.push(text);
            }
        }
    }
}

/// Takes out what belongs to the program that was run until now: its arguments, and where it kept what it fetched.
fn forget_program(section: &mut dyn TableLike) {
    section.remove("args");
    for (name, place) in NPX_PLACES.iter().chain(&UVX_PLACES) {
        if let Some(env) = section.get_mut("env").and_then(Item::as_table_like_mut)
            && env.get(name).and_then(Item::as_str) == Some(place)
        {
            env.remove(name);
        }
        if let Some(plain) = section.get_mut("env_plain").and_then(Item::as_array_mut) {
            plain.retain(|known| known.as_str() != Some(name));
            // What is first now stood behind a comma.
            if let Some(first) = plain.get_mut(0)
                && first.decor().prefix().and_then(|prefix| prefix.as_str()) == Some(" ")
            {
                first.decor_mut().set_prefix("");
            }
        }
    }
    let is_empty = |item: &Item| {
        item.as_array().is_some_and(Array::is_empty) || item.as_table_like().is_some_and(TableLike::is_empty)
    };
    for key in ["env", "env_plain"] {
        if section.get(key).is_some_and(is_empty) {
            section.remove(key);
        }
    }
}

fn not_a_section(name: &str) -> ClientError {
    ClientError::local(
        format!("{name} in the configuration file is not a table"),
        "correct the file; nothing was changed",
    )
}

fn environment() -> BTreeMap<String, String> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

/// A program that is named by a path is another one in another directory, and the daemon works in `/`.
fn absolute_if_path(command: &str) -> String {
    if !command.contains('/') {
        return command.to_owned();
    }
    let home = std::env::var("HOME").ok().filter(|home| !home.is_empty());
    // A shell leaves it as it is inside quotes.
    let path = match (command.strip_prefix("~/"), home) {
        (Some(rest), Some(home)) => format!("{home}/{rest}"),
        _ => command.to_owned(),
    };
    std::path::absolute(&path).map_or(path, |path| path.display().to_string())
}
