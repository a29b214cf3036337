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
use crate::store::{DAMAGED_HINT, Peek, peek};

/// With less than so many times of what must be free, it is time to say so.
const SPACE_FACTOR: u64 = 16;
/// A write-ahead log that is so many times as large as it should become is not being written back.
const JOURNAL_FACTOR: u64 = 8;

pub fn look(patient: &Patient<'_>) -> Vec<Finding> {
    if patient.is_guest() {
        return vec![Finding::note("store", "not checked: it belongs to the daemon's user", "")];
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
        "damaged" => Finding::problem("check", format!("the database is damaged: {problem}"), DAMAGED_HINT),
        "failed" => Finding::warning("check", format!("the check could not run: {problem}"), "read `acpd logs`"),
        _ if !store.writable => {
            Finding::problem("check", "the last commit failed", "read `acpd logs`, and check the free space below")
        }
        "running" => Finding::ok("check", "running, because the last daemon did not close the store"),
        "ok" => Finding::ok("check", "passed"),
        _ => Finding::ok("check", "closed cleanly by the last daemon"),
    }
}

/// What the next daemon will find, while none has it open.
fn unopened(database: &Path) -> Option<Finding> {
    let shown = database.display();
    let looked = match peek(database) {
        Ok(looked) => looked,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return None,
        Err(error) => {
            let hint = format!("it must be a file of the daemon's user; check the owner with `ls -l {shown}`");
            return Some(Finding::problem("check", format!("cannot read {shown}: {error}"), hint));
        }
    };
    Some(match looked {
        Peek::Empty => Finding::ok("check", "the database is empty; the next daemon creates its tables"),
        Peek::Schema(schema) => Finding::ok("check", format!("database with schema {schema}")),
        Peek::NoDatabase => {
            Finding::problem("check", format!("{shown} is not a database, so no daemon starts"), DAMAGED_HINT)
        }
        Peek::Unreadable(problem) => {
            Finding::problem("check", format!("{shown} is damaged, so no daemon starts ({problem})"), DAMAGED_HINT)
        }
        Peek::TooNew { schema, known } => Finding::problem(
            "check",
            format!("the database has schema {schema}, but this program supports at most {known}"),
            format!("use the newer acpd that created it, or run `acpd migrate --down {known}` with it"),
        ),
    })
}

fn size(patient: &Patient<'_>, config: &Config) -> Finding {
    let length = |name: &str| fs::metadata(patient.state_dir.join(name)).ok().map(|metadata| metadata.len());
    let Some(database) = length("acpd.db") else {
        return Finding::note("database", format!("none yet in {}", patient.state_dir.display()), "");
    };
    let journal = length("acpd.db-wal").unwrap_or(0);
    let schema = patient.info().and_then(|info| info.versions.as_ref());
    let schema = schema.map(|versions| format!(", schema {}", versions.store_schema)).unwrap_or_default();
    let message = format!("{}, write-ahead log {}{schema}", shown(database), shown(journal));
    if journal > JOURNAL_FACTOR * bytes(config.store.journal_max) {
        let hint = "a long read prevents the log from shrinking; restart the daemon to write it back";
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
    let hint = format!("free some space there; `acpd gc` deletes expired sessions (store.free_min is {free_min})");
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
    Some(Finding::ok("backups", format!("{} made before migrations, the newest {ago} ago", times.len())))
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
