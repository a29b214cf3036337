//! SIGKILL of the daemon after every k-th event of a turn: what was acknowledged and what was seen is there, once.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod harness;

use std::collections::BTreeMap;

use harness::{Daemon, Event, EventStream, Passage};
use serde_json::{Value, json};

/// Each runs to the next gate, so that the agent is at most one update ahead of what the subscriber has seen. The last
/// one is followed by the answer.
fn steps() -> Vec<Value> {
    let tool = |update: &str, status: &str| {
        json!({"update": {"sessionUpdate": update, "toolCallId": "call-1", "title": "read the map", "kind": "read",
            "status": status, "rawInput": {"path": "map.txt"}}})
    };
    vec![
        json!({"text": "Let me "}),
        json!({"text": "see. "}),
        json!({"thought": "where is the map?"}),
        tool("tool_call", "pending"),
        tool("tool_call_update", "in_progress"),
        tool("tool_call_update", "completed"),
        json!({"update": {"sessionUpdate": "plan", "entries": [
            {"content": "read", "priority": "high", "status": "completed"},
            {"content": "dig", "priority": "low", "status": "pending"}]}}),
        json!({"text": "Dig "}),
        json!({"text": "here."}),
    ]
}

/// The kind of event by which a subscriber knows that a step has arrived.
fn sign_of(step: &Value) -> &'static str {
    let update = &step["update"];
    match (update["sessionUpdate"].as_str(), update["status"].as_str()) {
        (None, _) => "message.delta",
        (Some("tool_call"), _) => "tool.started",
        (Some("tool_call_update"), Some("completed")) => "tool.completed",
        (Some("tool_call_update"), _) => "tool.updated",
        (Some(_), _) => "plan.updated",
    }
}

/// The first prompt that a process gets is the long one; what follows it is answered at once.
fn script() -> Value {
    let mut long = Vec::new();
    for step in steps() {
        long.extend([step, json!({"gate": "step"})]);
    }
    json!([{"record": true}, {"handshake": {}}, {"prompt": long}, {"repeat": [{"prompt": [{"text": "More."}]}]}])
}

/// A subscriber that stops looking after a number of events.
struct Subscriber {
    stream: EventStream,
    seen: Vec<Event>,
    most: usize,
}

impl Subscriber {
    /// Everything up to an event of this kind, or `None` when the number is reached with it or before.
    async fn until(&mut self, kind: &str) -> Option<()> {
        loop {
            let event = self.stream.next().await.expect("nobody ends the stream");
            let found = event.kind == kind;
            self.seen.push(event);
            if self.seen.len() == self.most {
                return None;
            }
            if found {
                return Some(());
            }
        }
    }

    /// Leads the agent through both turns, step by step. The passage that is not opened any more is given back.
    async fn follow(&mut self, daemon: &Daemon) -> Ending {
        if self.until("turn.started").await.is_none() {
            return Ending::Killed { held: None };
        }
        let steps = steps();
        for (index, step) in steps.iter().enumerate() {
            let enough = self.until(sign_of(step)).await.is_none();
            let passage = daemon.gate("talking").reached("step").await;
            if enough {
                return Ending::Killed { held: Some(passage) };
            }
            passage.open().await;
            let is_last = index + 1 == steps.len();
            if is_last && (self.until("turn.completed").await.is_none() || self.until("turn.completed").await.is_none())
            {
                return Ending::Killed { held: None };
            }
        }
        Ending::Finished
    }
}

enum Ending {
    /// The number is reached. `held`: the agent stands in the middle of its first turn.
    Killed { held: Option<Passage> },
    /// Both turns ended before the number was reached.
    Finished,
}

/// Sends both prompts, one after the other, and returns what was acknowledged: text and turn.
async fn prompt_twice(daemon: &Daemon, session: &str) -> Vec<(&'static str, String)> {
    let mut accepted = Vec::new();
    for text in ["first", "second"] {
        let path = format!("/v1/sessions/{session}/prompt");
        // The daemon may be killed meanwhile: a prompt without an answer is not acknowledged.
        if let Ok(reply) = daemon.try_request("POST", &path, &[], Some(json!({"text": text}))).await {
            accepted.push((text, reply.expect_status(202)["turnId"].as_str().unwrap().to_owned()));
        }
    }
    accepted
}

/// Opens every gate until all turns have ended, those included whose acknowledgement was cut off, and returns their
/// statuses by their ids.
async fn finish(daemon: &Daemon, session: &str) -> BTreeMap<String, String> {
    let gate = daemon.gate("talking");
    let ended = async {
        let list = daemon.get(&format!("/v1/sessions/{session}/turns")).await.expect_status(200);
        let mut statuses = BTreeMap::new();
        for turn in list["turns"].as_array().unwrap() {
            let id = turn["id"].as_str().unwrap();
            let turn = daemon.wait_turn(session, id).await;
            statuses.insert(id.to_owned(), turn["status"].as_str().unwrap().to_owned());
        }
        statuses
    };
    let opening = async {
        // An agent of the first daemon may still be there, until whoever looks after it has noticed.
        loop {
            gate.reached("step").await.open_if_alive().await;
        }
    };
    tokio::select! {
        statuses = ended => statuses,
        () = opening => unreachable!("there is always another gate"),
    }
}

fn assert_once_and_unchanged(seen: &[Event], stored: &[Event]) {
    let sequences: Vec<i64> = stored.iter().map(|event| event.id).collect();
    assert_eq!(sequences, (1..=i64::try_from(stored.len()).unwrap()).collect::<Vec<_>>(), "from 1 without a gap");
    for (seen, stored) in seen.iter().zip(stored) {
        assert_eq!((seen.id, &seen.kind, &seen.data), (stored.id, &stored.kind, &stored.data), "as it was seen");
    }
    assert!(seen.len() <= stored.len());
}

/// No turn was started, ended or heard by an agent twice.
fn assert_nothing_ran_twice(daemon: &Daemon, stored: &[Event]) {
    for kind in ["turn.queued", "turn.started", "turn.completed"] {
        let mut counts = BTreeMap::new();
        for event in stored.iter().filter(|event| event.kind == kind) {
            *counts.entry(event.data["turnId"].as_str().unwrap()).or_insert(0) += 1;
        }
        assert!(counts.values().all(|count| *count == 1), "{kind}: {counts:?}");
    }
    let heard = daemon.heard("talking");
    let mut texts: Vec<&str> = heard
        .iter()
        .filter(|heard| heard.method == "session/prompt")
        // The prompt itself comes last; before it there may be a transcript.
        .map(|heard| heard.params["prompt"].as_array().unwrap().last().unwrap()["text"].as_str().unwrap())
        .collect();
    texts.sort_unstable();
    let with_doubles = texts.clone();
    texts.dedup();
    assert_eq!(texts, with_doubles, "the agent got each prompt once");
}

/// The messages of the record, each once: those of the events and those of the list are the same.
async fn assert_messages(daemon: &Daemon, session: &str, accepted: &[(&str, String)], stored: &[Event]) {
    let messages = daemon.messages(session).await;
    let created: Vec<&Value> =
        stored.iter().filter(|event| event.kind == "message.created").map(Event::payload).collect();
    assert_eq!(created, messages.iter().collect::<Vec<_>>(), "each message has its one event");
    for (text, turn) in accepted {
        let is_it = |message: &&Value| message["role"] == "user" && message["content"]["text"] == *text;
        let found: Vec<&Value> = messages.iter().filter(is_it).collect();
        assert_eq!(found.len(), 1, "{text} was acknowledged");
        assert_eq!(found[0]["turnId"], turn.as_str());
    }
}

fn assert_interrupted(stored: &[Event], turn: &str) {
    let of_turn = |kind: &str| -> Vec<&Value> {
        let events = stored.iter().filter(|event| event.kind == kind && event.data["turnId"] == turn);
        events.map(Event::payload).collect()
    };
    let completed = of_turn("turn.completed");
    assert_eq!(completed[0]["status"], "interrupted");
    let notices: Vec<&Value> =
        of_turn("message.created").into_iter().filter(|message| message["content"]["type"] == "notice").collect();
    assert_eq!(notices.len(), 1, "the interruption is told once");
    assert_eq!((&notices[0]["role"], &notices[0]["content"]["code"]), (&json!("system"), &json!("interrupted")));
    // What was streamed is in the messages, whole or partial: nothing that a subscriber read is gone.
    let streamed: String = of_turn("message.delta").iter().map(|delta| delta["text"].as_str().unwrap()).collect();
    let kept: String = of_turn("message.created")
        .iter()
        .filter(|message| message["role"] == "agent")
        .map(|message| message["content"]["text"].as_str().unwrap())
        .collect();
    assert_eq!(kept, streamed);
}

/// One life of a daemon that is killed after so many events, and its second one. False when there are not so many.
async fn killed_after(most: usize) -> bool {
    let mut daemon = Daemon::builder().agent("talking", script()).start().await;
    let session = daemon.create_lazy_session("talking").await;
    let mut subscriber = Subscriber { stream: daemon.events(&session, None).await, seen: Vec::new(), most };
    let follow = async {
        let ending = subscriber.follow(&daemon).await;
        daemon.signal(nix::sys::signal::Signal::SIGKILL);
        ending
    };
    let (ending, accepted) = tokio::join!(follow, prompt_twice(&daemon, &session));
    daemon.ended().await;
    let (held, finished) = match ending {
        Ending::Killed { held } => (held, false),
        Ending::Finished => (None, true),
    };
    let was_running = held.is_some();
    drop(held);

    daemon.restart().await;
    let statuses = finish(&daemon, &session).await;
    let stored = daemon.events_so_far(&session, None).await;
    assert_once_and_unchanged(&subscriber.seen, &stored);
    assert_nothing_ran_twice(&daemon, &stored);
    assert_messages(&daemon, &session, &accepted, &stored).await;
    if was_running {
        let started = subscriber.seen.iter().find(|event| event.kind == "turn.started").unwrap();
        let running = started.data["turnId"].as_str().unwrap();
        assert_eq!(statuses[running], "interrupted");
        assert_interrupted(&stored, running);
        assert!(statuses.iter().all(|(turn, status)| turn == running || status == "completed"), "the queued one runs");
    }
    for (_, turn) in &accepted {
        assert!(["completed", "interrupted"].contains(&statuses[turn].as_str()), "{statuses:?}");
    }
    assert_eq!(daemon.session(&session).await["status"], "active");
    !finished
}

#[tokio::test]
async fn killed_after_any_event_the_daemon_has_lost_and_doubled_nothing() {
    let mut most = 1;
    while killed_after(most).await {
        most += 1;
    }
    eprintln!("killed after each of {} events", most - 1);
    assert!(most > 20, "a turn of {most} events is not the one that was meant");
}
