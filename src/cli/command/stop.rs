//! `acpd stop`: ends the daemon as SIGTERM does, and waits for it.

use std::time::Duration;

use clap::Args;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde_json::json;

use crate::cli::context::Context;
use crate::cli::error::ClientError;
use crate::cli::exit::Exit;
use crate::cli::service;
use crate::cli::text::age;
use crate::control::wire::Info;
use crate::model::Timestamp;

/// Longer than the daemon gives its agents: `processes.shutdown_timeout` and what follows it.
const PATIENCE: Duration = Duration::from_mins(1);

/// Stop the daemon and suspend its sessions
///
/// Running turns are interrupted and recorded as such, queued turns stay queued, and all agent processes are stopped.
/// Continue a session with `acpd prompt` or `acpd resume`. The next command that needs a daemon starts one. If systemd runs
/// the daemon, use `systemctl stop` instead, because systemd may start it again. Prints the daemon's process id once it has
/// exited.
#[derive(Args, Debug)]
pub struct Stop {}

impl Stop {
    pub async fn execute(self, context: &Context) -> Result<Exit, ClientError> {
        let hint = "nothing to stop; for another daemon, give its --socket";
        if service::is_idle(&context.socket).await {
            return Err(context.not_running(hint));
        }
        let daemon = context.running_daemon_or(hint).await?;
        let info: Info = daemon.get("/v1/info").await?;
        end(info.pid)?;
        if context.output.json {
            context.output.print(&json!({ "pid": info.pid }).to_string())?;
        } else {
            // To a program its process id, to a person in words.
            let pid = info.pid;
            let is_person = context.output.stdout_is_terminal;
            let line = if is_person { format!("the daemon (pid {pid}) has stopped") } else { pid.to_string() };
            context.output.print(&line)?;
            context.output.aside("its sessions are suspended; `acpd prompt SESSION` continues one");
            if let Some(expiry) = expiry(&info) {
                context.output.aside(&expiry);
            }
        }
        Ok(Exit::Ok)
    }
}

/// When suspended sessions expire, if any may.
fn expiry(info: &Info) -> Option<String> {
    let kept = ["active", "suspended"].iter().filter_map(|status| info.sessions.get(*status)).sum::<i64>();
    let after = |name: &str| {
        let seconds = info.limits.get(name)?.as_i64()?;
        Some(age(Timestamp::from_millis(0), Timestamp::from_millis(seconds.saturating_mul(1000))))
    };
    let (restorable, others) = (after("retentionResumableSeconds"), after("retentionSuspendedSeconds"));
    let expiry = match (others, restorable) {
        (None, None) => return None,
        (Some(others), Some(restorable)) if others == restorable => format!("expire after {others}"),
        (Some(others), Some(restorable)) => {
            format!("expire after {others}, or {restorable} if the agent can restore them")
        }
        (Some(others), None) => format!("expire after {others}, unless the agent can restore them"),
        (None, Some(restorable)) => format!("expire after {restorable} if the agent can restore them"),
    };
    (kept > 0).then(|| format!("suspended sessions {expiry}; `acpd keep SESSION` keeps one"))
}

fn end(pid: u32) -> Result<(), ClientError> {
    let failed = |error: Errno| {
        let hint = match error {
            Errno::PERM => "only its owner and root can stop it",
            _ => "run `acpd status`",
        };
        ClientError::local(format!("cannot stop the daemon (pid {pid}): {error}"), hint)
    };
    let process = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or_else(|| failed(Errno::INVAL))?;
    let descriptor = match pidfd_open(process, PidfdFlags::empty()) {
        Ok(descriptor) => descriptor,
        // It has ended by itself meanwhile.
        Err(Errno::SRCH) => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    match pidfd_send_signal(&descriptor, Signal::TERM) {
        Ok(()) | Err(Errno::SRCH) => {}
        Err(error) => return Err(failed(error)),
    }
    let patience = Timespec { tv_sec: i64::try_from(PATIENCE.as_secs()).unwrap_or(i64::MAX), tv_nsec: 0 };
    // Nothing else happens in this program meanwhile, and Ctrl-C ends it.
    match poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&patience)).map_err(failed)? {
        0 => Err(ClientError::local(
            format!("the daemon (pid {pid}) is still stopping after {} seconds", PATIENCE.as_secs()),
            "`acpd logs` shows what it is waiting for",
        )),
        _ => Ok(()),
    }
}
