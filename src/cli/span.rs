//! A time as people name it on the command line.

use std::time::Duration;

use crate::config;
use crate::model::Timestamp;

/// A time, or how long ago it was.
pub fn since(text: &str) -> Result<Timestamp, String> {
    if let Some(ago) = config::duration(text) {
        let millis = i64::try_from(ago.as_millis()).map_err(|_| "is too long ago".to_owned())?;
        return Ok(Timestamp::from_millis(Timestamp::now().as_millis() - millis));
    }
    // A day is a time as well: its beginning.
    let day = format!("{text}T00:00:00Z");
    text.parse()
        .or_else(|_| day.parse())
        .map_err(|_| "write a time (2026-01-31T12:00:00Z or 2026-01-31) or a duration (7d, 2h)".to_owned())
}

/// As [`since`], but a day is its end.
pub fn until(text: &str) -> Result<Timestamp, String> {
    since(&format!("{text}T23:59:59.999Z")).or_else(|_| since(text))
}

/// How long something may take.
pub fn timeout(text: &str) -> Result<Duration, String> {
    let timeout = config::duration(text).filter(|timeout| !timeout.is_zero());
    timeout.ok_or_else(|| "is not a duration above zero, such as 90s, 10m or 2h".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_one_or_how_long_ago_it_was() {
        assert_eq!(since("2026-01-31T12:00:00Z").unwrap().to_string(), "2026-01-31T12:00:00.000Z");
        assert_eq!(since("2026-01-31").unwrap().to_string(), "2026-01-31T00:00:00.000Z");
        assert_eq!(until("2026-01-31").unwrap().to_string(), "2026-01-31T23:59:59.999Z");
        let day = 24 * 60 * 60 * 1000;
        let week = since("7d").unwrap();
        let ago = Timestamp::now().as_millis() - week.as_millis();
        assert!((7 * day..7 * day + 60_000).contains(&ago), "{ago}");
        assert!(since("soon").is_err());
    }
}
