//! `acpd ls`: the sessions, newest first; once, or for as long as somebody looks.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde_json::value::RawValue;

use crate::cli::connection::{Daemon, with_query};
use crate::cli::context::{Context, read};
use crate::cli::error::ClientError;
use crate::cli::exit::Exit;
use crate::cli::output::Output;
use crate::cli::processes::Processes;
use crate::cli::style::Paint;
use crate::cli::table::{Cell, Fit, Table};
use crate::cli::terminal::Screen;
use crate::cli::text::{age, relative, short_id};
use crate::cli::watch::{Next, Watch};
use crate::cli::{lookup, suggest};
use crate::control::wire::{Session, SessionList};
use crate::model::{SessionStatus, Timestamp};

const LIMIT_DEFAULT: i64 = 20;
/// How near an expiry is when the list shows it.
const EXPIRY_SHOWN: Duration = Duration::from_hours(7 * 24);

/// List sessions, newest first
///
/// Lists active and suspended sessions. ASKS counts open permission requests (`acpd permissions`), QUEUED the turns that
/// wait for the running one. EXPIRES says when a session expires, once that is within seven days; `acpd keep` exempts a
/// session. With --watch the list is updated until you press Ctrl-C or q. If stdout is not a terminal,
/// --watch prints the list again, after an empty line, when anything but an age or a size changes. With --json each list is
/// one line.
#[expect(clippy::struct_excessive_bools, reason = "each is a flag that is given or not")]
#[derive(Args, Debug)]
pub struct Ls {
    /// Include archived sessions
    #[arg(long, conflicts_with = "status")]
    pub archived: bool,
    /// Include archived sessions and sessions in error; as root, of all users
    #[arg(long, conflicts_with = "status")]
    pub all: bool,
    /// Only sessions with these statuses, separated by commas
    #[arg(long, value_name = "STATUS", value_delimiter = ',', value_parser = statuses())]
    pub status: Vec<SessionStatus>,
    /// Only sessions of this agent
    #[arg(long, short, value_name = "NAME")]
    pub agent: Option<String>,
    /// Only sessions in this directory
    #[arg(long, short = 'C', value_name = "DIR")]
    pub workspace: Option<PathBuf>,
    /// Only sessions with this tag
    #[arg(long, value_name = "TAG")]
    pub tag: Option<String>,
    /// List at most this many [default: 20]
    #[arg(long, short = 'n', value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub limit: Option<u32>,
    /// Skip this many
    #[arg(long, value_name = "COUNT")]
    pub offset: Option<u32>,
    /// Print only full ids
    #[arg(long, short, conflicts_with = "watch")]
    pub quiet: bool,
    /// Update the list until Ctrl-C
    #[arg(long, short)]
    pub watch: bool,
}

/// What clap can suggest from.
fn statuses() -> impl TypedValueParser<Value = SessionStatus> {
    PossibleValuesParser::new(SessionStatus::ALL.map(SessionStatus::as_str)).try_map(|name| name.parse())
}

impl Ls {
    pub async fn execute(self, context: &Context) -> Result<Exit, ClientError> {
        let daemon = context.daemon().await?;
        if self.watch {
            return self.look_on(context, &daemon).await;
        }
        let answer = self.list(&daemon).await?;
        let output = context.output;
        if output.json {
            output.print_json(&answer)?;
            return Ok(Exit::Ok);
        }
        let list: SessionList = read(&answer)?;
        if self.quiet {
            let ids: Vec<String> = list.sessions.iter().map(|session| session.id.to_string()).collect();
            output.print(&ids.join("\n"))?;
            return Ok(Exit::Ok);
        }
        let processes = Processes::ask(&daemon, self.all).await?;
        output.print(&table(&list.sessions, &processes).render(output.width(), output.style))?;
        self.remark(&daemon, output, &list).await;
        Ok(Exit::Ok)
    }

    /// What the table does not say.
    async fn remark(&self, daemon: &Daemon, output: Output, list: &SessionList) {
        let shown = i64::try_from(list.sessions.len()).unwrap_or(i64::MAX);
        let next = list.offset + shown;
        if shown > 0 && next < list.total {
            output
                .aside(&format!("{shown} of {}; continue with --offset {next}, or show more with --limit", list.total));
        }
        if shown > 0 {
            return;
        }
        if let Some(agent) = &self.agent
            && let Some(unknown) = suggest::unknown_agent(daemon, agent).await
        {
            output.note(&unknown);
        } else if list.total > 0 {
            output.aside(&format!("no more sessions: {} in total", list.total));
        } else if self.is_narrowed() {
            output.aside("no matching sessions; `acpd ls --all` lists all sessions");
        } else {
            output.aside("no sessions; `acpd run \"…\"` starts one");
        }
    }

    fn is_narrowed(&self) -> bool {
        !self.status.is_empty() || self.agent.is_some() || self.workspace.is_some() || self.tag.is_some()
    }

    /// The list again and again, until somebody has seen enough.
    async fn look_on(&self, context: &Context, daemon: &Daemon) -> Result<Exit, ClientError> {
        let output = context.output;
        let path = format!("/v1/events?all={}", self.all);
        let mut watch = Watch::new(daemon, path, output.can_repaint())?;
        let mut screen = output.can_repaint().then(Screen::enter);
        let (mut shown, mut last) = (String::new(), String::new());
        loop {
            let looked = self.look(daemon, output).await;
            match (&screen, looked) {
                (Some(screen), Ok(look)) => {
                    screen.paint(&look.text);
                    last = look.text;
                }
                // It may be on its way back, and there is somebody who can wait for it.
                (Some(screen), Err(error)) if may_pass(&error) => {
                    screen.paint(&format!("{last}\n{}", output.style.red(&format!("{error}; retrying"))));
                }
                (None, Ok(look)) if look.facts != shown => {
                    output.print(&look.text)?;
                    shown = look.facts;
                }
                (None, Ok(_)) => {}
                (_, Err(error)) => return Err(error),
            }
            match watch.next().await {
                Next::Look => {}
                Next::Stop => {
                    drop(screen);
                    watch.stop();
                    screen = output.can_repaint().then(Screen::enter);
                }
                Next::Leave => {
                    drop(screen);
                    if output.can_repaint() {
                        output.print(&last)?;
                    }
                    return Ok(Exit::Ok);
                }
            }
        }
    }

    async fn look(&self, daemon: &Daemon, output: Output) -> Result<Look, ClientError> {
        let answer = self.list(daemon).await?;
        let list: SessionList = read(&answer)?;
        let processes = Processes::ask(daemon, self.all).await?;
        let facts = list.sessions.iter().map(|session| row_facts(session, &processes)).collect::<Vec<_>>().join("\n");
        let text = if output.json {
            answer.get().to_owned()
        } else {
            let table = table(&list.sessions, &processes).render(output.width(), output.style);
            let table = if table.is_empty() { "no sessions".to_owned() } else { table };
            if output.can_repaint() { table } else { format!("{table}\n") }
        };
        Ok(Look { text, facts: format!("{}\n{facts}", list.total) })
    }

    async fn list(&self, daemon: &Daemon) -> Result<Box<RawValue>, ClientError> {
        if let Some(parameters) = self.parameters(daemon).await? {
            return daemon.get(&with_query("/v1/sessions", &parameters)).await;
        }
        // No session has ever been there, which is an answer.
        let (limit, offset) = (self.limit.map_or(LIMIT_DEFAULT, i64::from), self.offset.unwrap_or(0).into());
        let none = SessionList { sessions: Vec::new(), total: 0, limit, offset };
        serde_json::value::to_raw_value(&none)
            .map_err(|source| ClientError::Answer { operation: "the list".to_owned(), source })
    }

    /// Nothing when there cannot be any session.
    async fn parameters(&self, daemon: &Daemon) -> Result<Option<Vec<(&'static str, String)>>, ClientError> {
        let mut parameters = Vec::new();
        let statuses = if self.all { SessionStatus::ALL.as_slice() } else { self.status.as_slice() };
        if !statuses.is_empty() {
            let names: Vec<&str> = statuses.iter().map(|status| status.as_str()).collect();
            parameters.push(("status", names.join(",")));
        }
        if let Some(directory) = &self.workspace {
            let Some(id) = lookup::workspace(daemon, directory).await? else { return Ok(None) };
            parameters.push(("workspaceId", id.to_string()));
        }
        let others = [
            ("includeArchived", self.archived.then(|| "true".to_owned())),
            ("all", self.all.then(|| "true".to_owned())),
            ("agent", self.agent.clone()),
            ("tag", self.tag.clone()),
            ("limit", self.limit.map(|limit| limit.to_string())),
            ("offset", self.offset.map(|offset| offset.to_string())),
        ];
        parameters.extend(others.into_iter().filter_map(|(name, value)| Some((name, value?))));
        Ok(Some(parameters))
    }
}

/// Whether it may be otherwise at the next look.
fn may_pass(error: &ClientError) -> bool {
    let is_gone =
        matches!(error, ClientError::Unreachable { .. } | ClientError::Broken { .. } | ClientError::TooSlow { .. });
    is_gone || error.is_overload()
}

/// The list at one moment, and what of it is more than the passing of time.
struct Look {
    text: String,
    facts: String,
}

fn row_facts(session: &Session, processes: &Processes) -> String {
    format!(
        "{} {} {} {} {} {} {}",
        session.id,
        session.status,
        processes.state(session),
        session.turns,
        session.open_permissions,
        processes.queued(session.id),
        session.title
    )
}

fn table(sessions: &[Session], processes: &Processes) -> Table {
    let now = Timestamp::now();
    let home = std::env::var("HOME").unwrap_or_default();
    let table = Table::new([
        ("ID", Fit::Whole),
        ("OWNER", Fit::IfAny),
        ("STATUS", Fit::Whole),
        ("PROCESS", Fit::Whole),
        ("MEMORY", Fit::NumberIfAny),
        ("ASKS", Fit::IfAny),
        ("QUEUED", Fit::NumberIfAny),
        ("AGENT", Fit::Whole),
        ("TURNS", Fit::Number),
        ("AGE", Fit::Number),
        ("EXPIRES", Fit::IfAny),
        ("TITLE", Fit::CutEnd),
        ("WORKSPACE", Fit::CutStart),
    ]);
    let mut table = table.without_if_narrow(&["TURNS", "MEMORY", "QUEUED", "AGENT"]);
    for session in sessions {
        let asks = session.open_permissions;
        let queued = processes.queued(session.id);
        let is_over = matches!(session.status, SessionStatus::Archived);
        let rest = if is_over { Paint::Dim } else { Paint::Plain };
        table.cells([
            Cell::new(&short_id(session.id), rest),
            lookup::other_owner(session.owner).unwrap_or_default().into(),
            Cell::new(session.status.as_str(), status_paint(session.status)),
            processes.state_cell(session),
            processes.memory(session.id).into(),
            Cell::new(&if asks > 0 { format!("? {asks}") } else { String::new() }, Paint::Yellow),
            (if queued > 0 { queued.to_string() } else { String::new() }).into(),
            Cell::new(&session.agent, rest),
            Cell::new(&session.turns.to_string(), rest),
            Cell::new(&age(session.created_at, now), rest),
            Cell::new(&expiry(session, now).unwrap_or_default(), Paint::Yellow),
            Cell::new(&session.title, rest),
            Cell::new(&below_home(&session.workspace, &home), Paint::Dim),
        ]);
    }
    table
}

/// When a session expires, once that is near.
fn expiry(session: &Session, now: Timestamp) -> Option<String> {
    let at = session.expires_at?;
    let is_near = now.after(EXPIRY_SHOWN).is_some_and(|end| at <= end);
    is_near.then(|| if at <= now { "expired".to_owned() } else { relative(at, now) })
}

/// What can be gone on with is green, what wants a person is not.
pub const fn status_paint(status: SessionStatus) -> Paint {
    match status {
        SessionStatus::Active => Paint::Green,
        SessionStatus::Suspended => Paint::Yellow,
        SessionStatus::Archived => Paint::Dim,
        SessionStatus::Error => Paint::Red,
    }
}

/// The path as people write it.
pub fn below_home(path: &str, home: &str) -> String {
    match path.strip_prefix(home) {
        Some(rest) if !home.is_empty() && (rest.is_empty() || rest.starts_with('/')) => format!("~{rest}"),
        _ => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_below_home_is_short() {
        assert_eq!(below_home("/home/me/src", "/home/me"), "~/src");
        assert_eq!(below_home("/home/me", "/home/me"), "~");
        assert_eq!(below_home("/home/meagain", "/home/me"), "/home/meagain");
        assert_eq!(below_home("/srv", ""), "/srv");
    }
}
