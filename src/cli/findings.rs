//! What was looked at and how it is: one line each, with what to do about it below.

use serde::Serialize;

use super::exit::Exit;
use super::output::Output;
use super::style::Style;
use super::text::{clean, columns, one_line};

/// A name is not given more room than this; longer ones push their line.
const NAME_COLUMNS_MAX: usize = 14;
/// Text is not made narrower than this, however narrow the terminal is.
const TEXT_COLUMNS_MIN: usize = 20;
const HINT: &str = "hint: ";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    Ok,
    /// Worth knowing, and nothing to do about it.
    Note,
    Warning,
    Problem,
}

/// One thing that was looked at.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    pub group: &'static str,
    pub check: String,
    pub status: Status,
    pub message: String,
    /// What to do about it; empty when there is nothing to do.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub hint: String,
}

impl Finding {
    pub fn ok(check: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(Status::Ok, check, message, "")
    }

    pub fn note(check: impl Into<String>, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(Status::Note, check, message, hint)
    }

    pub fn warning(check: impl Into<String>, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(Status::Warning, check, message, hint)
    }

    pub fn problem(check: impl Into<String>, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(Status::Problem, check, message, hint)
    }

    pub fn new(status: Status, check: impl Into<String>, message: impl Into<String>, hint: impl Into<String>) -> Self {
        let (check, message, hint) = (check.into(), message.into(), hint.into());
        Self { group: "", check, status, message, hint }
    }

    pub fn within(self, group: &'static str) -> Self {
        Self { group, ..self }
    }
}

/// Only a problem is a failure: whoever is warned can work.
pub fn exit(findings: &[Finding]) -> Exit {
    if findings.iter().any(|finding| finding.status == Status::Problem) { Exit::Error } else { Exit::Ok }
}

/// All of them, under their groups.
pub fn render(findings: &[Finding], output: Output) -> String {
    let sheet = Sheet::new(findings, output);
    let mut lines = Vec::new();
    let mut group = "";
    for finding in findings {
        if finding.group != group {
            if !lines.is_empty() {
                lines.push(String::new());
            }
            group = finding.group;
            lines.push(output.style.bold(group));
        }
        sheet.add(finding, &mut lines);
    }
    lines.join("\n")
}

/// How many of each there are, in one line.
pub fn summary(findings: &[Finding], style: Style) -> String {
    let count = |status: Status| findings.iter().filter(|finding| finding.status == status).count();
    let some = |count: usize, one: &str, more: &str| match count {
        0 => None,
        1 => Some(format!("1 {one}")),
        count => Some(format!("{count} {more}")),
    };
    let problems = some(count(Status::Problem), "problem", "problems").map(|text| style.red(&text));
    let warnings = some(count(Status::Warning), "warning", "warnings").map(|text| style.yellow(&text));
    let fine = some(count(Status::Ok) + count(Status::Note), "check passed", "checks passed");
    let parts: Vec<String> = [problems, warnings, fine].into_iter().flatten().collect();
    parts.join(", ")
}

struct Sheet {
    style: Style,
    marks: [&'static str; 4],
    names: usize,
    width: Option<usize>,
}

impl Sheet {
    fn new(findings: &[Finding], output: Output) -> Self {
        let longest = findings.iter().map(|finding| columns(&finding.check)).max().unwrap_or(0);
        let marks = if is_utf8() { ["✓", "·", "!", "✗"] } else { ["+", "-", "!", "x"] };
        Self { style: output.style, marks, names: longest.min(NAME_COLUMNS_MAX), width: output.width() }
    }

    fn add(&self, finding: &Finding, lines: &mut Vec<String>) {
        let [fine, note, warning, problem] = self.marks;
        let mark = match finding.status {
            Status::Ok => self.style.green(fine),
            Status::Note => self.style.dim(note),
            Status::Warning => self.style.yellow(warning),
            Status::Problem => self.style.red(problem),
        };
        let name = one_line(&finding.check);
        let padding = " ".repeat(self.names.saturating_sub(columns(&name)));
        // The mark, the gaps around it, the name and the gap after it.
        let indent = 4 + self.names + 2;
        let mut texts = self.wrapped(&finding.message, indent).into_iter();
        let first = texts.next().unwrap_or_default();
        lines.push(format!("  {mark} {name}{padding}  {first}").trim_end().to_owned());
        let margin = " ".repeat(indent);
        lines.extend(texts.map(|text| format!("{margin}{text}")));
        if !finding.hint.is_empty() {
            let mut hints = self.wrapped(&finding.hint, indent + HINT.len()).into_iter();
            lines.push(format!("{margin}{}{}", self.style.yellow(HINT), hints.next().unwrap_or_default()));
            lines.extend(hints.map(|text| format!("{margin}{}{text}", " ".repeat(HINT.len()))));
        }
    }

    /// The text in lines of what is left of the width; its own line ends stay. A word that is longer than a line stays whole,
    /// so that a path can be copied.
    fn wrapped(&self, text: &str, indent: usize) -> Vec<String> {
        let room = self.width.map(|width| width.saturating_sub(indent).max(TEXT_COLUMNS_MIN));
        let text = clean(text);
        text.lines()
            .filter(|line| !line.trim().is_empty())
            .flat_map(|line| wrap(&line.replace('\t', " "), room))
            .collect()
    }
}

fn wrap(line: &str, room: Option<usize>) -> Vec<String> {
    let Some(room) = room else { return vec![line.trim_end().to_owned()] };
    let mut lines = Vec::new();
    let mut current = String::new();
    for word in line.split_whitespace() {
        if !current.is_empty() && columns(&current) + 1 + columns(word) > room {
            lines.push(std::mem::take(&mut current));
        }
        if !current.is_empty() {
            current.push(' ');
        }
        current.push_str(word);
    }
    lines.push(current);
    lines
}

/// Whether the locale says that its characters are UTF-8.
pub fn is_utf8() -> bool {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let locale = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG"));
    // Nothing at all is no word against it: services and scripts have none, and their readers do UTF-8.
    locale.is_none_or(|locale| {
        let locale = locale.to_ascii_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_kept_whole_and_lines_within_their_room() {
        let text = "a daemon that serves /a/very/long/path/that/nobody/breaks and its socket";
        assert_eq!(
            wrap(text, Some(20)),
            ["a daemon that serves", "/a/very/long/path/that/nobody/breaks", "and its socket"]
        );
        assert_eq!(wrap(text, None), [text]);
        assert_eq!(wrap("日本語 日本語", Some(8)), ["日本語", "日本語"]);
    }

    #[test]
    fn the_summary_counts_what_matters_first() {
        let findings = [
            Finding::ok("a", ""),
            Finding::note("b", "", ""),
            Finding::problem("c", "", ""),
            Finding::warning("d", "", ""),
        ];
        assert_eq!(summary(&findings, Style::plain()), "1 problem, 1 warning, 2 checks passed");
        assert_eq!(summary(&findings[..1], Style::plain()), "1 check passed");
        assert_eq!((exit(&findings), exit(&findings[3..])), (Exit::Error, Exit::Ok));
    }
}
