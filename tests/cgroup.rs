//! Agents' cgroups: where the daemon's own was delegated to it, each agent is in one below, and goes with it.
//!
//! This needs cgroup v2 and the right to make a cgroup, which is root's; elsewhere these tests say that they were
//! skipped. Whether the kernel has the controllers does not matter here, so limits are not shown.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod harness;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use harness::{
    Bystander, Cgroup, Daemon, DaemonBuilder, IMPATIENT, NASTY, Tree, User, kill_with_shims, members, nasty,
    process_gone, process_stopped, signal, users, within,
};
use nix::sys::signal::Signal;
use serde_json::json;

/// How many agents meet each end.
const AGENTS: usize = 3;

fn builder(cgroup: &Cgroup, user: Option<User>, config: &str) -> DaemonBuilder {
    Daemon::builder().config(config).agent(NASTY, nasty()).user_of(user).cgroup(cgroup)
}

/// The ids of sessions and processes in the order in which the kernel and the directory tell them.
fn sorted<T: Ord>(mut list: Vec<T>) -> Vec<T> {
    list.sort();
    list
}

fn assert_nothing_left(cgroup: &Cgroup, trees: &[Tree]) {
    assert!(trees.iter().all(Tree::is_gone));
    assert!(cgroup.agents().is_empty(), "{:?}", cgroup.agents());
}

/// Waits until a cgroup is removed. The kernel tells nobody, so it is looked at again and again.
async fn removed(cgroup: &Path) {
    within(&format!("the end of {}", cgroup.display()), async {
        while cgroup.exists() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn daemon_and_shims_are_in_one_leaf_and_every_agent_with_all_its_processes_in_another() {
    for user in users() {
        let Some(cgroup) = Cgroup::delegated(user) else { return };
        let daemon = builder(&cgroup, user, IMPATIENT).start().await;
        assert_eq!(members(&cgroup.daemon()), [daemon.pid()]);
        let trees = Tree::grow_many(&daemon, AGENTS).await;
        let shims = trees.iter().map(|tree| tree.shim(&daemon));
        assert_eq!(members(&cgroup.daemon()), sorted([daemon.pid()].into_iter().chain(shims).collect()));
        assert!(members(cgroup.directory()).is_empty(), "a cgroup that hands controllers down has no processes");
        for tree in &trees {
            let directory = cgroup.agent(&tree.session);
            assert_eq!(members(&directory), sorted(tree.processes.clone()));
            let recorded = format!(
                "SELECT count(*) FROM processes WHERE session_id = '{}' AND cgroup = '{}'",
                tree.session,
                directory.display()
            );
            assert_eq!(daemon.sql_number(recorded).await, 1);
        }
        assert_eq!(cgroup.agents(), sorted(trees.iter().map(|tree| cgroup.agent(&tree.session)).collect()));
    }
}

#[tokio::test]
async fn archiving_leaves_no_process_and_no_cgroup() {
    for user in users() {
        let Some(cgroup) = Cgroup::delegated(user) else { return };
        let daemon = builder(&cgroup, user, IMPATIENT).start().await;
        let trees = Tree::grow_many(&daemon, AGENTS).await;
        futures_util::future::join_all(trees.iter().map(|tree| tree.archive(&daemon))).await;
        assert_nothing_left(&cgroup, &trees);
    }
}

#[tokio::test]
async fn an_idle_stop_leaves_no_process_and_no_cgroup() {
    let config = format!("{IMPATIENT}[sessions]\nidle_timeout = \"200ms\"");
    for user in users() {
        let Some(cgroup) = Cgroup::delegated(user) else { return };
        let daemon = builder(&cgroup, user, &config).start().await;
        let trees = Tree::grow_many(&daemon, AGENTS).await;
        for tree in &trees {
            assert_eq!(tree.exited(&daemon).await.payload()["reason"], "idle");
        }
        assert_nothing_left(&cgroup, &trees);
    }
}

#[tokio::test]
async fn a_crash_of_the_agent_or_its_shim_leaves_no_process_and_no_cgroup() {
    for user in users() {
        let Some(cgroup) = Cgroup::delegated(user) else { return };
        let daemon = builder(&cgroup, user, IMPATIENT).start().await;
        let trees = Tree::grow_many(&daemon, AGENTS).await;
        let [exiting, killed, without_shim] = &trees[..] else { panic!("there are three") };
        daemon.prompt(&exiting.session, "crash").await;
        daemon.gate(NASTY).reached("crash").await.open().await;
        signal(killed.root(), Signal::SIGKILL);
        signal(without_shim.shim(&daemon), Signal::SIGKILL);
        for tree in &trees {
            assert_eq!(tree.exited(&daemon).await.payload()["reason"], "crash");
        }
        assert_nothing_left(&cgroup, &trees);
        // The next process of a session gets a cgroup again.
        let again = daemon.prompt_and_wait(&killed.session, "who is there now?").await;
        assert_eq!(again["status"], "completed", "{again}");
        assert_eq!(cgroup.agents(), [cgroup.agent(&killed.session)]);
    }
}

#[tokio::test]
async fn a_stop_of_the_daemon_leaves_no_process_and_no_cgroup() {
    for user in users() {
        let Some(cgroup) = Cgroup::delegated(user) else { return };
        let mut daemon = builder(&cgroup, user, IMPATIENT).start().await;
        let trees = Tree::grow_many(&daemon, AGENTS).await;
        assert!(daemon.terminate().await.success());
        assert_nothing_left(&cgroup, &trees);
        assert!(members(&cgroup.daemon()).is_empty());
    }
}

#[tokio::test]
async fn a_kill_of_the_daemon_leaves_no_process_and_the_next_one_removes_the_cgroups() {
    for user in users() {
        let Some(cgroup) = Cgroup::delegated(user) else { return };
        let mut daemon = builder(&cgroup, user, IMPATIENT).start().await;
        let trees = Tree::grow_many(&daemon, AGENTS).await;
        daemon.kill().await;
        for tree in &trees {
            tree.gone().await;
        }
        daemon.restart().await;
        assert_nothing_left(&cgroup, &trees);
    }
}

/// Outside the promise of the shim: only the cgroup still holds an orphan with an empty environment.
#[tokio::test]
async fn after_a_kill_of_daemon_and_shims_the_next_daemon_clears_their_cgroups_and_nothing_else() {
    for user in users() {
        let Some(cgroup) = Cgroup::delegated(user) else { return };
        let mut daemon = builder(&cgroup, user, IMPATIENT).start().await;
        let trees = Tree::grow_many(&daemon, AGENTS).await;
        let nobodys_session = uuid::Uuid::now_v7().to_string();
        let beside = Bystander::start(user, &nobodys_session);
        let inside = Bystander::start(user, &nobodys_session);
        let bystanders = cgroup.add(&format!("agent-{nobodys_session}"), inside.pid, user);
        kill_with_shims(&mut daemon, &trees).await;

        daemon.restart().await;
        assert!(trees.iter().all(Tree::is_gone), "the daemon is ready after the end of what was left");
        assert_eq!(cgroup.agents(), std::slice::from_ref(&bystanders));
        assert_eq!(members(&bystanders), [inside.pid]);
        assert!(beside.is_alive() && inside.is_alive());
        assert_eq!(daemon.sql_number("SELECT count(*) FROM processes".to_owned()).await, 0);
        let turn = daemon.prompt_and_wait(&trees[0].session, "who is there now?").await;
        assert_eq!(turn["status"], "completed", "the sessions go on: {turn}");
    }
}

#[tokio::test]
async fn without_delegation_or_when_turned_off_there_is_no_cgroup_and_still_nothing_is_left() {
    let off = IMPATIENT.replace("[processes]\n", "[processes]\ncgroup = \"off\"\n");
    let (Some(unmarked), Some(turned_off)) = (Cgroup::make(), Cgroup::delegated(None)) else { return };
    for (cgroup, config) in [(unmarked, IMPATIENT), (turned_off, off.as_str())] {
        let daemon = builder(&cgroup, None, config).start().await;
        let tree = Tree::grow(&daemon).await;
        assert!(!cgroup.daemon().exists());
        assert!(cgroup.agents().is_empty(), "{:?}", cgroup.agents());
        let everybody = [daemon.pid(), tree.shim(&daemon)].into_iter().chain(tree.processes.clone());
        assert_eq!(members(cgroup.directory()), sorted(everybody.collect()));
        tree.archive(&daemon).await;
    }
}

#[tokio::test]
async fn an_agent_that_cannot_be_started_or_ends_at_once_leaves_no_cgroup() {
    for user in users() {
        let Some(cgroup) = Cgroup::delegated(user) else { return };
        let agents = "[agents.brief]\ncommand = \"/bin/sh\"\nargs = [\"-c\", \"exit 3\"]\n[agents.garbage]\ncommand = ";
        let builder = builder(&cgroup, user, "");
        let garbage = builder.root().join("garbage");
        std::fs::write(&garbage, "\u{1}no program").unwrap();
        std::fs::set_permissions(&garbage, Permissions::from_mode(0o755)).unwrap();
        let daemon = builder.config(&format!("{agents}{}", json!(garbage))).start().await;
        for (agent, expected) in [("brief", "exited with code 3"), ("garbage", "cannot execute")] {
            let session = daemon.create_lazy_session(agent).await;
            let turn = daemon.prompt_and_wait(&session, "hello").await;
            assert_eq!((&turn["status"], &turn["error"]["code"]), (&json!("failed"), &json!("agent_exited")), "{turn}");
            assert!(turn["error"]["message"].as_str().unwrap().contains(expected), "{turn}");
            assert_nothing_left(&cgroup, &[]);
        }
    }
}

/// The record fails, so the session gets another actor, while the first one's shim does not do its work: the end of the
/// first process, seconds later, must not be the end of the second.
#[tokio::test]
async fn the_late_end_of_one_process_does_not_touch_the_next_one_of_the_same_session() {
    let script = json!([{"handshake": {}}, {"repeat": [{"prompt": [{"gate": "middle"}, {"textFromPid": true}]}]}]);
    let Some(cgroup) = Cgroup::delegated(None) else { return };
    let mut daemon = Daemon::builder().agent("gated", script).cgroup(&cgroup).start().await;
    daemon.prepare_full_log().await;
    let session = daemon.create_session("gated").await;
    daemon.prompt(&session, "one").await;
    let first = daemon.gate("gated").reached("middle").await;
    let directory = cgroup.agent(&session);
    assert_eq!(members(&directory), [first.pid]);
    let shim = harness::parent_of(first.pid).unwrap();
    signal(shim, Signal::SIGSTOP);
    process_stopped(shim).await;
    let full = daemon.fill_log().await;
    first.open().await;
    daemon.post(&format!("/v1/sessions/{session}/prompt"), json!({"text": "two"})).await.expect_status(500);
    daemon.free_log(&full).await;
    let accepted = daemon.prompt(&session, "three").await;
    let second = daemon.gate("gated").reached("middle").await;
    process_gone(shim).await;
    removed(&directory).await;
    second.open().await;
    let turn = daemon.wait_turn(&session, accepted["turnId"].as_str().unwrap()).await;
    assert_eq!(turn["status"], "completed", "{turn}");
    daemon.post(&format!("/v1/sessions/{session}/archive"), json!({})).await.expect_status(200);
    assert_nothing_left(&cgroup, &[]);
}
