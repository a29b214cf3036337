//! Search through the front door: what was acknowledged is found, what was deleted is not, and no text is a fault.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod harness;

use harness::{Daemon, echo, within};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

fn encoded(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

async fn search(daemon: &Daemon, query: &str, more: &str) -> Value {
    daemon.get(&format!("/v1/search?q={}{more}", encoded(query))).await.expect_status(200)
}

/// The matches of a result, cut out of its snippet.
fn matched(result: &Value) -> Vec<String> {
    let text: Vec<char> = result["snippet"]["text"].as_str().unwrap().chars().collect();
    let number = |value: &Value| usize::try_from(value.as_u64().unwrap()).unwrap();
    let matches = result["snippet"]["matches"].as_array().unwrap();
    matches.iter().map(|place| text[number(&place[0])..number(&place[1])].iter().collect()).collect()
}

/// The index is what the messages say, no more and no less: sound in itself, and the same, word for word and place for
/// place, as one that is made anew. (FTS5's own comparison with the content does not take a view over `json_tree`.)
async fn check_index(daemon: &Daemon) {
    assert_eq!(search(daemon, "anything", "").await["pending"], 0, "now everything is indexed");
    let comparison = "INSERT INTO message_index (message_index) VALUES ('integrity-check');
        CREATE VIRTUAL TABLE temp.anew USING fts5 (text, tokenize = 'unicode61 remove_diacritics 2');
        INSERT INTO temp.anew (rowid, text) SELECT row, text FROM message_texts;
        CREATE VIRTUAL TABLE temp.has USING fts5vocab (main, message_index, instance);
        CREATE VIRTUAL TABLE temp.wants USING fts5vocab (temp, anew, instance);
        SELECT (SELECT count(*) FROM (SELECT * FROM temp.has EXCEPT SELECT * FROM temp.wants))
            + (SELECT count(*) FROM (SELECT * FROM temp.wants EXCEPT SELECT * FROM temp.has))";
    assert_eq!(daemon.sql_number(comparison.to_owned()).await, 0);
    assert!(daemon.sql_number("SELECT count(*) FROM message_index_data".to_owned()).await > 0);
    let counts = "SELECT (SELECT count(*) FROM messages) - (SELECT count(*) FROM message_index_docsize)";
    assert_eq!(daemon.sql_number(counts.to_owned()).await, 0);
}

#[tokio::test]
async fn what_was_acknowledged_is_found_at_once() {
    // It is never idle for that long: a search has indexed what it needs.
    let daemon = Daemon::builder().config("[store]\nmaintenance_delay = \"1h\"\n").agent("echo", echo()).start().await;
    let session = daemon.create_lazy_session("echo").await;
    for number in 0..3 {
        let accepted = daemon.prompt(&session, &format!("the größte zebra{number} in src/main.rs")).await;
        let found = search(&daemon, &format!("GROSSTE zebra{number}"), "&role=user").await;
        assert_eq!(found["total"], 0, "ß is no ss");
        let found = search(&daemon, &format!("Größte zebra{number}"), "&role=user").await;
        assert_eq!((&found["total"], &found["pending"]), (&json!(1), &json!(0)));
        let hit = &found["results"][0];
        assert_eq!((&hit["messageId"], &hit["turnId"]), (&accepted["messageId"], &accepted["turnId"]));
        assert_eq!((&hit["sessionId"], &hit["role"], &hit["agent"]), (&json!(session), &json!("user"), &json!("echo")));
        assert_eq!(hit["workspace"], daemon.workspace().display().to_string());
        assert_eq!(matched(hit), ["größte".to_owned(), format!("zebra{number}")]);
        daemon.wait_turn(&session, accepted["turnId"].as_str().unwrap()).await;
    }
    assert_eq!(search(&daemon, "zebra1 src/main.rs", "").await["total"], 2, "the user's and the agent's");
    assert_eq!(search(&daemon, "groß*", "&limit=2&offset=5").await["results"].as_array().unwrap().len(), 1);
    check_index(&daemon).await;
}

#[tokio::test]
async fn everything_that_is_said_is_found_and_filters_narrow() {
    let script = json!([{"handshake": {}}, {"prompt": [
        {"thought": "pondering walrus"},
        {"text": "answer narwhal"},
        {"update": {"sessionUpdate": "tool_call", "toolCallId": "c", "title": "grep", "kind": "search",
            "status": "in_progress", "rawInput": {"pattern": "needle-in-haystack", "count": 3}}},
        {"update": {"sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "completed",
            "content": [{"type": "content", "content": {"type": "text", "text": "output ocelot"}}]}},
        {"update": {"sessionUpdate": "plan",
            "entries": [{"content": "feed the lynx", "priority": "high", "status": "pending"}]}}
    ]}, {"repeat": [{"prompt": []}]}]);
    let daemon = Daemon::builder().agent("busy", script).agent("echo", echo()).start().await;
    let session = daemon.create_session("busy").await;
    daemon.prompt_and_wait(&session, "question badger").await;
    let other = daemon.create_session("echo").await;
    daemon.prompt_and_wait(&other, "another badger").await;
    for (word, role) in [
        ("badger AND question", "user"),
        ("walrus", "agent"),
        ("narwhal", "agent"),
        ("needle-in-haystack", "tool_call"),
        ("grep", "tool_call"),
        ("ocelot", "tool_result"),
        ("lynx", "system"),
    ] {
        let found = search(&daemon, word, "").await;
        assert_eq!((&found["total"], &found["results"][0]["role"]), (&json!(1), &json!(role)), "{word}");
    }
    for word in ["in_progress", "completed", "high", "tool_call"] {
        assert_eq!(search(&daemon, word, "").await["total"], 0, "{word} is the protocol's word");
    }
    let view = daemon.session(&session).await;
    let now = encoded(&jiff::Timestamp::now().to_string());
    let workspace = view["workspaceId"].as_str().unwrap();
    for (filter, total) in [
        (String::new(), 3),
        ("&agent=busy".to_owned(), 1),
        (format!("&session={other}"), 2),
        ("&role=agent".to_owned(), 1),
        (format!("&workspaceId={workspace}"), 3),
        ("&workspaceId=019a0000-0000-7000-8000-000000000000".to_owned(), 0),
        (format!("&until={now}"), 3),
        (format!("&since={now}"), 0),
    ] {
        assert_eq!(search(&daemon, "badger", &filter).await["total"], total, "{filter}");
    }
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_with_a_hint() {
    let daemon = Daemon::start().await;
    for query in ["", "  ", "say \"hello", "foo OR", "NOT foo", "(foo", "NEAR(a)", "+++", "w*"] {
        let refused = daemon.get(&format!("/v1/search?q={}", encoded(query))).await.expect_status(400);
        assert_eq!((&refused["error"], &refused["details"]["field"]), (&json!("invalid_request"), &json!("q")));
        assert!(!refused["hint"].as_str().unwrap().is_empty(), "{refused}");
    }
    for (parameters, field) in
        [("", "q"), ("q=a&x=1", "x"), ("q=a&limit=0", "limit"), ("q=a&since=soon", "since"), ("q=a&role=king", "role")]
    {
        let refused = daemon.get(&format!("/v1/search?{parameters}")).await.expect_status(400);
        assert_eq!(refused["details"]["field"], field, "{refused}");
    }
    for query in ["it's", "C++", "a AND b", "foo-bar", "text:x", "{a b}", "a\0b", "'; DROP TABLE messages; --"] {
        assert_eq!(search(&daemon, query, "").await["total"], 0);
    }
}

#[tokio::test]
async fn the_index_follows_deletions_restarts_and_copies() {
    let mut daemon = Daemon::builder().agent("echo", echo()).start().await;
    let mut sessions = Vec::new();
    for name in ["first", "second", "third"] {
        let session = daemon.create_session("echo").await;
        daemon.prompt_and_wait(&session, &format!("common {name}")).await;
        sessions.push(session);
    }
    check_index(&daemon).await;
    // The last rows go, and are given again to what comes next.
    daemon.prompt_and_wait(&sessions[2], "not indexed yet").await;
    daemon.delete(&format!("/v1/sessions/{}?purge=true", sessions[2])).await.expect_status(200);
    assert_eq!(search(&daemon, "third", "").await["total"], 0);
    check_index(&daemon).await;
    daemon.prompt_and_wait(&sessions[0], "common again").await;
    assert_eq!(search(&daemon, "common", "").await["total"], 6);
    daemon.delete(&format!("/v1/sessions/{}?purge=true", sessions[1])).await.expect_status(200);
    check_index(&daemon).await;
    daemon.restart().await;
    assert_eq!(search(&daemon, "common", "").await["total"], 4);
    check_index(&daemon).await;

    daemon.terminate().await;
    let (database, copy) = (daemon.state_dir().join("acpd.db"), daemon.root().join("copy.db"));
    daemon.sql(format!("VACUUM INTO '{}'", copy.display())).await;
    std::fs::rename(copy, database).unwrap();
    daemon.restart().await;
    assert_eq!(search(&daemon, "common", "").await["total"], 4);
    check_index(&daemon).await;
}

#[tokio::test]
async fn a_search_without_end_is_given_up_and_keeps_nobody_from_reading() {
    // It reads as fast as it can, which on a quick machine is faster than clients may by default.
    let config = "[control]\nrequests_per_second = 1000000\n";
    let mut daemon = Daemon::builder().config(config).agent("echo", echo()).start().await;
    let session = daemon.create_session("echo").await;
    daemon.prompt_and_wait(&session, "pangolin").await;
    assert_eq!(search(&daemon, "pang*", "").await["total"], 2);
    // The text of what is found never comes.
    let endless = "DROP VIEW message_texts; CREATE VIEW message_texts (row, text) AS
        WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i), 'x' FROM n";
    daemon.sql(endless.to_owned()).await;
    for _ in 0..4 {
        // A client that hangs up.
        let mut client = daemon.connect().await;
        client.write_all(b"GET /v1/search?q=pangolin HTTP/1.1\r\nHost: acpd\r\n\r\n").await.unwrap();
        daemon.session(&session).await;
    }
    let path = "/v1/search?q=pangolin";
    let mut searching = std::pin::pin!(within("an end of the search", daemon.get(path)));
    let mut reads = 0;
    let reply = loop {
        tokio::select! {
            biased;
            reply = &mut searching => break reply,
            _ = daemon.session(&session) => reads += 1,
        }
    };
    let refused = reply.expect_status(400);
    assert_eq!((&refused["error"], &refused["details"]["field"]), (&json!("invalid_request"), &json!("q")));
    assert!(refused["hint"].as_str().unwrap().contains("narrow"), "{refused}");
    assert!(reads > 20, "others read meanwhile: {reads}");
}

#[tokio::test]
async fn the_command_prints_a_paragraph_a_hit() {
    let daemon = Daemon::builder().agent("echo", echo()).start().await;
    daemon.cli(&["run", "--agent", "echo", "find", "the", "pangolin"]).await.success();
    let output = daemon.cli(&["search", "pangolin", "--since", "7d", "-C", ".", "--agent", "echo"]).await.success();
    let lines: Vec<&str> = output.lines().collect();
    assert_eq!(lines.len(), 7, "two hits with a line between: {output}");
    assert!(lines[0].ends_with("  find the pangolin") && lines[1].contains(" ago · echo · "), "{output}");
    assert_eq!(lines[2], "  find the pangolin");
    let found = daemon.cli(&["search", "--json", "find", "the", "-n", "1"]).await.json();
    assert_eq!((&found["total"], &found["limit"]), (&json!(2), &json!(1)));
    let nothing = daemon.cli(&["search", "aardvark"]).await;
    assert_eq!((nothing.code, nothing.stdout.as_str(), nothing.stderr.as_str()), (1, "", ""));
    let refused = daemon.cli(&["search", "foo", "OR"]).await;
    assert!(refused.code == 1 && refused.stderr.contains("hint: put AND, OR and NOT"), "{}", refused.stderr);
}
