//! No orphan: whatever ends an agent, a session or the daemon, no process of a nasty agent is left.
//!
//! Every end but the last comes twenty times, as root and as an ordinary user.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod harness;

use harness::{Daemon, DaemonBuilder, IMPATIENT, NASTY, Tree, User, nasty, signal, users};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

/// How often each end comes.
const RUNS: usize = 20;

fn builder(user: Option<User>, config: &str) -> DaemonBuilder {
    Daemon::builder().config(config).agent(NASTY, nasty()).user_of(user)
}

async fn assert_active(daemon: &Daemon, tree: &Tree) {
    let view = daemon.session(&tree.session).await;
    assert_eq!((&view["status"], &view["processState"]), (&json!("active"), &json!("stopped")), "{view}");
    assert_eq!(view["pid"], Value::Null);
}

#[tokio::test]
async fn archiving_leaves_no_process() {
    for user in users() {
        let daemon = builder(user, IMPATIENT).start().await;
        let trees = Tree::grow_many(&daemon, RUNS).await;
        futures_util::future::join_all(trees.iter().map(|tree| tree.archive(&daemon))).await;
        for tree in &trees {
            assert_eq!(tree.exited(&daemon).await.payload()["reason"], "archive");
        }
    }
}

#[tokio::test]
async fn an_idle_stop_leaves_no_process() {
    let config = format!("{IMPATIENT}[sessions]\nidle_timeout = \"200ms\"");
    for user in users() {
        let daemon = builder(user, &config).start().await;
        let trees = Tree::grow_many(&daemon, RUNS).await;
        for tree in &trees {
            assert_eq!(tree.exited(&daemon).await.payload()["reason"], "idle");
            tree.gone().await;
            assert_active(&daemon, tree).await;
        }
    }
}

#[tokio::test]
async fn a_crash_of_the_agent_leaves_no_process() {
    for user in users() {
        let daemon = builder(user, IMPATIENT).start().await;
        let trees = Tree::grow_many(&daemon, RUNS).await;
        let (killed, crashing) = trees.split_at(RUNS / 2);
        for tree in killed {
            signal(tree.root(), Signal::SIGKILL);
        }
        for tree in crashing {
            daemon.prompt(&tree.session, "crash").await;
            daemon.gate("nasty").reached("crash").await.open().await;
        }
        for tree in &trees {
            let exited = tree.exited(&daemon).await;
            assert_eq!(exited.payload()["reason"], "crash");
            let told = (&exited.payload()["signal"], &exited.payload()["code"]);
            assert!([(&json!(9), &Value::Null), (&Value::Null, &json!(1))].contains(&told), "{told:?}");
            tree.gone().await;
            assert_active(&daemon, tree).await;
        }
    }
}

#[tokio::test]
async fn a_stop_of_the_daemon_leaves_no_process() {
    for user in users() {
        for _ in 0..RUNS {
            let mut daemon = builder(user, IMPATIENT).start().await;
            let tree = Tree::grow(&daemon).await;
            assert!(daemon.terminate().await.success());
            assert!(tree.is_gone(), "the daemon ends after them");
        }
    }
}

#[tokio::test]
async fn a_kill_of_the_daemon_leaves_no_process_and_needs_no_restart() {
    for user in users() {
        for _ in 0..RUNS {
            let mut daemon = builder(user, IMPATIENT).start().await;
            let tree = Tree::grow(&daemon).await;
            daemon.kill().await;
            tree.gone().await;
        }
    }
}

#[tokio::test]
async fn a_kill_of_the_shim_is_noticed_and_leaves_no_process() {
    for user in users() {
        let daemon = builder(user, IMPATIENT).start().await;
        let trees = Tree::grow_many(&daemon, RUNS).await;
        for tree in &trees {
            signal(tree.shim(&daemon), Signal::SIGKILL);
        }
        for tree in &trees {
            tree.exited(&daemon).await;
            tree.gone().await;
            assert_active(&daemon, tree).await;
        }
        // A session whose shim was killed goes on as after any crash.
        let turn = daemon.prompt_and_wait(&trees[0].session, "who is there now?").await;
        assert_eq!(turn["status"], "completed", "{turn}");
    }
}

#[tokio::test]
async fn a_second_signal_kills_a_nasty_agent_at_once() {
    let patient = "[processes]\ncancel_grace = \"10m\"\neof_grace = \"10m\"\nterm_grace = \"10m\"\n\
        shutdown_timeout = \"10m\"";
    let mut daemon = builder(None, patient).start().await;
    let tree = Tree::grow(&daemon).await;
    daemon.signal(Signal::SIGTERM);
    daemon.is_stopping().await;
    daemon.signal(Signal::SIGTERM);
    assert!(daemon.ended().await.success());
    assert!(tree.is_gone());
    daemon.restart().await;
    let exited = tree.exited(&daemon).await;
    assert_eq!((&exited.payload()["reason"], &exited.payload()["signal"]), (&json!("shutdown"), &json!(9)));
    assert_eq!(daemon.session(&tree.session).await["status"], "suspended");
}
