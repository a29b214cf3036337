//! What the demo agent reads of a workspace: the names at its top, the beginning of one file, and its own note.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::words::{counted, shorten};

const FILE_BYTES_MAX: u64 = 64 << 10;
const DIRECTORY_ENTRIES_MAX: usize = 10_000;
const LISTED_NAMES_MAX: usize = 20;
const PREVIEW_LINES: usize = 3;
const PREVIEW_LINE_CHARACTERS: usize = 120;

/// The names in a directory: regular files, and everything else. Hidden ones are left out.
pub struct Listing {
    pub files: Vec<String>,
    others: Vec<String>,
}

impl Listing {
    pub fn describe(&self) -> String {
        if self.files.is_empty() && self.others.is_empty() {
            return "The workspace is empty.".to_owned();
        }
        let all = self.others.iter().map(|name| format!("{name}/")).chain(self.files.iter().cloned());
        let names: Vec<String> = all.take(LISTED_NAMES_MAX).collect();
        let more = if self.files.len() + self.others.len() > LISTED_NAMES_MAX { "\n…" } else { "" };
        format!("{}{more}", names.join("\n"))
    }
}

/// What there is to say about a workspace: a name and a value each.
pub struct Findings(Vec<(String, String)>);

impl Findings {
    pub fn of(listing: &io::Result<Listing>) -> Self {
        Self(match listing {
            Ok(listing) => vec![
                ("files at the top level".to_owned(), listing.files.len().to_string()),
                ("directories and other entries".to_owned(), listing.others.len().to_string()),
            ],
            Err(error) => vec![("the workspace".to_owned(), format!("cannot be read: {error}"))],
        })
    }

    pub fn add_file(&mut self, name: &str, excerpt: &io::Result<Excerpt>) {
        let told = match excerpt {
            Ok(excerpt) => excerpt.size(),
            Err(error) => format!("cannot be read: {error}"),
        };
        self.0.push((format!("`{name}`"), told));
    }

    /// Whether a file was looked into: they are the ones that are quoted.
    pub fn has_file(&self) -> bool {
        self.0.iter().any(|(name, _)| name.starts_with('`'))
    }

    /// As a table in Markdown.
    pub fn table(&self) -> String {
        // A bar in a name would be a column of its own.
        let cell = |text: &str| text.replace('|', "\\|");
        let rows = self.0.iter().map(|(name, value)| format!("| {} | {} |\n", cell(name), cell(value)));
        rows.fold("| what | found |\n|---|---|\n".to_owned(), |table, row| table + &row)
    }

    pub fn sentence(&self) -> String {
        let parts: Vec<String> = self.0.iter().map(|(name, value)| format!("{name}: {value}")).collect();
        format!("In the workspace, {}.", parts.join("; "))
    }
}

pub fn list(directory: &Path) -> io::Result<Listing> {
    let mut listing = Listing { files: Vec::new(), others: Vec::new() };
    for entry in std::fs::read_dir(directory)?.take(DIRECTORY_ENTRIES_MAX) {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        if name.starts_with('.') {
            continue;
        }
        // The type of the entry itself: a symlink is not a file here, because it may lead out of the workspace.
        let group = if entry.file_type()?.is_file() { &mut listing.files } else { &mut listing.others };
        group.push(name);
    }
    listing.files.sort_unstable();
    listing.others.sort_unstable();
    Ok(listing)
}

/// `README.md`, else the first `README*` in either case, else the first by name.
pub fn choose_file(names: &[String]) -> Option<&str> {
    let rank = |name: &str| (name != "README.md", !name.to_ascii_uppercase().starts_with("README"), name.to_owned());
    names.iter().map(String::as_str).min_by_key(|name| rank(name))
}

/// What the demo tells of a file.
pub struct Excerpt {
    pub preview: String,
    lines: usize,
    is_whole: bool,
}

impl Excerpt {
    fn new(bytes: &[u8], is_whole: bool) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let preview = if bytes.contains(&0) {
            "(not a text file)".to_owned()
        } else {
            let lines = text.lines().take(PREVIEW_LINES).map(|line| shorten(line, PREVIEW_LINE_CHARACTERS));
            lines.collect::<Vec<String>>().join("\n")
        };
        Self { preview, lines: text.lines().count(), is_whole }
    }

    fn size(&self) -> String {
        let at_least = if self.is_whole { "" } else { "at least " };
        format!("{at_least}{}", counted(self.lines, "line"))
    }
}

/// The whole text of a small file; nothing when there is none.
pub fn text(path: &Path) -> io::Result<Option<String>> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
        Ok(found) if !found.is_file() => return Err(io::Error::other("not a regular file")),
        Ok(found) if found.len() > FILE_BYTES_MAX => return Err(io::Error::other("it is now too large")),
        Ok(_) => {}
    }
    let mut text = String::new();
    File::open(path)?.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
    Ok(Some(text))
}

pub fn read(path: &Path) -> io::Result<Excerpt> {
    let mut bytes = Vec::new();
    let read = File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)? as u64;
    let is_whole = read <= FILE_BYTES_MAX;
    if !is_whole {
        bytes.pop();
    }
    Ok(Excerpt::new(&bytes, is_whole))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(names: &[&str]) -> Option<String> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        choose_file(&names).map(str::to_owned)
    }

    #[test]
    fn the_readme_is_preferred_to_every_other_file() {
        assert_eq!(chosen(&["Cargo.toml", "README", "README.md"]).as_deref(), Some("README.md"));
        assert_eq!(chosen(&["AUTHORS", "README.txt", "README.rst"]).as_deref(), Some("README.rst"));
        assert_eq!(chosen(&["LICENSE", "readme.md"]).as_deref(), Some("readme.md"));
        assert_eq!(chosen(&["b", "a", "c"]).as_deref(), Some("a"));
        assert_eq!(chosen(&[]), None);
    }

    #[test]
    fn an_excerpt_has_the_first_lines_and_counts_them_all() {
        let excerpt = Excerpt::new(b"1\n2\n3\n4\n", true);
        assert_eq!(excerpt.preview, "1\n2\n3");
        assert_eq!(excerpt.size(), "4 lines");
        assert_eq!(Excerpt::new(b"x", false).size(), "at least 1 line");
        assert_eq!(Excerpt::new(b"\0\xff", true).preview, "(not a text file)");
    }
}
