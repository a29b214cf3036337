//! `acpd search`: full text over the messages of all sessions.

use std::path::PathBuf;

use clap::Args;
use serde_json::value::RawValue;

use crate::cli::connection::{Daemon, with_query};
use crate::cli::context::{Context, read};
use crate::cli::error::ClientError;
use crate::cli::exit::Exit;
use crate::cli::output::Output;
use crate::cli::style::Style;
use crate::cli::text::{age, clean, cut_end, one_line, short_id};
use crate::cli::{lookup, span, suggest};
use crate::control::wire::search::{SearchResult, SearchResults, Snippet};
use crate::model::Timestamp;
use crate::model::message::Role;

use super::ls::below_home;

/// Titles are cut to this when they are long.
const TITLE_COLUMNS: usize = 60;

/// Search the messages of all sessions
///
/// A message matches if it has all words. Best matches come first. The query can use "a phrase", prefix*, AND, OR and NOT
/// (in capitals), parentheses and NEAR(a b, 5). Punctuation inside a word, as in src/main.rs, is matched literally. The exit
/// code is 1 if nothing matches, as with grep.
#[derive(Args, Debug)]
pub struct Search {
    /// Words to search for
    #[arg(required = true, value_name = "QUERY")]
    pub query: Vec<String>,
    /// Only sessions in this directory
    #[arg(long, short = 'C', value_name = "DIR")]
    pub workspace: Option<PathBuf>,
    /// Only sessions of this agent
    #[arg(long, short, value_name = "NAME")]
    pub agent: Option<String>,
    /// Only this session: id, id prefix or suffix, exact title, or - for the newest one here
    #[arg(long, short, value_name = "SESSION")]
    pub session: Option<String>,
    /// Only messages of this role: user, agent, `tool_call`, `tool_result` or system
    #[arg(long, value_name = "ROLE")]
    pub role: Option<Role>,
    /// Only messages since this time (2026-01-31T12:00:00Z) or for this long (12h, 7d)
    #[arg(long, value_name = "TIME", value_parser = span::since)]
    pub since: Option<Timestamp>,
    /// Search the sessions of all users (root only)
    #[arg(long)]
    pub all: bool,
    /// List at most this many
    #[arg(long, short = 'n', value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub limit: Option<u32>,
}

impl Search {
    pub async fn execute(self, context: &Context) -> Result<Exit, ClientError> {
        let daemon = context.daemon().await?;
        let parameters = self.parameters(&daemon).await?;
        let answer: Box<RawValue> = daemon.get(&with_query("/v1/search", &parameters)).await?;
        let output = context.output;
        let found: SearchResults = read(&answer)?;
        if output.json {
            output.print_json(&answer)?;
        } else {
            print(&found, output)?;
            if found.results.is_empty()
                && let Some(agent) = &self.agent
                && let Some(unknown) = suggest::unknown_agent(&daemon, agent).await
            {
                output.note(&unknown);
            }
        }
        Ok(if found.results.is_empty() { Exit::Error } else { Exit::Ok })
    }

    async fn parameters(&self, daemon: &Daemon) -> Result<Vec<(&'static str, String)>, ClientError> {
        let mut parameters = vec![("q", self.query.join(" "))];
        if let Some(directory) = &self.workspace {
            let id = lookup::known_workspace(daemon, directory).await?;
            parameters.push(("workspaceId", id.to_string()));
        }
        if let Some(session) = &self.session {
            parameters.push(("session", lookup::session(daemon, session).await?.to_string()));
        }
        let others = [
            ("agent", self.agent.clone()),
            ("role", self.role.map(|role| role.to_string())),
            ("since", self.since.map(|since| since.to_string())),
            ("all", self.all.then(|| "true".to_owned())),
            ("limit", self.limit.map(|limit| limit.to_string())),
        ];
        parameters.extend(others.into_iter().filter_map(|(name, value)| Some((name, value?))));
        Ok(parameters)
    }
}

fn print(found: &SearchResults, output: Output) -> Result<(), ClientError> {
    let now = Timestamp::now();
    let paragraphs: Vec<String> = found.results.iter().map(|result| paragraph(result, now, output)).collect();
    output.print(&paragraphs.join("\n\n"))?;
    if found.results.is_empty() {
        output.aside("no matches");
    } else if found.results.len() < found.total {
        output.aside(&format!("{} of {}; --limit shows more", found.results.len(), found.total));
    }
    if found.pending > 0 {
        output.note(&format!("{} messages were not searched, because they are not indexed yet", found.pending));
    }
    Ok(())
}

/// Whose it is, where and when it was said, and what it says.
fn paragraph(result: &SearchResult, now: Timestamp, output: Output) -> String {
    let style = output.style;
    let home = std::env::var("HOME").unwrap_or_default();
    let title = cut_end(&one_line(&result.title), TITLE_COLUMNS);
    let place = format!(
        "{} · {} ago · {} · {}",
        result.role,
        age(result.created_at, now),
        one_line(&result.agent),
        one_line(&below_home(&result.workspace, &home)),
    );
    let place = output.width().map_or_else(|| place.clone(), |width| cut_end(&place, width.saturating_sub(2)));
    let head = format!("{}  {}", short_id(result.session_id), style.bold(&title));
    format!("{}\n  {}\n  {}", head.trim_end(), style.dim(&place), emphasised(&result.snippet, style))
}

/// The snippet on one line, with its matches emphasised.
fn emphasised(snippet: &Snippet, style: Style) -> String {
    let characters: Vec<char> = snippet.text.chars().collect();
    let piece = |from: usize, to: usize| -> String {
        let text: String = characters.get(from..to).unwrap_or_default().iter().collect();
        clean(&text).replace(['\n', '\t'], " ")
    };
    let mut text = String::new();
    let mut position = 0;
    for &(from, to) in &snippet.matches {
        text.push_str(&piece(position, from));
        text.push_str(&style.yellow(&piece(from, to)));
        position = to.max(position);
    }
    text + &piece(position, characters.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_snippet_acts_on_the_terminal() {
        let snippet = Snippet { text: "a\x1b[2J\nfoo b".to_owned(), matches: vec![(6, 9), (7, 99)] };
        assert_eq!(emphasised(&snippet, Style::plain()), "a[2J foo");
    }
}
