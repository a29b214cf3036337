//! How a TOML value becomes a typed one: durations `"30m"`, sizes `"32MiB"`, and plain numbers, texts and lists.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use toml::Value;

use super::{CgroupMode, LogLevel};
use crate::model::profile::Temperature;
use crate::model::{Adapter, Amount, OnExceed, PermissionMode, Secret};

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub usize);

impl ByteSize {
    pub const fn kib(count: usize) -> Self {
        Self(count << 10)
    }

    pub const fn mib(count: usize) -> Self {
        Self(count << 20)
    }

    /// This part of the machine's memory, in whole MiB.
    pub fn of_machine(percent: u32) -> Self {
        let machine = rustix::system::sysinfo();
        let bytes = u128::from(machine.totalram) * u128::from(machine.mem_unit) * u128::from(percent) / 100;
        Self::mib(usize::try_from(bytes >> 20).unwrap_or(usize::MAX >> 20))
    }

    fn parse(text: &str) -> Option<Self> {
        let digits = text.find(|character: char| !character.is_ascii_digit())?;
        let (count, unit) = text.split_at(digits);
        let factor: usize = match unit {
            "B" => 1,
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            "GiB" => 1 << 30,
            _ => return None,
        };
        count.parse::<usize>().ok()?.checked_mul(factor).map(Self)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bytes if bytes >= 1 << 20 && bytes.is_multiple_of(1 << 20) => write!(formatter, "{}MiB", bytes >> 20),
            bytes if bytes >= 1 << 10 && bytes.is_multiple_of(1 << 10) => write!(formatter, "{}KiB", bytes >> 10),
            bytes => write!(formatter, "{bytes}B"),
        }
    }
}

/// A type that a configuration key can have.
pub trait FromValue: Sized {
    /// What to write instead, for the hint.
    const EXPECTED: &'static str;
    /// Whether a wrong value must not be shown: problems go to the log and to clients.
    const IS_SECRET: bool = false;

    fn from_value(value: Value) -> Option<Self>;
}

impl FromValue for bool {
    const EXPECTED: &'static str = "write true or false";

    fn from_value(value: Value) -> Option<Self> {
        value.as_bool()
    }
}

impl FromValue for usize {
    const EXPECTED: &'static str = "write a whole number of at least 1, without quotes";

    fn from_value(value: Value) -> Option<Self> {
        value.as_integer().and_then(|number| number.try_into().ok()).filter(|number| *number > 0)
    }
}

impl FromValue for u32 {
    const EXPECTED: &'static str = usize::EXPECTED;

    fn from_value(value: Value) -> Option<Self> {
        usize::from_value(value)?.try_into().ok()
    }
}

impl FromValue for String {
    const EXPECTED: &'static str = "write a string in quotes";

    fn from_value(value: Value) -> Option<Self> {
        match value {
            Value::String(text) => Some(text),
            _ => None,
        }
    }
}

impl FromValue for Vec<String> {
    const EXPECTED: &'static str = "write a list of strings, such as [\"a\", \"b\"]";

    fn from_value(value: Value) -> Option<Self> {
        match value {
            Value::Array(items) => items.into_iter().map(String::from_value).collect(),
            _ => None,
        }
    }
}

impl FromValue for Vec<PathBuf> {
    const EXPECTED: &'static str = "write a list of paths that are absolute or start with ~, such as [\"~/src\"]";

    fn from_value(value: Value) -> Option<Self> {
        let paths: Vec<PathBuf> = Vec::<String>::from_value(value)?.into_iter().map(PathBuf::from).collect();
        let is_whole = |path: &PathBuf| path.is_absolute() || path.starts_with("~");
        paths.iter().all(is_whole).then_some(paths)
    }
}

/// One text, or a list of them.
pub struct OneOrMore(pub Vec<String>);

impl FromValue for OneOrMore {
    const EXPECTED: &'static str = "write a string in quotes, or a list of strings";

    fn from_value(value: Value) -> Option<Self> {
        match value {
            Value::String(text) => Some(Self(vec![text])),
            list => Vec::from_value(list).map(Self),
        }
    }
}

impl FromValue for BTreeMap<String, Secret> {
    const EXPECTED: &'static str = BTreeMap::<String, String>::EXPECTED;
    /// An agent's environment has its keys.
    const IS_SECRET: bool = true;

    fn from_value(value: Value) -> Option<Self> {
        let texts = BTreeMap::<String, String>::from_value(value)?;
        Some(texts.into_iter().map(|(name, value)| (name, Secret::from(value))).collect())
    }
}

impl FromValue for BTreeMap<String, String> {
    const EXPECTED: &'static str = "write a table of strings, such as { NAME = \"value\" }";
    /// Somebody may write a key where its name belongs.
    const IS_SECRET: bool = true;

    fn from_value(value: Value) -> Option<Self> {
        match value {
            Value::Table(entries) => {
                entries.into_iter().map(|(name, value)| Some((name, String::from_value(value)?))).collect()
            }
            _ => None,
        }
    }
}

impl FromValue for Duration {
    const EXPECTED: &'static str = "write a duration above zero, such as \"500ms\", \"30s\", \"30m\", \"2h\" or \"7d\"";

    fn from_value(value: Value) -> Option<Self> {
        duration(value.as_str()?).filter(|duration| !duration.is_zero())
    }
}

/// `0` stands for none.
impl FromValue for Option<Duration> {
    const EXPECTED: &'static str = "write a duration such as \"30s\", \"30m\" or \"7d\", or 0 for none";

    fn from_value(value: Value) -> Option<Self> {
        if is_zero(&value) {
            return Some(None);
        }
        duration(value.as_str()?).map(|duration| Some(duration).filter(|duration| !duration.is_zero()))
    }
}

impl FromValue for Option<ByteSize> {
    const EXPECTED: &'static str = "write a size such as \"512MiB\" or \"4GiB\", or 0 for none";

    fn from_value(value: Value) -> Option<Self> {
        if is_zero(&value) { Some(None) } else { ByteSize::from_value(value).map(Some) }
    }
}

/// Also a part of the machine's memory.
pub struct MemoryMax(pub Option<ByteSize>);

impl FromValue for MemoryMax {
    const EXPECTED: &'static str =
        "write a size such as \"4GiB\", a part of the machine's memory such as \"75%\", or 0 for none";

    fn from_value(value: Value) -> Option<Self> {
        let Some(percent) = value.as_str().and_then(|text| text.strip_suffix('%')) else {
            return Option::from_value(value).map(Self);
        };
        let percent = percent.parse().ok().filter(|percent| (1..=100).contains(percent))?;
        Some(Self(Some(ByteSize::of_machine(percent))))
    }
}

impl FromValue for Option<u32> {
    const EXPECTED: &'static str = "write a whole number, or 0 for none";

    fn from_value(value: Value) -> Option<Self> {
        if is_zero(&value) { Some(None) } else { u32::from_value(value).map(Some) }
    }
}

/// An empty one stands for none.
impl FromValue for Option<String> {
    const EXPECTED: &'static str = "write a string in quotes, or \"\" for none";

    fn from_value(value: Value) -> Option<Self> {
        String::from_value(value).map(|text| Some(text).filter(|text| !text.is_empty()))
    }
}

impl FromValue for Option<Amount> {
    const EXPECTED: &'static str = "write a number such as 2.5 with at most nine decimal places, or 0 for none";

    fn from_value(value: Value) -> Option<Self> {
        let number = value
            .as_float()
            .or_else(|| value.as_integer().and_then(|number| u32::try_from(number).ok()).map(f64::from));
        Amount::written(number?).map(|amount| Some(amount).filter(|amount| !amount.is_zero()))
    }
}

impl FromValue for Option<Temperature> {
    const EXPECTED: &'static str = "write a number from 0 to 2, or \"\" for none";

    fn from_value(value: Value) -> Option<Self> {
        match value {
            Value::String(text) if text.is_empty() => Some(None),
            Value::Float(number) => Temperature::new(number).map(Some),
            Value::Integer(number) => Temperature::new(f64::from(i32::try_from(number).ok()?)).map(Some),
            _ => None,
        }
    }
}

impl FromValue for OnExceed {
    const EXPECTED: &'static str = "write \"fail\" or \"pause\"";

    fn from_value(value: Value) -> Option<Self> {
        value.as_str()?.parse().ok()
    }
}

fn is_zero(value: &Value) -> bool {
    value.as_integer() == Some(0)
}

/// Days are not in the library's units, because a day may have 23 hours; here it has 24.
/// `"500ms"`, `"30m"`, `"7d"`.
pub fn duration(text: &str) -> Option<Duration> {
    const DAY: Duration = Duration::from_hours(24);
    // Clocks can be added to this without overflowing, and nobody waits longer.
    const LONGEST: Duration = Duration::from_hours(24 * 365 * 100);
    let duration = match text.strip_suffix('d') {
        Some(days) => DAY.checked_mul(days.parse().ok()?)?,
        None => Duration::try_from(text.parse::<jiff::SignedDuration>().ok()?).ok()?,
    };
    (duration <= LONGEST).then_some(duration)
}

impl FromValue for ByteSize {
    const EXPECTED: &'static str = "write a size above zero, such as \"64KiB\" or \"32MiB\"";

    fn from_value(value: Value) -> Option<Self> {
        Self::parse(value.as_str()?).filter(|size| size.0 > 0)
    }
}

impl FromValue for PermissionMode {
    const EXPECTED: &'static str = "write \"ask\", \"read-only\", \"edit\", \"allow\" or \"deny\"";

    fn from_value(value: Value) -> Option<Self> {
        value.as_str()?.parse().ok()
    }
}

/// An empty one stands for none.
impl FromValue for Option<PermissionMode> {
    const EXPECTED: &'static str =
        "write \"ask\", \"read-only\", \"edit\", \"allow\" or \"deny\", or \"\" for the default";

    fn from_value(value: Value) -> Option<Self> {
        if value.as_str() == Some("") { Some(None) } else { PermissionMode::from_value(value).map(Some) }
    }
}

impl FromValue for Adapter {
    const EXPECTED: &'static str = "write \"generic\", \"gemini\", \"claude\", \"codex\", \"opencode\" or \"qwen\"";

    fn from_value(value: Value) -> Option<Self> {
        value.as_str()?.parse().ok()
    }
}

impl FromValue for CgroupMode {
    const EXPECTED: &'static str = "write \"auto\" or \"off\"";

    fn from_value(value: Value) -> Option<Self> {
        match value.as_str()? {
            "auto" => Some(Self::Auto),
            "off" => Some(Self::Off),
            _ => None,
        }
    }
}

impl FromValue for LogLevel {
    const EXPECTED: &'static str = "write \"error\", \"warn\", \"info\", \"debug\" or \"trace\"";

    fn from_value(value: Value) -> Option<Self> {
        match value.as_str()? {
            "error" => Some(Self::Error),
            "warn" => Some(Self::Warn),
            "info" => Some(Self::Info),
            "debug" => Some(Self::Debug),
            "trace" => Some(Self::Trace),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_back_what_they_print() {
        for size in [ByteSize(1), ByteSize::kib(8), ByteSize::mib(32), ByteSize(1500)] {
            assert_eq!(ByteSize::parse(&size.to_string()), Some(size));
        }
        for bad in ["", "32", "MiB", "32 MiB", "32MB", "-1KiB", "99999999999999999999GiB"] {
            assert_eq!(ByteSize::parse(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_limit_of_memory_is_a_size_or_a_part_of_the_machines_memory() {
        let read = |text: &str| MemoryMax::from_value(Value::String(text.to_owned())).map(|limit| limit.0);
        assert_eq!(read("64MiB"), Some(Some(ByteSize::mib(64))));
        assert_eq!(read("50%"), Some(Some(ByteSize::of_machine(50))));
        assert!(["0%", "101%", "%", "1.5%", "50 %"].into_iter().all(|bad| read(bad).is_none()));
    }

    #[test]
    fn an_amount_that_is_too_small_to_count_is_not_no_limit() {
        let read = |number: f64| Option::<Amount>::from_value(Value::Float(number));
        assert_eq!(read(1e-12), None);
        assert_eq!(read(0.0), Some(None));
        assert_eq!(read(1e-9), Some(Amount::new(1e-9)));
    }

    #[test]
    fn durations_are_positive_and_have_units() {
        let read = |text: &str| Duration::from_value(Value::String(text.to_owned()));
        assert_eq!(read("500ms"), Some(Duration::from_millis(500)));
        assert_eq!(read("30m"), Some(Duration::from_mins(30)));
        assert_eq!(read("7d"), Some(Duration::from_hours(7 * 24)));
        let optional = Option::<Duration>::from_value;
        assert_eq!(optional(Value::Integer(0)), Some(None));
        assert_eq!(optional(Value::String("0m".to_owned())), Some(None));
        assert_eq!(optional(Value::Integer(5)), None, "a number without a unit could mean anything");
        for bad in ["0s", "-5s", "30", "soon", "-1d", "36501d", "999999999999h"] {
            assert_eq!(read(bad), None, "{bad:?}");
        }
    }
}
