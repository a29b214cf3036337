//! What somebody may have meant who mistyped a name. It is offered in a hint, never taken.

use serde_json::Value;

use crate::control::wire::{AgentList, Session};

use super::connection::Daemon;
use super::context::Context;
use super::error::ClientError;
use super::text::{cut_end, one_line, short_id};

/// From nothing in common (0) to the same (1): less is no slip of the finger.
const LIKENESS_MIN: f64 = 0.6;
/// Ids are alike by chance more often than words.
const ID_LIKENESS_MIN: f64 = 0.75;
/// A part of a name that is shorter than this is in too many of them.
const PART_CHARS_MIN: usize = 3;
/// A beginning that is shorter than this is alike by chance.
const BEGINNING_CHARS_MIN: usize = 6;
const OFFERED_MAX: usize = 3;
const TITLE_COLUMNS: usize = 50;

/// The known name that is most like this one, if one is.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    best(known.into_iter().map(|known| (likeness(name, known), known))).into_iter().next()
}

/// "did you mean `plan`?", or `otherwise` if no name is similar.
pub fn hint<'a>(name: &str, known: impl IntoIterator<Item = &'a str>, otherwise: &str) -> String {
    nearest(name, known).map_or_else(|| otherwise.to_owned(), |meant| format!("did you mean `{}`?", one_line(meant)))
}

/// "did you mean `fix the test` (5f6a7b8c9d0e)?"
pub fn sessions(name: &str, known: &[Session]) -> Option<String> {
    let alike = known.iter().map(|session| {
        let by_id = strsim::normalized_damerau_levenshtein(&name.to_lowercase(), &short_id(session.id));
        let by_id = if by_id >= ID_LIKENESS_MIN { by_id } else { 0.0 };
        (likeness(name, &session.title).max(by_id), session)
    });
    let offered = best(alike).into_iter().map(|session| {
        let title = cut_end(&one_line(&session.title), TITLE_COLUMNS);
        format!("`{title}` ({})", short_id(session.id))
    });
    let offered: Vec<String> = offered.collect();
    (!offered.is_empty()).then(|| format!("did you mean {}?", offered.join(" or ")))
}

/// The error with a better hint, where it is about an agent that nobody knows.
pub async fn agent(context: &Context, error: ClientError) -> ClientError {
    let ClientError::Api { status, mut body, retry_after } = error else { return error };
    if body.error == "agent_not_found"
        && let Value::String(name) = &body.details["agent"]
        && let Ok(daemon) = context.running_daemon().await
        && let Ok(known) = agents(&daemon).await
        && let Some(meant) = nearest(name, known.iter().map(String::as_str))
    {
        body.hint = format!("did you mean `{meant}`? `acpd agents` lists the agents");
    }
    ClientError::Api { status, body, retry_after }
}

/// What there is to say of an agent that a list was asked for and that has nothing in it.
pub async fn unknown_agent(daemon: &Daemon, name: &str) -> Option<String> {
    let known = agents(daemon).await.ok()?;
    if known.iter().any(|agent| agent == name) {
        return None;
    }
    let hint = hint(name, known.iter().map(String::as_str), "`acpd agents` lists the agents");
    Some(format!("there is no agent {name:?}; {hint}"))
}

async fn agents(daemon: &Daemon) -> Result<Vec<String>, ClientError> {
    let list: AgentList = daemon.get("/v1/agents?limit=1000").await?;
    Ok(list.agents.into_iter().map(|agent| agent.slug).collect())
}

fn likeness(name: &str, known: &str) -> f64 {
    let (name, known) = (name.trim().to_lowercase(), known.to_lowercase());
    if name == known {
        return 1.0;
    }
    // A part is better than a slip, and more of the whole is better than less.
    if name.chars().count() >= PART_CHARS_MIN && known.contains(&name) {
        return 1.0 - 0.01 / (1.0 + strsim::normalized_levenshtein(&name, &known));
    }
    // Of a long name people remember the beginning.
    let beginning: String = known.chars().take(name.chars().count()).collect();
    let is_long = beginning.chars().count() >= BEGINNING_CHARS_MIN;
    let by_beginning = strsim::normalized_damerau_levenshtein(&name, &beginning) * if is_long { 0.95 } else { 0.0 };
    strsim::normalized_damerau_levenshtein(&name, &known).max(by_beginning)
}

/// The best ones, the first of equals first.
fn best<T>(alike: impl Iterator<Item = (f64, T)>) -> Vec<T> {
    let mut alike: Vec<(f64, T)> = alike.filter(|(likeness, _)| *likeness >= LIKENESS_MIN).collect();
    alike.sort_by(|left, right| right.0.total_cmp(&left.0));
    alike.into_iter().take(OFFERED_MAX).map(|(_, one)| one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_and_parts_are_recognized() {
        let known = ["default", "plan", "auto_edit", "yolo"];
        for (name, meant) in
            [("plna", Some("plan")), ("Plan", Some("plan")), ("edit", Some("auto_edit")), ("xyz", None)]
        {
            assert_eq!(nearest(name, known), meant, "{name}");
        }
        assert_eq!(
            nearest("fix the faling", ["document it", "fix the failing test in the parser"]).map(str::len),
            Some(34)
        );
        assert_eq!(hint("plna", known, "none"), "did you mean `plan`?");
        assert_eq!(hint("q", known, "`acpd mode` lists them"), "`acpd mode` lists them");
    }
}
