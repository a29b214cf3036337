//! The three interfaces of models that the agents use: how a request is read, and how an answer is streamed.
//!
//! ```text
//! POST …/messages            Anthropic (claude)
//! POST …/responses           OpenAI (codex)
//! POST …/chat/completions    OpenAI, and all that imitate it (opencode, qwen)
//! ```
//!
//! The stand-in is also the agents' proxy for HTTPS, so that no request leaves the machine: it refuses every `CONNECT`.

use std::sync::atomic::{AtomicU64, Ordering};

use axum::http::{HeaderMap, Uri};
use serde_json::{Value, json};

use super::model::{self, Entry, FIRST_WORDS, LAST_WORDS, Said, Tool};
use crate::stand_in::{self, Answer, StandIn};

pub type Api = StandIn<Asked>;

/// Numbers the answers, because agents want different ids.
static ANSWERS: AtomicU64 = AtomicU64::new(0);

/// One request for the model, as it came.
#[derive(Debug)]
pub struct Asked {
    pub model: String,
    pub key: Option<String>,
    pub prompt: String,
}

impl stand_in::Asked for Asked {
    fn answer(uri: &Uri, headers: &HeaderMap, body: &[u8]) -> (Option<Self>, Answer) {
        let last = uri.path().rsplit('/').next().unwrap_or_default();
        let interface = match last {
            "messages" => Interface::Anthropic,
            "responses" => Interface::Responses,
            "completions" => Interface::Chat,
            _ => {
                return (
                    None,
                    Answer::Whole { status: 404, body: json!({"error": {"message": "not of the stand-in"}}) },
                );
            }
        };
        let body: Value = serde_json::from_slice(body).expect("a request is JSON");
        let (conversation, tools) = (interface.conversation(&body), interface.tools(&body));
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let key = header("x-api-key").or_else(|| header("authorization")?.strip_prefix("Bearer "));
        let asked = Self {
            model: body["model"].as_str().unwrap_or_default().to_owned(),
            key: key.map(str::to_owned),
            prompt: model::prompt(&conversation).to_owned(),
        };
        let writer = Writer { interface, id: ANSWERS.fetch_add(1, Ordering::Relaxed) };
        (Some(asked), writer.answer(model::answer(&conversation, &tools)))
    }

    fn prompt(&self) -> &str {
        &self.prompt
    }
}

#[derive(Clone, Copy)]
enum Interface {
    Anthropic,
    Responses,
    Chat,
}

/// The text of a message, which is a string or a list of blocks.
fn text_of(content: &Value) -> String {
    let blocks = content.as_array().into_iter().flatten().filter_map(|block| block["text"].as_str());
    content.as_str().map_or_else(|| blocks.collect::<Vec<_>>().join("\n"), str::to_owned)
}

impl Interface {
    fn conversation(self, body: &Value) -> Vec<Entry> {
        let list = if let Self::Responses = self { &body["input"] } else { &body["messages"] };
        let entries = list.as_array().into_iter().flatten().flat_map(|message| {
            let content = &message["content"];
            let kind = message["type"].as_str().unwrap_or_default();
            if message["role"] == "user" {
                let results = content.as_array().into_iter().flatten().filter(|block| block["type"] == "tool_result");
                let results = results.map(|block| Entry::Result(text_of(&block["content"])));
                let user = Entry::User(text_of(content));
                std::iter::once(user).chain(results).collect()
            } else if message["role"] == "tool" {
                vec![Entry::Result(text_of(content))]
            } else if kind.ends_with("call_output") {
                vec![Entry::Result(text_of(&message["output"]))]
            } else {
                Vec::new()
            }
        });
        entries.collect()
    }

    fn tools(self, body: &Value) -> Vec<Tool> {
        let tools = body["tools"].as_array().into_iter().flatten().filter_map(|tool| {
            let (tool, schema) = match self {
                Self::Anthropic => (tool, "input_schema"),
                Self::Responses => (tool, "parameters"),
                Self::Chat => (&tool["function"], "parameters"),
            };
            let is_freeform = tool["type"] == "custom";
            let freeform = json!({"properties": {"input": {"type": "string"}}});
            let schema = if is_freeform { freeform } else { tool[schema].clone() };
            Some(Tool { name: tool["name"].as_str()?.to_owned(), schema, is_freeform })
        });
        tools.collect()
    }
}

fn item_done(item: &Value) -> String {
    named(&json!({"type": "response.output_item.done", "output_index": 0, "item": item}))
}

/// Writes one answer, as server-sent events.
struct Writer {
    interface: Interface,
    id: u64,
}

/// An event with its name, for Anthropic's interface and the newer one of `OpenAI`.
fn named(data: &Value) -> String {
    format!("event: {}\ndata: {data}\n\n", data["type"].as_str().expect("an event has a type"))
}

impl Writer {
    fn answer(&self, said: Said) -> Answer {
        match said {
            Said::Words(text) => {
                let text =
                    [self.open(), self.open_text(), self.piece(&text), self.close_text(&text), self.close(false)];
                Answer::Stream(text.concat())
            }
            Said::Hold => {
                let whole = format!("{FIRST_WORDS}{LAST_WORDS}");
                Answer::Held {
                    first: [self.open(), self.open_text(), self.piece(FIRST_WORDS)].concat(),
                    rest: [self.piece(LAST_WORDS), self.close_text(&whole), self.close(false)].concat(),
                }
            }
            Said::Call { tool, arguments } => {
                Answer::Stream([self.open(), self.call(&tool, &arguments), self.close(true)].concat())
            }
        }
    }

    fn open(&self) -> Vec<String> {
        match self.interface {
            Interface::Anthropic => {
                let message = json!({"id": format!("msg_{}", self.id), "type": "message", "role": "assistant",
                    "model": "stand-in", "content": [], "stop_reason": null, "stop_sequence": null,
                    "usage": {"input_tokens": 50, "output_tokens": 1}});
                vec![named(&json!({"type": "message_start", "message": message}))]
            }
            Interface::Responses => {
                let response = json!({"id": format!("resp_{}", self.id), "status": "in_progress", "output": []});
                vec![named(&json!({"type": "response.created", "response": response}))]
            }
            Interface::Chat => vec![self.chunk(&json!({"role": "assistant", "content": ""}), None)],
        }
    }

    fn open_text(&self) -> Vec<String> {
        match self.interface {
            Interface::Anthropic => {
                let block = json!({"type": "text", "text": ""});
                vec![named(&json!({"type": "content_block_start", "index": 0, "content_block": block}))]
            }
            Interface::Responses => {
                vec![named(&json!({"type": "response.output_item.added", "output_index": 0, "item": self.message("")}))]
            }
            Interface::Chat => Vec::new(),
        }
    }

    fn piece(&self, text: &str) -> Vec<String> {
        match self.interface {
            Interface::Anthropic => {
                let delta = json!({"type": "text_delta", "text": text});
                vec![named(&json!({"type": "content_block_delta", "index": 0, "delta": delta}))]
            }
            Interface::Responses => vec![named(&json!({"type": "response.output_text.delta", "output_index": 0,
                "content_index": 0, "item_id": format!("item_{}", self.id), "delta": text}))],
            Interface::Chat => vec![self.chunk(&json!({"content": text}), None)],
        }
    }

    fn close_text(&self, whole: &str) -> Vec<String> {
        match self.interface {
            Interface::Anthropic => vec![named(&json!({"type": "content_block_stop", "index": 0}))],
            Interface::Responses => vec![item_done(&self.message(whole))],
            Interface::Chat => Vec::new(),
        }
    }

    fn call(&self, tool: &Tool, arguments: &Value) -> Vec<String> {
        let id = format!("call_{}", self.id);
        match self.interface {
            Interface::Anthropic => {
                let block = json!({"type": "tool_use", "id": id, "name": tool.name, "input": {}});
                let delta = json!({"type": "input_json_delta", "partial_json": arguments.to_string()});
                vec![
                    named(&json!({"type": "content_block_start", "index": 0, "content_block": block})),
                    named(&json!({"type": "content_block_delta", "index": 0, "delta": delta})),
                    named(&json!({"type": "content_block_stop", "index": 0})),
                ]
            }
            Interface::Responses if tool.is_freeform => vec![item_done(&json!({"type": "custom_tool_call",
                "call_id": id, "name": tool.name, "input": arguments["input"], "status": "completed"}))],
            Interface::Responses => vec![item_done(&json!({"type": "function_call", "call_id": id,
                "name": tool.name, "arguments": arguments.to_string(), "status": "completed"}))],
            Interface::Chat => {
                let function = json!({"name": tool.name, "arguments": arguments.to_string()});
                let call = json!({"index": 0, "id": id, "type": "function", "function": function});
                vec![self.chunk(&json!({"tool_calls": [call]}), None)]
            }
        }
    }

    fn close(&self, is_call: bool) -> Vec<String> {
        match self.interface {
            Interface::Anthropic => {
                let reason = if is_call { "tool_use" } else { "end_turn" };
                let delta = json!({"stop_reason": reason, "stop_sequence": null});
                let usage = json!({"output_tokens": 5});
                vec![
                    named(&json!({"type": "message_delta", "delta": delta, "usage": usage})),
                    named(&json!({"type": "message_stop"})),
                ]
            }
            Interface::Responses => {
                let usage = json!({"input_tokens": 50, "output_tokens": 5, "total_tokens": 55});
                let id = format!("resp_{}", self.id);
                let response = json!({"id": id, "status": "completed", "output": [], "usage": usage});
                vec![named(&json!({"type": "response.completed", "response": response}))]
            }
            Interface::Chat => {
                let reason = if is_call { "tool_calls" } else { "stop" };
                vec![self.chunk(&json!({}), Some(reason)), "data: [DONE]\n\n".to_owned()]
            }
        }
    }

    fn message(&self, text: &str) -> Value {
        json!({"type": "message", "id": format!("item_{}", self.id), "role": "assistant", "status": "completed",
            "content": [{"type": "output_text", "text": text, "annotations": []}]})
    }

    fn chunk(&self, delta: &Value, finish: Option<&str>) -> String {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
        let chunk = json!({"id": format!("chat_{}", self.id), "object": "chat.completion.chunk", "created": 0,
            "model": "stand-in", "choices": [choice],
            "usage": {"prompt_tokens": 50, "completion_tokens": 5, "total_tokens": 55}});
        format!("data: {chunk}\n\n")
    }
}
