//! docs/specifications.md maps the names of five specifications to those of acpd. Every code span on it, except in the first
//! column of a table, names something of acpd, and must exist.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

use pulldown_cmark::{Event, HeadingLevel, Tag, TagEnd};
use serde_json::Value;

use crate::documents::{Page, root};

const PAGE: &str = "docs/specifications.md";
/// Event names that one of the specifications reserves. No event of acpd may have one, in either spelling.
const RESERVED: [&str; 3] = ["agent:directive_injected", "agent:context_compacted", "agent:context_cleared"];
/// The first headings of the tables on the page. The column below has no names of acpd.
const FOREIGN_COLUMNS: [&str; 6] = ["document", "S0", "S1", "S2", "S3", "S4"];

/// The section of docs/events.md about one event: the fields of its table, and all of its code spans.
#[derive(Debug, Default)]
struct KnownEvent {
    fields: BTreeSet<String>,
    spans: BTreeSet<String>,
}

/// What exists in acpd, from files that other tests compare with the code.
struct Known {
    /// docs/openapi.json.
    api: Value,
    /// docs/events.md.
    events: BTreeMap<String, KnownEvent>,
    config: toml::Table,
    migrations: String,
    /// The source of the MCP tools.
    tools: String,
    /// Pages that explain variables and placeholders.
    pages: String,
}

impl Known {
    fn read() -> Self {
        let read = |name: &str| fs::read_to_string(root().join(name)).unwrap();
        let migrations = fs::read_dir(root().join("migrations")).unwrap().map(|entry| entry.unwrap().path());
        let migrations = migrations.filter(|path| path.to_str().unwrap().ends_with(".up.sql"));
        Self {
            api: serde_json::from_str(&read("docs/openapi.json")).unwrap(),
            events: known_events(&Page::read("docs/events.md")),
            config: read("config.toml").parse().unwrap(),
            migrations: migrations.map(|path| fs::read_to_string(path).unwrap()).collect(),
            tools: read("src/cli/command/mcp/tool.rs"),
            pages: ["config.toml", "docs/configuration.md", "docs/api.md"].map(read).concat(),
        }
    }

    /// Whether a code span names something that exists. The page describes the spellings.
    fn check(&self, span: &str) -> Result<(), String> {
        let (first, rest) = span.split_once(' ').unwrap_or((span, ""));
        let is_upper = |text: &str| text.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
        if rest.starts_with('/') && is_upper(first) {
            return self.check_route(first, rest);
        }
        let (name, value) = span.split_once(": ").map_or((span, None), |(name, value)| (name, Some(value)));
        let exists = match first {
            "acpd" => return check_command(rest),
            "table" => self.migrations.contains(&format!("CREATE TABLE {rest} (")),
            _ if first.bytes().all(|byte| byte.is_ascii_digit()) => self.refuses_with(first, rest),
            _ if span.starts_with('{') || is_upper(span) => self.pages.contains(&format!("`{span}`")),
            _ if span.starts_with(|letter: char| letter.is_ascii_uppercase()) => self.has_property(name, value),
            _ if name.contains('.') => self.has_event(name, value) || (value.is_none() && self.has_key(name)),
            _ => self.has_tool(span) || self.refuses_with("", span),
        };
        if exists { Ok(()) } else { Err("does not exist".to_owned()) }
    }

    /// `GET /v1/sessions?status=` or `POST /v1/sessions {"workspace":"…"}`: the route, its parameters, the fields of its body.
    fn check_route(&self, method: &str, rest: &str) -> Result<(), String> {
        let (place, body) =
            rest.split_once(" {").map_or((rest, None), |(place, body)| (place, Some(format!("{{{body}"))));
        let (path, query) = place.split_once('?').unwrap_or((place, ""));
        let parts = |path: &str| -> Vec<String> {
            path.split('/').map(|part| if part.starts_with('{') { "{}" } else { part }.to_owned()).collect()
        };
        let paths = self.api["paths"].as_object().unwrap();
        let found = paths.iter().find(|(known, _)| parts(known) == parts(path));
        let (_, item) = found.ok_or_else(|| format!("there is no route {path}"))?;
        let operation = item.get(method.to_lowercase()).ok_or_else(|| format!("{path} has no {method}"))?;
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            let (name, value) = parameter.split_once('=').ok_or_else(|| format!("{parameter} is no parameter"))?;
            let known = operation["parameters"].as_array().into_iter().flatten().find(|known| known["name"] == name);
            let known = known.ok_or_else(|| format!("{method} {path} has no parameter {name}"))?;
            let schemas = self.parts(&known["schema"]);
            let has_value = |schema: &&Value| schema.get("enum").is_none_or(|all| is_one_of(all, value));
            if !value.is_empty() && !schemas.iter().all(has_value) {
                return Err(format!("{name} cannot be {value}"));
            }
        }
        let Some(body) = body else { return Ok(()) };
        let body: BTreeMap<String, Value> = serde_json::from_str(&body).map_err(|error| error.to_string())?;
        let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
        let unknown = body.keys().find(|field| self.properties(schema, field).is_empty());
        unknown.map_or(Ok(()), |field| Err(format!("the body of {method} {path} has no {field}")))
    }

    /// A schema with what it refers to, its alternatives and the entries of a list.
    fn parts<'a>(&'a self, schema: &'a Value) -> Vec<&'a Value> {
        let referred = schema["$ref"].as_str().map(|target| self.api.pointer(&target[1..]).unwrap());
        let lists = ["allOf", "oneOf"].into_iter().filter_map(|key| schema[key].as_array()).flatten();
        let inner = referred.into_iter().chain(lists).chain(schema.get("items"));
        std::iter::once(schema).chain(inner.flat_map(|schema| self.parts(schema))).collect()
    }

    fn properties<'a>(&'a self, schema: &'a Value, name: &str) -> Vec<&'a Value> {
        self.parts(schema).into_iter().filter_map(|part| part["properties"].get(name)).collect()
    }

    /// `Session.context.gitRef`, or with a value of an enumeration: `Session.status: active`.
    fn has_property(&self, path: &str, value: Option<&str>) -> bool {
        let (schema, fields) = path.split_once('.').map_or((path, None), |(schema, fields)| (schema, Some(fields)));
        let mut found: Vec<&Value> = self.api["components"]["schemas"].get(schema).into_iter().collect();
        for field in fields.into_iter().flat_map(|fields| fields.split('.')) {
            found = found.into_iter().flat_map(|schema| self.properties(schema, field)).collect();
        }
        let values = || found.iter().flat_map(|schema| self.parts(schema));
        !found.is_empty() && value.is_none_or(|value| values().any(|schema| is_one_of(&schema["enum"], value)))
    }

    /// `turn.completed`, a field of its `data` as `turn.completed.status`, or with a value: `turn.completed.status: failed`.
    fn has_event(&self, name: &str, value: Option<&str>) -> bool {
        if let Some((event, field)) = name.rsplit_once('.')
            && let Some(event) = self.events.get(event)
        {
            return event.fields.contains(field) && value.is_none_or(|value| event.spans.contains(value));
        }
        value.is_none() && self.events.contains_key(name)
    }

    /// `limits.processes`, or a key of a profile as `agents.NAME.model`.
    fn has_key(&self, path: &str) -> bool {
        let mut names = path.split('.').map(|name| if name == "NAME" { "gemini" } else { name });
        let mut found = names.next().and_then(|name| self.config.get(name));
        for name in names {
            found = found.and_then(|value| value.get(name));
        }
        found.is_some()
    }

    /// `restore_checkpoint`, or with arguments: `restore_checkpoint(name, session_id)`.
    fn has_tool(&self, span: &str) -> bool {
        let (tool, arguments) = span.split_once('(').unwrap_or((span, ")"));
        let names = || arguments.trim_end_matches(')').split(", ").filter(|name| !name.is_empty());
        let is_tool = self.tools.contains(&format!("=> \"{tool}\","));
        is_tool && arguments.ends_with(')') && names().all(|name| self.tools.contains(&format!("\"{name}\": ")))
    }

    /// `409 session_archived`: a code that a route returns with this status, or the code of an error of a turn.
    fn refuses_with(&self, status: &str, code: &str) -> bool {
        let mut responses = self.api["components"]["responses"].as_object().unwrap().keys();
        let is_there = |name: &String| {
            let (known, codes) = name.split_once('.').unwrap();
            (status.is_empty() || status == known) && codes.split('.').any(|known| known == code)
        };
        responses.any(is_there) || (status.is_empty() && self.has_property("TurnErrorCode", Some(code)))
    }
}

fn is_one_of(all: &Value, value: &str) -> bool {
    all.as_array().is_some_and(|all| all.iter().any(|known| known == value))
}

/// A command that acpd has, with options that it has. Words in capitals stand for arguments.
fn check_command(line: &str) -> Result<(), String> {
    let is_name =
        |word: &&str| word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-') && !word.starts_with('-');
    let names = line.split(' ').take_while(is_name);
    let output = Command::new(env!("CARGO_BIN_EXE_acpd")).args(names).arg("--help").output().unwrap();
    let help = String::from_utf8_lossy(&output.stdout).replace([',', '[', ']'], " ");
    let mut options = line.split(' ').filter(|word| word.starts_with("--"));
    match options.find(|option| !help.split_whitespace().any(|word| word == *option)) {
        _ if !output.status.success() => Err("acpd has no such command".to_owned()),
        Some(option) => Err(format!("the command has no {option}")),
        None => Ok(()),
    }
}

/// The events of docs/events.md: a heading each, with a table of the fields.
fn known_events(page: &Page) -> BTreeMap<String, KnownEvent> {
    let (mut events, mut name): (BTreeMap<String, KnownEvent>, String) = (BTreeMap::new(), String::new());
    let (mut is_heading, mut column) = (false, None);
    for (event, _) in page.events() {
        match event {
            Event::Start(Tag::Heading { level: HeadingLevel::H2, .. }) => is_heading = true,
            Event::End(TagEnd::Heading(_)) => is_heading = false,
            Event::Start(Tag::TableRow) => column = Some(0),
            Event::End(TagEnd::TableCell) => column = column.map(|column| column + 1),
            Event::Code(text) if is_heading => {
                name = text.to_string();
                events.entry(name.clone()).or_default();
            }
            Event::Code(text) if !name.is_empty() => {
                let known = events.get_mut(&name).unwrap();
                known.spans.insert(text.to_string());
                if column == Some(0) {
                    known.fields.insert(text.to_string());
                }
            }
            _ => {}
        }
    }
    events
}

/// The code spans of a page that name something of acpd: all but those in the first column of a table.
fn own_spans(page: &Page) -> Vec<(usize, String)> {
    let (mut spans, mut column) = (Vec::new(), None);
    for (event, range) in page.events() {
        match event {
            Event::Start(Tag::TableHead | Tag::TableRow) => column = Some(0),
            Event::End(TagEnd::Table) => column = None,
            Event::End(TagEnd::TableCell) => column = column.map(|column: usize| column + 1),
            Event::Code(text) if column != Some(0) => spans.push((page.line_of(range.start), text.to_string())),
            _ => {}
        }
    }
    spans
}

#[test]
fn what_the_specifications_page_names_of_acpd_exists() {
    let (known, page) = (Known::read(), Page::read(PAGE));
    let heads = page.text.lines().zip(page.text.lines().skip(1)).filter(|(_, rule)| rule.starts_with("|---"));
    for (head, _) in heads {
        let first = head.split('|').nth(1).unwrap().trim();
        assert!(FOREIGN_COLUMNS.contains(&first), "{first:?}: the first column must have the names of a document");
    }
    let spans = own_spans(&page);
    assert!(spans.len() > 200, "only {} code spans were found", spans.len());
    let wrong = spans.into_iter().filter_map(|(line, span)| {
        let problem = known.check(&span).err()?;
        Some(format!("{PAGE}:{line}: `{span}`: {problem}"))
    });
    let wrong: Vec<String> = wrong.collect();
    assert!(wrong.is_empty(), "names of acpd that are wrong:\n{}", wrong.join("\n"));
}

#[test]
fn no_event_has_a_reserved_name() {
    let (known, page) = (Known::read(), Page::read(PAGE));
    for name in RESERVED {
        assert!(page.text.contains(&format!("`{name}`")), "{PAGE} does not list {name}");
        let is_taken = [name.to_owned(), name.replace(':', ".")].iter().any(|name| known.events.contains_key(name));
        assert!(!is_taken, "docs/events.md has {name}");
    }
}

#[test]
fn a_wrong_name_on_the_specifications_page_is_found() {
    let known = Known::read();
    let right = [
        "GET /v1/sessions/{id}",
        "GET /v1/sessions?workspaceId=&limit=",
        "GET /v1/sessions/{id}/export?format=workflow",
        "POST /v1/sessions {\"workspace\":\"…\"}",
        "409 session_archived",
        "session_archived",
        "turn_limit",
        "Session",
        "Session.context.gitRef",
        "Session.status: archived",
        "turn.completed",
        "turn.completed.status: failed",
        "limits.processes",
        "agents.NAME.model",
        "acpd rm SESSION --purge",
        "table sessions",
        "AGENT_WORKSPACE_ROOT",
        "{workspace}",
        "restore_checkpoint(name, session_id)",
    ];
    let wrong = [
        "GET /v1/session/{id}",
        "PUT /v1/sessions/{id}",
        "GET /v1/sessions?repoId=",
        "GET /v1/sessions/{id}/export?format=html",
        "POST /v1/sessions {\"repoId\":\"…\"}",
        "404 session_archived",
        "40 session_archived",
        "session_gone",
        "Repo",
        "Session.repoId",
        "Session.status: cancelled",
        "step.started",
        "turn.completed.reason",
        "turn.completed.status: cancel",
        "limits.sessions",
        "agents.NAME.fallback",
        "acpd sessions",
        "acpd rm SESSION --now",
        "table agent_sessions",
        "AGENT_WORKSPACE",
        "{repo}",
        "restore_checkpoint(key)",
        "session_id",
        "active",
    ];
    for span in right {
        assert_eq!(known.check(span), Ok(()), "{span}");
    }
    for span in wrong {
        assert!(known.check(span).is_err(), "{span}");
    }
}
