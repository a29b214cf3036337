//! The document is whole, current and true.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use super::failures;
use super::generated::{TAGS, document};

/// Set, `docs/openapi.json` is written anew instead of compared.
const UPDATE: &str = "ACPD_UPDATE_OPENAPI";

fn operations(document: &Value) -> Vec<(String, String, Value)> {
    let paths = document["paths"].as_object().unwrap();
    let operations = paths.iter().flat_map(|(path, item)| {
        let methods = item.as_object().unwrap().iter();
        methods.map(move |(method, operation)| (path.clone(), method.clone(), operation.clone()))
    });
    operations.collect()
}

#[test]
fn the_document_that_is_checked_in_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/openapi.json");
    let current = format!("{}\n", serde_json::to_string_pretty(&document()).unwrap());
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(&path, &current).unwrap();
    }
    let checked_in = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        checked_in == current,
        "docs/openapi.json is not current: {UPDATE}=1 cargo test --bin acpd openapi writes it"
    );
}

#[test]
fn every_operation_says_what_it_is_and_what_it_can_be_refused_with() {
    let document = document();
    let (mut names, tags) = (BTreeSet::new(), TAGS.iter().map(|(tag, _)| *tag).collect::<BTreeSet<_>>());
    for (path, method, operation) in operations(&document) {
        let name = operation["operationId"].as_str().unwrap_or_default().to_owned();
        assert!(!failures::of(&name).is_empty(), "{name} ({method} {path}) has no row in failures.rs");
        assert!(operation["summary"].as_str().is_some_and(|summary| !summary.is_empty()), "{name} has no summary");
        let tag = operation["tags"][0].as_str().unwrap_or_default();
        assert!(tags.contains(tag), "{name} has the tag {tag:?}, which TAGS does not have");
        assert!(names.insert(name.clone()), "{name} is there twice");
        let named: Vec<&str> = path.split(['{', '}']).skip(1).step_by(2).collect();
        let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
        let described = parameters.iter().filter(|parameter| parameter["in"] == "path");
        let described: Vec<&str> = described.filter_map(|parameter| parameter["name"].as_str()).collect();
        assert_eq!(named, described, "{name}: the parameters of its path");
        for parameter in &parameters {
            assert!(parameter["description"].is_string(), "{name}: {} has no description", parameter["name"]);
        }
    }
}

#[test]
fn every_reference_leads_somewhere() {
    fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
        match value {
            Value::Object(fields) => {
                found.extend(fields.get("$ref").and_then(Value::as_str));
                fields.values().for_each(|value| references(value, found));
            }
            Value::Array(values) => values.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }
    let document = document();
    let mut found = Vec::new();
    references(&document, &mut found);
    for reference in found {
        assert!(document.pointer(reference.trim_start_matches('#')).is_some(), "{reference} leads nowhere");
    }
}

#[test]
fn what_requests_may_say_is_closed() {
    let document = document();
    for (path, method, operation) in operations(&document) {
        let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
        let alternatives = schema["oneOf"].as_array().cloned().unwrap_or_else(|| vec![schema.clone()]);
        for reference in alternatives.iter().filter_map(|schema| schema["$ref"].as_str()) {
            let schema = document.pointer(reference.trim_start_matches('#')).unwrap();
            assert_eq!(schema["additionalProperties"], false, "{method} {path}: {reference}");
        }
    }
}

/// Codes as they stand in the source of the errors: the text that follows a status.
fn codes_in_source() -> BTreeSet<String> {
    let control = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/control");
    let mut files = vec![control.join("error.rs")];
    files.extend(std::fs::read_dir(control.join("error")).into_iter().flatten().map(|entry| entry.unwrap().path()));
    let sources = files.iter().filter_map(|file| std::fs::read_to_string(file).ok());
    let is_code = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    let codes = sources.flat_map(|source| {
        let words: Vec<String> = source.split('"').map(str::to_owned).collect();
        let pairs = words.windows(2).enumerate().filter(|(index, _)| index % 2 == 0);
        let after_status = pairs.filter(|(_, pair)| {
            let before = pair[0].trim_end();
            let name = before.trim_end_matches(',').rsplit("::").next().unwrap_or_default();
            before.ends_with(',')
                && !name.is_empty()
                && name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_')
        });
        after_status.map(|(_, pair)| pair[1].clone()).filter(|code| is_code(code)).collect::<Vec<_>>()
    });
    codes.collect()
}

#[test]
fn the_codes_of_errors_are_described_in_the_document_and_in_the_docs() {
    let known: BTreeSet<String> = failures::CODES.iter().map(|(code, _)| (*code).to_owned()).collect();
    assert_eq!(codes_in_source(), known, "left: src/control/error.rs, right: CODES in openapi/failures.rs");
    let docs = include_str!("../../../docs/api.md");
    let (_, section) = docs.split_once("\n## Errors\n").unwrap();
    let rows = section.split("\n## ").next().unwrap().lines().filter(|line| line.starts_with('|'));
    let is_code = |text: &&str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    let told: BTreeSet<String> =
        rows.flat_map(|row| row.split('`').skip(1).step_by(2)).filter(is_code).map(str::to_owned).collect();
    let told: BTreeSet<String> = told.into_iter().filter(|word| word != "error").collect();
    assert_eq!(told, known, "left: the table in docs/api.md, right: CODES in openapi/failures.rs");
    for code in operations(&document()).iter().flat_map(|(_, _, operation)| {
        failures::of(operation["operationId"].as_str().unwrap_or_default()).into_iter().map(|(_, code)| code)
    }) {
        assert!(known.contains(code), "{code} has no meaning in CODES");
    }
}
