//! Checkpoints: a name and a state that a session is given, found again, and gone on from.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod harness;

use harness::{Daemon, ORDINARY, Reply, prompts, users};
use serde_json::{Value, json};

fn script() -> Value {
    json!([{"record": true}, {"handshake": {}}, {"repeat": [{"prompt": [{"text": "ok"}]}]}])
}

async fn add(daemon: &Daemon, session: &str, body: Value) -> Reply {
    daemon.post(&format!("/v1/sessions/{session}/checkpoints"), body).await
}

fn names(list: &Value) -> Vec<&str> {
    list["checkpoints"].as_array().unwrap().iter().map(|checkpoint| checkpoint["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_checkpoint_is_found_by_its_name_and_its_id_in_its_session_and_over_all() {
    let daemon = Daemon::builder().agent("plain", script()).start().await;
    let session = daemon.create_lazy_session("plain").await;
    let other = daemon.create_lazy_session("plain").await;
    let state = json!({"step": 3, "files": ["a.rs"], "exact": 12_345_678_901_234_567_890_u64});
    let made = add(&daemon, &session, json!({"name": "before/the merge", "state": state})).await.expect_status(201);
    assert_eq!((&made["name"], &made["state"]), (&json!("before/the merge"), &state));
    assert_eq!((&made["sessionId"], made.get("turnId")), (&json!(session), None));
    assert_eq!(made["by"]["pid"], json!(std::process::id()));
    let bare = add(&daemon, &other, json!({"name": "bare"})).await.expect_status(201);
    assert_eq!(bare["state"], Value::Null);

    let path = format!("/v1/sessions/{session}/checkpoints");
    for name in ["before%2Fthe%20merge", made["id"].as_str().unwrap()] {
        assert_eq!(daemon.get(&format!("{path}/{name}")).await.expect_status(200), made);
    }
    let id = bare["id"].as_str().unwrap();
    daemon.get(&format!("{path}/{id}")).await.refused(404, "checkpoint_not_found");
    daemon.get(&format!("{path}/none")).await.refused(404, "checkpoint_not_found");

    add(&daemon, &session, json!({"name": "after"})).await.expect_status(201);
    let list = daemon.get(&format!("{path}?limit=1")).await.expect_status(200);
    assert_eq!((names(&list), &list["total"]), (vec!["after"], &json!(2)));
    let workspace = daemon.session(&session).await["workspaceId"].as_str().unwrap().to_owned();
    for (query, expected) in [
        (String::new(), vec!["after", "bare", "before/the merge"]),
        ("?limit=1&offset=1".to_owned(), vec!["bare"]),
        ("?name=bare".to_owned(), vec!["bare"]),
        (format!("?sessionId={session}"), vec!["after", "before/the merge"]),
        (format!("?workspaceId={workspace}&name=after"), vec!["after"]),
        ("?workspaceId=01a1e272-8a8e-762f-a984-29c55e0e6330".to_owned(), vec![]),
    ] {
        assert_eq!(
            names(&daemon.get(&format!("/v1/checkpoints{query}")).await.expect_status(200)),
            expected,
            "{query}"
        );
    }
}

#[tokio::test]
async fn its_event_is_committed_with_it_and_names_the_running_turn() {
    let script = json!([{"handshake": {}}, {"prompt": [{"gate": "in turn"}]}]);
    let daemon = Daemon::builder().agent("plain", script).start().await;
    let session = daemon.create_session("plain").await;
    let accepted = daemon.prompt(&session, "go").await;
    let gate = daemon.gate("plain").reached("in turn").await;
    let made = add(&daemon, &session, json!({"name": "half", "state": [1, 2]})).await.expect_status(201);
    assert_eq!(made["turnId"], accepted["turnId"]);
    let mut events = daemon.events(&session, None).await;
    let seen = events.until("checkpoint.created").await;
    let event = seen.last().unwrap();
    assert_eq!(event.data["sequence"], made["sequence"]);
    assert_eq!(event.data["turnId"], accepted["turnId"]);
    let expected = json!({"checkpointId": made["id"], "name": "half", "bytes": 5, "by": made["by"]});
    assert_eq!(event.data["data"], expected);
    gate.open().await;
}

#[tokio::test]
async fn what_cannot_be_a_checkpoint_is_refused_with_its_field() {
    let mut daemon = Daemon::builder()
        .config("[limits]\ncheckpoint_max = \"1KiB\"\n[control]\nrequests_per_second = 10000")
        .agent("plain", script())
        .start()
        .await;
    let session = daemon.create_lazy_session("plain").await;
    let deep = format!("{}{}", "[".repeat(101), "]".repeat(101));
    for (body, field) in [
        (json!({}), "name"),
        (json!({"name": " "}), "name"),
        (json!({"name": ".."}), "name"),
        (json!({"name": "a\nb"}), "name"),
        (json!({"name": "x".repeat(129)}), "name"),
        (json!({"name": "x", "more": 1}), "more"),
        (json!({"name": "x", "state": "x".repeat(1024)}), "state"),
        (json!({"name": "x", "state": serde_json::from_str::<Value>(&deep).unwrap()}), "state"),
    ] {
        let refused = add(&daemon, &session, body).await.refused(400, "invalid_request");
        assert_eq!(refused["details"]["field"], field, "{refused}");
    }
    add(&daemon, &session, json!({"name": "x", "state": "x".repeat(1022)})).await.expect_status(201);
    let refused = add(&daemon, &session, json!({"name": "x"})).await.refused(409, "checkpoint_exists");
    assert_eq!(refused["details"]["name"], "x");
    for number in 1..256 {
        add(&daemon, &session, json!({"name": format!("{number}")})).await.expect_status(201);
    }
    assert_eq!(
        add(&daemon, &session, json!({"name": "y"})).await.refused(409, "checkpoint_limit")["details"]["max"],
        256
    );

    // A session that rests has them, one that is over has them no more.
    daemon.restart().await;
    let second = daemon.create_lazy_session("plain").await;
    daemon.restart().await;
    assert_eq!(daemon.session(&second).await["status"], "suspended");
    add(&daemon, &second, json!({"name": "x"})).await.expect_status(201);
    daemon.post(&format!("/v1/sessions/{second}/archive"), json!({})).await.expect_status(200);
    add(&daemon, &second, json!({"name": "y"})).await.refused(409, "session_archived");
    daemon.get(&format!("/v1/sessions/{second}/checkpoints/x")).await.expect_status(200);
    let nobody = "01a1e272-8a8e-762f-a984-29c55e0e6330";
    add(&daemon, nobody, json!({"name": "x"})).await.refused(404, "session_not_found");
    daemon.get(&format!("/v1/sessions/{nobody}/checkpoints")).await.refused(404, "session_not_found");
}

#[tokio::test]
async fn one_key_makes_one_checkpoint() {
    let daemon = Daemon::builder().agent("plain", script()).start().await;
    let session = daemon.create_lazy_session("plain").await;
    let path = format!("/v1/sessions/{session}/checkpoints");
    let body = json!({"name": "half", "state": 1});
    let key = [("idempotency-key", "k-1")];
    let first = daemon.request_with("POST", &path, &key, Some(body.clone())).await.expect_status(201);
    let again = daemon.request_with("POST", &path, &key, Some(body)).await;
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    assert_eq!(again.expect_status(201), first);
    let other = daemon.request_with("POST", &path, &key, Some(json!({"name": "other"}))).await;
    other.refused(422, "idempotency_mismatch");

    let path = format!("{path}/half/restore");
    let body = json!({"newSession": {"start": "lazy"}});
    let first = daemon.request_with("POST", &path, &key, Some(body.clone())).await.expect_status(201);
    let again = daemon.request_with("POST", &path, &key, Some(body)).await.expect_status(201);
    assert_eq!(again["session"]["id"], first["session"]["id"]);

    // The same words about another checkpoint are another request.
    add(&daemon, &session, json!({"name": "whole"})).await.expect_status(201);
    let path = format!("/v1/sessions/{session}/checkpoints/whole/restore");
    let body = json!({"newSession": {"start": "lazy"}});
    daemon.request_with("POST", &path, &key, Some(body)).await.refused(422, "idempotency_mismatch");
}

#[tokio::test]
async fn a_new_session_goes_on_from_a_checkpoint_through_the_death_of_the_daemon() {
    let mut daemon = Daemon::builder().agent("plain", script()).agent("other", script()).start().await;
    let body = json!({"workspace": daemon.workspace(), "agent": "plain", "title": "first", "tags": ["a"],
        "start": "lazy", "permissions": {"mode": "deny"}, "limits": {"turnCap": 7}});
    let session = daemon.post("/v1/sessions", body).await.expect_status(201);
    let id = session["id"].as_str().unwrap().to_owned();
    let made =
        add(&daemon, &id, json!({"name": "half", "state": {"next": "write the tests"}})).await.expect_status(201);
    let path = format!("/v1/sessions/{id}/checkpoints/half/restore");

    // The state alone, without a body.
    let restored = daemon.request("POST", &path, None).await.expect_status(200);
    assert_eq!(restored, json!({"checkpoint": made, "state": {"next": "write the tests"}}));
    assert_eq!(daemon.post(&path, json!({"newSession": false})).await.expect_status(200), restored);

    let restored = daemon.post(&path, json!({"newSession": {"start": "lazy"}})).await.expect_status(201);
    let new = &restored["session"];
    assert_eq!((&restored["checkpoint"], &restored["state"]), (&made, &made["state"]));
    let origin = json!({"sessionId": id, "checkpointId": made["id"], "name": "half"});
    assert_eq!(new["restoredFrom"], origin);
    for field in ["workspaceId", "agent", "tags", "permissions", "limits"] {
        assert_eq!(new[field], session[field], "{field}");
    }
    assert_eq!((&new["title"], &new["turns"]), (&json!(""), &json!(0)));
    daemon.kill().await;
    daemon.restart().await;

    let new = new["id"].as_str().unwrap();
    assert_eq!(daemon.session(new).await["restoredFrom"], origin);
    daemon.prompt_and_wait(new, "go on").await;
    daemon.prompt_and_wait(new, "and on").await;
    let heard = prompts(&daemon.heard("plain"));
    let [context, prompt] = &heard[0][..] else { panic!("{heard:?}") };
    assert!(context.contains("the checkpoint \"half\"") && context.contains(&id), "{context}");
    assert!(context.ends_with("{\"next\":\"write the tests\"}"), "{context}");
    assert_eq!((prompt.as_str(), &heard[1]), ("go on", &vec!["and on".to_owned()]), "once");

    // With another agent, and after the first session is gone with its checkpoints.
    let wanted = json!({"newSession": {"agent": "other", "title": "second", "tags": [], "start": "lazy"}});
    let other = daemon.post(&path, wanted).await.expect_status(201)["session"].clone();
    assert_eq!((&other["agent"], &other["title"], &other["tags"]), (&json!("other"), &json!("second"), &json!([])));
    assert_eq!(other["permissions"]["mode"], daemon.get("/v1/agents/other").await.body["permissions"]["mode"]);
    daemon.request("DELETE", &format!("/v1/sessions/{id}?purge=true"), None).await.expect_status(200);
    assert_eq!(daemon.sql_number("SELECT count(*) FROM checkpoints".to_owned()).await, 0);
    daemon.post(&path, json!({})).await.refused(404, "session_not_found");
    let other = other["id"].as_str().unwrap();
    assert_eq!(daemon.session(other).await["restoredFrom"], origin, "it still tells");
    daemon.prompt_and_wait(other, "hello").await;
    assert!(prompts(&daemon.heard("other"))[0][0].contains("write the tests"));
}

#[tokio::test]
async fn what_a_new_session_cannot_be_is_refused_and_nothing_is_made() {
    let daemon = Daemon::builder().agent("plain", script()).start().await;
    let session = daemon.create_lazy_session("plain").await;
    add(&daemon, &session, json!({"name": "half"})).await.expect_status(201);
    let path = format!("/v1/sessions/{session}/checkpoints/half/restore");
    for (wanted, field) in [
        (json!("yes"), "newSession"),
        (json!({"titel": "x"}), "newSession.titel"),
        (json!({"title": "x".repeat(201)}), "title"),
        (json!({"tags": [""]}), "tags"),
    ] {
        let refused = daemon.post(&path, json!({"newSession": wanted})).await.refused(400, "invalid_request");
        assert_eq!(refused["details"]["field"], field, "{refused}");
    }
    daemon.post(&path, json!({"newSession": {"agent": "nobody"}})).await.refused(404, "agent_not_found");
    daemon.post(&path.replace("half", "none"), json!({})).await.refused(404, "checkpoint_not_found");
    assert_eq!(daemon.get("/v1/sessions").await.body["total"], 1);
}

#[tokio::test]
async fn a_secret_is_kept_out_of_names_and_states() {
    const SECRET: &str = "sk-0123456789abcdef";
    let daemon = Daemon::builder()
        .agent_with("plain", script(), "env_pass = [\"PLAIN_KEY\"]")
        .env("PLAIN_KEY", SECRET)
        .start()
        .await;
    let session = daemon.create_session("plain").await;
    daemon.prompt_and_wait(&session, "hello").await;
    let name = format!("with {SECRET}");
    let made = add(&daemon, &session, json!({"name": name, "state": {"key": SECRET}})).await.expect_status(201);
    assert_eq!(
        (&made["name"], &made["state"]["key"]),
        (&json!("with [redacted:PLAIN_KEY]"), &json!("[redacted:PLAIN_KEY]"))
    );
    add(&daemon, &session, json!({"name": name})).await.refused(409, "checkpoint_exists");
    let (path, key) = (format!("/v1/sessions/{session}/checkpoints"), [("idempotency-key", "k-1")]);
    let body = json!({"name": format!("more {SECRET}")});
    let first = daemon.request_with("POST", &path, &key, Some(body.clone())).await.expect_status(201);
    assert_eq!(daemon.request_with("POST", &path, &key, Some(body)).await.expect_status(201), first);
}

#[tokio::test]
async fn checkpoints_of_another_user_are_not_there() {
    if users().len() == 1 {
        return harness::say("SKIPPED: only root can be several users");
    }
    let daemon = Daemon::builder().owner(ORDINARY).agent("plain", script()).start().await;
    let member = daemon.as_user(ORDINARY, &[]);
    let theirs = member.create_lazy_session("plain").await;
    let path = format!("/v1/sessions/{theirs}/checkpoints");
    member.request("POST", &path, Some(json!({"name": "theirs"}))).await.expect_status(201);
    let roots = daemon.create_lazy_session("plain").await;
    add(&daemon, &roots, json!({"name": "roots"})).await.expect_status(201);

    assert_eq!(names(&member.get("/v1/checkpoints").await.expect_status(200)), ["theirs"]);
    let path = format!("/v1/sessions/{roots}/checkpoints");
    member.get(&path).await.refused(404, "session_not_found");
    member.get(&format!("{path}/roots")).await.refused(404, "session_not_found");
    member.request("POST", &path, Some(json!({"name": "x"}))).await.refused(404, "session_not_found");
    member.request("POST", &format!("{path}/roots/restore"), None).await.refused(404, "session_not_found");
    assert_eq!(names(&daemon.get("/v1/checkpoints").await.expect_status(200)), ["roots"], "root's own, unless all");
    assert_eq!(names(&daemon.get("/v1/checkpoints?all=true").await.expect_status(200)), ["roots", "theirs"]);
}

#[tokio::test]
async fn the_command_line_makes_lists_shows_and_restores() {
    let daemon = Daemon::builder().agent("plain", script()).agent("other", script()).start().await;
    let session = daemon.cli(&["new", "--lazy", "--agent", "plain", "--title", "first"]).await.success();
    let id = daemon.cli(&["checkpoint", "create", "first", "half", "--state", "{\"next\": [1, 2]}"]).await.success();
    assert_eq!(id.trim().len(), 36, "{id}");
    std::fs::write(daemon.workspace().join("state.json"), "\"from a file\"").unwrap();
    daemon.cli(&["checkpoint", "create", "-", "a/b c", "--state", "@state.json"]).await.success();
    let piped = daemon.cli_with_input(&["checkpoint", "create", "-", "piped", "--state", "-"], "{\"a\": 1}\n").await;
    piped.success();

    let list = daemon.cli(&["checkpoint", "list", "first"]).await.success();
    let names: Vec<&str> = list.lines().map(|line| line.split("  ").next().unwrap()).collect();
    assert_eq!(names, ["NAME", "piped", "a/b c", "half"], "{list}");
    assert_eq!(daemon.cli(&["checkpoint", "list", "-", "--json"]).await.json()["total"], 3);
    let shown = daemon.cli(&["checkpoint", "show", "-", "half"]).await.success();
    assert_eq!(shown, "{\"next\": [1, 2]}\n", "as it was written");
    assert_eq!(daemon.cli(&["checkpoint", "show", "-", "a/b c", "--json"]).await.json()["state"], "from a file");
    let seen = daemon.terminal(80, 24, &["checkpoint", "show", "-", "half"]).ended().await;
    assert!(seen.screen.contains("\"next\": [\n"), "laid out for a person: {}", seen.screen);

    assert_eq!(daemon.cli(&["checkpoint", "restore", "-", "piped"]).await.success(), "{\"a\": 1}\n");
    let new =
        daemon.cli(&["checkpoint", "restore", "first", "half", "--new", "--title", "second", "--agent", "other"]).await;
    let new = new.success().trim().to_owned();
    let row = daemon.session(&new).await;
    assert_eq!((&row["title"], &row["agent"]), (&json!("second"), &json!("other")));
    assert_eq!(row["restoredFrom"]["sessionId"], session.trim());
    assert!(daemon.cli(&["show", "second"]).await.success().contains("half of"), "it tells where it comes from");

    for (arguments, told) in [
        (vec!["create", "first", "half"], "already has a checkpoint \"half\""),
        (vec!["create", "first", ""], "the name must not be empty"),
        (vec!["create", "first", "x", "--state", "{next}"], "is not valid JSON"),
        (vec!["create", "first", "x", "--state", "@/nowhere"], "cannot read /nowhere"),
        (vec!["show", "first", "none"], "has no checkpoint \"none\""),
        (vec!["list", "nobody"], "there is no session \"nobody\""),
    ] {
        let refused = daemon.cli(&[vec!["checkpoint"], arguments.clone()].concat()).await;
        assert_eq!(refused.code, 1, "{arguments:?}");
        assert!(
            refused.stderr.contains(told) && refused.stderr.contains("hint: "),
            "{arguments:?}: {}",
            refused.stderr
        );
    }
    assert_eq!(
        daemon.cli(&["checkpoint", "restore", "first", "half", "--title", "x"]).await.code,
        2,
        "of a new one only"
    );
}
