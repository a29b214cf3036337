//! What a person sees of a turn on a terminal, from the events to the screen.

use std::cell::RefCell;
use std::rc::Rc;

use serde_json::json;

use super::super::super::style::Style;
use super::super::super::terminal::Size;
use super::*;

#[derive(Clone, Default)]
struct Sink(Rc<RefCell<Vec<u8>>>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is given JSON that is written in its place")]
fn event(kind: &str, second: u32, data: Value) -> Event {
    let at = format!("2025-11-16T03:00:{second:02}.000Z");
    serde_json::from_value(json!({"sequence": 1, "type": kind, "createdAt": at, "data": data})).unwrap()
}

fn message(kind: &str, second: u32, text: &str) -> Event {
    let content = json!({"type": kind, "text": text});
    event("message.created", second, json!({"id": kind, "role": "agent", "content": content}))
}

/// All that stays on the terminal after these events.
fn kept(scope: Scope, events: &[Event]) -> String {
    let sink = Sink::default();
    let measure = || Some(Size { columns: 60, rows: 20 });
    let canvas = Canvas::new(Box::new(sink.clone()), Box::new(measure), Style::plain(), "…");
    let mut live = Live::new(canvas, Beside::Nothing, Glyphs::unicode(), scope, ThoughtsShown::Fold);
    for event in events {
        live.event(event).unwrap();
    }
    live.close().unwrap();
    drop(live);
    let bytes = sink.0.borrow().clone();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn a_turn_is_kept_in_order() {
    let plan = json!({"update": {"entries": [{"content": "Look", "status": "completed"}]}});
    let delta = |kind: &str, second, text: &str| {
        event("message.delta", second, json!({"messageId": kind, "role": "agent", "type": kind, "text": text}))
    };
    let events = [
        event("turn.started", 0, json!({})),
        event("message.created", 0, json!({"role": "user", "content": {"type": "text", "text": "hello"}})),
        event("plan.updated", 0, plan),
        delta("thought", 1, "I should"),
        message("thought", 4, "I should look."),
        event("tool.started", 5, json!({"toolCallId": "c", "update": {"title": "Read README.md", "kind": "read"}})),
        event("tool.completed", 7, json!({"toolCallId": "c", "status": "completed", "update": {}})),
        delta("text", 8, "The **ans"),
        message("text", 9, "The **answer**\n\n- one\n"),
        event("turn.completed", 12, json!({"status": "completed", "stopReason": "end_turn", "error": null})),
    ];
    insta::assert_snapshot!(kept(Scope::Session, &events), @r"
    > hello

    ▸ thought for 3.0s
    ✓ Read README.md (read) 2.0s

    The answer

    • one

    ✔ Look

    ✓ 12.0s · 1 tool
    ");
}

#[test]
fn an_end_that_is_no_good_end_is_told_once() {
    let notice = json!({"role": "system", "content": {"type": "notice", "code": "agent_exited", "text": "it exited"}});
    let failed = json!({"status": "failed", "error": {"code": "agent_exited", "message": "it exited"}});
    let events = [event("message.created", 0, notice), event("turn.completed", 1, failed)];
    assert_eq!(kept(Scope::Turn, &events), "error: it exited\n");
    let refused = json!({"status": "completed", "stopReason": "refusal", "error": null});
    assert_eq!(kept(Scope::Turn, &[event("turn.completed", 1, refused)]), "the agent stopped: refusal\n");
}

#[test]
fn nothing_is_painted_while_the_log_is_caught_up_with() {
    let canvas = Canvas::new(Box::new(Sink::default()), Box::new(|| None), Style::plain(), "…");
    let mut live = Live::new(canvas, Beside::Nothing, Glyphs::unicode(), Scope::Session, ThoughtsShown::Fold);
    assert_eq!(live.next_frame(true), None);
    live.event(&event("turn.started", 0, json!({}))).unwrap();
    assert!(live.next_frame(false) > live.next_frame(true));
    live.paint().unwrap();
    assert_eq!(live.next_frame(false), None);
    assert!(live.next_frame(true).is_some(), "the agent is waited for");
    live.event(&event("turn.completed", 1, json!({"status": "completed"}))).unwrap();
    live.paint().unwrap();
    assert_eq!(live.next_frame(true), None, "there is nothing to wait for");
}

#[test]
fn a_wait_for_the_agent_is_told_and_its_silence_leaves_nothing_behind() {
    let waiting = json!({"phase": "session/new", "seconds": 10, "servers": ["files"], "message": "it waits for files"});
    let silent = json!({"seconds": 30, "message": "the agent has said nothing"});
    let events = [
        event("process.waiting", 0, waiting),
        event("turn.started", 1, json!({})),
        event("turn.waiting", 31, silent),
        message("text", 32, "done"),
    ];
    let kept = kept(Scope::Turn, &events);
    assert!(kept.contains("it waits for files") && kept.contains("done"), "{kept}");
    assert!(!kept.contains("said nothing"), "it is in the region only: {kept}");
}
