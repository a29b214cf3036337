//! Whether a daemon answers, and how it is.

use std::io::ErrorKind;

use super::{Patient, Running};
use crate::cli::error::ClientError;
use crate::cli::findings::{Finding, Status};
use crate::cli::text::duration;
use crate::control::wire::{Health, Severity};
use crate::model::Timestamp;
use crate::model::error::chain;

pub fn look(patient: &Patient<'_>) -> Vec<Finding> {
    match &patient.running {
        Ok(running) => {
            let mut found = vec![Finding::ok("socket", running.info.socket.clone()), process(running)];
            found.push(version(running));
            found.extend(health(running));
            found
        }
        Err(error) => vec![unreachable(patient, error)],
    }
}

fn process(running: &Running) -> Finding {
    let info = &running.info;
    let age = duration(info.started_at, Timestamp::now());
    let checks =
        if info.processes.checks > 0 { format!(" (checks: {})", info.processes.checks) } else { String::new() };
    let processes = format!("{} of {} agent processes{checks}", info.processes.running, info.processes.max);
    Finding::ok("process", format!("pid {}, running for {age}, {processes}", info.pid))
}

/// A daemon goes on after an update of the program, with what it was started with.
fn version(running: &Running) -> Finding {
    let (own, theirs) = (env!("CARGO_PKG_VERSION"), &running.info.version);
    if own == theirs {
        return Finding::ok("version", own);
    }
    let hint = "restart the daemon with `acpd stop`; the next command starts the new version";
    Finding::warning("version", format!("this program is {own}, but the running daemon is {theirs}"), hint)
}

fn health(running: &Running) -> Vec<Finding> {
    let told = match &running.health {
        Ok(health) => health.problems.clone().unwrap_or_default(),
        Err(ClientError::Api { body, .. }) => {
            return vec![Finding::problem("health", &body.message, &body.hint)];
        }
        Err(error) => return vec![Finding::problem("health", chain(error), error.hint())],
    };
    // The findings about the configuration say that.
    let told: Vec<_> = told.into_iter().filter(|problem| problem.code != "config_not_reloaded").collect();
    if told.is_empty() {
        let status = running.health.as_ref().map_or("", |Health { status, .. }| status);
        return vec![Finding::ok("health", status)];
    }
    let finding = |problem: crate::control::wire::HealthProblem| {
        let status = match problem.severity {
            Severity::Problem => Status::Problem,
            Severity::Warning => Status::Warning,
        };
        // A guest is told the code alone.
        let message = if problem.message.is_empty() { problem.code } else { problem.message };
        Finding::new(status, "health", message, problem.hint)
    };
    told.into_iter().map(finding).collect()
}

fn unreachable(patient: &Patient<'_>, error: &ClientError) -> Finding {
    let socket = patient.context.socket.display();
    let kind = match error {
        ClientError::Unreachable { source, .. } => source.kind(),
        _ => return Finding::problem("socket", chain(error), error.hint()),
    };
    match kind {
        ErrorKind::NotFound => Finding::note(
            "socket",
            format!("no daemon is running at {socket}"),
            "`acpd run \"…\"` starts a daemon; `acpd serve` runs it in this terminal",
        ),
        ErrorKind::ConnectionRefused => Finding::warning(
            "socket",
            format!("{socket} exists, but its daemon is not running"),
            "start a new daemon with `acpd ls`; it replaces the socket",
        ),
        _ => Finding::problem("socket", chain(error), error.hint()),
    }
}
