//! Tool calls in Markdown: folded, with what they were given and what came of it.

use serde_json::Value;
use similar::TextDiff;

use super::contained::{fenced, html, inline};
use super::markdown::block;

/// Lines that changed, before times after: how long a comparison may take at the most. It is no time, because whoever
/// exports twice gets the same. What is more is told as all taken away and all put there.
const DIFF_WORK_MAX: usize = 4 << 20;
const CONTEXT_LINES: usize = 3;

/// A call with its result: a status, what it gave, and what went wrong.
pub fn call(name: &str, kind: &str, arguments: &Value, result: Option<(&str, &Value, Option<&str>)>) -> String {
    let name = if name.is_empty() { "a tool" } else { name };
    let kind = Some(kind).filter(|kind| !matches!(*kind, "" | "other")).map(|kind| format!(" ({})", html(kind)));
    let status = result.map(|(status, ..)| format!(": {}", html(status)));
    let summary = format!("Tool <code>{}</code>{}{}", html(name), kind.unwrap_or_default(), status.unwrap_or_default());
    let mut parts = Vec::new();
    if !arguments.is_null() {
        parts.push(format!("**Arguments**\n\n{}", value(arguments)));
    }
    if let Some((_, result, error)) = result {
        parts.extend(error.map(|error| format!("**Error**\n\n{}", fenced("text", error))));
        if !(result.is_null() || result.as_array().is_some_and(Vec::is_empty)) {
            parts.push(format!("**Result**\n\n{}", content(result)));
        }
    }
    folded(&summary, &parts.join("\n\n"))
}

/// What is shown when somebody wants to see it. The summary is HTML, what is within Markdown.
pub fn folded(summary: &str, markdown: &str) -> String {
    let within = if markdown.is_empty() { String::new() } else { format!("\n{markdown}\n\n") };
    format!("<details>\n<summary>{summary}</summary>\n{within}</details>")
}

fn value(value: &Value) -> String {
    match value {
        Value::String(text) => fenced("text", text),
        other => fenced("json", &format!("{other:#}")),
    }
}

/// ACP's content of a tool call where it is that, else whatever it is.
fn content(result: &Value) -> String {
    let items =
        result.as_array().filter(|items| !items.is_empty() && items.iter().all(|item| item["type"].is_string()));
    let Some(items) = items else { return value(result) };
    let shown = items.iter().map(|item| match item["type"].as_str() {
        Some("content") => match item["content"]["text"].as_str() {
            // What a tool wrote is no Markdown.
            Some(text) => fenced("text", text),
            None => block(&item["content"]),
        },
        Some("diff") => {
            let text = |field: &str| item[field].as_str().unwrap_or_default();
            format!("{}\n\n{}", inline(text("path")), fenced("diff", &diff(text("oldText"), text("newText"))))
        }
        _ => value(item),
    });
    shown.collect::<Vec<_>>().join("\n\n")
}

/// The lines that changed between two texts, and a few around them.
fn diff(old: &str, new: &str) -> String {
    let (before, after): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let alike = before.iter().zip(&after).take_while(|(one, other)| one == other).count();
    let (before, after) = (&before[alike..], &after[alike..]);
    let alike = before.iter().rev().zip(after.iter().rev()).take_while(|(one, other)| one == other).count();
    let (before, after) = (&before[..before.len() - alike], &after[..after.len() - alike]);
    if before.len().saturating_mul(after.len()) > DIFF_WORK_MAX {
        let removed = before.iter().map(|line| format!("-{line}\n"));
        return removed.chain(after.iter().map(|line| format!("+{line}\n"))).collect::<Vec<_>>().concat();
    }
    let diff = TextDiff::from_lines(old, new);
    diff.unified_diff().context_radius(CONTEXT_LINES).missing_newline_hint(false).to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_call_is_folded_with_all_that_belongs_to_it() {
        let result = json!([
            {"type": "content", "content": {"type": "text", "text": "</details>\n```"}},
            {"type": "content", "content": {"type": "image", "mimeType": "image/png", "size": 3, "sha256": "ab"}},
            {"type": "diff", "path": "a_b.rs", "oldText": "one\ntwo\n", "newText": "one\n2\n"},
            {"type": "terminal", "terminalId": "t1"},
        ]);
        let text = call("Edit <a>", "edit", &json!({"path": "a_b.rs"}), Some(("completed", &result, None)));
        insta::assert_snapshot!(text);
        assert_eq!(
            call("", "other", &Value::Null, None),
            "<details>\n<summary>Tool <code>a tool</code></summary>\n</details>"
        );
        let failed = call("x", "", &json!("ls"), Some(("failed", &Value::Null, Some("no"))));
        assert!(failed.contains("```text\nls\n```") && failed.contains("**Error**\n\n```text\nno\n```"), "{failed}");
    }

    #[test]
    fn what_takes_too_long_to_compare_is_told_as_a_whole() {
        let lines = |mark: &str| (0..3000).map(|number| format!("{mark}{number}\n")).collect::<Vec<_>>().concat();
        let (old, new) = (format!("same\n{}", lines("a")), format!("same\n{}", lines("b")));
        let told = diff(&old, &new);
        assert_eq!(told.lines().count(), 6000);
        assert!(told.starts_with("-a0\n") && told.ends_with("+b2999\n"));
        // A large text with a small change is no such thing.
        let told = diff(&old, &old.replace("a1500\n", "here\n"));
        assert!(told.contains("-a1500\n+here\n") && told.lines().count() < 12, "{told}");
    }
}
