//! How an agent introduces itself, for people who want to know: its name, what it says it can do, and how one signs in.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::is_shallow;

/// What is taken of what an agent says of itself; more is as if it had said nothing.
const CAPABILITIES_BYTES_MAX: usize = 64 << 10;
const METHODS_MAX: usize = 32;
const WORDS_CHARS_MAX: usize = 500;
const TERMINAL_BYTES_MAX: usize = 16 << 10;

/// The notification by which some agents tell whether somebody is signed in.
pub const AUTH_STATUS: &str = "_auth/status_update";

#[derive(Debug, Default)]
pub struct Introduction {
    pub name: Option<String>,
    pub title: Option<String>,
    pub version: Option<String>,
    /// In its own JSON.
    pub capabilities: Option<Box<RawValue>>,
    pub auth_methods: Vec<AuthMethod>,
    /// Whether it says by itself who is signed in ([`AUTH_STATUS`]).
    pub tells_of_login: bool,
}

/// A way to sign in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthMethod {
    pub id: String,
    pub name: String,
    pub description: String,
    /// How the agent's own program signs a person in, for a method of type `terminal`.
    pub terminal: Option<TerminalSignIn>,
}

/// What the agent's command gets beside its usual arguments and environment, to sign a person in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct TerminalSignIn {
    #[serde(default)]
    pub args: Vec<String>,
    #[serde(default)]
    pub env: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    agent_info: Option<Value>,
    agent_capabilities: Option<Box<RawValue>>,
    auth_methods: Option<Value>,
}

/// Reads the answer to `initialize`, best effort: what makes no sense is left out.
pub fn introduction(result: &RawValue) -> Introduction {
    let Ok(answer) = serde_json::from_str::<Answer>(result.get()) else { return Introduction::default() };
    let said = |name: &str| answer.agent_info.as_ref().and_then(|info| words(&info[name]));
    let fits = |raw: &RawValue| raw.get().len() <= CAPABILITIES_BYTES_MAX && is_shallow(raw.get());
    let capabilities = answer.agent_capabilities.filter(|raw| fits(raw));
    let parsed = capabilities.as_ref().and_then(|raw| serde_json::from_str::<Value>(raw.get()).ok());
    let methods = answer.auth_methods.as_ref().and_then(Value::as_array);
    Introduction {
        name: said("name"),
        title: said("title"),
        version: said("version"),
        tells_of_login: parsed.is_some_and(|parsed| parsed.pointer("/_meta/authStatus").is_some()),
        capabilities,
        auth_methods: methods.into_iter().flatten().filter_map(auth_method).take(METHODS_MAX).collect(),
    }
}

fn auth_method(method: &Value) -> Option<AuthMethod> {
    let id = words(&method["id"])?;
    let name = words(&method["name"]).unwrap_or_else(|| id.clone());
    let description = words(&method["description"]).unwrap_or_default();
    Some(AuthMethod { id, name, description, terminal: terminal(method) })
}

/// Nothing for another type, and for one that cannot be run as the agent says.
fn terminal(method: &Value) -> Option<TerminalSignIn> {
    let is_terminal = method["type"] == "terminal" && method.to_string().len() <= TERMINAL_BYTES_MAX;
    is_terminal.then(|| TerminalSignIn::deserialize(method).ok())?
}

/// Whether somebody is signed in, by the notification of that.
pub fn is_signed_in(params: &RawValue) -> Option<bool> {
    let params: Value = serde_json::from_str(params.get()).ok()?;
    params.pointer("/authStatus/kind").and_then(Value::as_str).map(|kind| kind != "none")
}

fn words(value: &Value) -> Option<String> {
    value.as_str().map(|text| text.chars().take(WORDS_CHARS_MAX).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(json: &str) -> Box<RawValue> {
        RawValue::from_string(json.to_owned()).unwrap()
    }

    #[test]
    fn what_makes_no_sense_is_left_out_and_takes_nothing_else_away() {
        let answer = r#"{"protocolVersion":1,"agentInfo":{"name":"x","version":7},"agentCapabilities":{"loadSession":true},
            "authMethods":[{"id":"key","description":"a key"},{"name":"no id"},7]}"#;
        let seen = introduction(&raw(answer));
        assert_eq!((seen.name.as_deref(), seen.version), (Some("x"), None));
        assert_eq!(seen.capabilities.unwrap().get(), r#"{"loadSession":true}"#);
        let key = AuthMethod { id: "key".into(), name: "key".into(), description: "a key".into(), terminal: None };
        assert_eq!(seen.auth_methods, [key]);
        let answer = r#"{"authMethods":[{"id":"a","type":"terminal","args":["--login"],"env":{"A":"1"}},
            {"id":"b","type":"terminal"},{"id":"c","type":"terminal","args":[7]}]}"#;
        let methods = introduction(&raw(answer)).auth_methods;
        let args = |index: usize| methods[index].terminal.as_ref().map(|terminal| terminal.args.len());
        assert_eq!((args(0), args(1), args(2)), (Some(1), Some(0), None));
        assert!(introduction(&raw("7")).auth_methods.is_empty());
    }

    #[test]
    fn the_status_of_a_login_is_read_as_agents_tell_it() {
        assert_eq!(is_signed_in(&raw(r#"{"authStatus":{"kind":"none","label":"Not logged in"}}"#)), Some(false));
        assert_eq!(is_signed_in(&raw(r#"{"authStatus":{"kind":"oauth"}}"#)), Some(true));
        assert_eq!(is_signed_in(&raw("{}")), None);
    }
}
