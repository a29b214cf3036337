//! What the processes of all sessions use, from one look at `/proc`.
//!
//! Memory is summed over all that runs below a shim, so what processes share counts once for each. Time is that of the ones
//! that run and of those that were waited for; a process that nobody waited for takes its time with it.

use std::collections::HashMap;
use std::fs;
use std::time::Duration;

use rustix::param::{clock_ticks_per_second, page_size};

use super::procfs;
use crate::model::Timestamp;

/// Generations below a shim that are looked at. Deeper ones are nobody's who works.
const DEPTH_MAX: usize = 512;

/// What a group of processes uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    pub processes: usize,
    pub resident_bytes: u64,
    pub cpu: Duration,
    /// When the eldest of their shims started.
    pub started_at: Option<Timestamp>,
}

impl Figures {
    pub fn cpu_millis(&self) -> u64 {
        u64::try_from(self.cpu.as_millis()).unwrap_or(u64::MAX)
    }
}

/// Everybody who runs, as one look found them.
#[derive(Debug)]
pub struct Census {
    people: HashMap<i32, Person>,
    children: HashMap<i32, Vec<i32>>,
    /// When the machine was started.
    booted_at: Option<Timestamp>,
}

/// What counts of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Person {
    parent: i32,
    /// It has ended, and waits for its parent to see that.
    is_zombie: bool,
    /// In clock ticks: its own, and that of the children it has waited for.
    own_ticks: u64,
    waited_ticks: u64,
    /// In clock ticks since the boot.
    started: u64,
    resident_pages: u64,
}

impl Census {
    /// Looks at every process there is. Blocks; not for the threads of the runtime.
    pub fn take() -> Self {
        let found = procfs::processes().into_iter().filter_map(|pid| {
            let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            Some((pid, person(&text)?))
        });
        let people: HashMap<i32, Person> = found.collect();
        let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
        for (pid, person) in &people {
            children.entry(person.parent).or_default().push(*pid);
        }
        Self { people, children, booted_at: booted_at() }
    }

    /// What runs below these shims. One that is no child of this process any more is not counted: its number may be
    /// somebody else's.
    pub fn below(&self, shims: &[i32]) -> Figures {
        let mut sum = Figures::default();
        let own = std::process::id().cast_signed();
        for shim in shims {
            let Some(person) = self.people.get(shim).filter(|person| person.parent == own) else { continue };
            let started_at = self.started_at(person);
            sum.started_at = sum.started_at.into_iter().chain(started_at).min();
            sum.cpu += time(person.waited_ticks);
            self.add_children(*shim, DEPTH_MAX, &mut sum);
        }
        sum
    }

    /// What this process itself uses, without its children.
    pub fn own(&self) -> Figures {
        let Some(person) = self.people.get(&std::process::id().cast_signed()) else { return Figures::default() };
        Figures {
            processes: 1,
            resident_bytes: resident_bytes(person),
            cpu: time(person.own_ticks),
            started_at: self.started_at(person),
        }
    }

    fn add_children(&self, of: i32, depth: usize, sum: &mut Figures) {
        let mut generation = vec![of];
        for _ in 0..depth {
            let next = generation.iter().filter_map(|pid| self.children.get(pid)).flatten();
            generation = next.copied().collect();
            for person in generation.iter().filter_map(|pid| self.people.get(pid)) {
                sum.processes += usize::from(!person.is_zombie);
                sum.resident_bytes += resident_bytes(person);
                sum.cpu += time(person.own_ticks + person.waited_ticks);
            }
            if generation.is_empty() {
                return;
            }
        }
    }

    fn started_at(&self, person: &Person) -> Option<Timestamp> {
        self.booted_at?.after(time(person.started))
    }
}

fn person(stat: &str) -> Option<Person> {
    // The program's name, in parentheses, may itself hold parentheses and spaces; the state follows the last one, as the
    // third field of the line.
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let number = |field: usize| fields.get(field - 3)?.parse::<i64>().ok().map(|number| number.try_into().unwrap_or(0));
    Some(Person {
        parent: fields.get(1)?.parse().ok()?,
        is_zombie: matches!(*fields.first()?, "Z" | "X"),
        own_ticks: number(14)? + number(15)?,
        waited_ticks: number(16)? + number(17)?,
        started: number(22)?,
        resident_pages: number(24)?,
    })
}

fn resident_bytes(person: &Person) -> u64 {
    person.resident_pages * page_size() as u64
}

fn time(ticks: u64) -> Duration {
    Duration::from_millis(ticks.saturating_mul(1000) / clock_ticks_per_second().max(1))
}

fn booted_at() -> Option<Timestamp> {
    let text = fs::read_to_string("/proc/uptime").ok()?;
    let uptime = Duration::try_from_secs_f64(text.split_ascii_whitespace().next()?.parse().ok()?).ok()?;
    let millis = i64::try_from(uptime.as_millis()).ok()?;
    Some(Timestamp::from_millis(Timestamp::now().as_millis() - millis))
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn the_fields_of_a_program_with_any_name_are_found() {
        let stat = "42 (a) b (c) S 7 42 42 0 -1 4194560 1 0 0 0 7 5 30 4 20 0 3 0 100 4096 2 99";
        let expected =
            Person { parent: 7, is_zombie: false, own_ticks: 12, waited_ticks: 34, started: 100, resident_pages: 2 };
        assert_eq!(person(stat), Some(expected));
        assert_eq!(person("42 (cut"), None);
    }

    #[test]
    fn all_below_a_child_is_counted_and_nobody_elses() {
        let mut command = Command::new("sh");
        let mut child = command.args(["-c", "cat; true"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let id = i32::try_from(child.id()).unwrap();
        let mut census = Census::take();
        // The kernel counts a new process's memory in steps, so it is 0 for a moment.
        while census.below(&[id]).resident_bytes == 0 {
            census = Census::take();
        }
        let figures = census.below(&[id]);
        assert!(figures.resident_bytes > 0 && figures.started_at.is_some(), "{figures:?}");
        // Not a child of this process, and one that is not there.
        assert_eq!(census.below(&[1, -1]), Figures::default());
        let own = census.own();
        assert!(own.resident_bytes > 1 << 20 && own.started_at <= Some(Timestamp::now()), "{own:?}");
        drop(child.stdin.take());
        child.wait().unwrap();
    }
}
