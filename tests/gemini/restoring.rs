//! What the model knows of a conversation when the CLI's process is another one: after an idle stop, a restart of the daemon,
//! and a kill in the middle of a turn.

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::model::{GREETING, THOUGHT};
use super::stage::{Access, Setting, Stage};
use crate::harness::{process_gone, signal};

const CODEWORD: &str = "ZEBRA42";

/// Everything in the record that somebody said or thought: by whom, of which kind, and what.
async fn conversation(stage: &Stage, session: &str) -> Vec<[String; 3]> {
    let messages = stage.daemon.messages(session).await;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let said = messages.iter().filter(|message| message["role"] != "system");
    said.map(|said| [&said["role"], &said["content"]["type"], &said["content"]["text"]].map(text)).collect()
}

/// What there is in the record of one prompt and its answer.
fn exchange(prompt: &str) -> [[String; 3]; 3] {
    [["user", "text", prompt], ["agent", "thought", THOUGHT], ["agent", "text", GREETING]]
        .map(|said| said.map(str::to_owned))
}

/// The model was told the codeword along with the prompt.
async fn knows(stage: &Stage, prompt: &str) {
    let asked = stage.api.asked(prompt).await;
    assert!(asked.has(CODEWORD), "the codeword is not in {:#}", asked.body["contents"]);
}

#[tokio::test]
async fn an_idle_session_is_continued_with_all_it_knew() {
    let play = Setting::new().config("[sessions]\nidle_timeout = \"1s\"\n").play(async |stage| {
        let session = stage.daemon.create_session("gemini").await;
        stage.say(&session, &format!("The codeword is {CODEWORD}.")).await;
        let exited = stage.daemon.events(&session, None).await.until("process.exited").await;
        assert_eq!(exited.last().unwrap().payload()["reason"], "idle");
        stage.say(&session, "RECALL what I said").await;
        knows(stage, "RECALL what I said").await;
        assert!(stage.last_words(&session).await.contains(CODEWORD));
        assert_eq!(stage.daemon.session(&session).await["contextRestored"], "native");
    });
    play.await;
}

/// The CLI names its files after the minute, and what it does to them depends on it, so this is done as fast as it goes.
async fn resume_twice(access: Access) {
    let play = Setting::new().access(access).play(async |stage| {
        let session = stage.session().await;
        let first = format!("The codeword is {CODEWORD}.");
        stage.say(&session, &first).await;
        let mut expected = exchange(&first).to_vec();
        for prompt in ["What was it?", "And once more?"] {
            stage.daemon.restart().await;
            stage.daemon.post(&format!("/v1/sessions/{session}/resume"), json!({})).await.expect_status(200);
            stage.say(&session, prompt).await;
            knows(stage, prompt).await;
            expected.extend(exchange(prompt));
            assert_eq!(conversation(stage, &session).await, expected);
            assert_eq!(stage.daemon.session(&session).await["contextRestored"], "native", "{prompt}");
        }
        // What was said in between is known too, and nothing twice.
        let last = stage.api.asked("And once more?").await;
        assert_eq!((last.count("What was it?"), last.count(CODEWORD)), (1, 1), "{:#}", last.body["contents"]);
    });
    play.await;
}

#[tokio::test]
async fn a_session_is_resumed_twice_in_a_row_after_restarts_of_the_daemon() {
    resume_twice(Access::KeyAndAddress).await;
}

/// Nobody stops the CLI then but its shim.
#[tokio::test]
async fn a_session_whose_daemon_is_killed_in_a_turn_goes_on_with_all_it_knew() {
    let play = Setting::new().play(async |stage| {
        let session = stage.session().await;
        stage.say(&session, &format!("The codeword is {CODEWORD}.")).await;
        let (turn, after) = stage.begin(&session, "HOLD until the daemon is gone").await;
        let held = stage.api.held("HOLD").await;
        stage.daemon.events(&session, after).await.until("message.delta").await;
        let cli = stage.pid(&session).await;
        stage.daemon.kill().await;
        process_gone(cli).await;
        held.hung_up().await;
        stage.daemon.restart().await;
        assert_eq!(stage.daemon.wait_turn(&session, &turn).await["status"], "interrupted");
        stage.say(&session, "Are you there?").await;
        knows(stage, "Are you there?").await;
        assert_eq!(stage.daemon.session(&session).await["contextRestored"], "native");
    });
    play.await;
}

/// Then it could write to the user's home, and has its own all the same.
#[tokio::test]
async fn a_session_that_is_not_confined_is_resumed_and_leaves_the_users_files_alone() {
    let play = Setting::new().config("[sandbox]\nmode = \"off\"\n").play(async |stage| {
        let session = stage.session().await;
        stage.say(&session, &format!("The codeword is {CODEWORD}.")).await;
        stage.daemon.restart().await;
        stage.daemon.post(&format!("/v1/sessions/{session}/resume"), json!({})).await.expect_status(200);
        stage.say(&session, "What was it?").await;
        knows(stage, "What was it?").await;
        let session = stage.daemon.session(&session).await;
        assert_eq!((&session["contextRestored"], &session["sandbox"]), (&json!("native"), &json!("none")));
    });
    play.await;
}

/// Then the CLI refuses to load a conversation until it is told to use the key, which it uses for new ones as it is.
#[tokio::test]
async fn a_session_with_a_key_alone_is_resumed_twice_in_a_row_after_restarts_of_the_daemon() {
    resume_twice(Access::Key).await;
}

#[tokio::test]
async fn a_session_whose_process_is_killed_in_a_turn_goes_on_with_all_it_knew() {
    let play = Setting::new().play(async |stage| {
        let session = stage.session().await;
        stage.say(&session, &format!("The codeword is {CODEWORD}.")).await;
        let (turn, after) = stage.begin(&session, "HOLD until you are killed").await;
        let held = stage.api.held("HOLD").await;
        stage.daemon.events(&session, after).await.until("message.delta").await;
        signal(stage.pid(&session).await, Signal::SIGKILL);
        let turn = stage.daemon.wait_turn(&session, &turn).await;
        assert_eq!((&turn["status"], &turn["error"]["code"]), (&json!("failed"), &json!("agent_exited")), "{turn}");
        held.hung_up().await;
        stage.say(&session, "Are you there?").await;
        knows(stage, "Are you there?").await;
        assert_eq!(stage.last_words(&session).await, GREETING);
        assert_eq!(stage.daemon.session(&session).await["contextRestored"], "native");
    });
    play.await;
}
