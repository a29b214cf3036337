//! Gemini CLI's file of a conversation, before the CLI is asked to load it.
//!
//! The CLI (0.61) begins a file for each start, `session-MINUTE-ID.jsonl`, also when it then goes on in an older one. In the
//! minute in which the conversation began that is the same file, and what it writes there says that the conversation is empty; in
//! any other minute it is an empty one beside it, with which the clean-up deletes both. So before each start the file is moved to a
//! minute that never comes again, empty ones are removed, and a copy is kept from which it is restored when it is lost all the same.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{AtFlags, Dir, Mode, OFlags, openat, renameat, statat};
use rustix::io::Errno;
use serde::Deserialize;
use serde_json::Value;

use super::disk;

/// Below the CLI's own directory: `tmp/PROJECT/chats`.
const TMP: &str = "tmp";
const CHATS: &str = "chats";
/// Where the copies are, beside it.
const KEPT: &str = "acpd-chats";
const PREFIX: &str = "session-";
const SUFFIX: &str = ".jsonl";
/// A minute that never comes again.
const LONG_AGO: &str = "2000-01-01T00-00";
/// As much of a conversation's id as is in its file's name.
const ID_LENGTH: usize = 8;
/// Projects that are looked at. A session has one.
const PROJECTS_MAX: usize = 100;
/// Entries of one directory. Whoever has more is not helped, and nothing of theirs is touched.
const ENTRIES_MAX: usize = 100_000;
/// A file that is larger is moved, and neither read nor copied; nor is what comes after so much of it was read.
const READ_BYTES_MAX: u64 = 256 << 20;
/// A line that is longer is none of a conversation's.
const LINE_BYTES_MAX: u64 = 32 << 20;
/// What is left of a start in which nothing was said is smaller.
const LEFTOVER_BYTES_MAX: u64 = 64 << 10;

/// Sees to it that a conversation can be loaded, in the CLI's own directory.
pub fn prepare(directory: &OwnedFd, conversation: &str) -> io::Result<()> {
    let Some(id) = short(conversation) else { return Ok(()) };
    let tmp = match disk::inside(directory, OsStr::new(TMP)) {
        Err(error) if is_absent(&error) => return Ok(()),
        entered => entered?,
    };
    for project in names(&tmp, |_| true)?.into_iter().take(PROJECTS_MAX) {
        let entered = disk::inside(&tmp, &project).and_then(|project| disk::inside(&project, OsStr::new(CHATS)));
        let chats = match entered {
            Err(error) if is_absent(&error) => continue,
            entered => entered?,
        };
        let kept = disk::enter(directory, OsStr::new(KEPT))?;
        let kept = disk::enter(&kept, &project)?;
        settle(&chats, &kept, id)?;
    }
    Ok(())
}

/// In one project. Nothing in which anything was said, or that is not understood, is removed.
fn settle(chats: &OwnedFd, kept: &OwnedFd, id: &str) -> io::Result<()> {
    let long_ago = OsString::from(format!("{PREFIX}{LONG_AGO}-{id}{SUFFIX}"));
    let ending = format!("-{id}{SUFFIX}");
    let is_meant = |name: &OsStr| name.as_bytes().ends_with(ending.as_bytes());
    let found = names(chats, |name| name.as_bytes().starts_with(PREFIX.as_bytes()))?;
    let (own, others): (Vec<OsString>, Vec<OsString>) = found.into_iter().partition(|name| is_meant(name));

    let mut budget = READ_BYTES_MAX;
    let mut files: Vec<(Chat, OsString)> = own
        .into_iter()
        .map(|name| (disk::open(chats, &name).map_or(Chat::Unknown, |file| look(file, &mut budget)), name))
        .collect();
    files.sort();
    let newest = files.pop_if(|(chat, _)| matches!(chat, Chat::Said(_) | Chat::Unknown));
    for (chat, name) in &files {
        match chat {
            Chat::Empty => disk::remove(chats, name)?,
            Chat::Emptied | Chat::Unknown | Chat::Said(_) => disk::set_aside(chats, name, kept)?,
        }
    }
    if let Some((_, name)) = newest {
        if name != long_ago {
            renameat(chats, &name, chats, &long_ago)?;
        }
        copy(chats, kept, &long_ago)?;
    } else if matches!(statat(chats, &long_ago, AtFlags::SYMLINK_NOFOLLOW), Err(Errno::NOENT)) {
        // It is lost here, and this is the best there is.
        copy(kept, chats, &long_ago)?;
    }
    // Each start leaves one, under an id of its own.
    for name in others {
        let is_small = |file: &File| file.metadata().is_ok_and(|metadata| metadata.len() <= LEFTOVER_BYTES_MAX);
        let file = disk::open(chats, &name).ok().filter(is_small);
        if file.is_some_and(|file| matches!(look(file, &mut budget), Chat::Empty)) {
            disk::remove(chats, &name)?;
        }
    }
    Ok(())
}

/// From one directory to the other, if it is there and not too large. A link in its place is not there.
fn copy(from: &OwnedFd, to: &OwnedFd, name: &OsStr) -> io::Result<()> {
    match disk::open(from, name) {
        Ok(file) if file.metadata()?.len() <= READ_BYTES_MAX => {
            disk::put(to, name, disk::PRIVATE, file.take(READ_BYTES_MAX))
        }
        _ => Ok(()),
    }
}

/// What is in a file. The greater one is the better one.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Chat {
    /// A beginning, after which nobody has said anything.
    Empty,
    /// Something was said, and then the conversation was declared empty.
    Emptied,
    /// Not understood. It may be the conversation all the same.
    Unknown,
    /// A conversation, and when something was said in it for the last time.
    Said(String),
}

#[derive(Deserialize)]
struct Message {
    #[serde(default)]
    timestamp: Value,
}

#[derive(Deserialize)]
struct Set {
    messages: Option<Vec<Message>>,
}

#[derive(Deserialize)]
struct Line {
    #[serde(rename = "$set")]
    set: Option<Set>,
    #[serde(rename = "type", default)]
    kind: Value,
    #[serde(default)]
    timestamp: Value,
    #[serde(rename = "sessionId", default)]
    session: Value,
}

/// Reads a file, as far as the budget goes.
fn look(file: File, budget: &mut u64) -> Chat {
    let Some(left) = file.metadata().ok().and_then(|metadata| budget.checked_sub(metadata.len())) else {
        return Chat::Unknown;
    };
    *budget = left;
    let mut reader = BufReader::new(file.take(READ_BYTES_MAX));
    let (mut last_said, mut has_messages, mut has_begun, mut is_understood) = (None, false, false, true);
    let mut line = Vec::new();
    loop {
        line.clear();
        match (&mut reader).take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
            Ok(0) => break,
            Ok(_) if line.len() as u64 == LINE_BYTES_MAX => return Chat::Unknown,
            Ok(_) => {}
            Err(_) => return Chat::Unknown,
        }
        // The last one may be half a line.
        let Ok(Line { set, kind, timestamp, session }) = serde_json::from_slice(&line) else {
            is_understood &= !line.ends_with(b"\n");
            continue;
        };
        has_begun |= session.is_string();
        if let Some(messages) = set.and_then(|set| set.messages) {
            // The CLI begins each conversation with a message of its own, which nobody has said.
            last_said = messages.iter().skip(1).map(|message| text(&message.timestamp)).max();
        } else if matches!(kind.as_str(), Some("user" | "gemini")) {
            has_messages = true;
            last_said = last_said.max(Some(text(&timestamp)));
        }
    }
    match last_said {
        Some(last_said) => Chat::Said(last_said),
        None if !is_understood || !has_begun => Chat::Unknown,
        None if has_messages => Chat::Emptied,
        None => Chat::Empty,
    }
}

fn text(timestamp: &Value) -> String {
    timestamp.as_str().map_or_else(|| timestamp.to_string(), str::to_owned)
}

/// What of the id is in the names of files, if that can be there.
fn short(conversation: &str) -> Option<&str> {
    let short = conversation.get(..ID_LENGTH)?;
    short.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-').then_some(short)
}

/// It is not there, or not what it would be.
fn is_absent(error: &io::Error) -> bool {
    let known = [Errno::NOENT, Errno::NOTDIR, Errno::LOOP];
    Errno::from_io_error(error).is_some_and(|errno| known.contains(&errno))
}

/// The names in a directory that are wanted; an error, when there are too many to look at.
fn names(directory: &OwnedFd, is_wanted: impl Fn(&OsStr) -> bool) -> io::Result<Vec<OsString>> {
    let listed = openat(directory, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let mut names = Vec::new();
    for (index, entry) in Dir::new(listed)?.enumerate() {
        if index >= ENTRIES_MAX {
            return Err(io::Error::other("there are too many files"));
        }
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name != "." && name != ".." && is_wanted(name) {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    const SESSION: &str = "54f7edfd-a993-4b8a-a16d-a243b00ef008";
    const LONG_AGO_NAME: &str = "session-2000-01-01T00-00-54f7edfd.jsonl";

    /// As the CLI begins a file.
    fn beginning(minute: &str) -> String {
        format!(
            "{{\"sessionId\":\"{SESSION}\",\"projectHash\":\"x\",\"startTime\":\"{minute}\"}}\n\
             {{\"$set\":{{\"messages\":[{{\"id\":\"0\",\"timestamp\":\"{minute}\",\"type\":\"user\"}}]}}}}\n"
        )
    }

    fn said(minute: &str) -> String {
        let line = |kind: &str| {
            format!(
                "{{\"id\":\"{kind}{minute}\",\"timestamp\":\"{minute}\",\"type\":\"{kind}\",\"content\":\"PLUM\"}}\n"
            )
        };
        line("user") + &line("gemini") + "{\"$set\":{\"lastUpdated\":\"2026\"}}\n"
    }

    struct Place {
        base: tempfile::TempDir,
    }

    impl Place {
        fn new() -> Self {
            let base = tempfile::tempdir().unwrap();
            fs::create_dir_all(base.path().join("tmp/ws/chats")).unwrap();
            fs::write(base.path().join("tmp/a-file"), "").unwrap();
            Self { base }
        }

        fn chat(&self, name: &str) -> std::path::PathBuf {
            self.base.path().join("tmp/ws/chats").join(name)
        }

        fn chats(&self) -> Vec<String> {
            let entries = fs::read_dir(self.chat("")).unwrap();
            let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        }

        fn kept(&self) -> std::path::PathBuf {
            self.base.path().join(KEPT).join("ws").join(LONG_AGO_NAME)
        }

        fn prepare(&self) {
            prepare(&disk::directory(self.base.path()).unwrap(), SESSION).unwrap();
        }
    }

    fn read(path: &Path) -> String {
        fs::read_to_string(path).unwrap()
    }

    #[test]
    fn a_conversation_is_moved_out_of_its_minute_and_kept() {
        let place = Place::new();
        let (now, others) = ("session-2026-11-18T03-28-54f7edfd.jsonl", "session-2026-11-18T03-28-6f91350a.jsonl");
        let text = beginning("2026-11-18T03:28:01Z") + &said("2026-11-18T03:28:02Z") + "{\"half";
        fs::write(place.chat(now), &text).unwrap();
        fs::write(place.chat(others), "another conversation's").unwrap();
        fs::write(place.chat("session-2026-11-18T03-28-aaaaaaaa.jsonl"), beginning("2026-11-18T03:28:00Z")).unwrap();
        place.prepare();
        assert_eq!(place.chats(), [LONG_AGO_NAME, others]);
        assert!(read(&place.chat(LONG_AGO_NAME)) == text && read(&place.kept()) == text);

        // A later load goes on in that file, and leaves an empty one.
        let text = text + "\n" + &said("2026-11-18T03:29:02Z");
        fs::write(place.chat(LONG_AGO_NAME), &text).unwrap();
        fs::write(place.chat("session-2026-11-18T03-29-54f7edfd.jsonl"), beginning("2026-11-18T03:29:01Z")).unwrap();
        place.prepare();
        assert_eq!(place.chats(), [LONG_AGO_NAME, others]);
        assert_eq!(read(&place.kept()), text);
    }

    #[test]
    fn a_conversation_that_was_emptied_or_is_gone_is_restored() {
        let place = Place::new();
        let text = beginning("2026-11-18T03:28:01Z") + &said("2026-11-18T03:28:02Z");
        fs::write(place.chat(LONG_AGO_NAME), &text).unwrap();
        place.prepare();
        fs::write(place.chat(LONG_AGO_NAME), text.clone() + &beginning("2026-11-18T03:28:03Z")).unwrap();
        place.prepare();
        assert_eq!(read(&place.chat(LONG_AGO_NAME)), text);
        assert!(place.kept().with_extension("jsonl.aside-1").exists(), "nothing that was said is deleted");
        fs::remove_file(place.chat(LONG_AGO_NAME)).unwrap();
        place.prepare();
        assert_eq!(read(&place.chat(LONG_AGO_NAME)), text);
    }

    #[test]
    fn a_compressed_conversation_is_the_conversation() {
        let place = Place::new();
        let set = "{\"$set\":{\"messages\":[{\"timestamp\":\"1\"},{\"timestamp\":\"2026-11-18T03:30:00Z\",\"type\":\"gemini\"}]}}\n";
        let text = beginning("2026-11-18T03:28:01Z") + &said("2026-11-18T03:28:02Z") + set;
        fs::write(place.chat("session-2026-11-18T03-28-54f7edfd.jsonl"), &text).unwrap();
        place.prepare();
        assert_eq!(read(&place.chat(LONG_AGO_NAME)), text);
    }

    #[test]
    fn what_is_not_understood_is_neither_removed_nor_replaced() {
        let place = Place::new();
        let name = "session-2026-11-18T03-28-54f7edfd.jsonl";
        for text in ["of another release", "{\"v\":2}\n", "", "[1]\n[2]\n"] {
            fs::write(place.chat(LONG_AGO_NAME), beginning("x") + &said("1")).unwrap();
            place.prepare();
            fs::remove_file(place.chat(LONG_AGO_NAME)).unwrap();
            fs::write(place.chat(name), text).unwrap();
            place.prepare();
            assert_eq!(place.chats(), [LONG_AGO_NAME]);
            assert_eq!(read(&place.chat(LONG_AGO_NAME)), text);
        }
        // Numbers for times are times.
        let numbers = (beginning("1") + &said("2")).replace("\"timestamp\":\"2\"", "\"timestamp\":2");
        fs::write(place.chat(LONG_AGO_NAME), &numbers).unwrap();
        place.prepare();
        assert!(read(&place.chat(LONG_AGO_NAME)) == numbers && read(&place.kept()) == numbers);
    }

    /// Of a file without end nothing is read, and it is moved all the same.
    #[test]
    fn a_huge_file_is_moved_and_not_read() {
        let place = Place::new();
        let file = File::create(place.chat("session-2026-11-18T03-28-54f7edfd.jsonl")).unwrap();
        file.set_len(1 << 40).unwrap();
        place.prepare();
        assert_eq!(place.chats(), [LONG_AGO_NAME]);
        assert!(!place.kept().exists());
    }

    #[test]
    fn many_files_of_others_hide_nothing() {
        let place = Place::new();
        let text = beginning("2026-11-18T03:28:01Z") + &said("2026-11-18T03:28:02Z");
        fs::write(place.chat(LONG_AGO_NAME), &text).unwrap();
        place.prepare();
        for index in 0..2000 {
            fs::write(place.chat(&format!("session-2026-11-18T03-28-{index:08x}.jsonl")), beginning("1")).unwrap();
        }
        let text = text + &said("2026-11-18T03:29:02Z");
        fs::write(place.chat(LONG_AGO_NAME), &text).unwrap();
        place.prepare();
        assert_eq!(place.chats(), [LONG_AGO_NAME], "and what is left of starts is removed");
        assert_eq!(read(&place.chat(LONG_AGO_NAME)), text);
    }

    #[test]
    fn nothing_is_touched_that_is_not_the_conversations() {
        let place = Place::new();
        let outside = place.base.path().join("outside");
        fs::create_dir(&outside).unwrap();
        let theirs = outside.join("session-2026-11-18T03-28-54f7edfd.jsonl");
        fs::write(&theirs, beginning("2026-11-18T03:28:01Z")).unwrap();
        fs::create_dir(place.base.path().join("tmp/other")).unwrap();
        std::os::unix::fs::symlink(&outside, place.base.path().join("tmp/other/chats")).unwrap();
        std::os::unix::fs::symlink(&theirs, place.chat("session-2026-11-18T03-29-54f7edfd.jsonl")).unwrap();
        place.prepare();
        assert!(theirs.exists() && fs::read_dir(&outside).unwrap().count() == 1);
        assert!(place.chat(LONG_AGO_NAME).is_symlink(), "a link is moved as itself");
        for id in ["", "short", "../../..", "54f7 dfd"] {
            prepare(&disk::directory(place.base.path()).unwrap(), id).unwrap();
        }
    }
}
