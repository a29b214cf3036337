//! What the daemon and its shims weigh, as the kernel counts it.

use super::Scale;
use crate::agent::{ECHO, flood};
use crate::daemon::{Daemon, Home};
use crate::proc::{Memory, children};
use crate::table::{Row, mebibytes, thousands};

pub fn run(scale: Scale) -> anyhow::Result<Vec<Row>> {
    let home = Home::create()?;
    let (daemon, _) = home.start()?;
    let mut rows = vec![row(&daemon, "daemon, no session")?];
    let mut sessions = Vec::new();
    for count in scale.live_sessions {
        while sessions.len() < count {
            let mut session = daemon.create_session()?;
            session.turn(ECHO, 1)?;
            sessions.push(session);
        }
        rows.push(row(&daemon, &format!("daemon, {count} live sessions"))?);
        rows.push(shims(&daemon)?);
    }
    drop(sessions);
    drop(daemon);
    rows.push(after_a_flood(scale.floods[1])?);
    Ok(rows)
}

fn row(daemon: &Daemon<'_>, what: &str) -> anyhow::Result<Row> {
    let memory = Memory::of(daemon.pid())?;
    let (resident, proportional) = (mebibytes(memory.resident_bytes), mebibytes(memory.proportional_bytes));
    Ok(Row::lone(what, format!("{resident} RSS, {proportional} PSS")))
}

fn shims(daemon: &Daemon<'_>) -> anyhow::Result<Row> {
    let shims = children(daemon.pid())?;
    let mut sum = Memory::default();
    for shim in &shims {
        sum.add(Memory::of(*shim)?);
    }
    let count = shims.len();
    let average = sum.proportional_bytes / u64::try_from(count.max(1))?;
    let text = format!("{} PSS in all, {} KiB each", mebibytes(sum.proportional_bytes), average >> 10);
    Ok(Row::lone(format!("their {count} shims"), text))
}

fn after_a_flood(chunks: usize) -> anyhow::Result<Row> {
    let home = Home::create()?;
    let (daemon, _) = home.start()?;
    let mut session = daemon.create_session()?;
    session.turn(&flood(chunks), chunks)?;
    row(&daemon, &format!("daemon, 1 session, after {} chunks", thousands(chunks)))
}
