//! Gemini CLI's file of a conversation, before the CLI is asked to load it.
//!
//! The CLI (0.61) begins a file for each start, `session-MINUTE-ID.jsonl`, also when it then goes on in an older one. In the
//! minute in which the conversation began that is the same file, and what it writes there says that the conversation is empty; in
//! any other minute it is an empty one beside it, with which the clean-up deletes both. So before each start the file is moved to a
//! minute that never comes again, empty ones are removed, and a copy is kept from which it is restored when it is lost all the same.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{AtFlags, Dir, Mode, OFlags, openat, renameat, unlinkat};
use rustix::io::Errno;
use serde::Deserialize;

use super::disk;

/// Below the CLI's own directory: `tmp/PROJECT/chats`.
const TMP: &str = "tmp";
const CHATS: &str = "chats";
/// Where the copies are, beside it.
const KEPT: &str = "acpd-chats";
const PREFIX: &str = "session-";
const SUFFIX: &str = ".jsonl";
/// What is added to the name of a file that was emptied and is put aside.
const EMPTIED: &str = ".emptied";
/// A minute that never comes again.
const LONG_AGO: &str = "2000-01-01T00-00";
/// As much of a conversation's id as is in its file's name.
const ID_LENGTH: usize = 8;
/// Projects, and files of one, that are looked at. Of a session there is one project, and a file for each start.
const ENTRIES_MAX: usize = 1000;
/// A file that is larger is moved, and not copied.
const COPIED_BYTES_MAX: u64 = 256 << 20;

/// Sees to it that a conversation can be loaded, in the CLI's own directory.
pub fn prepare(directory: &OwnedFd, conversation: &str) -> io::Result<()> {
    let Some(id) = short(conversation) else { return Ok(()) };
    let tmp = match disk::inside(directory, OsStr::new(TMP)) {
        Err(error) if is_absent(&error) => return Ok(()),
        entered => entered?,
    };
    for project in names(&tmp)? {
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

/// In one project.
fn settle(chats: &OwnedFd, kept: &OwnedFd, id: &str) -> io::Result<()> {
    let long_ago = OsString::from(format!("{PREFIX}{LONG_AGO}-{id}{SUFFIX}"));
    let ending = format!("-{id}{SUFFIX}");
    let is_meant = |name: &OsString| {
        let name = name.as_bytes();
        name.starts_with(PREFIX.as_bytes()) && name.ends_with(ending.as_bytes())
    };
    let mut found = Vec::new();
    for name in names(chats)?.into_iter().filter(is_meant) {
        // One that cannot be read cannot be loaded either.
        found.push((disk::open(chats, &name).and_then(look).unwrap_or_default(), name));
    }
    found.sort_by(|(one, _), (other, _)| one.last_said.cmp(&other.last_said));
    let newest = found.pop_if(|(chat, _)| chat.last_said.is_some());
    for (chat, name) in &found {
        if chat.has_messages {
            // It was emptied, and all the same has something in it that somebody may want to see.
            let mut aside = name.clone();
            aside.push(EMPTIED);
            renameat(chats, name, kept, aside)?;
        } else {
            unlinkat(chats, name, AtFlags::empty())?;
        }
    }
    if let Some((_, name)) = newest {
        if name != long_ago {
            renameat(chats, &name, chats, &long_ago)?;
        }
        let file = disk::open(chats, &long_ago)?;
        if file.metadata()?.len() <= COPIED_BYTES_MAX {
            disk::put(kept, &long_ago, disk::PRIVATE, file)?;
        }
    } else if let Ok(copy) = disk::open(kept, &long_ago) {
        // It is lost here, and this is the best there is.
        disk::put(chats, &long_ago, disk::PRIVATE, copy)?;
    }
    Ok(())
}

/// What is in a file.
#[derive(Debug, Default, PartialEq, Eq)]
struct Chat {
    /// When something was said for the last time, in the conversation as the CLI would load it; nothing, when that is empty.
    last_said: Option<String>,
    /// Whether anything was said ever.
    has_messages: bool,
}

fn look(file: File) -> io::Result<Chat> {
    #[derive(Deserialize)]
    struct Message {
        #[serde(default)]
        timestamp: String,
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
        kind: String,
        #[serde(default)]
        timestamp: String,
    }
    let mut chat = Chat::default();
    for line in BufReader::new(file).split(b'\n') {
        // The last one may be half a line.
        let Ok(Line { set, kind, timestamp }) = serde_json::from_slice(&line?) else { continue };
        if let Some(messages) = set.and_then(|set| set.messages) {
            // The CLI begins each conversation with a message of its own, which nobody has said.
            let said = messages.into_iter().skip(1).map(|message| message.timestamp);
            chat.last_said = said.max();
        } else if matches!(kind.as_str(), "user" | "gemini") {
            chat.has_messages = true;
            chat.last_said = chat.last_said.max(Some(timestamp));
        }
    }
    Ok(chat)
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

fn names(directory: &OwnedFd) -> io::Result<Vec<OsString>> {
    let listed = openat(directory, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let names = Dir::new(listed)?.take(ENTRIES_MAX).map(|entry| {
        let entry = entry?;
        Ok(OsStr::from_bytes(entry.file_name().to_bytes()).to_owned())
    });
    let names: Vec<OsString> = names.collect::<io::Result<_>>()?;
    Ok(names.into_iter().filter(|name| name != "." && name != "..").collect())
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
        assert!(place.kept().with_extension("jsonl.emptied").exists(), "nothing that was said is deleted");
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
        assert!(theirs.exists() && place.chats().is_empty(), "a link in the place of a file goes, and no further");
        for id in ["", "short", "../../..", "54f7 dfd"] {
            prepare(&disk::directory(place.base.path()).unwrap(), id).unwrap();
        }
    }
}
