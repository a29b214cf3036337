//! The measurements, one file a section of the table.

mod latency;
mod memory;
mod statements;
mod store;
mod throughput;

use clap::ValueEnum;

use crate::table::Row;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Section {
    Latency,
    Throughput,
    Memory,
    Store,
    Statements,
}

impl Section {
    pub const ALL: [Self; 5] = [Self::Latency, Self::Throughput, Self::Memory, Self::Store, Self::Statements];

    pub fn run(self, scale: Scale) -> anyhow::Result<Vec<Row>> {
        match self {
            Self::Latency => latency::run(scale),
            Self::Throughput => throughput::run(scale),
            Self::Memory => memory::run(scale),
            Self::Store => store::run(scale),
            Self::Statements => statements::run(scale),
        }
    }
}

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// Turns of one chunk, for each of the two ways.
    pub turns: usize,
    /// Chunks in one turn: a small flood and a large one.
    pub floods: [usize; 2],
    /// How often each flood is measured; the median counts.
    pub repeats: usize,
    /// Further numbers of clients that all follow the large flood.
    pub subscribers: [usize; 2],
    /// Sessions that flood at once, each with the small flood.
    pub flooding_sessions: usize,
    /// Numbers of live sessions at which memory is read.
    pub live_sessions: [usize; 2],
    /// How often a start is measured.
    pub starts: usize,
    /// Sessions in the large store.
    pub sessions: usize,
    /// How often each request is made of it.
    pub requests: usize,
}

impl Scale {
    pub const FULL: Self = Self {
        turns: 500,
        floods: [10_000, 100_000],
        repeats: 3,
        subscribers: [10, 50],
        flooding_sessions: 20,
        live_sessions: [20, 100],
        starts: 9,
        sessions: 10_000,
        requests: 500,
    };

    pub const QUICK: Self = Self {
        turns: 100,
        floods: [1_000, 10_000],
        repeats: 3,
        subscribers: [5, 10],
        flooding_sessions: 5,
        live_sessions: [5, 20],
        starts: 5,
        sessions: 1_000,
        requests: 200,
    };
}
