//! Nobody sees or reaches what is another's, on any route; and every change tells who made it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::print_stderr, reason = "a test that cannot run says so")]

mod harness;

use std::collections::BTreeSet;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use harness::{AsUser, Daemon, DaemonBuilder, Event, ORDINARY, Reply, User, echo, users};
use serde_json::{Value, json};

/// A second member of the group.
const OTHER: User = User { uid: 1, gid: 1 };
/// In everything that the stranger must not see.
const WORD: &str = "xylophone";
const PNG: &str = "iVBORw0KGgo=";

fn builder() -> Option<DaemonBuilder> {
    let is_root = users().len() > 1;
    if !is_root {
        harness::say("SKIPPED: only a daemon of root serves several users");
    }
    is_root.then(|| Daemon::builder().owner(ORDINARY))
}

/// Every method of every route, from the program itself.
async fn routes(daemon: &Daemon) -> BTreeSet<(String, String)> {
    let document = daemon.get("/v1/openapi.json").await.expect_status(200);
    let methods = |path: &Value| path.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let paths = document["paths"].as_object().unwrap().iter();
    let each = paths.flat_map(|(path, item)| methods(item).into_iter().map(move |method| (method, path.clone())));
    let routes: BTreeSet<_> = each.map(|(method, path)| (method.to_uppercase(), path)).collect();
    assert!(routes.len() >= 44, "not all routes were found: {routes:?}");
    routes
}

/// What there is of somebody's, by the names that routes have for it.
#[derive(Clone)]
struct Belongings {
    session: String,
    turn: String,
    permission: String,
    rule: String,
    workspace: String,
    checkpoint: String,
    blob: String,
    /// The id of an agent.
    agent: String,
}

impl Belongings {
    /// The same names for what is nobody's.
    fn nothing() -> Self {
        let id = |last: u8| format!("01890000-0000-7000-8000-0000000000{last:02}");
        Self {
            session: id(1),
            turn: id(2),
            permission: id(3),
            rule: id(4),
            workspace: id(5),
            checkpoint: id(6),
            blob: "0".repeat(64),
            agent: id(7),
        }
    }

    fn each(&self) -> [&str; 8] {
        let Self { session, turn, permission, rule, workspace, checkpoint, blob, agent } = self;
        [session, turn, permission, rule, workspace, checkpoint, blob, agent]
    }

    fn path(&self, route: &str) -> String {
        let id = match route.split('/').nth(2) {
            Some("workspaces") => &self.workspace,
            Some("permissions") => &self.permission,
            _ => &self.session,
        };
        let names = [
            ("{id}", id),
            ("{turn}", &self.turn),
            ("{permission}", &self.permission),
            ("{rule}", &self.rule),
            ("{name}", &self.checkpoint),
            ("{sha256}", &self.blob),
            ("{slug}", &self.agent),
        ];
        names.into_iter().fold(route.to_owned(), |path, (name, value)| path.replace(name, value))
    }
}

/// Whoever has something: root, or a member.
enum Who<'a> {
    Root(&'a Daemon),
    Member(AsUser<'a>),
}

impl Who<'_> {
    async fn request(&self, method: &str, path: &str, body: Option<Value>) -> Reply {
        match self {
            Self::Root(daemon) => daemon.request(method, path, body).await,
            Self::Member(member) => member.request(method, path, body).await,
        }
    }

    async fn get(&self, path: &str) -> Value {
        self.request("GET", path, None).await.expect_status(200)
    }
}

fn question(id: &str) -> Value {
    let tool_call = json!({"toolCallId": id, "title": format!("{WORD} {id}"), "kind": "execute", "status": "pending",
        "rawInput": {"command": format!("{WORD} {id}")}});
    let option = |id: &str, kind: &str| json!({"optionId": id, "name": id, "kind": kind});
    json!({"request": {"method": "session/request_permission", "params": {"sessionId": "test-session",
        "toolCall": tool_call, "options": [option("always", "allow_always"), option("no", "reject_once")]}}})
}

/// Asks in its first turn and in its second, of which nobody answers the second.
fn asking() -> Value {
    let turn = |id: &str| json!({"prompt": [question(id), {"text": WORD}]});
    let capabilities = json!({"promptCapabilities": {"image": true}});
    json!([{"handshake": {"capabilities": capabilities}}, turn("c1"), turn("c2")])
}

/// The question that is open in the session, as soon as there is one.
async fn asked(daemon: &Daemon, session: &str, after: i64) -> String {
    let mut events = daemon.events(session, Some(after)).await;
    let asked = events.until("permission.requested").await;
    asked.last().unwrap().payload()["permissionId"].as_str().unwrap().to_owned()
}

/// A session with one of everything, whose word is in all of it.
async fn settle_in(daemon: &Daemon, who: &Who<'_>) -> Belongings {
    let body = json!({"workspace": daemon.workspace(), "agent": "asking", "title": WORD, "tags": [WORD]});
    let created = who.request("POST", "/v1/sessions", Some(body)).await.expect_status(201);
    let session = created["id"].as_str().unwrap().to_owned();
    let path = format!("/v1/sessions/{session}/prompt");
    let prompt = json!({"content": [{"type": "text", "text": format!("the {WORD}")},
        {"type": "image", "mimeType": "image/png", "data": PNG}]});
    let first = who.request("POST", &path, Some(prompt)).await.expect_status(202);
    let permission = asked(daemon, &session, first["after"].as_i64().unwrap()).await;
    let answer = json!({"optionId": "always"});
    who.request("POST", &format!("/v1/permissions/{permission}"), Some(answer)).await.expect_status(200);
    daemon.wait_turn(&session, first["turnId"].as_str().unwrap()).await;
    let second = who.request("POST", &path, Some(json!({"text": WORD}))).await.expect_status(202);
    let permission = asked(daemon, &session, second["after"].as_i64().unwrap()).await;

    let checkpoint = json!({"name": WORD, "state": WORD});
    let path = format!("/v1/sessions/{session}/checkpoints");
    let checkpoint = who.request("POST", &path, Some(checkpoint)).await.expect_status(201);
    let record = json!({"session_id": session, "actions": [{"type": WORD, "result": "success"}],
        "started_at": "2026-01-01T10:00:00Z", "outcomes": [{"type": "issue", "id": WORD}]});
    who.request("POST", "/v1/records", Some(record)).await.expect_status(201);
    // A slug is of the whole daemon, and there are two who settle in.
    let slug = format!("{WORD}-{}", &session[session.len() - 8..]);
    let agent = json!({"slug": slug, "base": "asking", "description": WORD, "systemPrompt": WORD, "tags": [WORD]});
    let agent = who.request("POST", "/v1/agents", Some(agent)).await.expect_status(201);
    let rules = who.get(&format!("/v1/sessions/{session}/rules")).await;
    let messages = daemon.messages(&session).await;
    let blob = messages[0]["content"]["blocks"][1]["sha256"].as_str().unwrap().to_owned();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    Belongings {
        turn: text(&second["turnId"]),
        permission,
        rule: text(&rules["rules"][0]["id"]),
        workspace: text(&created["workspaceId"]),
        checkpoint: text(&checkpoint["id"]),
        blob,
        agent: text(&agent["id"]),
        session,
    }
}

/// All that there is to see of it.
async fn state(daemon: &Daemon, own: &Belongings) -> Vec<Value> {
    let session = format!("/v1/sessions/{}", own.session);
    let mut state = Vec::new();
    for path in [
        &*session,
        &format!("{session}/turns"),
        &format!("{session}/permissions?status=all"),
        &format!("{session}/rules"),
        &format!("{session}/checkpoints"),
        &format!("{session}/record"),
        &format!("/v1/agents/{}", own.agent),
    ] {
        state.push(daemon.get(path).await.expect_status(200));
    }
    let events = daemon.events_so_far(&own.session, None).await;
    state.extend(events.into_iter().map(|event| event.data));
    state
}

/// What a stranger sends along, so that only whose it is can be wrong.
fn body(method: &str, route: &str, own: &Belongings) -> Option<Value> {
    match (method, route) {
        ("POST", "/v1/sessions") => Some(json!({"workspaceId": own.workspace, "agent": "asking"})),
        ("PATCH", "/v1/agents/{slug}") => Some(json!({"name": "mine now"})),
        ("PATCH", _) => Some(json!({"title": "mine now"})),
        ("POST", "/v1/sessions/{id}/prompt") => Some(json!({"text": "hello"})),
        ("POST", "/v1/sessions/{id}/messages") => Some(json!({"role": "system", "text": "hello"})),
        ("POST", "/v1/sessions/{id}/cancel") => Some(json!({"turnId": own.turn, "queued": true})),
        ("POST", "/v1/sessions/{id}/checkpoints") => Some(json!({"name": "mine"})),
        ("POST", "/v1/sessions/{id}/checkpoints/{name}/restore") => Some(json!({"newSession": true})),
        ("POST", route) if route.contains("permission") => Some(json!({"optionId": "no"})),
        ("POST", "/v1/backup") => Some(json!({"path": "/tmp/never-made.db"})),
        ("POST", _) => Some(json!({})),
        _ => None,
    }
}

/// What the daemon tells a guest who has nothing: no counts of others, and nothing of the host.
fn assert_nothing_of_others(info: &Value) {
    let counts: i64 = info["sessions"].as_object().unwrap().values().map(|count| count.as_i64().unwrap()).sum();
    assert_eq!((counts, &info["processes"]["running"]), (0, &json!(0)), "{info}");
    for name in ["stateDir", "store", "config", "rlimits", "securityEvents", "loadEvents"] {
        assert!(info.get(name).is_none(), "{name}: {info}");
    }
    let kernel = &info["kernel"];
    assert!(kernel["cgroup"].get("path").is_none() && kernel["bubblewrap"].get("program").is_none(), "{info}");
}

/// How a list is asked for what is another's.
fn list_queries(route: &str, own: &Belongings) -> Vec<String> {
    match route {
        "/v1/sessions" => {
            let all = "?status=active,suspended,archived,error&all=true";
            vec![all.to_owned(), format!("{all}&workspaceId={}", own.workspace), format!("{all}&tag={WORD}")]
        }
        "/v1/workspaces" => vec![String::new(), "?all=true".to_owned()],
        "/v1/checkpoints" => vec![
            "?all=true".to_owned(),
            format!("?all=true&name={WORD}"),
            format!("?all=true&sessionId={}", own.session),
            format!("?all=true&workspaceId={}", own.workspace),
        ],
        "/v1/records" => vec!["?all=true".to_owned(), "?all=true&source=submitted".to_owned()],
        "/v1/timeline" => vec![format!("?all=true&entity={}", own.session)],
        "/v1/permissions" => vec!["?all=true".to_owned(), "?status=all&all=true".to_owned()],
        _ => {
            let all = format!("?q={WORD}&all=true");
            vec![format!("{all}&session={}", own.session), format!("{all}&workspaceId={}", own.workspace), all]
        }
    }
}

/// Tries a route as somebody whose nothing of it is.
async fn try_route(stranger: &Who<'_>, method: &str, route: &str, own: &Belongings) {
    let what = format!("{method} {route}");
    let nothing = Belongings::nothing();
    let ask = async |of: &Belongings, query: &str| {
        let path = format!("{}{query}", of.path(route));
        let reply = stranger.request(method, &path, body(method, route, of)).await;
        assert!(!reply.text.contains(WORD), "{what}{query} tells: {}", reply.text);
        reply
    };
    match (method, route) {
        ("GET", "/v1/health") => {
            let health = ask(own, "").await.expect_status(200);
            let names: Vec<&str> = health.as_object().unwrap().keys().map(String::as_str).collect();
            assert_eq!(names, ["status", "live", "ready", "problems"], "{health}");
        }
        ("GET", "/v1/agents" | "/v1/openapi.json") => {
            assert_eq!(ask(own, "").await.status, 200, "{what}");
        }
        ("GET", "/v1/info") => {
            let info = ask(own, "?all=true").await.expect_status(200);
            assert_nothing_of_others(&info);
        }
        (
            "GET",
            "/v1/sessions" | "/v1/workspaces" | "/v1/permissions" | "/v1/search" | "/v1/checkpoints" | "/v1/records"
            | "/v1/timeline",
        ) => {
            for query in list_queries(route, own) {
                assert_eq!(ask(own, &query).await.expect_status(200)["total"], 0, "{what}{query}");
            }
        }
        ("GET", "/v1/processes") => {
            let running = ask(own, "?all=true").await.expect_status(200);
            assert_eq!(running["processes"], json!([]), "{what}");
            assert!(running["daemon"].get("rssBytes").is_none() && running["daemon"].get("cpuMillis").is_none());
        }
        ("GET", "/v1/events") => {
            let stream = ask(own, "?after=0&follow=false&all=true").await;
            assert_eq!((stream.status, stream.text.trim()), (200, ": acpd"), "{what}");
        }
        // What is imported is of whoever imports it; of nothing comes nothing.
        ("POST", "/v1/import") => {
            assert_eq!(ask(own, "").await.expect_status(200)["made"]["sessions"], 0, "{what}");
        }
        // Whoever may go there at all has a workspace of their own.
        ("POST", "/v1/workspaces") => {}
        // And agents.
        ("POST", "/v1/agents") => {}
        // And records of their own, whatever they call what these are of.
        ("POST", "/v1/records") => {}
        ("POST", "/v1/gc" | "/v1/backup" | "/v1/reload") | ("GET", "/metrics") => {
            assert_eq!(ask(own, "").await.expect_status(403)["error"], "root_only", "{what}");
        }
        _ => {
            assert!(route.contains('{') || route == "/v1/sessions", "decide what a stranger gets from {what}");
            let queries: &[&str] = match (method, route) {
                ("DELETE", "/v1/sessions/{id}") => &["", "?purge=true", "?reason=mine"],
                ("GET", "/v1/sessions/{id}/turns/{turn}") => &["", "?wait=1"],
                _ => &[""],
            };
            for query in queries {
                let (theirs, nobodys) = (ask(own, query).await, ask(&nothing, query).await);
                assert_eq!((theirs.status, nobodys.status), (404, 404), "{what}{query}: {}", theirs.text);
                let names = own.each().into_iter().zip(nothing.each());
                let text = names.fold(theirs.text, |text, (own, nothing)| text.replace(own, nothing));
                assert_eq!(text, nobodys.text, "{what}{query}: in exactly the words of what does not exist");
            }
        }
    }
}

#[tokio::test]
async fn no_route_lets_anybody_see_or_change_what_is_anothers() {
    let Some(builder) = builder() else { return };
    let daemon = builder.agent("asking", asking()).start().await;
    let routes = routes(&daemon).await;
    // Root's, tried by a member; then the member's, tried by another one.
    let member = || Who::Member(daemon.as_user(ORDINARY, &[]));
    let other = Who::Member(daemon.as_user(OTHER, &[ORDINARY.gid]));
    for (victim, stranger) in [(Who::Root(&daemon), member()), (member(), other)] {
        let own = settle_in(&daemon, &victim).await;
        let before = state(&daemon, &own).await;
        for (method, route) in &routes {
            try_route(&stranger, method, route, &own).await;
        }
        assert_eq!(state(&daemon, &own).await, before, "nothing has changed");
        // And it is all there for whoever has it.
        let (found, timeline) = (format!("/v1/search?q={WORD}"), format!("/v1/timeline?entity={WORD}"));
        let lists = ["/v1/sessions", "/v1/workspaces", "/v1/permissions", "/v1/checkpoints", "/v1/records"];
        for path in lists.into_iter().chain([&*found, &timeline]) {
            assert_ne!(victim.get(path).await["total"], 0, "{path}");
        }
        assert_eq!(victim.request("GET", &format!("/v1/blobs/{}", own.blob), None).await.status, 200);
        victim.get(&format!("/v1/workspaces/{}", own.workspace)).await;
    }
}

#[tokio::test]
async fn root_lists_its_own_and_with_all_everybodys_and_a_members_agent_counts_as_theirs() {
    let Some(builder) = builder() else { return };
    let daemon = builder.agent("echo", echo()).start().await;
    let member = daemon.as_user(ORDINARY, &[]);
    let (roots, members) = (daemon.create_lazy_session("echo").await, member.create_session("echo").await);
    let ids = |list: &Value| -> BTreeSet<String> {
        list["sessions"].as_array().unwrap().iter().map(|session| session["id"].as_str().unwrap().to_owned()).collect()
    };
    let list = async |path: &str| daemon.get(path).await.expect_status(200);
    assert_eq!(ids(&list("/v1/sessions").await), BTreeSet::from([roots.clone()]));
    assert_eq!(ids(&list("/v1/sessions?all=true").await), BTreeSet::from([roots.clone(), members.clone()]));
    assert_eq!(ids(&member.get("/v1/sessions?all=true").await.expect_status(200)), BTreeSet::from([members.clone()]));
    let (own, theirs) = (daemon.session(&roots).await, daemon.session(&members).await);
    assert_eq!((own.get("owner"), &theirs["owner"]), (None, &json!(ORDINARY.uid)));
    assert_ne!(own["workspaceId"], theirs["workspaceId"], "one directory, and each has their own");
    assert_eq!(list("/v1/workspaces").await["total"], 1);
    assert_eq!(list("/v1/workspaces?all=true").await["total"], 2);
    daemon.events(&members, None).await.until("process.ready").await;
    let running = |info: &Value| info["processes"]["running"].clone();
    assert_eq!(running(&list("/v1/info").await), 0);
    assert_eq!(running(&list("/v1/info?all=true").await), 1);
    let sessions = |list: &Value| -> Vec<String> {
        let rows = list["processes"].as_array().unwrap().iter();
        rows.map(|row| row["sessionId"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(sessions(&list("/v1/processes").await), Vec::<String>::new());
    assert_eq!(sessions(&list("/v1/processes?all=true").await), std::slice::from_ref(&members));
    assert_eq!(sessions(&member.get("/v1/processes").await.expect_status(200)), std::slice::from_ref(&members));
    let info = member.get("/v1/info").await.expect_status(200);
    assert_eq!((running(&info), &info["sessions"]["active"]), (json!(1), &json!(1)));
    assert!(info["limits"].is_object() && info["version"].is_string() && info["socket"].is_string());
}

fn sessions_of(events: &[Event]) -> BTreeSet<String> {
    events.iter().map(|event| event.data["sessionId"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_members_stream_has_all_of_their_own_in_order_and_nothing_else() {
    let Some(builder) = builder() else { return };
    let daemon = builder.agent("echo", echo()).start().await;
    let member = daemon.as_user(ORDINARY, &[]);
    let mut live = member.event_stream("/v1/events", &[]).await;
    let (roots, members) = (daemon.create_session("echo").await, member.create_session("echo").await);
    for text in ["one", "two"] {
        daemon.prompt_and_wait(&roots, text).await;
        daemon.prompt_and_wait(&members, text).await;
    }
    daemon.prompt_and_wait(&roots, "three").await;
    let last = daemon.events_so_far(&members, None).await.last().unwrap().data.clone();
    let followed = live.until_event("the last of their own", |event| event.data == last).await;
    assert_eq!(sessions_of(&followed), BTreeSet::from([members.clone()]));
    let own = daemon.events_so_far(&members, None).await;
    let data = |events: &[Event]| events.iter().map(|event| event.data.clone()).collect::<Vec<_>>();
    assert_eq!(data(&followed), data(&own), "live, without a gap");
    assert!(followed.windows(2).all(|pair| pair[0].id < pair[1].id));

    let replayed = member.event_stream("/v1/events?after=0&follow=false", &[]).await.rest().await;
    assert_eq!(data(&replayed), data(&own), "and replayed");
    let middle = followed[followed.len() / 2].id;
    let rest = member.event_stream(&format!("/v1/events?after={middle}&follow=false"), &[]).await.rest().await;
    assert_eq!(data(&rest), data(&own[followed.len() / 2 + 1..]));
    let reset = member.event_stream("/v1/events?after=999999&follow=false", &[]).await.rest().await;
    assert_eq!(reset[0].kind, "log.reset");
    assert_eq!(data(&reset[1..]), data(&own));

    let of_root = daemon.event_stream("/v1/events?after=0&follow=false", &[]).await.rest().await;
    assert_eq!(sessions_of(&of_root), BTreeSet::from([roots.clone()]));
    let of_all = daemon.event_stream("/v1/events?after=0&follow=false&all=true", &[]).await.rest().await;
    assert_eq!(sessions_of(&of_all), BTreeSet::from([roots, members]));
}

#[tokio::test]
async fn every_change_tells_who_made_it() {
    let steps = json!([{"handshake": {}}, {"prompt": [question("c1"), {"text": "ok"}]}, {"prompt": [{"gate": "held"}, {"expect": "session/cancel"}]}]);
    let daemon = Daemon::builder().agent("asking", steps).start().await;
    let session = daemon.create_session("asking").await;
    let path = format!("/v1/sessions/{session}");
    let first = daemon.prompt(&session, "go").await;
    let permission = asked(&daemon, &session, first["after"].as_i64().unwrap()).await;
    daemon.post(&format!("/v1/permissions/{permission}"), json!({"optionId": "always"})).await.expect_status(200);
    daemon.wait_turn(&session, first["turnId"].as_str().unwrap()).await;
    let rules = daemon.get(&format!("{path}/rules")).await.expect_status(200);
    let rule = rules["rules"][0]["id"].as_str().unwrap().to_owned();
    daemon.delete(&format!("{path}/rules/{rule}")).await.expect_status(200);
    let note = json!({"role": "system", "text": "note"});
    let note = daemon.post(&format!("{path}/messages"), note).await.expect_status(201);
    daemon.patch(&path, json!({"title": "mine"})).await.expect_status(200);
    let second = daemon.prompt(&session, "wait").await;
    daemon.gate("asking").reached("held").await.open().await;
    daemon.post(&format!("{path}/cancel"), json!({})).await.expect_status(202);
    daemon.wait_turn(&session, second["turnId"].as_str().unwrap()).await;
    daemon.post(&format!("{path}/archive"), json!({})).await.expect_status(200);

    let own = rustix::process::geteuid().as_raw();
    let is_us = |by: &Value| {
        by["uid"] == own
            && by["pid"] == std::process::id()
            && by["program"].as_str().is_some_and(|name| !name.is_empty())
    };
    assert!(is_us(&note["by"]), "{note}");
    let events = daemon.events_so_far(&session, None).await;
    let kinds = ["session.created", "turn.queued", "permission.resolved", "permission.revoked"];
    for kind in kinds {
        let event = events.iter().find(|event| event.kind == kind).expect(kind);
        assert!(is_us(&event.payload()["by"]), "{kind}: {}", event.data);
    }
    let find = |kind: &str, name: &str, value: &str| {
        events.iter().find(|event| event.kind == kind && event.payload()[name] == value).expect(kind).payload().clone()
    };
    assert!(is_us(&find("session.updated", "title", "mine")["by"]));
    assert!(is_us(&find("turn.completed", "status", "cancelled")["by"]));
    assert!(is_us(&find("session.status", "to", "archived")["by"]));
    assert_eq!(find("turn.completed", "status", "completed").get("by"), None, "nobody ended it");
    daemon.delete(&format!("{path}?purge=true")).await.expect_status(200);
    daemon.logged("deleted a session permanently").await;
}

#[tokio::test]
async fn a_search_tells_a_member_nothing_of_what_others_have_said() {
    let Some(builder) = builder() else { return };
    let daemon = builder.agent("echo", echo()).start().await;
    let (member, victim) = (daemon.as_user(OTHER, &[ORDINARY.gid]), daemon.as_user(ORDINARY, &[]));
    let (own, theirs) = (member.create_lazy_session("echo").await, victim.create_lazy_session("echo").await);
    let say = async |who: &AsUser<'_>, session: &str, text: &str| {
        let body = json!({"role": "system", "text": text});
        who.post(&format!("/v1/sessions/{session}/messages"), body).await.expect_status(201);
    };
    for text in ["merger merger merger", "the merger again, and much more that is said of it", "quokka"] {
        say(&member, &own, text).await;
    }
    let search = async || member.get("/v1/search?q=merger%20OR%20quokka").await;
    let before = search().await;
    let told = before.body["results"].as_array().unwrap();
    let texts: Vec<_> = told.iter().map(|result| result["snippet"]["text"].as_str().unwrap()).collect();
    assert!(texts[0] == "quokka" && texts[1].starts_with("the merger") && texts[2].starts_with("merger"), "{texts:?}");
    assert!(told.iter().all(|result| result.get("rank").is_none()), "{}", before.text);
    say(&victim, &theirs, "the merger is on friday").await;
    assert_eq!(search().await.text, before.text);
    let root = daemon.get("/v1/search?q=merger&all=true").await.expect_status(200);
    assert_eq!((&root["total"], root["results"][0]["rank"].is_f64()), (&json!(3), true), "{root}");
    assert!(root["results"][0]["snippet"]["text"].as_str().unwrap().starts_with("merger"), "the best first: {root}");
}

#[tokio::test]
async fn another_users_search_is_next_however_many_somebody_has() {
    let Some(builder) = builder() else { return };
    let mut daemon = builder.agent("echo", echo()).start().await;
    let member = daemon.as_user(OTHER, &[ORDINARY.gid]);
    let session = member.create_lazy_session("echo").await;
    let body = json!({"role": "system", "text": WORD});
    member.post(&format!("/v1/sessions/{session}/messages"), body).await.expect_status(201);
    let path = format!("/v1/search?q={WORD}");
    assert_eq!(member.get(&path).await.expect_status(200)["total"], 1);
    // The text of what is found never comes.
    let endless = "DROP VIEW message_texts; CREATE VIEW message_texts (row, text) AS
        WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i), 'x' FROM n";
    daemon.sql(endless.to_owned()).await;
    let (member, other) = (daemon.as_user(OTHER, &[ORDINARY.gid]), daemon.as_user(ORDINARY, &[]));
    let mut searches: FuturesUnordered<_> = (0..9).map(|_| member.get(&path)).collect();
    let refused = searches.next().await.unwrap().expect_status(429);
    assert_eq!((&refused["error"], &refused["details"]["max"]), (&json!("too_many_searches"), &json!(8)), "{refused}");
    let mut others = std::pin::pin!(other.get("/v1/search?q=nothing"));
    let mut ended = 0;
    let found = loop {
        tokio::select! {
            biased;
            found = &mut others => break found,
            _ = searches.next() => ended += 1,
        }
    };
    assert_eq!(found.expect_status(200)["total"], 0);
    assert!(ended <= 1, "{ended} of the other user's came before");
}

#[tokio::test]
async fn everybody_has_the_workspaces_of_their_sessions_after_the_migration() {
    let Some(builder) = builder() else { return };
    let mut daemon = builder.agent("echo", echo()).start().await;
    let alone = daemon.root().join("alone");
    std::fs::create_dir(&alone).unwrap();
    std::fs::set_permissions(&alone, Permissions::from_mode(0o755)).unwrap();
    let shared = daemon.create_lazy_session("echo").await;
    let mut sessions = vec![(None, shared)];
    for (user, groups) in [(ORDINARY, &[][..]), (OTHER, &[ORDINARY.gid])] {
        sessions.push((Some((user, groups)), daemon.as_user(user, groups).create_lazy_session("echo").await));
    }
    let body = json!({"workspace": alone, "agent": "echo", "start": "lazy"});
    let member = daemon.as_user(OTHER, &[ORDINARY.gid]);
    let created = member.post("/v1/sessions", body).await.expect_status(201);
    sessions.push((Some((OTHER, &[ORDINARY.gid])), created["id"].as_str().unwrap().to_owned()));
    let listed = daemon.get("/v1/workspaces?all=true").await.expect_status(200)["total"].clone();
    for _ in 0..2 {
        daemon.terminate().await;
        daemon.cli(&["migrate", "--down", "12"]).await.success();
        daemon.restart().await;
        let mut workspaces = BTreeSet::new();
        for (user, session) in &sessions {
            let view = daemon.session(session).await;
            let id = view["workspaceId"].as_str().unwrap();
            let path = format!("/v1/workspaces/{id}");
            let shown = match user {
                Some((user, groups)) => daemon.as_user(*user, groups).get(&path).await.expect_status(200),
                None => daemon.get(&path).await.expect_status(200),
            };
            assert_eq!((shown.get("owner"), &shown["path"]), (view.get("owner"), &view["workspace"]));
            workspaces.insert(id.to_owned());
        }
        assert_eq!(workspaces.len(), sessions.len(), "nobody shares one: {workspaces:?}");
        assert_eq!(daemon.get("/v1/workspaces?all=true").await.expect_status(200)["total"], listed);
    }
}

#[tokio::test]
async fn root_makes_no_session_in_a_members_workspace_but_one_of_its_own_in_the_directory() {
    let Some(builder) = builder() else { return };
    let daemon = builder.agent("echo", echo()).start().await;
    let member = daemon.as_user(ORDINARY, &[]);
    let workspace = member.post("/v1/workspaces", json!({"path": daemon.workspace()})).await.expect_status(201);
    let id = workspace["id"].as_str().unwrap();
    let create = async |body: Value| daemon.post("/v1/sessions", body).await;
    let refused = create(json!({"workspaceId": id, "agent": "echo", "start": "lazy"})).await.expect_status(409);
    assert_eq!(refused["error"], "workspace_of_another", "{refused}");
    assert_eq!(refused["details"]["path"], json!(daemon.workspace()));
    let body = json!({"workspace": daemon.workspace(), "agent": "echo", "start": "lazy"});
    let created = create(body).await.expect_status(201);
    assert_ne!(created["workspaceId"], id);
    member.delete(&format!("/v1/workspaces/{id}")).await.expect_status(200);
    for what in ["registered a workspace", "removed a workspace"] {
        daemon.logged(what).await;
        let log = daemon.log();
        let line = log.lines().find(|line| line.contains(what) && line.contains(id)).expect(what);
        assert!(line.contains(&format!("uid={}", ORDINARY.uid)) && line.contains("pid="), "{line}");
    }
}

#[tokio::test]
async fn root_sees_with_the_commands_what_is_whose() {
    let Some(builder) = builder() else { return };
    let daemon = builder.agent("echo", echo()).start().await;
    let member = daemon.as_user(ORDINARY, &[]);
    let session = member.create_lazy_session("echo").await;
    let body = json!({"role": "system", "text": WORD});
    member.post(&format!("/v1/sessions/{session}/messages"), body).await.expect_status(201);
    let (owner, short) = (harness::user_name(ORDINARY.uid), &session[24..]);
    assert!(!daemon.cli(&["ls"]).await.success().contains(short));
    let all = daemon.cli(&["ls", "--all"]).await.success();
    assert!(all.contains(short) && all.contains("OWNER") && all.contains(&owner), "{all}");
    assert!(daemon.cli(&["workspaces", "--all"]).await.success().contains(&owner));
    assert!(daemon.cli(&["show", short]).await.success().contains(&owner), "a part of the id is enough");
    assert_eq!(daemon.cli(&["search", WORD]).await.code, 1);
    assert!(daemon.cli(&["search", "--all", WORD]).await.success().contains(short));
    let own = daemon.create_lazy_session("echo").await;
    let shown = daemon.cli(&["show", &own]).await.success() + &daemon.cli(&["ls"]).await.success();
    assert!(!shown.contains("owner") && !shown.contains("OWNER"), "{shown}");
}

#[tokio::test]
async fn whoever_follows_their_own_sessions_is_counted() {
    let Some(builder) = builder() else { return };
    let daemon = builder.agent("echo", echo()).start().await;
    let member = daemon.as_user(ORDINARY, &[]);
    let _streams = (member.event_stream("/v1/events", &[]).await, daemon.event_stream("/v1/events", &[]).await);
    let metrics = daemon.get("/metrics").await;
    assert!(metrics.text.lines().any(|line| line == "acpd_subscribers 2"), "{}", metrics.text);
}

/// The daemon's own user may choose any mode; a member only what is configured for them.
#[tokio::test]
async fn members_are_held_to_ask_unless_the_profile_says_more() {
    let Some(builder) = builder() else { return };
    let daemon = builder
        .agent("stock", echo())
        .agent_with("trusted", echo(), "permissions_max = \"edit\"")
        .agent_with("loose", echo(), "permissions = \"allow\"")
        .start()
        .await;
    let member = daemon.as_user(ORDINARY, &[]);
    let body = |agent: &str, mode: &str| json!({"workspace": daemon.workspace(), "agent": agent, "permissions": {"mode": mode}, "start": "lazy"});
    for (agent, mode, status) in [
        ("stock", "ask", 201),
        ("stock", "edit", 403),
        ("trusted", "edit", 201),
        ("trusted", "allow", 403),
        ("loose", "edit", 403),
    ] {
        let reply = member.post("/v1/sessions", body(agent, mode)).await;
        assert_eq!(reply.status, status, "{agent} {mode}: {}", reply.text);
    }
    for (agent, max) in [("stock", "ask"), ("trusted", "edit"), ("loose", "ask")] {
        let shown = member.get(&format!("/v1/agents/{agent}")).await.expect_status(200);
        assert_eq!((&shown["permissions"]["mode"], &shown["permissionsMax"]), (&json!("ask"), &json!(max)), "{agent}");
    }
    let session = member.create_lazy_session("loose").await;
    assert_eq!(daemon.session(&session).await["permissions"]["mode"], "ask");
    let path = format!("/v1/sessions/{session}");
    member.request("PATCH", &path, Some(json!({"permissions": {"mode": "edit"}}))).await.expect_status(403);
    let made = json!({"slug": "mine", "base": "loose", "permissions": {"mode": "edit"}});
    member.post("/v1/agents", made).await.expect_status(403);
    daemon.post("/v1/sessions", body("stock", "allow")).await.expect_status(201);
}
