//! Where an agent may work: a real directory inside the allowed roots.

use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    #[error("the workspace {0:?} is not an absolute path")]
    NotAbsolute(PathBuf),
    #[error("the workspace {path:?} cannot be opened")]
    Missing {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("the workspace {0:?} is not a directory")]
    NotADirectory(PathBuf),
    #[error("the workspace {0:?} has a name that is not UTF-8")]
    NotUtf8(PathBuf),
    #[error("the workspace {path:?} is outside the allowed roots")]
    OutsideRoots { path: PathBuf, real: PathBuf, roots: Vec<PathBuf> },
}

impl WorkspaceError {
    /// Whether the path that was real once now leads somewhere else, and out of the roots: somebody has put a link in
    /// its way. Roots that were narrowed meanwhile are no such thing.
    pub fn is_escape(&self) -> bool {
        match self {
            Self::OutsideRoots { path, real, .. } => path != real,
            Self::NotAbsolute(_) | Self::Missing { .. } | Self::NotADirectory(_) | Self::NotUtf8(_) => false,
        }
    }
}

/// The real path of a directory, when it is inside one of the roots.
pub fn resolve_workspace(path: &Path, roots: &[PathBuf]) -> Result<String, WorkspaceError> {
    if !path.is_absolute() {
        return Err(WorkspaceError::NotAbsolute(path.to_owned()));
    }
    let real = path.canonicalize().map_err(|source| WorkspaceError::Missing { path: path.to_owned(), source })?;
    // Compared by components, so that /srv/ab is not inside /srv/a.
    let inside = roots.iter().any(|root| root.canonicalize().is_ok_and(|root| real.starts_with(root)));
    if !inside {
        let shown = (path.display(), real.display());
        tracing::warn!(security = true, path = %shown.0, real = %shown.1, "a workspace outside the roots was refused");
        return Err(WorkspaceError::OutsideRoots { path: path.to_owned(), real, roots: roots.to_vec() });
    }
    if !real.is_dir() {
        return Err(WorkspaceError::NotADirectory(path.to_owned()));
    }
    real.into_os_string().into_string().map_err(|name| WorkspaceError::NotUtf8(PathBuf::from(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_that_is_the_beginning_of_another_name_is_not_a_root_of_it() {
        let base = tempfile::tempdir().unwrap();
        let base = base.path().canonicalize().unwrap();
        for name in ["a", "ab", "a/inside"] {
            std::fs::create_dir(base.join(name)).unwrap();
        }
        let roots = [base.join("a")];
        assert!(resolve_workspace(&base.join("a/inside"), &roots).is_ok());
        assert!(resolve_workspace(&base.join("a"), &roots).is_ok(), "a root is inside itself");
        let refused = resolve_workspace(&base.join("ab"), &roots);
        assert!(matches!(refused, Err(WorkspaceError::OutsideRoots { .. })));
        let refused = resolve_workspace(&base.join("a/../ab"), &roots);
        assert!(matches!(refused, Err(WorkspaceError::OutsideRoots { .. })));
    }
}
