//! The home of an isolated agent: an overlay on the user's home. The agent reads the user's files; what it writes goes to a
//! directory of the session.
//!
//! The overlay is mounted in a user namespace, which needs no privilege, before bubblewrap is executed: bubblewrap 0.8 mounts
//! none. It is mounted beside the home, so that bubblewrap still reaches the real home, to which the workspace belongs.

use std::ffi::{CString, OsString};
use std::fs::{self, DirBuilder, File, Metadata};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{Gid, Uid, getegid, geteuid};
use rustix::fs::{CWD, Mode, OFlags, openat};

use super::stage::CANNOT_EXECUTE;

/// The first argument that makes this program mount the overlay and become another program.
pub const ARGUMENT: &str = "__home";

/// Below the session's layer: what the agent has written, the kernel's scratch directory, and the overlay.
const UPPER: &str = "upper";
const WORK: &str = "work";
const VIEW: &str = "view";
const PRIVATE: u32 = 0o700;
/// The unit of `st_blocks`.
const BLOCK_BYTES: u64 = 512;
/// What a file counts at the least.
const ENTRY_BYTES: u64 = 4096;

/// Entries of a home that are examined for foreign owners.
const ENTRIES_MAX: usize = 4096;
/// Directories in directories that are examined.
const DEPTH_MAX: usize = 2;
/// A larger foreign file cannot be written to.
const COPIED_BYTES_MAX: u64 = 1 << 20;

/// Where the agent sees its home, outside of bubblewrap.
pub fn view(layer: &Path) -> PathBuf {
    layer.join(VIEW)
}

/// The bytes on disk of what the agent has changed, or any number above `enough` of them. So many empty files take no longer to
/// count than the largest layer that is allowed.
pub fn size(layer: &Path, enough: u64) -> u64 {
    let (mut bytes, mut directories) = (0, vec![layer.join(UPPER)]);
    while let Some(directory) = directories.pop() {
        // The agent may have closed a directory to its user.
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let Ok(metadata) = entry.metadata() else { continue };
            bytes += (metadata.blocks() * BLOCK_BYTES).max(ENTRY_BYTES);
            if bytes > enough {
                return bytes;
            }
            if metadata.is_dir() {
                directories.push(entry.path());
            }
        }
    }
    bytes
}

/// The arguments for this program that mount the overlay; the program to become follows.
pub fn arguments(home: &Path, layer: &Path) -> [OsString; 3] {
    [ARGUMENT.into(), home.into(), layer.into()]
}

/// `__home HOME LAYER PROGRAM ARGUMENT…`
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut arguments = arguments.into_iter();
    let problem = match (arguments.next(), arguments.next()) {
        (Some(home), Some(layer)) => match mount_over(Path::new(&home), Path::new(&layer)) {
            Ok(()) => execute(arguments),
            Err(error) => format!("cannot mount an overlay on {}: {error}", Path::new(&home).display()),
        },
        _ => "only the shim can start this mode".to_owned(),
    };
    drop(writeln!(io::stderr(), "{problem}"));
    ExitCode::from(CANNOT_EXECUTE)
}

/// Returns only if it fails.
fn execute(command: impl Iterator<Item = OsString>) -> String {
    let command = command.map(|text| CString::new(text.into_vec())).collect::<Result<Vec<_>, _>>();
    match command.as_deref() {
        Ok([program, ..]) => match nix::unistd::execv(program, command.as_deref().unwrap_or_default()) {
            Ok(never) => match never {},
            Err(error) => format!("cannot execute {}: {error}", program.to_string_lossy()),
        },
        Ok([]) | Err(_) => "the program is missing".to_owned(),
    }
}

fn mount_over(home: &Path, layer: &Path) -> io::Result<()> {
    let (user, group) = (geteuid(), getegid());
    let start = openat(CWD, ".", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    make(&layer.join(WORK), PRIVATE)?;
    make(&layer.join(VIEW), PRIVATE)?;
    // Only a new layer: in another one, the agent may have left links.
    if make(&layer.join(UPPER), PRIVATE)? {
        adopt_foreign_files(home, &layer.join(UPPER), user, group);
    }
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS)?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    fs::write("/proc/self/gid_map", format!("{group} {group} 1"))?;
    // The options are separated by commas and colons, which paths may contain: none of these does.
    let lower = openat(CWD, home, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    std::env::set_current_dir(layer)?;
    let options = format!("userxattr,lowerdir=/proc/self/fd/{},upperdir={UPPER},workdir={WORK}", lower.as_raw_fd());
    let flags = MsFlags::MS_NODEV | MsFlags::MS_NOSUID;
    mount(Some("overlay"), VIEW, Some("overlay"), flags, Some(options.as_str()))?;
    Ok(rustix::process::fchdir(start)?)
}

/// Puts copies of files and directories of other users and groups into the layer, because the overlay cannot: it would have to
/// give the copy the same owner, who does not exist in the user namespace (EOVERFLOW). What is not copied stays readable.
fn adopt_foreign_files(home: &Path, upper: &Path, user: Uid, group: Gid) {
    let mut left = ENTRIES_MAX;
    let mut directories = vec![(PathBuf::new(), 0)];
    while let Some((directory, depth)) = directories.pop() {
        let Ok(entries) = fs::read_dir(home.join(&directory)) else { continue };
        for entry in entries.flatten().take(left) {
            left -= 1;
            let Ok(metadata) = entry.metadata() else { continue };
            let name = directory.join(entry.file_name());
            if metadata.is_dir() && depth + 1 < DEPTH_MAX {
                directories.push((name.clone(), depth + 1));
            }
            if metadata.uid() != user.as_raw() || metadata.gid() != group.as_raw() {
                // Files that the user may not read stay as they are.
                adopt(home, upper, &name, &metadata).ok();
            }
        }
    }
}

fn adopt(home: &Path, upper: &Path, name: &Path, metadata: &Metadata) -> io::Result<()> {
    let parents = name.ancestors().skip(1).filter(|parent| !parent.as_os_str().is_empty()).collect::<Vec<_>>();
    for parent in parents.into_iter().rev() {
        make(&upper.join(parent), home.join(parent).metadata()?.mode())?;
    }
    let copied = upper.join(name);
    if metadata.is_dir() {
        make(&copied, metadata.mode())?;
    } else if metadata.is_file() && metadata.len() <= COPIED_BYTES_MAX {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let mut source = File::from(openat(CWD, home.join(name), flags, Mode::empty())?);
        io::copy(&mut source, &mut File::create_new(&copied)?)?;
        fs::set_permissions(&copied, metadata.permissions())?;
    }
    Ok(())
}

/// Whether it is new.
fn make(directory: &Path, mode: u32) -> io::Result<bool> {
    match DirBuilder::new().mode(mode).create(directory) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}
