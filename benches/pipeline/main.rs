//! The bare pipe beside acpd, in one run: what it costs that a daemon stands between a client and an agent.
//!
//! ```text
//! bare pipe:  this program ──stdin──▶ agent ──stdout──▶ this program
//! acpd:       this program ──POST──▶ acpd ──▶ shim, agent ──▶ acpd ──commit──▶ server-sent events ──▶ this program
//! ```
//!
//! The agent is the same in both: this program again (`agent.rs`). Everything is a process of its own and nothing is
//! simulated: the daemon is the one that was built, with its store on the disk below cargo's target directory.
//! A missed target is a word in the table; lost data is an error and ends the run.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a benchmark prints its table, and what it is doing")]

mod agent;
mod text;
mod proc;
mod statistics;
mod table;
mod bare;
mod client;
mod events;
mod daemon;
mod fill;
mod sections;

use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;

use sections::{Scale, Section};

/// Measures the bare pipe and acpd in one run, and prints a table.
#[derive(Debug, Parser)]
struct Arguments {
    /// Smaller counts, for a first look.
    #[arg(long)]
    quick: bool,
    /// Only these sections.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Section>,
    /// What `cargo bench` adds. Without it nothing is measured: `cargo test --benches` is no place for that.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some(agent::ARGUMENT) {
        return exit_code(agent::run());
    }
    let arguments = Arguments::parse();
    if !arguments.bench {
        println!("nothing is measured here: run `cargo bench --bench pipeline`");
        return ExitCode::SUCCESS;
    }
    exit_code(measure(&arguments))
}

fn measure(arguments: &Arguments) -> anyhow::Result<()> {
    let scale = if arguments.quick { Scale::QUICK } else { Scale::FULL };
    daemon::warn_of_memory_filesystem()?;
    let mut rows = Vec::new();
    for section in Section::ALL {
        if !arguments.only.is_empty() && !arguments.only.contains(&section) {
            continue;
        }
        eprintln!("measuring: {section:?}");
        rows.extend(section.run(scale).with_context(|| format!("in the section {section:?}"))?);
    }
    table::print(&rows);
    Ok(())
}

fn exit_code(result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
