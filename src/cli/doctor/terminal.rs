//! What this terminal can show.

use crate::cli::findings::{Finding, is_utf8};
use crate::cli::output::Output;
use crate::cli::style::is_dumb;

/// Narrower than this, tables lose what they are for.
const COLUMNS_MIN: usize = 60;

pub fn look(output: Output) -> Vec<Finding> {
    let mut found = Vec::new();
    if is_utf8() {
        found.push(Finding::ok("characters", "UTF-8"));
    } else {
        let hint = "set LANG to a UTF-8 locale, such as C.UTF-8";
        found.push(Finding::warning("characters", "the locale is not UTF-8", hint));
    }
    let Some(width) = output.width() else {
        found.push(Finding::note("colours", "off: the output is not a terminal", ""));
        return found;
    };
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    found.push(match (refused, is_dumb()) {
        (true, _) => Finding::note("colours", "off (NO_COLOR)", ""),
        (false, true) => Finding::note("colours", "off (TERM is unset or dumb)", ""),
        (false, false) => Finding::ok("colours", "on"),
    });
    if width < COLUMNS_MIN {
        let message = format!("{width} columns");
        found.push(Finding::warning(
            "width",
            message,
            format!("use {COLUMNS_MIN} columns or more to see whole tables"),
        ));
    }
    found
}
