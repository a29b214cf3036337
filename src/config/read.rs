//! Reads a configuration text and the environment into a [`Config`], collecting every problem instead of stopping at
//! the first.

use std::collections::BTreeMap;

use toml::{Table, Value};

use super::sections;
use super::value::FromValue;
use super::{Config, ConfigError, Problem};
use crate::model::permission::policy::PolicyProblem;

const ROOT: &str = "AGENT_WORKSPACE_ROOT";
const IDLE_TIMEOUT: &str = "AGENT_SESSION_IDLE_TIMEOUT";
pub const ENVIRONMENT_PREFIX: &str = "ACPD_";
const POLICY_HINT: &str = "write a mode, such as \"edit\", or a table: \
    { mode = \"edit\", rules = [{ decision = \"allow\", commands = [\"cargo test\"] }] }";

/// The whole way: text and environment in, a validated configuration or all problems out.
pub fn config(text: &str, source: &str, environment: &BTreeMap<String, String>) -> Result<Config, ConfigError> {
    let failed = |problems| ConfigError { source_name: source.to_owned(), problems };
    let mut table = text.parse::<Table>().map_err(|error| {
        failed(vec![Problem {
            key: source.to_owned(),
            message: format!("is not valid TOML{}: {}", place(text, &error), error.message()),
            hint: "compare it with the output of `acpd config --default`".to_owned(),
        }])
    })?;
    let mut problems = Vec::new();
    let variables = overlay_environment(&mut table, environment, &mut problems);

    let mut config = Config::default();
    let mut root = Section { path: String::new(), table, known: Vec::new(), problems: &mut problems };
    sections::read(&mut root, &mut config);
    root.finish();
    let mut others = Vec::new();
    sections::check(&config, &mut others);
    // A key that could not be read has its default, of which nothing need be said.
    others.retain(|other| problems.iter().all(|problem| problem.key != other.key));
    problems.extend(others);
    for problem in &mut problems {
        if let Some(name) = variables.get(&problem.key) {
            problem.message = format!("{} (from the environment variable {name})", problem.message);
        }
    }
    if problems.is_empty() { Ok(config) } else { Err(failed(problems)) }
}

/// The keys that a text and the environment set, before they are checked. Nothing of a text that is not TOML.
pub fn table(text: &str, environment: &BTreeMap<String, String>) -> Option<Table> {
    let mut table = text.parse::<Table>().ok()?;
    overlay_environment(&mut table, environment, &mut Vec::new());
    Some(table)
}

/// Where the text stops to be TOML. The library would show the line itself, and a key may stand in it.
fn place(text: &str, error: &toml::de::Error) -> String {
    let Some(before) = error.span().and_then(|span| text.get(..span.start)) else {
        return String::new();
    };
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().map_or(0, |rest| rest.chars().count()) + 1;
    format!(" at line {line}, column {column}")
}

/// `ACPD_LIMITS_PROCESSES=5` is `limits.processes = 5`. The value is TOML where it parses as such, else a text. Returns
/// which variable set which key.
fn overlay_environment<'a>(
    table: &mut Table,
    environment: &'a BTreeMap<String, String>,
    problems: &mut Vec<Problem>,
) -> BTreeMap<String, &'a str> {
    let mut variables = BTreeMap::new();
    let mut set = |name, section: &str, key: &str, value| {
        variables.insert(format!("{section}.{key}"), name);
        set(table, section, key, value, problems);
    };
    for (name, text) in environment {
        let Some(rest) = name.strip_prefix(ENVIRONMENT_PREFIX) else {
            continue;
        };
        let path = rest.to_lowercase();
        // Only names that begin with a section are settings; ACPD_SOCKET and its like are flags, and others not ours.
        let Some((section, key)) = path.split_once('_').filter(|(section, _)| sections::NAMES.contains(section)) else {
            continue;
        };
        set(name.as_str(), section, key, environment_value(text));
    }
    // Service managers pass an empty variable for one that is not set.
    let given = |name| environment.get(name).map(|text| text.trim()).filter(|text| !text.is_empty());
    if let Some(root) = given(ROOT) {
        set(ROOT, "workspace", "roots", Value::Array(vec![Value::String(root.to_owned())]));
    }
    if let Some(minutes) = given(IDLE_TIMEOUT) {
        // A plain number is one of minutes; anything else is read as the key itself would be.
        let timeout = minutes.parse::<u32>().map_or_else(|_| minutes.to_owned(), |minutes| format!("{minutes}m"));
        set(IDLE_TIMEOUT, "sessions", "idle_timeout", Value::String(timeout));
    }
    variables
}

fn environment_value(text: &str) -> Value {
    format!("value = {text}")
        .parse::<Table>()
        .ok()
        .and_then(|mut table| table.remove("value"))
        .unwrap_or_else(|| Value::String(text.to_owned()))
}

fn set(table: &mut Table, section: &str, key: &str, value: Value, problems: &mut Vec<Problem>) {
    let entry = table.entry(section).or_insert_with(|| Value::Table(Table::new()));
    match entry {
        Value::Table(section) => {
            section.insert(key.to_owned(), value);
        }
        _ => problems.push(Problem {
            key: section.to_owned(),
            message: "is not a table".to_owned(),
            hint: format!("write it as a section: [{section}]"),
        }),
    }
}

/// A table being read: keys are taken out one by one, and what is left at the end is unknown.
pub struct Section<'a> {
    path: String,
    table: Table,
    known: Vec<&'static str>,
    problems: &'a mut Vec<Problem>,
}

impl Section<'_> {
    /// Reads `key` into `target`, when it is there and of the right type.
    pub fn read<T: FromValue>(&mut self, key: &'static str, target: &mut T) {
        self.known.push(key);
        let Some(value) = self.table.remove(key) else { return };
        let shown = if T::IS_SECRET { String::new() } else { format!(" {value}") };
        match T::from_value(value) {
            Some(value) => *target = value,
            None => self.problem(key, format!("has an invalid value{shown}"), T::EXPECTED),
        }
    }

    /// Reads `key` with `read`, which says what is wrong with the value and where in it.
    pub fn read_as<T>(
        &mut self,
        key: &'static str,
        target: &mut T,
        read: impl FnOnce(Value) -> Result<T, PolicyProblem>,
    ) {
        self.known.push(key);
        match self.table.remove(key).map(read) {
            None => {}
            Some(Ok(value)) => *target = value,
            Some(Err(PolicyProblem { field, problem })) => {
                let key = match field.as_str() {
                    "" => key.to_owned(),
                    field if field.starts_with('[') => format!("{key}{field}"),
                    field => format!("{key}.{field}"),
                };
                self.problem(&key, problem, POLICY_HINT);
            }
        }
    }

    /// Reads the table `key` with `read`, when it is there.
    pub fn section(&mut self, key: &'static str, read: impl FnOnce(&mut Section<'_>)) {
        self.known.push(key);
        if let Some(value) = self.table.remove(key) {
            self.enter(key, value, read);
        }
    }

    /// Reads every table that is left as `read(name, section)`, for sections with names of the user's choice.
    pub fn named_sections(&mut self, mut read: impl FnMut(&str, &mut Section<'_>)) {
        for (name, value) in std::mem::take(&mut self.table) {
            self.enter(&name, value, |section| read(&name, section));
        }
    }

    /// The same of a section that has keys of its own: what is no table is left to those.
    pub fn named_tables(&mut self, read: impl FnMut(&str, &mut Section<'_>)) {
        let (tables, keys) = std::mem::take(&mut self.table).into_iter().partition(|(_, value)| value.is_table());
        self.table = tables;
        self.named_sections(read);
        self.table = keys;
    }

    pub fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    pub fn problem(&mut self, key: &str, message: impl Into<String>, hint: impl Into<String>) {
        let key = self.key_path(key);
        self.problems.push(Problem { key, message: message.into(), hint: hint.into() });
    }

    fn enter(&mut self, key: &str, value: Value, read: impl FnOnce(&mut Section<'_>)) {
        let Value::Table(table) = value else {
            self.problem(key, "is not a table", format!("write it as a section: [{}]", self.key_path(key)));
            return;
        };
        let mut section = Section { path: self.key_path(key), table, known: Vec::new(), problems: self.problems };
        read(&mut section);
        section.finish();
    }

    /// Whatever nobody asked for is a mistake: a typo must not silently leave a default in force.
    fn finish(mut self) {
        for (key, _) in std::mem::take(&mut self.table) {
            let hint = format!("known keys are {}", self.known.join(", "));
            self.problem(&key, "is not a known key", hint);
        }
    }

    fn key_path(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn read(text: &str, environment: &[(&str, &str)]) -> Result<Config, ConfigError> {
        let environment = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        config(text, "config.toml", &environment)
    }

    #[test]
    fn the_shipped_file_is_the_default_and_has_every_key() {
        let text = super::super::DEFAULT_TEXT;
        assert_eq!(read(text, &[]).unwrap(), Config::default());

        // Every key is there: a file with nothing but unknown keys makes the reader name all that it knows. The keys of
        // agents are explained with the first of them, and the others give what is theirs.
        let shipped = text.parse::<Table>().unwrap();
        for (section, value) in &shipped {
            let names: Vec<String> = match section.as_str() {
                "agents" => {
                    let slugs: Vec<&String> = value.as_table().unwrap().keys().collect();
                    assert!(Config::default().agents.keys().all(|slug| slugs.contains(&slug)), "{slugs:?}");
                    vec!["agents.gemini".to_owned()]
                }
                section => vec![section.to_owned()],
            };
            for name in names {
                let error = read(&format!("[{name}]\nnonsense = 1\n"), &[]).unwrap_err();
                let known = error.problems[0].hint.strip_prefix("known keys are ").unwrap();
                let mut table = &shipped;
                for part in name.split('.') {
                    table = table[part].as_table().unwrap();
                }
                for key in known.split(", ") {
                    assert!(table.contains_key(key), "config.toml lacks {name}.{key}");
                }
            }
        }
        for section in sections::NAMES {
            assert!(shipped.contains_key(section), "config.toml lacks [{section}]");
        }
    }

    #[test]
    fn all_problems_are_told_at_once() {
        let error = read(
            "[limits]\nprocesses = \"five\"\nline_max = \"32MB\"\n[sesions]\nqueue = 1\n[agents.mine]\nargs = [1]\n",
            &[("ACPD_CONTROL_CONNECTIONS", "0")],
        )
        .unwrap_err();
        insta::assert_snapshot!(error);
    }

    #[test]
    fn a_problem_does_not_show_what_may_be_a_key() {
        let error = read("[agents.mine]\ncommand = \"x\"\nenv = \"KEY=hidden\"\n", &[]).unwrap_err();
        assert_eq!(error.in_one_line(), "agents.mine.env: has an invalid value");
        let error = read("[agents.mine]\nenv = { KEY = \"hidden }\n", &[]).unwrap_err();
        let problem = error.in_one_line();
        assert!(problem.starts_with("config.toml: is not valid TOML at line 2, column "), "{problem}");
        assert!(!problem.contains("hidden"), "{problem}");
    }

    #[test]
    fn the_environment_wins_over_the_file() {
        let config = read(
            "[limits]\nprocesses = 7\n[workspace]\nroots = [\"/srv\"]\n",
            &[
                ("ACPD_LIMITS_PROCESSES", "9"),
                ("ACPD_PROCESSES_EOF_GRACE", "3s"),
                ("AGENT_WORKSPACE_ROOT", "/work"),
                ("ACPD_SOCKET", "/run/x.sock"),
            ],
        )
        .unwrap();
        assert_eq!(config.limits.processes, 9);
        assert_eq!(config.processes.eof_grace.as_secs(), 3);
        assert_eq!(config.workspace.roots, [PathBuf::from("/work")]);
    }

    #[test]
    fn a_built_in_agent_can_be_changed_and_a_new_one_added() {
        let config =
            read("[agents.gemini]\nargs = [\"--acp\", \"--debug\"]\n[agents.mine]\ncommand = \"/opt/mine\"\n", &[])
                .unwrap();
        assert_eq!(config.agents["gemini"].args, ["--acp", "--debug"]);
        assert_eq!(config.agents["gemini"].command, "gemini");
        assert_eq!(config.agents["mine"].name, "mine");
        assert!(config.agents.contains_key("demo"));
    }
}
