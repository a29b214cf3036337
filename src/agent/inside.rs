//! What lies inside a workspace: the files that a tool names, and what is checked out there.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags};

use super::beneath::again;
use super::workspace::WorkspaceError;
use crate::model::context::is_git_ref;
use crate::model::permission::Place;

/// What is read of the files that say which commit is checked out.
const GIT_FILE_BYTES_MAX: u64 = 4096;
/// What is looked at in a directory that is to go away. One with more may have anything in it.
const ENTRIES_MAX: usize = 1000;

/// Why a path names no file in a workspace.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathProblem {
    /// It leads out.
    #[error("is not in the workspace {0:?}")]
    Escape(PathBuf),
    #[error("{0}")]
    Other(String),
}

impl From<String> for PathProblem {
    fn from(problem: String) -> Self {
        Self::Other(problem)
    }
}

/// A path as it is from the workspace, which is a real path. It need not exist, but what of it exists must not lead out.
pub fn path_inside(workspace: &Path, path: &str) -> Result<String, PathProblem> {
    let path = Path::new(path);
    let outside = || PathProblem::Escape(workspace.to_owned());
    if path.components().any(|component| component == Component::ParentDir) {
        return Err(if climbs_out(path) { outside() } else { "contains ..".to_owned().into() });
    }
    let relative: PathBuf = match path.strip_prefix(workspace) {
        Ok(relative) => relative.to_owned(),
        // Another name of the workspace, perhaps.
        Err(_) if path.is_absolute() => real(path)?.strip_prefix(workspace).map_err(|_| outside())?.to_owned(),
        Err(_) => path.to_owned(),
    };
    let relative: PathBuf =
        relative.components().filter(|component| matches!(component, Component::Normal(_))).collect();
    if relative.as_os_str().is_empty() {
        return Err("is the workspace itself, not a file in it".to_owned().into());
    }
    let real = real(&workspace.join(&relative))?;
    if !real.starts_with(workspace) {
        return Err(outside());
    }
    if real.is_dir() {
        return Err("is a directory".to_owned().into());
    }
    relative.into_os_string().into_string().map_err(|_| "is not UTF-8".to_owned().into())
}

/// Whether a relative path goes up further than it went down, whatever it passes.
fn climbs_out(path: &Path) -> bool {
    let mut depth = 0_usize;
    path.is_relative()
        && path.components().any(|component| match component {
            Component::ParentDir => depth.checked_sub(1).map(|left| depth = left).is_none(),
            Component::Normal(_) => {
                depth += 1;
                false
            }
            Component::Prefix(_) | Component::RootDir | Component::CurDir => false,
        })
}

/// Where a path leads, seen from the workspace, which is a real path. What cannot be said for sure is outside: a path with
/// a `..`, a link to nothing, what cannot be looked at.
pub fn place(workspace: &Path, path: &str) -> Place {
    let whole = workspace.join(path);
    let mut plain = PathBuf::new();
    for component in whole.components() {
        match component {
            Component::ParentDir => drop(plain.pop()),
            Component::CurDir => {}
            other => plain.push(other),
        }
    }
    let text = |path: &Path| path.to_str().map(str::to_owned);
    let named = plain.strip_prefix(workspace).ok().and_then(text).unwrap_or_else(|| plain.display().to_string());
    let has_parent = whole.components().any(|component| component == Component::ParentDir);
    let real = real(&whole).ok().filter(|_| !has_parent);
    match real.and_then(|real| text(real.strip_prefix(workspace).ok()?)) {
        Some(real) => Place::Inside { real, named },
        None => Place::Outside { named },
    }
}

/// Whether a repository is, or may be, in a directory below the workspace, which is given by its real path. The workspace
/// itself counts for one. A file holds none.
pub fn holds_git(workspace: &Path, real: &str) -> bool {
    if real.is_empty() {
        return true;
    }
    let mut waiting = vec![workspace.join(real)];
    let mut seen = 0;
    while let Some(directory) = waiting.pop() {
        // What is not there, no directory, or closed to us has nothing in it that could be found.
        for entry in std::fs::read_dir(&directory).into_iter().flatten().flatten() {
            seen += 1;
            if seen > ENTRIES_MAX || entry.file_name().eq_ignore_ascii_case(".git") {
                return true;
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                waiting.push(entry.path());
            }
        }
    }
    false
}

/// The real path of as much of it as exists, and the rest as it is.
fn real(path: &Path) -> Result<PathBuf, String> {
    let mut existing = path;
    loop {
        match existing.canonicalize() {
            Ok(real) => {
                let rest = path.strip_prefix(existing).unwrap_or(Path::new(""));
                return Ok(if rest.as_os_str().is_empty() { real } else { real.join(rest) });
            }
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                // A link that leads to nothing yet may lead anywhere later.
                if existing.symlink_metadata().is_ok() {
                    return Err("is a link whose target does not exist".to_owned());
                }
                existing = existing.parent().ok_or("does not exist")?;
            }
            Err(error) => {
                return Err(match WorkspaceError::unreachable(existing, error) {
                    WorkspaceError::Missing { source, .. } => format!("cannot be inspected: {source}"),
                    closed => format!("cannot be inspected: {closed}; {}", closed.hint().unwrap_or_default()),
                });
            }
        }
    }
}

/// The branch that is checked out in the workspace, or the commit when it is none. Nothing is run, and nothing outside
/// the workspace is read: a repository that lies elsewhere has no answer.
pub fn git_ref(workspace: &Path) -> Option<String> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(workspace, flags, Mode::empty()).ok()?;
    let in_directory = read_beneath(&directory, Path::new(".git/HEAD"));
    let in_worktree = || {
        // A worktree or a submodule: a file that names the directory.
        let file = read_beneath(&directory, Path::new(".git"))?;
        let named = Path::new(file.strip_prefix("gitdir:")?.trim());
        let named = named.strip_prefix(workspace).unwrap_or(named);
        read_beneath(&directory, &named.join("HEAD"))
    };
    checked_out(&in_directory.or_else(in_worktree)?)
}

fn checked_out(head: &str) -> Option<String> {
    let head = head.trim_end();
    let name = match head.strip_prefix("ref:") {
        Some(name) => name.trim_start().strip_prefix("refs/heads/").unwrap_or(name.trim_start()),
        None if matches!(head.len(), 40 | 64) && head.bytes().all(|byte| byte.is_ascii_hexdigit()) => head,
        None => return None,
    };
    Some(name.to_owned()).filter(|name| is_git_ref(name))
}

/// The text of a small file below a directory, whatever links are on the way.
fn read_beneath(directory: &OwnedFd, path: &Path) -> Option<String> {
    // Not blocking: what is there may be a pipe that nobody writes to.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let opened = again(|| rustix::fs::openat2(directory, path, flags, Mode::empty(), resolve));
    let file = File::from(opened.ok()?);
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut text = String::new();
    file.take(GIT_FILE_BYTES_MAX).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn directory() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let base = tempfile::tempdir().unwrap();
        let real = base.path().canonicalize().unwrap();
        let (workspace, outside) = (real.join("work"), real.join("outside"));
        fs::create_dir_all(workspace.join("src")).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(workspace.join("src/a.rs"), "").unwrap();
        fs::write(outside.join("secret"), "").unwrap();
        (base, workspace, outside)
    }

    #[test]
    fn a_path_stays_in_its_workspace() {
        let (_base, workspace, outside) = directory();
        let at = |path: &Path| path.to_str().unwrap().to_owned();
        symlink("src/a.rs", workspace.join("inner")).unwrap();
        symlink(workspace.join("src"), workspace.join("absolute")).unwrap();
        symlink(&outside, workspace.join("out")).unwrap();
        symlink(outside.join("secret"), workspace.join("secret")).unwrap();
        symlink(outside.join("later"), workspace.join("later")).unwrap();
        symlink("loop", workspace.join("loop")).unwrap();
        symlink(&workspace, outside.parent().unwrap().join("alias")).unwrap();
        for (path, inside) in [
            ("src/a.rs".to_owned(), "src/a.rs"),
            ("./src//a.rs".to_owned(), "src/a.rs"),
            ("src/new/file.rs".to_owned(), "src/new/file.rs"),
            ("src/a.rs/x".to_owned(), "src/a.rs/x"),
            ("inner".to_owned(), "inner"),
            ("absolute/a.rs".to_owned(), "absolute/a.rs"),
            (at(&workspace.join("src/a.rs")), "src/a.rs"),
            (at(&workspace.join("new")), "new"),
            (at(&outside.parent().unwrap().join("alias/src/b.rs")), "src/b.rs"),
        ] {
            assert_eq!(path_inside(&workspace, &path).as_deref(), Ok(inside), "{path}");
        }
        for path in
            ["..", "../outside/secret", "src/../a", "out/secret", "out/new", "secret", "later", "loop", ".", "src"]
                .map(str::to_owned)
                .into_iter()
                .chain([at(&outside.join("secret")), at(&workspace), format!("{}x/a", at(&workspace)), "/".to_owned()])
        {
            assert!(path_inside(&workspace, &path).is_err(), "{path}");
        }
    }

    #[test]
    fn what_is_checked_out_is_read_and_never_from_outside() {
        let (_base, workspace, outside) = directory();
        let hash = "0123456789abcdef0123456789abcdef01234567";
        assert_eq!(git_ref(&workspace), None, "no repository");
        fs::create_dir(workspace.join(".git")).unwrap();
        let head = workspace.join(".git/HEAD");
        for (text, found) in [
            ("ref: refs/heads/main\n", Some("main")),
            ("ref: refs/heads/feature/x", Some("feature/x")),
            ("ref: refs/remotes/origin/x\n", Some("refs/remotes/origin/x")),
            (hash, Some(hash)),
            ("ref: \n", None),
            ("something else\n", None),
            ("", None),
        ] {
            fs::write(&head, text).unwrap();
            assert_eq!(git_ref(&workspace).as_deref(), found, "{text:?}");
        }
        fs::write(outside.join("HEAD"), "ref: refs/heads/stolen").unwrap();
        fs::remove_file(&head).unwrap();
        symlink(outside.join("HEAD"), &head).unwrap();
        assert_eq!(git_ref(&workspace), None, "a link that leads out");
        fs::remove_file(&head).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, &head, rustix::fs::FileType::Fifo, Mode::RWXU, 0).unwrap();
        assert_eq!(git_ref(&workspace), None, "a pipe");
        fs::remove_dir_all(workspace.join(".git")).unwrap();
        fs::create_dir(workspace.join("kept")).unwrap();
        fs::write(workspace.join("kept/HEAD"), "ref: refs/heads/tree\n").unwrap();
        for (named, found) in [
            ("kept".to_owned(), Some("tree")),
            (workspace.join("kept").display().to_string(), Some("tree")),
            ("../outside".to_owned(), None),
            (outside.display().to_string(), None),
        ] {
            fs::write(workspace.join(".git"), format!("gitdir: {named}\n")).unwrap();
            assert_eq!(git_ref(&workspace).as_deref(), found, "{named}");
        }
    }

    #[test]
    fn a_path_is_where_it_leads() {
        let (_base, workspace, outside) = directory();
        symlink("src", workspace.join("alias")).unwrap();
        symlink(&outside, workspace.join("out")).unwrap();
        symlink("nowhere", workspace.join("dangling")).unwrap();
        let inside = |real: &str, named: &str| Place::Inside { real: real.to_owned(), named: named.to_owned() };
        assert_eq!(place(&workspace, "src/new/a"), inside("src/new/a", "src/new/a"));
        assert_eq!(place(&workspace, "./src//a/"), inside("src/a", "src/a"));
        assert_eq!(place(&workspace, workspace.join("src").to_str().unwrap()), inside("src", "src"));
        assert_eq!(place(&workspace, "alias/a"), inside("src/a", "alias/a"));
        assert_eq!(place(&workspace, ""), inside("", ""));
        for (path, named) in
            [("src/../a", "a"), ("../work/a", "a"), ("out/a", "out/a"), ("dangling", "dangling"), ("a\0b", "a\0b")]
        {
            let place = place(&workspace, path);
            assert!(matches!(&place, Place::Outside { named: found } if found.ends_with(named)), "{path}: {place:?}");
        }
        let beside = format!("{}x/a", workspace.display());
        assert_eq!(place(&workspace, &beside), Place::Outside { named: beside });
    }
}
