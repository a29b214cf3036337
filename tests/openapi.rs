//! The interface describes itself, serves what it describes and nothing else, and refuses everything else in one shape.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod harness;

use std::collections::BTreeSet;

use harness::{Daemon, echo};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[tokio::test]
async fn the_document_is_served_as_it_is_checked_in() {
    let daemon = Daemon::start().await;
    let served = daemon.get("/v1/openapi.json").await;
    assert_eq!(served.header("content-type"), Some("application/json"));
    let checked_in: Value = serde_json::from_str(include_str!("../docs/openapi.json")).unwrap();
    assert!(served.expect_status(200) == checked_in, "ACPD_UPDATE_OPENAPI=1 cargo test --bin acpd openapi writes it");
    assert_eq!(checked_in["openapi"], "3.1.0");
}

#[tokio::test]
async fn what_is_described_is_served_and_nothing_else() {
    const NAME: &str = "01a1e272-8a8e-762f-a984-29c55e0e6330";
    let daemon = Daemon::start().await;
    let document = daemon.get("/v1/openapi.json").await.expect_status(200);
    for (path, item) in document["paths"].as_object().unwrap() {
        let mut described: BTreeSet<String> =
            item.as_object().unwrap().keys().map(|name| name.to_uppercase()).collect();
        if described.contains("GET") {
            described.insert("HEAD".to_owned());
        }
        let parts: Vec<&str> = path.split('/').map(|part| if part.starts_with('{') { NAME } else { part }).collect();
        let path = parts.join("/");
        for method in ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"] {
            // What is described is asked for with what it does not know, so that nothing comes of it.
            let reply = daemon.request(method, &format!("{path}?nonsense=1"), None).await;
            if described.contains(method) {
                assert_eq!(reply.status, 400, "{method} {path}: {}", reply.text);
                assert_ne!(reply.body["error"], "route_not_found", "{method} {path}");
                continue;
            }
            let allowed: BTreeSet<String> =
                reply.header("allow").unwrap_or_default().split(',').map(|name| name.trim().to_owned()).collect();
            assert_eq!(allowed, described, "{method} {path}");
            // An answer to HEAD has no body.
            match method {
                "HEAD" => assert_eq!(reply.status, 405, "{path}"),
                _ => drop(reply.refused(405, "method_not_allowed")),
            }
        }
    }
    let router = include_str!("../src/control/router.rs");
    assert_eq!(
        router.matches(".route(").count(),
        1,
        "a route that is not described: name its handler in with_every_route!"
    );
}

#[tokio::test]
async fn a_refusal_names_the_field_and_what_would_be_right() {
    let daemon = Daemon::builder().agent("echo", echo()).start().await;
    let session = daemon.create_lazy_session("echo").await;
    let path = format!("/v1/sessions/{session}");
    let told = |body: &Value| {
        (body["details"]["field"].as_str().unwrap().to_owned(), body["hint"].as_str().unwrap().to_owned())
    };
    let unknown = daemon.patch(&path, json!({"titel": "x"})).await.refused(400, "invalid_request");
    let (field, hint) = told(&unknown);
    assert_eq!(field, "titel");
    assert!(hint.starts_with("did you mean title? the fields are title, tags, limits"), "{hint}");
    let typed = daemon.patch(&path, json!({"limits": {"turnCap": "many"}})).await.refused(400, "invalid_request");
    let (field, hint) = told(&typed);
    assert_eq!(field, "limits.turnCap");
    assert!(hint.starts_with("give a whole number"), "{hint}");
    let (field, hint) = told(&daemon.get("/v1/sessions?limt=2").await.refused(400, "invalid_request"));
    assert_eq!(field, "limt");
    assert!(hint.starts_with("did you mean limit?"), "{hint}");
    let (field, _) = told(&daemon.get("/v1/sessions?limit=two").await.refused(400, "invalid_request"));
    assert_eq!(field, "limit");
    let near = daemon.get("/v1/session").await.refused(404, "route_not_found");
    assert!(near["hint"].as_str().unwrap().starts_with("did you mean /v1/sessions?"), "{near}");
    // Where nothing can be asked for, whatever is asked is too much.
    for path in ["/v1/health?deep=1", "/v1/info?x", &format!("{path}?messages=0"), "/v1/permissions/x?y=1"] {
        daemon.get(path).await.refused(400, "invalid_request");
    }
    let (field, _) = told(
        &daemon.post(&format!("{path}/prompt?wait=1"), json!({"text": "x"})).await.refused(400, "invalid_request"),
    );
    assert_eq!(field, "wait");
    assert_eq!(daemon.session(&session).await["turns"], 0);
}

#[tokio::test]
async fn what_cannot_be_decoded_is_refused_in_the_same_shape() {
    let daemon = Daemon::start().await;
    for path in [
        "/v1/agents/%ff",
        "/v1/sessions/%ff",
        "/v1/sessions/%ff/turns/%ff",
        "/v1/sessions/%C3%28/turns",
        "/v1/blobs/%ff",
        "/v1/search?q=%ff",
        "/v1/sessions?agent=%C3%28",
    ] {
        daemon.get(path).await.refused(400, "invalid_request");
    }
    for path in ["/v1/sessions/%ff/rules/%ff", "/v1/workspaces/%ff"] {
        daemon.delete(path).await.refused(400, "invalid_request");
    }
    let sessions = "/v1/sessions";
    daemon.raw_request("POST", sessions, "application/json", vec![0xff, 0xfe]).await.refused(400, "invalid_request");
    let text = b"{\"workspace\":\"\xff\"}".to_vec();
    daemon.raw_request("POST", sessions, "application/json", text).await.refused(400, "invalid_request");
    daemon.raw_request("POST", sessions, "text/plain", "{}").await.refused(415, "unsupported_media_type");
    daemon.raw_request("POST", sessions, "", "{}").await.refused(415, "unsupported_media_type");
    daemon.raw_request("POST", sessions, "application/json", "null").await.refused(400, "invalid_request");
    daemon.raw_request("POST", sessions, "application/json", "[]").await.refused(400, "invalid_request");
    let typed = "application/json; charset=utf-8";
    daemon.raw_request("POST", sessions, typed, "{}").await.refused(400, "invalid_request");
    let header = daemon.request_with("GET", "/v1/events?follow=false", &[("last-event-id", "x")], None).await;
    assert_eq!(header.refused(400, "invalid_request")["details"]["field"], "Last-Event-ID");
}

#[tokio::test]
async fn an_answer_without_a_body_has_none() {
    let daemon = Daemon::start().await;
    for (path, status) in [("/v1/health", "200"), ("/v1/nowhere", "404"), ("/v1/events", "200")] {
        let mut stream = daemon.connect().await;
        let request = format!("HEAD {path} HTTP/1.1\r\nhost: acpd\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut text = String::new();
        harness::within("the end of the answer", stream.read_to_string(&mut text)).await.unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")) && body.is_empty(), "{path}: {text}");
    }
}
