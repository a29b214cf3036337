//! The same for several sessions: each is attempted, each gets its line, and the worst of what went wrong is the exit code.

use std::collections::HashSet;

use serde_json::value::RawValue;

use crate::model::SessionId;

use super::connection::Daemon;
use super::context::{Context, read};
use super::error::ClientError;
use super::exit::Exit;
use super::lookup;
use super::text::{cut_end, one_line, short_id};
use crate::control::wire::Session;

const TITLE_COLUMNS: usize = 60;

/// A name as it was given, and the session that it means.
pub type Named = (String, Result<SessionId, ClientError>);

/// The sessions that the names mean, each once. All are looked up before any of them changes, so that `-` means one session
/// for the whole command.
pub async fn named(daemon: &Daemon, names: &[String]) -> Vec<Named> {
    let mut seen = HashSet::new();
    let mut named = Vec::new();
    for name in names {
        let found = lookup::session(daemon, name).await;
        if found.as_ref().is_ok_and(|id| !seen.insert(*id)) {
            continue;
        }
        named.push((name.clone(), found));
    }
    named
}

/// Does the work for every session that is named, in the order of the names, and prints the line that `told` makes of the answer.
pub async fn each(
    context: &Context,
    daemon: &Daemon,
    names: &[String],
    work: impl AsyncFn(SessionId) -> Result<Box<RawValue>, ClientError>,
    told: impl Fn(&RawValue) -> Result<String, ClientError>,
) -> Result<Exit, ClientError> {
    each_of(context, named(daemon, names).await, work, told).await
}

/// The same for sessions that are looked up already.
pub async fn each_of(
    context: &Context,
    sessions: Vec<Named>,
    work: impl AsyncFn(SessionId) -> Result<Box<RawValue>, ClientError>,
    told: impl Fn(&RawValue) -> Result<String, ClientError>,
) -> Result<Exit, ClientError> {
    let mut worst = Exit::Ok;
    let is_alone = sessions.len() == 1;
    for (name, found) in sessions {
        let done = match found {
            Ok(id) => work(id).await,
            Err(error) => Err(error),
        };
        match done {
            Ok(answer) if context.output.json => context.output.print_json(&answer)?,
            Ok(answer) => context.output.print(&told(&answer)?)?,
            Err(error) if is_alone => return Err(error),
            Err(error) => {
                let error = of(&name, error);
                context.output.error(&error);
                if Exit::of(&error).code() > worst.code() {
                    worst = Exit::of(&error);
                }
            }
        }
    }
    Ok(worst)
}

/// What became of a session: to a program its id, to a person in words.
pub fn session_line(context: &Context, verb: &str, answer: &RawValue) -> Result<String, ClientError> {
    let session: Session = read(answer)?;
    if !context.output.stdout_is_terminal {
        return Ok(session.id.to_string());
    }
    let title = cut_end(&one_line(&session.title), TITLE_COLUMNS);
    let style = context.output.style;
    Ok(format!("{verb} {}  {}", style.bold(&short_id(session.id)), title).trim_end().to_owned())
}

/// The daemon's refusal, with whose it is: it is one of several.
fn of(name: &str, error: ClientError) -> ClientError {
    let ClientError::Api { status, mut body, retry_after } = error else { return error };
    body.message = format!("{name}: {}", body.message);
    ClientError::Api { status, body, retry_after }
}
