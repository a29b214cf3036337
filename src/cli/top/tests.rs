//! The model without a terminal: what cannot be seen through one at the right moment.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde_json::{Value, json};

use super::model::{Action, Deed, Look, Mode, Model};
use super::question::Question;
use crate::model::permission::question::Decision;
use crate::model::{PermissionId, SessionId, Timestamp};

fn look(at: i64, processes: &[Value]) -> Look {
    let daemon = json!({"pid": 7, "startedAt": "2026-01-01T00:00:00Z", "rssBytes": 1, "cpuMillis": 10 * at});
    let list = json!({"processes": processes, "daemon": daemon, "at": Timestamp::from_millis(at)});
    Look { processes: serde_json::from_value(list).unwrap(), rest: None }
}

fn process(id: SessionId, cpu_millis: i64, questions: usize) -> Value {
    json!({"sessionId": id, "agent": "a", "workspace": "/w", "title": "t\u{1b}[2J", "processState": "busy", "processes": 1,
        "rssBytes": 5, "cpuMillis": cpu_millis, "queuedTurns": 0, "openPermissions": questions})
}

fn press(model: &mut Model, key: char) -> Option<Action> {
    model.key(KeyEvent::new(KeyCode::Char(key), KeyModifiers::NONE))
}

fn question() -> Question {
    Question {
        id: PermissionId::new(),
        is_elicitation: false,
        what: "Run make".to_owned(),
        details: Vec::new(),
        is_cut: false,
    }
}

#[test]
fn the_share_of_a_processor_comes_from_two_looks_that_are_far_enough_apart() {
    let (id, mut model) = (SessionId::new(), Model::new());
    let mut percent = |at: i64, cpu: i64| {
        model.take(look(at, &[process(id, cpu, 0)]));
        model.rows[0].cpu_percent()
    };
    assert_eq!(percent(1_000, 500), None);
    assert_eq!(percent(1_100, 600), None, "too near to say anything");
    assert_eq!(percent(2_000, 1_000), Some(50.0), "since the first look");
    assert_eq!(percent(2_100, 1_100), Some(50.0), "as it was");
    assert_eq!(percent(4_000, 800), Some(0.0), "a child that nobody waited for took its time with it");
    assert_eq!(model.daemon_cpu, Some(1000.0));
    assert_eq!(model.rows[0].title, "t[2J");
}

#[test]
fn what_is_selected_stays_selected_and_what_is_gone_is_not() {
    let (one, other) = (SessionId::new(), SessionId::new());
    let mut model = Model::new();
    model.take(look(1_000, &[process(one, 0, 0), process(other, 0, 0)]));
    press(&mut model, 'j');
    let selected = model.selected.unwrap();
    model.take(look(2_000, &[process(other, 0, 1), process(one, 900, 0)]));
    press(&mut model, 'c');
    assert_eq!(model.selected, Some(selected));
    model.rows.retain(|row| row.id != selected);
    model.take(look(3_000, &[]));
    assert_ne!(model.selected, Some(selected));
}

#[test]
fn keys_that_were_typed_before_a_question_is_seen_do_not_answer_it() {
    let (id, mut model) = (SessionId::new(), Model::new());
    model.take(look(1_000, &[process(id, 0, 1)]));
    assert_eq!(press(&mut model, 'y'), Some(Action::Do(Deed::FindQuestion { session: id })));
    assert_eq!(press(&mut model, 'y'), None);
    assert_eq!(press(&mut model, 'y'), None);
    model.doing = None;
    let asked = question();
    model.ask(asked.clone());
    assert_eq!(model.mode, Mode::Question);
    // The agent may ask something else meanwhile: the one that was shown is the one that is answered.
    model.take(look(2_000, &[process(id, 0, 2)]));
    let answer = Deed::Answer { question: Box::new(asked), decision: Decision::Allow, always: false };
    assert_eq!(press(&mut model, 'y'), Some(Action::Do(answer)));
}

#[test]
fn a_question_that_is_still_open_stays() {
    let mut model = Model::new();
    let asked = question();
    model.ask(asked.clone());
    model.checked(asked.id, None);
    model.checked(PermissionId::new(), Some("answered".to_owned()));
    assert_eq!((model.mode, &model.notice), (Mode::Question, &None));
    model.checked(asked.id, Some("answered".to_owned()));
    assert_eq!((model.mode, model.question.is_some()), (Mode::Table, false));
}

#[test]
fn whoever_went_elsewhere_is_not_asked() {
    let (id, mut model) = (SessionId::new(), Model::new());
    model.take(look(1_000, &[process(id, 0, 1)]));
    press(&mut model, 'n');
    press(&mut model, '/');
    model.ask(question());
    assert_eq!(model.mode, Mode::Filter);
    // What is typed there is text.
    assert_eq!(press(&mut model, 'y'), None);
    assert_eq!(model.filter, "y");
}
