//! What a daemon says to its service manager, and takes from it, without one that is booted: the test listens in its place.

#![allow(clippy::print_stderr, reason = "a test that cannot run says so")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod harness;

use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net;
use std::path::Path;
use std::process::Stdio;

use harness::{Daemon, HEALTH, HeldWriter, Output, ask, echo, within};
use nix::sys::signal::Signal;
use tempfile::TempDir;
use tokio::net::{UnixDatagram, UnixStream};
use tokio::process::Command;

/// Where a daemon tells how it is.
struct Manager {
    socket: UnixDatagram,
    directory: TempDir,
}

impl Manager {
    fn listen() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let socket = UnixDatagram::bind(directory.path().join("notify")).unwrap();
        Self { socket, directory }
    }

    fn path(&self) -> String {
        self.directory.path().join("notify").to_str().unwrap().to_owned()
    }

    /// The next words, in their order.
    async fn next(&self) -> Vec<String> {
        let mut bytes = [0; 4096];
        let length = within("a word to the manager", self.socket.recv(&mut bytes)).await.unwrap();
        std::str::from_utf8(&bytes[..length]).unwrap().lines().map(str::to_owned).collect()
    }

    /// Everything up to the word that begins so, which comes last.
    async fn until(&self, word: &str) -> Vec<String> {
        let mut heard = Vec::new();
        while !heard.iter().any(|line: &String| line.starts_with(word)) {
            heard.extend(self.next().await);
        }
        heard
    }
}

#[tokio::test]
async fn it_tells_that_it_is_ready_how_it_is_that_it_reloads_and_that_it_stops() {
    let manager = Manager::listen();
    let mut daemon = Daemon::builder().agent("echo", echo()).env("NOTIFY_SOCKET", &manager.path()).start().await;
    assert_eq!(manager.next().await, ["READY=1"]);
    assert_eq!(manager.next().await, ["STATUS=Sessions: 0 active, 0 suspended; agents: 0 running, 0 busy"]);
    daemon.create_session("echo").await;
    manager.until("STATUS=Sessions: 1 active, 0 suspended; agents: 1 running, 0 busy").await;

    // A reload begins and ends, whether it is taken on or not.
    for config in ["[limits]\nprocesses = 7\n", "nonsense = true\n"] {
        let before = std::fs::read_to_string(daemon.config_file()).unwrap();
        std::fs::write(daemon.config_file(), format!("{config}{before}")).unwrap();
        daemon.signal(Signal::SIGHUP);
        let heard = manager.until("READY=1").await;
        let reloading = heard.iter().position(|line| line == "RELOADING=1").expect("it says that it reloads");
        assert!(heard[reloading + 1].starts_with("MONOTONIC_USEC="), "{heard:?}");
        std::fs::write(daemon.config_file(), before).unwrap();
    }

    // The end is announced first, and then each step asks for its time.
    daemon.signal(Signal::SIGTERM);
    let stopping = manager.until("STOPPING=1").await;
    assert!(!stopping.iter().any(|line| line.starts_with("EXTEND_TIMEOUT_USEC=")), "{stopping:?}");
    assert!(daemon.ended().await.success());
    let rest = manager.until("EXTEND_TIMEOUT_USEC=").await;
    assert!(!rest.iter().any(|line| line.starts_with("STATUS=Sessions")), "{rest:?}");
}

#[tokio::test]
async fn the_sign_of_life_comes_for_as_long_as_the_writer_comes_round() {
    if !HeldWriter::is_possible() {
        return;
    }
    let manager = Manager::listen();
    let daemon = Daemon::builder().env("NOTIFY_SOCKET", &manager.path()).env("WATCHDOG_USEC", "300000").start().await;
    for _ in 0..3 {
        manager.until("WATCHDOG=1").await;
    }
    let writer = HeldWriter::hold(daemon.pid());
    tokio::select! {
        biased;
        made = daemon.create_session("demo") => panic!("{made} was recorded without the writer"),
        () = quiet(&manager) => {}
    }
    writer.let_go();
    manager.until("WATCHDOG=1").await;
    assert_eq!(daemon.get("/v1/health").await.status, 200);
}

/// Resolves when no sign of life has come for longer than a manager waits.
async fn quiet(manager: &Manager) {
    let patience = std::time::Duration::from_millis(900);
    loop {
        match tokio::time::timeout(patience, manager.socket.recv(&mut [0; 4096])).await {
            Ok(word) => drop(word.unwrap()),
            Err(_) => return,
        }
    }
}

/// acpd, started by a socket's first client, as systemd starts it.
struct Activation {
    home: TempDir,
}

impl Activation {
    /// Nothing, with a word on stderr, where there is nobody to pass a socket on.
    fn prepare() -> Option<Self> {
        harness::has("systemd-socket-activate").then(|| Self { home: tempfile::tempdir().unwrap() })
    }

    fn socket(&self, name: &str) -> String {
        self.home.path().join(name).to_str().unwrap().to_owned()
    }

    /// The daemon behind these sockets, which is started by whoever connects first.
    fn start(&self, sockets: &[&str], name: &str, arguments: &[&str]) -> tokio::process::Child {
        let mut command = Command::new("systemd-socket-activate");
        for socket in sockets {
            command.arg("--listen").arg(self.socket(socket));
        }
        command.arg(format!("--fdname={name}")).arg("-E").arg(format!("HOME={}", self.home.path().display()));
        command.arg(env!("CARGO_BIN_EXE_acpd")).arg("serve").args(arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true).spawn().unwrap()
    }

    /// Connects without asking what became of the connection: a daemon that refuses the socket resets it when it exits.
    async fn connect(&self, socket: &str) -> UnixStream {
        let stream = within("the socket", async {
            loop {
                match net::UnixStream::connect(self.socket(socket)) {
                    Ok(stream) => return stream,
                    Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {
                        tokio::task::yield_now().await;
                    }
                    Err(error) => panic!("cannot connect to {socket}: {error}"),
                }
            }
        })
        .await;
        stream.set_nonblocking(true).unwrap();
        UnixStream::from_std(stream).unwrap()
    }

    /// What a daemon says that does not take what it is passed.
    async fn refusal(&self, sockets: &[&str], name: &str, arguments: &[&str]) -> String {
        let child = self.start(sockets, name, arguments);
        let _client = self.connect(sockets[0]).await;
        let output = within("the refusal", child.wait_with_output()).await.unwrap();
        let output = Output::new(&output);
        assert_eq!(output.code, 1, "{}", output.stderr);
        output.stderr
    }
}

#[tokio::test]
async fn a_socket_that_is_passed_on_is_served_and_left_alone() {
    let Some(activation) = Activation::prepare() else { return };
    let mut child = activation.start(&["a.sock"], "control", &[]);
    let mut client = activation.connect("a.sock").await;
    let answer = within("the answer", ask(&mut client, HEALTH)).await;
    assert_eq!(answer.map(|answer| answer.status), Some(200));
    let process = nix::unistd::Pid::from_raw(child.id().unwrap().cast_signed());
    nix::sys::signal::kill(process, Signal::SIGTERM).unwrap();
    assert!(within("the end", child.wait()).await.unwrap().success());
    let left = Path::new(&activation.socket("a.sock")).symlink_metadata().unwrap();
    assert!(left.file_type().is_socket(), "the file is systemd's");
}

#[tokio::test]
async fn what_is_not_ours_is_refused_with_what_to_change() {
    let Some(activation) = Activation::prepare() else { return };
    let refused = activation.refusal(&["b.sock"], "web", &[]).await;
    assert!(refused.contains("\"web\"") && refused.contains("FileDescriptorName=control"), "{refused}");
    let refused = activation.refusal(&["c.sock", "d.sock"], "control", &[]).await;
    assert!(refused.contains("2 sockets"), "{refused}");
    let elsewhere = activation.socket("elsewhere.sock");
    let refused = activation.refusal(&["e.sock"], "control", &["--socket", &elsewhere]).await;
    assert!(refused.contains("remove --socket and ACPD_SOCKET"), "{refused}");
}
