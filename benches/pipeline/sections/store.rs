//! How long a start takes, and how long answers take when there is much in the store.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use super::Scale;
use crate::daemon::{Daemon, Home};
use crate::fill::{MESSAGES_PER_SESSION, large_store};
use crate::proc::Memory;
use crate::statistics::Samples;
use crate::table::{Row, mebibytes, short, thousands};

const LIST: &str = "/v1/sessions?limit=20";
const WARM_UP_REQUESTS: usize = 10;

pub fn run(scale: Scale) -> anyhow::Result<Vec<Row>> {
    let mut first = Vec::new();
    for _ in 0..scale.starts {
        first.push(Home::create()?.start()?.1);
    }
    let mut rows = vec![Row::lone("start to ready, no store yet, p50", short(Samples::new(first).median()))];
    let home = Home::create()?;
    drop(home.start()?);
    rows.push(start(&home, scale, "an empty store")?);
    let kept = large_store(scale.sessions)?;
    let home = Home::create()?;
    std::fs::copy(&kept, home.database()).context("cannot copy the large store")?;
    let sessions = thousands(scale.sessions);
    let messages = thousands(scale.sessions * MESSAGES_PER_SESSION);
    rows.push(start(&home, scale, &format!("{sessions} sessions, {messages} messages"))?);
    let (daemon, _) = home.start()?;
    rows.extend(answers(&daemon, scale)?);
    let memory = Memory::of(daemon.pid())?;
    rows.push(Row::lone("daemon, then", format!("{} RSS", mebibytes(memory.resident_bytes))));
    Ok(rows)
}

/// From the start of the program to the answer that it is healthy.
fn start(home: &Home, scale: Scale, what: &str) -> anyhow::Result<Row> {
    let mut samples = Vec::new();
    for _ in 0..scale.starts {
        let (daemon, took) = home.start()?;
        samples.push(took);
        drop(daemon);
    }
    Ok(Row::lone(format!("start to ready, {what}, p50"), short(Samples::new(samples).median())))
}

fn answers(daemon: &Daemon<'_>, scale: Scale) -> anyhow::Result<Vec<Row>> {
    let list = requests(daemon, scale, |_| LIST.to_owned())?;
    let ids = some_ids(daemon, scale)?;
    let view = requests(daemon, scale, |number| format!("/v1/sessions/{}", ids[number % ids.len()]))?;
    let row = |what: &str, samples: &Samples| {
        let (p50, p99) = (short(samples.median()), short(samples.percentile(99)));
        Row::lone(format!("{what}, p50 and p99"), format!("{p50}, {p99}"))
    };
    let view_what = format!("one session with its {MESSAGES_PER_SESSION} messages");
    Ok(vec![row("list of 20 sessions", &list), row(&view_what, &view)])
}

/// Sessions from all over the store, so that the pages of one are not those of the next.
fn some_ids(daemon: &Daemon<'_>, scale: Scale) -> anyhow::Result<Vec<String>> {
    let mut client = daemon.client()?;
    let mut ids = Vec::new();
    let step = (scale.sessions / scale.requests).max(1);
    for offset in (0..scale.sessions / 2).step_by(step) {
        let page = client.get(&format!("/v1/sessions?limit=1&offset={offset}"))?;
        ids.push(page["sessions"][0]["id"].as_str().context("a session without an id")?.to_owned());
    }
    ensure!(!ids.is_empty(), "the store has no sessions");
    Ok(ids)
}

/// One after the other on one connection.
fn requests(daemon: &Daemon<'_>, scale: Scale, path: impl Fn(usize) -> String) -> anyhow::Result<Samples> {
    let mut client = daemon.client()?;
    let mut samples: Vec<Duration> = Vec::new();
    for number in 0..WARM_UP_REQUESTS + scale.requests {
        let path = path(number);
        let start = Instant::now();
        client.send("GET", &path, None)?;
        client.receive(200)?;
        if number >= WARM_UP_REQUESTS {
            samples.push(start.elapsed());
        }
    }
    Ok(Samples::new(samples))
}
