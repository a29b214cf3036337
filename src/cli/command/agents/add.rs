//! `acpd agents add`: writes a profile into the configuration file, and has the daemon read it.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use toml_edit::{Array, InlineTable, Item, Table, value};

use crate::cli::config_file::ConfigFile;
use crate::cli::context::Context;
use crate::cli::error::ClientError;
use crate::cli::exit::Exit;
use crate::cli::reload;
use crate::cli::text::clean_json;
use crate::config::Config;

/// Names of variables that have one of these in them are taken for secrets.
const SECRET_WORDS: [&str; 4] = ["KEY", "TOKEN", "SECRET", "PASSWORD"];

/// Add an agent to the configuration file, or change one
///
/// Writes [agents.NAME]; the rest of the file, its comments included, stays as it is. Nothing is written that the daemon
/// would not take. For one of the agents that acpd knows (see `acpd agents`), only what is given here is changed.
#[derive(Args, Debug)]
pub struct Add {
    /// What it is called: lower-case letters, digits, - and _
    #[arg(value_name = "NAME")]
    name: String,
    /// The program that speaks ACP on its standard input and output
    #[arg(long, value_name = "PROGRAM", conflicts_with_all = ["npx", "uvx"])]
    command: Option<String>,
    /// Run a package from npm, which npx fetches
    #[arg(long, value_name = "PACKAGE", conflicts_with = "uvx")]
    npx: Option<String>,
    /// Run a package from `PyPI`, which uvx fetches
    #[arg(long, value_name = "PACKAGE")]
    uvx: Option<String>,
    /// An argument for it; again for more, in order. {workspace} stands for the workspace
    #[arg(long = "arg", value_name = "ARGUMENT", allow_hyphen_values = true)]
    args: Vec<String>,
    /// A variable for it, whose value is then in the file; for keys use --env-file
    #[arg(long, value_name = "NAME=VALUE", value_parser = variable)]
    env: Vec<(String, String)>,
    /// A variable that it gets from the daemon's environment
    #[arg(long, value_name = "NAME")]
    env_pass: Vec<String>,
    /// A file of NAME=value lines, read at each start; nobody else may be able to read it
    #[arg(long, value_name = "FILE")]
    env_file: Vec<PathBuf>,
    /// What it may do without asking: ask, read-only, edit, allow or deny
    #[arg(long, value_name = "MODE")]
    permissions: Option<String>,
    /// What people are shown beside its name
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// Have sessions that name no agent use it
    #[arg(long)]
    default: bool,
    /// Replace one that is in the file already
    #[arg(long)]
    force: bool,
    /// Only print what the file would be
    #[arg(long)]
    dry_run: bool,
}

fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write NAME=VALUE".to_owned()),
    }
}

impl Add {
    pub async fn execute(self, context: &Context) -> Result<Exit, ClientError> {
        let mut file = ConfigFile::open(context).await?;
        let is_shipped = Config::default().agents.contains_key(&self.name);
        let section = self.section(is_shipped)?;
        if section.is_empty() && !self.default {
            let message = format!("acpd knows the agent {:?} already, and nothing is to be changed", self.name);
            let hint = format!("`acpd agents check {}` tries it; --env-file gives it a key", self.name);
            return Err(ClientError::local(message, hint));
        }
        let has_section = !section.is_empty();
        if has_section {
            self.put(&mut file, section)?;
        }
        if self.default {
            file.set("sessions", "agent", value(&self.name))?;
        }
        file.check()?;
        if self.dry_run {
            context.output.print(file.text().trim_end())?;
            return Ok(Exit::Ok);
        }
        file.write()?;
        let reloaded = reload::after_change(context, file.path()).await;
        if context.output.json {
            let told = json!({ "agent": self.name, "file": file.path(), "reloaded": reloaded.is_done() });
            context.output.print(&clean_json(&told.to_string()))?;
        } else {
            let place = file.path().display();
            if has_section {
                let what = if is_shipped { "changed the agent" } else { "added the agent" };
                context.output.note(&format!("{what} {:?} in {place}", self.name));
            }
            if self.default {
                context.output.note(&format!("{:?} is the default agent now, by {place}", self.name));
            }
            reloaded.tell(context.output);
            context.output.aside(&format!("`acpd agents check {}` tries it", self.name));
        }
        if let Some((name, _)) = self.env.iter().find(|(name, _)| is_secret(name)) {
            context.output.note(&format!(
                "the value of {name} is in that file now; a file of its own, given with --env-file, can be kept apart"
            ));
        }
        Ok(Exit::Ok)
    }

    fn put(&self, file: &mut ConfigFile, section: Table) -> Result<(), ClientError> {
        let agents = file.agents()?;
        match agents.get_mut(&self.name).and_then(Item::as_table_like_mut) {
            None => drop(agents.insert(&self.name, Item::Table(section))),
            Some(known) if self.force => {
                for (key, item) in section {
                    known.insert(&key, item);
                }
            }
            Some(_) => {
                let message = format!("the agent {:?} is in {} already", self.name, file.path().display());
                return Err(ClientError::local(message, "give --force to change it, or choose another name"));
            }
        }
        Ok(())
    }

    /// What its section says.
    fn section(&self, is_shipped: bool) -> Result<Table, ClientError> {
        let (command, mut args, mut env) = match (&self.command, &self.npx, &self.uvx) {
            (Some(command), _, _) => (Some(absolute_if_path(command)), Vec::new(), Vec::new()),
            // Confined, they cannot write to the user's caches; what they fetch goes where the session may write.
            (None, Some(package), _) => (
                Some("npx".to_owned()),
                vec!["-y".to_owned(), package.clone()],
                vec![("npm_config_cache".to_owned(), "{home}/.npm".to_owned())],
            ),
            (None, None, Some(package)) => (
                Some("uvx".to_owned()),
                vec![package.clone()],
                vec![
                    ("UV_CACHE_DIR".to_owned(), "{home}/uv/cache".to_owned()),
                    ("UV_PYTHON_INSTALL_DIR".to_owned(), "{home}/uv/python".to_owned()),
                    ("UV_TOOL_DIR".to_owned(), "{home}/uv/tools".to_owned()),
                ],
            ),
            (None, None, None) => (None, Vec::new(), Vec::new()),
        };
        if command.is_none() && !is_shipped {
            let message = format!("what does the agent {:?} run?", self.name);
            return Err(ClientError::local(
                message,
                "give its program with --command, or a package with --npx or --uvx",
            ));
        }
        args.extend(self.args.iter().cloned());
        env.extend(self.env.iter().cloned());
        let mut section = Table::new();
        let mut set = |key: &str, item: Option<Item>| item.into_iter().for_each(|item| drop(section.insert(key, item)));
        set("description", self.description.as_ref().map(value));
        set("command", command.map(value));
        set("args", list(args));
        set("env", (!env.is_empty()).then(|| value(env.into_iter().collect::<InlineTable>())));
        set("env_pass", list(self.env_pass.clone()));
        let files = self.env_file.iter().map(|file| std::path::absolute(file).unwrap_or_else(|_| file.clone()));
        set("env_file", list(files.map(|file| file.display().to_string()).collect()));
        set("permissions", self.permissions.as_ref().map(value));
        Ok(section)
    }
}

fn list(texts: Vec<String>) -> Option<Item> {
    (!texts.is_empty()).then(|| value(texts.into_iter().collect::<Array>()))
}

/// A program that is named by a path is another one in another directory, and the daemon works in `/`.
fn absolute_if_path(command: &str) -> String {
    if !command.contains('/') {
        return command.to_owned();
    }
    std::path::absolute(command).map_or_else(|_| command.to_owned(), |path| path.display().to_string())
}

fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    SECRET_WORDS.iter().any(|word| name.contains(word))
}
