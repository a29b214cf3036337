//! The daemon's own process, under the names that Prometheus has for it.

use std::fs;

use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, getrlimit};

/// What the kernel says of this process. What it does not say is not told.
#[derive(Debug, Default)]
pub struct Own {
    pub cpu_seconds: Option<f64>,
    pub resident_bytes: Option<u64>,
    pub virtual_bytes: Option<u64>,
    pub open_descriptors: Option<u64>,
    pub max_descriptors: Option<u64>,
    pub threads: Option<u64>,
}

impl Own {
    pub fn read() -> Self {
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let fields = Fields::of(&stat);
        let descriptors = fs::read_dir("/proc/self/fd").ok().map(Iterator::count);
        Self {
            cpu_seconds: fields.ticks().map(seconds),
            resident_bytes: fields.number(23).map(|pages| pages * page_size() as u64),
            virtual_bytes: fields.number(22),
            // The directory that is read is open itself.
            open_descriptors: descriptors.map(|count| count.saturating_sub(1) as u64),
            max_descriptors: getrlimit(Resource::Nofile).current,
            threads: fields.number(19),
        }
    }
}

/// The fields of `stat`, by their number in proc(5) less one.
struct Fields<'a>(Vec<&'a str>);

impl<'a> Fields<'a> {
    /// The name of the program, which comes second, may have anything in it but ends with the last parenthesis.
    fn of(stat: &'a str) -> Self {
        let after = stat.rsplit_once(')').map_or("", |(_, after)| after);
        Self(after.split_ascii_whitespace().collect())
    }

    fn number(&self, index: usize) -> Option<u64> {
        self.0.get(index.checked_sub(2)?)?.parse().ok()
    }

    /// In user and in system mode.
    fn ticks(&self) -> Option<u64> {
        Some(self.number(13)? + self.number(14)?)
    }
}

#[expect(clippy::cast_precision_loss, reason = "ticks of a process are far below what a float has no more room for")]
fn seconds(ticks: u64) -> f64 {
    ticks as f64 / clock_ticks_per_second() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_of_a_program_with_any_name_are_found() {
        let stat = "42 (a) b (c) S 1 42 42 0 -1 4194560 1 0 0 0 7 5 0 0 20 0 3 0 100 4096 2 99";
        let fields = Fields::of(stat);
        assert_eq!(
            (fields.ticks(), fields.number(19), fields.number(22), fields.number(23)),
            (Some(12), Some(3), Some(4096), Some(2))
        );
        assert_eq!(Fields::of("").ticks(), None);
    }

    #[test]
    fn this_process_is_told_of() {
        let Own { cpu_seconds, resident_bytes, open_descriptors, .. } = Own::read();
        assert!(cpu_seconds.is_some() && resident_bytes.is_some_and(|bytes| bytes > 1 << 20));
        assert!(open_descriptors.is_some_and(|count| count >= 3));
    }
}
