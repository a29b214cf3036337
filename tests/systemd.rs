//! The service in a systemd that is really booted: its units, its life, its end.
//!
//! Each test boots a machine of its own and runs the test of the same name in it ([`machine`]).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod harness;
mod machine;

/// Runs each test of [`inside`] in a machine.
macro_rules! in_a_machine {
    ($($test:ident)*) => {
        $(
            #[test]
            fn $test() {
                machine::run_inside(stringify!($test));
            }
        )*
    };
}

in_a_machine! {
    it_is_installed_activated_reloaded_stopped_and_resumed
    members_have_their_agents_run_as_them_and_confined
    a_node_agent_runs_within_the_hardening
    bubblewrap_and_overlays_work_within_the_hardening
    a_killed_daemon_is_restarted_and_leaves_no_agent_and_loses_no_prompt
    a_stuck_writer_is_restarted_by_the_watchdog
    one_that_cannot_start_is_failed_and_the_journal_says_why
    an_agent_over_its_memory_limit_is_killed_alone
    stopping_takes_as_long_as_agents_may_take
    credentials_reach_agents_and_nothing_else
    a_users_daemon_is_started_by_the_unit_that_is_installed
    a_member_may_have_a_service_of_their_own
    uninstalling_leaves_what_is_not_ours
}

/// What happens in the machine, as root.
mod inside {
    use std::path::Path;

    use serde_json::{Value, json};

    use super::harness::{HeldWriter, IMPATIENT, echo, nasty, parent_of, process_alive};
    use super::machine::{
        Account, acpd, assert_inside, journal, property, shell, systemctl, until, wait_for_property, write,
    };

    const CONFIG: &str = "/etc/acpd/config.toml";
    const STATE: &str = "/var/lib/acpd";
    const CGROUP: &str = "/sys/fs/cgroup/system.slice/acpd.service";

    /// The service, installed as a person would, with these agents and more of a configuration.
    fn install(agents: &[(&str, Value)], config: &str) {
        assert_inside();
        // An isolated agent has other process ids than those that a test looks for.
        let sandbox = if config.contains("[sandbox]") { "" } else { "[sandbox]\nbubblewrap = \"never\"\n" };
        let mut sections = vec![format!("{sandbox}[control]\ngroup = \"acpd\"\n{config}\n")];
        for (name, script) in agents {
            let file = format!("/srv/{name}.json");
            write(&file, &script.to_string());
            sections.push(format!("[agents.{name}]\ncommand = \"/usr/local/bin/test-agent\"\nargs = [\"{file}\"]\n"));
        }
        if !(agents.is_empty() && config.is_empty()) {
            write(CONFIG, &sections.concat());
        }
        let said = shell("acpd install-service");
        let word =
            "acpd: acpd.service and acpd.socket are enabled and started; `systemctl status acpd` shows their status\n";
        assert_eq!((said.code, said.stderr.as_str()), (0, word));
    }

    /// A drop-in for the service, taken on.
    fn drop_in(text: &str) {
        write("/etc/systemd/system/acpd.service.d/test.conf", text);
        systemctl("daemon-reload");
        systemctl("restart acpd.service");
    }

    /// A new session of root's, and what is to be typed to name it.
    fn session(agent: &str) -> String {
        let session = acpd(&format!("new --agent {agent} --workspace /root"));
        session["id"].as_str().unwrap().to_owned()
    }

    fn turns(session: &str) -> Vec<Value> {
        acpd(&format!("turns {session}"))["turns"].as_array().unwrap().clone()
    }

    /// Has a nasty agent tell its processes.
    fn grow(session: &str) -> Vec<u32> {
        let said = shell(&format!("acpd prompt {session} 'who is there?'")).success();
        said.split_whitespace().map(|pid| pid.parse().expect("the agent tells numbers")).collect()
    }

    /// Nobody is in the service's cgroup, nor below it.
    fn assert_nobody_left() {
        let left = shell(&format!("find {CGROUP} -name cgroup.procs -exec cat '{{}}' + 2> /dev/null"));
        assert_eq!(left.stdout, "", "somebody is left in the service's cgroup");
    }

    fn main_pid() -> u32 {
        property("MainPID").parse().unwrap()
    }

    #[test]
    #[ignore = "run by the test of the same name, in a machine"]
    fn it_is_installed_activated_reloaded_stopped_and_resumed() {
        install(&[], "");
        assert_eq!(systemctl("is-active acpd.socket acpd.service"), "active\nactive\n");
        assert_eq!(systemctl("is-enabled acpd.socket acpd.service"), "enabled\nenabled\n");
        assert_eq!(shell("stat -c '%a %U %G' /run/acpd /run/acpd/acpd.sock").stdout, "750 root acpd\n660 root acpd\n");

        // The first client has systemd start the service.
        systemctl("stop acpd.service");
        assert_eq!(property("ActiveState"), "inactive");
        let said = shell("acpd run --agent demo --workspace /root hello").success();
        assert!(said.contains("Hello from the demo agent"), "{said}");
        assert_eq!(property("ActiveState"), "active");
        let told = wait_for_property("StatusText", |text| text.contains("1 active"));
        assert_eq!(told, "Sessions: 1 active, 0 suspended; agents: 1 running, 0 busy");
        assert!(systemctl("status acpd --no-pager").contains(&told));

        // A reload, and one that is not taken on.
        shell(&format!("printf '[limits]\\nprocesses = 7\\n' >> {CONFIG}")).success();
        systemctl("reload acpd.service");
        until("the new limit", || (acpd("status")["info"]["processes"]["max"] == 7).then_some(()));
        shell(&format!("printf 'nonsense = true\\n' >> {CONFIG}")).success();
        systemctl("reload acpd.service");
        until("the word about the mistake", || journal("-p err").contains("nonsense").then_some(()));
        wait_for_property("StatusText", |text| text.contains("the last reload failed"));
        wait_for_property("ActiveState", |state| state == "active");
        shell(&format!("sed -i /nonsense/d {CONFIG}")).success();

        // A stop suspends; the socket stays; the next start goes on.
        systemctl("stop acpd.service");
        assert_eq!(property("Result"), "success");
        assert_nobody_left();
        assert!(Path::new("/run/acpd/acpd.sock").exists());
        systemctl("start acpd.service");
        let sessions = acpd("ls");
        assert_eq!(sessions["sessions"][0]["status"], "suspended", "{sessions}");
        let id = sessions["sessions"][0]["id"].as_str().unwrap();
        shell(&format!("acpd resume {id}")).success();
        let said = shell(&format!("acpd prompt {id} 'do you remember?'")).success();
        assert!(said.contains("transcript"), "{said}");

        // What the journal has of it: levels, fields, and each record once.
        assert!(journal("-o cat").contains("ready socket=/run/acpd/acpd.sock"));
        assert_eq!(journal("-o cat -p warning").lines().filter(|line| !line.contains("configuration")).count(), 0);
        let of_session = shell(&format!("journalctl --sync; journalctl -o json ACPD_SESSION={id} | head -1")).json();
        assert_eq!(of_session["SYSLOG_IDENTIFIER"], "acpd", "{of_session}");
        assert_eq!(of_session["_SYSTEMD_UNIT"], "acpd.service", "{of_session}");
    }

    #[test]
    #[ignore = "run by the test of the same name, in a machine"]
    fn members_have_their_agents_run_as_them_and_confined() {
        // Files in a directory in which only their owner may remove any, as `/tmp` is one.
        let sticky = json!([{"handshake": {}},
            {"prompt": [{"textFromShell": "mkdir -m 1777 $TMPDIR/sticky && touch $TMPDIR/sticky/file"}]}, {"hang": true}]);
        install(&[("nasty", nasty()), ("sticky", sticky)], IMPATIENT);
        let alice = Account::make("alice", &["acpd"]);
        let stranger = Account::make("mallory", &[]);
        systemctl("stop acpd.service");
        // Her first word has systemd start the daemon.
        let made = alice.acpd("new --agent nasty");
        let session = made["id"].as_str().unwrap();
        let said = alice.shell(&format!("acpd prompt {session} 'who is there?'")).success();
        let tree: Vec<u32> = said.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
        assert_eq!(tree.len(), 5);
        for pid in &tree {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
            let ids = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap();
            assert!(ids.split_whitespace().all(|id| id == alice.uid.to_string()), "{ids}");
            let capable = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
            assert_eq!(capable.trim().trim_matches('0'), "", "{capable}");
            let cgroup = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
            assert!(cgroup.contains(&format!("/system.slice/acpd.service/agent-{session}-")), "{cgroup}");
        }
        let shown = alice.acpd(&format!("show {session}"));
        assert_eq!(shown["sandbox"], "writes-only", "{shown}");
        assert_eq!(alice.acpd("ls")["total"], 1);
        assert_eq!(stranger.shell("ACPD_SOCKET=/run/acpd/acpd.sock acpd ls").code, 3, "others are not let in");
        // She files it away, and everything of it goes, her directories with it.
        alice.acpd(&format!("archive {session}"));
        assert!(!tree.iter().any(|pid| process_alive(*pid)));
        // So it does when what is left is not easily removed, and when the shim does not act any more.
        let made = alice.acpd("new --agent sticky");
        let other = made["id"].as_str().unwrap();
        assert_eq!(alice.shell(&format!("acpd prompt {other} hello")).success(), "exit 0\n");
        let agent = u32::try_from(alice.acpd(&format!("show {other}"))["pid"].as_u64().unwrap()).unwrap();
        let shim = parent_of(agent).unwrap();
        shell(&format!("kill -STOP {shim}")).success();
        alice.acpd(&format!("archive {other}"));
        assert!(!process_alive(agent) && !process_alive(shim));
        for session in [session, other] {
            let run = format!("{STATE}/run/{session}");
            until("the end of the session's directories", || (!Path::new(&run).exists()).then_some(()));
        }
        systemctl("stop acpd.service");
        assert_nobody_left();
    }

    #[test]
    #[ignore = "run by the test of the same name, in a machine"]
    fn a_node_agent_runs_within_the_hardening() {
        let agent = "[agents.node]\ncommand = \"node\"\nargs = [\"/srv/agent.mjs\"]\n";
        write("/srv/agent.mjs", include_str!("machine/agent.mjs"));
        if shell("node --version").code != 0 {
            return eprintln!("SKIPPED: there is no node, so no agent of Node was run within the unit's hardening");
        }
        install(&[], agent);
        let alice = Account::make("alice", &["acpd"]);
        let made = alice.acpd("new --agent node");
        let id = made["id"].as_str().unwrap();
        let said = alice.shell(&format!("acpd prompt {id} hello")).success();
        assert_eq!(said, "interfaces: lo; compiled: 42; written: yes; outside: EACCES\n");
        let shown = alice.acpd(&format!("show {id}"));
        assert_eq!(shown["sandbox"], "writes-only", "{shown}");
    }

    #[test]
    #[ignore = "run by the test of the same name, in a machine"]
    fn bubblewrap_and_overlays_work_within_the_hardening() {
        let script = json!([{"handshake": {}}, {"repeat": [{"prompt": [{"textFromShell": "{prompt}"}]}]}]);
        let config = "[sandbox]\nallow_full = true\nmode = \"required\"\n";
        write("/run/docker.sock", "docker");
        shell("chmod 666 /run/docker.sock").success();
        install(&[("echo", echo()), ("shell", script)], config);
        let alice = Account::make("alice", &["acpd"]);
        let made = alice.acpd("new --agent shell --scope full");
        let shell_id = made["id"].as_str().unwrap();
        let run = |command: &str| alice.shell(&format!("acpd prompt {shell_id} '{command}'")).stdout;
        let overlay = "unshare --user --map-root-user --mount sh -c \"mount -t tmpfs t /mnt && cd /mnt && mkdir l u w o && \
            mount -t overlay o -o lowerdir=l,upperdir=u,workdir=w o && echo x > o/made && ls u\"";
        assert_eq!(run(overlay), "made\nexit 0\n", "a member mounts an overlay");
        assert!(run("cat /run/docker.sock").contains("ermission denied"));
        let host = shell("readlink /proc/1/ns/ipc").stdout;
        assert_ne!(run("readlink /proc/self/ns/ipc"), format!("{host}exit 0\n"));
        if shell("command -v bwrap").code != 0 {
            return eprintln!("SKIPPED: bubblewrap is not installed, so it was not tried within the hardening");
        }
        let made = alice.acpd("new --agent echo");
        let id = made["id"].as_str().unwrap();
        assert_eq!(alice.shell(&format!("acpd prompt {id} hello")).success(), "hello\n");
        assert_eq!(alice.acpd(&format!("show {id}"))["sandbox"], "isolated");
    }

    #[test]
    #[ignore = "run by the test of the same name, in a machine"]
    fn a_killed_daemon_is_restarted_and_leaves_no_agent_and_loses_no_prompt() {
        // The first prompt of the hanging one is never answered, and the others wait behind it.
        let hanging = json!([{"handshake": {}}, {"prompt": [{"text": "begun"}, {"hang": true}]}]);
        install(&[("nasty", nasty()), ("hanging", hanging)], "");
        let (nasty, hanging) = (session("nasty"), session("hanging"));
        let tree = grow(&nasty);
        let prompts = 4;
        for prompt in 0..prompts {
            shell(&format!("acpd prompt --no-wait {hanging} 'prompt {prompt}'")).success();
        }
        until("the first turn", || (turns(&hanging)[0]["status"] == "running").then_some(()));
        let hanging_pid = acpd(&format!("show {hanging}"))["pid"].as_u64().unwrap();
        let killed = main_pid();
        systemctl("kill --kill-whom=main --signal=KILL acpd.service");
        let restarted = wait_for_property("MainPID", |pid| pid != "0" && pid != killed.to_string());
        wait_for_property("ActiveState", |state| state == "active");
        assert_ne!(restarted, killed.to_string());
        let old = tree.iter().copied().chain([u32::try_from(hanging_pid).unwrap()]);
        assert!(!old.into_iter().any(process_alive), "an agent of the killed daemon is alive");
        let found = turns(&hanging);
        assert_eq!(found.len(), prompts, "{found:?}");
        assert!(found.iter().any(|turn| turn["status"] == "interrupted"), "{found:?}");
        // The next one was taken up by itself.
        until("the second turn", || turns(&hanging).iter().any(|turn| turn["status"] == "running").then_some(()));
    }

    #[test]
    #[ignore = "run by the test of the same name, in a machine"]
    fn a_stuck_writer_is_restarted_by_the_watchdog() {
        install(&[], "");
        drop_in("[Service]\nWatchdogSec=4\n");
        let id = session("demo");
        let stuck = main_pid();
        let writer = HeldWriter::hold(stuck);
        let mut client = std::process::Command::new("acpd");
        let mut client = client.args(["prompt", "--no-wait", &id, "hello"]).spawn().unwrap();
        until("another process", || (property("MainPID") != stuck.to_string()).then_some(()));
        writer.let_go();
        client.wait().unwrap();
        wait_for_property("ActiveState", |state| state == "active");
        let said = shell("journalctl --sync; journalctl --no-pager _PID=1 -u acpd").stdout;
        assert!(said.contains("Watchdog timeout"), "{said}");
        let answer = shell(&format!("acpd prompt {id} again")).success();
        assert!(answer.contains("demo agent"), "{answer}");
        // One that does its work gives its sign again and again, and is left alone.
        let sign = || property("WatchdogTimestampMonotonic").parse::<u64>().unwrap();
        let (well, first) = (main_pid(), sign());
        until("signs of life for three times as long as one is waited for", || {
            (sign() > first + 12_000_000).then_some(())
        });
        assert_eq!(main_pid(), well);
    }

    #[test]
    #[ignore = "run by the test of the same name, in a machine"]
    fn one_that_cannot_start_is_failed_and_the_journal_says_why() {
        install(&[], "");
        systemctl("stop acpd.service");
        shell(&format!("printf 'nonsense = true\\n' >> {CONFIG}")).success();
        let refused = shell("systemctl start acpd.service");
        assert_ne!(refused.code, 0);
        wait_for_property("ActiveState", |state| state == "failed");
        assert!(journal("-p err").contains("nonsense"), "{}", journal(""));
        // And a client is told so, instead of waiting.
        let refused = shell("timeout 30 acpd ls");
        assert_eq!(refused.code, 3, "{}{}", refused.stdout, refused.stderr);
        assert!(refused.stderr.contains("systemctl status acpd"), "{}", refused.stderr);
        shell(&format!("sed -i /nonsense/d {CONFIG}")).success();
        systemctl("reset-failed acpd.service acpd.socket");
        systemctl("start acpd.service");
        assert_eq!(acpd("ls")["total"], 0);
    }

    #[test]
    #[ignore = "run by the test of the same name, in a machine"]
    fn an_agent_over_its_memory_limit_is_killed_alone() {
        let greedy = json!([{"handshake": {}}, {"prompt": [{"allocate": 256 << 20}, {"text": "still here"}]}]);
        install(&[("greedy", greedy), ("echo", echo())], "[limits]\nmemory_max = \"64MiB\"\n");
        let controllers = std::fs::read_to_string(format!("{CGROUP}/cgroup.controllers")).unwrap();
        let (greedy, bystander) = (session("greedy"), session("echo"));
        shell(&format!("acpd prompt {bystander} hello")).success();
        if !controllers.split_whitespace().any(|controller| controller == "memory") {
            let said = journal("-p warning");
            assert!(said.contains("limits.memory_max"), "that it does not hold is said: {said}");
            let health = acpd("status");
            assert!(health.to_string().contains("memory_unbounded"), "{health}");
            return eprintln!(
                "SKIPPED: the kernel has no memory controller for cgroup v2 here, so no agent was killed by it"
            );
        }
        let failed = shell(&format!("acpd prompt {greedy} eat"));
        assert_eq!(failed.code, 4, "{}{}", failed.stdout, failed.stderr);
        assert!(acpd(&format!("show {greedy}")).to_string().contains("memory"));
        let said = shell(&format!("acpd prompt {bystander} 'still here?'")).success();
        assert_eq!(said, "still here?\n");
        assert_eq!(property("NRestarts"), "0");
    }

    #[test]
    #[ignore = "run by the test of the same name, in a machine"]
    fn stopping_takes_as_long_as_agents_may_take() {
        // An agent that ignores every request to end, and has longer for it than the unit's own patience.
        let config = "[processes]\nshutdown_timeout = \"8s\"\neof_grace = \"3s\"\nterm_grace = \"3s\"\n";
        install(&[("nasty", nasty())], config);
        drop_in("[Service]\nTimeoutStopSec=2\n");
        let tree = grow(&session("nasty"));
        systemctl("stop acpd.service");
        assert_eq!(property("Result"), "success", "{}", journal(""));
        assert!(!tree.iter().any(|pid| process_alive(*pid)));
        assert_nobody_left();
    }

    #[test]
    #[ignore = "run by the test of the same name, in a machine"]
    fn a_users_daemon_is_started_by_the_unit_that_is_installed() {
        assert_inside();
        let bob = Account::make("bob", &[]);
        shell("loginctl enable-linger bob").success();
        until("bob's manager", || {
            bob.shell("systemctl --user is-system-running --wait").stdout.contains("running").then_some(())
        });
        let installed = bob.shell("acpd install-service --user");
        assert_eq!(installed.code, 0, "{}", installed.stderr);
        assert_eq!(bob.shell("systemctl --user is-active acpd.service").stdout, "active\n");
        let said = bob.shell("acpd run --agent demo hello").success();
        assert!(said.contains("Hello from the demo agent"), "{said}");
        // While nobody but the socket is there, to ask where it is or to stop it starts nobody, and nobody else takes its place.
        let only_listens =
            || bob.shell("systemctl --user is-active acpd.socket acpd.service").stdout == "active\ninactive\n";
        bob.shell("systemctl --user stop acpd.service").success();
        let socket = format!("/run/user/{}/acpd/acpd.sock\n", bob.uid);
        assert_eq!(bob.shell("acpd socket").success(), socket);
        assert_eq!(bob.shell("acpd stop").code, 3);
        let refused = bob.shell("timeout 10 acpd serve");
        assert!(refused.code == 1 && refused.stderr.contains("systemctl start acpd"), "{}", refused.stderr);
        assert!(only_listens());
        // A job of cron's has not what a login has, and finds it all the same.
        assert_eq!(bob.shell("env -u XDG_RUNTIME_DIR acpd --json ls").json()["total"], 1);
        bob.shell("systemctl --user stop acpd.service").success();
        bob.shell("acpd install-service --user").success();
        // Without the socket it is the client that has it started, and by the unit.
        bob.shell("systemctl --user stop acpd.service acpd.socket").success();
        let again = bob.shell("acpd ls --json");
        assert!(again.stderr.contains("your user service acpd.service"), "{}", again.stderr);
        assert_eq!(again.json()["sessions"][0]["status"], "suspended");
        assert_eq!(bob.shell("systemctl --user is-active acpd.service").stdout, "active\n");
        // One that somebody has named another place for is not the unit's.
        let other = bob.shell("acpd --state-dir ~/other ls --json");
        assert!(other.stderr.contains("started the daemon (pid"), "{}", other.stderr);
        bob.shell("acpd --state-dir ~/other stop").success();
        // Agents have cgroups there, too.
        let made = bob.acpd("new --agent demo");
        let id = made["id"].as_str().unwrap();
        until("the agent's cgroup", || {
            let found = shell(&format!("find /sys/fs/cgroup -type d -path '*acpd.service/agent-{id}-*'")).stdout;
            (!found.is_empty()).then_some(())
        });
        let owners = || shell("grep -slx acpd /proc/[0-9]*/comm | xargs -r dirname | xargs -r stat -c %U").stdout;
        assert!(owners().contains("bob"), "his daemon runs");
        bob.shell("acpd install-service --user --uninstall").success();
        assert_eq!(bob.shell("find ~/.config/systemd/user -type f").stdout, "");
        assert_eq!(bob.shell("systemctl --user is-active acpd.service acpd.socket").stdout, "inactive\ninactive\n");
        assert!(!owners().contains("bob"), "nothing of it is left");
        // Whoever keeps things elsewhere finds them again in the service.
        bob.shell("XDG_STATE_HOME=~/elsewhere acpd run --agent demo hello").success();
        bob.shell("XDG_STATE_HOME=~/elsewhere acpd stop").success();
        bob.shell("XDG_STATE_HOME=~/elsewhere XDG_CONFIG_HOME=~/conf acpd install-service --user").success();
        assert_eq!(bob.shell("XDG_STATE_HOME=~/elsewhere acpd --json ls").json()["total"], 1);
        assert_eq!(bob.shell("ACPD_STATE_DIR=~/third acpd install-service --user").code, 1, "that is no service's");
    }

    #[test]
    #[ignore = "run by the test of the same name, in a machine"]
    fn a_member_may_have_a_service_of_their_own() {
        install(&[], "");
        let alice = Account::make("alice", &["acpd"]);
        shell("loginctl enable-linger alice").success();
        let runs = "systemctl --user is-system-running --wait";
        until("alice's manager", || alice.shell(runs).stdout.contains("running").then_some(()));
        assert_eq!(alice.shell("acpd socket").success(), "/run/acpd/acpd.sock\n");
        let installed = alice.shell("acpd install-service --user");
        assert_eq!(installed.code, 0, "{}", installed.stderr);
        let own = format!("/run/user/{}/acpd/acpd.sock\n", alice.uid);
        assert_eq!(alice.shell("acpd socket").success(), own);
        alice.shell("systemctl --user stop acpd.service acpd.socket").success();
        assert_eq!(alice.shell("acpd socket").success(), own, "also while it is stopped");
        alice.shell("acpd install-service --user --uninstall").success();
        assert_eq!(alice.shell("acpd socket").success(), "/run/acpd/acpd.sock\n");
    }

    #[test]
    #[ignore = "run by the test of the same name, in a machine"]
    fn credentials_reach_agents_and_nothing_else() {
        let counting = json!([{"handshake": {}},
            {"repeat": [{"prompt": [{"textFromShell": "printf %s \"$GEMINI_API_KEY\" | wc -c; echo \"$GEMINI_API_KEY\""}]}]}]);
        install(&[("counting", counting)], "");
        let key = "a-key-of-24-characters-x";
        write("/etc/acpd/secrets/gemini.key", &format!("{key}\n"));
        shell(&format!("echo 'credentials = {{ GEMINI_API_KEY = \"gemini-key\" }}' >> {CONFIG}")).success();
        drop_in(include_str!("../systemd/system/acpd.service.d/secrets.conf.example"));
        let id = session("counting");
        let said = shell(&format!("acpd prompt {id} hello")).success();
        assert_eq!(said, "24\n[redacted:GEMINI_API_KEY]\nexit 0\n");
        assert_eq!(shell(&format!("grep -rl {key} {STATE}; journalctl | grep {key}")).stdout, "");
    }

    #[test]
    #[ignore = "run by the test of the same name, in a machine"]
    fn uninstalling_leaves_what_is_not_ours() {
        install(&[], "");
        let id = session("demo");
        // Again, after an upgrade for one.
        let again = shell("acpd install-service");
        assert!(again.stderr.contains("systemctl restart acpd"), "{}", again.stderr);
        // What somebody has changed is not changed back.
        shell("sed -i s/WatchdogSec=60/WatchdogSec=99/ /etc/systemd/system/acpd.service").success();
        let refused = shell("acpd install-service");
        assert!(refused.code == 1 && refused.stderr.contains("drop-in"), "{}", refused.stderr);
        assert!(shell("cat /etc/systemd/system/acpd.service").stdout.contains("WatchdogSec=99"));
        let removed = shell("acpd install-service --uninstall").success();
        let files = ["/etc/sysusers.d/acpd.conf", "/etc/tmpfiles.d/acpd.conf"].into_iter();
        let files = files.chain(["/etc/systemd/system/acpd.socket", "/etc/systemd/system/acpd.service"]);
        assert_eq!(removed, files.map(|file| format!("removed {file}")).collect::<Vec<_>>().join("\n") + "\n");
        assert_eq!(shell("systemctl is-active acpd.service acpd.socket").stdout, "inactive\ninactive\n");
        assert!(Path::new(STATE).join("acpd.db").exists() && Path::new(CONFIG).exists());
        assert_eq!(shell("acpd install-service --uninstall").code, 1, "there is nothing to uninstall any more");
        // A unit of somebody else's is neither replaced nor removed.
        write("/etc/systemd/system/acpd.service", "# mine\n");
        let refused = shell("acpd install-service");
        assert!(
            refused.stderr.contains("/etc/systemd/system/acpd.service exists and was not written by"),
            "{}",
            refused.stderr
        );
        assert!(!Path::new("/etc/systemd/system/acpd.socket").exists(), "nothing was changed");
        shell("rm /etc/systemd/system/acpd.service").success();
        // A program that others can change is not root's to run.
        shell("cp /usr/local/bin/acpd /tmp/acpd").success();
        let refused = shell("/tmp/acpd install-service");
        assert!(refused.stderr.contains("users other than root can change /tmp"), "{}", refused.stderr);
        assert_eq!(Account::make("carol", &[]).shell("acpd install-service").code, 1, "only root can");
        shell("acpd install-service").success();
        assert_eq!(acpd(&format!("show {id}"))["status"], "suspended");
    }
}
