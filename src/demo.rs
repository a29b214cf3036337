//! The built-in `demo` agent: a real ACP agent without a model, so that everything can be tried with nothing installed. It
//! shows what a real one would: thoughts, a plan, tool calls, Markdown, usage, modes, and a question before it writes.
//!
//! It owns its stdin and stdout and nothing else. What it promises:
//!
//! 1. One prompt runs at a time. A second one meanwhile is refused; every other call is answered while it streams.
//! 2. Every pause, and every wait for an answer, listens to stdin, so a cancel is seen within one chunk, and the end of
//!    stdin ends the process.
//! 3. By itself it only reads: names and regular files at the top of the session's directory (a symlink is none), and a
//!    bounded part. What it writes, one note, acpd writes for it after a person was asked (`demo/note.rs`), and only when the
//!    prompt wants something written.
//! 4. The chunks of a text, joined, are that text; and the tokens it tells are the words that it was given and has streamed.

mod note;
#[cfg(test)]
mod tests;
mod words;
mod workspace;

use std::cmp::Ordering;
use std::collections::HashMap;
use std::io::{self, BufRead, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use words::{Question, answer_text, brief_text, word_chunks};

/// A longer line falls into pieces that do not parse, and what does not parse is ignored.
const LINE_BYTES_MAX: u64 = 32 << 20;
const INBOX_MESSAGES_MAX: usize = 64;
const SESSIONS_MAX: usize = 64;
/// Between two words; about the pace at which a model answers.
const PAUSE_MS: u64 = 25;
const PAUSE_MS_MAX: u64 = 10_000;
/// Overrides `PAUSE_MS`: 0 for tests.
const PAUSE_VARIABLE: &str = "ACPD_DEMO_PAUSE_MS";
/// What it counts its words against. It keeps no text, so nothing happens when that is full.
const CONTEXT_WORDS: usize = 8_192;

const INVALID_REQUEST: i32 = -32600;
const METHOD_NOT_FOUND: i32 = -32601;
const INVALID_PARAMS: i32 = -32602;

const PLAN: [&str; 3] = ["Understand the request", "Look into the workspace", "Answer"];
const PLAN_WITH_NOTE: [&str; 4] = ["Understand the request", "Look into the workspace", "Write the note", "Answer"];

/// Its modes: how much it says.
const THOROUGH: &str = "thorough";
const BRIEF: &str = "brief";

/// Speaks ACP on stdin and stdout until stdin ends.
pub fn run() -> ExitCode {
    let (sender, inbox) = sync_channel(INBOX_MESSAGES_MAX);
    // The thread ends with stdin or with the process; there is nothing to join it for.
    std::thread::spawn(move || read_messages(io::stdin().lock(), &sender));
    let pause = std::env::var(PAUSE_VARIABLE).ok().and_then(|text| text.parse().ok()).unwrap_or(PAUSE_MS);
    let mut agent = Agent::new(inbox, io::stdout().lock(), Duration::from_millis(pause.min(PAUSE_MS_MAX)));
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
    is_brief: bool,
    /// What was said in it, by both.
    words: usize,
}

impl Session {
    fn new(directory: PathBuf) -> Self {
        Self { directory, turns: 0, is_brief: false, words: 0 }
    }
}

struct Agent<W: Write> {
    inbox: Receiver<Value>,
    output: W,
    pause: Duration,
    sessions: HashMap<String, Session>,
    /// The session whose prompt is being answered.
    running: Option<String>,
    /// Whether the client writes files for its agent.
    client_writes: bool,
    /// Requests that were made of the client.
    requests: u64,
}

/// One prompt, and what was streamed for it.
struct Turn {
    session_id: String,
    directory: PathBuf,
    number: u32,
    is_brief: bool,
    plan: &'static [&'static str],
    thought_words: usize,
    answer_words: usize,
}

impl<W: Write> Agent<W> {
    fn new(inbox: Receiver<Value>, output: W, pause: Duration) -> Self {
        Self { inbox, output, pause, sessions: HashMap::new(), running: None, client_writes: false, requests: 0 }
    }

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
            "initialize" => Ok(self.initialize(params)),
            "session/new" => self.new_session(params),
            "session/set_mode" => self.set_mode(params),
            "session/prompt" => self.prompt(params)?,
            _ => Err((METHOD_NOT_FOUND, format!("the demo agent has no method {method}"))),
        };
        self.send(&match answer {
            Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
            Err((code, text)) => json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": text}}),
        })
    }

    fn initialize(&mut self, params: &Value) -> Value {
        self.client_writes = params["clientCapabilities"]["fs"]["writeTextFile"] == true;
        json!({
            "protocolVersion": 1,
            "agentInfo": {"name": "acpd-demo", "title": "acpd demo agent", "version": env!("CARGO_PKG_VERSION")},
            "agentCapabilities": {"loadSession": false, "promptCapabilities": {"embeddedContext": true}},
            "authMethods": [],
        })
    }

    fn new_session(&mut self, params: &Value) -> Result<Value, (i32, String)> {
        let directory = params["cwd"].as_str().map(PathBuf::from).filter(|path| path.is_absolute());
        let directory = directory.ok_or_else(|| (INVALID_PARAMS, "cwd must be an absolute path".to_owned()))?;
        if self.sessions.len() >= SESSIONS_MAX {
            return Err((INVALID_REQUEST, format!("the demo agent holds at most {SESSIONS_MAX} sessions")));
        }
        let id = format!("demo-{}-{}", std::process::id(), self.sessions.len() + 1);
        self.sessions.insert(id.clone(), Session::new(directory));
        let mode = |id: &str, name: &str| json!({"id": id, "name": name});
        let modes = [mode(THOROUGH, "Thorough answers"), mode(BRIEF, "Brief answers")];
        Ok(json!({"sessionId": id, "modes": {"currentModeId": THOROUGH, "availableModes": modes}}))
    }

    fn set_mode(&mut self, params: &Value) -> Result<Value, (i32, String)> {
        let id = params["sessionId"].as_str().unwrap_or_default();
        let session = self.sessions.get_mut(id);
        let session = session.ok_or_else(|| (INVALID_PARAMS, format!("unknown session {id:?}")))?;
        session.is_brief = match params["modeId"].as_str().unwrap_or_default() {
            THOROUGH => false,
            BRIEF => true,
            other => return Err((INVALID_PARAMS, format!("there is no mode {other:?}, only {THOROUGH} and {BRIEF}"))),
        };
        Ok(json!({}))
    }

    fn prompt(&mut self, params: &Value) -> Result<Result<Value, (i32, String)>, Halt> {
        if self.running.is_some() {
            return Ok(Err((INVALID_REQUEST, "another prompt is still running".to_owned())));
        }
        let id = params["sessionId"].as_str().unwrap_or_default();
        let Some(session) = self.sessions.get_mut(id) else {
            return Ok(Err((INVALID_PARAMS, format!("unknown session {id:?}"))));
        };
        let question = Question::new(&params["prompt"]);
        session.turns += 1;
        let mut turn = Turn {
            session_id: id.to_owned(),
            directory: session.directory.clone(),
            number: session.turns,
            is_brief: session.is_brief,
            plan: if question.wants_note() { &PLAN_WITH_NOTE } else { &PLAN },
            thought_words: 0,
            answer_words: 0,
        };
        self.running = Some(turn.session_id.clone());
        let outcome = self.answer(&mut turn, &question);
        self.running = None;
        let reason = match outcome {
            Ok(()) => "end_turn",
            Err(Halt::Cancelled) => "cancelled",
            Err(Halt::Closed) => return Err(Halt::Closed),
        };
        let (given, thought, said) = (question.words(), turn.thought_words, turn.answer_words);
        let total = given + thought + said;
        self.count(&turn, total)?;
        let usage = json!({"inputTokens": given, "outputTokens": said, "thoughtTokens": thought, "totalTokens": total});
        Ok(Ok(json!({"stopReason": reason, "usage": usage})))
    }

    /// Tells how many words the session has had.
    fn count(&mut self, turn: &Turn, words: usize) -> Result<(), Halt> {
        let session = self.sessions.get_mut(&turn.session_id);
        let used = session.map_or(words, |session| {
            session.words = (session.words + words).min(CONTEXT_WORDS);
            session.words
        });
        self.update(turn, &json!({"sessionUpdate": "usage_update", "used": used, "size": CONTEXT_WORDS}))
    }

    fn answer(&mut self, turn: &mut Turn, question: &Question) -> Result<(), Halt> {
        self.plan(turn, 0)?;
        self.think(turn, &question.thought())?;
        self.plan(turn, 1)?;
        let findings = self.look(turn)?;
        self.plan(turn, 2)?;
        let mut done = 2;
        let mut told = String::new();
        if question.wants_note() {
            told = self.write_note(turn, question)?;
            done += 1;
            self.plan(turn, done)?;
        }
        let text = if turn.is_brief {
            brief_text(question, &findings, &told)
        } else {
            answer_text(turn.number, question, &findings, &told)
        };
        self.say(turn, &text)?;
        self.plan(turn, done + 1)
    }

    /// Looks into the workspace, shown as a tool call for each look, and returns what there is to say about it.
    fn look(&mut self, turn: &Turn) -> Result<workspace::Findings, Halt> {
        self.begin_call(turn, "list", "search", "List the workspace", &turn.directory)?;
        let listing = workspace::list(&turn.directory);
        let shown = listing.as_ref().map(workspace::Listing::describe);
        self.end_call(turn, "list", &shown.as_ref().map(String::as_str).map_err(ToString::to_string))?;
        let mut findings = workspace::Findings::of(&listing);
        let file = listing.as_ref().ok().and_then(|listing| workspace::choose_file(&listing.files));
        let Some(name) = file else { return Ok(findings) };
        let path = turn.directory.join(name);
        self.begin_call(turn, "read", "read", &format!("Read {name}"), &path)?;
        let excerpt = workspace::read(&path);
        let shown = excerpt.as_ref().map(|excerpt| excerpt.preview.as_str()).map_err(ToString::to_string);
        self.end_call(turn, "read", &shown)?;
        findings.add_file(name, &excerpt);
        Ok(findings)
    }

    fn begin_call(&mut self, turn: &Turn, call: &str, kind: &str, title: &str, path: &Path) -> Result<(), Halt> {
        self.update(
            turn,
            &json!({
                "sessionUpdate": "tool_call", "toolCallId": turn.call(call), "title": title, "kind": kind,
                "status": "in_progress", "locations": [{"path": path}], "rawInput": {"path": path},
            }),
        )?;
        self.rest()
    }

    fn end_call(&mut self, turn: &Turn, call: &str, shown: &Result<&str, String>) -> Result<(), Halt> {
        let (status, text) = match shown {
            Ok(text) => ("completed", *text),
            Err(error) => ("failed", error.as_str()),
        };
        self.update(
            turn,
            &json!({
                "sessionUpdate": "tool_call_update", "toolCallId": turn.call(call), "status": status,
                "content": [{"type": "content", "content": {"type": "text", "text": text}}],
            }),
        )?;
        self.rest()
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
        let entries: Vec<Value> = turn.plan.iter().enumerate().map(entry).collect();
        self.update(turn, &json!({"sessionUpdate": "plan", "entries": entries}))
    }

    fn think(&mut self, turn: &mut Turn, text: &str) -> Result<(), Halt> {
        for chunk in word_chunks(text) {
            self.chunk(turn, "agent_thought_chunk", chunk)?;
            turn.thought_words += 1;
        }
        Ok(())
    }

    fn say(&mut self, turn: &mut Turn, text: &str) -> Result<(), Halt> {
        for chunk in word_chunks(text) {
            self.chunk(turn, "agent_message_chunk", chunk)?;
            turn.answer_words += 1;
        }
        Ok(())
    }

    fn chunk(&mut self, turn: &Turn, kind: &str, text: &str) -> Result<(), Halt> {
        self.update(turn, &json!({"sessionUpdate": kind, "content": {"type": "text", "text": text}}))?;
        self.rest()
    }

    fn update(&mut self, turn: &Turn, update: &Value) -> Result<(), Halt> {
        let params = json!({"sessionId": turn.session_id, "update": update});
        self.send(&json!({"jsonrpc": "2.0", "method": "session/update", "params": params}))
    }

    /// Asks the client for something, and waits for its result or its refusal, however long that takes.
    fn ask(&mut self, method: &str, params: &Value) -> Result<Result<Value, String>, Halt> {
        self.requests += 1;
        let id = format!("demo-{}", self.requests);
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))?;
        loop {
            let message = self.inbox.recv().map_err(|_| Halt::Closed)?;
            if message.get("method").is_some() || message["id"] != id.as_str() {
                self.handle(&message)?;
                continue;
            }
            let refusal = message.get("error").map(|error| error["message"].as_str().unwrap_or("refused").to_owned());
            return Ok(refusal.map_or_else(|| Ok(message["result"].clone()), Err));
        }
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

impl Turn {
    /// The id of a tool call. A session outlives its processes, so it is to be unique among all of them.
    fn call(&self, name: &str) -> String {
        format!("{}-{}-{name}", self.session_id, self.number)
    }
}
