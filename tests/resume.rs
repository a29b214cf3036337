//! Every session goes on, on any agent: whatever took its process, the next prompt finds the earlier conversation in the
//! agent's context, by the agent's own memory or by acpd's transcript, and nothing is recorded twice.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod harness;

use harness::{Daemon, Event, Heard};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

const FIRST: &str = "remember the word xylophone";
const SECOND: &str = "which word was it?";
/// What every answer begins with; the process's id follows, so that no two answers are the same.
const ANSWER: &str = "zither ";
/// What only a replay says, so that anything of it in the record is a message stored twice.
const REPLAYED: &str = "(replayed)";

/// How an agent comes by the conversation after its process is gone, as `contextRestored` tells it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Memory {
    Native,
    Replayed { as_resource: bool },
}

struct Way {
    name: &'static str,
    handshake: Value,
    profile: &'static str,
    supports_resume: bool,
    memory: Memory,
}

fn script(handshake: &Value, prompt: &Value) -> Value {
    json!([{"record": true}, {"sessionId": "own-{pid}"}, {"handshake": handshake}, {"repeat": [prompt]}])
}

fn answering() -> Value {
    json!({"prompt": [{"text": ANSWER}, {"textFromPid": true}]})
}

fn user_chunk() -> Value {
    json!({"update": {"sessionUpdate": "user_message_chunk",
        "content": {"type": "text", "text": format!("{FIRST} {REPLAYED}")}}})
}

fn agent_chunk() -> Value {
    json!({"text": format!("{ANSWER}{REPLAYED}")})
}

fn commands() -> Value {
    json!({"update": {"sessionUpdate": "available_commands_update", "availableCommands": []}})
}

/// All ways in which an agent can or cannot take a conversation up again.
fn ways() -> Vec<Way> {
    let refusal = json!({"code": -32601, "message": "Method not found"});
    let way = |name, handshake, supports_resume, memory| Way { name, handshake, profile: "", supports_resume, memory };
    let as_text = Memory::Replayed { as_resource: false };
    let as_resource = Memory::Replayed { as_resource: true };
    let resume = json!({"resume": {}});
    let embedded = json!({"embeddedContext": true});
    let load_late = json!({"capabilities": {"loadSession": true}, "load": [user_chunk()],
        "afterLoad": [agent_chunk(), user_chunk(), commands()]});
    let loads_nothing = json!({"capabilities": {"loadSession": true}, "newAfterLoad": true,
        "afterLoad": [user_chunk(), agent_chunk()]});
    let refuses_resume = json!({"capabilities": {"sessionCapabilities": resume, "promptCapabilities": embedded},
        "resumeError": refusal});
    let refuses_all = json!({"capabilities": {"loadSession": true, "sessionCapabilities": resume},
        "resumeError": refusal, "loadError": {"code": -32602, "message": "Session not found"}});
    vec![
        way("plain", json!({}), false, as_text),
        way("embedding", json!({"capabilities": {"promptCapabilities": embedded}}), false, as_resource),
        way(
            "loading",
            json!({"capabilities": {"loadSession": true}, "load": [user_chunk(), agent_chunk()]}),
            true,
            Memory::Native,
        ),
        Way { profile: "adapter = \"gemini\"", ..way("late", load_late, true, Memory::Native) },
        way("resuming", json!({"capabilities": {"sessionCapabilities": resume}}), true, Memory::Native),
        way("loading_nothing", loads_nothing, true, as_text),
        way("refusing_resume", refuses_resume, true, as_resource),
        way("refusing_all", refuses_all, true, as_text),
    ]
}

/// What takes the processes away.
#[derive(Clone, Copy, Debug)]
enum Loss {
    Stop,
    Kill,
    Idle,
    Crash,
}

fn texts(messages: &[Value]) -> Vec<(&str, &str)> {
    let said = messages.iter().filter(|message| ["user", "agent"].contains(&message["role"].as_str().unwrap()));
    said.map(|message| (message["role"].as_str().unwrap(), message["content"]["text"].as_str().unwrap())).collect()
}

fn prompts(heard: &[Heard]) -> Vec<&Heard> {
    heard.iter().filter(|heard| heard.method == "session/prompt").collect()
}

/// The blocks of a prompt that are not the prompt itself, which comes last.
#[track_caller]
fn before_prompt<'a>(heard: &'a Heard, prompt: &str) -> &'a [Value] {
    let blocks = heard.params["prompt"].as_array().unwrap();
    assert_eq!(blocks.last(), Some(&json!({"type": "text", "text": prompt})), "{blocks:?}");
    &blocks[..blocks.len() - 1]
}

/// The transcript that came with a prompt, when one did.
#[track_caller]
fn carried(heard: &Heard, prompt: &str) -> Option<String> {
    let block = match before_prompt(heard, prompt) {
        [] => return None,
        [block] => block,
        more => panic!("one transcript at the most: {more:?}"),
    };
    let text = if block["type"] == "resource" { &block["resource"]["text"] } else { &block["text"] };
    Some(text.as_str().unwrap_or_else(|| panic!("no transcript: {block}")).to_owned())
}

/// What the agent heard in its new process is what its way of remembering needs, and no more.
fn assert_context(way: &Way, heard: &[Heard]) {
    let name = way.name;
    let prompts = prompts(heard);
    let [first, second] = prompts[..] else { panic!("{name} heard {} prompts", prompts.len()) };
    assert_ne!(first.pid, second.pid, "{name}");
    assert_eq!(carried(first, FIRST), None, "{name}: a new session owes nothing");
    let restoring: Vec<&Heard> =
        heard.iter().filter(|heard| heard.pid == second.pid && heard.method.starts_with("session/")).collect();
    match way.memory {
        Memory::Native => {
            assert_eq!(carried(second, SECOND), None, "{name}: it remembers by itself");
            let [restore, _] = restoring[..] else { panic!("{name} heard {restoring:?}") };
            let expected = if name == "resuming" { "session/resume" } else { "session/load" };
            assert_eq!(restore.method, expected, "{name}");
            assert!(restore.params["cwd"].is_string() && restore.params["mcpServers"].is_array(), "{name}");
            for heard in [restore, second] {
                assert_eq!(heard.params["sessionId"], first.params["sessionId"], "{name}: the same conversation");
            }
        }
        Memory::Replayed { as_resource } => {
            let text = carried(second, SECOND).unwrap_or_else(|| panic!("{name} did not get the conversation"));
            let answer = format!("{ANSWER}{}", first.pid);
            assert!(text.contains(FIRST) && text.contains(&answer), "{name}: {text}");
            assert!(!text.contains(SECOND), "{name}: the prompt itself is not part of what was before it");
            assert_eq!(second.params["sessionId"], format!("own-{}", second.pid), "{name}: a new conversation");
            let block = &before_prompt(second, SECOND)[0];
            if as_resource {
                assert_eq!(block["type"], "resource", "{name}");
                assert_eq!(block["resource"]["mimeType"], "text/markdown", "{name}");
                assert!(block["resource"]["uri"].as_str().is_some_and(|uri| uri.contains(':')), "{name}: {block}");
            } else {
                assert_eq!(block["type"], "text", "{name}");
            }
        }
    }
}

fn last_process_ready(events: &[Event]) -> &Value {
    events.iter().rfind(|event| event.kind == "process.ready").unwrap().payload()
}

async fn lose(daemon: &mut Daemon, sessions: &[String], loss: Loss) {
    match loss {
        Loss::Stop => {
            daemon.terminate().await;
            daemon.restart().await;
            for session in sessions {
                assert_eq!(daemon.session(session).await["status"], "suspended");
                let path = format!("/v1/sessions/{session}/resume");
                assert_eq!(daemon.post(&path, json!({})).await.expect_status(200)["status"], "active");
            }
        }
        Loss::Kill => {
            daemon.kill().await;
            daemon.restart().await;
        }
        Loss::Idle | Loss::Crash => {
            for session in sessions {
                if matches!(loss, Loss::Crash) {
                    let pid = daemon.session(session).await["pid"].as_i64().unwrap();
                    kill(Pid::from_raw(pid.try_into().unwrap()), Signal::SIGKILL).unwrap();
                }
                let exited = daemon.events(session, None).await.until("process.exited").await.pop().unwrap();
                assert_eq!(exited.payload()["reason"], if matches!(loss, Loss::Idle) { "idle" } else { "crash" });
            }
        }
    }
}

async fn every_agent_goes_on_after(loss: Loss) {
    let ways = ways();
    let mut config = "[limits]\nprocesses = 16\n".to_owned();
    if matches!(loss, Loss::Idle) {
        config.push_str("[sessions]\nidle_timeout = \"200ms\"");
    }
    let builder = Daemon::builder().config(&config);
    let builder = ways
        .iter()
        .fold(builder, |builder, way| builder.agent_with(way.name, script(&way.handshake, &answering()), way.profile));
    let mut daemon = builder.start().await;
    let (mut sessions, mut before) = (Vec::new(), Vec::new());
    for way in &ways {
        let session = daemon.create_lazy_session(way.name).await;
        assert_eq!(daemon.prompt_and_wait(&session, FIRST).await["status"], "completed", "{}", way.name);
        let view = daemon.session(&session).await;
        assert_eq!(view["contextRestored"], "fresh", "{}", way.name);
        assert_eq!(view["supportsResume"], way.supports_resume, "{}", way.name);
        before.push(daemon.messages(&session).await);
        sessions.push(session);
    }
    lose(&mut daemon, &sessions, loss).await;

    for ((way, session), before) in ways.iter().zip(&sessions).zip(&before) {
        let name = way.name;
        let turn = daemon.prompt_and_wait(session, SECOND).await;
        assert_eq!(turn["status"], "completed", "{name}: {turn}");
        assert_context(way, &daemon.heard(name));

        let after = daemon.messages(session).await;
        assert_eq!(&after[..before.len()], before, "{name}: what was there is there, once and unchanged");
        let answer = format!("{ANSWER}{}", prompts(&daemon.heard(name))[1].pid);
        assert_eq!(texts(&after[before.len()..]), [("user", SECOND), ("agent", &answer)], "{name}");
        let events = daemon.events_so_far(session, None).await;
        let replayed = events.iter().find(|event| event.data.to_string().contains(REPLAYED));
        assert!(replayed.is_none(), "{name}: {replayed:?}");

        let (at_first, then) = match way.memory {
            Memory::Native => ("native", "native"),
            Memory::Replayed { .. } => ("fresh", "replayed"),
        };
        assert_eq!(last_process_ready(&events)["contextRestored"], at_first, "{name}");
        let view = daemon.session(session).await;
        assert_eq!(view["contextRestored"], then, "{name}");
        assert_eq!(view["supportsResume"], way.supports_resume, "{name}");
    }
}

#[tokio::test]
async fn every_agent_goes_on_with_the_conversation_after_a_stop_and_a_resume() {
    every_agent_goes_on_after(Loss::Stop).await;
}

#[tokio::test]
async fn every_agent_goes_on_with_the_conversation_after_a_kill_of_the_daemon() {
    every_agent_goes_on_after(Loss::Kill).await;
}

#[tokio::test]
async fn every_agent_goes_on_with_the_conversation_after_an_idle_stop() {
    every_agent_goes_on_after(Loss::Idle).await;
}

#[tokio::test]
async fn every_agent_goes_on_with_the_conversation_after_a_crash() {
    every_agent_goes_on_after(Loss::Crash).await;
}

/// Has a first turn, and suspends and resumes the session.
async fn suspended_and_resumed(daemon: &mut Daemon, agent: &str) -> String {
    let session = daemon.create_lazy_session(agent).await;
    assert_eq!(daemon.prompt_and_wait(&session, FIRST).await["status"], "completed");
    lose(daemon, std::slice::from_ref(&session), Loss::Stop).await;
    session
}

#[tokio::test]
async fn an_agent_that_hangs_or_ends_in_a_load_is_replaced_and_the_prompt_is_answered() {
    let config = "[processes]\nsession_timeout = \"1s\"\neof_grace = \"50ms\"\nterm_grace = \"50ms\"";
    for (what, step) in [("hangs", json!({"hang": true})), ("ends", json!({"exit": 3}))] {
        let handshake = json!({"capabilities": {"loadSession": true}, "load": [user_chunk(), step]});
        let builder = Daemon::builder().config(config).agent("broken", script(&handshake, &answering()));
        let mut daemon = builder.start().await;
        let session = suspended_and_resumed(&mut daemon, "broken").await;
        let turn = daemon.prompt_and_wait(&session, SECOND).await;
        assert_eq!(turn["status"], "completed", "{what}: {turn}");

        let heard = daemon.heard("broken");
        let first = prompts(&heard)[0].pid;
        let later: Vec<&Heard> = heard.iter().filter(|heard| heard.pid != first && heard.method != "eof").collect();
        let methods: Vec<&str> = later.iter().map(|heard| heard.method.as_str()).collect();
        let expected = ["initialize", "session/load", "initialize", "session/new", "session/prompt"];
        assert_eq!(methods, expected, "{what}: it is not asked to load a second time");
        assert_ne!(later[1].pid, later[2].pid, "{what}");
        assert!(carried(later[4], SECOND).is_some_and(|text| text.contains(FIRST)), "{what}");
        let view = daemon.session(&session).await;
        assert_eq!((&view["status"], &view["contextRestored"]), (&json!("active"), &json!("replayed")), "{what}");
        assert!(!daemon.messages(&session).await.iter().any(|message| message.to_string().contains(REPLAYED)));
    }
}

#[tokio::test]
async fn no_prompt_goes_out_before_a_late_replay_has_ended() {
    let handshake = json!({"capabilities": {"loadSession": true},
        "afterLoad": [{"gate": "replaying"}, user_chunk(), agent_chunk(), commands()]});
    let script = script(&handshake, &answering());
    let mut daemon = Daemon::builder().agent_with("late", script, "adapter = \"gemini\"").start().await;
    let session = suspended_and_resumed(&mut daemon, "late").await;
    let accepted = daemon.prompt(&session, SECOND).await;
    let passage = daemon.gate("late").reached("replaying").await;
    let turn_id = accepted["turnId"].as_str().unwrap();
    let turn = daemon.get(&format!("/v1/sessions/{session}/turns/{turn_id}")).await.expect_status(200);
    assert_eq!(turn["status"], "queued", "the load is answered, the replay is not over");
    passage.open().await;
    assert_eq!(daemon.wait_turn(&session, turn_id).await["status"], "completed");
    let events = daemon.events_so_far(&session, None).await;
    assert!(!events.iter().any(|event| event.data.to_string().contains(REPLAYED)), "nothing is stored twice");
}

#[tokio::test]
async fn what_is_repeated_while_the_process_goes_is_not_news() {
    let handshake = json!({"capabilities": {"loadSession": true},
        "load": [user_chunk(), {"gate": "replaying"}, agent_chunk(), {"gate": "repeated"}]});
    let mut daemon = Daemon::builder().agent("slow", script(&handshake, &answering())).start().await;
    let session = suspended_and_resumed(&mut daemon, "slow").await;
    daemon.prompt(&session, SECOND).await;
    let gate = daemon.gate("slow");
    let passage = gate.reached("replaying").await;
    daemon.signal(Signal::SIGTERM);
    daemon.is_stopping().await;
    passage.open().await;
    gate.reached("repeated").await;
    daemon.ended().await;
    daemon.restart().await;
    let messages = daemon.messages(&session).await;
    assert!(!messages.iter().any(|message| message.to_string().contains(REPLAYED)), "{messages:?}");
}

/// The end of a turn is in the transcript of the one that waits for it, however close they are.
#[tokio::test]
async fn the_transcript_reaches_up_to_the_turn_just_before() {
    const ROUNDS: usize = 10;
    let turn = json!([{"expect": "session/prompt"}, {"text": "part"}, {"expect": "session/cancel"},
        {"reply": {"stopReason": "cancelled"}}]);
    let agent = json!([{"record": true}, {"handshake": {}}, {"repeat": turn}]);
    let mut daemon = Daemon::builder().agent("cancelled", agent).start().await;
    let session = daemon.create_lazy_session("cancelled").await;
    let cancel = async |daemon: &Daemon, turn: &Value| {
        let body = json!({"turnId": turn["turnId"]});
        daemon.post(&format!("/v1/sessions/{session}/cancel"), body).await.expect_status(202);
    };
    let mut stream = daemon.events(&session, None).await;
    let first = daemon.prompt(&session, "round 0").await;
    stream.until("message.delta").await;
    cancel(&daemon, &first).await;
    daemon.wait_turn(&session, first["turnId"].as_str().unwrap()).await;
    lose(&mut daemon, std::slice::from_ref(&session), Loss::Stop).await;

    let mut running = daemon.prompt(&session, "round 1").await;
    let mut stream = daemon.events(&session, running["after"].as_i64()).await;
    for round in 2..ROUNDS {
        stream.until("message.delta").await;
        let next = daemon.prompt(&session, &format!("round {round}")).await;
        cancel(&daemon, &running).await;
        running = next;
    }
    stream.until("message.delta").await;
    for (round, heard) in prompts(&daemon.heard("cancelled")).into_iter().enumerate().skip(1) {
        let text = carried(heard, &format!("round {round}")).expect("it is owed still");
        assert!(text.contains(&format!("round {}", round - 1)), "round {round}: {text}");
    }
}

#[tokio::test]
async fn what_the_agent_thought_takes_no_room_in_the_transcript() {
    let thought = "hm ".repeat(4096);
    let prompt = json!({"prompt": [{"thought": thought}, {"text": ANSWER}, {"thought": thought}]});
    let mut daemon = Daemon::builder()
        .config("[sessions]\ntranscript_max = \"2KiB\"")
        .agent("pensive", script(&json!({}), &prompt))
        .start()
        .await;
    let session = suspended_and_resumed(&mut daemon, "pensive").await;
    daemon.prompt_and_wait(&session, SECOND).await;
    let text = carried(prompts(&daemon.heard("pensive"))[1], SECOND).unwrap();
    assert!(text.contains(FIRST) && text.contains(ANSWER.trim()) && !text.contains("omitted"), "{text}");
}

#[tokio::test]
async fn a_replay_whose_end_is_never_told_ends_by_the_clock() {
    let handshake =
        json!({"capabilities": {"loadSession": true}, "load": [user_chunk()], "afterLoad": [agent_chunk()]});
    let mut daemon = Daemon::builder()
        .config("[processes]\nreplay_timeout = \"500ms\"")
        .agent_with("silent", script(&handshake, &answering()), "adapter = \"gemini\"")
        .start()
        .await;
    let session = suspended_and_resumed(&mut daemon, "silent").await;
    assert_eq!(daemon.prompt_and_wait(&session, SECOND).await["status"], "completed");
    assert_eq!(daemon.session(&session).await["contextRestored"], "native");
    assert!(!daemon.messages(&session).await.iter().any(|message| message.to_string().contains(REPLAYED)));
}

#[tokio::test]
async fn a_transcript_is_bounded_and_keeps_what_is_newest() {
    const BYTES_MAX: usize = 2048;
    let config = "[sessions]\ntranscript_max = \"2KiB\"";
    let mut daemon = Daemon::builder().config(config).agent("plain", script(&json!({}), &answering())).start().await;
    let session = daemon.create_lazy_session("plain").await;
    let filling = "ä".repeat(200);
    for number in 0..10 {
        daemon.prompt_and_wait(&session, &format!("prompt number {number} {filling}")).await;
    }
    lose(&mut daemon, std::slice::from_ref(&session), Loss::Stop).await;
    daemon.prompt_and_wait(&session, SECOND).await;
    let heard = daemon.heard("plain");
    let text = carried(prompts(&heard).last().unwrap(), SECOND).unwrap();
    assert!(text.len() <= BYTES_MAX, "{} bytes", text.len());
    assert!(text.contains("prompt number 9 "), "the newest is kept: {text}");
    assert!(!text.contains("prompt number 0 "), "{text}");
    assert!(text.contains("omitted"), "it says that it is not whole: {text}");
}

#[tokio::test]
async fn the_transcript_is_owed_until_a_turn_ends_with_a_stop_reason() {
    let prompt = json!({"repeat": [{"expect": "session/prompt"}, {"gate": "asked", "cases": {
        "fail": [{"replyError": {"code": -32603, "message": "the model is away"}}],
        "go": [{"text": ANSWER}, {"textFromPid": true}, {"reply": {"stopReason": "end_turn"}}]}}]});
    let mut daemon = Daemon::builder().agent("moody", script(&json!({}), &prompt)).start().await;
    let session = daemon.create_lazy_session("moody").await;
    let ask = async |daemon: &Daemon, text: &str, word: &str| {
        let accepted = daemon.prompt(&session, text).await;
        daemon.gate("moody").reached("asked").await.say(word).await;
        daemon.wait_turn(&session, accepted["turnId"].as_str().unwrap()).await["status"].clone()
    };
    assert_eq!(ask(&daemon, FIRST, "go").await, "completed");
    lose(&mut daemon, std::slice::from_ref(&session), Loss::Stop).await;
    assert_eq!(ask(&daemon, "two", "fail").await, "failed");
    assert_eq!(ask(&daemon, "three", "go").await, "completed");
    assert_eq!(ask(&daemon, "four", "go").await, "completed");

    let heard = daemon.heard("moody");
    let prompts = prompts(&heard);
    let [_, second, third, fourth] = prompts[..] else { panic!("it heard {} prompts", prompts.len()) };
    assert!(carried(second, "two").is_some_and(|text| text.contains(FIRST)));
    assert!(carried(third, "three").is_some_and(|text| text.contains(FIRST)), "the turn before it did not end well");
    assert_eq!(carried(fourth, "four"), None, "once is enough");
}

/// An agent that resumes its conversations and begins with these steps. The test says what becomes of each prompt.
fn forgetful(start: &[Value]) -> harness::DaemonBuilder {
    let lost = json!({"replyError": {"code": -32002, "message": "Resource not found", "data": {"sessionId": "own"}}});
    let prompt = json!({"repeat": [{"expect": "session/prompt"}, {"gate": "asked", "cases": {
        "lose": [lost],
        "speak and lose": [{"text": "half"}, lost],
        "go": [{"text": ANSWER}, {"reply": {"stopReason": "end_turn"}}]}}]});
    let handshake = json!({"capabilities": {"sessionCapabilities": {"resume": {}}}});
    let script = [json!({"record": true}), json!({"sessionId": "own"}), json!({"handshake": handshake}), prompt];
    Daemon::builder().agent("forgetful", json!([start, &script].concat()))
}

/// Sends a prompt and says what becomes of it, each time that the agent gets it; the turn and its process ids.
async fn asked(daemon: &Daemon, session: &str, prompt: &str, words: &[&str]) -> (Value, Vec<u32>) {
    let accepted = daemon.prompt(session, prompt).await;
    let mut pids = Vec::new();
    for word in words {
        let passage = daemon.gate("forgetful").reached("asked").await;
        pids.push(passage.pid);
        passage.say(word).await;
    }
    (daemon.wait_turn(session, accepted["turnId"].as_str().unwrap()).await, pids)
}

#[tokio::test]
async fn an_agent_that_has_lost_its_session_is_restarted_and_the_prompt_answered() {
    let daemon = forgetful(&[]).start().await;
    let session = daemon.create_lazy_session("forgetful").await;
    asked(&daemon, &session, FIRST, &["go"]).await;
    let (turn, pids) = asked(&daemon, &session, SECOND, &["lose", "go"]).await;
    assert_eq!(turn["status"], "completed", "{turn}");
    assert_ne!(pids[0], pids[1]);
    let heard = daemon.heard("forgetful");
    assert!(heard.iter().any(|heard| heard.method == "session/resume"), "{heard:?}");
    assert_eq!(carried(prompts(&heard)[2], SECOND), None, "it has restored the conversation by itself");
    assert_eq!(daemon.session(&session).await["contextRestored"], "native");
    let messages = daemon.messages(&session).await;
    assert_eq!(texts(&messages), [("user", FIRST), ("agent", ANSWER), ("user", SECOND), ("agent", ANSWER)]);
    let events = daemon.events_so_far(&session, None).await;
    assert_eq!(events.iter().filter(|event| event.kind == "turn.started").count(), 2, "each turn starts once");
}

#[tokio::test]
async fn a_turn_runs_again_once_and_only_if_the_agent_had_not_begun_it() {
    let daemon = forgetful(&[]).config("[processes]\nbackoff_min = \"1ms\"").start().await;
    let session = daemon.create_lazy_session("forgetful").await;
    asked(&daemon, &session, FIRST, &["go"]).await;
    for words in [&["speak and lose"][..], &["lose", "lose"]] {
        let (turn, _) = asked(&daemon, &session, SECOND, words).await;
        assert_eq!((&turn["status"], &turn["error"]["code"]), (&json!("failed"), &json!("agent_error")), "{turn}");
        let hint = turn["error"]["hint"].as_str().unwrap();
        assert!(hint.contains("lost its session; send the prompt again"), "{turn}");
    }
    // Resuming did not help, so the agent gets the transcript.
    let (turn, _) = asked(&daemon, &session, "three", &["go"]).await;
    assert_eq!(turn["status"], "completed", "{turn}");
    let heard = daemon.heard("forgetful");
    let last = prompts(&heard).pop().unwrap();
    assert!(carried(last, "three").is_some_and(|text| text.contains(FIRST)), "{last:?}");
    assert_eq!(daemon.session(&session).await["contextRestored"], "replayed");
}

/// A turn that waits for its second run can be cancelled, and a daemon that stops or is killed ends it.
#[tokio::test]
async fn a_turn_that_waits_for_its_second_run_runs_at_most_once_more() {
    for (what, status) in [("cancel", "cancelled"), ("stop", "interrupted"), ("kill", "interrupted")] {
        let mut daemon = forgetful(&[json!({"gate": "starting"})]).start().await;
        let session = daemon.create_lazy_session("forgetful").await;
        let gate = daemon.gate("forgetful");
        let accepted = daemon.prompt(&session, FIRST).await;
        gate.reached("starting").await.open().await;
        gate.reached("asked").await.say("lose").await;
        let starting = gate.reached("starting").await;
        match what {
            "cancel" => {
                daemon.post(&format!("/v1/sessions/{session}/cancel"), json!({})).await.expect_status(202);
                starting.open().await;
            }
            "stop" => {
                daemon.terminate().await;
                daemon.restart().await;
            }
            _ => {
                daemon.kill().await;
                daemon.restart().await;
            }
        }
        let turn = daemon.wait_turn(&session, accepted["turnId"].as_str().unwrap()).await;
        assert_eq!(turn["status"], status, "{what}: {turn}");
        assert_eq!(prompts(&daemon.heard("forgetful")).len(), 1, "{what}");
    }
}

#[tokio::test]
async fn a_queued_prompt_gets_what_was_said_before_it_and_not_itself() {
    let prompt = json!({"prompt": [{"text": "half an answer"}, {"gate": "middle"}]});
    let mut daemon = Daemon::builder().agent("gated", script(&json!({}), &prompt)).start().await;
    let session = daemon.create_lazy_session("gated").await;
    let mut stream = daemon.events(&session, None).await;
    daemon.prompt(&session, FIRST).await;
    let passage = daemon.gate("gated").reached("middle").await;
    stream.until("message.delta").await;
    let queued = daemon.prompt(&session, SECOND).await;
    daemon.kill().await;
    drop(passage);
    daemon.restart().await;
    daemon.gate("gated").reached("middle").await.open().await;
    let turn = daemon.wait_turn(&session, queued["turnId"].as_str().unwrap()).await;
    assert_eq!(turn["status"], "completed");
    let heard = daemon.heard("gated");
    let text = carried(prompts(&heard)[1], SECOND).unwrap();
    assert!(text.contains(FIRST) && text.contains("half an answer"), "{text}");
    assert!(!text.contains(SECOND), "{text}");
}
