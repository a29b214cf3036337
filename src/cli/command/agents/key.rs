//! `acpd agents key`: stores a key for an agent in a file that only its user can read.

use std::collections::BTreeMap;
use std::fs::{Permissions, set_permissions};
use std::io::{ErrorKind, IsTerminal, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use clap::Args;
use toml_edit::{Item, Table, TableLike, value};

use crate::agent::set_variable;
use crate::cli::config_file::{Access, ConfigFile, followed, put, replace};
use crate::cli::context::Context;
use crate::cli::error::ClientError;
use crate::cli::exit::Exit;
use crate::cli::interrupts::Interrupts;
use crate::cli::suggest;
use crate::cli::terminal::{Keyboard, Keys};
use crate::config::Config;
use crate::model::AgentProfile;
use crate::model::mcp::reference::is_variable;

/// Far above any key.
const KEY_BYTES_MAX: u64 = 16 << 10;
const PRIVATE: u32 = 0o600;

/// Store a key for an agent
///
/// Reads the key from the terminal without showing it, or from standard input. Stores it in a file that only you can read:
/// the agent's `env_file`, or NAME.env beside the configuration file. The agent's next process uses it.
#[derive(Args, Debug)]
pub struct Key {
    /// Name of the agent
    #[arg(id = "agent", value_name = "NAME")]
    name: String,
    /// Environment variable that holds the key [default: the agent's usual one, such as `GEMINI_API_KEY`]
    #[arg(long, value_name = "VARIABLE")]
    variable: Option<String>,
    /// A key on the command line is refused without repeating it.
    #[arg(id = "secret", hide = true)]
    argument: Option<String>,
}

impl Key {
    pub async fn execute(self, context: &Context) -> Result<Exit, ClientError> {
        if self.argument.is_some() {
            let hint = format!(
                "type it at the prompt of `acpd agents key {}`, or pipe it in; delete it from your shell's history",
                self.name
            );
            return Err(ClientError::local(
                "a key must not be an argument, because other users can see it there",
                hint,
            ));
        }
        // A person takes their time, so the file is not locked yet.
        let profile = self.profile(&ConfigFile::open(context, Access::Read).await?)?;
        let variable = self.variable(&profile)?;
        let key = checked(&read(context, &format!("{variable} for {}: ", self.name)).await?)?;
        let mut file = ConfigFile::open(context, Access::Change).await?;
        let profile = self.profile(&file)?;
        let path = if let Some(named) = profile.env_file.last() {
            PathBuf::from(named.strip_prefix('-').unwrap_or(named))
        } else {
            let path = own_file(file.path(), &self.name);
            put(self.section(&mut file)?, "env_file", value(path.display().to_string()));
            path
        };
        let usual = profile.adapter.quirks().key.as_ref().filter(|key| key.variable == variable);
        if let (Some(method), None) = (usual.and_then(|key| key.auth_method), &profile.auth_method) {
            put(self.section(&mut file)?, "auth_method", value(method));
        }
        file.check()?;
        store(&path, &variable, &key)?;
        let done = format!("stored {variable} for the agent {:?} in {}", self.name, path.display());
        super::write(context, &mut file, &self.name, &[done]).await?;
        context.output.aside(&format!("check it with `acpd agents check {}`", self.name));
        Ok(Exit::Ok)
    }

    fn profile(&self, file: &ConfigFile) -> Result<AgentProfile, ClientError> {
        let place = file.path().display().to_string();
        let mut config = Config::read(&file.text(), &place, &BTreeMap::new())
            .map_err(|error| ClientError::local(error.to_string(), "nothing was changed; correct the file first"))?;
        config.agents.remove(&self.name).ok_or_else(|| {
            let hint = "`acpd agents` lists them; an agent made with `acpd agents create` uses its base's key";
            let hint = suggest::hint(&self.name, config.agents.keys().map(String::as_str), hint);
            ClientError::local(format!("the agent {:?} is not configured", self.name), hint)
        })
    }

    fn variable(&self, profile: &AgentProfile) -> Result<String, ClientError> {
        let usual = profile.adapter.quirks().key.as_ref().map(|key| key.variable.to_owned());
        let variable = self.variable.clone().or(usual).ok_or_else(|| {
            let message = format!("acpd does not know which variable holds the key of the agent {:?}", self.name);
            let example = profile.env_pass.iter().find(|name| is_variable(name)).map_or("NAME", String::as_str);
            ClientError::local(message, format!("name it: `acpd agents key {} --variable {example}`", self.name))
        })?;
        if !is_variable(&variable) {
            let message = format!("{variable:?} is not a valid variable name");
            return Err(ClientError::local(message, "use letters, digits and _, not beginning with a digit"));
        }
        if profile.env.contains_key(&variable) || profile.credentials.contains_key(&variable) {
            let message = format!("the configuration already gives the agent {:?} a value of {variable}", self.name);
            let hint = format!("remove it from agents.{0}.env or agents.{0}.credentials first", self.name);
            return Err(ClientError::local(message, hint));
        }
        Ok(variable)
    }

    /// The agent's section of the file, added when there is none.
    fn section<'a>(&self, file: &'a mut ConfigFile) -> Result<&'a mut dyn TableLike, ClientError> {
        if !file.agents()?.contains_key(&self.name) {
            file.add_agent(&self.name, Table::new())?;
        }
        let section = file.agents()?.get_mut(&self.name).and_then(Item::as_table_like_mut);
        section.ok_or_else(|| {
            ClientError::local(format!("agents.{} is not a section", self.name), "correct the file first")
        })
    }
}

/// Beside the configuration file. The profile needs an absolute path.
fn own_file(config: &Path, agent: &str) -> PathBuf {
    let path = config.with_file_name(format!("{agent}.env"));
    std::path::absolute(&path).unwrap_or(path)
}

async fn read(context: &Context, prompt: &str) -> Result<String, ClientError> {
    let failed = |source| ClientError::io("read the key", source);
    if !std::io::stdin().is_terminal() {
        let mut text = String::new();
        std::io::stdin().take(KEY_BYTES_MAX + 1).read_to_string(&mut text).map_err(failed)?;
        return Ok(text);
    }
    let mut keyboard = Keyboard::new(Keys::Stdin);
    let line = async { keyboard.secret_line(|| context.output.show(prompt)).await.map_err(failed) };
    let line = Interrupts::listen()?.unless(line).await;
    // The terminal has not echoed the line end either.
    context.output.show("\n");
    Ok(line?.unwrap_or_default())
}

/// The key without the white space around it, if it is one.
fn checked(text: &str) -> Result<String, ClientError> {
    let key = text.trim();
    let problem = if key.is_empty() {
        "no key was given"
    } else if key.len() as u64 > KEY_BYTES_MAX {
        "the key is too long"
    } else if key.contains(char::is_control) {
        "the key has a line break or another control character in it"
    } else {
        return Ok(key.to_owned());
    };
    Err(ClientError::local(problem, "nothing was changed; type or pipe in the key alone, on one line"))
}

/// Sets the variable in the file, and makes the file readable for its owner only.
fn store(path: &Path, variable: &str, key: &str) -> Result<(), ClientError> {
    let real = followed(path);
    let before = match std::fs::read_to_string(&real) {
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        before => before.map_err(|error| ClientError::io(format!("read {}", path.display()), error))?,
    };
    let text = set_variable(&before, variable, key).map_err(|error| {
        let message = format!("{} is wrong in line {}: it {}", path.display(), error.line, error.problem);
        ClientError::local(message, "nothing was changed; write NAME=value lines")
    })?;
    // The daemon does not read a file that others can read, and a new one has the mode of the old one.
    let closed = if real.exists() { set_permissions(&real, Permissions::from_mode(PRIVATE)) } else { Ok(()) };
    let written = closed.and_then(|()| replace(&real, &text));
    written.map_err(|error| ClientError::io(format!("write {}", path.display()), error))
}
