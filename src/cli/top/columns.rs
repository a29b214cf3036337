//! The table's columns: which there are at a width, and what each shows.

use crate::cli::text::{age, cut_end, cut_start, short_id};
use crate::model::Timestamp;

use super::row::Row;

/// Below these widths of the screen a column is left out.
const AGENT_FROM: usize = 60;
const WORKSPACE_FROM: usize = 72;
const NUMBERS_FROM: usize = 110;
const WIDE_FROM: usize = 150;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    State,
    Id,
    Agent,
    Title,
    Workspace,
    Pid,
    Processes,
    Turns,
    Age,
    Cpu,
    Memory,
    Now,
    Queue,
    Questions,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    pub kind: Kind,
    pub width: usize,
}

impl Kind {
    pub const fn name(self) -> &'static str {
        match self {
            Self::State => "STATE",
            Self::Id => "ID",
            Self::Agent => "AGENT",
            Self::Title => "TITLE",
            Self::Workspace => "WORKSPACE",
            Self::Pid => "PID",
            Self::Processes => "PROCS",
            Self::Turns => "TURNS",
            Self::Age => "AGE",
            Self::Cpu => "CPU%",
            Self::Memory => "RSS",
            Self::Now => "NOW",
            Self::Queue => "Q",
            Self::Questions => "?",
        }
    }

    const fn is_number(self) -> bool {
        match self {
            Self::Pid | Self::Processes | Self::Turns | Self::Age | Self::Cpu | Self::Memory => true,
            Self::Queue | Self::Questions => true,
            Self::State | Self::Id | Self::Agent | Self::Title | Self::Workspace | Self::Now => false,
        }
    }

    fn cell(self, row: &Row, now: Timestamp) -> String {
        let process = row.process.as_ref();
        let count = |count: usize| if count == 0 { String::new() } else { count.to_string() };
        match self {
            Self::State => row.state().as_str().to_owned(),
            Self::Id => short_id(row.id),
            Self::Agent => row.agent.clone(),
            Self::Title if row.title.is_empty() => "(no title yet)".to_owned(),
            Self::Title => row.title.clone(),
            Self::Workspace => row.workspace.clone(),
            Self::Pid => process.and_then(|process| process.pid).map(|pid| pid.to_string()).unwrap_or_default(),
            Self::Processes => count(process.map_or(0, |process| process.count)),
            Self::Turns => row.turns.map(|turns| turns.to_string()).unwrap_or_default(),
            Self::Age => row.created_at.map(|at| age(at, now)).unwrap_or_default(),
            Self::Cpu => row.cpu_percent().map(percent).unwrap_or_default(),
            Self::Memory if row.rss_bytes() == 0 => String::new(),
            Self::Memory => size(row.rss_bytes()),
            Self::Now => row.now(now),
            Self::Queue => count(row.queued()),
            Self::Questions => count(row.questions()),
        }
    }
}

impl Column {
    /// Its name as wide as the column.
    pub fn head(self) -> String {
        self.padded(self.kind.name())
    }

    /// What it shows of a row, as wide as the column.
    pub fn cell(self, row: &Row, now: Timestamp) -> String {
        let text = self.kind.cell(row, now);
        match self.kind {
            // The end of a path says more.
            Kind::Workspace => self.padded(&cut_start(&text, self.width)),
            _ => self.padded(&cut_end(&text, self.width)),
        }
    }

    fn padded(self, text: &str) -> String {
        let missing = " ".repeat(self.width.saturating_sub(crate::cli::text::columns(text)));
        if self.kind.is_number() { missing + text } else { text.to_owned() + &missing }
    }
}

/// The columns of a screen this wide, with a space between them.
pub fn columns(width: usize) -> Vec<Column> {
    let is_there = |from: usize, kind: Kind, width: usize| (from, Column { kind, width });
    let all = [
        is_there(0, Kind::State, 9),
        is_there(NUMBERS_FROM, Kind::Id, 12),
        is_there(AGENT_FROM, Kind::Agent, if width < NUMBERS_FROM { 7 } else { 10 }),
        is_there(0, Kind::Title, 0),
        is_there(WORKSPACE_FROM, Kind::Workspace, if width < WIDE_FROM { width / 8 } else { width / 6 }),
        is_there(WIDE_FROM, Kind::Pid, 7),
        is_there(WIDE_FROM, Kind::Processes, 5),
        is_there(NUMBERS_FROM, Kind::Turns, 5),
        is_there(NUMBERS_FROM, Kind::Age, 4),
        is_there(30, Kind::Cpu, 5),
        is_there(30, Kind::Memory, 5),
        is_there(50, Kind::Now, 0),
        is_there(AGENT_FROM, Kind::Queue, 2),
        is_there(24, Kind::Questions, 2),
    ];
    let mut columns: Vec<Column> =
        all.into_iter().filter(|(from, _)| *from <= width).map(|(_, column)| column).collect();
    let taken: usize = columns.iter().map(|column| column.width + 1).sum::<usize>().saturating_sub(1);
    let free = width.saturating_sub(taken);
    let elastic = columns.iter().filter(|column| column.width == 0).count().max(1);
    // What does not divide goes to the last one.
    let mut rest = free % elastic;
    for column in columns.iter_mut().rev().filter(|column| column.width == 0) {
        column.width = free / elastic + std::mem::take(&mut rest);
    }
    columns
}

/// As wide as five columns, whatever it is.
pub fn percent(percent: f64) -> String {
    if percent < 99.95 { format!("{percent:.1}") } else { format!("{percent:.0}") }
}

/// Bytes in the largest unit that leaves something before the point, as wide as five columns.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["K", "M", "G", "T"];
    let mut tenths = bytes.saturating_mul(10) / 1024;
    let mut unit = UNITS[0];
    for larger in &UNITS[1..] {
        if tenths < 10 * 1024 {
            break;
        }
        (tenths, unit) = (tenths / 1024, larger);
    }
    if tenths < 100 && unit != "K" {
        format!("{}.{}{unit}", tenths / 10, tenths % 10)
    } else {
        format!("{}{unit}", tenths / 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_columns_fill_the_width_and_no_more() {
        for width in 24..240 {
            let columns = columns(width);
            let taken: usize = columns.iter().map(|column| column.width + 1).sum::<usize>() - 1;
            assert_eq!(taken, width, "{columns:?}");
            assert!(columns.iter().all(|column| column.width > 0), "{width}: {columns:?}");
        }
        let names = |width| columns(width).iter().map(|column| column.kind.name()).collect::<Vec<_>>().join(" ");
        assert_eq!(names(40), "STATE TITLE CPU% RSS ?");
        assert_eq!(names(80), "STATE AGENT TITLE WORKSPACE CPU% RSS NOW Q ?");
        assert_eq!(names(140), "STATE ID AGENT TITLE WORKSPACE TURNS AGE CPU% RSS NOW Q ?");
        assert_eq!(names(200), "STATE ID AGENT TITLE WORKSPACE PID PROCS TURNS AGE CPU% RSS NOW Q ?");
    }

    #[test]
    fn figures_are_short() {
        let sizes = [0, 10 << 10, 1 << 20, 15_700_000, 1023 << 20, 3 << 30, 20 << 30].map(size);
        assert_eq!(sizes, ["0K", "10K", "1.0M", "14M", "1023M", "3.0G", "20G"]);
        assert_eq!([0.0, 3.24, 99.94, 99.96, 1600.0].map(percent), ["0.0", "3.2", "99.9", "100", "1600"]);
    }
}
