//! `--attach FILE`: pictures and sounds go into the prompt, other files are named in it.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};

use super::error::ClientError;
use crate::acp::content;
use crate::control::wire::Prompt;

/// The daemon's own limit is lower, and it is the one who tells.
const MEDIA_BYTES_MAX: u64 = 64 << 20;

/// The files that go with a prompt.
#[derive(Args, Debug, Default)]
pub struct Attachments {
    /// File to send with the prompt: images and audio as content, other files as a link; can be repeated
    #[arg(long = "attach", value_name = "FILE")]
    files: Vec<PathBuf>,
}

impl Attachments {
    /// The prompt with its files. They are read here, where their paths mean what the person meant.
    pub fn prompt(&self, text: String) -> Result<Prompt, ClientError> {
        if self.files.is_empty() {
            return Ok(Prompt { text: Some(text), ..Prompt::default() });
        }
        let mut blocks = vec![json!({ "type": "text", "text": text })];
        for file in &self.files {
            blocks.push(block(file)?);
        }
        Ok(Prompt { content: Some(blocks.into()), ..Prompt::default() })
    }
}

fn block(file: &Path) -> Result<Value, ClientError> {
    let failed = |source| ClientError::io(format!("attach {}", file.display()), source);
    let path = file.canonicalize().map_err(failed)?;
    let metadata = path.metadata().map_err(failed)?;
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    let Some((kind, mime_type)) = media_type(&path).filter(|_| metadata.is_file()) else {
        let mut link = json!({ "type": "resource_link", "uri": file_uri(&path), "name": name });
        if metadata.is_file() {
            link["size"] = metadata.len().into();
        }
        return Ok(link);
    };
    if metadata.len() > MEDIA_BYTES_MAX {
        return Err(ClientError::local(
            format!("{} is larger than {} MiB", file.display(), MEDIA_BYTES_MAX >> 20),
            "make it smaller, or put it in the workspace and name it in the prompt",
        ));
    }
    let data = std::fs::read(&path).map_err(failed)?;
    Ok(json!({ "type": kind, "mimeType": mime_type, "data": content::encoded(&data) }))
}

/// What agents take as pictures and sounds, by the end of the file's name.
fn media_type(path: &Path) -> Option<(&'static str, &'static str)> {
    let extension = path.extension()?.to_str()?.to_ascii_lowercase();
    Some(match extension.as_str() {
        "png" => ("image", "image/png"),
        "jpg" | "jpeg" => ("image", "image/jpeg"),
        "gif" => ("image", "image/gif"),
        "webp" => ("image", "image/webp"),
        "wav" => ("audio", "audio/wav"),
        "mp3" => ("audio", "audio/mpeg"),
        "ogg" => ("audio", "audio/ogg"),
        "flac" => ("audio", "audio/flac"),
        "m4a" => ("audio", "audio/mp4"),
        _ => return None,
    })
}

/// `file://` with all that a URI cannot have written as its bytes.
fn file_uri(path: &Path) -> String {
    use std::os::unix::ffi::OsStrExt;
    let mut uri = "file://".to_owned();
    for byte in path.as_os_str().as_bytes() {
        if byte.is_ascii_alphanumeric() || b"/-._~".contains(byte) {
            uri.push(char::from(*byte));
        } else {
            // A text takes whatever is written to it.
            let _ = write!(uri, "%{byte:02X}");
        }
    }
    uri
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_becomes_a_uri_and_a_name_a_type() {
        assert_eq!(file_uri(Path::new("/a b/ü#.txt")), "file:///a%20b/%C3%BC%23.txt");
        assert_eq!(media_type(Path::new("x.JPG")), Some(("image", "image/jpeg")));
        assert_eq!(media_type(Path::new("x.svg")), None);
        assert_eq!(media_type(Path::new("png")), None);
    }
}
