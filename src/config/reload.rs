//! Which keys a running daemon can take on, and which are built in at start.
//!
//! The table below names every key once. A key that is not in it does not compile, so nobody adds one without deciding.

use std::collections::{BTreeMap, BTreeSet};

use super::{Config, Control, Limits, Log, Notifications, Permissions, Processes, Sandbox, Sessions, Store, Workspace};

/// The keys in which two configurations differ.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// Keys whose new values are in force. Agents and notifications are named as a whole.
    pub changed: Vec<String>,
    /// Keys whose old values stay in force until a restart.
    pub needs_restart: Vec<&'static str>,
}

/// Compares one section. Keys that need a restart keep the running values.
macro_rules! section {
    ($running:ident, $new:ident, $kept:ident, $section:ident: $Section:ident {
        at_start: [$($at_start:ident),*],
        at_once: [$($at_once:ident),*],
    }) => {
        let $Section { $($at_start,)* $($at_once,)* } = &$running.$section;
        $(if $new.$section.$at_start != *$at_start {
            $new.$section.$at_start.clone_from($at_start);
            $kept.needs_restart.push(concat!(stringify!($section), ".", stringify!($at_start)));
        })*
        $(if $new.$section.$at_once != *$at_once {
            $kept.changed.push(concat!(stringify!($section), ".", stringify!($at_once)).to_owned());
        })*
    };
}

/// The new configuration as far as it can be in force now, and the keys that differ.
pub fn merge(running: &Config, mut new: Config) -> (Config, Difference) {
    // Agents are read when a session is made or its process started; no key of a profile is built in.
    let Config {
        control: _,
        store: _,
        workspace: _,
        sessions: _,
        processes: _,
        limits: _,
        permissions: _,
        sandbox: _,
        log: _,
        notifications: _,
        agents: _,
    } = running;
    let mut difference = Difference::default();
    section!(running, new, difference, control: Control {
        at_start: [
            group, connections, connections_per_user, streams_per_user, body_max, bodies_max, import_max, answers_max,
            requests_per_second, prompts_per_minute, header_timeout, body_timeout, write_timeout, idle_timeout, heartbeat
        ],
        at_once: [],
    });
    section!(running, new, difference, store: Store {
        at_start: [
            read_connections, batch_rows, batch_bytes, queue, busy_timeout, tail_max, backups, free_min, reserve,
            maintenance_delay, replay_turns, journal_max
        ],
        at_once: [],
    });
    section!(running, new, difference, workspace: Workspace { at_start: [], at_once: [roots, extra], });
    section!(running, new, difference, sessions: Sessions {
        at_start: [],
        at_once: [
            agent, queue, resume_on_start, idle_timeout, turn_cap, tool_call_cap, cost_limit, cost_on_exceed,
            turn_silence_timeout, silence_notice, transcript_max, retention_suspended, retention_resumable, retention_error, retention_archived
        ],
    });
    section!(running, new, difference, processes: Processes {
        at_start: [cgroup],
        at_once: [
            initialize_timeout, session_timeout, session_notice, replay_timeout, stdin_timeout, cancel_grace, eof_grace, term_grace,
            shutdown_timeout, backoff_min, backoff_max, crash_limit
        ],
    });
    section!(running, new, difference, limits: Limits {
        at_start: [long_lines],
        at_once: [
            processes, processes_per_user, memory_max, pids_max, line_max, prompt_max, media_max, payload_max, checkpoint_max, record_max,
            stderr_tail, file_max, terminals, terminal_output
        ],
    });
    section!(running, new, difference, permissions: Permissions { at_start: [], at_once: [mode, rules, timeout], });
    section!(running, new, difference, sandbox: Sandbox {
        at_start: [],
        at_once: [mode, bubblewrap, hide, home_max, network, connect_ports, bind_ports, allow_full],
    });
    section!(running, new, difference, log: Log { at_start: [level, files], at_once: [], });
    section!(running, new, difference, notifications: Notifications {
        at_start: [],
        at_once: [timeout, concurrent, queue, commands],
    });
    // The file has no key `commands`: each notification is a section of its own.
    difference.changed.retain(|key| key != "notifications.commands");
    difference.changed.extend(different("notifications", &running.notifications.commands, &new.notifications.commands));
    difference.changed.extend(different("agents", &running.agents, &new.agents));
    (new, difference)
}

/// The names with different values in two tables.
fn different<T: PartialEq>(section: &str, old: &BTreeMap<String, T>, new: &BTreeMap<String, T>) -> Vec<String> {
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    names.into_iter().filter(|name| old.get(*name) != new.get(*name)).map(|name| format!("{section}.{name}")).collect()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::Duration;

    use super::*;
    use crate::config::{CgroupMode, LogLevel};

    #[test]
    fn what_is_built_in_stays_and_is_named_and_the_rest_is_taken_on() {
        let running = Config::default();
        let mut new = Config::default();
        new.control.connections = 1;
        new.control.heartbeat = Duration::from_secs(1);
        new.store.queue = 1;
        new.processes.cgroup = CgroupMode::Off;
        new.log.level = LogLevel::Debug;
        // What can change at once:
        new.workspace.roots = vec![PathBuf::from("/srv")];
        new.sessions.agent = "demo".to_owned();
        new.processes.cancel_grace = Duration::from_secs(1);
        new.limits.processes = 1;
        new.agents.remove("gemini");
        let expected = Config {
            control: running.control.clone(),
            store: running.store.clone(),
            processes: Processes { cgroup: running.processes.cgroup, ..new.processes.clone() },
            log: running.log.clone(),
            ..new.clone()
        };
        let (merged, difference) = merge(&running, new);
        assert_eq!(merged, expected);
        let changed =
            ["workspace.roots", "sessions.agent", "processes.cancel_grace", "limits.processes", "agents.gemini"];
        assert_eq!(difference.changed, changed);
        assert_eq!(
            difference.needs_restart,
            ["control.connections", "control.heartbeat", "store.queue", "processes.cgroup", "log.level"]
        );
    }

    #[test]
    fn the_same_configuration_needs_nothing() {
        assert_eq!(merge(&Config::default(), Config::default()), (Config::default(), Difference::default()));
    }
}
