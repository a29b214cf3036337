//! The agent itself: it holds what has been heard so far, and runs one step after the other.

use std::collections::VecDeque;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::mcp::Servers;
use crate::processes::{self, Children};
use crate::step::Step;
use crate::wire::{self, End, Input, Message, Output, exchange};

/// Where `record` gets the file that it writes, next to the script.
const RECORD_SOCKET: &str = "record.sock";

pub struct Agent {
    input: Input,
    output: Output,
    /// Where the script is, and `gate.sock` next to it.
    directory: PathBuf,
    session_id: String,
    /// The id and the params of what was expected last.
    request_id: Option<Box<RawValue>>,
    params: Value,
    prompt_text: String,
    /// What came while an answer was awaited: requests and notifications, cancels, and answers to other requests.
    queued: VecDeque<Message>,
    cancels: VecDeque<Message>,
    answers: VecDeque<Message>,
    answer: Value,
    requests_sent: u64,
    /// The ids of the terminals that the client made, in order.
    terminals: Vec<String>,
    children: Children,
    servers: Servers,
    /// What `allocate` took.
    allocated: Vec<Vec<u8>>,
    ignore_eof: bool,
}

impl Agent {
    pub fn new(directory: &Path) -> Result<Self, End> {
        Ok(Self {
            input: Input::new(),
            output: Output::new()?,
            directory: directory.to_owned(),
            session_id: "test-session".to_owned(),
            request_id: None,
            params: Value::Null,
            prompt_text: String::new(),
            queued: VecDeque::new(),
            cancels: VecDeque::new(),
            answers: VecDeque::new(),
            answer: Value::Null,
            requests_sent: 0,
            terminals: Vec::new(),
            children: Children::default(),
            servers: Servers::default(),
            allocated: Vec::new(),
            ignore_eof: false,
        })
    }

    /// Runs a whole script. The end of the client blocks for ever when `ignoreEof` was among the steps.
    pub fn run(&mut self, script: &[Value]) -> Result<(), End> {
        let end = self.steps(script);
        if self.ignore_eof && end.as_ref().is_err_and(|end| end.is_eof) {
            processes::block_forever();
        }
        end
    }

    fn steps(&mut self, steps: &[Value]) -> Result<(), End> {
        for value in steps {
            let step = Step::parse(value)?;
            self.step(&step)?;
            self.output.flush()?;
        }
        Ok(())
    }

    fn step(&mut self, step: &Step<'_>) -> Result<(), End> {
        match step.verb {
            "expect" => self.expect(step.text()?, step.option("contains").and_then(Value::as_str)),
            "switch" => self.switch(step).map(|_| ()),
            "reply" => self.reply("result", step.argument),
            "replyError" => self.reply("error", step.argument),
            "prompt" => self.prompt(step),
            "handshake" => self.handshake(step),
            "repeat" => self.repeat(step),
            "gate" => self.gate(step),
            "sessionId" => {
                self.session_id = step.text()?.replace("{pid}", &std::process::id().to_string());
                Ok(())
            }
            "record" => self.input.record_to(&self.directory.join(RECORD_SOCKET)),
            "text" => self.text(step.text()?),
            "thought" => self.chunk("agent_thought_chunk", step.text()?),
            "update" => self.update(step.argument),
            "flood" => self.flood(step),
            "notify" => self.notify(step.text_at("method")?, &step.argument["params"]),
            "request" => self.ask(step).and_then(|id| self.await_answer(Some(id))),
            "ask" => self.ask(step).map(|_| ()),
            "awaitAnswer" => self.await_answer(None),
            "textFromMcp" => {
                let text = self.ask_server(step)?;
                self.text(&text)
            }
            verb if verb.starts_with("textFrom") => {
                let text = self.text_from(step)?;
                self.text(&text)
            }
            _ => self.misbehave(step),
        }
    }

    fn misbehave(&mut self, step: &Step<'_>) -> Result<(), End> {
        match step.verb {
            "stderr" => {
                // A reader of stderr that is gone is not what the script is about.
                let _ = writeln!(std::io::stderr(), "{}", step.text()?);
                Ok(())
            }
            "floodStderr" => wire::flood_stderr(step.number()?),
            "stdout" => self.output.write(step.text()?.as_bytes()),
            "bytes" => {
                let byte = |value: &Value| value.as_u64().and_then(|number| u8::try_from(number).ok());
                let bytes: Option<Vec<u8>> = step.array()?.iter().map(byte).collect();
                self.output.write(&bytes.ok_or_else(|| step.wants("an array of bytes"))?)
            }
            "longLine" => self.output.long_line(step.number()?),
            "ignoreSignals" => processes::ignore_signals(step),
            "ignoreEof" => {
                self.ignore_eof = true;
                Ok(())
            }
            "hang" | "stopReading" => processes::block_forever(),
            "fork" => self.children.fork(step),
            "allocate" => {
                // Every byte is written: memory that is only promised costs nothing.
                self.allocated.push(vec![1; step.number()?]);
                Ok(())
            }
            "exit" => Err(End::exit(u8::try_from(step.number()?).map_err(|_| step.wants("a number below 256"))?)),
            "killSelf" => processes::kill_self(step),
            "exitMidLine" => {
                self.output.write(step.text()?.as_bytes())?;
                self.output.flush()?;
                Err(End::exit(1))
            }
            _ => Err(step.unknown()),
        }
    }

    // What the agent hears.

    /// The next request or notification. Answers are put aside for `awaitAnswer`.
    fn next_call(&mut self) -> Result<(String, Message), End> {
        if let Some(message) = self.queued.pop_front() {
            return Ok((message.method.clone().unwrap_or_default(), message));
        }
        loop {
            let message = self.input.read()?;
            match message.method.clone() {
                Some(method) => return Ok((method, message)),
                None => self.answers.push_back(message),
            }
        }
    }

    fn expect(&mut self, method: &str, contains: Option<&str>) -> Result<(), End> {
        let remembered = if method == "session/cancel" { self.cancels.pop_front() } else { None };
        let message = match remembered {
            Some(message) => message,
            None => loop {
                let (came, message) = self.next_call()?;
                if came == method {
                    break message;
                }
                if came != "session/cancel" {
                    return Err(End::unexpected(format!("unexpected {came} instead of {method}")));
                }
                self.cancels.push_back(message);
            },
        };
        self.remember(method, message);
        match contains {
            Some(text) if !self.params.to_string().contains(text) => {
                Err(End::unexpected(format!("unexpected {method}: no {text:?} in {}", self.params)))
            }
            _ => Ok(()),
        }
    }

    fn remember(&mut self, method: &str, message: Message) {
        // A notification leaves the request before it to be answered.
        if message.id.is_some() {
            self.request_id = message.id;
        }
        self.params = message.params;
        if let Some(session_id) = self.params["sessionId"].as_str() {
            session_id.clone_into(&mut self.session_id);
        }
        if let Some(servers) = self.params.get("mcpServers") {
            self.servers.remember(servers);
        }
        if method == "session/prompt" {
            // A cancel belongs to the prompt that ran when it came.
            self.cancels.clear();
            let blocks = self.params["prompt"].as_array().map(Vec::as_slice).unwrap_or_default();
            let texts: Vec<&str> = blocks.iter().filter_map(|block| block["text"].as_str()).collect();
            self.prompt_text = texts.join("\n");
        }
    }

    /// Runs the steps of the method that comes next, and returns that method.
    fn switch(&mut self, step: &Step<'_>) -> Result<String, End> {
        loop {
            let (method, message) = self.next_call()?;
            match step.argument[method.as_str()].as_array() {
                Some(steps) => {
                    self.remember(&method, message);
                    self.steps(steps)?;
                    return Ok(method);
                }
                None if method == "session/cancel" => self.cancels.push_back(message),
                None => return Err(End::unexpected(format!("unexpected {method}"))),
            }
        }
    }

    fn reply(&mut self, field: &str, value: &Value) -> Result<(), End> {
        let id = self.request_id.as_ref().ok_or_else(|| End::bad_script("there is no request to answer"))?;
        self.output.message(&format!(r#""id":{},"{field}":{value}"#, id.get()))
    }

    fn prompt(&mut self, step: &Step<'_>) -> Result<(), End> {
        self.expect("session/prompt", None)?;
        // The steps may expect something else, a cancel for one; the answer is still the prompt's.
        let request_id = self.request_id.clone();
        self.steps(step.array()?)?;
        self.request_id = request_id;
        self.reply("result", &json!({"stopReason": "end_turn"}))
    }

    fn handshake(&mut self, step: &Step<'_>) -> Result<(), End> {
        let options = step.argument;
        self.expect("initialize", None)?;
        let capabilities = if options["capabilities"].is_null() { json!({}) } else { options["capabilities"].clone() };
        let mut initialized = json!({
            "protocolVersion": 1,
            "agentCapabilities": capabilities,
            "agentInfo": {"name": "test-agent", "version": env!("CARGO_PKG_VERSION")},
            "authMethods": [],
        });
        merge(&mut initialized, &options["initialize"]);
        self.reply("result", &initialized)?;
        self.output.flush()?;

        let mut restored = json!({});
        merge(&mut restored, &options["newSession"]);
        let mut created = json!({"sessionId": self.session_id});
        merge(&mut created, &options["newSession"]);
        let answer = |error: &Value| match error {
            Value::Null => json!({"reply": restored}),
            error => json!({"replyError": error}),
        };
        let steps = |key: &str| options[key].as_array().cloned().unwrap_or_default();
        let load = [steps("load"), vec![answer(&options["loadError"])], steps("afterLoad")].concat();
        let cases = json!({"switch": {
            "session/new": [{"reply": created}],
            "session/load": load,
            "session/resume": [answer(&options["resumeError"])],
        }});
        // A client that was refused, or that does not believe what it was told, tries the next way.
        loop {
            let refused = match self.switch(&Step::parse(&cases)?)?.as_str() {
                "session/load" => !options["loadError"].is_null() || options["newAfterLoad"] == true,
                "session/resume" => !options["resumeError"].is_null(),
                _ => false,
            };
            if !refused {
                return Ok(());
            }
        }
    }

    fn repeat(&mut self, step: &Step<'_>) -> Result<(), End> {
        let steps = step.array()?;
        if steps.is_empty() {
            return Err(step.wants("at least one step"));
        }
        let times = step.option("times").and_then(Value::as_u64).unwrap_or(u64::MAX);
        for _ in 0..times {
            self.steps(steps)?;
        }
        Ok(())
    }

    fn gate(&mut self, step: &Step<'_>) -> Result<(), End> {
        let name = step.text()?;
        let answer = exchange(&self.directory.join("gate.sock"), &format!("{name} {}\n", std::process::id()))
            .map_err(|error| End::refused(&format!("gate {name}"), error))?;
        let Some(answer) = answer else {
            return Err(End::refused(&format!("gate {name}"), "the test went away"));
        };
        match step.option("cases").and_then(|cases| cases[answer.as_str()].as_array()) {
            Some(steps) => self.steps(steps),
            None => Ok(()),
        }
    }

    // What the agent says.

    fn notify(&mut self, method: &str, params: &Value) -> Result<(), End> {
        self.output.message(&call(method, params))
    }

    fn update(&mut self, update: &Value) -> Result<(), End> {
        self.notify("session/update", &json!({"sessionId": self.session_id, "update": update}))
    }

    fn chunk(&mut self, kind: &str, text: &str) -> Result<(), End> {
        self.update(&json!({"sessionUpdate": kind, "content": {"type": "text", "text": text}}))
    }

    fn text(&mut self, text: &str) -> Result<(), End> {
        self.chunk("agent_message_chunk", text)
    }

    fn flood(&mut self, step: &Step<'_>) -> Result<(), End> {
        // One frame is serialized, and only the index in it changes: the reader is to be the slow side of a flood.
        let content = json!({"type": "text", "text": step.text_at("text")?});
        let update = json!({"sessionUpdate": "agent_message_chunk", "content": content});
        let params = json!({"sessionId": self.session_id, "update": update}).to_string();
        for index in 0..step.number_at("count")? {
            let params = params.replace("{}", &index.to_string());
            self.output.message(&format!(r#""method":"session/update","params":{params}"#))?;
        }
        Ok(())
    }

    fn ask(&mut self, step: &Step<'_>) -> Result<u64, End> {
        self.requests_sent += 1;
        let id = self.requests_sent;
        let mut call = call(step.text_at("method")?, &step.argument["params"]);
        for (number, terminal) in self.terminals.iter().enumerate() {
            call = call.replace(&format!("{{terminal{number}}}"), terminal);
        }
        self.output.message(&format!(r#""id":{id},{call}"#))?;
        Ok(id)
    }

    /// Waits for the answer to one request, or for the next answer to any.
    fn await_answer(&mut self, id: Option<u64>) -> Result<(), End> {
        self.output.flush()?;
        let wanted = id.map(|id| id.to_string());
        let matches = |message: &Message| match (&wanted, &message.id) {
            (Some(wanted), Some(came)) => came.get() == wanted,
            (Some(_), None) => false,
            (None, _) => true,
        };
        let kept = self.answers.iter().position(matches).and_then(|index| self.answers.remove(index));
        let answer = match kept {
            Some(answer) => answer,
            None => loop {
                let message = self.input.read()?;
                match message.method.as_deref() {
                    Some("session/cancel") => self.cancels.push_back(message),
                    Some(_) => self.queued.push_back(message),
                    None if matches(&message) => break message,
                    None => self.answers.push_back(message),
                }
            },
        };
        self.answer = answer.error.unwrap_or(answer.result);
        self.terminals.extend(self.answer["terminalId"].as_str().map(str::to_owned));
        Ok(())
    }

    /// Asks an MCP server what the step says, or else what the last prompt does.
    fn ask_server(&mut self, step: &Step<'_>) -> Result<String, End> {
        let server = step.text_at("server")?;
        let is_told = step.argument.as_object().is_some_and(|object| object.len() > 1);
        if is_told {
            return self.servers.ask(server, step.argument);
        }
        // Before it may be a transcript.
        let call = serde_json::from_str(self.prompt_text.lines().last().unwrap_or_default()).map_err(|error| {
            End::bad_script(format!("the prompt {:?} is no call of a tool: {error}", self.prompt_text))
        })?;
        self.servers.ask(server, &call)
    }

    fn text_from(&self, step: &Step<'_>) -> Result<String, End> {
        let text = match step.verb {
            "textFromAnswer" => self.answer.to_string(),
            "textFromPrompt" => self.prompt_text.clone(),
            "textFromParams" => self.params.to_string(),
            "textFromEnvironment" => std::env::var_os(step.text()?)
                .map_or_else(|| "(unset)".to_owned(), |value| value.to_string_lossy().into_owned()),
            "textFromCwd" => std::env::current_dir().map_or_else(error_text, |path| path.display().to_string()),
            "textFromPid" => std::process::id().to_string(),
            "textFromUser" => processes::user().unwrap_or_else(error_text),
            "textFromChildren" => self.children.process_ids(),
            "textFromRead" => std::fs::read_to_string(step.text()?).unwrap_or_else(error_text),
            "textFromWrite" => std::fs::write(step.text_at("path")?, step.text_at("text")?)
                .map_or_else(error_text, |()| "written".to_owned()),
            "textFromShell" => {
                processes::shell(&step.text()?.replace("{prompt}", &self.prompt_text)).unwrap_or_else(error_text)
            }
            "textFromSocket" => exchange(Path::new(step.text_at("path")?), step.text_at("send")?)
                .map_or_else(error_text, |line| line.unwrap_or_else(|| "(closed)".to_owned())),
            _ => return Err(step.unknown()),
        };
        Ok(text)
    }
}

/// The fields of a call. `params` may be left out, but JSON-RPC does not let it be null.
fn call(method: &str, params: &Value) -> String {
    let method = json!(method);
    if params.is_null() { format!(r#""method":{method}"#) } else { format!(r#""method":{method},"params":{params}"#) }
}

#[expect(clippy::needless_pass_by_value, reason = "it is the error arm of `unwrap_or_else`")]
fn error_text(error: std::io::Error) -> String {
    format!("error: {error}")
}

/// Adds the fields of one object to another. Anything but an object adds nothing.
fn merge(target: &mut Value, extra: &Value) {
    let none = Map::new();
    for (key, value) in extra.as_object().unwrap_or(&none) {
        target[key.as_str()] = value.clone();
    }
}
