//! What a scripted agent heard: the file that its `record` step writes.

use std::fs::File;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde_json::Value;
use tokio::net::UnixListener;

/// One thing that one process of an agent heard.
#[derive(Clone, Debug, PartialEq)]
pub struct Heard {
    pub pid: u32,
    /// The method of a request or notification, `eof` for the end of stdin, and empty for an answer.
    pub method: String,
    pub params: Value,
}

impl Heard {
    fn new(line: &str) -> Self {
        let line: Value = serde_json::from_str(line).expect("an agent records one JSON object a line");
        let pid = line["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok()).expect("a line names its process");
        let message = &line["message"];
        let method = if line["eof"] == true { "eof" } else { message["method"].as_str().unwrap_or_default() };
        Self { pid, method: method.to_owned(), params: message["params"].clone() }
    }
}

/// The texts of each prompt that an agent heard.
pub fn prompts(heard: &[Heard]) -> Vec<Vec<String>> {
    let texts = |heard: &Heard| {
        let blocks = heard.params["prompt"].as_array().expect("a prompt has blocks").iter();
        blocks.map(|block| block["text"].as_str().expect("a block of text").to_owned()).collect()
    };
    heard.iter().filter(|heard| heard.method == "session/prompt").map(texts).collect()
}

/// Reads the record next to a script. Before the first `record` step there is none.
pub(super) fn read(directory: &Path) -> Vec<Heard> {
    let text = std::fs::read_to_string(directory.join("heard.jsonl")).unwrap_or_default();
    // An agent that was killed while it wrote leaves a line without its end.
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(Heard::new).collect()
}

/// Hands the record's file to whoever connects. An agent cannot open it by itself: it is confined to its workspace.
pub(super) async fn hand_out(listener: UnixListener, directory: PathBuf) {
    while let Ok((stream, _)) = listener.accept().await {
        let file = File::options().create(true).append(true).open(directory.join("heard.jsonl"));
        let file = file.expect("the record can be opened");
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let descriptors = [file.as_fd()];
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)), "there is room for one");
        // An agent that was killed meanwhile needs none.
        sendmsg(&stream, &[IoSlice::new(&[0])], &mut ancillary, SendFlags::NOSIGNAL).ok();
    }
}
