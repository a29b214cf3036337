//! What we understand of an agent's answers and requests, read best effort.

use agent_client_protocol_schema::v1 as schema;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::is_shallow;
use super::update::{self, ToolCall};
use crate::model::PromptAbilities;
use crate::model::mcp::Transport;
use crate::model::permission::question::{OptionKind, PermissionOption};

/// The answer to `initialize`.
#[derive(Debug)]
pub struct Initialized {
    pub protocol_version: u16,
    /// The agent's name and version, as it tells them.
    pub agent_info: Option<Box<RawValue>>,
    pub abilities: Abilities,
}

/// What an agent says it can do, as far as acpd makes use of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Abilities {
    /// Take a conversation up again without repeating it.
    pub resume: bool,
    /// Take a conversation up again, repeating it.
    pub load: bool,
    pub prompt: PromptAbilities,
    pub mcp: McpAbilities,
}

/// Which MCP servers an agent can call. Those that it starts itself it has to know how to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct McpAbilities {
    pub http: bool,
    pub sse: bool,
}

impl McpAbilities {
    pub const fn reach(self, transport: &Transport) -> bool {
        match transport {
            Transport::Stdio { .. } => true,
            Transport::Http { .. } => self.http,
            Transport::Sse { .. } => self.sse,
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct InitializeAnswer {
    protocol_version: u16,
    agent_info: Option<Box<RawValue>>,
    agent_capabilities: Option<Value>,
}

/// Reads the answer to `initialize`, or says what is wrong with it.
pub fn initialized(result: &RawValue) -> Result<Initialized, String> {
    let answer: InitializeAnswer = serde_json::from_str(result.get()).map_err(|error| error.to_string())?;
    let abilities = answer.agent_capabilities.as_ref().map(abilities).unwrap_or_default();
    let agent_info = answer.agent_info.filter(|info| is_shallow(info.get()));
    Ok(Initialized { protocol_version: answer.protocol_version, agent_info, abilities })
}

/// Read by what we look for: an agent that says something strange elsewhere is not refused for it. `{}` means that it can.
fn abilities(capabilities: &Value) -> Abilities {
    let is_true = |pointer: &str| capabilities.pointer(pointer).and_then(Value::as_bool).unwrap_or(false);
    Abilities {
        resume: capabilities.pointer("/sessionCapabilities/resume").is_some_and(Value::is_object),
        load: is_true("/loadSession"),
        prompt: PromptAbilities {
            image: is_true("/promptCapabilities/image"),
            audio: is_true("/promptCapabilities/audio"),
            embedded_context: is_true("/promptCapabilities/embeddedContext"),
        },
        mcp: McpAbilities { http: is_true("/mcpCapabilities/http"), sse: is_true("/mcpCapabilities/sse") },
    }
}

/// The agent's own id for the session, from the answer to `session/new`.
pub fn session_id(result: &RawValue) -> Result<String, String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Answer {
        session_id: String,
    }
    serde_json::from_str::<Answer>(result.get()).map(|answer| answer.session_id).map_err(|error| error.to_string())
}

/// The stop reason, from the answer to `session/prompt`. The set is open: an unknown reason is kept as it is.
pub fn stop_reason(result: &RawValue) -> Result<String, String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Answer {
        stop_reason: String,
    }
    serde_json::from_str::<Answer>(result.get()).map(|answer| answer.stop_reason).map_err(|error| error.to_string())
}

/// A question of the agent's.
#[derive(Debug)]
pub struct PermissionRequest {
    pub tool_call: ToolCall,
    pub options: Vec<PermissionOption>,
}

/// What is taken of one option, and how many of them.
const OPTION_BYTES_MAX: usize = 1024;
const OPTIONS_MAX: usize = 32;

/// Reads `session/request_permission`.
pub fn permission_request(params: &RawValue) -> Result<PermissionRequest, String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Request {
        tool_call: schema::ToolCallUpdate,
        options: Vec<Value>,
    }
    let request: Request = serde_json::from_str(params.get()).map_err(|error| error.to_string())?;
    // One that makes no sense takes none of the others away.
    let options: Vec<PermissionOption> = request.options.iter().filter_map(option).collect();
    let is_long = |option: &PermissionOption| option.option_id.len().max(option.name.len()) > OPTION_BYTES_MAX;
    if options.len() > OPTIONS_MAX || options.iter().any(is_long) {
        return Err(format!("more than {OPTIONS_MAX} options, or an option longer than {OPTION_BYTES_MAX} bytes"));
    }
    Ok(PermissionRequest { tool_call: update::from_schema(&request.tool_call), options })
}

fn option(option: &Value) -> Option<PermissionOption> {
    let option_id = option["optionId"].as_str()?.to_owned();
    let name = option["name"].as_str().unwrap_or(&option_id).to_owned();
    let kind = serde_json::from_value(option["kind"].clone()).unwrap_or(OptionKind::Other);
    Some(PermissionOption { option_id, name, kind })
}

/// What `elicitation/create` asks: what a person is shown of it.
pub fn elicitation_message(params: &RawValue) -> Result<String, String> {
    #[derive(Deserialize)]
    struct Elicitation {
        mode: String,
        message: String,
    }
    let Elicitation { mode, message } = serde_json::from_str(params.get()).map_err(|error| error.to_string())?;
    match mode.as_str() {
        "form" | "url" => Ok(message),
        _ => Err(format!("acpd does not support elicitations with the mode {mode:?}")),
    }
}

/// The request that `$/cancel_request` takes back.
pub fn cancelled_request(params: &RawValue) -> Option<Box<RawValue>> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Cancel {
        request_id: Box<RawValue>,
    }
    serde_json::from_str::<Cancel>(params.get()).ok().map(|cancel| cancel.request_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(json: &str) -> Box<RawValue> {
        RawValue::from_string(json.to_owned()).unwrap()
    }

    #[test]
    fn answers_are_read_by_what_we_need_of_them() {
        let answer =
            initialized(&raw(r#"{"protocolVersion":1,"agentInfo":{"name":"x"},"agentCapabilities":7}"#)).unwrap();
        assert_eq!(answer.protocol_version, 1);
        assert_eq!(answer.agent_info.unwrap().get(), r#"{"name":"x"}"#);
        assert_eq!(answer.abilities, Abilities::default());
        let able = r#"{"protocolVersion":1,"agentCapabilities":{"loadSession":true,"sessionCapabilities":{"resume":{}},
            "promptCapabilities":{"embeddedContext":true,"image":true,"audio":"yes"},"mcpCapabilities":{"http":true}}}"#;
        let able = initialized(&raw(able)).unwrap().abilities;
        let prompt = PromptAbilities { image: true, audio: false, embedded_context: true };
        assert_eq!(able, Abilities { resume: true, load: true, prompt, mcp: McpAbilities { http: true, sse: false } });
        assert!(initialized(&raw("{}")).unwrap_err().contains("protocolVersion"));
        assert_eq!(session_id(&raw(r#"{"sessionId":"s","modes":null}"#)).unwrap(), "s");
        assert_eq!(stop_reason(&raw(r#"{"stopReason":"brand_new"}"#)).unwrap(), "brand_new");
    }

    #[test]
    fn a_permission_request_of_geminis_is_understood() {
        let request = raw(r#"{"sessionId":"s","options":[
                {"optionId":"proceed_always","name":"Allow for this session","kind":"allow_always"},
                {"optionId":"proceed_once","name":"Allow","kind":"allow_once"},
                {"optionId":"cancel","name":"Reject","kind":"reject_once"}],
                "toolCall":{"toolCallId":"t","status":"pending","title":"rm x","content":[],"locations":[],"kind":"execute"}}"#);
        let request = permission_request(&request).unwrap();
        let kinds: Vec<OptionKind> = request.options.iter().map(|option| option.kind).collect();
        assert_eq!(kinds, [OptionKind::AllowAlways, OptionKind::AllowOnce, OptionKind::RejectOnce]);
        assert_eq!(request.tool_call.kind.as_deref(), Some("execute"));
    }

    #[test]
    fn an_option_of_an_unknown_kind_takes_none_away() {
        let request = raw(r#"{"sessionId":"s","toolCall":{"toolCallId":"t"},"options":[
                {"optionId":"a","name":"A","kind":"allow_session"},{"optionId":"b","kind":"allow_once"},{"name":"C"},7]}"#);
        let options = permission_request(&request).unwrap().options;
        let read: Vec<_> = options.iter().map(|option| (option.option_id.as_str(), option.kind)).collect();
        assert_eq!(read, [("a", OptionKind::Other), ("b", OptionKind::AllowOnce)]);
    }
}
