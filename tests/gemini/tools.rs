//! What the model does: commands and files, allowed and refused, and what a command leaves behind.

use serde_json::{Value, json};

use super::home::MCP_SERVER;
use super::stage::{Setting, Stage};
use crate::harness::process_alive;

/// A command of this word needs no person. (`echo` and its like the CLI runs without asking anybody.)
const PRINTF_ALLOWED: &str =
    "permissions = { mode = \"ask\", rules = [{ decision = \"allow\", commands = [\"printf\"] }] }";
const ALL_ALLOWED: &str = "permissions = \"allow\"";

/// A prompt that ends in a question of the agent's: the turn, and the question.
async fn be_asked(stage: &Stage, session: &str, prompt: &str) -> (String, Value) {
    let (turn, after) = stage.begin(session, prompt).await;
    let asked = stage.daemon.events(session, after).await.until("permission.requested").await;
    (turn, asked.last().unwrap().payload().clone())
}

/// The one result of a tool in the session's record.
async fn result(stage: &Stage, session: &str) -> Value {
    let messages = stage.daemon.messages(session).await;
    let results: Vec<&Value> = messages.iter().filter(|message| message["role"] == "tool_result").collect();
    assert_eq!(results.len(), 1, "{messages:#?}");
    results[0]["content"].clone()
}

/// What the model was told of a tool, which is the last that it was told.
fn response(stage: &Stage) -> Value {
    let told = stage.api.told();
    let contents = told.last().unwrap().body["contents"].as_array().unwrap();
    contents.last().unwrap()["parts"][0]["functionResponse"]["response"].clone()
}

#[tokio::test]
async fn a_command_waits_for_its_approval() {
    let play = Setting::new().play(async |stage| {
        let session = stage.session().await;
        let (turn, asked) = be_asked(stage, &session, "SHELL touch approved").await;
        assert_eq!(asked["action"]["command"], "touch approved", "{asked}");
        let file = stage.daemon.workspace().join("approved");
        assert!(!file.exists());
        stage.daemon.cli(&["approve"]).await.success();
        assert_eq!(stage.daemon.wait_turn(&session, &turn).await["status"], "completed");
        assert!(file.exists());
        assert_eq!(result(stage, &session).await["status"], "completed");
    });
    play.await;
}

#[tokio::test]
async fn a_command_that_is_rejected_is_not_run_and_the_session_goes_on() {
    let play = Setting::new().play(async |stage| {
        let session = stage.session().await;
        let (turn, _) = be_asked(stage, &session, "SHELL touch rejected").await;
        stage.daemon.cli(&["reject"]).await.success();
        let turn = stage.daemon.wait_turn(&session, &turn).await;
        assert_eq!(turn["status"], "completed", "{turn}");
        assert!(!stage.daemon.workspace().join("rejected").exists());
        let response = response(stage);
        assert!(response.to_string().contains("canceled by the user"), "{response}");
        stage.say(&session, "Then do nothing.").await;
    });
    play.await;
}

#[tokio::test]
async fn a_command_that_a_rule_allows_is_run_and_the_model_is_told_what_it_printed() {
    for setting in [Setting::new(), Setting::new().writes_only()] {
        let play = setting.agent(PRINTF_ALLOWED).play(async |stage| {
            let session = stage.session().await;
            stage.say(&session, "SHELL printf forty-two").await;
            let events = stage.daemon.events_so_far(&session, None).await;
            let resolved = events.iter().find(|event| event.kind == "permission.resolved").unwrap().payload();
            let expected = (&json!("allow"), &json!("policy"));
            assert_eq!((&resolved["decision"], &resolved["by"]["type"]), expected, "{resolved}");
            assert_eq!(result(stage, &session).await["status"], "completed");
            let response = response(stage);
            assert!(response.to_string().contains("Output: forty-two"), "{response}");
            assert!(stage.last_words(&session).await.contains("forty-two"));
        });
        play.await;
    }
}

/// The CLI tells the model what a command printed, and a client only when the command has no terminal of its own.
#[tokio::test]
async fn what_a_command_prints_is_in_the_record() {
    let without = json!({"shell": {"enableInteractiveShell": false}});
    let play = Setting::new().setting("/tools", without).agent(ALL_ALLOWED).play(async |stage| {
        let session = stage.session().await;
        stage.say(&session, "SHELL printf forty-two").await;
        let result = result(stage, &session).await;
        assert!(result["result"].to_string().contains("forty-two"), "{result}");
    });
    play.await;
}

#[tokio::test]
async fn files_are_written_through_acpd_also_new_ones_in_new_directories() {
    let play = Setting::new().agent(ALL_ALLOWED).play(async |stage| {
        let session = stage.session().await;
        std::fs::write(stage.daemon.workspace().join("old.txt"), "before").unwrap();
        for (path, is_new) in [("new.txt", true), ("some/where/new.txt", true), ("old.txt", false)] {
            let (turn, after) = stage.begin(&session, &format!("WRITE {path} words for {path}")).await;
            let seen = stage.daemon.events(&session, after).await.until("turn.completed").await;
            assert_eq!(stage.daemon.wait_turn(&session, &turn).await["status"], "completed");
            let written = seen.iter().find(|event| event.kind == "file.written");
            let written = written.unwrap_or_else(|| panic!("{path} was not written through acpd: {seen:#?}")).payload();
            assert_eq!((&written["path"], &written["isNew"]), (&json!(path), &json!(is_new)), "{written}");
            let content = std::fs::read_to_string(stage.daemon.workspace().join(path)).unwrap();
            assert_eq!(content, format!("words for {path}"));
        }
    });
    play.await;
}

/// The CLI sends neither the names of its tools nor their arguments.
#[tokio::test]
async fn tools_have_their_names_and_what_is_known_of_their_arguments() {
    let server = format!("[agents.gemini.mcp_servers.stars]\ncommand = \"node\"\nargs = [{}]\n", json!(MCP_SERVER));
    let play = Setting::new().agent(&format!("{ALL_ALLOWED}\n{server}")).play(async |stage| {
        let session = stage.session().await;
        let file = stage.daemon.workspace().join("new.txt").display().to_string();
        for prompt in
            ["WRITE new.txt words", "READ new.txt", "SHELL printf x", "TOOL mcp_stars_count_the_stars {\"sky\":7}"]
        {
            stage.say(&session, prompt).await;
        }
        stage.say(&session, "READ nowhere.txt").await;
        let messages = stage.daemon.messages(&session).await;
        let calls = messages.iter().filter(|message| message["role"] == "tool_call").map(|message| &message["content"]);
        let told: Vec<Value> = calls.map(|call| json!([call["name"], call["arguments"]])).collect();
        let expected = json!([
            ["write_file", {"path": file}],
            ["read_file", {"path": file}],
            ["run_shell_command", {"command": "printf x"}],
            ["mcp_stars_count_the_stars", {"sky": 7}],
            ["read_file", {"path": stage.daemon.workspace().join("nowhere.txt")}],
        ]);
        assert_eq!(json!(told), expected, "{messages:#?}");
        let failed = &messages.iter().rfind(|message| message["role"] == "tool_result").unwrap()["content"];
        assert_eq!(failed["status"], "failed", "{failed}");
        assert!(failed["error"].as_str().unwrap().contains("not found"), "{failed}");
    });
    play.await;
}

/// The shell ends only when what it left has become independent of it.
const NOHUP: &str = "nohup sh -c 'echo $$ > nohup.pid; exec sleep 1000' > /dev/null 2>&1 & \
    while [ ! -s nohup.pid ]; do :; done";
const SETSID: &str = "setsid -f sh -c 'echo $$ > setsid.pid; exec sleep 1000' > /dev/null 2>&1; \
    while [ ! -s setsid.pid ]; do :; done";

/// Isolated, it would know itself by another number.
#[tokio::test]
async fn what_a_command_leaves_behind_is_gone_with_the_session() {
    let play = Setting::new().writes_only().agent(ALL_ALLOWED).play(async |stage| {
        let session = stage.session().await;
        let mut left = Vec::new();
        for (command, file) in [(NOHUP, "nohup.pid"), (SETSID, "setsid.pid")] {
            stage.say(&session, &format!("SHELL {command}")).await;
            let pid = std::fs::read_to_string(stage.daemon.workspace().join(file)).unwrap();
            left.push(pid.trim().parse::<u32>().unwrap());
        }
        assert!(left.iter().all(|pid| process_alive(*pid)), "{left:?}");
        stage.daemon.post(&format!("/v1/sessions/{session}/archive"), json!({})).await.expect_status(200);
        assert!(!left.iter().any(|pid| process_alive(*pid)), "200 comes after the end of all");
    });
    play.await;
}
