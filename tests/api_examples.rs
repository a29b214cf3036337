//! Every route has an example in docs/api.md. `tests/documented_commands.rs` runs the examples.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod documents;

use documents::Page;
use serde_json::Value;

/// The `sh` blocks, in order.
fn examples() -> String {
    let blocks = Page::read("docs/api.md").blocks().into_iter().filter(|block| block.language == "sh");
    blocks.map(|block| block.text).collect()
}

/// The requests of the examples: method and path, as far as a shell has not filled it in.
fn requests(examples: &str) -> Vec<(String, String)> {
    let whole = examples.replace("\\\n", " ");
    let requests = whole.lines().filter_map(|line| {
        let (_, rest) = line.split_once("http://acpd")?;
        let path: String = rest.chars().take_while(|character| !" '\"?)".contains(*character)).collect();
        let words: Vec<&str> = line.split_whitespace().collect();
        let named = words.windows(2).find(|pair| pair[0] == "-X").map(|pair| pair[1].to_owned());
        let has_body = words.contains(&"--data");
        let method = named.unwrap_or_else(|| if has_body { "POST" } else { "GET" }.to_owned());
        Some((method, path))
    });
    requests.collect()
}

/// Whether a path of an example is one of this route: a variable stands for what the route has in braces.
fn is_of(path: &str, route: &str) -> bool {
    let (parts, names): (Vec<&str>, Vec<&str>) = (path.split('/').collect(), route.split('/').collect());
    let is_met = |(part, name): (&&str, &&str)| part == name || name.starts_with('{');
    parts.len() == names.len() && parts.iter().zip(&names).all(is_met)
}

#[test]
fn every_route_has_an_example() {
    let document: Value = serde_json::from_str(include_str!("../docs/openapi.json")).unwrap();
    let requests = requests(&examples());
    for (route, item) in document["paths"].as_object().unwrap() {
        for method in item.as_object().unwrap().keys().map(|method| method.to_uppercase()) {
            let is_there = requests.iter().any(|(asked, path)| *asked == method && is_of(path, route));
            assert!(is_there, "docs/api.md has no example of {method} {route}");
        }
    }
}
