//! What agents leave on the machine: files and processes.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The entries of a directory, with their modes and contents.
pub type Contents = BTreeMap<PathBuf, (u32, Vec<u8>)>;

pub fn contents(directory: &Path) -> Contents {
    let mut found = BTreeMap::new();
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in directory.read_dir().expect("the directory can be read") {
            let path = entry.expect("the directory can be read").path();
            let metadata = path.symlink_metadata().expect("it was there just now");
            let content = match metadata.file_type() {
                kind if kind.is_dir() => Vec::new(),
                kind if kind.is_symlink() => path.read_link().expect("a link").as_os_str().as_bytes().to_owned(),
                _ => std::fs::read(&path).expect("a file can be read"),
            };
            if metadata.is_dir() {
                directories.push(path.clone());
            }
            found.insert(path, (metadata.permissions().mode(), content));
        }
    }
    found
}

/// The processes that work in the test's directory, or name it in their command line or environment.
pub fn processes_of(root: &Path) -> Vec<(u32, String)> {
    let root = root.as_os_str().as_bytes();
    let is_in = |text: &[u8]| memchr::memmem::find(text, root).is_some();
    let entries = Path::new("/proc").read_dir().expect("/proc is there").filter_map(Result::ok);
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let found = pids.filter_map(|pid| {
        let of = |name: &str| std::fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
        let directory = std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default();
        let command = of("cmdline");
        let is_of_it = is_in(&of("environ")) || is_in(&command) || is_in(directory.as_os_str().as_bytes());
        is_of_it.then(|| (pid, String::from_utf8_lossy(&command).replace('\0', " ")))
    });
    found.collect()
}
