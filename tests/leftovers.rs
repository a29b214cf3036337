//! What a killed daemon and a killed shim leave, where there is no cgroup: the next daemon ends it, and nobody else.
//!
//! It knows its own by three things: the agent's number together with the time it started, whoever is below it, and the
//! session's mark in the environment. An orphan with an empty environment has none of them, and is held by a cgroup only
//! (tests/cgroup.rs).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod harness;

use harness::{
    Bystander, Daemon, DaemonBuilder, IMPATIENT, NASTY, Tree, User, kill_with_shims, process_alive, process_started,
    users,
};
use serde_json::{Value, json};

/// Itself, a plain child, one without the mark in a group of its own, and one that has left the family with the mark.
fn findable() -> Value {
    json!([
        {"handshake": {}}, {"ignoreSignals": ["TERM", "HUP", "INT"]}, {"ignoreEof": true},
        {"fork": {}}, {"fork": {"ownGroup": true, "clearEnv": true}}, {"fork": {"setsid": true, "orphan": true}},
        {"repeat": [{"prompt": [{"textFromPid": true}, {"text": " "}, {"textFromChildren": true}]}]}
    ])
}

fn builder(user: Option<User>) -> DaemonBuilder {
    let without = IMPATIENT.replace("[processes]\n", "[processes]\ncgroup = \"off\"\n");
    Daemon::builder().config(&without).agent(NASTY, findable()).user_of(user)
}

async fn grow_many(daemon: &Daemon, count: usize) -> Vec<Tree> {
    let mut trees = Vec::new();
    for _ in 0..count {
        let session = daemon.create_lazy_session(NASTY).await;
        trees.push(Tree::grow_in(daemon, session).await);
    }
    trees
}

async fn recorded(daemon: &Daemon) -> i64 {
    daemon.sql_number("SELECT count(*) FROM processes".to_owned()).await
}

#[tokio::test]
async fn the_next_daemon_ends_the_agents_their_families_and_whoever_carries_the_mark() {
    for user in users() {
        let mut daemon = builder(user).start().await;
        let trees = grow_many(&daemon, 3).await;
        assert_eq!(recorded(&daemon).await, 3);
        let unmarked = Bystander::start(user, "");
        let anothers = Bystander::start(user, &uuid::Uuid::now_v7().to_string());
        kill_with_shims(&mut daemon, &trees).await;

        daemon.restart().await;
        assert!(trees.iter().all(Tree::is_gone), "the daemon is ready after the end of what was left");
        assert_eq!(recorded(&daemon).await, 0);
        assert!(unmarked.is_alive() && anothers.is_alive());
        for tree in &trees {
            let view = daemon.session(&tree.session).await;
            assert_eq!((&view["status"], &view["processState"]), (&json!("active"), &json!("stopped")), "{view}");
        }
        let turn = daemon.prompt_and_wait(&trees[0].session, "who is there now?").await;
        assert_eq!(turn["status"], "completed", "{turn}");
        assert_eq!(recorded(&daemon).await, 1);
    }
}

#[tokio::test]
async fn a_number_that_was_given_again_is_left_alone() {
    for user in users() {
        let mut daemon = builder(user).start().await;
        let trees = grow_many(&daemon, 3).await;
        daemon.kill().await;
        for tree in &trees {
            tree.gone().await;
        }
        assert_eq!(recorded(&daemon).await, 3, "a daemon that is killed leaves its record");
        let [of_another_time, of_another_boot, meant] = [(); 3].map(|()| Bystander::start(user, ""));
        let claim = |tree: &Tree, process: &Bystander, started: u64, boot: &str| {
            let (session, pid) = (&tree.session, process.pid);
            format!(
                "UPDATE processes SET agent_pid = {pid}, agent_started = {started}, shim_pid = {pid}, \
                 shim_started = {started} + 1, process_group = {pid}, boot_id = {boot} WHERE session_id = '{session}';"
            )
        };
        let started = |process: &Bystander| process_started(process.pid);
        let statements = [
            claim(&trees[0], &of_another_time, started(&of_another_time) + 2, "boot_id"),
            claim(&trees[1], &of_another_boot, started(&of_another_boot), "'00000000-0000-4000-8000-000000000000'"),
            claim(&trees[2], &meant, started(&meant), "boot_id"),
        ];
        daemon.sql(statements.concat()).await;

        daemon.restart().await;
        assert!(of_another_time.is_alive() && of_another_boot.is_alive());
        assert!(!process_alive(meant.pid), "this shows that the two others were looked at");
        assert_eq!(recorded(&daemon).await, 0);
    }
}
