//! The shim: a hidden mode of this program, one process between the daemon and each agent.
//!
//! ```text
//! daemon ◀── control socket ──▶ shim: own session, subreaper, in the daemon's cgroup
//!                                └─ agent: own process group, own cgroup, inherited stdio
//!                                    └─ whatever it starts, wherever that hides
//! ```
//!
//! Why: a process group does not hold what leaves it, and a daemon that is killed cannot kill. The shim can: whoever loses
//! its parent below it becomes its child, and when the control socket ends, because the daemon has died, or the agent
//! does, it kills and reaps until nothing is left. It is small and has one thread, so that what it does to its own
//! process is safe without `unsafe`.
//!
//! The control socket is the shim's standard input. It first carries the agent's standard input, the workspace and, with a
//! cgroup, the three files to join, leave and kill it (a terminal gets the first two, an errand none), as descriptors; then a `Start`, as JSON
//! after its length. Then the daemon writes
//! orders, a byte each, and the shim reports, a line each.

mod run;
mod start;
pub mod wire;

use std::collections::BTreeMap;
use std::ffi::CStr;

use serde::{Deserialize, Serialize};

use super::adapter_home::AdapterHome;
use super::confine::Confinement;
use crate::model::Sandbox;
use crate::model::session::ProcessName;

pub use run::run;
pub use start::{Shim, Started, Told};

/// The first argument that makes this program a shim.
pub const ARGUMENT: &str = "__shim";

/// The process name of a shim above an agent. By this name another daemon recognizes it ([`super::peer_ancestry`]).
pub const NAME: &CStr = c"acpd-shim";
/// The process name of a shim above a notification command.
const NOTIFY_NAME: &CStr = c"acpd-notify";

/// What the shim has to know before the agent starts, beside its command line.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Start {
    /// Whether it is above an agent, and not above a notification command.
    is_agents: bool,
    umask: u32,
    /// How many files it and the agent may have open, when the daemon has taken more for itself.
    open_files: Option<u64>,
    /// The user that it becomes first.
    owner: Option<Owner>,
    /// Sent, and not inherited, because what is in it must act on the agent alone.
    environment: BTreeMap<String, String>,
    /// How the agent is confined, if it is. The shim itself is not: it has to signal, and to leave the agent's cgroup.
    confinement: Option<Confinement>,
    /// What is put into the session's home first.
    adapter_home: Option<AdapterHome>,
}

/// What the daemon asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// A login that the agent has renewed goes back to the user.
    GiveBack,
    /// SIGTERM to the agent's group.
    Terminate,
    /// The end of everything below the shim.
    Kill,
}

impl Order {
    const fn byte(self) -> u8 {
        match self {
            Self::GiveBack => b'g',
            Self::Terminate => b't',
            Self::Kill => b'k',
        }
    }

    const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            b'g' => Some(Self::GiveBack),
            b't' => Some(Self::Terminate),
            b'k' => Some(Self::Kill),
            _ => None,
        }
    }
}

/// What the shim tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// What is known of how the agent that is started next signs in, for when that fails.
    Account(String),
    /// What holds the agent that is started next.
    Confined(Sandbox),
    Started(ProcessName),
    /// The agent could not be started, and why.
    Failed(String),
    /// The agent itself has ended; whatever it left goes next, and then the shim.
    Exited {
        code: Option<i32>,
        signal: Option<i32>,
    },
}

impl Report {
    fn line(&self) -> String {
        match self {
            Self::Account(account) => format!("account {}\n", account.replace('\n', " ")),
            Self::Confined(sandbox) => {
                format!("confined {}\n", serde_json::to_string(sandbox).unwrap_or_default())
            }
            Self::Started(ProcessName { pid, started }) => format!("started {pid} {started}\n"),
            Self::Failed(message) => format!("failed {}\n", message.replace('\n', " ")),
            Self::Exited { code: Some(code), .. } => format!("exited code {code}\n"),
            Self::Exited { code: None, signal } => format!("exited signal {}\n", signal.unwrap_or(0)),
        }
    }

    fn parse(line: &str) -> Option<Self> {
        let (word, rest) = line.split_once(' ')?;
        match word {
            "account" => Some(Self::Account(rest.to_owned())),
            "confined" => serde_json::from_str(rest).ok().map(Self::Confined),
            "started" => {
                let (pid, started) = rest.split_once(' ')?;
                Some(Self::Started(ProcessName { pid: pid.parse().ok()?, started: started.parse().ok()? }))
            }
            "failed" => Some(Self::Failed(rest.to_owned())),
            "exited" => match rest.split_once(' ')? {
                ("code", code) => Some(Self::Exited { code: Some(code.parse().ok()?), signal: None }),
                ("signal", signal) => Some(Self::Exited { code: None, signal: Some(signal.parse().ok()?) }),
                _ => None,
            },
            _ => None,
        }
    }
}

/// The user that an agent runs as, when the daemon is root and the session another user's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    pub user: u32,
    pub group: u32,
    pub groups: Vec<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::SandboxLevel;

    #[test]
    fn what_one_side_writes_the_other_reads() {
        for order in [Order::GiveBack, Order::Terminate, Order::Kill] {
            assert_eq!(Order::from_byte(order.byte()), Some(order));
        }
        let sandbox =
            Sandbox { level: SandboxLevel::Partial, landlock_abi: Some(3), missing: vec!["this and\nthat".to_owned()] };
        let reports = [
            Report::Account("nobody is signed in".to_owned()),
            Report::Confined(sandbox),
            Report::Started(ProcessName { pid: 12, started: 34 }),
            Report::Failed("cannot execute x: no such file".to_owned()),
            Report::Exited { code: Some(3), signal: None },
            Report::Exited { code: None, signal: Some(9) },
        ];
        for report in reports {
            assert_eq!(Report::parse(report.line().trim_end()), Some(report));
        }
    }
}
