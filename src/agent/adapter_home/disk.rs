//! Files in a directory where the agent has been before and may have left anything: nothing is followed there. Directories are
//! entered by descriptor, files are made anew under a name of their own and then renamed.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, RenameFlags, ResolveFlags, mkdirat, openat, openat2, renameat, renameat_with, unlinkat,
};
use rustix::io::Errno;

/// What a file is called until it is whole, with the number of the process that writes it: the user's directory is that of several
/// sessions.
pub const UNFINISHED: &str = ".acpd-unfinished";
/// As only its owner may see it.
pub const PRIVATE: Mode = Mode::RUSR.union(Mode::WUSR);

/// What is added to the name of what is set aside, with a number.
const ASIDE: &str = ".aside-";
const ASIDE_MAX: u32 = 1000;

const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// Not blocking: it may have become a pipe.
const READ: OFlags =
    OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// A directory that is nobody's to replace.
pub fn directory(path: &Path) -> io::Result<OwnedFd> {
    Ok(openat(CWD, path, DIRECTORY, Mode::empty())?)
}

/// A directory in another, if there is one by that name.
pub fn inside(parent: &OwnedFd, name: &OsStr) -> io::Result<OwnedFd> {
    Ok(openat(parent, name, DIRECTORY, Mode::empty())?)
}

/// A directory in another, made when it is not there.
pub fn enter(parent: &OwnedFd, name: &OsStr) -> io::Result<OwnedFd> {
    let make = || match mkdirat(parent, name, Mode::RWXU) {
        Err(Errno::EXIST) => Ok(()),
        made => made,
    };
    make()?;
    match openat(parent, name, DIRECTORY, Mode::empty()) {
        // The agent has put something else in its place, and has no use for it.
        Err(Errno::LOOP | Errno::NOTDIR) => {
            unlinkat(parent, name, AtFlags::empty())?;
            make()?;
            inside(parent, name)
        }
        opened => Ok(opened?),
    }
}

/// A file of the session's, for reading. What is no file is an error.
pub fn open(directory: &OwnedFd, name: &OsStr) -> io::Result<File> {
    let file = File::from(openat(directory, name, READ, Mode::empty())?);
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::ErrorKind::InvalidInput.into()) }
}

/// A file by its real path: where the agent works in the user's home, a link that it puts there meanwhile is not followed.
pub fn open_real(path: &Path) -> io::Result<File> {
    match openat2(CWD, path, READ, Mode::empty(), ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS) {
        // A kernel that is too old for this.
        Err(Errno::NOSYS) => Ok(File::from(openat(CWD, path, READ, Mode::empty())?)),
        opened => Ok(File::from(opened?)),
    }
}

/// A directory by its real path, as [`open_real`].
pub fn directory_real(path: &Path) -> io::Result<OwnedFd> {
    match openat2(CWD, path, DIRECTORY, Mode::empty(), ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS) {
        Err(Errno::NOSYS) => directory(path),
        opened => Ok(opened?),
    }
}

/// All of a file that is not larger than this.
pub fn read(file: File, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(bytes) }
}

/// Puts a file into a directory, whole or not at all, in place of what is there.
pub fn put(directory: &OwnedFd, name: &OsStr, mode: Mode, source: impl Read) -> io::Result<()> {
    replace(directory, name, mode, source, |_| Ok(()))
}

/// The same, also when the power fails: for what cannot be had again.
pub fn put_for_good(directory: &OwnedFd, name: &OsStr, mode: Mode, source: impl Read) -> io::Result<()> {
    replace(directory, name, mode, source, File::sync_all)
}

fn replace(
    directory: &OwnedFd,
    name: &OsStr,
    mode: Mode,
    mut source: impl Read,
    settle: impl Fn(&File) -> io::Result<()>,
) -> io::Result<()> {
    let unfinished = format!("{UNFINISHED}-{}", std::process::id());
    // What is there by this name is of a process that is no more.
    remove(directory, OsStr::new(&unfinished))?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(openat(directory, &unfinished, flags, mode)?);
    let written = io::copy(&mut source, &mut file).and_then(|_| settle(&file));
    let named = written.and_then(|()| match renameat(directory, &unfinished, directory, name) {
        // A directory has no use there, and would keep the agent from starting for ever.
        Err(Errno::ISDIR) => {
            set_aside(directory, name, directory)?;
            Ok(renameat(directory, &unfinished, directory, name)?)
        }
        named => Ok(named?),
    });
    named.inspect_err(|_| drop(remove(directory, OsStr::new(&unfinished))))
}

/// Moves what is there by this name to another directory, or out of the way in its own, and over nothing.
pub fn set_aside(directory: &OwnedFd, name: &OsStr, to: &OwnedFd) -> io::Result<()> {
    let free = (1..=ASIDE_MAX).map(|number| {
        let mut aside = name.to_owned();
        aside.push(format!("{ASIDE}{number}"));
        aside
    });
    for aside in free {
        match renameat_with(directory, name, to, aside, RenameFlags::NOREPLACE) {
            Err(Errno::EXIST) => {}
            moved => return Ok(moved?),
        }
    }
    Err(io::Error::other("too many files were already moved aside"))
}

/// Removes a file, if it is there.
pub fn remove(directory: &OwnedFd, name: &OsStr) -> io::Result<()> {
    match unlinkat(directory, name, AtFlags::empty()) {
        Err(Errno::NOENT) => Ok(()),
        removed => Ok(removed?),
    }
}
