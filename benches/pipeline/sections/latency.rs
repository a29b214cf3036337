//! How long one small turn takes, from the prompt to the end that the client sees.

use std::fs::File;
use std::io::Write;
use std::time::{Duration, Instant};

use super::Scale;
use crate::agent::ECHO;
use crate::bare::BarePipe;
use crate::daemon::{Home, Session, directory};
use crate::statistics::Samples;
use crate::table::{Row, short};

/// The two ways take turns in blocks, so that both see the same machine and neither finds its caches cold each time.
const BLOCK_TURNS: usize = 25;
const WARM_UP_TURNS: usize = 25;
/// More than this at the median is a missed target.
const DIFFERENCE_MAX: Duration = Duration::from_millis(1);
/// What a commit of a small unit appends to the write-ahead log: about two pages.
const COMMIT_BYTES: usize = 8 << 10;
const DISK_WRITES: usize = 100;

pub fn run(scale: Scale) -> anyhow::Result<Vec<Row>> {
    let home = Home::create()?;
    let (daemon, _) = home.start()?;
    let mut pipe = BarePipe::start()?;
    let mut session = daemon.create_session()?;
    for _ in 0..WARM_UP_TURNS {
        pipe.turn(ECHO, 1)?;
        session.turn(ECHO, 1)?;
    }
    let (mut bare, mut acpd) = (Vec::new(), Vec::new());
    while acpd.len() < scale.turns {
        for _ in 0..BLOCK_TURNS {
            bare.push(pipe.turn(ECHO, 1)?);
        }
        for _ in 0..BLOCK_TURNS {
            acpd.push(session.turn(ECHO, 1)?);
        }
    }
    let accepted = accepted(&mut session, scale.turns / 2)?;
    let disk = disk()?;
    let (bare, acpd) = (Samples::new(bare), Samples::new(acpd));
    let is_met = acpd.median() <= bare.median() + DIFFERENCE_MAX;
    Ok(vec![
        Row::difference("turn latency, p50", bare.median(), acpd.median()).target("+1 ms", is_met),
        Row::difference("turn latency, p95", bare.percentile(95), acpd.percentile(95)),
        Row::lone("until the prompt is accepted (202), p50", short(accepted.median())),
        Row::lone("for comparison: one write and `fdatasync` on this disk, p50", short(disk.median())),
    ])
}

/// How long until the daemon has the prompt in its record.
fn accepted(session: &mut Session, turns: usize) -> anyhow::Result<Samples> {
    let mut samples = Vec::new();
    for _ in 0..turns {
        let start = session.send(ECHO)?;
        samples.push(session.accepted()? - start);
        session.completed(1)?;
    }
    Ok(Samples::new(samples))
}

/// What the disk takes for a commit, without any database. Written over, as a write-ahead log is.
fn disk() -> anyhow::Result<Samples> {
    let mut file: File = tempfile::tempfile_in(directory())?;
    let page = vec![1; COMMIT_BYTES];
    let mut samples = Vec::new();
    for is_measured in [false, true] {
        std::io::Seek::rewind(&mut file)?;
        for _ in 0..DISK_WRITES {
            let start = Instant::now();
            file.write_all(&page)?;
            file.sync_data()?;
            if is_measured {
                samples.push(start.elapsed());
            }
        }
    }
    Ok(Samples::new(samples))
}
