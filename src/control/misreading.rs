//! Requests that cannot be understood: which field is wrong, what is wrong with it, and what would be right.

use super::error::ApiError;
use super::router;
use crate::model::mistake;

/// Names that differ more than this are not meant for each other.
const TYPOS_MAX: usize = 2;
/// What is told back of anything that somebody sent. It may be as long as a body.
const TOLD_CHARS_MAX: usize = 200;
/// All fields that an object has fit into this.
const EXPECTED_CHARS_MAX: usize = 1000;
/// The parts of a path that are looked at, and how long they may be: no route has more or longer ones.
const PARTS_MAX: usize = 8;
const PART_BYTES_MAX: usize = 32;

/// The beginning of what somebody sent, to be told back.
pub fn shortened(text: impl Into<String>) -> String {
    cut(text.into(), TOLD_CHARS_MAX)
}

/// The text, or so much of it with a sign that there was more.
pub fn cut(mut text: String, chars_max: usize) -> String {
    if let Some((end, _)) = text.char_indices().nth(chars_max) {
        text.truncate(end);
        text.push('…');
    }
    text
}

/// What is wrong, with no more of what was sent than can be read. What was expected instead is kept.
fn readable(problem: &str) -> String {
    let plain = mistake::in_plain_words(problem);
    if plain != problem {
        return shortened(plain);
    }
    // The last place where serde says so is its own: what was sent comes before.
    let place = problem.rfind(", expected ").max(problem.rfind(", there are no ")).unwrap_or(problem.len());
    let quote = problem.get(..place).is_some_and(|sent| sent.ends_with('`'));
    let (sent, expected) = problem.split_at(place - usize::from(quote));
    shortened(sent) + &cut(expected.to_owned(), EXPECTED_CHARS_MAX)
}

/// What is wrong with a body or a query that could not be read. A field that is unknown, missing or there twice is named by
/// the problem itself; the path is then that of the object around it.
pub fn explained<E: std::fmt::Display>(error: &serde_path_to_error::Error<E>) -> ApiError {
    let whole = error.inner().to_string();
    let path = error.path().to_string();
    let around = if path == "." || path == "?" { String::new() } else { path };
    let named = ["unknown field `", "missing field `", "duplicate field `"]
        .iter()
        .find_map(|beginning| whole.strip_prefix(beginning)?.split('`').next());
    let field = match named {
        // The path of an unknown field includes it already.
        Some(name) if around.is_empty() || around == name || around.ends_with(&format!(".{name}")) => {
            if around.is_empty() { name.to_owned() } else { around }
        }
        Some(name) => format!("{around}.{name}"),
        None => around,
    };
    let problem = readable(&whole);
    let hint = hint(&problem);
    ApiError::misunderstood(field, problem, hint)
}

/// What to do about a problem, in serde's words for it.
fn hint(problem: &str) -> String {
    let words = in_backticks(problem);
    match words.as_slice() {
        [name, known @ ..] if problem.starts_with("unknown field") => {
            let meant = nearest(name, known).map(|near| format!("did you mean {near}? ")).unwrap_or_default();
            match known {
                [] => "leave it out; no fields are allowed here".to_owned(),
                known => format!("{meant}the fields are {}", known.join(", ")),
            }
        }
        [name, known @ ..] if problem.starts_with("unknown variant") => {
            let meant = nearest(name, known).map(|near| format!("did you mean {near}? ")).unwrap_or_default();
            format!("{meant}the values are {}", known.join(", "))
        }
        [name] if problem.starts_with("missing field") => format!("add {name}"),
        [name] if problem.starts_with("duplicate field") => format!("give {name} only once"),
        _ if problem.starts_with("must be a whole number") => "give a whole number, such as 20".to_owned(),
        _ => match problem.strip_prefix("must be ") {
            Some(expected) => format!("give {}", expected.split(", not ").next().unwrap_or(expected)),
            None => "correct the request and send it again; GET /v1/openapi.json describes it".to_owned(),
        },
    }
}

fn in_backticks(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// The name is short: `readable` has cut what was sent.
fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let near =
        known.iter().map(|known| (strsim::damerau_levenshtein(&name.to_lowercase(), &known.to_lowercase()), *known));
    near.filter(|(distance, _)| *distance <= TYPOS_MAX).min().map(|(_, near)| near)
}

/// Where somebody who asked for a path that is not there may have wanted to go.
pub fn nearest_route(path: &str) -> String {
    /// A name that is another one costs more than a few typos, and a missing part more than that.
    const NAME_COST_MAX: usize = 4;
    const PART_COST: usize = 3;
    const COST_MAX: usize = 3;
    if path == "*" {
        return "request OPTIONS of one route; GET /v1/openapi.json lists all routes".to_owned();
    }
    let asked: Vec<&str> = path.trim_matches('/').split('/').take(PARTS_MAX + 1).collect();
    let cost = |route: &str| {
        // The version is what is forgotten most.
        let is_bare = asked.first() != Some(&"v1");
        let parts: Vec<&str> = route.trim_matches('/').split('/').skip_while(|part| is_bare && *part == "v1").collect();
        let missing = parts.len().abs_diff(asked.len()) * PART_COST;
        let names = parts.iter().zip(&asked).map(|(part, asked)| match part.starts_with('{') {
            true => 0,
            false if asked.len() > PART_BYTES_MAX => NAME_COST_MAX,
            false => strsim::damerau_levenshtein(part, asked).min(NAME_COST_MAX),
        });
        missing + names.sum::<usize>()
    };
    let near = router::paths().map(|route| (cost(&route), route)).min();
    match near {
        Some((cost, route)) if cost <= COST_MAX => {
            format!("did you mean {route}? GET /v1/openapi.json lists all routes")
        }
        _ => "GET /v1/openapi.json lists all routes".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_says_what_would_be_right() {
        for (problem, hinted) in [
            (
                "unknown field `titel`, expected one of `title`, `tags`",
                "did you mean title? the fields are title, tags",
            ),
            ("unknown field `x`, expected `path`", "the fields are path"),
            ("unknown field `x`, there are no fields", "leave it out; no fields are allowed here"),
            (
                "unknown variant `Lazy`, expected `eager` or `lazy` at line 1 column 9",
                "did you mean lazy? the values are eager, lazy",
            ),
            ("missing field `path` at line 1 column 2", "add path"),
            ("duplicate field `limit`", "give limit only once"),
            ("invalid type: string \"x\", expected i64", "give a whole number, such as 20"),
            ("invalid type: integer `1`, expected a boolean at line 1 column 3", "give true or false"),
            ("invalid type: null, expected struct SessionLimits", "give an object"),
        ] {
            assert_eq!(hint(&readable(problem)), hinted, "{problem}");
        }
    }

    #[test]
    fn what_was_sent_is_told_back_in_part_and_what_was_expected_as_a_whole() {
        let long = "x`, expected ".repeat(100_000);
        for (problem, ending) in [
            (format!("unknown field `{long}`, expected one of `title`, `tags`"), "`title`, `tags`"),
            (format!("unknown field `{long}`, there are no fields"), "there are no fields"),
        ] {
            let told = readable(&problem);
            assert!(told.len() < 2 * EXPECTED_CHARS_MAX && told.contains('…'), "{told}");
            assert!(told.ends_with(ending), "{told}");
            assert!(hint(&told).len() < 2 * EXPECTED_CHARS_MAX);
        }
        assert_eq!(readable("missing field `path` at line 1 column 2"), "missing field `path` at line 1 column 2");
        assert_eq!(shortened("é".repeat(300)), format!("{}…", "é".repeat(TOLD_CHARS_MAX)));
    }

    #[test]
    fn the_nearest_route_is_named_when_one_is_near() {
        for (path, near) in [
            ("/v1/session", "/v1/sessions"),
            ("/v1/sessions/019a/prompts", "/v1/sessions/{id}/prompt"),
            ("/sessions", "/v1/sessions"),
            ("/v1/sessions/", "/v1/sessions"),
        ] {
            let hint = nearest_route(path);
            assert!(hint.starts_with(&format!("did you mean {near}?")), "{path}: {hint}");
        }
        assert!(nearest_route("/favicon.ico").starts_with("GET /v1/openapi.json"));
    }
}
