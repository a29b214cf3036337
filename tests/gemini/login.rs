//! Somebody who is signed in with a Google account: their login is used, renewed and given back, and never asked for.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::google::{REFRESH_TOKEN, RENEWED_TOKEN, expired_login};
use super::stage::{Access, Setting, Stage};
use crate::harness::within;

const LOGIN: &str = "oauth_creds.json";

fn signed_in(login: &str) -> Setting {
    let chosen = json!({"auth": {"selectedType": "oauth-personal"}});
    Setting::new().access(Access::Account).setting("/security", chosen).file(LOGIN, login)
}

fn login_of(stage: &Stage) -> (PathBuf, Value) {
    let path = stage.daemon.home().join(".gemini").join(LOGIN);
    let login = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    (path, login)
}

#[tokio::test]
async fn a_login_that_the_cli_renews_goes_back_to_the_user() {
    let play = signed_in(&expired_login()).play(async |stage| {
        let session = stage.session().await;
        let (turn, after) = stage.begin(&session, "HOLD until the login is seen").await;
        let held = stage.api.held("HOLD").await;
        stage.daemon.events(&session, after).await.until("message.delta").await;
        assert_eq!(login_of(stage).1["access_token"], "ya29.an-old-token", "it goes back between turns");
        held.release();
        assert_eq!(stage.daemon.wait_turn(&session, &turn).await["status"], "completed");
        stage.daemon.post(&format!("/v1/sessions/{session}/archive"), json!({})).await.expect_status(200);
        let (path, login) = login_of(stage);
        assert_eq!((&login["access_token"], &login["refresh_token"]), (&json!(RENEWED_TOKEN), &json!(REFRESH_TOKEN)));
        stage.expect_change(path);
    });
    play.await;
}

/// Also while the process goes on: the user's own CLI is to find it.
#[tokio::test]
async fn a_renewed_login_does_not_wait_for_the_end_of_the_process() {
    let play = signed_in(&expired_login()).play(async |stage| {
        let session = stage.session().await;
        stage.say(&session, "Hello?").await;
        let (path, _) = login_of(stage);
        let renewed = async {
            while login_of(stage).1["access_token"] != RENEWED_TOKEN {
                tokio::task::yield_now().await;
            }
        };
        within("the renewed login is the user's", renewed).await;
        assert!(stage.pid(&session).await > 0, "the process goes on");
        stage.expect_change(path);
    });
    play.await;
}

/// The CLI would print an address, and take the next line for a code.
#[tokio::test]
async fn a_login_that_was_taken_back_asks_nobody_for_a_code() {
    let revoked = expired_login().replace(REFRESH_TOKEN, "1//another-one");
    let play = signed_in(&revoked).config("[processes]\ninitialize_timeout = \"20s\"\n").play(async |stage| {
        let session = stage.daemon.create_session("gemini").await;
        let error = stage.fail(&session, "Hello?").await;
        assert_eq!(error["code"], "auth_required", "{error}");
        assert!(error["message"].as_str().unwrap().contains("Google account"), "{error}");
        assert!(error["hint"].as_str().unwrap().contains("acpd agents login gemini"), "{error}");
    });
    play.await;
}
