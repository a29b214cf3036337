//! The built-in `demo` agent: a real ACP agent without a model, so that everything can be tried with nothing installed.
//!
//! It owns its stdin and stdout and nothing else. What it promises:
//!
//! 1. One prompt runs at a time. A second one meanwhile is refused; every other call is answered while it streams.
//! 2. Every pause listens to stdin, so a cancel is seen within one chunk, and the end of stdin ends the process.
//! 3. It only reads: regular files at the top of the session's directory (a symlink is none), and a bounded part.
//! 4. The chunks of a text, joined, are that text.

mod words;
mod workspace;

use std::cmp::Ordering;
use std::collections::HashMap;
use std::io::{self, BufRead, Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use words::{Question, answer_text, word_chunks};

/// A longer line falls into pieces that do not parse, and what does not parse is ignored.
const LINE_BYTES_MAX: u64 = 32 << 20;
const INBOX_MESSAGES_MAX: usize = 64;
const SESSIONS_MAX: usize = 64;
/// Between two words; about the pace at which a model answers.
const PAUSE_MS: u64 = 25;
const PAUSE_MS_MAX: u64 = 10_000;
/// Overrides `PAUSE_MS`: 0 for tests.
const PAUSE_VARIABLE: &str = "ACPD_DEMO_PAUSE_MS";

const INVALID_REQUEST: i32 = -32600;
const METHOD_NOT_FOUND: i32 = -32601;
const INVALID_PARAMS: i32 = -32602;

const PLAN: [&str; 3] = ["Understand the request", "Look into the workspace", "Answer"];

/// Speaks ACP on stdin and stdout until stdin ends.
pub fn run() -> ExitCode {
    let (sender, inbox) = sync_channel(INBOX_MESSAGES_MAX);
    // The thread ends with stdin or with the process; there is nothing to join it for.
    std::thread::spawn(move || read_messages(io::stdin().lock(), &sender));
    let pause = std::env::var(PAUSE_VARIABLE).ok().and_then(|text| text.parse().ok()).unwrap_or(PAUSE_MS);
    let pause = Duration::from_millis(pause.min(PAUSE_MS_MAX));
    let mut agent = Agent { inbox, output: io::stdout().lock(), pause, sessions: HashMap::new(), running: None };
    while let Ok(message) = agent.inbox.recv() {
        match agent.handle(&message) {
            Ok(()) | Err(Halt::Cancelled) => {}
            Err(Halt::Closed) => break,
        }
    }
    ExitCode::SUCCESS
}

fn read_messages(mut input: impl BufRead, sender: &SyncSender<Value>) {
    let mut line = Vec::new();
    loop {
        line.clear();
        match (&mut input).take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        if let Ok(message) = serde_json::from_slice(&line)
            && sender.send(message).is_err()
        {
            return;
        }
    }
}

/// Why the agent stops in the middle of an answer.
#[derive(Debug)]
enum Halt {
    Cancelled,
    /// The client has closed one of the pipes.
    Closed,
}

impl From<io::Error> for Halt {
    fn from(_: io::Error) -> Self {
        Self::Closed
    }
}

struct Session {
    directory: PathBuf,
    turns: u32,
}

struct Agent<W: Write> {
    inbox: Receiver<Value>,
    output: W,
    pause: Duration,
    sessions: HashMap<String, Session>,
    /// The session whose prompt is being answered.
    running: Option<String>,
}

impl<W: Write> Agent<W> {
    /// Handles one message. `Cancelled` is returned only for a cancel of the running prompt.
    fn handle(&mut self, message: &Value) -> Result<(), Halt> {
        let Some(method) = message["method"].as_str() else {
            return Ok(());
        };
        let params = &message["params"];
        let Some(id) = message.get("id") else {
            let is_mine = self.running.as_deref().is_some_and(|running| params["sessionId"] == running);
            return if method == "session/cancel" && is_mine { Err(Halt::Cancelled) } else { Ok(()) };
        };
        let answer = match method {
            "initialize" => Ok(initialize()),
            "session/new" => self.new_session(params),
            "session/prompt" => self.prompt(params)?,
            _ => Err((METHOD_NOT_FOUND, format!("the demo agent has no method {method}"))),
        };
        self.send(&match answer {
            Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
            Err((code, text)) => json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": text}}),
        })
    }

    fn new_session(&mut self, params: &Value) -> Result<Value, (i32, String)> {
        let directory = params["cwd"].as_str().map(PathBuf::from).filter(|path| path.is_absolute());
        let directory = directory.ok_or_else(|| (INVALID_PARAMS, "cwd must be an absolute path".to_owned()))?;
        if self.sessions.len() >= SESSIONS_MAX {
            return Err((INVALID_REQUEST, format!("the demo agent holds at most {SESSIONS_MAX} sessions")));
        }
        let id = format!("demo-{}-{}", std::process::id(), self.sessions.len() + 1);
        self.sessions.insert(id.clone(), Session { directory, turns: 0 });
        Ok(json!({"sessionId": id}))
    }

    fn prompt(&mut self, params: &Value) -> Result<Result<Value, (i32, String)>, Halt> {
        if self.running.is_some() {
            return Ok(Err((INVALID_REQUEST, "another prompt is still running".to_owned())));
        }
        let id = params["sessionId"].as_str().unwrap_or_default();
        let Some(session) = self.sessions.get_mut(id) else {
            return Ok(Err((INVALID_PARAMS, format!("unknown session {id:?}"))));
        };
        session.turns += 1;
        let turn = Turn { session_id: id.to_owned(), directory: session.directory.clone(), number: session.turns };
        self.running = Some(turn.session_id.clone());
        let outcome = self.answer(&turn, &Question::new(&params["prompt"]));
        self.running = None;
        match outcome {
            Ok(()) => Ok(Ok(json!({"stopReason": "end_turn"}))),
            Err(Halt::Cancelled) => Ok(Ok(json!({"stopReason": "cancelled"}))),
            Err(Halt::Closed) => Err(Halt::Closed),
        }
    }

    fn answer(&mut self, turn: &Turn, question: &Question) -> Result<(), Halt> {
        self.plan(turn, 0)?;
        let thought = format!("The user says “{}”. I will look into the workspace before I answer.", question.quote());
        self.stream(turn, "agent_thought_chunk", &thought)?;
        self.plan(turn, 1)?;
        let finding = self.look(turn)?;
        self.plan(turn, 2)?;
        self.stream(turn, "agent_message_chunk", &answer_text(turn.number, question, &finding))?;
        self.plan(turn, 3)
    }

    /// Looks into the workspace, shown as a tool call, and returns the sentence about it.
    fn look(&mut self, turn: &Turn) -> Result<String, Halt> {
        // A session outlives its processes, so the id is to be unique among all of them.
        let call = format!("{}-call-{}", turn.session_id, turn.number);
        let listing = workspace::list(&turn.directory);
        let file = listing.as_ref().ok().and_then(|listing| workspace::choose_file(&listing.files));
        let (kind, title, path) = match file {
            Some(name) => ("read", format!("Read {name}"), turn.directory.join(name)),
            None => ("search", "List the workspace".to_owned(), turn.directory.clone()),
        };
        self.update(
            turn,
            &json!({
                "sessionUpdate": "tool_call", "toolCallId": call, "title": title, "kind": kind, "status": "in_progress",
                "locations": [{"path": path}], "rawInput": {"path": path},
            }),
        )?;
        self.rest()?;
        let looked = match file {
            Some(name) => workspace::read(&path).map(|excerpt| (excerpt.sentence(name), excerpt.preview)),
            None => listing.map(|listing| (listing.describe(), listing.describe())),
        };
        let (status, sentence, shown) = match looked {
            Ok((sentence, shown)) => ("completed", sentence, shown),
            Err(error) => {
                let sentence = format!("I could not read `{}`: {error}.", path.display());
                ("failed", sentence, error.to_string())
            }
        };
        self.update(
            turn,
            &json!({
                "sessionUpdate": "tool_call_update", "toolCallId": call, "status": status,
                "content": [{"type": "content", "content": {"type": "text", "text": shown}}],
            }),
        )?;
        self.rest()?;
        Ok(sentence)
    }

    /// Sends the whole plan, with its first `done` entries completed and the next one in progress.
    fn plan(&mut self, turn: &Turn, done: usize) -> Result<(), Halt> {
        let entry = |(index, content): (usize, &&str)| {
            let status = match index.cmp(&done) {
                Ordering::Less => "completed",
                Ordering::Equal => "in_progress",
                Ordering::Greater => "pending",
            };
            json!({"content": content, "priority": "medium", "status": status})
        };
        let entries: Vec<Value> = PLAN.iter().enumerate().map(entry).collect();
        self.update(turn, &json!({"sessionUpdate": "plan", "entries": entries}))
    }

    fn stream(&mut self, turn: &Turn, kind: &str, text: &str) -> Result<(), Halt> {
        for chunk in word_chunks(text) {
            self.update(turn, &json!({"sessionUpdate": kind, "content": {"type": "text", "text": chunk}}))?;
            self.rest()?;
        }
        Ok(())
    }

    fn update(&mut self, turn: &Turn, update: &Value) -> Result<(), Halt> {
        let params = json!({"sessionId": turn.session_id, "update": update});
        self.send(&json!({"jsonrpc": "2.0", "method": "session/update", "params": params}))
    }

    fn send(&mut self, message: &Value) -> Result<(), Halt> {
        writeln!(self.output, "{message}")?;
        Ok(self.output.flush()?)
    }

    /// Lets one pause pass, and answers meanwhile whatever comes in.
    fn rest(&mut self) -> Result<(), Halt> {
        let until = Instant::now() + self.pause;
        loop {
            match self.inbox.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(message) => self.handle(&message)?,
                Err(RecvTimeoutError::Timeout) => return Ok(()),
                Err(RecvTimeoutError::Disconnected) => return Err(Halt::Closed),
            }
        }
    }
}

fn initialize() -> Value {
    json!({
        "protocolVersion": 1,
        "agentInfo": {"name": "acpd-demo", "title": "acpd demo agent", "version": env!("CARGO_PKG_VERSION")},
        "agentCapabilities": {"loadSession": false, "promptCapabilities": {"embeddedContext": true}},
        "authMethods": [],
    })
}

struct Turn {
    session_id: String,
    directory: PathBuf,
    number: u32,
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Runs the agent on messages that are all there from the start, and returns what it wrote.
    fn conversation(messages: &[Value], directory: &Path) -> (Vec<Value>, Result<(), Halt>) {
        let (sender, inbox) = sync_channel(INBOX_MESSAGES_MAX);
        let session = Session { directory: directory.to_owned(), turns: 1 };
        let sessions = HashMap::from([("s".to_owned(), session)]);
        let mut agent = Agent { inbox, output: Vec::new(), pause: Duration::ZERO, sessions, running: None };
        for message in &messages[1..] {
            sender.send(message.clone()).unwrap();
        }
        let result = agent.handle(&messages[0]);
        let text = String::from_utf8(agent.output).unwrap();
        (text.lines().map(|line| serde_json::from_str(line).unwrap()).collect(), result)
    }

    fn prompt(id: u32) -> Value {
        json!({"id": id, "method": "session/prompt",
            "params": {"sessionId": "s", "prompt": [{"type": "text", "text": "why?"}]}})
    }

    #[test]
    fn an_answer_streams_and_ends_the_turn() {
        let (written, result) = conversation(&[prompt(1)], Path::new("/nonexistent"));
        result.unwrap();
        let text: String = written
            .iter()
            .filter(|message| message["params"]["update"]["sessionUpdate"] == "agent_message_chunk")
            .filter_map(|message| message["params"]["update"]["content"]["text"].as_str())
            .collect();
        assert!(text.contains("> why?") && text.contains("This is turn 2 of our conversation."), "{text}");
        assert_eq!(written.last().unwrap()["result"]["stopReason"], "end_turn");
    }

    #[test]
    fn a_cancel_ends_the_turn_and_other_calls_are_answered_meanwhile() {
        let foreign = json!({"method": "session/cancel", "params": {"sessionId": "other"}});
        let cancel = json!({"method": "session/cancel", "params": {"sessionId": "s"}});
        let unknown = json!({"id": 2, "method": "session/load"});
        let (written, result) =
            conversation(&[prompt(1), foreign, unknown, prompt(3), cancel], Path::new("/nonexistent"));
        result.unwrap();
        let answers: Vec<&Value> = written.iter().filter(|message| message.get("id").is_some()).collect();
        assert_eq!(answers[0]["error"]["code"], METHOD_NOT_FOUND);
        assert_eq!(answers[1]["error"]["code"], INVALID_REQUEST);
        assert_eq!(answers[2]["result"]["stopReason"], "cancelled");
    }

    #[test]
    fn a_session_needs_an_absolute_directory() {
        let call = json!({"id": 1, "method": "session/new", "params": {"cwd": "src"}});
        let (written, _) = conversation(&[call], Path::new("/nonexistent"));
        assert_eq!(written[0]["error"]["code"], INVALID_PARAMS);
    }
}
