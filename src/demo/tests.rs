//! The agent without acpd: what it writes for what it is told.

use std::path::Path;

use super::*;

/// Runs the agent on messages that are all there from the start, and returns what it wrote.
fn conversation(messages: &[Value], directory: &Path) -> (Vec<Value>, Result<(), Halt>) {
    let (sender, inbox) = sync_channel(INBOX_MESSAGES_MAX);
    let mut agent = Agent::new(inbox, Vec::new(), Duration::ZERO);
    agent.client_writes = true;
    agent.sessions.insert("s".to_owned(), Session { turns: 1, ..Session::new(directory.to_owned()) });
    for message in &messages[1..] {
        sender.send(message.clone()).unwrap();
    }
    let result = agent.handle(&messages[0]);
    let text = String::from_utf8(agent.output).unwrap();
    (text.lines().map(|line| serde_json::from_str(line).unwrap()).collect(), result)
}

fn prompt(id: u32, text: &str) -> Value {
    json!({"id": id, "method": "session/prompt",
        "params": {"sessionId": "s", "prompt": [{"type": "text", "text": text}]}})
}

fn chunks<'a>(written: &'a [Value], kind: &str) -> Vec<&'a str> {
    let updates = written.iter().map(|message| &message["params"]["update"]);
    let updates = updates.filter(|update| update["sessionUpdate"] == kind);
    updates.filter_map(|update| update["content"]["text"].as_str()).collect()
}

#[test]
fn an_answer_streams_and_ends_the_turn() {
    let (written, result) = conversation(&[prompt(1, "why?")], Path::new("/nonexistent"));
    result.unwrap();
    let said = chunks(&written, "agent_message_chunk");
    let text = said.concat();
    assert!(text.contains("> why?") && text.contains("This is turn 2 of our conversation."), "{text}");
    let end = &written.last().unwrap()["result"];
    assert_eq!(end["stopReason"], "end_turn");
    assert_eq!(end["usage"]["outputTokens"], said.len(), "tokens are the words that were streamed");
    assert_eq!(end["usage"]["inputTokens"], 1);
}

#[test]
fn a_cancel_ends_the_turn_and_other_calls_are_answered_meanwhile() {
    let foreign = json!({"method": "session/cancel", "params": {"sessionId": "other"}});
    let cancel = json!({"method": "session/cancel", "params": {"sessionId": "s"}});
    let unknown = json!({"id": 2, "method": "session/load"});
    let (written, result) =
        conversation(&[prompt(1, "why?"), foreign, unknown, prompt(3, "and?"), cancel], Path::new("/nonexistent"));
    result.unwrap();
    let answers: Vec<&Value> = written.iter().filter(|message| message.get("id").is_some()).collect();
    assert_eq!(answers[0]["error"]["code"], METHOD_NOT_FOUND);
    assert_eq!(answers[1]["error"]["code"], INVALID_REQUEST);
    assert_eq!(answers[2]["result"]["stopReason"], "cancelled");
}

#[test]
fn a_brief_answer_is_brief() {
    let (_sender, inbox) = sync_channel(INBOX_MESSAGES_MAX);
    let mut agent = Agent::new(inbox, Vec::new(), Duration::ZERO);
    agent.sessions.insert("s".to_owned(), Session::new("/nonexistent".into()));
    let mode =
        |mode: &str| json!({"id": 2, "method": "session/set_mode", "params": {"sessionId": "s", "modeId": mode}});
    for message in [mode(BRIEF), mode("loud"), prompt(3, "why?")] {
        agent.handle(&message).unwrap();
    }
    let text = String::from_utf8(agent.output).unwrap();
    let written: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&written[0]["result"], &written[1]["error"]["code"]), (&json!({}), &json!(INVALID_PARAMS)));
    let said = chunks(&written, "agent_message_chunk").concat();
    assert!(said.contains("There is no model behind me") && said.lines().count() == 1, "{said}");
}

/// What the agent asks for a note, when the client answers with these.
fn note(answers: &[Value]) -> (Vec<Value>, String) {
    let workspace = tempfile::tempdir().unwrap();
    let messages: Vec<Value> = [prompt(1, "write a note")].into_iter().chain(answers.iter().cloned()).collect();
    // Answers that come before the request are none of it, so each is there when it is asked for.
    let (sender, inbox) = sync_channel(INBOX_MESSAGES_MAX);
    let (output, lines) = sync_channel::<String>(1000);
    let agent = std::thread::spawn({
        let directory = workspace.path().to_owned();
        move || {
            let mut agent = Agent::new(inbox, Lines(output, Vec::new()), Duration::ZERO);
            agent.client_writes = true;
            agent.sessions.insert("s".to_owned(), Session::new(directory));
            agent.handle(&messages[0]).unwrap();
        }
    });
    let mut written = Vec::new();
    let mut answers = answers.iter();
    for line in lines {
        let message: Value = serde_json::from_str(&line).unwrap();
        if message.get("method").is_some() && message.get("id").is_some() {
            let mut answer = answers.next().unwrap().clone();
            answer["id"] = message["id"].clone();
            sender.send(answer).unwrap();
        }
        written.push(message);
    }
    agent.join().unwrap();
    let text = chunks(&written, "agent_message_chunk").concat();
    (written.into_iter().filter(|message| message.get("method").is_some()).collect(), text)
}

/// Gives each line to whoever listens.
struct Lines(SyncSender<String>, Vec<u8>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.1.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let line = String::from_utf8(std::mem::take(&mut self.1)).unwrap();
        self.0.send(line).map_err(io::Error::other)
    }
}

fn asked<'a>(written: &'a [Value], method: &str) -> Vec<&'a Value> {
    written.iter().filter(|message| message["method"] == method).collect()
}

#[test]
fn what_is_to_be_written_is_asked_for_and_left_to_the_client() {
    let allowed = json!({"result": {"outcome": {"outcome": "selected", "optionId": "allow"}}});
    let (written, text) = note(&[allowed, json!({"result": null})]);
    let question = asked(&written, "session/request_permission")[0];
    assert_eq!(question["params"]["toolCall"]["content"][0]["type"], "diff");
    let write = asked(&written, "fs/write_text_file")[0];
    assert!(write["params"]["content"].as_str().unwrap().contains("write a note"));
    assert!(text.contains("I was allowed"), "{text}");
}

#[test]
fn what_is_rejected_is_not_written() {
    let rejected = json!({"result": {"outcome": {"outcome": "selected", "optionId": "reject"}}});
    let (written, text) = note(&[rejected]);
    assert!(asked(&written, "fs/write_text_file").is_empty());
    assert!(text.contains("nothing was written"), "{text}");
}

#[test]
fn a_session_needs_an_absolute_directory() {
    let call = json!({"id": 1, "method": "session/new", "params": {"cwd": "src"}});
    let (written, _) = conversation(&[call], Path::new("/nonexistent"));
    assert_eq!(written[0]["error"]["code"], INVALID_PARAMS);
}
