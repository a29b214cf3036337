//! A client that is another user: the kernel tells the daemon who connected, so whoever connects has to be that user.
//!
//! A thread of its own becomes the user, connects, and ends; the connection stays what it was made as. Only root can do that.

use std::os::unix::net;
use std::path::Path;

use bytes::Bytes;
use hyper::header::CONTENT_TYPE;
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use serde_json::{Value, json};
use tokio::net::UnixStream;

use super::client::{self, Reply};
use super::events::EventStream;
use super::{Daemon, User, within};

/// One user's way to the daemon. Every request has a connection of its own.
pub struct AsUser<'a> {
    daemon: &'a Daemon,
    user: User,
    groups: Vec<u32>,
}

impl Daemon {
    /// The daemon as this user reaches it, with these supplementary groups.
    pub fn as_user(&self, user: User, groups: &[u32]) -> AsUser<'_> {
        AsUser { daemon: self, user, groups: groups.to_vec() }
    }
}

impl AsUser<'_> {
    /// A connection of this user's, if the kernel lets them get to the socket at all.
    pub fn try_connect(&self) -> std::io::Result<UnixStream> {
        let socket = self.daemon.socket();
        let connected = std::thread::scope(|scope| scope.spawn(|| self.connect_here(socket)).join());
        let stream = connected.expect("the thread does not panic")?;
        stream.set_nonblocking(true)?;
        UnixStream::from_std(stream)
    }

    /// The thread does not get back to what it was: all of its numbers are the user's.
    fn connect_here(&self, socket: &Path) -> std::io::Result<net::UnixStream> {
        let groups: Vec<_> = self.groups.iter().map(|group| rustix::process::Gid::from_raw(*group)).collect();
        let (uid, gid) = (rustix::process::Uid::from_raw(self.user.uid), rustix::process::Gid::from_raw(self.user.gid));
        set_thread_groups(&groups)?;
        set_thread_res_gid(gid, gid, gid)?;
        set_thread_res_uid(uid, uid, uid)?;
        net::UnixStream::connect(socket)
    }

    /// A request that may fail, because the user is not served.
    pub async fn try_request(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<Value>,
    ) -> Result<Reply, String> {
        let stream = self.try_connect().map_err(|error| format!("cannot connect: {error}"))?;
        let mut headers = headers.to_vec();
        if body.is_some() {
            headers.push((CONTENT_TYPE.as_str(), client::JSON));
        }
        let body = body.map_or_else(Bytes::new, |body| body.to_string().into());
        let exchange = client::exchange_on(stream, client::request(method, path, &headers, body));
        within(&format!("the answer to {method} {path}"), exchange).await
    }

    pub async fn request(&self, method: &str, path: &str, body: Option<Value>) -> Reply {
        self.request_with(method, path, &[], body).await
    }

    pub async fn request_with(&self, method: &str, path: &str, headers: &[(&str, &str)], body: Option<Value>) -> Reply {
        self.try_request(method, path, headers, body).await.unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    pub async fn get(&self, path: &str) -> Reply {
        self.request("GET", path, None).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Reply {
        self.request("POST", path, Some(body)).await
    }

    pub async fn patch(&self, path: &str, body: Value) -> Reply {
        self.request("PATCH", path, Some(body)).await
    }

    pub async fn delete(&self, path: &str) -> Reply {
        self.request("DELETE", path, None).await
    }

    /// Any stream of events, as far as this user is shown one.
    pub async fn event_stream(&self, path: &str, headers: &[(&str, &str)]) -> EventStream {
        let stream = self.try_connect().unwrap_or_else(|error| panic!("GET {path}: {error}"));
        let request = client::request("GET", path, headers, Bytes::new());
        let opened = within(&format!("the stream {path}"), client::open_on(stream, request)).await;
        EventStream::of(path, opened.unwrap_or_else(|error| panic!("GET {path}: {error}")))
    }

    /// Makes a session of this user's in the test's workspace, and returns its id.
    pub async fn create_session(&self, agent: &str) -> String {
        self.create_session_with(json!({"workspace": self.daemon.workspace(), "agent": agent})).await
    }

    /// The same, whose process starts with the first prompt only.
    pub async fn create_lazy_session(&self, agent: &str) -> String {
        let body = json!({"workspace": self.daemon.workspace(), "agent": agent, "start": "lazy"});
        self.create_session_with(body).await
    }

    async fn create_session_with(&self, body: Value) -> String {
        let session = self.post("/v1/sessions", body).await.expect_status(201);
        session["id"].as_str().expect("a session has an id").to_owned()
    }
}
