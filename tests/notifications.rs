//! Notifications: real commands of a real daemon, what they are told, and that no session ever waits for one.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::float_cmp, reason = "counts are whole numbers")]

mod exposition;
mod harness;

use std::fs::{self, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use exposition::{Exposition, Flavour};
use harness::{Daemon, DaemonBuilder, ORDINARY, echo, process_alive, process_gone, users, within};
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use serde_json::{Value, json};

/// Keeps what it is given in a directory, which gets its name when all is in it.
const RECORDER: &str = r#"
base=$1; shift
part="$base/$$.part"
mkdir "$part"
for argument in "$@"; do printf '%s\n' "$argument"; done > "$part/args"
env > "$part/env"
cat > "$part/stdin"
id -u > "$part/uid"
pwd > "$part/cwd"
mv "$part" "$base/$$.run"
"#;

/// A command that keeps what it is given.
struct Recorder {
    script: PathBuf,
    runs: PathBuf,
}

/// What one command was given.
struct Run {
    args: Vec<String>,
    env: String,
    json: Value,
    uid: String,
    cwd: String,
}

impl Run {
    fn read(directory: &Path) -> Self {
        let text = |name: &str| fs::read_to_string(directory.join(name)).unwrap();
        Self {
            args: text("args").lines().map(str::to_owned).collect(),
            env: text("env"),
            json: serde_json::from_str(&text("stdin")).unwrap(),
            uid: text("uid").trim().to_owned(),
            cwd: text("cwd").trim().to_owned(),
        }
    }

    fn variable(&self, name: &str) -> Option<&str> {
        self.env.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
    }

    fn field(&self, name: &str) -> &str {
        self.json[name].as_str().unwrap_or_else(|| panic!("{name} in {}", self.json))
    }
}

impl Recorder {
    fn new(builder: &DaemonBuilder) -> Self {
        Self::with(builder, RECORDER)
    }

    fn with(builder: &DaemonBuilder, script: &str) -> Self {
        let (file, runs) = (builder.root().join("hook.sh"), builder.root().join("runs"));
        fs::write(&file, script).unwrap();
        fs::create_dir(&runs).unwrap();
        fs::set_permissions(&runs, Permissions::from_mode(0o777)).unwrap();
        Self { script: file, runs }
    }

    /// A section of the configuration that runs it.
    fn section(&self, name: &str, keys: &str, args: &[&str]) -> String {
        let args = [&[self.script.to_str().unwrap(), self.runs.to_str().unwrap()], args].concat();
        let args = serde_json::to_string(&args).unwrap();
        format!("[notifications.{name}]\ncommand = \"/bin/sh\"\nargs = {args}\n{keys}\n")
    }

    /// All that have run, in the order of the log.
    fn runs(&self) -> Vec<Run> {
        let entries = fs::read_dir(&self.runs).unwrap().map(|entry| entry.unwrap().path());
        let done = entries.filter(|path| path.extension().is_some_and(|extension| extension == "run"));
        let mut runs: Vec<Run> = done.map(|path| Run::read(&path)).collect();
        runs.sort_by_key(|run| run.json["eventId"].as_i64());
        runs
    }

    async fn until(&self, what: &str, is_it: impl Fn(&[Run]) -> bool) -> Vec<Run> {
        within(what, async {
            loop {
                let runs = self.runs();
                if is_it(&runs) {
                    return runs;
                }
                tokio::task::yield_now().await;
            }
        })
        .await
    }

    async fn count(&self, count: usize) -> Vec<Run> {
        self.until(&format!("{count} runs"), |runs| runs.len() >= count).await
    }
}

async fn scrape(daemon: &Daemon) -> Exposition {
    Exposition::parse(&daemon.get("/metrics").await.text, Flavour::Classic)
}

async fn counted(daemon: &Daemon, outcome: &str) -> f64 {
    scrape(daemon).await.value(&format!("acpd_notifications_total{{outcome=\"{outcome}\"}}"))
}

async fn until_counted(daemon: &Daemon, outcome: &str, count: f64) {
    within(&format!("{count} of {outcome}"), async {
        while counted(daemon, outcome).await < count {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// An agent that asks whether it may, and says what it was answered.
fn asking(title: &str) -> Value {
    let params = json!({"sessionId": "test-session", "toolCall": {"toolCallId": "c1", "title": title, "kind": "execute", "rawInput": {"command": "cargo test"}},
        "options": [{"optionId": "once", "name": "Once", "kind": "allow_once"}, {"optionId": "no", "name": "No", "kind": "reject_once"}]});
    let ask = json!({"request": {"method": "session/request_permission", "params": params}});
    json!([{"handshake": {}}, {"repeat": [{"prompt": [ask, {"textFromAnswer": true}]}]}])
}

const ALL: &str = "on = [\"turn.completed\", \"permission.requested\", \"session.failed\"]";

#[tokio::test]
async fn a_turn_a_question_and_a_failed_session_are_told_by_arguments_variables_and_json() {
    let builder = Daemon::builder();
    let hook = Recorder::new(&builder);
    let section = hook.section("mine", ALL, &["{event}", "{title}", "{summary}", "--status={status}"]);
    let daemon = builder
        .config(&section)
        .env("XDG_RUNTIME_DIR", "/run/of/mine")
        .env("SECRET_OF_MINE", "x")
        .agent("asking", asking("--rm \u{1b}[2J\nit"))
        .agent("echo", echo())
        .start()
        .await;
    let body = json!({"workspace": daemon.workspace(), "agent": "asking", "title": "--fix {summary} $(id)"});
    let session = daemon.post("/v1/sessions", body).await.expect_status(201)["id"].as_str().unwrap().to_owned();
    let turn = daemon.prompt(&session, "go").await["turnId"].as_str().unwrap().to_owned();

    let asked = hook.count(1).await.remove(0);
    assert_eq!(
        asked.args,
        ["permission.requested", " --fix {summary} $(id)", r"$ cargo test — --rm \u{1b}[2J\nit", "--status=open"]
    );
    let (permission, title) = (asked.variable("ACPD_PERMISSION_ID").unwrap(), asked.variable("ACPD_TITLE").unwrap());
    assert_eq!((title, asked.variable("ACPD_SESSION_ID")), ("--fix {summary} $(id)", Some(session.as_str())));
    assert_eq!((asked.variable("ACPD_TURN_ID"), asked.field("turnId")), (Some(turn.as_str()), turn.as_str()));
    assert_eq!(asked.variable("XDG_RUNTIME_DIR"), Some("/run/of/mine"), "notify-send needs it");
    assert_eq!(asked.variable("SECRET_OF_MINE"), None, "the environment is a clean one");
    assert_eq!(asked.variable("ACPD_SOCKET").map(Path::new), Some(daemon.socket()));
    assert_eq!(Path::new(&asked.cwd), daemon.home());
    assert_eq!((asked.field("agent"), asked.field("notification")), ("asking", "mine"));
    assert_eq!(
        (asked.field("permissionId"), asked.field("summary")),
        (permission, r"$ cargo test — --rm \u{1b}[2J\nit")
    );

    daemon.post(&format!("/v1/permissions/{permission}"), json!({"decision": "allow"})).await.expect_status(200);
    let ended = hook.count(2).await.remove(1);
    assert_eq!((ended.args[0].as_str(), ended.args[3].as_str()), ("turn.completed", "--status=completed"));
    assert!(ended.field("summary").contains("once"), "the agent's last words: {}", ended.json);
    assert!(ended.json["seconds"].is_u64() && ended.variable("ACPD_SECONDS").is_some());

    let workspace = daemon.root().join("project");
    fs::create_dir(&workspace).unwrap();
    let body = json!({"workspace": workspace, "agent": "echo", "start": "lazy"});
    let lost = daemon.post("/v1/sessions", body).await.expect_status(201)["id"].as_str().unwrap().to_owned();
    fs::remove_dir(&workspace).unwrap();
    std::os::unix::fs::symlink("/etc", &workspace).unwrap();
    assert_eq!(daemon.prompt_and_wait(&lost, "hello").await["status"], "failed");
    let runs = hook.count(4).await;
    let of_lost = |event: &str| runs.iter().find(|run| run.field("event") == event && run.field("sessionId") == lost);
    let (failed, turn) = (of_lost("session.failed").unwrap(), of_lost("turn.completed").unwrap());
    assert_eq!((failed.field("status"), turn.field("status")), ("error", "failed"));
    assert!(
        failed.field("summary").contains("outside") && turn.field("summary").contains("outside"),
        "{}",
        failed.json
    );
    until_counted(&daemon, "succeeded", 4.0).await;
}

#[tokio::test]
async fn filters_choose_and_a_question_that_the_policy_answers_needs_nobody() {
    let builder = Daemon::builder();
    let hook = Recorder::new(&builder);
    let only = |name: &str, keys: &str| hook.section(name, keys, &[]);
    // With one at a time, what comes last has all others before it.
    let config = [
        "[notifications]\nconcurrent = 1\n".to_owned(),
        only("a-failed", "on = [\"turn.completed\"]\nstatuses = [\"failed\"]"),
        only("a-long", "on = [\"turn.completed\"]\nafter = \"1h\""),
        only("a-tagged", "on = [\"turn.completed\"]\ntags = [\"work\"]"),
        only("a-other", "on = [\"turn.completed\"]\nagents = [\"crash\"]"),
        only("z-all", ALL),
    ];
    let crash = json!([{"handshake": {}}, {"prompt": [{"exit": 3}]}]);
    let daemon = builder
        .config(&config.concat())
        .agent("echo", echo())
        .agent("crash", crash)
        .agent_with("trusted", asking("ls"), "permissions = \"allow\"")
        .start()
        .await;
    let session = |agent: &str, tags: Value| {
        let body = json!({"workspace": daemon.workspace(), "agent": agent, "tags": tags});
        let daemon = &daemon;
        async move { daemon.post("/v1/sessions", body).await.expect_status(201)["id"].as_str().unwrap().to_owned() }
    };
    for (agent, tags) in [("echo", json!([])), ("crash", json!([])), ("trusted", json!(["home", "work"]))] {
        daemon.prompt_and_wait(&session(agent, tags).await, "go").await;
    }
    let is_last = |run: &Run| run.field("notification") == "z-all" && run.field("agent") == "trusted";
    let runs = hook.until("the last of all", |runs| runs.iter().any(is_last)).await;
    let mut told: Vec<_> =
        runs.iter().map(|run| (run.field("notification"), run.field("agent"), run.field("event"))).collect();
    told.sort_unstable();
    let turn = "turn.completed";
    let expected = [
        ("a-failed", "crash", turn),
        ("a-other", "crash", turn),
        ("a-tagged", "trusted", turn),
        ("z-all", "crash", turn),
        ("z-all", "echo", turn),
        ("z-all", "trusted", turn),
    ];
    assert_eq!(told, expected);
}

/// Tells its number and that of a child that has left its session, and hangs.
const HANGING: &str = r#"
base=$1
trap '' TERM INT HUP
setsid sleep 1000 &
printf '%s %s\n' "$$" "$!" > "$base/part"
mv "$base/part" "$base/hangs"
echo hanging here
wait
sleep 1000
"#;

async fn hanging(hook: &Recorder) -> Vec<u32> {
    let file = hook.runs.join("hangs");
    within("a command that hangs", async {
        while !file.exists() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let pids: Vec<u32> = fs::read_to_string(file).unwrap().split_whitespace().map(|pid| pid.parse().unwrap()).collect();
    assert_eq!(pids.len(), 2);
    pids
}

async fn all_gone(pids: Vec<u32>) {
    for pid in pids {
        process_gone(pid).await;
    }
}

#[tokio::test]
async fn a_command_that_hangs_is_killed_with_its_children_and_the_session_goes_on() {
    let builder = Daemon::builder();
    let hook = Recorder::with(&builder, HANGING);
    let config = format!("[notifications]\ntimeout = \"1s\"\n{}", hook.section("mine", ALL, &[]));
    let daemon = builder.config(&config).agent("echo", echo()).start().await;
    let session = daemon.create_session("echo").await;
    daemon.prompt_and_wait(&session, "one").await;
    let pids = hanging(&hook).await;
    assert_eq!(daemon.prompt_and_wait(&session, "two").await["status"], "completed");
    all_gone(pids).await;
    until_counted(&daemon, "timed_out", 1.0).await;
    daemon.logged("it took longer than 1s and was killed").await;
    assert!(daemon.log().contains("hanging here"), "with the end of what it wrote");
}

#[tokio::test]
async fn a_daemon_that_stops_or_is_killed_leaves_no_command_behind() {
    for user in users() {
        for is_killed in [false, true] {
            let builder = Daemon::builder();
            let hook = Recorder::with(&builder, HANGING);
            let config = format!("[notifications]\ntimeout = \"10m\"\n{}", hook.section("mine", ALL, &[]));
            let mut daemon = builder.config(&config).agent("echo", echo()).user_of(user).start().await;
            let session = daemon.create_session("echo").await;
            daemon.prompt_and_wait(&session, "one").await;
            let pids = hanging(&hook).await;
            if is_killed {
                daemon.kill().await;
            } else {
                assert!(daemon.terminate().await.success());
                assert!(!pids.iter().copied().any(process_alive), "they are gone before the daemon is");
            }
            all_gone(pids).await;
        }
    }
}

#[tokio::test]
async fn a_flood_is_bounded_and_what_is_dropped_is_counted() {
    const TURNS: usize = 7;
    let builder = Daemon::builder();
    let gate = builder.root().join("gate");
    nix::unistd::mkfifo(&gate, Mode::S_IRWXU).unwrap();
    // Each waits for a word at the gate.
    let hook = Recorder::with(&builder, &format!("touch \"$1/begun\"\nread -r word < {}\n{RECORDER}", gate.display()));
    let bounds = "[notifications]\ntimeout = \"10m\"\nconcurrent = 1\nqueue = 2\n";
    let config = format!("{bounds}{}", hook.section("mine", ALL, &["{summary}"]));
    let daemon = builder.config(&config).agent("echo", echo()).start().await;
    let session = daemon.create_session("echo").await;
    for turn in 0..TURNS {
        assert_eq!(daemon.prompt_and_wait(&session, &format!("turn {turn}")).await["status"], "completed");
        within("the first command", async {
            while !hook.runs.join("begun").exists() {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
    // One runs and two wait.
    until_counted(&daemon, "dropped", 4.0).await;
    assert_eq!(daemon.log().matches("too many notifications wait").count(), 1, "it is said once");
    for run in 1..=3 {
        let gate = gate.clone();
        let open = move || OpenOptions::new().write(true).open(gate).unwrap().write_all(b"go\n");
        tokio::task::spawn_blocking(open).await.unwrap().unwrap();
        // The word is for one: whoever has it has left the gate by then.
        hook.count(run).await;
    }
    let runs = hook.count(3).await;
    let told: Vec<&str> = runs.iter().map(|run| run.args[0].as_str()).collect();
    assert_eq!(told, ["turn 0", "turn 5", "turn 6"], "the newest stay");
    until_counted(&daemon, "succeeded", 3.0).await;
    assert_eq!(counted(&daemon, "dropped").await, 4.0);
}

const MISSING_AND_FAILING: &str = "[notifications.a]\non = [\"turn.completed\"]\ncommand = \"no-such-program-of-mine\"\n\
    [notifications.b]\non = [\"turn.completed\"]\ncommand = \"sh\"\nargs = [\"-c\", \"echo it broke >&2; exit 7\"]";

#[tokio::test]
async fn a_command_that_is_missing_or_fails_is_logged_and_nobody_suffers() {
    let daemon = Daemon::builder().config(MISSING_AND_FAILING).agent("echo", echo()).start().await;
    let session = daemon.create_session("echo").await;
    assert_eq!(daemon.prompt_and_wait(&session, "one").await["status"], "completed");
    until_counted(&daemon, "failed", 2.0).await;
    daemon.logged("\"no-such-program-of-mine\" was not found").await;
    daemon.logged("it exited with code 7").await;
    assert!(daemon.log().contains("it broke"), "with the end of what it wrote");
    assert_eq!(daemon.prompt_and_wait(&session, "two").await["status"], "completed");
}

#[tokio::test]
async fn the_doctor_says_which_commands_are_not_there() {
    let daemon = Daemon::builder().config(MISSING_AND_FAILING).agent("echo", echo()).start().await;
    let told = daemon.cli(&["doctor", "--no-agents", "--json"]).await;
    let findings: Vec<Value> = serde_json::from_str(&told.stdout).unwrap();
    let of = |name: &str| findings.iter().find(|finding| finding["check"] == name).unwrap_or_else(|| panic!("{name}"));
    assert_eq!((&of("notification a")["status"], &of("notification b")["status"]), (&json!("warning"), &json!("ok")));
    assert!(of("notification a")["hint"].is_string());
}

#[tokio::test]
async fn a_reload_adds_and_removes_them_and_without_any_nothing_follows_the_log() {
    let builder = Daemon::builder();
    let hook = Recorder::new(&builder);
    let daemon = builder.agent("echo", echo()).start().await;
    let session = daemon.create_session("echo").await;
    daemon.prompt_and_wait(&session, "before").await;
    assert_eq!(scrape(&daemon).await.value("acpd_subscribers"), 0.0);
    let without = fs::read_to_string(daemon.config_file()).unwrap();
    let follows = async |count: f64| {
        daemon.signal(Signal::SIGHUP);
        within("the reload", async {
            while scrape(&daemon).await.value("acpd_subscribers") != count {
                tokio::task::yield_now().await;
            }
        })
        .await;
    };
    fs::write(daemon.config_file(), format!("{without}\n{}", hook.section("mine", ALL, &["{summary}"]))).unwrap();
    follows(1.0).await;
    daemon.prompt_and_wait(&session, "between").await;
    hook.count(1).await;
    until_counted(&daemon, "succeeded", 1.0).await;
    fs::write(daemon.config_file(), without).unwrap();
    follows(0.0).await;
    daemon.prompt_and_wait(&session, "after").await;
    let told: Vec<String> = hook.runs().into_iter().map(|run| run.args[0].clone()).collect();
    assert_eq!(told, ["between"]);
}

#[tokio::test]
async fn what_happened_before_an_import_is_not_told() {
    let first = Daemon::builder().agent("echo", echo()).start().await;
    let session = first.create_session("echo").await;
    first.prompt_and_wait(&session, "far away").await;
    let document = first.get(&format!("/v1/sessions/{session}/export?format=json")).await.expect_status(200);

    let builder = Daemon::builder();
    let hook = Recorder::new(&builder);
    let section = hook.section("mine", ALL, &["{summary}"]);
    let second = builder.config(&section).agent("echo", echo()).start().await;
    let import = json!({"sessions": [document], "workspace": second.workspace()});
    second.post("/v1/import", import).await.expect_status(200);
    second.prompt_and_wait(&session, "close by").await;
    let runs = hook.count(1).await;
    let told: Vec<&str> = runs.iter().map(|run| run.args[0].as_str()).collect();
    assert!(told.len() == 1 && told[0].contains("close by"), "{told:?}");
}

#[tokio::test]
async fn a_command_that_calls_acpd_is_served() {
    for user in users() {
        let config = "[notifications.yes]\non = [\"permission.requested\"]\ncommand = \"{acpd}\"\n\
            args = [\"approve\", \"{permission}\"]";
        let daemon = Daemon::builder().config(config).agent("asking", asking("ls")).user_of(user).start().await;
        let session = daemon.create_session("asking").await;
        let turn = daemon.prompt_and_wait(&session, "go").await;
        assert_eq!(turn["status"], "completed", "{}", daemon.log());
        until_counted(&daemon, "succeeded", 1.0).await;
    }
}

#[tokio::test]
async fn a_turn_that_a_killed_daemon_lost_is_told_by_the_next_one() {
    let builder = Daemon::builder();
    let hook = Recorder::new(&builder);
    let script = json!([{"handshake": {}}, {"repeat": [{"prompt": [{"gate": "busy"}]}]}]);
    let mut daemon = builder.config(&hook.section("mine", ALL, &[])).agent("gated", script).start().await;
    let session = daemon.create_session("gated").await;
    daemon.prompt(&session, "go").await;
    let passage = daemon.gate("gated").reached("busy").await;
    daemon.kill().await;
    drop(passage);
    daemon.restart().await;
    let run = hook.count(1).await.remove(0);
    assert_eq!((run.field("sessionId"), run.field("status")), (session.as_str(), "interrupted"));
}

#[tokio::test]
async fn a_daemon_of_root_runs_them_as_the_sessions_owner() {
    if users().len() < 2 {
        return harness::say("SKIPPED: only a daemon of root can run commands as other users");
    }
    let builder = Daemon::builder().owner(ORDINARY);
    let hook = Recorder::new(&builder);
    let daemon = builder
        .config(&hook.section("mine", ALL, &[]))
        .env("XDG_RUNTIME_DIR", "/run/of/root")
        .agent("echo", echo())
        .start()
        .await;
    let member = daemon.as_user(ORDINARY, &[]);
    let theirs = member.create_session("echo").await;
    member.post(&format!("/v1/sessions/{theirs}/prompt"), json!({"text": "hi"})).await.expect_status(202);
    let run = hook.count(1).await.remove(0);
    assert_eq!((run.uid.as_str(), run.field("sessionId")), ("65534", theirs.as_str()));
    assert_ne!(run.variable("XDG_RUNTIME_DIR"), Some("/run/of/root"));
    assert_ne!(run.variable("HOME"), daemon.home().to_str(), "nothing of root's");
}
