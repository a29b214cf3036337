//! What is no request, or could be taken for two: one clear answer in the one shape, and then the end.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod harness;

use harness::{Daemon, RawAnswer};
use tokio::io::AsyncReadExt;

/// A request that would be answered with 200, were it taken for one.
const SMUGGLED: &str = "GET /v1/info HTTP/1.1\r\nhost: acpd\r\n\r\n";

fn post(headers: &str, body: &str) -> String {
    format!("POST /v1/workspaces HTTP/1.1\r\nhost: acpd\r\ncontent-type: application/json\r\n{headers}\r\n{body}")
}

fn get(headers: &str, body: &str) -> String {
    format!("GET /v1/health HTTP/1.1\r\nhost: acpd\r\n{headers}\r\n{body}")
}

#[track_caller]
fn only<'a>(name: &str, answers: &'a [RawAnswer]) -> &'a RawAnswer {
    assert_eq!(answers.len(), 1, "{name}: {answers:?}");
    &answers[0]
}

#[tokio::test]
async fn what_is_no_request_gets_one_refusal_and_the_end() {
    let daemon = Daemon::start().await;
    let shapes = [
        ("garbage", "\u{1}\u{2}\u{3} not http at all\r\n\r\n".to_owned()),
        ("a word", "hello\r\n\r\n".to_owned()),
        ("no version", "GET /v1/health\r\n\r\n".to_owned()),
        ("another version", "GET /v1/health HTTP/3.0\r\nhost: acpd\r\n\r\n".to_owned()),
        ("a target with a space", "GET /v1/he alth HTTP/1.1\r\nhost: acpd\r\n\r\n".to_owned()),
        ("a folded header", get("x: a\r\n b\r\n", SMUGGLED)),
        ("a space before the colon", post("content-length : 5\r\n", SMUGGLED)),
        ("a header without a name", get(": x\r\n", SMUGGLED)),
        ("a NUL in a header", get("x: a\0b\r\n", SMUGGLED)),
        ("a carriage return in a header", get("x: a\rb\r\n", SMUGGLED)),
        ("two lengths that differ", post("content-length: 5\r\ncontent-length: 0\r\n", SMUGGLED)),
        ("two lengths in one", post("content-length: 5, 0\r\n", SMUGGLED)),
        ("a negative length", post("content-length: -1\r\n", SMUGGLED)),
        ("a length with a sign", post("content-length: +5\r\n", SMUGGLED)),
        ("a length that is no number", post("content-length: 0x5\r\n", SMUGGLED)),
        ("a length without an end", post("content-length: 99999999999999999999999999\r\n", SMUGGLED)),
        ("an unknown encoding", post("transfer-encoding: xchunked\r\n", SMUGGLED)),
        ("an encoding after chunked", post("transfer-encoding: chunked, identity\r\n", SMUGGLED)),
        ("chunks in HTTP/1.0", post("transfer-encoding: chunked\r\n", SMUGGLED).replace("HTTP/1.1", "HTTP/1.0")),
    ];
    for (name, bytes) in shapes {
        let answers = daemon.send_raw(bytes.as_bytes()).await;
        let answer = only(name, &answers);
        answer.refused(400, "bad_request");
        assert!(answer.closes(), "{name}: {answer:?}");
    }
    let method = format!("{} / HTTP/1.1\r\nhost: acpd\r\n\r\n", "A".repeat(100_000));
    only("a huge method", &daemon.send_raw(method.as_bytes()).await).refused(431, "head_too_large");
    daemon.get("/v1/health").await.expect_status(200);
}

/// HTTP/2 is not spoken, and an answer in HTTP/1.1 would only confuse whoever speaks it.
#[tokio::test]
async fn another_protocol_is_closed_without_a_word() {
    let daemon = Daemon::start().await;
    let answers = daemon.send_raw(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await;
    assert!(answers.is_empty(), "{answers:?}");
}

/// The body is wrong, or is not what it seems; what follows it is never a request of its own.
#[tokio::test]
async fn a_body_that_could_be_two_is_one() {
    let daemon = Daemon::start().await;
    let chunked = |headers: &str, chunks: &str| post(&format!("{headers}transfer-encoding: chunked\r\n"), chunks);
    let both = format!("0\r\n\r\n{SMUGGLED}");
    for (name, bytes) in [
        ("a length, then chunks", chunked("content-length: 6\r\n", &both)),
        ("chunks, then a length", post("transfer-encoding: chunked\r\ncontent-length: 6\r\n", &both)),
        ("a chunk of no size", chunked("", &format!("x\r\n{SMUGGLED}"))),
        ("a negative chunk", chunked("", &format!("-1\r\n{SMUGGLED}"))),
        ("a chunk without an end", chunked("", &format!("fffffffffffffffff\r\n{SMUGGLED}"))),
        ("a chunk that is longer than it says", chunked("", &format!("1\r\n{{}}\r\n0\r\n\r\n{SMUGGLED}"))),
        ("a huge extension", chunked("", &format!("2;{}\r\n{{}}\r\n0\r\n\r\n", "x".repeat(100_000)))),
        ("huge trailers", chunked("", &format!("2\r\n{{}}\r\n0\r\nx: {}\r\n\r\n", "x".repeat(100_000)))),
    ] {
        let answers = daemon.send_raw(bytes.as_bytes()).await;
        only(name, &answers).refused(400, "invalid_request");
    }
}

#[tokio::test]
async fn unusual_requests_are_requests() {
    let daemon = Daemon::start().await;
    let end = "connection: close\r\n";
    let path = serde_json::json!({"path": daemon.workspace()}).to_string();
    let sizes = format!("{:x};name=value\r\n{path}\r\n0\r\n\r\n", path.len());
    let length = format!("content-length: {}\r\n", path.len());
    for (name, bytes, status) in [
        ("an absolute target", get(end, "").replace("/v1/health", "http://elsewhere/v1/health"), 200),
        ("HTTP/1.0", get("", "").replace("HTTP/1.1", "HTTP/1.0"), 200),
        ("bare line feeds", get(end, "").replace("\r\n", "\n"), 200),
        ("empty lines before it", format!("\r\n\r\n{}", get(end, "")), 200),
        ("an upgrade that is not made", get("connection: close, upgrade\r\nupgrade: websocket\r\n", ""), 200),
        (
            "a tunnel that is not made",
            "CONNECT acpd:443 HTTP/1.1\r\nhost: acpd\r\nconnection: close\r\n\r\n".to_owned(),
            404,
        ),
        ("an extension of a chunk", post(&format!("{end}transfer-encoding: chunked\r\n"), &sizes), 201),
        ("the same length twice", post(&format!("{end}{length}{length}"), &path), 201),
        (
            "a body that looks like a request",
            get(&format!("{end}content-length: {}\r\n", SMUGGLED.len()), SMUGGLED),
            200,
        ),
    ] {
        let answers = daemon.send_raw(bytes.as_bytes()).await;
        assert_eq!(only(name, &answers).status, status, "{name}: {answers:?}");
    }
}

#[tokio::test]
async fn requests_that_come_together_are_answered_in_order() {
    let daemon = Daemon::start().await;
    let unknown = get("", "").replace("health", "nothing");
    let together = format!("{}{unknown}{}", get("", ""), get("connection: close\r\n", SMUGGLED));
    let answers = daemon.send_raw(together.as_bytes()).await;
    assert_eq!(answers.iter().map(|answer| answer.status).collect::<Vec<_>>(), [200, 404, 200]);
    // After a body that is not read, the connection closes, and the answer announces that.
    let body = get(&format!("content-length: {}\r\n", SMUGGLED.len()), SMUGGLED);
    let answers = daemon.send_raw(format!("{}{body}{}", get("", ""), get("", "")).as_bytes()).await;
    assert_eq!(answers.iter().map(|answer| answer.status).collect::<Vec<_>>(), [200, 200]);
    assert!(answers[1].head.contains("connection: close"), "{answers:?}");
    // One that is none ends them, in its turn.
    let answers = daemon.send_raw(format!("{}nothing\r\n\r\n{SMUGGLED}", get("", "")).as_bytes()).await;
    assert_eq!(answers.len(), 2, "{answers:?}");
    assert_eq!(answers[0].status, 200);
    answers[1].refused(400, "bad_request");
}

#[tokio::test]
async fn a_request_to_look_at_the_head_has_no_body() {
    let daemon = Daemon::start().await;
    let mut stream = daemon.connect().await;
    tokio::io::AsyncWriteExt::write_all(
        &mut stream,
        get("connection: close\r\n", "").replace("GET", "HEAD").as_bytes(),
    )
    .await
    .unwrap();
    let mut said = String::new();
    harness::within("the head", stream.read_to_string(&mut said)).await.unwrap();
    assert!(said.starts_with("HTTP/1.1 200") && said.ends_with("\r\n\r\n"), "{said}");
}

#[tokio::test]
async fn a_long_unknown_name_is_not_echoed() {
    let daemon = Daemon::start().await;
    let long = "x`".repeat(150_000);
    for body in [
        format!("{{\"{long}\":1}}"),
        format!("{{\"context\":{{\"{long}\":1}}}}"),
        format!("{{\"start\":\"{long}\"}}"),
        format!("{{\"title\":{{\"{long}\":1}}}}"),
        format!("{{\"workspace\":\"/\",\"agent\":\"{long}\"}}"),
    ] {
        let beginning = body[..20].to_owned();
        let reply = daemon.raw_request("POST", "/v1/sessions", "application/json", body).await;
        assert!((400..500).contains(&reply.status), "{beginning}: {}", reply.status);
        assert!(reply.text.len() < 16 << 10, "{beginning}: {} bytes are told of a name of 300,000", reply.text.len());
    }
    let path = "x".repeat(30_000);
    for path in [format!("/{path}"), format!("/v1/{}", "x/".repeat(15_000)), format!("/v1/sessions?{path}=1")] {
        let reply = daemon.get(&path).await;
        assert!(matches!(reply.status, 400 | 404) && reply.text.len() < 4096, "{} {}", reply.status, reply.text.len());
    }
}

#[tokio::test]
async fn what_is_no_number_is_told_in_words() {
    let daemon = Daemon::start().await;
    for (query, told) in [
        ("limit=abc", "limit: must be a whole number"),
        ("limit=", "limit: must be a whole number"),
        ("offset=99999999999999999999", "offset: is too large"),
    ] {
        let reply = daemon.get(&format!("/v1/sessions?{query}")).await.expect_status(400);
        assert_eq!(reply["message"], told, "{query}");
    }
    let options = "OPTIONS * HTTP/1.1\r\nhost: acpd\r\nconnection: close\r\n\r\n";
    let answers = daemon.send_raw(options.as_bytes()).await;
    let refused = only("options", &answers).refused(404, "route_not_found");
    assert!(refused["hint"].as_str().unwrap().contains("one route"), "{refused}");
}

#[tokio::test]
async fn a_body_in_an_encoding_is_refused_by_its_name() {
    let daemon = Daemon::start().await;
    let headers =
        |encoding: &str| format!("content-encoding: {encoding}\r\nconnection: close\r\ncontent-length: 2\r\n");
    for encoding in ["gzip", "br", "identity, gzip"] {
        let answers = daemon.send_raw(post(&headers(encoding), "{}").as_bytes()).await;
        let refused = only(encoding, &answers).refused(415, "unsupported_media_type");
        assert_eq!(refused["details"]["encoding"], encoding);
    }
    let answers = daemon.send_raw(post(&headers("Identity"), "{}").as_bytes()).await;
    only("identity", &answers).refused(400, "invalid_request");
}
