//! MCP servers that acpd gives the CLI: those that work, and one that never answers.

use serde_json::json;

use super::home::MCP_SERVER;
use super::stage::Setting;

#[tokio::test]
async fn the_profiles_servers_are_the_models_and_a_session_may_do_without() {
    let server = format!("[agents.gemini.mcp_servers.stars]\ncommand = \"node\"\nargs = [{}]\n", json!(MCP_SERVER));
    let play = Setting::new().agent(&server).play(async |stage| {
        let session = stage.session().await;
        stage.say(&session, "Who counts?").await;
        let tools = stage.api.asked("Who counts?").await;
        assert!(tools.tools().iter().any(|tool| tool.contains("count_the_stars")), "{:?}", tools.tools());

        let without = json!({"workspace": stage.daemon.workspace(), "agent": "gemini", "mcpServers": []});
        let made = stage.daemon.post("/v1/sessions", without).await.expect_status(201);
        let without = made["id"].as_str().unwrap();
        stage.say(without, "And here?").await;
        let tools = stage.api.asked("And here?").await;
        assert!(!tools.tools().iter().any(|tool| tool.contains("count_the_stars")), "{:?}", tools.tools());
    });
    play.await;
}

#[tokio::test]
async fn acpds_own_tools_carry_something_from_one_session_to_the_next() {
    let lines = "acpd_tools = true\npermissions = \"allow\"\n";
    let play = Setting::new().agent(lines).play(async |stage| {
        let first = stage.session().await;
        stage.say(&first, "Who keeps?").await;
        let tools = stage.api.asked("Who keeps?").await;
        let named = |name: &str| {
            let found = tools.tools().into_iter().find(|tool| tool.ends_with(name));
            found.unwrap_or_else(|| panic!("no {name} in {:?}", tools.tools()))
        };
        let arguments = json!({"name": "sky", "state": {"stars": 6174}});
        stage.say(&first, &format!("TOOL {} {arguments}", named("create_checkpoint"))).await;
        let second = stage.session().await;
        let restore = named("restore_checkpoint");
        stage.say(&second, &format!("TOOL {restore} {}", json!({"name": "sky"}))).await;
        assert!(stage.last_words(&second).await.contains("6174"), "{}", stage.last_words(&second).await);
    });
    play.await;
}

#[tokio::test]
async fn a_server_that_never_answers_is_named_before_and_when_time_is_up() {
    let server = "[agents.gemini.mcp_servers.stuck]\ncommand = \"sleep\"\nargs = [\"1000\"]\n";
    let impatience = "[processes]\nsession_notice = \"300ms\"\nsession_timeout = \"3s\"\n";
    let play = Setting::new().config(impatience).agent(server).play(async |stage| {
        let session = stage.daemon.create_session("gemini").await;
        let (turn, _) = stage.begin(&session, "Hello?").await;
        let seen = stage.daemon.events(&session, None).await.until("process.waiting").await;
        let waiting = seen.last().unwrap().payload();
        assert_eq!((&waiting["phase"], &waiting["servers"]), (&json!("session/new"), &json!(["stuck"])), "{waiting}");
        let turn = stage.daemon.wait_turn(&session, &turn).await;
        let message = turn["error"]["message"].as_str().unwrap();
        assert_eq!(turn["error"]["code"], "timeout", "{turn}");
        assert!(message.contains("session/new") && message.contains("the MCP server stuck"), "{message}");
    });
    play.await;
}
