//! What the API refuses, how a person is told, and that the session goes on.

use serde_json::{Value, json};

use super::model::GREETING;
use super::stage::{Access, Setting, Stage};

/// A model that the CLI does not replace by another one when it fails.
const MODEL: &str = "gemini-2.5-pro";

/// The error of a turn in which the API answers so. The next prompt is answered.
async fn error_of(stage: &Stage, refusal: &str) -> Value {
    let body = json!({"workspace": stage.daemon.workspace(), "agent": "gemini", "model": MODEL});
    let session = stage.daemon.post("/v1/sessions", body).await.expect_status(201)["id"].as_str().unwrap().to_owned();
    let error = stage.fail(&session, refusal).await;
    stage.say(&session, "And now?").await;
    assert_eq!(stage.last_words(&session).await, GREETING);
    error
}

/// A user who does not want the CLI to ask again. Else it does, for minutes, of all that may pass.
fn impatient() -> Setting {
    Setting::new().setting("/general/maxAttempts", json!(1))
}

#[track_caller]
fn assert_error(error: &Value, code: &str, words: &[&str]) {
    assert_eq!(error["code"], code, "{error}");
    let message = error["message"].as_str().unwrap();
    for word in words {
        assert!(message.contains(word), "{word:?} is not in {message:?}");
    }
}

/// What to run is in the hint.
#[track_caller]
fn assert_tells_how(error: &Value) {
    assert!(error["hint"].as_str().is_some_and(|hint| hint.contains("acpd agents login gemini")), "{error}");
}

#[tokio::test]
async fn an_exhausted_quota_is_told_as_such() {
    let play = Setting::new().play(async |stage| {
        assert_error(&error_of(stage, "ERR 429 DAILY").await, "rate_limited", &["quota"]);
    });
    play.await;
}

/// Long waits are told at once, short ones when the CLI has asked as often as it may.
#[tokio::test]
async fn a_wait_that_the_api_tells_is_told() {
    let play = impatient().play(async |stage| {
        for (wait, seconds) in [("3600s", 3600), ("7s", 7)] {
            let error = error_of(stage, &format!("ERR 429 WAIT {wait}")).await;
            assert_error(&error, "rate_limited", &[wait]);
            assert_eq!(error["retryAfterSeconds"], seconds, "{error}");
        }
    });
    play.await;
}

#[tokio::test]
async fn a_key_that_is_refused_is_told_as_such() {
    let play = Setting::new().play(async |stage| {
        assert_error(&error_of(stage, "ERR 401").await, "auth_required", &["refuses with 401"]);
    });
    play.await;
}

#[tokio::test]
async fn another_error_of_the_api_is_the_agents() {
    let play = impatient().play(async |stage| {
        for status in [400, 500] {
            let words = format!("refuses with {status}");
            assert_error(&error_of(stage, &format!("ERR {status}")).await, "agent_error", &[&words]);
        }
    });
    play.await;
}

#[tokio::test]
async fn who_is_not_signed_in_is_told_how_to() {
    let play = Setting::new().access(Access::Nothing).play(async |stage| {
        let session = stage.daemon.create_session("gemini").await;
        let error = stage.fail(&session, "Hello?").await;
        assert_error(&error, "auth_required", &["GEMINI_API_KEY"]);
        assert_tells_how(&error);
        let said = stage.daemon.cli(&["prompt", &session, "Hello again?"]).await;
        assert_ne!(said.code, 0);
        assert!(said.stderr.contains("acpd agents login gemini"), "{}", said.stderr);
    });
    play.await;
}

/// Then the CLI asks for a login code before it has answered anything, and takes what acpd sends for that code.
#[tokio::test]
async fn whose_login_is_gone_is_told_how_to_sign_in_and_not_made_to_wait() {
    let chosen = json!({"auth": {"selectedType": "oauth-personal"}});
    let setting = Setting::new().access(Access::Nothing).setting("/security", chosen);
    let play = setting.config("[processes]\ninitialize_timeout = \"20s\"\n").play(async |stage| {
        let session = stage.daemon.create_session("gemini").await;
        let error = stage.fail(&session, "Hello?").await;
        assert_error(&error, "auth_required", &["oauth_creds.json does not exist"]);
        assert_tells_how(&error);
    });
    play.await;
}

/// The CLI asks again for minutes, and says nothing meanwhile.
#[tokio::test]
async fn a_turn_in_which_the_cli_asks_again_goes_on_in_silence_and_can_be_cancelled() {
    let play = Setting::new().play(async |stage| {
        let session = stage.session().await;
        let (turn, after) = stage.begin(&session, "ERR 503").await;
        stage.api.asked_times("ERR 503", 2).await;
        let events = stage.daemon.events_so_far(&session, after).await;
        let said = events.iter().filter(|event| event.kind == "message.delta" || event.kind == "turn.completed");
        assert_eq!(said.count(), 0, "{events:#?}");
        cancel(stage, &session, &turn).await;
    });
    play.await;
}

#[tokio::test]
async fn silence_is_told_while_the_cli_asks_again() {
    let play = Setting::new().config("[sessions]\nsilence_notice = \"300ms\"\n").play(async |stage| {
        let session = stage.session().await;
        let (turn, after) = stage.begin(&session, "ERR 503").await;
        stage.daemon.events(&session, after).await.until("turn.waiting").await;
        cancel(stage, &session, &turn).await;
    });
    play.await;
}

/// Ends the turn. The next prompt is answered.
async fn cancel(stage: &Stage, session: &str, turn: &str) {
    stage.daemon.post(&format!("/v1/sessions/{session}/cancel"), json!({})).await.expect_status(202);
    assert_eq!(stage.daemon.wait_turn(session, turn).await["status"], "cancelled");
    stage.say(session, "And now?").await;
}
