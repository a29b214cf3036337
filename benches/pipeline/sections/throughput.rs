//! How long it takes until everything that an agent says as fast as it can has been received, and nothing lost.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::bail;

use super::Scale;
use crate::agent::flood;
use crate::bare::BarePipe;
use crate::daemon::{Daemon, Home, Session};
use crate::statistics::Samples;
use crate::table::{Row, ratio, thousands};

/// So many times the bare pipe's time is a missed target.
const RATIO_MAX: f64 = 2.0;

pub fn run(scale: Scale) -> anyhow::Result<Vec<Row>> {
    let home = Home::create()?;
    let (daemon, _) = home.start()?;
    let [small, large] = scale.floods;
    let mut rows = vec![one_session(&daemon, scale, small, 1)?, one_session(&daemon, scale, large, 1)?];
    for subscribers in scale.subscribers {
        rows.push(one_session(&daemon, scale, large, subscribers)?);
    }
    rows.push(many_sessions(&daemon, scale, small)?);
    Ok(rows)
}

fn one_session(daemon: &Daemon<'_>, scale: Scale, chunks: usize, subscribers: usize) -> anyhow::Result<Row> {
    let mut pipe = BarePipe::start()?;
    let mut session = daemon.create_session()?;
    let (mut bare, mut acpd) = (Vec::new(), Vec::new());
    for _ in 0..scale.repeats {
        bare.push(pipe.turn(&flood(chunks), chunks)?);
        acpd.push(flood_followed_by(&mut session, chunks, subscribers)?);
    }
    let (bare, acpd) = (Samples::new(bare), Samples::new(acpd));
    let plural = if subscribers == 1 { "client" } else { "clients" };
    let row = Row::ratio(format!("{} chunks, {subscribers} {plural}", thousands(chunks)), &bare, &acpd);
    if subscribers > 1 || chunks != scale.floods[1] {
        return Ok(row);
    }
    Ok(row.target(format!("{RATIO_MAX}×"), ratio(bare.median(), acpd.median()) <= RATIO_MAX))
}

/// One turn, followed by so many clients that are connected before it; its time is that of the last one.
fn flood_followed_by(session: &mut Session, chunks: usize, subscribers: usize) -> anyhow::Result<Duration> {
    let others = (1..subscribers).map(|_| session.subscribe()).collect::<anyhow::Result<Vec<_>>>()?;
    thread::scope(|scope| {
        let others: Vec<_> =
            others.into_iter().map(|mut events| scope.spawn(move || events.until_completed(chunks))).collect();
        let start = session.send(&flood(chunks))?;
        let mut last = session.completed(chunks)?;
        for other in others {
            last = last.max(joined(other.join())?);
        }
        session.accepted()?;
        Ok(last - start)
    })
}

/// As many bare pipes at once, and then as many sessions, each with one client.
fn many_sessions(daemon: &Daemon<'_>, scale: Scale, chunks: usize) -> anyhow::Result<Row> {
    let count = scale.flooding_sessions;
    let mut pipes = (0..count).map(|_| BarePipe::start()).collect::<anyhow::Result<Vec<_>>>()?;
    let mut sessions = (0..count).map(|_| daemon.create_session()).collect::<anyhow::Result<Vec<_>>>()?;
    let (mut bare, mut acpd) = (Vec::new(), Vec::new());
    for _ in 0..scale.repeats {
        bare.push(at_once(&mut pipes, |pipe| pipe.turn(&flood(chunks), chunks))?);
        acpd.push(at_once(&mut sessions, |session| session.turn(&flood(chunks), chunks))?);
    }
    let what = format!("{count} sessions at once, {} chunks each", thousands(chunks));
    Ok(Row::ratio(what, &Samples::new(bare), &Samples::new(acpd)))
}

/// Starts them all at the same moment, and returns how long it takes until the last one is done.
fn at_once<T: Send>(
    all: &mut [T],
    turn: impl Fn(&mut T) -> anyhow::Result<Duration> + Sync,
) -> anyhow::Result<Duration> {
    let barrier = Barrier::new(all.len() + 1);
    thread::scope(|scope| {
        let (barrier, turn) = (&barrier, &turn);
        let threads: Vec<_> = all
            .iter_mut()
            .map(|one| {
                scope.spawn(move || {
                    barrier.wait();
                    turn(one)
                })
            })
            .collect();
        barrier.wait();
        let start = Instant::now();
        for thread in threads {
            joined(thread.join())?;
        }
        Ok(start.elapsed())
    })
}

fn joined<T>(outcome: thread::Result<anyhow::Result<T>>) -> anyhow::Result<T> {
    match outcome {
        Ok(result) => result,
        Err(_) => bail!("a client panicked"),
    }
}
