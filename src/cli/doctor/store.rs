//! How the record is: whether it can be written, how large it is, and whether there is space.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::time::SystemTime;

use super::Patient;
use crate::cli::findings::Finding;
use crate::cli::text::{age, byte_count};
use crate::config::{ByteSize, Config};
use crate::control::wire::StoreReport;
use crate::model::Timestamp;
use crate::store::{Peek, peek};

/// With less than so many times of what must be free, it is time to say so.
const SPACE_FACTOR: u64 = 16;
/// A write-ahead log that is so many times as large as it should become is not being written back.
const JOURNAL_FACTOR: u64 = 8;

pub fn look(patient: &Patient<'_>) -> Vec<Finding> {
    if patient.is_guest() {
        return vec![Finding::note("record", "is the daemon's, and told to its user", "")];
    }
    let defaults = Config::default();
    let config = patient.config.as_ref().unwrap_or(&defaults);
    let mut found = Vec::new();
    if let Some(store) = patient.info().and_then(|info| info.store.as_ref()) {
        found.push(check(store));
    }
    if patient.info().is_none() {
        found.extend(unopened(&patient.state_dir.join("acpd.db")));
    }
    found.push(size(patient, config));
    found.extend(space(&patient.state_dir, config.store.free_min));
    found.extend(copies(&patient.state_dir.join("backups")));
    found
}

fn check(store: &StoreReport) -> Finding {
    let problem = store.problem.clone().unwrap_or_default();
    match store.check.as_str() {
        "damaged" => Finding::problem(
            "check",
            format!("the database is damaged: {problem}"),
            "stop the daemon and go back to a copy; docs/operations.md tells how",
        ),
        "failed" => {
            Finding::warning("check", format!("the check could not be made: {problem}"), "see the daemon's log")
        }
        _ if !store.writable => {
            Finding::problem("check", "the last commit failed", "see the daemon's log, and the space below")
        }
        "running" => Finding::ok("check", "is being made, after an end that was none"),
        "ok" => Finding::ok("check", "nothing wrong was found"),
        _ => Finding::ok("check", "the last daemon closed it"),
    }
}

/// What the next daemon will find, while none has it open.
fn unopened(database: &Path) -> Option<Finding> {
    let shown = database.display();
    let looked = match peek(database) {
        Ok(looked) => looked,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return None,
        Err(error) => {
            let hint = format!("it has to be a file of the daemon's user; `ls -l {shown}` tells whose it is");
            return Some(Finding::problem("check", format!("{shown} cannot be read: {error}"), hint));
        }
    };
    let copy = "go back to a copy, or move it away to begin anew; docs/operations.md tells how";
    Some(match looked {
        Peek::Empty => Finding::ok("check", "the database is empty, and filled by the next daemon"),
        Peek::Schema(schema) => Finding::ok("check", format!("a database, schema {schema}")),
        Peek::NoDatabase => {
            Finding::problem("check", format!("{shown} is no database: no daemon starts with it"), copy)
        }
        Peek::Unreadable(problem) => {
            Finding::problem("check", format!("{shown} is damaged: no daemon starts with it ({problem})"), copy)
        }
        Peek::TooNew { schema, known } => Finding::problem(
            "check",
            format!("the database has schema {schema}, and this program knows no more than {known}"),
            "use the newer acpd that has made it; docs/operations.md tells the way back",
        ),
    })
}

fn size(patient: &Patient<'_>, config: &Config) -> Finding {
    let length = |name: &str| fs::metadata(patient.state_dir.join(name)).ok().map(|metadata| metadata.len());
    let Some(database) = length("acpd.db") else {
        return Finding::note("database", format!("there is none yet in {}", patient.state_dir.display()), "");
    };
    let journal = length("acpd.db-wal").unwrap_or(0);
    let schema = patient.info().and_then(|info| info.versions.as_ref());
    let schema = schema.map(|versions| format!(", schema {}", versions.store_schema)).unwrap_or_default();
    let message = format!("{}, write-ahead log {}{schema}", shown(database), shown(journal));
    if journal > JOURNAL_FACTOR * bytes(config.store.journal_max) {
        let hint = "something reads for very long and keeps it; a restart of the daemon writes it back";
        return Finding::warning("database", message, hint);
    }
    Finding::ok("database", message)
}

fn space(state_dir: &Path, free_min: ByteSize) -> Option<Finding> {
    // The directory may not be there yet; its file system is that of the nearest one that is.
    let there = state_dir.ancestors().find(|directory| directory.exists())?;
    let system = rustix::fs::statvfs(there).ok()?;
    let (free, all) =
        (system.f_bavail.saturating_mul(system.f_frsize), system.f_blocks.saturating_mul(system.f_frsize));
    let message = format!("{} free of {} at {}", shown(free), shown(all), there.display());
    let wanted = bytes(free_min);
    let hint = format!("make room there; `acpd gc` gives back what has expired (store.free_min is {free_min})");
    Some(if free < wanted {
        Finding::problem("space", format!("{message}: too little for new work"), hint)
    } else if free < wanted.saturating_mul(SPACE_FACTOR) {
        Finding::warning("space", message, hint)
    } else {
        Finding::ok("space", message)
    })
}

/// Copies that were made before migrations. What `acpd backup` has made is wherever somebody wanted it.
fn copies(directory: &Path) -> Option<Finding> {
    let times = fs::read_dir(directory).ok()?.filter_map(|entry| entry.ok()?.metadata().ok()?.modified().ok());
    let times: Vec<SystemTime> = times.collect();
    let newest = times.iter().max()?.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    let newest = Timestamp::from_millis(i64::try_from(newest.as_millis()).ok()?);
    let ago = age(newest, Timestamp::now());
    Some(Finding::ok("copies", format!("{} from before migrations, the newest {ago} old", times.len())))
}

/// Disks are larger than what people send.
fn shown(bytes: u64) -> String {
    const GIB: u64 = 1 << 30;
    match bytes {
        GIB.. => format!("{}.{} GiB", bytes / GIB, bytes % GIB * 10 / GIB),
        _ => byte_count(usize::try_from(bytes).unwrap_or(usize::MAX)),
    }
}

fn bytes(size: ByteSize) -> u64 {
    u64::try_from(size.0).unwrap_or(u64::MAX)
}
