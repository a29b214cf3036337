//! What the stand-in model says, chosen by a keyword in the prompt.
//!
//! | prompt | answer |
//! |---|---|
//! | `READ path`, `WRITE path text`, `SHELL command` | a call of the CLI's tool |
//! | `TOOL name arguments` | a call of any tool, with JSON for its arguments |
//! | `HOLD` | some words, and then nothing until the test says so |
//! | `ERR status [DAILY\|WAIT duration]` | an error, as Google words it; the quota of the day, or a wait that is told |
//! | `RECALL` | all that users have said in this conversation |
//! | anything else | a thought and some words |
//!
//! To what a tool has answered, the model answers with that.

use serde_json::{Value, json};

/// What the CLI writes between the prompt and what it was given along with it.
const REFERENCES: &str = "\n--- Content from referenced";

pub const FIRST_WORDS: &str = "These are the first words";
pub const LAST_WORDS: &str = " and these are the last ones.";
pub const GREETING: &str = "Hello from the stand-in.";
/// As the CLI passes it on: a subject, and what it is about.
pub const THOUGHT: &str = "**Considering**\nThe stand-in thinks about it.";

pub enum Answer {
    /// Chunks of a stream, all at once.
    Chunks(Vec<Value>),
    /// Chunks, and those that come when the test says so.
    Held {
        first: Vec<Value>,
        rest: Vec<Value>,
    },
    Error {
        status: u16,
        body: Value,
    },
}

/// The parts of the last thing that was said to the model.
fn last_parts(body: &Value) -> &[Value] {
    let last = body["contents"].as_array().and_then(|contents| contents.last());
    last.and_then(|content| content["parts"].as_array()).map_or(&[], Vec::as_slice)
}

/// The prompt, without what was given along with it, and without one before it that was never answered: the CLI makes one
/// of the two. Nothing when a tool has answered.
pub fn prompt(body: &Value) -> &str {
    let texts = last_parts(body).iter().filter_map(|part| part["text"].as_str());
    texts.take_while(|text| !text.starts_with(REFERENCES)).last().unwrap_or_default()
}

/// Everything that users, and the CLI for them, have said in the conversation.
pub fn user_texts(body: &Value) -> Vec<String> {
    let contents = body["contents"].as_array().map_or(&[][..], Vec::as_slice);
    let of_user = contents.iter().filter(|content| content["role"] == "user");
    let parts = of_user.flat_map(|content| content["parts"].as_array().into_iter().flatten());
    parts.filter_map(|part| part["text"].as_str().map(str::to_owned)).collect()
}

/// What the model streams.
pub fn answer(body: &Value) -> Answer {
    let results: Vec<&Value> = last_parts(body).iter().map(|part| &part["functionResponse"]).collect();
    if results.iter().any(|result| result.is_object()) {
        let texts = results.iter().map(|result| result["response"].to_string()).collect::<Vec<_>>();
        return Answer::Chunks(vec![words(&format!("The tool said: {}", texts.join(", "))), end()]);
    }
    let prompt = prompt(body);
    let (keyword, rest) = keyword(prompt);
    match keyword {
        "READ" => call("read_file", &json!({"file_path": rest})),
        "WRITE" => {
            let (path, content) = rest.split_once(' ').expect("a path and a text");
            call("write_file", &json!({"file_path": path, "content": content}))
        }
        "SHELL" => call("run_shell_command", &json!({"command": rest, "description": "what the test wants"})),
        "TOOL" => {
            let (name, arguments) = rest.split_once(' ').expect("a name and arguments");
            call(name, &serde_json::from_str(arguments).expect("the arguments are JSON"))
        }
        "HOLD" => Answer::Held { first: vec![thought(), words(FIRST_WORDS)], rest: vec![words(LAST_WORDS), end()] },
        "ERR" => error(rest),
        "RECALL" => Answer::Chunks(vec![words(&user_texts(body).join("\n")), end()]),
        _ => Answer::Chunks(vec![thought(), words(GREETING), end()]),
    }
}

/// The first word of the prompt that is a keyword, and what follows it.
fn keyword(prompt: &str) -> (&str, &str) {
    let found = ["READ", "WRITE", "SHELL", "TOOL", "HOLD", "ERR", "RECALL"].into_iter().find_map(|keyword| {
        let (_, rest) = prompt.split_once(keyword)?;
        Some((keyword, rest.trim()))
    });
    found.unwrap_or(("", ""))
}

fn chunk(parts: &Value, finish: Option<&str>) -> Value {
    let mut chunk = json!({"candidates": [{"content": {"role": "model", "parts": parts}, "index": 0}],
        "modelVersion": "stand-in", "responseId": "stand-in"});
    if let Some(finish) = finish {
        chunk["candidates"][0]["finishReason"] = json!(finish);
        chunk["usageMetadata"] = json!({"promptTokenCount": 100, "candidatesTokenCount": 7, "thoughtsTokenCount": 3,
            "totalTokenCount": 110});
    }
    chunk
}

fn words(text: &str) -> Value {
    chunk(&json!([{"text": text}]), None)
}

fn thought() -> Value {
    chunk(&json!([{"text": THOUGHT, "thought": true}]), None)
}

fn end() -> Value {
    chunk(&json!([{"text": ""}]), Some("STOP"))
}

fn call(name: &str, arguments: &Value) -> Answer {
    let call = json!([{"functionCall": {"name": name, "args": arguments}, "thoughtSignature": "c3RhbmQtaW4="}]);
    Answer::Chunks(vec![thought(), words("I will call a tool."), chunk(&call, Some("STOP"))])
}

/// An error in Google's words: a status, and perhaps more of why and how long.
fn error(told: &str) -> Answer {
    let mut words = told.split_whitespace();
    let status = words.next().and_then(|word| word.parse().ok()).expect("a status follows ERR");
    let name = match status {
        400 => "INVALID_ARGUMENT",
        401 => "UNAUTHENTICATED",
        403 => "PERMISSION_DENIED",
        429 => "RESOURCE_EXHAUSTED",
        503 => "UNAVAILABLE",
        _ => "INTERNAL",
    };
    let details = match (words.next(), words.next()) {
        (Some("DAILY"), _) => json!([{"@type": "type.googleapis.com/google.rpc.QuotaFailure",
            "violations": [{"quotaMetric": "requests", "quotaId": "GenerateRequestsPerDayPerProjectPerModel"}]}]),
        (Some("WAIT"), Some(wait)) => {
            json!([{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": wait}])
        }
        _ => json!([]),
    };
    let message = format!("the stand-in refuses with {status}");
    let body = json!({"error": {"code": status, "message": message, "status": name, "details": details}});
    Answer::Error { status, body }
}

/// The answer to one of the CLI's own questions, which want JSON of a schema or else any text.
pub fn side_answer(body: &Value) -> Value {
    let config = &body["generationConfig"];
    let schema =
        [&config["responseJsonSchema"], &config["responseSchema"]].into_iter().find(|schema| schema.is_object());
    let text = schema.map_or_else(|| "an answer of the stand-in".to_owned(), |schema| instance(schema).to_string());
    chunk(&json!([{"text": text}]), Some("STOP"))
}

/// Something that the schema allows. The zeros keep the CLI's detector of loops quiet, a score is from 1 to 100.
fn instance(schema: &Value) -> Value {
    if let Some(first) = schema["enum"].get(0) {
        return first.clone();
    }
    let kind = schema["type"].as_str().or_else(|| schema["type"][0].as_str()).unwrap_or("string");
    match kind.to_lowercase().as_str() {
        "object" => {
            let fields = schema["properties"].as_object().into_iter().flatten();
            let value = |name: &str, field| if name.contains("score") { json!(50) } else { instance(field) };
            fields.map(|(name, field)| (name.clone(), value(name, field))).collect()
        }
        "array" => json!([]),
        "number" | "integer" => json!(schema["minimum"].as_i64().unwrap_or(0)),
        "boolean" => json!(false),
        _ => json!("stand-in"),
    }
}
