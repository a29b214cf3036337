//! What is said: streams, their end by a person, two at once, and the model that is asked.

use std::process::Stdio;

use serde_json::json;
use tokio::io::AsyncReadExt;

use super::model::{FIRST_WORDS, GREETING, LAST_WORDS};
use super::stage::{KEY, Setting};
use crate::harness::within;

#[tokio::test]
async fn run_shows_words_as_they_come() {
    let play = Setting::new().play(async |stage| {
        let mut command = stage.daemon.client(&["run", "--agent", "gemini", "HOLD", "the", "line"]);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut stdout = child.stdout.take().unwrap();
        let held = stage.api.held("HOLD the line").await;
        let mut seen = Vec::new();
        within("the first words on stdout", async {
            while !String::from_utf8_lossy(&seen).contains(FIRST_WORDS) {
                assert_ne!(stdout.read_buf(&mut seen).await.unwrap(), 0, "stdout ended: {seen:?}");
            }
        })
        .await;
        assert!(held.is_open());
        held.release();
        within("the end of stdout", stdout.read_to_end(&mut seen)).await.unwrap();
        assert_eq!(String::from_utf8(seen).unwrap(), format!("{FIRST_WORDS}{LAST_WORDS}\n"));
        assert!(within("the end of run", child.wait()).await.unwrap().success());
        assert_eq!(stage.api.asked("HOLD the line").await.key.as_deref(), Some(KEY));
    });
    play.await;
}

#[tokio::test]
async fn a_cancelled_turn_ends_and_the_same_process_goes_on() {
    let play = Setting::new().play(async |stage| {
        let session = stage.session().await;
        let process = stage.pid(&session).await;
        let (turn, _) = stage.begin(&session, "HOLD until it is cancelled").await;
        let held = stage.api.held("HOLD").await;
        stage.daemon.events(&session, None).await.until("message.delta").await;
        stage.daemon.post(&format!("/v1/sessions/{session}/cancel"), json!({})).await.expect_status(202);
        held.hung_up().await;
        assert_eq!(stage.daemon.wait_turn(&session, &turn).await["status"], "cancelled");
        stage.say(&session, "And now?").await;
        assert_eq!(stage.last_words(&session).await, GREETING);
        assert_eq!(stage.pid(&session).await, process);
    });
    play.await;
}

#[tokio::test]
async fn two_sessions_in_two_workspaces_speak_at_once() {
    let play = Setting::new().play(async |stage| {
        let other = stage.daemon.root().join("other");
        std::fs::create_dir(&other).unwrap();
        let body = json!({"workspace": other, "agent": "gemini"});
        let second =
            stage.daemon.post("/v1/sessions", body).await.expect_status(201)["id"].as_str().unwrap().to_owned();
        let first = stage.daemon.create_session("gemini").await;
        let (first_turn, _) = stage.begin(&first, "HOLD the first").await;
        let (second_turn, _) = stage.begin(&second, "HOLD the second").await;
        let (one, two) = (stage.api.held("HOLD the first").await, stage.api.held("HOLD the second").await);
        assert!(one.is_open() && two.is_open());
        two.release();
        assert_eq!(stage.daemon.wait_turn(&second, &second_turn).await["status"], "completed");
        assert!(one.is_open());
        one.release();
        assert_eq!(stage.daemon.wait_turn(&first, &first_turn).await["status"], "completed");
        let (first_asked, second_asked) = (stage.api.asked("the first").await, stage.api.asked("the second").await);
        assert!(first_asked.has(&stage.daemon.workspace().display().to_string()));
        assert!(second_asked.has(&other.display().to_string()));
        assert!(!first_asked.has("the second") && !second_asked.has("the first"));
    });
    play.await;
}

#[tokio::test]
async fn the_model_that_is_chosen_is_the_one_that_is_asked() {
    let play = Setting::new().play(async |stage| {
        let session = stage.session().await;
        let shown = stage.daemon.session(&session).await;
        let announced = shown["models"]["availableModels"].as_array().unwrap();
        let models: Vec<&str> = announced.iter().filter_map(|model| model["modelId"].as_str()).collect();
        assert!(models.contains(&"gemini-2.5-pro"), "{models:?}");
        stage
            .daemon
            .patch(&format!("/v1/sessions/{session}"), json!({"model": "gemini-2.5-pro"}))
            .await
            .expect_status(200);
        stage.say(&session, "Who are you?").await;
        assert_eq!(stage.api.asked("Who are you?").await.model, "gemini-2.5-pro");
    });
    play.await;
}
