//! Tests of the harness itself, kept out of `mod.rs` so that they run once and not in every test file. They run from
//! `tests/harness_self.rs`: `mod harness;` and `#[path = "harness/self_test.rs"] mod self_test;`.

use std::os::unix::fs::MetadataExt;

use serde_json::json;

use super::harness::{Daemon, Frame, Heard, SseParser, User, parent_of, process_alive, process_gone, users};

fn frame(id: &str, event: &str, data: &str) -> Frame {
    Frame { id: id.to_owned(), event: event.to_owned(), data: data.to_owned() }
}

/// Every way of cutting a stream in two, and byte by byte, gives the same frames.
fn parsed(stream: &str) -> Vec<Frame> {
    let bytes = stream.as_bytes();
    let whole = SseParser::default().push(bytes);
    for cut in 0..=bytes.len() {
        let mut parser = SseParser::default();
        let mut frames = parser.push(&bytes[..cut]);
        frames.extend(parser.push(&bytes[cut..]));
        assert_eq!(frames, whole, "cut at {cut}");
    }
    let mut parser = SseParser::default();
    let single: Vec<Frame> = bytes.iter().flat_map(|&byte| parser.push(&[byte])).collect();
    assert_eq!(single, whole);
    whole
}

#[test]
fn events_of_all_line_ends_are_parsed() {
    let frames = parsed("id: 1\nevent: a\ndata: x\n\nid: 2\r\nevent: b\r\ndata: y\r\n\r\nid: 3\revent: c\rdata: z\r\r");
    assert_eq!(frames, [frame("1", "a", "x"), frame("2", "b", "y"), frame("3", "c", "z")]);
}

#[test]
fn data_of_several_lines_is_joined_and_only_one_space_is_stripped() {
    assert_eq!(parsed("data: a\ndata:b\ndata:  ü\n\n"), [frame("", "message", "a\nb\n ü")]);
    assert_eq!(parsed("data\n\n"), [frame("", "message", "")]);
}

#[test]
fn comments_unknown_fields_and_unfinished_events_are_not_events() {
    assert_eq!(
        parsed(": heartbeat\n\nretry: 5\nfoo: bar\nevent: lost\n\ndata: x\n\ndata: unfinished\n"),
        [frame("", "message", "x")]
    );
}

#[test]
fn an_id_stays_in_force_and_a_byte_order_mark_is_skipped() {
    let frames = parsed("\u{feff}id: 7\ndata: a\n\ndata: b\n\nid\ndata: c\n\n");
    assert_eq!(frames, [frame("7", "message", "a"), frame("7", "message", "b"), frame("", "message", "c")]);
}

#[tokio::test]
async fn a_process_is_alive_until_it_is_gone() {
    let mut child = tokio::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
    let process_id = child.id().unwrap();
    assert!(process_alive(process_id));
    assert_eq!(parent_of(process_id), Some(std::process::id()));
    drop(child.stdin.take());
    process_gone(process_id).await;
    assert!(!process_alive(process_id), "a zombie counts as dead");
    child.wait().await.unwrap();
    process_gone(process_id).await;
}

#[tokio::test]
async fn a_daemon_and_its_agents_run_as_the_user_that_the_test_names() {
    for daemon_user in users() {
        let builder = Daemon::builder().agent("echo", json!([{"handshake": {}}, {"prompt": [{"textFromPid": true}]}]));
        let own = User { uid: nix::unistd::geteuid().as_raw(), gid: nix::unistd::getegid().as_raw() };
        let user = daemon_user.unwrap_or(own);
        let daemon = builder.user_of(daemon_user).start().await;
        let session = daemon.create_session("echo").await;
        daemon.events(&session, None).await.until("process.ready").await;
        let agent = daemon.session(&session).await["pid"].as_u64().unwrap();
        for process in [u64::from(daemon.pid()), agent] {
            let owner = std::fs::metadata(format!("/proc/{process}")).unwrap();
            assert_eq!(User { uid: owner.uid(), gid: owner.gid() }, user);
        }
    }
}

#[tokio::test]
async fn what_an_agent_hears_is_recorded_with_its_process_and_its_end() {
    let script = json!([{"record": true}, {"sessionId": "own-{pid}"}, {"handshake": {}}, {"repeat": [{"prompt": []}]}]);
    let mut daemon = Daemon::builder().agent("quiet", script).start().await;
    assert_eq!(daemon.heard("quiet"), []);
    let session = daemon.create_session("quiet").await;
    daemon.prompt_and_wait(&session, "hello").await;
    daemon.terminate().await;
    let heard = daemon.heard("quiet");
    let methods: Vec<&str> = heard.iter().map(|heard| heard.method.as_str()).collect();
    assert_eq!(methods, ["initialize", "session/new", "session/prompt", "eof"]);
    let Heard { pid, params, .. } = &heard[2];
    assert_eq!(params["sessionId"], format!("own-{pid}"));
    assert_eq!(params["prompt"][0]["text"], "hello");
}
