//! The text files of a workspace, read and written on an agent's behalf. All of this blocks: it is for a thread of its own.
//!
//! A write is whole or not at all: it goes to a new file beside the old one, which then takes its place.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};

use super::beneath::{Beneath, FileError};

/// What is read of a file that is about to be replaced, to show what changes.
const SHOWN_BYTES_MAX: usize = 256 << 10;
/// What is kept of an old file's mode. Whoever wrote the new content is not to be trusted with the other bits.
const MODE_KEPT: u32 = 0o777;
const NEW_MODE: u32 = 0o666;

/// Which lines are wanted. The first is 1, and 0 means the same; a line past the end, or a limit of 0, is an empty text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    pub line: Option<u32>,
    pub limit: Option<u32>,
}

#[derive(Debug)]
pub struct TextRead {
    /// From the workspace, without links.
    pub real: PathBuf,
    pub content: String,
}

/// Where a write goes, once it is allowed.
#[derive(Debug)]
pub struct Target {
    /// From the workspace, without links. The write goes there and nowhere else.
    pub real: PathBuf,
    /// What is there now, as far as it can be shown.
    pub old: Option<String>,
    /// Which file is there now, if there is one.
    pub identity: Option<FileIdentity>,
}

/// Which file it is, and whether it is still as it was: whoever changes it changes its time too, and cannot set that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileIdentity {
    device: u64,
    inode: u64,
    size: i64,
    changed_at: (i64, i64),
}

impl FileIdentity {
    #[allow(clippy::useless_conversion, reason = "on some machines the kernel counts in fewer bits")]
    fn of(stat: &Stat) -> Self {
        let nanoseconds = i64::try_from(stat.st_ctime_nsec).unwrap_or_default();
        Self {
            device: stat.st_dev.into(),
            inode: stat.st_ino.into(),
            size: stat.st_size.into(),
            changed_at: (stat.st_ctime.into(), nanoseconds),
        }
    }
}

impl Beneath {
    pub fn read_text(&self, path: &Path, window: Window, bytes_max: usize) -> Result<TextRead, FileError> {
        let opened = self.open_regular(self.relative(path)?)?;
        let real = self.real(opened.as_fd())?;
        let size = usize::try_from(rustix::fs::fstat(&opened)?.st_size).unwrap_or(usize::MAX);
        // A part of a large file may be had, when it is near the beginning.
        if window == Window::default() && size > bytes_max {
            return Err(FileError::TooLarge { max: bytes_max });
        }
        let bytes = read_lines(File::from(opened), window, bytes_max)?;
        let content = String::from_utf8(bytes).map_err(|_| FileError::Binary)?;
        Ok(TextRead { real, content })
    }

    /// Examines the file before it is opened for reading: opening a device may do something, and closing the database would release
    /// the daemon's lock on it. What is opened is what was examined.
    fn open_regular(&self, relative: &Path) -> Result<OwnedFd, FileError> {
        let seen = self.open_following(relative, OFlags::PATH)?;
        regular(&rustix::fs::fstat(&seen)?)?;
        self.real(seen.as_fd())?;
        let link = format!("/proc/self/fd/{}", seen.as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        Ok(rustix::fs::open(link, flags, Mode::empty())?)
    }

    /// Where a write to this path would go.
    pub fn find_target(&self, path: &Path) -> Result<Target, FileError> {
        let relative = self.relative(path)?;
        let found = match self.open_following(relative, OFlags::PATH) {
            Err(FileError::NotFound) => {
                return Ok(Target { real: self.place(relative)?, old: None, identity: None });
            }
            found => found?,
        };
        // Before it is read: what is changed between is not what was shown.
        let stat = rustix::fs::fstat(&found)?;
        replaceable(&stat)?;
        let real = self.real(found.as_fd())?;
        let old = self.read_text(&real, Window::default(), SHOWN_BYTES_MAX).ok().map(|old| old.content);
        Ok(Target { real, old, identity: Some(FileIdentity::of(&stat)) })
    }

    /// Writes a text to a real path, whole or not at all, if what is there is still what was found. Directories that are
    /// missing are made.
    pub fn write_text(
        &self,
        real: &Path,
        found: Option<FileIdentity>,
        content: &str,
        umask: Mode,
    ) -> Result<(), FileError> {
        let (Some(parent), Some(name)) = (real.parent(), real.file_name()) else { return Err(FileError::BadPath) };
        let parent = self.make_directory(parent, umask)?;
        let old = match rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => None,
            old => Some(old?),
        };
        if let Some(old) = &old {
            if FileType::from_raw_mode(old.st_mode).is_symlink() {
                return Err(FileError::Changed);
            }
            replaceable(old)?;
            // To take its place needs no right to the file itself, so that is asked for.
            rustix::fs::accessat(&parent, name, Access::WRITE_OK, AtFlags::EACCESS)?;
        }
        // Somebody's work may be in it by now, which nobody was shown who allowed this.
        if old.as_ref().map(FileIdentity::of) != found {
            return Err(FileError::Changed);
        }
        let temporary = format!(".acpd-{}", uuid::Uuid::now_v7());
        let written = write_new(&parent, &temporary, content, old.as_ref(), umask)
            .and_then(|()| Ok(rustix::fs::renameat(&parent, &temporary, &parent, name)?));
        if written.is_err() {
            // It may not be there at all.
            rustix::fs::unlinkat(&parent, &temporary, AtFlags::empty()).ok();
        }
        written
    }
}

/// Whether a text may be written at all.
pub fn check_text(content: &str, bytes_max: usize) -> Result<(), FileError> {
    if content.len() > bytes_max {
        return Err(FileError::TooLarge { max: bytes_max });
    }
    if content.contains('\0') {
        return Err(FileError::Binary);
    }
    Ok(())
}

fn write_new(parent: &OwnedFd, name: &str, content: &str, old: Option<&Stat>, umask: Mode) -> Result<(), FileError> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(rustix::fs::openat(parent, name, flags, Mode::RUSR | Mode::WUSR)?);
    file.write_all(content.as_bytes()).map_err(FileError::System)?;
    let mode = match old {
        Some(old) => {
            // Another's file stays that one's where we may give it away; else it is ours, as after any editor.
            let (owner, group) = (Uid::from_raw(old.st_uid), Gid::from_raw(old.st_gid));
            rustix::fs::fchown(&file, Some(owner), Some(group)).ok();
            Mode::from_raw_mode(old.st_mode & MODE_KEPT)
        }
        None => Mode::from_raw_mode(NEW_MODE).difference(umask),
    };
    rustix::fs::fchmod(&file, mode)?;
    file.sync_all().map_err(FileError::System)
}

/// The lines of the window. No more than `bytes_max` is looked at for them.
fn read_lines(file: File, window: Window, bytes_max: usize) -> Result<Vec<u8>, FileError> {
    let first = u64::from(window.line.unwrap_or(1).max(1)) - 1;
    let end = window.limit.map_or(u64::MAX, |limit| first + u64::from(limit));
    let one_more = u64::try_from(bytes_max).unwrap_or(u64::MAX).saturating_add(1);
    let mut reader = BufReader::new(file.take(one_more));
    let (mut content, mut line, mut scanned) = (Vec::new(), Vec::new(), 0);
    for number in 0..end {
        line.clear();
        let length = reader.read_until(b'\n', &mut line).map_err(FileError::System)?;
        if length == 0 {
            break;
        }
        if memchr::memchr(0, &line).is_some() {
            return Err(FileError::Binary);
        }
        scanned += length;
        if scanned > bytes_max {
            return Err(FileError::TooLarge { max: bytes_max });
        }
        if number >= first {
            content.extend_from_slice(&line);
        }
    }
    Ok(content)
}

fn regular(stat: &Stat) -> Result<(), FileError> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(()),
        FileType::Directory => Err(FileError::NotRegular("a directory")),
        FileType::Fifo => Err(FileError::NotRegular("a pipe")),
        FileType::Socket => Err(FileError::NotRegular("a socket")),
        FileType::CharacterDevice | FileType::BlockDevice => Err(FileError::NotRegular("a device")),
        FileType::Symlink | FileType::Unknown => Err(FileError::NotRegular("a special file")),
    }
}

/// Another name of the file may be anywhere, and whoever reads it there would not know who wrote it.
fn replaceable(stat: &Stat) -> Result<(), FileError> {
    regular(stat)?;
    #[allow(clippy::useless_conversion, reason = "on some machines the kernel counts in fewer bits")]
    match u64::from(stat.st_nlink) {
        0 | 1 => Ok(()),
        links => Err(FileError::HardLink { links }),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    const MAX: usize = 1 << 20;
    const UMASK: Mode = Mode::from_raw_mode(0o022);

    fn workspace() -> (tempfile::TempDir, PathBuf, Beneath) {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().canonicalize().unwrap().join("work");
        fs::create_dir(&path).unwrap();
        let beneath = Beneath::open(&path).unwrap();
        (base, path, beneath)
    }

    fn write(beneath: &Beneath, path: &str, content: &str) -> Result<PathBuf, FileError> {
        let target = beneath.find_target(Path::new(path))?;
        beneath.write_text(&target.real, target.identity, content, UMASK)?;
        Ok(target.real)
    }

    #[test]
    fn a_window_is_whole_lines_and_what_lies_past_the_end_is_empty() {
        let (_base, path, beneath) = workspace();
        fs::write(path.join("f"), "one\ntwo\r\nthree").unwrap();
        let read = |line, limit| beneath.read_text(Path::new("f"), Window { line, limit }, MAX).unwrap().content;
        assert_eq!(read(None, None), "one\ntwo\r\nthree");
        assert_eq!(read(Some(1), None), "one\ntwo\r\nthree");
        assert_eq!(read(Some(0), Some(1)), "one\n", "0 is the first line");
        assert_eq!(read(Some(2), None), "two\r\nthree");
        assert_eq!(read(Some(2), Some(1)), "two\r\n");
        assert_eq!(read(Some(3), Some(9)), "three");
        assert_eq!(read(None, Some(0)), "");
        assert_eq!(read(Some(4), None), "");
        assert_eq!(read(Some(u32::MAX), Some(u32::MAX)), "");
    }

    #[test]
    fn a_part_of_a_large_file_is_read_when_it_is_near_the_beginning() {
        let (_base, path, beneath) = workspace();
        fs::write(path.join("f"), "0123456\n".repeat(100)).unwrap();
        let read = |line, limit| beneath.read_text(Path::new("f"), Window { line, limit }, 64);
        assert!(matches!(read(None, None), Err(FileError::TooLarge { max: 64 })));
        assert_eq!(read(Some(8), Some(1)).unwrap().content, "0123456\n");
        assert!(matches!(read(Some(8), Some(2)), Err(FileError::TooLarge { .. })));
        assert!(matches!(read(Some(99), Some(1)), Err(FileError::TooLarge { .. })));
    }

    #[test]
    fn links_of_the_kernels_own_and_loops_are_told_apart() {
        // A directory that has such links in it.
        let own = Path::new("/proc").join(std::process::id().to_string());
        let beneath = Beneath::open(&own).unwrap();
        let refused = beneath.read_text(Path::new("root/etc/passwd"), Window::default(), MAX);
        assert!(matches!(refused, Err(FileError::MagicLink)), "{refused:?}");
        let (_base, path, beneath) = workspace();
        symlink("loop", path.join("loop")).unwrap();
        let refused = beneath.read_text(Path::new("loop"), Window::default(), MAX);
        assert!(matches!(refused, Err(FileError::LinkLoop)), "{refused:?}");
    }

    #[test]
    fn a_workspace_is_not_opened_through_a_link() {
        let (_base, path, _) = workspace();
        let link = path.parent().unwrap().join("link");
        symlink(&path, &link).unwrap();
        assert!(matches!(Beneath::open(&link), Err(FileError::LinkLoop)));
    }

    #[test]
    fn a_write_goes_to_the_real_path_and_keeps_the_mode() {
        let (_base, path, beneath) = workspace();
        let mode = |name: &str| fs::metadata(path.join(name)).unwrap().permissions().mode() & 0o7777;
        fs::write(path.join("script"), "old").unwrap();
        fs::set_permissions(path.join("script"), fs::Permissions::from_mode(0o4750)).unwrap();
        symlink("script", path.join("link")).unwrap();
        assert_eq!(write(&beneath, "link", "new").unwrap(), Path::new("script"));
        assert_eq!(fs::read_to_string(path.join("script")).unwrap(), "new");
        assert!(path.join("link").is_symlink(), "the link stays one");
        assert_eq!(mode("script"), 0o750);
        assert_eq!(write(&beneath, "./a/b/c.txt", "text").unwrap(), Path::new("a/b/c.txt"));
        assert_eq!((mode("a/b/c.txt"), mode("a/b")), (0o644, 0o755));
        symlink("a", path.join("alias")).unwrap();
        assert_eq!(write(&beneath, "alias/d/e.txt", "text").unwrap(), Path::new("a/d/e.txt"));
        let left: Vec<_> = fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(!left.iter().any(|name| name.to_string_lossy().starts_with(".acpd-")), "{left:?}");
    }

    #[test]
    fn what_a_write_must_not_touch_is_refused_each_for_its_own_reason() {
        let (_base, path, beneath) = workspace();
        let outside = path.parent().unwrap().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("linked"), "kept").unwrap();
        fs::hard_link(outside.join("linked"), path.join("hard")).unwrap();
        symlink(&outside, path.join("out")).unwrap();
        symlink("nothing", path.join("dangling")).unwrap();
        fs::write(path.join("file"), "").unwrap();
        assert!(matches!(write(&beneath, "hard", "x"), Err(FileError::HardLink { links: 2 })));
        assert!(matches!(write(&beneath, "out/new", "x"), Err(FileError::Outside)));
        assert!(matches!(write(&beneath, "../new", "x"), Err(FileError::Outside)));
        assert!(matches!(write(&beneath, "dangling", "x"), Err(FileError::DanglingLink)));
        assert!(matches!(write(&beneath, "dangling/x", "x"), Err(FileError::DanglingLink)));
        assert!(matches!(write(&beneath, "file/x", "x"), Err(FileError::NotADirectory)));
        assert!(matches!(write(&beneath, "new/../x", "x"), Err(FileError::NotFound)));
        assert!(matches!(write(&beneath, "", "x"), Err(FileError::NotRegular("a directory"))));
        assert_eq!(fs::read_to_string(outside.join("linked")).unwrap(), "kept");
    }

    #[test]
    fn what_changes_after_it_was_found_is_not_written() {
        let (_base, path, beneath) = workspace();
        let outside = path.parent().unwrap().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::create_dir(path.join("d")).unwrap();
        let target = beneath.find_target(Path::new("d/f")).unwrap();
        fs::remove_dir(path.join("d")).unwrap();
        symlink(&outside, path.join("d")).unwrap();
        let refused = beneath.write_text(&target.real, target.identity, "x", UMASK);
        assert!(matches!(refused, Err(FileError::Changed)), "{refused:?}");
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    }

    #[test]
    fn what_was_written_after_it_was_found_is_not_overwritten() {
        let (_base, path, beneath) = workspace();
        fs::write(path.join("f"), "old").unwrap();
        for (file, text) in [("f", "somebody's work"), ("new", "somebody's work")] {
            let target = beneath.find_target(Path::new(file)).unwrap();
            fs::write(path.join(file), text).unwrap();
            let refused = beneath.write_text(&target.real, target.identity, "x", UMASK);
            assert!(matches!(refused, Err(FileError::Changed)), "{file}: {refused:?}");
            assert_eq!(fs::read_to_string(path.join(file)).unwrap(), text);
        }
        let target = beneath.find_target(Path::new("f")).unwrap();
        fs::remove_file(path.join("f")).unwrap();
        let refused = beneath.write_text(&target.real, target.identity, "x", UMASK);
        assert!(matches!(refused, Err(FileError::Changed)), "{refused:?}");
    }
}
