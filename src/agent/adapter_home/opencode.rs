//! What makes `OpenCode` ask: the value of the variable whose rules it adds to those of its settings.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use jsonc_parser::ParseOptions;
use serde_json::{Value, json};

use super::gemini::read_users;
use super::{OPENCODE, OPENCODE_NAME};

const FILES: [&str; 3] = ["config.json", "opencode.json", "opencode.jsonc"];

/// Asks for edits, commands, the web and the tools of MCP servers, which are called `SERVER_TOOL`. What the settings of the user
/// or of the workspace deny for one of these tools stays denied.
pub fn permissions(environment: &BTreeMap<String, String>, workspace: &Path) -> String {
    let (variable, below_home, _) = OPENCODE[1];
    let place = |name: &str| environment.get(name).map(PathBuf::from);
    let users = place(variable).or_else(|| Some(place("HOME")?.join(below_home))).unwrap_or_default();
    // The last rule that matches wins, and OpenCode adds these behind the settings' rules. A rule of the same name would take
    // the place of the settings' rule instead, so that one is repeated as `TOOL*`.
    let mut rules = json!({
        "*_*": "ask", "bash": "ask", "codesearch": "ask", "edit": "ask", "webfetch": "ask", "websearch": "ask",
        // OpenCode puts long outputs there and tells the model to read them.
        "external_directory*": { "*/opencode/tool-output/*": "allow" },
    });
    let directories = [&users.join(OPENCODE_NAME), workspace];
    for file in directories.into_iter().flat_map(|directory| FILES.map(|name| directory.join(name))) {
        let text = read_users(&file).ok().flatten().unwrap_or_default();
        let read = jsonc_parser::parse_to_serde_value::<Value>(&text, &ParseOptions::default()).unwrap_or_default();
        for (tool, rule) in read["permission"].as_object().into_iter().flatten() {
            if !tool.contains('_') && rules.get(tool).is_none() {
                continue;
            }
            let whole = json!({ "*": rule });
            let stricter = &mut rules[format!("{tool}*")];
            if !stricter.is_object() {
                *stricter = json!({ "*": "ask" });
            }
            for (pattern, action) in rule.as_object().or(whole.as_object()).into_iter().flatten() {
                stricter[pattern] = json!(if action == "deny" { "deny" } else { "ask" });
            }
        }
    }
    rules.to_string()
}
