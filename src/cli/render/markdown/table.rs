//! A table that fits: the widest columns are made narrower first, and their cells take several lines.

use pulldown_cmark::Alignment;

use super::super::glyphs::Glyphs;
use super::super::ink::{Ink, Line};

/// A column that is narrower holds no word.
const COLUMN_MIN: usize = 4;
/// Around the bar between two columns.
const GAP: usize = 3;

/// `rows` has the head first.
pub fn lines(rows: &[Vec<Line>], alignments: &[Alignment], columns: usize, glyphs: &Glyphs) -> Vec<Line> {
    let count = rows.iter().map(Vec::len).max().unwrap_or_default();
    if count == 0 {
        return Vec::new();
    }
    let Some(widths) = fit(rows, count, columns) else { return as_text(rows, columns) };
    let mut lines = Vec::new();
    for (index, row) in rows.iter().enumerate() {
        lines.extend(row_lines(row, &widths, alignments, glyphs));
        if index == 0 {
            let crossing = format!("{}{}{}", glyphs.rule, glyphs.crossing, glyphs.rule);
            let dashes: Vec<String> = widths.iter().map(|width| glyphs.rule.repeat(*width)).collect();
            lines.push(Line::new(&dashes.join(&crossing), Ink::DIM));
        }
    }
    lines
}

/// The width of each column; nothing when there is no room for all of them.
fn fit(rows: &[Vec<Line>], count: usize, columns: usize) -> Option<Vec<usize>> {
    let room = columns.checked_sub(GAP * (count - 1)).filter(|room| room / count >= COLUMN_MIN)?;
    let widest = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(Line::width).max().unwrap_or(1);
    let natural: Vec<usize> = (0..count).map(|column| widest(column).max(1)).collect();
    // The most that a column may have is lowered until they fit together.
    let total = |most: usize| natural.iter().map(|width| (*width).min(most)).sum::<usize>();
    let (mut low, mut high) = (COLUMN_MIN, natural.iter().copied().max().unwrap_or(1).max(COLUMN_MIN));
    while low < high {
        let middle = (low + high).div_ceil(2);
        if total(middle) <= room {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    Some(natural.into_iter().map(|width| width.min(low)).collect())
}

fn row_lines(row: &[Line], widths: &[usize], alignments: &[Alignment], glyphs: &Glyphs) -> Vec<Line> {
    let empty = Line::default();
    let cells: Vec<Vec<Line>> =
        widths.iter().enumerate().map(|(column, width)| row.get(column).unwrap_or(&empty).wrap(*width)).collect();
    let height = cells.iter().map(Vec::len).max().unwrap_or(1);
    let line = |index: usize| {
        let mut line = Line::default();
        for (column, (cell, width)) in cells.iter().zip(widths).enumerate() {
            if column > 0 {
                line.push(&format!(" {} ", glyphs.bar), Ink::DIM);
            }
            let piece = cell.get(index).unwrap_or(&empty);
            let free = width.saturating_sub(piece.width());
            let left = match alignments.get(column) {
                Some(Alignment::Right) => free,
                Some(Alignment::Center) => free / 2,
                _ => 0,
            };
            line.push(&" ".repeat(left), Ink::PLAIN);
            line.extend(piece);
            if column + 1 < widths.len() {
                line.push(&" ".repeat(free - left), Ink::PLAIN);
            }
        }
        line
    };
    (0..height).map(line).collect()
}

/// A row a paragraph, where columns would be too narrow for words.
fn as_text(rows: &[Vec<Line>], columns: usize) -> Vec<Line> {
    let joined = rows.iter().map(|row| {
        let mut line = Line::default();
        for (index, cell) in row.iter().enumerate() {
            if index > 0 {
                line.push(" | ", Ink::DIM);
            }
            line.extend(cell);
        }
        line
    });
    joined.flat_map(|line| line.wrap(columns)).collect()
}
