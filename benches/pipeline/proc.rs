//! What the kernel says of processes.

use std::fs;

use anyhow::Context;

/// Memory of a process, or of several.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memory {
    pub resident_bytes: u64,
    /// Each page divided by how many share it: what adds up over processes.
    pub proportional_bytes: u64,
}

impl Memory {
    pub fn of(pid: u32) -> anyhow::Result<Self> {
        let path = format!("/proc/{pid}/smaps_rollup");
        let text = fs::read_to_string(&path)
            .with_context(|| format!("cannot read {path}: only root can read the memory map of the daemon"))?;
        let kibibytes = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
            line.split_whitespace().next().and_then(|number| number.parse::<u64>().ok()).unwrap_or_default()
        };
        Ok(Self { resident_bytes: kibibytes("Rss:") << 10, proportional_bytes: kibibytes("Pss:") << 10 })
    }

    pub fn add(&mut self, other: Self) {
        self.resident_bytes += other.resident_bytes;
        self.proportional_bytes += other.proportional_bytes;
    }
}

/// The direct children of a process, whichever of its threads started them.
pub fn children(pid: u32) -> anyhow::Result<Vec<u32>> {
    let mut children = Vec::new();
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let text = fs::read_to_string(task?.path().join("children"))?;
        children.extend(text.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
    }
    Ok(children)
}
