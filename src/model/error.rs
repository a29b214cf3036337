//! How an error is told to people: with everything that caused it, in one line.

use std::error::Error;

/// `outermost: cause: its cause`.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
