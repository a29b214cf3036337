//! The table, in Markdown, so that it can be pasted into docs/performance.md.

use std::time::Duration;

use crate::statistics::Samples;

const HEADER: [&str; 6] = ["what", "bare pipe", "acpd", "ratio or difference", "target", "met"];

/// One line of the table. What does not apply is empty.
#[derive(Clone, Debug, Default)]
pub struct Row {
    pub what: String,
    pub bare: String,
    pub acpd: String,
    pub compared: String,
    pub target: String,
    pub met: Option<bool>,
}

impl Row {
    /// A value that acpd alone has.
    pub fn lone(what: impl Into<String>, acpd: impl Into<String>) -> Self {
        Self { what: what.into(), acpd: acpd.into(), ..Self::default() }
    }

    /// Two times and how much longer the second one is.
    pub fn difference(what: impl Into<String>, bare: Duration, acpd: Duration) -> Self {
        Self {
            what: what.into(),
            bare: short(bare),
            acpd: short(acpd),
            compared: format!("{:+.2} ms", milliseconds(acpd) - milliseconds(bare)),
            ..Self::default()
        }
    }

    /// Two times and how many times as long the second one is, each the median of its samples.
    pub fn ratio(what: impl Into<String>, bare: &Samples, acpd: &Samples) -> Self {
        let (bare, acpd) = (bare.median(), acpd.median());
        Self {
            what: what.into(),
            bare: long(bare),
            acpd: long(acpd),
            compared: format!("{:.2}×", ratio(bare, acpd)),
            ..Self::default()
        }
    }

    #[must_use]
    pub fn target(mut self, target: impl Into<String>, met: bool) -> Self {
        self.target = target.into();
        self.met = Some(met);
        self
    }
}

pub fn ratio(bare: Duration, acpd: Duration) -> f64 {
    acpd.as_secs_f64() / bare.as_secs_f64()
}

/// For what takes milliseconds.
pub fn short(duration: Duration) -> String {
    format!("{:.2} ms", milliseconds(duration))
}

/// For what takes longer.
pub fn long(duration: Duration) -> String {
    format!("{:.0} ms", milliseconds(duration))
}

pub fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

/// Mebibytes with one digit.
pub fn mebibytes(bytes: u64) -> String {
    let tenths = (bytes * 10 + (1 << 19)) >> 20;
    format!("{}.{} MiB", tenths / 10, tenths % 10)
}

/// With a comma between thousands.
pub fn thousands(number: usize) -> String {
    if number < 1000 { number.to_string() } else { format!("{},{:03}", thousands(number / 1000), number % 1000) }
}

pub fn print(rows: &[Row]) {
    println!("| {} |", HEADER.join(" | "));
    println!("|---|---:|---:|---:|---:|---|");
    for Row { what, bare, acpd, compared, target, met } in rows {
        let met = match met {
            Some(true) => "yes",
            Some(false) => "**no**",
            None => "",
        };
        println!("| {what} | {bare} | {acpd} | {compared} | {target} | {met} |");
    }
}
