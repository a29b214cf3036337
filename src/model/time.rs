//! Times: UTC, to the millisecond. RFC 3339 for people and tools, milliseconds since the epoch in the store.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, utoipa::ToSchema)]
#[schema(value_type = String, format = DateTime)]
pub struct Timestamp(i64);

impl Timestamp {
    pub fn now() -> Self {
        Self(jiff::Timestamp::now().as_millisecond())
    }

    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// The time that much later; none when it is so late that it cannot be written.
    pub fn after(self, duration: Duration) -> Option<Self> {
        let later = self.0.checked_add(i64::try_from(duration.as_millis()).ok()?)?;
        jiff::Timestamp::from_millisecond(later).ok().map(|_| Self(later))
    }

    /// How long after `earlier` it is; nothing when it is before.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(time) => write!(formatter, "{time:.3}"),
            // Out of jiff's range of ±9999 years; no clock makes it, a damaged row might.
            Err(_) => write!(formatter, "{}ms", self.0),
        }
    }
}

impl FromStr for Timestamp {
    type Err = jiff::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse::<jiff::Timestamp>().map(|time| Self(time.as_millisecond()))
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rfc_3339_in_utc_with_milliseconds() {
        let time = Timestamp::from_millis(1_763_262_000_007);
        assert_eq!(time.to_string(), "2025-11-16T03:00:00.007Z");
        assert_eq!("2025-11-16T04:00:00.007+01:00".parse::<Timestamp>().unwrap(), time);
    }

    #[test]
    fn times_are_added_to_and_compared_within_their_range() {
        let time = Timestamp::from_millis(1_000);
        assert_eq!(time.after(Duration::from_secs(2)), Some(Timestamp::from_millis(3_000)));
        assert_eq!(time.after(Duration::MAX), None);
        assert_eq!(time.since(Timestamp::from_millis(400)), Duration::from_millis(600));
        assert_eq!(time.since(Timestamp::from_millis(4_000)), Duration::ZERO);
    }
}
