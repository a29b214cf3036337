//! Records of sessions: derived, submitted, listed; and timelines over them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod harness;

use harness::{Daemon, ORDINARY, users};
use serde_json::{Value, json};

/// A record that another program may have kept.
fn record(session: &str, day: u32) -> Value {
    json!({
        "session_id": session,
        "actions": [{"type": "edit", "result": "success", "timestamp": format!("2026-01-{day:02}T10:00:10Z")}],
        "started_at": format!("2026-01-{day:02}T10:00:00Z"),
        "ended_at": format!("2026-01-{day:02}T10:01:00Z"),
        "duration": 60,
    })
}

fn with(mut record: Value, fields: Value) -> Value {
    let Value::Object(fields) = fields else { panic!("{fields}") };
    record.as_object_mut().unwrap().extend(fields);
    record
}

async fn submit(daemon: &Daemon, record: Value) -> Value {
    daemon.post("/v1/records", record).await.expect_status(201)
}

fn pluck<'a>(list: &'a Value, field: &str, of: &str) -> Vec<&'a Value> {
    list[field].as_array().unwrap().iter().map(|item| item.pointer(of).unwrap_or(&Value::Null)).collect()
}

fn tool(id: &str, status: &str) -> Value {
    let call = json!({"sessionUpdate": "tool_call", "toolCallId": id, "title": format!("tool {id}"), "kind": "edit",
        "status": "pending", "rawInput": {"path": "a.rs"}});
    let update = json!({"sessionUpdate": "tool_call_update", "toolCallId": id, "status": status,
        "content": [{"type": "content", "content": {"type": "text", "text": "done"}}]});
    json!([{"update": call}, {"update": update}])
}

#[tokio::test]
async fn the_record_of_a_session_is_derived_from_its_turns_and_tools() {
    let steps = |parts: &[Value]| parts.iter().flat_map(|part| part.as_array().unwrap().clone()).collect::<Vec<_>>();
    let first = steps(&[tool("a", "completed"), tool("b", "failed"), json!([{"text": "ok"}])]);
    let open =
        json!({"update": {"sessionUpdate": "tool_call", "toolCallId": "c", "title": "tool c", "kind": "execute"}});
    let script = json!([
        {"handshake": {}},
        {"prompt": first},
        {"expect": "session/prompt"}, open, {"gate": "cut off"}, {"expect": "session/cancel"},
        {"reply": {"stopReason": "cancelled"}},
        {"expect": "session/prompt"}, {"replyError": {"code": -32603, "message": "it broke"}},
        {"expect": "session/prompt"},
    ]);
    let daemon = Daemon::builder().agent("plain", script).start().await;
    let session = daemon.create_session("plain").await;
    let path = format!("/v1/sessions/{session}/record");
    let empty = daemon.get(&path).await.expect_status(200);
    let start = json!({"type": "session_start", "result": "success", "timestamp": empty["started_at"]});
    assert_eq!((&empty["actions"], &empty["truncated"]), (&json!([start]), &json!(false)));
    let other = with(empty.clone(), json!({"session_id": "as acpd derives it"}));
    assert_eq!(submit(&daemon, other).await["warnings"], json!([]), "the record of an empty session is valid too");
    daemon.prompt_and_wait(&session, "one").await;
    let accepted = daemon.prompt(&session, "two").await;
    let gate = daemon.gate("plain").reached("cut off").await;
    let running = daemon.get(&path).await.expect_status(200);
    assert_eq!(running["actions"].as_array().unwrap().len(), 3, "what has not ended is no action yet: {running}");
    daemon.post(&format!("/v1/sessions/{session}/cancel"), json!({})).await.expect_status(202);
    gate.open().await;
    daemon.wait_turn(&session, accepted["turnId"].as_str().unwrap()).await;
    daemon.prompt_and_wait(&session, "three").await;
    let checkpoints = format!("/v1/sessions/{session}/checkpoints");
    let state = json!({"name": "half", "state": {"step": 1}});
    let checkpoint = daemon.post(&checkpoints, state).await.expect_status(201);
    let list = daemon.post(&checkpoints, json!({"name": "list", "state": [1]})).await.expect_status(201);

    let record = daemon.get(&path).await.expect_status(200);
    let shown: Vec<(&str, &str)> = record["actions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|action| (action["type"].as_str().unwrap(), action["result"].as_str().unwrap()))
        .collect();
    let expected = [
        ("tool_call", "success"),
        ("tool_call", "failure"),
        ("turn", "success"),
        ("tool_call", "warning"),
        ("turn", "warning"),
        ("turn", "failure"),
    ];
    assert_eq!(shown, expected, "{record:#}");
    let details = &record["actions"][0]["details"];
    assert_eq!((&details["name"], &details["arguments"]), (&json!("tool a"), &json!({"path": "a.rs"})));
    assert_eq!(record["actions"][5]["details"]["error"]["code"], "agent_error");
    let half = json!({"name": "half", "timestamp": checkpoint["createdAt"], "state": {"step": 1}});
    let list = json!({"name": "list", "timestamp": list["createdAt"], "state": {"value": [1]}});
    assert_eq!((&record["checkpoints"], &record["outcomes"]), (&json!([half, list]), &json!([])));
    let row = daemon.session(&session).await;
    assert_eq!((&record["session_id"], &record["started_at"]), (&row["id"], &row["createdAt"]));
    assert_eq!(record["ended_at"], Value::Null, "it can go on");
    assert_eq!(daemon.get(&path).await.expect_status(200), record, "no clock is in it");

    // What acpd derives is a record that it takes.
    let taken = daemon.post("/v1/records", record.clone()).await.expect_status(201);
    assert_eq!(taken, json!({"entity_id": session, "observation_count": 1, "warnings": []}));
    assert_eq!(daemon.get(&path).await.expect_status(200), record, "and knows for its own");
    let timeline = daemon.get(&format!("/v1/timeline?entity={session}")).await.expect_status(200);
    assert_eq!(pluck(&timeline, "timeline", "/type"), ["session_start", "checkpoint", "checkpoint"], "{timeline}");
    daemon.post(&format!("/v1/sessions/{session}/archive"), json!({})).await.expect_status(200);
    let ended = daemon.get(&path).await.expect_status(200);
    assert_eq!(ended["ended_at"], daemon.session(&session).await["statusChangedAt"]);
}

#[tokio::test]
async fn what_is_submitted_for_a_session_of_ones_own_is_part_of_its_record() {
    let daemon = Daemon::builder().agent("plain", harness::echo()).start().await;
    let session = daemon.create_session("plain").await;
    daemon.prompt_and_wait(&session, "one").await;
    let said = json!({
        "session_id": session,
        "actions": [{"type": "review", "result": "skipped"}],
        "checkpoints": [{"name": "theirs", "timestamp": "2020-01-01T00:00:00Z"}],
        "outcomes": [{"type": "issue", "id": "ISSUE-1", "details": {"state": "closed"}}],
        "started_at": "2020-01-01T00:00:00Z",
        "tool": {"version": 2},
    });
    assert_eq!(submit(&daemon, said.clone()).await["entity_id"], json!(session));
    let record = daemon.get(&format!("/v1/sessions/{session}/record")).await.expect_status(200);
    assert_eq!(pluck(&record, "actions", "/type"), ["turn", "review"]);
    assert_eq!((&record["outcomes"], &record["tool"]), (&said["outcomes"], &said["tool"]));
    assert_eq!(pluck(&record, "checkpoints", "/name"), ["theirs"]);
    assert_eq!(record["started_at"], daemon.session(&session).await["createdAt"], "of its own times acpd knows better");
    let entity = daemon.get(&format!("/v1/records/{session}")).await.expect_status(200);
    assert_eq!((&entity["snapshot"], &entity["observation_count"]), (&record, &json!(1)));
    assert_eq!(entity["observations"][0]["content"], said);

    daemon.request("DELETE", &format!("/v1/sessions/{session}?purge=true"), None).await.expect_status(200);
    daemon.get(&format!("/v1/records/{session}")).await.refused(404, "record_not_found");
    for table in ["record_entities", "record_observations", "record_moments"] {
        assert_eq!(daemon.sql_number(format!("SELECT count(*) FROM {table}")).await, 0, "{table}");
    }
}

#[tokio::test]
async fn every_rule_is_refused_with_its_field() {
    let daemon = Daemon::builder().start().await;
    let good = || {
        with(
            record("s-100", 1),
            json!({
                "actions": [{"type": "edit", "result": "success", "timestamp": null, "details": null}],
                "checkpoints": [{"name": "half", "timestamp": "2026-01-01T10:00:30Z", "state": null}],
                "outcomes": [{"type": "issue", "id": null, "details": null}],
            }),
        )
    };
    for (place, value, field) in [
        ("/session_id", json!("s-10"), "session_id"),
        ("/session_id", json!(null), "session_id"),
        ("/actions", json!([]), "actions"),
        ("/actions", json!({}), "actions"),
        ("/actions/0", json!("edit"), "actions[0]"),
        ("/actions/0/type", json!(""), "actions[0].type"),
        ("/actions/0/result", json!(null), "actions[0].result"),
        ("/actions/0/result", json!(" "), "actions[0].result"),
        ("/actions/0/details", json!("fast"), "actions[0].details"),
        ("/actions/0/timestamp", json!("2026-01-01 10:00"), "actions[0].timestamp"),
        ("/checkpoints", json!("half"), "checkpoints"),
        ("/checkpoints/0/name", json!(""), "checkpoints[0].name"),
        ("/checkpoints/0/timestamp", json!(null), "checkpoints[0].timestamp"),
        ("/checkpoints/0/state", json!([1]), "checkpoints[0].state"),
        ("/outcomes", json!(7), "outcomes"),
        ("/outcomes/0/id", json!(7), "outcomes[0].id"),
        ("/outcomes/0/details", json!(true), "outcomes[0].details"),
        ("/started_at", json!(null), "started_at"),
        ("/outcomes/0/type", json!(7), "outcomes[0].type"),
        ("/started_at", json!("soon"), "started_at"),
        ("/ended_at", json!("2026-01-01T09:59:59Z"), "ended_at"),
        ("/duration", json!(0), "duration"),
        ("/duration", json!("60"), "duration"),
    ] {
        let mut document = good();
        *document.pointer_mut(place).unwrap() = value.clone();
        let refused = daemon.post("/v1/records", document).await.refused(422, "schema_validation_failed");
        let details = refused["details"].as_object().unwrap();
        assert_eq!((&details["field"], &details["value"]), (&json!(field), &value), "{refused}");
        let is_told = |name: &str| details[name].as_str().is_some_and(|text| !text.is_empty());
        assert!(is_told("expected") && is_told("message"), "{refused}");
    }
    let mut without = good();
    without.as_object_mut().unwrap().remove("actions");
    let refused = daemon.post("/v1/records", without).await.refused(422, "schema_validation_failed");
    assert_eq!((&refused["details"]["field"], &refused["details"]["value"]), (&json!("actions"), &Value::Null));
    let large = with(good(), json!({"session_id": "x".repeat(100_000)}));
    let refused = daemon.post("/v1/records", large).await.refused(422, "schema_validation_failed");
    assert!(refused["details"]["value"].as_str().unwrap().len() < 1000);
    daemon.post("/v1/records", json!([good()])).await.refused(400, "invalid_request");
    daemon.post("/v1/records", with(good(), json!({"more": "x".repeat(2 << 20)}))).await.refused(413, "body_too_large");
    assert_eq!(daemon.get("/v1/records").await.body["total"], 0, "nothing was recorded");

    let odd =
        with(good(), json!({"duration": 99, "checkpoints": [{"name": "late", "timestamp": "2026-01-02T00:00:00Z"}]}));
    let taken = submit(&daemon, odd).await;
    assert_eq!(pluck(&taken, "warnings", "/field"), ["duration", "checkpoints[0].timestamp"]);
}

#[tokio::test]
async fn observations_become_one_entity_of_which_each_fields_latest_counts() {
    let mut daemon = Daemon::builder().start().await;
    let first =
        with(record("s-100", 1), json!({"outcomes": [{"type": "issue", "id": "I-1"}], "author": {"name": "a"}}));
    let taken = submit(&daemon, first.clone()).await;
    let id = taken["entity_id"].as_str().unwrap().to_owned();
    assert_eq!(taken["observation_count"], 1);
    let second = json!({"session_id": "s-100", "actions": [{"type": "test", "result": "flaky"}], "duration": 61,
        "author": {"mail": "m"}, "started_at": first["started_at"], "ended_at": null});
    assert_eq!(submit(&daemon, second.clone()).await, json!({"entity_id": id, "observation_count": 2, "warnings": []}));
    // Said again, in another order: it is known.
    let reordered = json!({"duration": 61, "author": {"mail": "m"}, "ended_at": null, "started_at": first["started_at"],
        "actions": [{"result": "flaky", "type": "test"}], "session_id": "s-100"});
    assert_eq!(daemon.post("/v1/records", reordered).await.expect_status(200)["observation_count"], 2);
    daemon.restart().await;

    let entity = daemon.get(&format!("/v1/records/{id}")).await.expect_status(200);
    let snapshot = json!({"session_id": "s-100", "actions": second["actions"], "started_at": first["started_at"],
        "ended_at": first["ended_at"], "duration": 61, "outcomes": first["outcomes"], "author": {"mail": "m"},
        "checkpoints": []});
    assert_eq!((&entity["snapshot"], &entity["observation_count"]), (&snapshot, &json!(2)));
    assert_eq!(pluck(&entity, "observations", "/content"), [&first, &second]);
    assert_eq!(daemon.get("/v1/records/s-100").await.expect_status(200), entity, "by its session_id too");
    daemon.get("/v1/records/s-101").await.refused(404, "record_not_found");
}

#[tokio::test]
async fn records_are_listed_in_the_order_that_is_asked_for() {
    let daemon = Daemon::builder().agent("plain", harness::echo()).start().await;
    let own = daemon.create_lazy_session("plain").await;
    submit(&daemon, record("s-bbb", 2)).await;
    submit(&daemon, with(record("s-aaa", 3), json!({"duration": 5}))).await;
    submit(&daemon, with(record("s-ccc", 1), json!({"ended_at": null, "duration": null}))).await;
    submit(&daemon, with(record("s-bbb", 2), json!({"more": 1}))).await;
    let own = own.as_str();
    for (query, expected) in [
        ("", vec![own, "s-aaa", "s-bbb", "s-ccc"]),
        ("?order=asc", vec!["s-ccc", "s-bbb", "s-aaa", own]),
        ("?order_by=session_id&order=asc", vec![own, "s-aaa", "s-bbb", "s-ccc"]),
        ("?order_by=duration&source=submitted", vec!["s-bbb", "s-aaa", "s-ccc"]),
        ("?order_by=ended_at&order=asc&limit=2", vec!["s-bbb", "s-aaa"]),
        ("?order_by=observation_count&limit=1", vec!["s-bbb"]),
        ("?order_by=last_observed_at&limit=2&source=submitted", vec!["s-bbb", "s-ccc"]),
        ("?source=derived", vec![own]),
        ("?limit=1&offset=1", vec!["s-aaa"]),
    ] {
        let list = daemon.get(&format!("/v1/records{query}")).await.expect_status(200);
        assert_eq!(pluck(&list, "records", "/snapshot/session_id"), expected, "{query}");
    }
    let list = daemon.get("/v1/records?limit=1&source=submitted").await.expect_status(200);
    assert_eq!((&list["total"], &list["limit"], &list["offset"]), (&json!(3), &json!(1), &json!(0)));
    for (query, field) in
        [("order_by=size", "order_by"), ("order=up", "order"), ("source=x", "source"), ("limit=101", "limit")]
    {
        let refused = daemon.get(&format!("/v1/records?{query}")).await.refused(400, "invalid_request");
        assert_eq!(refused["details"]["field"], field);
    }
}

#[tokio::test]
async fn a_day_without_a_time_is_the_whole_day() {
    let daemon = Daemon::builder().start().await;
    let outcome = json!({"outcomes": [{"type": "issue", "id": "I-1"}]});
    for day in 1..=2 {
        let name = format!("s-10{day}");
        submit(&daemon, with(record(&name, day), outcome.clone())).await;
    }
    let millisecond = json!({"checkpoints": [{"name": "last", "timestamp": "2026-01-02T23:59:59.999Z"}]});
    submit(&daemon, with(record("s-102", 2), millisecond)).await;
    for (query, total) in [
        ("from=2026-01-02&to=2026-01-02", 4),
        ("start_date=2026-01-01&end_date=2026-01-02", 7),
        ("to=2026-01-02T00:00:00Z", 3),
        ("to=2025-12-31", 0),
        ("from=2026-01-03", 0),
    ] {
        let days = daemon.get(&format!("/v1/timeline?entity_id=I-1&{query}")).await.expect_status(200);
        assert_eq!(days["total"], total, "{query}: {days}");
    }
    for (query, field) in [("from=soon", "from"), ("to=2026-02-30", "to"), ("end_date=", "to")] {
        let refused = daemon.get(&format!("/v1/timeline?entity=I-1&{query}")).await.refused(400, "invalid_request");
        assert_eq!(refused["details"]["field"], field);
    }
}

#[tokio::test]
async fn a_timeline_goes_across_sessions_in_order() {
    let daemon = Daemon::builder().agent("plain", harness::echo()).start().await;
    let own = daemon.create_lazy_session("plain").await;
    // They come in another order than they happened.
    submit(&daemon, with(record("s-two", 2), json!({
        "checkpoints": [{"name": "second", "timestamp": "2026-01-02T10:00:00Z", "state": {"large": true}}],
        "outcomes": [{"type": "issue", "id": "I-1", "details": {"state": "closed"}}, {"type": "issue", "id": "I-2"}],
    }))).await;
    let one = submit(
        &daemon,
        with(
            record("s-one", 1),
            json!({
                "outcomes": [{"type": "issue", "id": "I-1", "details": {"timestamp": "2026-01-01T10:00:30Z"}}],
            }),
        ),
    )
    .await;
    submit(&daemon, with(record("s-three", 3), json!({"outcomes": [{"type": "issue", "id": "I-3"}]}))).await;
    let closing = with(record(&own, 4), json!({"outcomes": [{"type": "release", "id": "I-1"}]}));
    submit(&daemon, closing).await;
    daemon.post(&format!("/v1/sessions/{own}/checkpoints"), json!({"name": "mine"})).await.expect_status(201);
    daemon.post(&format!("/v1/sessions/{own}/archive"), json!({})).await.expect_status(200);

    let timeline = daemon.get("/v1/timeline?entity=I-1").await.expect_status(200);
    let shown: Vec<(&str, &str)> = timeline["timeline"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| (item["session_id"].as_str().unwrap(), item["type"].as_str().unwrap()))
        .collect();
    let own = own.as_str();
    let expected = [
        ("s-one", "session_start"),
        ("s-one", "outcome"),
        ("s-one", "session_end"),
        ("s-two", "session_start"),
        ("s-two", "checkpoint"),
        ("s-two", "outcome"),
        ("s-two", "session_end"),
        (own, "session_start"),
        (own, "checkpoint"),
        (own, "outcome"),
        (own, "session_end"),
    ];
    assert_eq!(shown, expected, "{timeline:#}");
    let items = &timeline["timeline"];
    assert_eq!(items[1]["timestamp"], "2026-01-01T10:00:30.000Z");
    assert_eq!(items[5]["timestamp"], items[6]["timestamp"], "an outcome without a time is at its session's end");
    assert_eq!(items[4]["checkpoint"], json!({"name": "second", "timestamp": "2026-01-02T10:00:00Z"}));
    assert_eq!(items[5]["outcome"]["details"]["state"], "closed");
    assert_eq!((&items[0]["entity_id"], &timeline["total"]), (&one["entity_id"], &json!(11)));
    assert_eq!(items[9]["outcome"], json!({"type": "release", "id": "I-1"}));

    let page =
        daemon.get("/v1/timeline?entity=I-1&from=2026-01-01T10:00:30Z&to=2026-01-02T10:00:00Z&limit=3&offset=1").await;
    let page = page.expect_status(200);
    assert_eq!(
        (pluck(&page, "timeline", "/type"), &page["total"]),
        (vec![&json!("session_end"), &json!("session_start"), &json!("checkpoint")], &json!(4))
    );
    // Asked for by its own name, a session has all of its outcomes.
    let two = daemon.get("/v1/timeline?entity=s-two").await.expect_status(200);
    assert_eq!(pluck(&two, "timeline", "/outcome/id")[2..4], [&json!("I-1"), &json!("I-2")]);
    let by_id =
        daemon.get(&format!("/v1/timeline?entity={}", one["entity_id"].as_str().unwrap())).await.expect_status(200);
    assert_eq!(pluck(&by_id, "timeline", "/type"), ["session_start", "outcome", "session_end"]);
    assert_eq!(daemon.get(&format!("/v1/timeline?entity={own}")).await.body["total"], 4);
    assert_eq!(daemon.get("/v1/timeline?entity=nothing").await.expect_status(200)["timeline"], json!([]));
    assert_eq!(daemon.get("/v1/timeline").await.refused(400, "invalid_request")["details"]["field"], "entity");
}

#[tokio::test]
async fn a_timeline_of_large_outcomes_comes_in_pages() {
    let daemon = Daemon::builder().start().await;
    for number in 0..12 {
        let outcome = json!({"type": "issue", "id": "I-1", "details": {"log": "x".repeat(1000 << 10)}});
        submit(&daemon, with(record(&format!("s-{number:03}"), 1), json!({"outcomes": [outcome]}))).await;
    }
    let mut seen = 0;
    while seen < 36 {
        let page = daemon.get(&format!("/v1/timeline?entity=I-1&offset={seen}")).await.expect_status(200);
        let shown = page["timeline"].as_array().unwrap().len();
        assert!(shown > 0 && page.to_string().len() < 10 << 20, "{shown} of {}", page["total"]);
        assert!(seen > 0 || shown < 36, "not all at once");
        seen += shown;
    }
}

#[tokio::test]
async fn an_outcome_that_is_said_anew_replaces_what_was_said() {
    let daemon = Daemon::builder().start().await;
    let open = with(record("s-100", 1), json!({"outcomes": [{"type": "issue", "id": "I-1"}]}));
    submit(&daemon, open.clone()).await;
    submit(&daemon, with(open.clone(), json!({"outcomes": null, "more": 1}))).await;
    assert_eq!(daemon.get("/v1/timeline?entity=I-1").await.body["total"], 3, "null says nothing");
    submit(&daemon, with(open, json!({"outcomes": [{"type": "issue", "id": "I-2"}]}))).await;
    assert_eq!(daemon.get("/v1/timeline?entity=I-1").await.body["total"], 0);
    assert_eq!(daemon.get("/v1/timeline?entity=I-2").await.body["total"], 3);
}

#[tokio::test]
async fn records_and_timelines_of_another_user_are_not_there() {
    if users().len() == 1 {
        return harness::say("SKIPPED: only root can be several users");
    }
    let daemon = Daemon::builder().owner(ORDINARY).agent("plain", harness::echo()).start().await;
    let member = daemon.as_user(ORDINARY, &[]);
    let roots = daemon.create_lazy_session("plain").await;
    let outcome = json!({"outcomes": [{"type": "issue", "id": "I-1"}]});
    let mine = submit(&daemon, with(record("s-100", 1), outcome.clone())).await;
    let theirs = with(record("s-100", 2), outcome);
    let theirs = member.request("POST", "/v1/records", Some(theirs)).await.expect_status(201);
    assert_ne!(mine["entity_id"], theirs["entity_id"], "one name, two owners, two entities");
    assert_eq!(theirs["observation_count"], 1);
    // A session of root's is nobody's to speak for.
    let spoken = member.request("POST", "/v1/records", Some(record(&roots, 3))).await.expect_status(201);
    assert_ne!(spoken["entity_id"], json!(roots));
    assert_eq!(daemon.get(&format!("/v1/sessions/{roots}/record")).await.body["actions"][0]["type"], "session_start");

    let list = member.get("/v1/records").await.expect_status(200);
    assert_eq!(pluck(&list, "records", "/entity_id"), [&spoken["entity_id"], &theirs["entity_id"]]);
    let mine = mine["entity_id"].as_str().unwrap();
    member.get(&format!("/v1/records/{mine}")).await.refused(404, "record_not_found");
    member.get(&format!("/v1/sessions/{roots}/record")).await.refused(404, "session_not_found");
    assert_eq!(member.get("/v1/records/s-100").await.body["entity_id"], theirs["entity_id"]);
    let timeline = member.get("/v1/timeline?entity=I-1").await.expect_status(200);
    assert_eq!(pluck(&timeline, "timeline", "/entity_id"), [&theirs["entity_id"]; 3]);
    for entity in [mine, &roots] {
        let timeline = member.get(&format!("/v1/timeline?entity={entity}")).await.expect_status(200);
        assert!(pluck(&timeline, "timeline", "/entity_id").iter().all(|id| **id == spoken["entity_id"]), "{timeline}");
    }
    assert_eq!(daemon.get(&format!("/v1/records/{roots}")).await.body["entity_id"], json!(roots), "the session itself");
    assert_eq!(daemon.get("/v1/records").await.body["total"], 2, "root's own");
    assert_eq!(daemon.get("/v1/records?all=true").await.body["total"], 4);
    assert_eq!(daemon.get("/v1/records/s-100").await.body["entity_id"], json!(mine), "the own one first");
    assert_eq!(daemon.get("/v1/timeline?entity=I-1").await.body["total"], 3);
    assert_eq!(daemon.get("/v1/timeline?entity=I-1&all=true").await.body["total"], 6);
}

#[tokio::test]
async fn what_is_said_of_one_session_is_bounded() {
    let mut daemon = Daemon::builder().config("[limits]\nrecord_max = \"1KiB\"").start().await;
    let filled = |field: &str| with(record("s-100", 1), json!({field: "x".repeat(700)}));
    for field in ["a", "b", "c", "d", "e"] {
        submit(&daemon, filled(field)).await;
    }
    let refused = daemon.post("/v1/records", filled("f")).await.refused(409, "record_full");
    assert_eq!(refused["details"], json!({"of": "bytes", "max": 4096}));
    submit(&daemon, with(filled("a"), json!({"duration": 60.5}))).await;
    daemon.sql("UPDATE record_entities SET observation_count = 1000".to_owned()).await;
    let refused = daemon.post("/v1/records", record("s-100", 1)).await.refused(409, "record_full");
    assert_eq!(refused["details"]["of"], "observations");
    assert_eq!(daemon.post("/v1/records", filled("a")).await.status, 200, "what is known is not said again");
}

#[tokio::test]
async fn the_command_line_lists_shows_submits_and_tells_the_time() {
    let daemon = Daemon::builder().agent("plain", harness::echo()).start().await;
    let session = daemon.cli(&["run", "--agent", "plain", "--title", "mine", "hello", "--json"]).await;
    assert_eq!(session.code, 0, "{}", session.stderr);
    let outcome = json!({"outcomes": [{"type": "issue", "id": "I-1"}], "duration": 99});
    std::fs::write(daemon.workspace().join("record.json"), with(record("s-100", 1), outcome).to_string()).unwrap();
    let taken = daemon.cli(&["records", "submit", "record.json"]).await;
    assert!(taken.stderr.contains("duration is 99 seconds"), "{}", taken.stderr);
    let entity = taken.success().trim().to_owned();
    let again =
        daemon.cli_with_input(&["records", "submit", "-", "--json"], &record("s-100", 1).to_string()).await.json();
    assert_eq!(again, json!({"entity_id": entity, "observation_count": 2, "warnings": []}));

    let list = daemon.cli(&["records"]).await.success();
    let rows: Vec<Vec<&str>> = list.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["SESSION", "AGE", "SECONDS", "ACTIONS", "OUTCOMES", "SUBMITTED"], "{list}");
    assert_eq!((rows[2][0], &rows[2][2..]), ("s-100", &["60.0", "1", "1", "2"][..]), "{list}");
    let derived =
        daemon.cli(&["records", "list", "--source", "derived", "--order-by", "session_id", "--asc", "--json"]).await;
    let derived = derived.json();
    let own = derived["records"][0]["entity_id"].as_str().unwrap();
    for name in ["-", "mine", own] {
        let shown: Value = serde_json::from_str(&daemon.cli(&["records", "show", name]).await.success()).unwrap();
        assert_eq!(pluck(&shown, "actions", "/type"), ["turn"], "{name}");
    }
    assert_eq!(daemon.cli(&["records", "show", "s-100", "--json"]).await.json()["entity_id"], json!(entity));

    let timeline = daemon.cli(&["timeline", "I-1"]).await.success();
    let what: Vec<String> =
        timeline.lines().skip(1).map(|line| line.split_whitespace().skip(1).collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(what, ["s-100 start", "s-100 outcome issue I-1", "s-100 end"], "{timeline}");
    assert_eq!(daemon.cli(&["timeline", "I-1", "--from", "2026-01-01T10:01:00Z", "--json"]).await.json()["total"], 2);
    assert_eq!(daemon.cli(&["timeline", "I-1", "--to", "2026-01-01", "--json"]).await.json()["total"], 3);
    assert_eq!(daemon.cli(&["timeline", "-", "--json"]).await.json()["timeline"][0]["session_id"], json!(own));
    assert_eq!(daemon.cli(&["timeline", "nothing"]).await.code, 1, "as grep does");

    std::fs::write(daemon.workspace().join("bad.json"), json!({"session_id": "x"}).to_string()).unwrap();
    for (arguments, told) in [
        (vec!["records", "submit", "bad.json"], "session_id must be a string of 5"),
        (vec!["records", "submit", "/nowhere"], "cannot read /nowhere"),
        (vec!["records", "show", "nobody"], "there is no session \"nobody\""),
    ] {
        let refused = daemon.cli(&arguments).await;
        assert_eq!(refused.code, 1, "{arguments:?}");
        assert!(
            refused.stderr.contains(told) && refused.stderr.contains("hint: "),
            "{arguments:?}: {}",
            refused.stderr
        );
    }
    assert_eq!(daemon.cli(&["records", "list", "--order-by", "size"]).await.code, 2);
}
