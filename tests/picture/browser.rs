//! Where a real browser puts the characters of a picture: Chromium, without a window.

use std::collections::BTreeMap;
use std::path::Path;

use tokio::process::Command;
use unicode_width::UnicodeWidthStr;

use super::{BAR_HEIGHT, CELL_HEIGHT, CELL_WIDTH, MARGIN};
use crate::harness::within;

pub const PROGRAM: &str = "chromium";
/// It talks to no network, and keeps nothing but its profile.
const FLAGS: [&str; 9] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--dump-dom",
];
/// Writes the left edge, the vertical middle and the width of every character into the page, for each picture, as JSON
/// in a form that HTML does not change. Spaces that the browser collapsed have no place.
const SCRIPT: &str = r#"
const measured = [...document.querySelectorAll("svg")].map(svg => {
    const characters = [];
    for (const text of svg.querySelectorAll("text:not([text-anchor])")) {
        const whole = text.textContent, isWhole = whole.length === text.getNumberOfChars();
        const shown = isWhole ? whole : whole.trim().replace(/\s+/g, " ");
        for (const { index, segment } of new Intl.Segmenter().segment(shown)) {
            const { x, y, width, height } = text.getExtentOfChar(index);
            if (segment.trim()) {
                characters.push([segment, x, y + height / 2, width]);
            }
        }
    }
    return characters;
});
document.body.textContent = "measured:" + encodeURIComponent(JSON.stringify(measured)) + ":";
"#;
const PLACE_TOLERANCE_PX: f64 = 1.0;
const STRETCH_TOLERANCE: f64 = 0.05;

/// A character as the browser draws it: the character, its left edge, its vertical middle, its width.
#[derive(Debug, serde::Deserialize)]
pub struct Placed(String, f64, f64, f64);

/// The characters of each picture.
pub async fn measure(directory: &Path, pictures: &[String]) -> Vec<Vec<Placed>> {
    let page = directory.join("pictures.html");
    let body = pictures.concat();
    std::fs::write(&page, format!("<!doctype html><meta charset=utf-8><body>{body}<script>{SCRIPT}</script>")).unwrap();
    let mut browser = Command::new(PROGRAM);
    browser.args(FLAGS).arg(format!("--user-data-dir={}", directory.join("profile").display())).arg(&page);
    let output = within("the browser", browser.env("HOME", directory).kill_on_drop(true).output()).await.unwrap();
    let page = String::from_utf8_lossy(&output.stdout);
    let Some(measured) = page.split("measured:").nth(1).and_then(|rest| rest.split(':').next()) else {
        panic!("the browser measured nothing: {page}{}", String::from_utf8_lossy(&output.stderr));
    };
    let json = percent_encoding::percent_decode_str(measured).decode_utf8().unwrap();
    serde_json::from_str(&json).unwrap()
}

/// The screen as it is read from the picture, or what is not in its place. In another font (`is_own_font` is false) the
/// characters have other widths, but the same places.
pub fn screen(characters: &[Placed], is_own_font: bool) -> Result<String, String> {
    let mut cells: BTreeMap<(usize, usize), &str> = BTreeMap::new();
    for placed in characters {
        let Placed(character, left, middle, width) = placed;
        let column = ((left - f64::from(MARGIN)) / CELL_WIDTH).round();
        let is_off = (left - f64::from(MARGIN) - column * CELL_WIDTH).abs() > PLACE_TOLERANCE_PX;
        let wanted = CELL_WIDTH * f64::from(u32::try_from(character.width()).unwrap());
        let is_stretched = is_own_font && (width / wanted - 1.0).abs() > STRETCH_TOLERANCE;
        let row = (middle - f64::from(BAR_HEIGHT + MARGIN)) / f64::from(CELL_HEIGHT);
        let place = (whole(row.floor()), whole(column));
        if is_off || is_stretched || cells.insert(place, character).is_some() {
            return Err(format!("not in its own cell, or stretched: {placed:?}, in row and column {place:?}"));
        }
    }
    let mut lines = vec![String::new(); cells.keys().last().map_or(0, |(row, _)| row + 1)];
    for ((row, column), character) in cells {
        let line = &mut lines[row];
        let blanks = column.saturating_sub(line.width());
        line.push_str(&" ".repeat(blanks));
        line.push_str(character);
    }
    Ok(lines.join("\n"))
}

/// A count that was measured, and is a count if the picture is right.
fn whole(figure: f64) -> usize {
    format!("{figure:.0}").parse().unwrap_or(usize::MAX / 2)
}
