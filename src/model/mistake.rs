//! What serde and the standard library say of a value that cannot be read, in words for people who do not write Rust.

/// Replaces what the standard library says of a text that is no number or boolean.
const PARSED: [(&str, &str); 8] = [
    ("invalid digit found in string", "must be a whole number"),
    ("cannot parse integer from empty string", "must be a whole number"),
    ("number too large to fit in target type", "is too large"),
    ("number too small to fit in target type", "is too small"),
    ("invalid float literal", "must be a number"),
    ("cannot parse float from empty string", "must be a number"),
    ("provided string was not `true` or `false`", "must be true or false"),
    ("wanted string or table", "must be a string or an object"),
];

/// What is wrong with a value: that it must be something, and what it is instead.
pub fn in_plain_words(problem: &str) -> String {
    let problem = problem.trim();
    let (said, place) = match problem.rfind(" at line ") {
        Some(at) => problem.split_at(at),
        None => (problem, ""),
    };
    if let Some((_, told)) = PARSED.iter().find(|(words, _)| *words == said) {
        return format!("{told}{place}");
    }
    if said == "expected value" || said.starts_with("data did not match any variant of untagged enum") {
        return format!("is not a value that is allowed here{place}");
    }
    if said.starts_with("invalid length ") && said.contains(", expected struct ") {
        return format!("must be an object, not a list{place}");
    }
    if said.ends_with(", expected string only") {
        return format!("must be a string{place}");
    }
    let wrong = ["invalid type: ", "invalid value: "].iter().find_map(|start| said.strip_prefix(start));
    // The last "expected" is serde's own: what was sent comes before.
    match wrong.and_then(|rest| rest.rsplit_once(", expected ")) {
        Some((found, expected)) => {
            format!("must be {}, not {}{place}", expected_in_words(expected), found_in_words(found))
        }
        None => problem.to_owned(),
    }
}

/// A text with what the standard library says in it of numbers and booleans replaced.
pub fn with_plain_words(text: &str) -> String {
    PARSED.iter().fold(text.to_owned(), |text, (words, told)| text.replace(words, told))
}

/// What is expected, by serde's words for it.
fn expected_in_words(expected: &str) -> &str {
    match expected {
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" | "usize" => "a whole number of 0 or more",
        "i8" | "i16" | "i32" | "i64" | "isize" | "an integer" => "a whole number",
        "f32" | "f64" => "a number",
        "a boolean" => "true or false",
        "a string" | "string" | "str" | "a borrowed string" => "a string",
        "a sequence" => "a list",
        "a map" | "a JSON object" | "map with a single key" => "an object",
        "unit" => "null",
        other if other.starts_with("tuple") || other.starts_with("an array") => "a list",
        other if other.starts_with("struct") || other.contains("tagged enum") => "an object",
        other if other.contains("variant") || other.starts_with("enum") => "one of the allowed values",
        other => other,
    }
}

fn found_in_words(found: &str) -> &str {
    let kinds = ["string ", "integer ", "floating point ", "boolean ", "character "];
    match found {
        "map" => "an object",
        "sequence" => "a list",
        "unit value" | "Option value" => "null",
        found if found.ends_with("variant") => "an object",
        found => kinds.iter().find_map(|kind| found.strip_prefix(kind)).unwrap_or(found),
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Shape {
        Round,
    }

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only its type is read")]
    struct Limits {
        count: u32,
        shape: Option<Shape>,
        names: Option<Vec<String>>,
        is_on: Option<bool>,
        inner: Option<Box<Limits>>,
    }

    #[test]
    fn no_word_of_rust_is_left() {
        for (json, told) in [
            (r#"{"count": "x"}"#, "must be a whole number from 0 to 4294967295, not \"x\""),
            (r#"{"count": -1}"#, "must be a whole number from 0 to 4294967295, not `-1`"),
            (r#"{"count": 1.5}"#, "must be a whole number from 0 to 4294967295, not `1.5`"),
            (r#"{"count": null}"#, "must be a whole number from 0 to 4294967295, not null"),
            (r#"{"count": 1, "names": "x"}"#, "must be a list, not \"x\""),
            (r#"{"count": 1, "names": [7]}"#, "must be a string, not `7`"),
            (r#"{"count": 1, "is_on": {}}"#, "must be true or false, not an object"),
            (r#"{"count": 1, "inner": 5}"#, "must be an object, not `5`"),
            (r#"{"count": 1, "shape": {"round": {}}}"#, "must be null, not an object"),
            (r#"{"count": 1, "shape": 7}"#, "is not a value that is allowed here"),
            ("[]", "must be an object, not a list"),
        ] {
            let error = serde_json::from_str::<Limits>(json).unwrap_err().to_string();
            let plain = in_plain_words(&error);
            assert!(plain.starts_with(told), "{json}: {error}: {plain}");
            assert!(!["u32", "struct", "variant", "enum"].iter().any(|word| plain.contains(word)), "{plain}");
        }
        assert_eq!(in_plain_words("\"x\".parse::<u32>()"), "\"x\".parse::<u32>()", "what is not known stays");
        assert_eq!(in_plain_words("invalid digit found in string"), "must be a whole number");
        assert_eq!(in_plain_words("invalid type: map, expected string only"), "must be a string", "of an enum in TOML");
    }
}
