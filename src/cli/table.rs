//! Tables that fit the terminal: columns as wide as their content, and when that is too much, the flexible ones give.

use super::style::{Paint, Style};
use super::text::{columns, cut_end, cut_start, one_line, steady};

const GAP: usize = 2;
/// A flexible column is not made narrower than this; when even that is too wide, lines are cut.
const FLEXIBLE_COLUMNS_MIN: usize = 8;
/// Before a flexible column is made narrower than this, the columns that may go do.
const TEXT_COLUMNS_WANTED: usize = 14;
const PATH_COLUMNS_WANTED: usize = 9;

/// What may be done to a column that does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    Whole,
    /// Whole, and aligned to the right.
    Number,
    CutEnd,
    CutStart,
    /// Whole, and not there at all when every cell is empty.
    IfAny,
    /// Both.
    NumberIfAny,
}

/// What stands in one place of a table, and what it looks like.
#[derive(Clone, Debug)]
pub struct Cell {
    text: String,
    paint: Paint,
}

pub struct Table {
    heads: Vec<(&'static str, Fit)>,
    rows: Vec<Vec<Cell>>,
    /// The heads of the columns that go where there is little room, the first of them first.
    dispensable: Vec<&'static str>,
}

impl Cell {
    /// Cleaned here, so that nobody who makes a table can forget it.
    pub fn new(text: &str, paint: Paint) -> Self {
        Self { text: one_line(text), paint }
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::new(&text, Paint::Plain)
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::new(text, Paint::Plain)
    }
}

impl Fit {
    const fn is_number(self) -> bool {
        matches!(self, Self::Number | Self::NumberIfAny)
    }

    const fn goes_when_empty(self) -> bool {
        matches!(self, Self::IfAny | Self::NumberIfAny)
    }

    /// How much of what it has a column gives up only after the dispensable ones have gone.
    fn wanted(self, natural: usize) -> usize {
        match self {
            Self::Whole | Self::Number | Self::IfAny | Self::NumberIfAny => natural,
            Self::CutEnd => natural.min(TEXT_COLUMNS_WANTED),
            Self::CutStart => natural.min(PATH_COLUMNS_WANTED),
        }
    }
}

impl Table {
    pub fn new<const N: usize>(heads: [(&'static str, Fit); N]) -> Self {
        Self { heads: heads.into(), rows: Vec::new(), dispensable: Vec::new() }
    }

    /// These columns go where there is little room, the first of them first.
    pub fn without_if_narrow(mut self, heads: &[&'static str]) -> Self {
        self.dispensable = heads.to_vec();
        self
    }

    pub fn row<const N: usize>(&mut self, cells: &[String; N]) {
        self.cells(cells.clone().map(Cell::from));
    }

    pub fn cells<const N: usize>(&mut self, cells: [Cell; N]) {
        debug_assert_eq!(N, self.heads.len(), "a row has a cell a column");
        self.rows.push(cells.into());
    }

    /// The lines, within `width` columns when there is a terminal. Without rows there is nothing, not even the head.
    pub fn render(mut self, width: Option<usize>, style: Style) -> String {
        if self.rows.is_empty() {
            return String::new();
        }
        for index in (0..self.heads.len()).rev() {
            if self.heads[index].1.goes_when_empty() && self.rows.iter().all(|row| row[index].text.is_empty()) {
                self.remove(index);
            }
        }
        if let Some(width) = width {
            self.rows.iter_mut().flatten().for_each(|cell| cell.text = steady(&cell.text));
            self.leave_out(width);
        }
        let widths = self.fitted(width);
        let heads: Vec<Cell> = self.heads.iter().map(|(head, _)| Cell::new(head, Paint::Bold)).collect();
        let lines = std::iter::once(&heads).chain(&self.rows).map(|row| self.line(row, &widths, width, style));
        lines.collect::<Vec<_>>().join("\n")
    }

    fn remove(&mut self, index: usize) {
        self.heads.remove(index);
        self.rows.iter_mut().for_each(|row| drop(row.remove(index)));
    }

    fn leave_out(&mut self, width: usize) {
        for head in std::mem::take(&mut self.dispensable) {
            let natural = self.natural();
            let wanted: usize = self.heads.iter().zip(&natural).map(|((_, fit), natural)| fit.wanted(*natural)).sum();
            if wanted + GAP * natural.len().saturating_sub(1) <= width {
                return;
            }
            if let Some(index) = self.heads.iter().position(|(name, _)| *name == head) {
                self.remove(index);
            }
        }
    }

    /// As wide as the content of each column is.
    fn natural(&self) -> Vec<usize> {
        let widest = |(index, (head, _)): (usize, &(&'static str, Fit))| {
            let cells = self.rows.iter().filter_map(|row| row.get(index));
            cells.map(|cell| columns(&cell.text)).chain([columns(head)]).max().unwrap_or(0)
        };
        self.heads.iter().enumerate().map(widest).collect()
    }

    fn fitted(&self, width: Option<usize>) -> Vec<usize> {
        let mut widths = self.natural();
        let Some(width) = width else { return widths };
        let gaps = GAP * widths.len().saturating_sub(1);
        // Each round takes one column from the one that has most to give, so it ends; and it is at most as long as the
        // widest cell.
        while widths.iter().sum::<usize>() + gaps > width {
            let flexible = self.heads.iter().zip(&mut widths).filter_map(|((_, fit), width)| match fit {
                Fit::CutEnd => Some((*width, width)),
                // The end of a path says enough sooner than the beginning of a text does.
                Fit::CutStart => Some((*width + TEXT_COLUMNS_WANTED - PATH_COLUMNS_WANTED, width)),
                Fit::Whole | Fit::Number | Fit::IfAny | Fit::NumberIfAny => None,
            });
            let most = flexible.filter(|(_, width)| **width > FLEXIBLE_COLUMNS_MIN).max_by_key(|(has, _)| *has);
            let Some((_, most)) = most else { break };
            *most -= 1;
        }
        widths
    }

    fn line(&self, cells: &[Cell], widths: &[usize], width: Option<usize>, style: Style) -> String {
        let mut line = String::new();
        // Spaces are written when something follows them, so that no line ends with any.
        let (mut used, mut owed) = (0, 0);
        for (index, ((cell, &cell_width), (_, fit))) in cells.iter().zip(widths).zip(&self.heads).enumerate() {
            let text = match fit {
                Fit::Whole | Fit::Number | Fit::IfAny | Fit::NumberIfAny => cell.text.clone(),
                Fit::CutEnd => cut_end(&cell.text, cell_width),
                Fit::CutStart => cut_start(&cell.text, cell_width),
            };
            let padding = cell_width.saturating_sub(columns(&text));
            owed += if index > 0 { GAP } else { 0 };
            owed += if fit.is_number() { padding } else { 0 };
            let room = width.map_or(usize::MAX, |width| width.saturating_sub(used + owed));
            let text = if columns(&text) > room { cut_end(&text, room) } else { text };
            if !text.is_empty() {
                line.push_str(&" ".repeat(owed));
                line.push_str(&style.paint(cell.paint, &text));
                used += owed + columns(&text);
                owed = 0;
            }
            owed += if fit.is_number() { 0 } else { padding };
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new([
            ("STATUS", Fit::Whole),
            ("TURNS", Fit::Number),
            ("TITLE", Fit::CutEnd),
            ("WORKSPACE", Fit::CutStart),
        ]);
        let title = "fix the test that fails\x1b[2J on Tuesdays only";
        table.row(&["active".into(), "12".into(), title.into(), "/home/me/src/project".into()]);
        table.row(&["suspended".into(), "3".into(), "日本語".into(), "/tmp".into()]);
        table
    }

    #[test]
    fn a_table_fits_every_terminal() {
        for width in 1..150 {
            let text = table().render(Some(width), Style::plain());
            assert_eq!(text.lines().count(), 3);
            for line in text.lines() {
                assert!(columns(line) <= width, "{line:?} is wider than {width}");
            }
        }
    }

    #[test]
    fn the_flexible_columns_give_first() {
        insta::assert_snapshot!(table().render(Some(50), Style::plain()), @r"
        STATUS     TURNS  TITLE               WORKSPACE
        active        12  fix the test that…  …src/project
        suspended      3  日本語              /tmp
        ");
    }

    #[test]
    fn what_can_be_done_without_goes_before_the_rest_is_cut_short() {
        let narrow = |width| table().without_if_narrow(&["TURNS", "WORKSPACE"]).render(Some(width), Style::plain());
        assert!(narrow(60).contains("TURNS"));
        assert!(!narrow(40).contains("TURNS") && narrow(40).contains("WORKSPACE"));
        assert!(!narrow(30).contains("WORKSPACE"));
    }

    #[test]
    fn without_a_terminal_nothing_is_cut() {
        let text = table().render(None, Style::plain());
        assert!(text.contains("fix the test that fails[2J on Tuesdays only  /home/me/src/project"), "{text}");
    }

    #[test]
    fn no_rows_are_no_table() {
        assert_eq!(Table::new([("ID", Fit::Whole)]).render(Some(80), Style::plain()), "");
    }
}
