//! What is the user's own: it is in force in every session, and no session harms it.

use serde_json::json;

use super::stage::{Access, KEY, Setting, USERS_WORD};

/// A server of one tool.
pub const MCP_SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/gemini/mcp_server.mjs");
/// As the CLI writes it. Nobody has issued it, and it has not expired.
const LOGIN: &str = r#"{"access_token": "of-the-test", "refresh_token": "of-the-test", "scope": "openid",
    "token_type": "Bearer", "expiry_date": 4102444800000}"#;

/// A CLI that waits for a login code says nothing that acpd understands.
const IMPATIENT: &str = "[processes]\ninitialize_timeout = \"20s\"\n";

#[tokio::test]
async fn the_users_memory_and_servers_are_in_force() {
    let servers = json!({"mine": {"command": "node", "args": [MCP_SERVER]}});
    let play = Setting::new().setting("/mcpServers", servers).play(async |stage| {
        let session = stage.session().await;
        stage.say(&session, "Hello?").await;
        let asked = stage.api.asked("Hello?").await;
        assert!(asked.body.to_string().contains(USERS_WORD), "the user's GEMINI.md is not in {:#}", asked.body);
        let tools = asked.tools();
        assert!(tools.iter().any(|tool| tool.contains("count_the_stars")), "{tools:?}");
    });
    play.await;
}

#[tokio::test]
async fn a_login_outlives_a_session_with_a_key() {
    let play = Setting::new().file("oauth_creds.json", LOGIN).play(async |stage| {
        let session = stage.session().await;
        stage.say(&session, "Hello?").await;
        assert_eq!(std::fs::read_to_string(stage.daemon.home().join(".gemini/oauth_creds.json")).unwrap(), LOGIN);
    });
    play.await;
}

/// Who is told to give acpd a key because a login has ended has still chosen that login in the settings.
#[tokio::test]
async fn a_key_goes_before_a_login_that_was_chosen_once() {
    let chosen = json!({"auth": {"selectedType": "oauth-personal"}});
    let setting = Setting::new().setting("/security", chosen).file("oauth_creds.json", LOGIN);
    let play = setting.config(IMPATIENT).play(async |stage| {
        let session = stage.daemon.create_session("gemini").await;
        stage.say(&session, "Hello?").await;
        assert_eq!(stage.api.asked("Hello?").await.key.as_deref(), Some(KEY));
    });
    play.await;
}

#[tokio::test]
async fn a_key_alone_is_enough() {
    let play = Setting::new().access(Access::Key).play(async |stage| {
        let session = stage.session().await;
        stage.say(&session, "Hello?").await;
        assert_eq!(stage.api.asked("Hello?").await.key.as_deref(), Some(KEY));
    });
    play.await;
}

#[tokio::test]
async fn an_api_that_wants_no_key_is_enough() {
    let play = Setting::new().access(Access::Address).play(async |stage| {
        let session = stage.session().await;
        stage.say(&session, "Hello?").await;
        assert_eq!(stage.api.asked("Hello?").await.key.as_deref(), Some(""));
    });
    play.await;
}
