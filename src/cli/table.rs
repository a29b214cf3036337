//! Tables that fit the terminal: columns as wide as their content, and when that is too much, the flexible ones give.

use super::style::Style;
use super::text::{columns, cut_end, cut_start, one_line};

const GAP: usize = 2;
/// A flexible column is not made narrower than this; when even that is too wide, lines are cut.
const FLEXIBLE_COLUMNS_MIN: usize = 8;

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
}

pub struct Table {
    heads: Vec<(&'static str, Fit)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new<const N: usize>(heads: [(&'static str, Fit); N]) -> Self {
        Self { heads: heads.into(), rows: Vec::new() }
    }

    /// Cells are cleaned here, so that nobody who makes a table can forget it.
    pub fn row<const N: usize>(&mut self, cells: &[String; N]) {
        debug_assert_eq!(N, self.heads.len(), "a row has a cell a column");
        self.rows.push(cells.iter().map(|cell| one_line(cell)).collect());
    }

    /// The lines, within `width` columns when there is a terminal. Without rows there is nothing, not even the head.
    pub fn render(mut self, width: Option<usize>, style: Style) -> String {
        if self.rows.is_empty() {
            return String::new();
        }
        self.leave_out_empty();
        let widths = self.fitted(width);
        let heads: Vec<String> = self.heads.iter().map(|(head, _)| (*head).to_owned()).collect();
        let mut lines = vec![style.bold(&self.line(&heads, &widths, width))];
        lines.extend(self.rows.iter().map(|row| self.line(row, &widths, width)));
        lines.join("\n")
    }

    fn leave_out_empty(&mut self) {
        for index in (0..self.heads.len()).rev() {
            if self.heads[index].1 == Fit::IfAny && self.rows.iter().all(|row| row[index].is_empty()) {
                self.heads.remove(index);
                self.rows.iter_mut().for_each(|row| drop(row.remove(index)));
            }
        }
    }

    fn fitted(&self, width: Option<usize>) -> Vec<usize> {
        let mut widths: Vec<usize> = self
            .heads
            .iter()
            .enumerate()
            .map(|(index, (head, _))| {
                let cells = self.rows.iter().filter_map(|row| row.get(index));
                cells.map(|cell| columns(cell)).chain([head.len()]).max().unwrap_or(0)
            })
            .collect();
        let Some(width) = width else { return widths };
        let gaps = GAP * widths.len().saturating_sub(1);
        // Each round takes one column from the widest, so it ends; and it is at most as long as the widest cell.
        while widths.iter().sum::<usize>() + gaps > width {
            let flexible = self.heads.iter().zip(&mut widths);
            let widest = flexible
                .filter(|((_, fit), _)| matches!(fit, Fit::CutEnd | Fit::CutStart))
                .map(|(_, width)| width)
                .max();
            match widest {
                Some(widest) if *widest > FLEXIBLE_COLUMNS_MIN => *widest -= 1,
                _ => break,
            }
        }
        widths
    }

    fn line(&self, cells: &[String], widths: &[usize], width: Option<usize>) -> String {
        let mut line = String::new();
        for (index, ((cell, &cell_width), (_, fit))) in cells.iter().zip(widths).zip(&self.heads).enumerate() {
            if index > 0 {
                line.push_str(&" ".repeat(GAP));
            }
            let cell = match fit {
                Fit::Whole | Fit::Number | Fit::IfAny => cell.clone(),
                Fit::CutEnd => cut_end(cell, cell_width),
                Fit::CutStart => cut_start(cell, cell_width),
            };
            let padding = " ".repeat(cell_width.saturating_sub(columns(&cell)));
            let (before, after) = if *fit == Fit::Number { (padding.as_str(), "") } else { ("", padding.as_str()) };
            line.push_str(before);
            line.push_str(&cell);
            line.push_str(after);
        }
        let line = line.trim_end();
        width.map_or_else(|| line.to_owned(), |width| cut_end(line, width))
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
        STATUS     TURNS  TITLE            WORKSPACE
        active        12  fix the test t…  …me/src/project
        suspended      3  日本語           /tmp
        ");
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
