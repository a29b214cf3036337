//! What only Gemini CLI needs: its settings, the way by which it signs in, and its conversation.
//!
//! Its settings are the user's, with what a session cannot do without set over them. Among that is the way to sign in, because
//! without one it loads no conversation; and the way by a Google account only where there is a login, because without it
//! the CLI asks a person for a code, and takes the next line of the protocol for that.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use jsonc_parser::ParseOptions;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{chats, disk};

/// Ways to sign in, by the CLI's names for them.
const GOOGLE: &str = "oauth-personal";
const KEY: &str = "gemini-api-key";
const VERTEX: &str = "vertex-ai";
const GATEWAY: &str = "gateway";

/// What its directory is called, in a home and in a workspace; and its settings there.
pub const DIRECTORY: &str = ".gemini";
pub const SETTINGS: &str = "settings.json";
const SETTINGS_BYTES_MAX: u64 = 1 << 20;
/// What is shown of a way that acpd does not know.
const WAY_CHARS_MAX: usize = 40;
/// Where the settings have it; older releases had it in the second place.
const SELECTED: &[&str] = &["security", "auth", "selectedType"];
const SELECTED_ONCE: &[&str] = &["selectedAuthType"];

/// The clean-up of old conversations deletes those that were loaded; and what is done in a session is nobody else's.
const OURS: [(&[&str], bool); 2] =
    [(&["general", "sessionRetention", "enabled"], false), (&["privacy", "usageStatisticsEnabled"], false)];

/// Whether the CLI runs commands in a terminal. Otherwise it uses pipes.
const INTERACTIVE_SHELL: &[&str] = &["tools", "shell", "enableInteractiveShell"];

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gemini {
    sign_in: SignIn,
    /// The agent's name for the conversation that it is to load.
    conversation: Option<String>,
}

/// Where that is put.
#[derive(Debug)]
pub struct Place<'a> {
    /// The CLI's own directory in the session's home.
    pub directory: &'a OwnedFd,
    /// The user's settings, if the agent may see them.
    pub users: Option<&'a PathBuf>,
    /// Where the user's login would be, if there is none.
    pub missing_login: Option<PathBuf>,
    /// Whether the CLI can run commands in terminals.
    pub has_terminals: bool,
}

impl Gemini {
    /// `given` are the names in the environment that the profile itself gives a value.
    pub fn new(environment: &BTreeMap<String, String>, given: &BTreeSet<String>, conversation: Option<String>) -> Self {
        Self { sign_in: SignIn::new(environment, given), conversation }
    }

    /// Puts the settings there, and the conversation where it can be loaded. What is known of the account is told.
    pub fn prepare(&self, place: &Place<'_>, left_out: &mut impl FnMut(&Path, &io::Error)) -> Result<String, String> {
        if let Some(conversation) = &self.conversation {
            let prepared = chats::prepare(place.directory, conversation);
            prepared.unwrap_or_else(|error| left_out(Path::new(conversation), &error));
        }
        let users = place.users.map(|path| read_users(path)).transpose()?.flatten();
        let login = place.missing_login.as_ref().map(|path| path.display().to_string());
        let (users, login) = (users.as_deref(), login.as_deref());
        let merged = settings(users, &self.sign_in, login, place.has_terminals).map_err(|problem| {
            let path = place.users.map(|path| path.display().to_string()).unwrap_or_default();
            format!("cannot use the Gemini CLI settings in {path}: {problem}; correct them")
        })?;
        disk::put(place.directory, OsStr::new(SETTINGS), disk::PRIVATE, merged.text.as_bytes())
            .map_err(|error| format!("cannot write the session's {SETTINGS}: {error}"))?;
        // The CLI sets the workspace's settings over the user's. Where it is, the shim is already.
        let workspaces = disk::directory(Path::new(DIRECTORY))
            .and_then(|directory| disk::read(disk::open(&directory, OsStr::new(SETTINGS))?, SETTINGS_BYTES_MAX));
        let choice = workspaces.ok().and_then(|bytes| workspace_choice(&String::from_utf8_lossy(&bytes)));
        Ok(merged.account + &choice.unwrap_or_default())
    }
}

/// The user's settings, if there are any.
pub fn read_users(path: &Path) -> Result<Option<String>, String> {
    let read = path.canonicalize().and_then(|real| disk::read(disk::open_real(&real)?, SETTINGS_BYTES_MAX));
    match read {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("cannot read {}: {error}", path.display())),
    }
}

/// How the agent is to sign in, as far as its environment tells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SignIn {
    /// The way for which the profile gives something. It goes before the user's own choice.
    given: Option<String>,
    /// The way for somebody who has chosen none.
    otherwise: String,
    /// Whether the login need not be in its file: it is in a keyring, or in the environment.
    is_elsewhere: bool,
}

impl SignIn {
    fn new(environment: &BTreeMap<String, String>, given: &BTreeSet<String>) -> Self {
        let is_true = |name: &str| environment.get(name).is_some_and(|value| value == "true");
        let way = |is_meant: &dyn Fn(&str) -> bool| {
            let is_meant = |name: &str| environment.get(name).is_some_and(|value| !value.is_empty()) && is_meant(name);
            let ways = [
                (is_true("GOOGLE_GENAI_USE_GCA") && is_meant("GOOGLE_GENAI_USE_GCA"), GOOGLE),
                (is_true("GOOGLE_GENAI_USE_VERTEXAI") && is_meant("GOOGLE_GENAI_USE_VERTEXAI"), VERTEX),
                // A key goes to another address as well, and older releases know of no gateways.
                (is_meant("GEMINI_API_KEY"), KEY),
                (is_meant("GOOGLE_GEMINI_BASE_URL"), GATEWAY),
            ];
            ways.into_iter().find_map(|(is_there, way)| is_there.then(|| way.to_owned()))
        };
        let is_elsewhere = is_true("GEMINI_FORCE_ENCRYPTED_FILE_STORAGE")
            || ["GOOGLE_CLOUD_ACCESS_TOKEN", "GOOGLE_APPLICATION_CREDENTIALS"]
                .iter()
                .any(|name| environment.get(*name).is_some_and(|value| !value.is_empty()));
        Self {
            given: way(&|name| given.contains(name)),
            otherwise: way(&|_| true).unwrap_or_else(|| KEY.to_owned()),
            is_elsewhere,
        }
    }
}

/// The settings of a session, and what is known of the account.
#[derive(Debug)]
struct Settings {
    text: String,
    account: String,
}

/// Puts the session's settings together. `users` are the user's, and `missing_login` where their login would be.
fn settings(
    users: Option<&str>,
    sign_in: &SignIn,
    missing_login: Option<&str>,
    has_terminals: bool,
) -> Result<Settings, String> {
    let mut settings = parsed(users.unwrap_or_default())?;
    for (path, value) in OURS {
        set(&mut settings, path, json!(value));
    }
    if !has_terminals {
        set(&mut settings, INTERACTIVE_SHELL, json!(false));
    }
    let chosen =
        [SELECTED, SELECTED_ONCE].into_iter().find_map(|path| at(&settings, path)?.as_str()).map(str::to_owned);
    let way = sign_in.given.clone().or(chosen).unwrap_or_else(|| sign_in.otherwise.clone());
    let missing = missing_login.filter(|_| way == GOOGLE && !sign_in.is_elsewhere);
    let (way, account) = if let Some(path) = missing {
        (KEY, format!("no Google account is signed in: {path} does not exist"))
    } else {
        (way.as_str(), account(&way))
    };
    set(&mut settings, SELECTED, json!(way));
    Ok(Settings { text: format!("{settings:#}\n"), account })
}

fn parsed(text: &str) -> Result<Value, String> {
    let text = if text.trim().is_empty() { "{}" } else { text };
    let settings: Value = jsonc_parser::parse_to_serde_value(text, &ParseOptions::default())
        .map_err(|error| format!("not valid JSON: {error}"))?;
    if settings.is_object() { Ok(settings) } else { Err("not a JSON object".to_owned()) }
}

/// Makes Qwen Code, which has the same setting, run commands without a terminal: in the session's own copy of its settings.
pub fn use_pipes(directory: &OwnedFd) -> io::Result<()> {
    let name = OsStr::new(SETTINGS);
    let text = match disk::open(directory, name).and_then(|file| disk::read(file, SETTINGS_BYTES_MAX)) {
        Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
        read => read?,
    };
    let mut settings = parsed(&String::from_utf8_lossy(&text)).map_err(io::Error::other)?;
    set(&mut settings, INTERACTIVE_SHELL, json!(false));
    disk::put(directory, name, disk::PRIVATE, format!("{settings:#}\n").as_bytes())
}

/// What the settings of a workspace, which the CLI sets over the user's, have for a choice of their own.
fn workspace_choice(settings: &str) -> Option<String> {
    let settings: Value = jsonc_parser::parse_to_serde_value(settings, &ParseOptions::default()).ok()?;
    let way: String = at(&settings, SELECTED)?.as_str()?.chars().take(WAY_CHARS_MAX).collect();
    Some(format!("; but {DIRECTORY}/{SETTINGS} in the workspace selects the sign-in method {way:?}"))
}

/// What a person is told about how the agent signs in, when that fails.
fn account(way: &str) -> String {
    match way {
        GOOGLE => "it signs in with the user's Google account, whose sign-in has expired, was revoked or could not be \
            checked"
            .to_owned(),
        KEY => "it signs in with GEMINI_API_KEY, which is missing or was rejected".to_owned(),
        VERTEX => "it signs in to Vertex AI, which needs GOOGLE_API_KEY, or GOOGLE_CLOUD_PROJECT and \
            GOOGLE_CLOUD_LOCATION with the account's credentials"
            .to_owned(),
        GATEWAY => {
            "it uses the gateway at GOOGLE_GEMINI_BASE_URL without a key, and the gateway rejected that".to_owned()
        }
        other => {
            let shown: String = other.chars().take(WAY_CHARS_MAX).collect();
            format!("it signs in with the method {shown:?} from the user's settings")
        }
    }
}

fn at<'a>(settings: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(settings, |value, name| value.get(name))
}

/// Sets a value below objects, which are made where something else is in their place.
fn set(settings: &mut Value, path: &[&str], value: Value) {
    let place = path.iter().fold(settings, |parent, name| {
        if !parent.is_object() {
            *parent = Value::Object(Map::new());
        }
        &mut parent[*name]
    });
    *place = value;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sign_in(environment: &[(&str, &str)], given: &[&str]) -> SignIn {
        let environment = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        SignIn::new(&environment, &given.iter().map(|name| (*name).to_owned()).collect())
    }

    fn way(users: &str, sign_in: &SignIn, missing: Option<&str>) -> String {
        let text = settings(Some(users), sign_in, missing, true).unwrap().text;
        let merged: Value = serde_json::from_str(&text).unwrap();
        at(&merged, SELECTED).unwrap().as_str().unwrap().to_owned()
    }

    #[test]
    fn the_users_settings_stay_and_ours_are_set_over_them() {
        let users = "// mine\n{ \"ui\": { \"theme\": \"GitHub\" }, /* x */ \"general\": { \"vimMode\": true,
            \"sessionRetention\": { \"enabled\": true, \"maxAge\": \"3d\" } }, \"privacy\": 7,
            \"mcpServers\": { \"a\": { \"command\": \"$HOME/x // y\" } } }";
        let Settings { text, .. } = settings(Some(users), &sign_in(&[], &[]), None, false).unwrap();
        let merged: Value = serde_json::from_str(&text).unwrap();
        let expected = json!({
            "ui": { "theme": "GitHub" },
            "general": { "vimMode": true, "sessionRetention": { "enabled": false, "maxAge": "3d" } },
            "privacy": { "usageStatisticsEnabled": false },
            "tools": { "shell": { "enableInteractiveShell": false } },
            "mcpServers": { "a": { "command": "$HOME/x // y" } },
            "security": { "auth": { "selectedType": KEY } },
        });
        assert_eq!(merged, expected);
        for nothing in [None, Some(""), Some(" \n")] {
            assert!(settings(nothing, &sign_in(&[], &[]), None, true).is_ok(), "{nothing:?}");
        }
        for wrong in ["{", "[]", "{ \"a\": }", "nonsense"] {
            assert!(settings(Some(wrong), &sign_in(&[], &[]), None, true).unwrap_err().contains("JSON"), "{wrong}");
        }
    }

    #[test]
    fn what_the_profile_gives_goes_before_the_users_choice_and_that_before_what_is_passed() {
        let users = r#"{"security":{"auth":{"selectedType":"oauth-personal"}}}"#;
        let key = [("GEMINI_API_KEY", "k")];
        assert_eq!(way(users, &sign_in(&key, &["GEMINI_API_KEY"]), None), KEY);
        assert_eq!(way(users, &sign_in(&key, &[]), None), GOOGLE, "it was in the daemon's environment by chance");
        assert_eq!(way("{}", &sign_in(&key, &[]), None), KEY);
        assert_eq!(way(r#"{"selectedAuthType":"vertex-ai"}"#, &sign_in(&[], &[]), None), VERTEX);
        let address = ("GOOGLE_GEMINI_BASE_URL", "http://x");
        assert_eq!(way("{}", &sign_in(&[address], &[]), None), GATEWAY);
        assert_eq!(way("{}", &sign_in(&[key[0], address], &[]), None), KEY);
        assert_eq!(way(users, &sign_in(&[key[0], address], &[address.0]), None), GATEWAY, "the key is there by chance");
        let vertex = [("GOOGLE_GENAI_USE_VERTEXAI", "true"), ("GOOGLE_API_KEY", "k"), ("GEMINI_API_KEY", "")];
        assert_eq!(way("{}", &sign_in(&vertex, &[]), None), VERTEX);
        assert_eq!(way("{}", &sign_in(&[("GOOGLE_GENAI_USE_VERTEXAI", "false")], &[]), None), KEY);
    }

    #[test]
    fn without_a_login_nobody_is_asked_for_a_code() {
        let users = r#"{"security":{"auth":{"selectedType":"oauth-personal"}}}"#;
        let missing = Some("/home/me/.gemini/oauth_creds.json");
        let told = settings(Some(users), &sign_in(&[], &[]), missing, true).unwrap();
        assert!(!told.text.contains(GOOGLE) && told.account.contains("/home/me/.gemini/oauth_creds.json"), "{told:?}");
        for (name, value) in
            [("GEMINI_FORCE_ENCRYPTED_FILE_STORAGE", "true"), ("GOOGLE_APPLICATION_CREDENTIALS", "/home/me/adc.json")]
        {
            assert_eq!(way(users, &sign_in(&[(name, value)], &[]), missing), GOOGLE, "{name}");
        }
    }
}
