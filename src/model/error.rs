//! How an error is told to people: with everything that caused it, in one line.

use std::error::Error;

/// `outermost: cause: its cause`.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        // Some libraries repeat their cause in their own text.
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}
