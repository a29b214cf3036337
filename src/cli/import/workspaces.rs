//! Where imported sessions go on, when that is not where they were.

use std::path::{Path, PathBuf};

use crate::cli::error::ClientError;

/// What `--workspace` says: a directory for all, and directories in the place of others.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Workspaces {
    all: Option<String>,
    /// Old and new.
    moved: Vec<(PathBuf, PathBuf)>,
}

impl Workspaces {
    pub fn read(words: &[String]) -> Result<Self, ClientError> {
        let mut workspaces = Self::default();
        for word in words {
            // A directory here may have a sign of equality in its name; one there is named by its whole path.
            match word.split_once('=').filter(|(old, new)| old.starts_with('/') && !new.is_empty()) {
                Some((old, new)) if !Path::new(word).is_dir() => {
                    workspaces.moved.push((PathBuf::from(old), absolute(new)?));
                }
                _ if workspaces.all.is_some() => {
                    let message = "--workspace names more than one directory for all sessions";
                    return Err(ClientError::local(message, "write OLD=NEW, where OLD is the full old path"));
                }
                _ => workspaces.all = Some(text(&absolute(word)?)?),
            }
        }
        Ok(workspaces)
    }

    /// Where a session goes on that was there: by the longest path that was named, or else in the directory for all.
    pub fn of(&self, workspace: &str) -> Result<Option<String>, ClientError> {
        let beneath = |(old, new): &(PathBuf, PathBuf)| {
            let rest = Path::new(workspace).strip_prefix(old).ok()?;
            Some((old.as_os_str().len(), if rest.as_os_str().is_empty() { new.clone() } else { new.join(rest) }))
        };
        match self.moved.iter().filter_map(beneath).max_by_key(|(length, _)| *length) {
            Some((_, path)) => text(&path).map(Some),
            None => Ok(self.all.clone()),
        }
    }
}

/// The daemon works elsewhere.
fn absolute(path: &str) -> Result<PathBuf, ClientError> {
    std::path::absolute(path).map_err(|error| ClientError::io(format!("find {path}"), error))
}

fn text(path: &Path) -> Result<String, ClientError> {
    let message = || format!("the path {} is not valid UTF-8", path.display());
    path.to_str().map(str::to_owned).ok_or_else(|| ClientError::local(message(), "choose another directory"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workspaces(words: &[&str]) -> Result<Workspaces, ClientError> {
        Workspaces::read(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn the_longest_path_that_was_named_counts_and_else_the_directory_for_all() {
        let named = workspaces(&["/a=/x", "/a/b=/y", "/z"]).unwrap();
        for (old, new) in [("/a", "/x"), ("/a/c", "/x/c"), ("/a/b", "/y"), ("/a/b/c", "/y/c"), ("/ab", "/z")] {
            assert_eq!(named.of(old).unwrap().as_deref(), Some(new), "{old}");
        }
        assert_eq!(workspaces(&["/a=/x"]).unwrap().of("/b").unwrap(), None, "it stays where it was");
        assert_eq!(workspaces(&[]).unwrap(), Workspaces::default());
        assert!(workspaces(&["/x", "/y"]).is_err());
        let relative = workspaces(&["here"]).unwrap().of("/b").unwrap().unwrap();
        assert!(relative.starts_with('/') && relative.ends_with("/here"), "{relative}");
    }
}
