//! `acpd config`: shows and changes the configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IsTerminal};
use std::process::Command;

use clap::{Args, Subcommand};
use serde_json::json;
use toml::{Table, Value};
use toml_edit::Item;

use crate::cli::config_file::{Access, ConfigFile};
use crate::cli::context::Context;
use crate::cli::error::ClientError;
use crate::cli::exit::Exit;
use crate::cli::text::{clean, clean_json, one_line};
use crate::cli::{reload, suggest};
use crate::config::{self, DEFAULT_TEXT};

/// The section of the default configuration that has every key of an agent.
const EXAMPLE_AGENT: &str = "agents.gemini.";
/// Tables whose values may be secrets. They are not printed.
const SECRET_TABLES: [&str; 2] = ["env", "headers"];
const HIDDEN: &str = "(hidden)";
const EMPTY: &str = "# acpd config --default prints every key with its default and what it does.\n";
const USUAL_EDITOR: &str = "vi";

/// Show or change the configuration
///
/// Without a command: prints the keys that differ from their defaults, as the file and the ACPD_* variables of this shell
/// set them. Values of `env` and `headers` are hidden, because they may be secrets.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct ConfigCommand {
    /// Print the default configuration, with a comment for every key
    #[arg(long)]
    default: bool,
    #[command(subcommand)]
    command: Option<Action>,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Print the value of a key, or of all keys of a section
    Get {
        /// Key, such as sessions.agent, or a section
        key: String,
    },
    /// Write a key to the file, and reload
    ///
    /// The value is TOML, or a text without quotes. Comments in the file stay. The daemon's reader checks the new file
    /// before it replaces the old one.
    Set {
        /// Key, such as sessions.agent
        key: String,
        /// Value as TOML, or a text without quotes
        value: String,
    },
    /// Edit the file with $VISUAL or $EDITOR, check it, and reload
    ///
    /// The file is replaced when the editor has ended and the new text is valid.
    Edit,
    /// Print the path of the file, whether or not it exists
    Path,
}

impl ConfigCommand {
    pub async fn execute(self, context: &Context) -> Result<Exit, ClientError> {
        let output = context.output;
        match self.command {
            None if self.default => output.print(DEFAULT_TEXT.trim_end())?,
            None => changed(context).await?,
            Some(Action::Get { key }) => get(context, &key).await?,
            Some(Action::Set { key, value }) => set(context, &key, &value).await?,
            Some(Action::Edit) => edit(context).await?,
            Some(Action::Path) => {
                let file = ConfigFile::open(context, Access::Replace).await?;
                let path = file.path().display().to_string();
                output.print(&if output.json { json!({ "file": path }).to_string() } else { clean(&path) })?;
            }
        }
        Ok(Exit::Ok)
    }
}

/// Every key with its value, by its path.
type Keys = BTreeMap<String, Value>;

fn defaults() -> Keys {
    let mut keys = Keys::new();
    flatten("", config::table(DEFAULT_TEXT, &BTreeMap::new()).unwrap_or_default(), &mut keys);
    keys
}

/// Every key that can be set, for completion.
pub fn keys() -> Vec<String> {
    known(&defaults()).into_iter().collect()
}

/// The keys that the file and the environment set.
async fn own(context: &Context) -> Result<Keys, ClientError> {
    let file = ConfigFile::open(context, Access::Read).await?;
    if file.original().is_none() && context.named_config().is_some() {
        let message = format!("there is no file {}", file.path().display());
        return Err(ClientError::local(message, "correct --config or ACPD_CONFIG"));
    }
    let environment =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let mut keys = Keys::new();
    flatten("", config::table(&file.text(), &environment.collect()).unwrap_or_default(), &mut keys);
    Ok(keys)
}

fn flatten(path: &str, table: Table, keys: &mut Keys) {
    for (name, value) in table {
        let is_secret = path.split('.').any(|part| SECRET_TABLES.contains(&part)) && path.starts_with("agents.");
        let key = if path.is_empty() { name } else { format!("{path}.{name}") };
        match value {
            Value::Table(inner) if !inner.is_empty() => flatten(&key, inner, keys),
            value => drop(keys.insert(key, if is_secret { HIDDEN.into() } else { value })),
        }
    }
}

async fn changed(context: &Context) -> Result<(), ClientError> {
    let defaults = defaults();
    let differing: Keys =
        own(context).await?.into_iter().filter(|(key, value)| defaults.get(key) != Some(value)).collect();
    if differing.is_empty() {
        context.output.aside("every key has its default; `acpd config --default` prints them");
    }
    print(context, &differing)
}

async fn get(context: &Context, key: &str) -> Result<(), ClientError> {
    let (mut keys, own) = (defaults(), own(context).await?);
    // An empty table of the defaults may have keys in the file.
    keys.retain(|key, _| !own.keys().any(|own| is_below(own, key)));
    keys.extend(own);
    if let Some(value) = keys.get(key) {
        let text = match value {
            value if context.output.json => clean_json(&serde_json::to_value(value).unwrap_or_default().to_string()),
            Value::String(text) => one_line(text),
            value => one_line(&value.to_string()),
        };
        return context.output.print(&text);
    }
    let known = known(&keys);
    keys.retain(|name, _| is_below(name, key));
    if !keys.is_empty() {
        return print(context, &keys);
    }
    if known.contains(&of_example(key)) {
        let hint = "it has its default, which `acpd config --default` explains";
        return Err(ClientError::local(format!("{key} is not set"), hint));
    }
    if key.starts_with("agents.") && known.contains(&of_example(&format!("{key}.command"))) {
        return Err(ClientError::local(format!("{key} is not configured"), "`acpd agents` lists the agents"));
    }
    let hint = suggest::hint(key, known.iter().map(String::as_str), "`acpd config --default` prints every key");
    Err(ClientError::local(format!("{key:?} is not a key"), hint))
}

fn is_below(key: &str, section: &str) -> bool {
    key.strip_prefix(section).is_some_and(|rest| rest.starts_with('.'))
}

/// A key of any agent as that key of the example, which has all of them.
fn of_example(key: &str) -> String {
    match key.strip_prefix("agents.").and_then(|key| key.split_once('.')) {
        Some((_, key)) => format!("{EXAMPLE_AGENT}{key}"),
        None => key.to_owned(),
    }
}

/// All keys that there are: every agent may have what the first one has.
fn known(keys: &Keys) -> BTreeSet<String> {
    let of_agents: Vec<&str> = keys.keys().filter_map(|key| key.strip_prefix(EXAMPLE_AGENT)).collect();
    let agents: BTreeSet<&str> = keys.keys().filter_map(|key| key.strip_prefix("agents.")?.split('.').next()).collect();
    let of_agents = agents.iter().flat_map(|agent| of_agents.iter().map(move |key| format!("agents.{agent}.{key}")));
    keys.keys().cloned().chain(of_agents).collect()
}

fn print(context: &Context, keys: &Keys) -> Result<(), ClientError> {
    if context.output.json {
        let json = serde_json::to_value(keys).unwrap_or_default();
        return context.output.print(&clean_json(&json.to_string()));
    }
    let lines: Vec<String> = keys.iter().map(|(key, value)| one_line(&format!("{key} = {value}"))).collect();
    context.output.print(&lines.join("\n"))
}

async fn set(context: &Context, key: &str, value: &str) -> Result<(), ClientError> {
    let Some((section, name)) = key.rsplit_once('.') else {
        let hint = "name a section and a key, such as sessions.agent; `acpd config --default` prints every key";
        return Err(ClientError::local(format!("{key:?} is not a key"), hint));
    };
    let mut file = ConfigFile::open(context, Access::Change).await?;
    let text = || Item::Value(value.into());
    let typed = value.parse::<toml_edit::Value>().ok();
    file.set(section, name, typed.clone().map_or_else(text, Item::Value))?;
    let mut checked = file.check();
    if checked.is_err() && typed.is_some_and(|typed| !typed.is_str()) {
        // A text may look like a number.
        file.set(section, name, text())?;
        checked = file.check().or(checked);
    }
    if let Err(error) = checked {
        let (known, like) = (known(&defaults()), of_example(key));
        let is_known = known.iter().any(|known| *known == like || is_below(&like, known));
        let had_mistakes = file.original().is_some_and(|text| file.check_text(text).is_err());
        let hint = match suggest::nearest(key, known.iter().map(String::as_str)).filter(|_| !is_known) {
            _ if had_mistakes => "nothing was changed; correct the file with `acpd config edit` first".to_owned(),
            Some(meant) => format!("nothing was changed; did you mean `{meant}`?"),
            None => "nothing was changed".to_owned(),
        };
        return Err(ClientError::local(format!("cannot set {key} to {value:?}: {error}"), hint));
    }
    write(context, file, &format!("set {key} in")).await
}

async fn edit(context: &Context) -> Result<(), ClientError> {
    let mut file = ConfigFile::open(context, Access::Replace).await?;
    let before = file.original().unwrap_or(EMPTY).to_owned();
    let copy = file.copy(&before)?;
    let unchanged = |why: String| {
        let path = file.path().display();
        if std::fs::read_to_string(&copy).is_ok_and(|text| text == before) {
            std::fs::remove_file(&copy).ok();
            return ClientError::local(why, format!("{path} is unchanged; VISUAL or EDITOR names the editor"));
        }
        ClientError::local(why, format!("{path} is unchanged, and your text is in {}", copy.display()))
    };
    let text = loop {
        let editor = ["VISUAL", "EDITOR"].into_iter().find_map(|name| std::env::var(name).ok());
        let editor = editor.filter(|editor| !editor.trim().is_empty()).unwrap_or_else(|| USUAL_EDITOR.to_owned());
        // Through a shell, because the variable may have arguments.
        let ended = Command::new("sh").args(["-c", &format!("{editor} \"$0\"")]).arg(&copy).status();
        if !ended.is_ok_and(|status| status.success()) {
            return Err(unchanged(format!("the editor {editor:?} failed")));
        }
        let read = std::fs::read_to_string(&copy);
        let text = read.map_err(|error| unchanged(format!("cannot read {}: {error}", copy.display())))?;
        let Err(error) = file.check_text(&text) else { break text };
        if !io::stdin().is_terminal() || !context.output.stderr_is_terminal {
            return Err(unchanged(error.to_string()));
        }
        context.output.error(&error);
        if !context.output.agrees("Edit again? [y/N] ")? {
            return Err(unchanged("the new text is not valid".to_owned()));
        }
    };
    if text == before {
        context.output.note("nothing was changed");
    } else {
        let failed = format!("your text is in {}", copy.display());
        file.replace(&text)?;
        write(context, file, "changed").await.inspect_err(|_| context.output.note(&failed))?;
    }
    // The text is in the file itself now.
    std::fs::remove_file(&copy).ok();
    Ok(())
}

async fn write(context: &Context, mut file: ConfigFile, done: &str) -> Result<(), ClientError> {
    file.write()?;
    if !context.output.json {
        context.output.note(&format!("{done} {}", file.path().display()));
    }
    let reloaded = reload::after_change(context, file.path()).await;
    if context.output.json {
        let told = json!({ "file": file.path(), "reloaded": reloaded.reload() });
        return context.output.print(&clean_json(&told.to_string()));
    }
    reloaded.tell(context.output);
    Ok(())
}
