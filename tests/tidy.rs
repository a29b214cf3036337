//! The house rules that a compiler does not check.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The layers, as in docs/architecture.md: a module uses only what stands above it.
const LAYERS: [&str; 18] = [
    "model", "config", "private", "system", "lane", "security", "metrics", "acp", "demo", "store", "agent", "hub",
    "session", "registry", "notify", "control", "cli", "daemon",
];
/// At this size a file is two files.
const FILE_LINES_MAX: usize = 600;

fn sources() -> Vec<PathBuf> {
    fn walk(directory: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    walk(&root().join("src"), &mut found);
    found.sort();
    found
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The layer that a file belongs to: its folder below src, or its own name.
fn layer(path: &Path) -> String {
    let relative = path.strip_prefix(root().join("src")).unwrap();
    let first = relative.components().next().unwrap().as_os_str().to_str().unwrap();
    first.trim_end_matches(".rs").to_owned()
}

/// Every `crate::NAME` in a text, also those in `use crate::{a::b, c}`.
fn used_layers(text: &str) -> BTreeSet<String> {
    let mut used = BTreeSet::new();
    let name = |text: &str| text.split(|c: char| !(c.is_alphanumeric() || c == '_')).next().unwrap().to_owned();
    for (position, _) in text.match_indices("crate::") {
        let rest = &text[position + "crate::".len()..];
        match rest.strip_prefix('{') {
            Some(list) => {
                let (mut depth, mut start) = (0, 0);
                for (index, character) in list.char_indices() {
                    match character {
                        '{' => depth += 1,
                        '}' if depth == 0 => {
                            used.insert(name(list[start..index].trim()));
                            break;
                        }
                        '}' => depth -= 1,
                        ',' if depth == 0 => {
                            used.insert(name(list[start..index].trim()));
                            start = index + 1;
                        }
                        _ => {}
                    }
                }
            }
            None => {
                used.insert(name(rest));
            }
        }
    }
    used.remove("");
    used
}

#[test]
fn a_module_uses_only_what_stands_above_it() {
    let mut problems = Vec::new();
    for path in sources() {
        let own = layer(&path);
        if own == "main" {
            continue;
        }
        let rank = LAYERS.iter().position(|layer| *layer == own);
        let Some(rank) = rank else { panic!("{} is in no layer", path.display()) };
        for used in used_layers(&fs::read_to_string(&path).unwrap()) {
            match LAYERS.iter().position(|layer| *layer == used) {
                Some(other) if other <= rank => {}
                Some(_) => problems.push(format!("{} uses {used}, which stands below {own}", path.display())),
                None => problems.push(format!("{} uses crate::{used}, which is no layer", path.display())),
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn main_declares_the_layers_in_order_and_the_architecture_page_lists_them() {
    let main = fs::read_to_string(root().join("src/main.rs")).unwrap();
    let declared: Vec<&str> = main.lines().filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';')).collect();
    assert_eq!(declared, LAYERS);
    let page = fs::read_to_string(root().join("docs/architecture.md")).unwrap();
    let mut from = 0;
    for layer in LAYERS {
        let found = page[from..].find(&format!("`{layer}"));
        from += found.unwrap_or_else(|| panic!("docs/architecture.md does not list `{layer}` in its place"));
    }
}

#[test]
fn the_finder_of_uses_finds_them() {
    let text = "use crate::model::{a, b};\nuse crate::{config::X, store::{Y, Z}};\nlet x = crate::hub::Hub;";
    let used: Vec<String> = used_layers(text).into_iter().collect();
    assert_eq!(used, ["config", "hub", "model", "store"]);
}

#[test]
fn the_vocabulary_does_no_io() {
    for path in sources().into_iter().filter(|path| layer(path) == "model") {
        let text = fs::read_to_string(&path).unwrap();
        for forbidden in ["tokio::", "std::fs", "std::net", "sqlx::", "axum::"] {
            assert!(!text.contains(forbidden), "{} uses {forbidden}", path.display());
        }
    }
}

#[test]
fn sql_lives_in_the_store_only() {
    for path in sources().into_iter().filter(|path| layer(path) != "store") {
        let text = fs::read_to_string(&path).unwrap();
        assert!(!text.contains("sqlx::"), "{} uses sqlx", path.display());
    }
}

#[test]
fn unsafe_code_is_in_one_room_only() {
    for path in sources().into_iter().filter(|path| !path.ends_with("src/system.rs")) {
        let text = fs::read_to_string(&path).unwrap();
        assert!(!text.contains("unsafe_code") && !text.contains("unsafe {"), "{} has unsafe code", path.display());
    }
}

#[test]
fn no_file_is_two_files() {
    for path in sources() {
        let lines = fs::read_to_string(&path).unwrap().lines().count();
        assert!(lines <= FILE_LINES_MAX, "{} has {lines} lines", path.display());
    }
}
