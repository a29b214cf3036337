//! JSON that people hand over and get back: from the command line, a file or stdin, and to stdout.

use std::io::{self, IsTerminal, Read};
use std::path::Path;

use serde_json::Value;
use serde_json::value::RawValue;

use super::error::ClientError;
use super::output::Output;
use super::text::{clean_json, one_line};

/// The daemon's own limits are lower, and it is the one who tells.
const BYTES_MAX: u64 = 64 << 20;

/// JSON as it stands, out of a file (`@FILE`), or from stdin (`-`).
pub fn argument(text: &str) -> Result<Box<RawValue>, ClientError> {
    match text.strip_prefix('@') {
        Some(path) => file(path),
        None if text == "-" => file(text),
        None => parsed(text, "it"),
    }
}

/// JSON out of a file, or from stdin (`-`).
pub fn file(path: &str) -> Result<Box<RawValue>, ClientError> {
    let (text, name) = if path == "-" {
        if io::stdin().is_terminal() {
            let hint = "pipe it into the command, or name a file";
            return Err(ClientError::local("stdin is a terminal, not a JSON document", hint));
        }
        (read(io::stdin().lock()), "stdin".to_owned())
    } else {
        (std::fs::File::open(Path::new(path)).and_then(read), one_line(path))
    };
    let text = text.map_err(|source| ClientError::io(format!("read {name}"), source))?;
    parsed(&text, &name)
}

fn read(from: impl Read) -> io::Result<String> {
    let mut text = String::new();
    from.take(BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

fn parsed(text: &str, name: &str) -> Result<Box<RawValue>, ClientError> {
    RawValue::from_string(text.trim().to_owned()).map_err(|error| {
        let hint = "write JSON in shell quotes ('{\"step\": 3}'), or name a file, or - for stdin";
        ClientError::local(format!("{name} is not valid JSON: {error}"), hint)
    })
}

/// As it came for a program, and laid out for a person.
pub fn print(output: Output, document: &RawValue) -> Result<(), ClientError> {
    let laid_out = || {
        let value: Value = serde_json::from_str(document.get()).ok()?;
        serde_json::to_string_pretty(&value).ok()
    };
    match laid_out().filter(|_| output.stdout_is_terminal) {
        Some(text) => output.print(&clean_json(&text)),
        None => output.print_json(document),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_given_as_it_stands_or_by_its_file() {
        assert_eq!(argument(r#" {"a": [1]} "#).unwrap().get(), r#"{"a": [1]}"#);
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state.json");
        std::fs::write(&path, "{\"a\": 1}\n").unwrap();
        assert_eq!(argument(&format!("@{}", path.display())).unwrap().get(), "{\"a\": 1}");
        assert!(argument("@/nowhere/at/all").unwrap_err().to_string().contains("/nowhere/at/all"));
        let refused = argument("{a: 1}").unwrap_err();
        assert!(
            refused.to_string().starts_with("it is not valid JSON: ") && refused.hint().contains("stdin"),
            "{refused}"
        );
    }
}
