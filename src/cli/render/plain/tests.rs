//! What a person sees of a turn, from the events to the two streams.

use serde_json::json;

use super::*;

const MESSAGE: &str = "019a8b1c-7f2e-7c3a-9d4e-5f6a7b8c9d0e";

#[expect(clippy::needless_pass_by_value, reason = "it is given JSON that is written in its place")]
fn event(kind: &str, data: Value) -> Event {
    serde_json::from_value(json!({"sequence": 1, "type": kind, "data": data})).unwrap()
}

fn delta(kind: &str, text: &str) -> Event {
    event("message.delta", json!({"messageId": MESSAGE, "role": "agent", "type": kind, "text": text}))
}

fn whole(id: &str, text: &str) -> Event {
    event(
        "message.created",
        json!({"id": id, "role": "agent", "content": {"type": "text", "text": text, "partial": false}}),
    )
}

/// stdout and stderr after these events.
fn shown(is_shared: bool, scope: Scope, events: &[Event]) -> (String, String) {
    let mut renderer = Plain::new(Vec::new(), Vec::new(), is_shared, Style::plain(), scope);
    for event in events {
        renderer.event(event).unwrap();
    }
    renderer.close().unwrap();
    let (answer, notes) = renderer.screen.into_parts();
    (String::from_utf8(answer).unwrap(), String::from_utf8(notes).unwrap())
}

fn turn() -> Vec<Event> {
    let plan = |first: &str| json!({"update": {"entries": [{"content": "Look", "status": first}, {"content": "Answer", "status": "pending"}]}});
    vec![
        event("turn.started", json!({})),
        event("message.created", json!({"role": "user", "content": {"type": "text", "text": "hello"}})),
        event("plan.updated", plan("in_progress")),
        delta("thought", "I should look."),
        event("tool.started", json!({"toolCallId": "c", "update": {"title": "Read README.md", "kind": "read"}})),
        event("tool.completed", json!({"toolCallId": "c", "status": "completed", "update": {}})),
        event("plan.updated", plan("completed")),
        delta("text", "The \x1b[31mansw"),
        delta("text", "er"),
        whole(MESSAGE, "The \x1b[31manswer"),
        event("turn.completed", json!({"status": "completed", "stopReason": "end_turn", "error": null})),
    ]
}

#[test]
fn stdout_has_the_answer_and_stderr_the_rest() {
    let (answer, notes) = shown(false, Scope::Turn, &turn());
    assert_eq!(answer, "The [31manswer\n");
    insta::assert_snapshot!(notes, @r"
    [>] Look
    [ ] Answer
    → Read README.md (read)
    ✓ Read README.md
    [x] Look
    ");
}

#[test]
fn thoughts_are_for_a_terminal_only() {
    let (_, notes) = shown(true, Scope::Turn, &turn());
    assert!(notes.contains("[ ] Answer\nI should look.\n→ Read"), "{notes}");
}

#[test]
fn who_attaches_sees_the_prompts_too() {
    let (_, notes) = shown(false, Scope::Session, &turn());
    assert!(notes.starts_with("> hello\n"), "{notes}");
}

#[test]
fn a_whole_message_adds_only_what_is_missing() {
    let text = |events: &[Event]| shown(false, Scope::Turn, events).0;
    assert_eq!(text(&[delta("text", "ab"), whole(MESSAGE, "abcd")]), "abcd\n");
    assert_eq!(text(&[whole(MESSAGE, "abcd")]), "abcd\n", "its deltas are compacted away");
    assert_eq!(text(&[delta("text", "cd"), whole(MESSAGE, "abcd")]), "cd\n", "entered in the middle");
    assert_eq!(text(&[delta("text", "ab"), whole("other", "xy")]), "ab\nxy\n");
}

#[test]
fn a_note_ends_the_open_line_only_where_they_share_the_screen() {
    let tool = || event("tool.started", json!({"toolCallId": "c", "update": {"title": "x"}}));
    let events = [delta("text", "one "), tool(), delta("text", "two")];
    assert_eq!(shown(false, Scope::Turn, &events).0, "one two\n");
    assert_eq!(shown(true, Scope::Turn, &events).0, "one \ntwo\n");
}

#[test]
fn a_failure_is_told_once() {
    let notice = event(
        "message.created",
        json!({"role": "system",
        "content": {"type": "notice", "code": "agent_exited", "text": "the agent exited with 1"}}),
    );
    let failed = event(
        "turn.completed",
        json!({"status": "failed", "stopReason": null,
        "error": {"code": "agent_exited", "message": "the agent exited with 1"}}),
    );
    let (_, notes) = shown(false, Scope::Turn, &[notice.clone(), failed]);
    assert_eq!(notes, "error: the agent exited with 1\n");
    let (_, notes) = shown(false, Scope::Turn, &[notice, event("turn.started", json!({}))]);
    assert_eq!(notes, "the agent exited with 1\n");
}

#[test]
fn an_unusual_end_is_told() {
    let end = |status: &str, reason: &str| {
        event("turn.completed", json!({"status": status, "stopReason": reason, "error": null}))
    };
    assert_eq!(shown(false, Scope::Turn, &[end("completed", "max_tokens")]).1, "the agent stopped: max_tokens\n");
    assert_eq!(shown(false, Scope::Turn, &[end("cancelled", "cancelled")]).1, "the turn is cancelled\n");
}
