//! Following a stream until it is over: one turn for whoever wrote the prompt, or a session for whoever looks on.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use clap::Args;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::mpsc::{Receiver, channel};

use crate::control::wire::{Accepted, Cancel, CancelAccepted, Prompt, Session};
use crate::model::{SessionId, TurnId, TurnStatus};

use super::connection::Daemon;
use super::context::Context;
use super::error::ClientError;
use super::exit::Exit;
use super::interrupts::{Interruption, Interrupts};
use super::question::Desk;
use super::render::{Outcome, Scope, ThoughtsShown, Wait};
use super::sign_in;
use super::span;
use super::stream::{Event, EventStream, Notice};
use super::text::{one_line, short_id};
use super::verdict::Verdict;
use super::view::View;

/// Of a stream that breaks again and again, the person is told once in a while.
const NOTICES_MAX: usize = 4;

/// How what is followed is shown and waited for: what the commands that do it have in common.
#[derive(Args, Clone, Copy, Debug)]
pub struct Following {
    /// How to show the agent's thoughts on a terminal; press t to change it while they stream
    #[arg(long, value_name = "HOW", value_enum, default_value_t = ThoughtsShown::Fold)]
    pub thoughts: ThoughtsShown,
}

/// Whether the answer is waited for.
#[derive(Args, Clone, Copy, Debug)]
pub struct Waiting {
    /// Stream the answer and exit when the turn ends (the default)
    #[arg(long, overrides_with = "no_wait")]
    wait: bool,
    /// Print the session and the turn and exit once the prompt is accepted
    #[arg(long, overrides_with = "wait")]
    no_wait: bool,
    /// Cancel the turn after this time, such as 90s or 10m, and exit with code 5
    #[arg(long, value_name = "DURATION", value_parser = span::timeout, conflicts_with = "no_wait")]
    pub timeout: Option<Duration>,
}

impl Waiting {
    pub fn is_wanted(self) -> bool {
        self.wait || !self.no_wait
    }
}

/// Tells of a prompt that nobody waits for.
pub fn tell_accepted(context: &Context, session: SessionId, accepted: &Accepted) -> Result<Exit, ClientError> {
    let line = if context.output.json {
        serde_json::to_string(accepted)
            .map_err(|source| ClientError::Answer { operation: "the prompt".to_owned(), source })?
    } else {
        format!("session {session} turn {}", accepted.turn_id)
    };
    context.output.print(&line)?;
    Ok(Exit::Ok)
}

/// What happens while a stream is followed.
enum Happening {
    Event(Result<Option<Event>, ClientError>),
    Interrupt(Interruption),
}

/// The next event, or Ctrl-C; meanwhile the desk does its work. The wait for the event is one, however often the desk has
/// something to do.
async fn next(
    stream: &mut EventStream<'_>,
    notices: &mut Receiver<Notice>,
    desk: &mut Desk<'_>,
    interrupts: &mut Interrupts,
) -> Result<Happening, ClientError> {
    let is_caught_up = stream.is_caught_up();
    let mut event = std::pin::pin!(stream.next());
    loop {
        tokio::select! {
            biased;
            interruption = interrupts.interruption() => return Ok(Happening::Interrupt(interruption)),
            Some(notice) = notices.recv() => desk.notice(notice)?,
            input = desk.next(is_caught_up) => desk.take(input)?,
            event = &mut event => return Ok(Happening::Event(event)),
        }
    }
}

/// Follows one turn to its end. The first Ctrl-C cancels it, the second leaves. `agent` is who is waited for, if that is
/// known.
pub async fn turn(
    context: &Context,
    daemon: &Daemon,
    session: SessionId,
    accepted: &Accepted,
    agent: &str,
    following: Following,
    interrupts: &mut Interrupts,
) -> Result<Exit, ClientError> {
    let view = View::new(context.output, Scope::Turn, following.thoughts);
    let mut desk = Desk::new(daemon, context.output, view, true);
    if accepted.position > 0 && session_now(daemon, session).await.is_some_and(|session| session.open_permissions > 0) {
        context.output.hint("the running turn waits for an answer; `acpd permissions` lists the requests");
    }
    tell_position(context, &mut desk, accepted.position, agent);
    let (sender, mut notices) = channel(NOTICES_MAX);
    let stream = EventStream::new(daemon, context.output, session, Some(accepted.after), true);
    let mut stream = stream.telling(sender).restarting(context);
    let mut verdict = Verdict::default();
    let mut is_cancelling = false;
    loop {
        let event = match next(&mut stream, &mut notices, &mut desk, interrupts).await? {
            Happening::Interrupt(Interruption::Timeout) if is_cancelling => continue,
            Happening::Interrupt(interruption) => {
                desk.interrupt()?;
                if is_cancelling {
                    desk.close()?;
                    return Ok(leave(context, session));
                }
                is_cancelling = true;
                context.output.note(match interruption {
                    Interruption::Key => "cancelling the turn; press Ctrl-C again to detach without waiting",
                    Interruption::Timeout => "the timeout has passed; cancelling the turn",
                });
                match interrupts.unless(cancel(daemon, session, accepted.turn_id)).await {
                    Ok(()) => {}
                    Err(ClientError::Left) => return Ok(leave(context, session)),
                    Err(error) => context.output.error(&error),
                }
                desk.wait_for(Wait::Cancellation);
                continue;
            }
            Happening::Event(Ok(Some(event))) => event,
            // A stream that follows has no end; one that ends all the same must not be asked for ever.
            Happening::Event(Ok(None)) => {
                let hint = format!("run `acpd attach {}` to follow it again", short_id(session));
                return Err(ClientError::local("the event stream ended before the turn", hint));
            }
            Happening::Event(Err(error)) => {
                desk.close()?;
                return Err(with_way_back(context, session, error));
            }
        };
        if event.turn_id != Some(accepted.turn_id) {
            desk.beside(&event)?;
            continue;
        }
        verdict.event(&event);
        desk.event(&event)?;
        if event.kind == "turn.completed" {
            desk.close()?;
            let outcome = outcome(&event)?;
            if outcome.needs_sign_in()
                && let Some(advice) = sign_in_advice(context, daemon, session).await
            {
                context.output.hint(&advice);
            }
            if outcome.status == TurnStatus::Interrupted {
                context.output.hint(&format!("`acpd prompt {} \"continue\"` continues the session", short_id(session)));
            }
            return Ok(verdict.exit(&outcome));
        }
    }
}

async fn sign_in_advice(context: &Context, daemon: &Daemon, session: SessionId) -> Option<String> {
    sign_in::advice(context, daemon, &session_now(daemon, session).await?.agent).await
}

async fn session_now(daemon: &Daemon, session: SessionId) -> Option<Session> {
    daemon.get(&format!("/v1/sessions/{session}")).await.ok()
}

fn tell_position(context: &Context, desk: &mut Desk<'_>, position: usize, agent: &str) {
    let wait = if position == 0 { Wait::Starting(one_line(agent)) } else { Wait::Queued(position) };
    let is_seen = desk.wait_for(wait);
    match position {
        _ if is_seen => {}
        0 => {}
        1 => context.output.note("queued behind one turn"),
        turns => context.output.note(&format!("queued behind {turns} turns")),
    }
}

/// How far a session's log reaches.
#[derive(Deserialize)]
struct Head {
    cursor: i64,
}

/// The cursor before the last turns of a session.
pub async fn tail(context: &Context, daemon: &Daemon, session: SessionId, turns: usize) -> Result<i64, ClientError> {
    if turns == 0 {
        return Ok(daemon.get::<Head>(&format!("/v1/sessions/{session}")).await?.cursor);
    }
    let (mut seen, mut beginnings) = (HashSet::new(), VecDeque::new());
    let mut stream = EventStream::new(daemon, context.output, session, None, false);
    while let Some(event) = stream.next().await? {
        if event.turn_id.is_some_and(|turn| seen.insert(turn)) {
            beginnings.push_back(event.sequence - 1);
        }
        if beginnings.len() > turns {
            beginnings.pop_front();
        }
    }
    Ok(beginnings.pop_front().unwrap_or(0))
}

/// Follows a session until it has an end, or to the tail of its log. Ctrl-C leaves.
pub async fn session(
    context: &Context,
    daemon: &Daemon,
    session: SessionId,
    after: Option<i64>,
    follow: bool,
    following: Following,
) -> Result<Exit, ClientError> {
    let mut interrupts = Interrupts::listen()?;
    let view = View::new(context.output, Scope::Session, following.thoughts);
    let mut desk = Desk::new(daemon, context.output, view, follow);
    let (sender, mut notices) = channel(NOTICES_MAX);
    let stream = EventStream::new(daemon, context.output, session, after, follow);
    let mut stream = stream.telling(sender).restarting(context);
    loop {
        match next(&mut stream, &mut notices, &mut desk, &mut interrupts).await? {
            Happening::Event(Ok(Some(event))) => {
                desk.event(&event)?;
                // Nothing can follow but what was committed with it.
                if event.kind == "session.status" && (event.data["to"] == "archived" || event.data["to"] == "error") {
                    stream.end_at_tail();
                }
            }
            Happening::Event(Ok(None)) => {
                desk.close()?;
                return Ok(Exit::Ok);
            }
            Happening::Interrupt(_) => {
                desk.close()?;
                return Ok(leave(context, session));
            }
            Happening::Event(Err(error)) => {
                desk.close()?;
                return Err(with_way_back(context, session, error));
            }
        }
    }
}

/// Whoever can only not be shown what goes on has left nothing behind that has ended.
fn with_way_back(context: &Context, session: SessionId, error: ClientError) -> ClientError {
    let attach = format!("`acpd attach {}`", short_id(session));
    match error {
        error if error.is_overload() => {
            context.output.note(&format!("the session continues; follow it again with {attach}"));
            error
        }
        ClientError::Unreachable { .. } | ClientError::Broken { .. } | ClientError::TooSlow { .. } => {
            let hint = format!("{attach} starts a daemon if none runs, and shows the session");
            ClientError::Lost { hint, source: Box::new(error) }
        }
        error => error,
    }
}

fn leave(context: &Context, session: SessionId) -> Exit {
    context
        .output
        .note(&format!("detached; the session continues; follow it again with `acpd attach {}`", short_id(session)));
    Exit::Left
}

async fn cancel(daemon: &Daemon, session: SessionId, turn: TurnId) -> Result<(), ClientError> {
    let body = Cancel { turn_id: Some(turn), queued: false };
    match daemon.post::<CancelAccepted>(&format!("/v1/sessions/{session}/cancel"), &body).await {
        Ok(_) => Ok(()),
        // It has ended meanwhile; the stream tells how.
        Err(ClientError::Api { status: hyper::StatusCode::CONFLICT, .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

fn outcome(event: &Event) -> Result<Outcome, ClientError> {
    serde_json::from_value(event.data.clone())
        .map_err(|source| ClientError::Answer { operation: "turn.completed".to_owned(), source })
}

/// Sends a prompt. A suspended session is resumed first: who writes to it wants to go on with it.
pub async fn send_prompt(
    context: &Context,
    daemon: &Daemon,
    session: SessionId,
    prompt: &Prompt,
) -> Result<Accepted, ClientError> {
    let path = format!("/v1/sessions/{session}/prompt");
    match daemon.post(&path, prompt).await {
        Err(error) if error.is_api("session_suspended") => {
            let resume = format!("/v1/sessions/{session}/resume");
            let _: Box<RawValue> = daemon.post(&resume, &serde_json::json!({})).await?;
            context.output.note("resumed the suspended session");
            daemon.post(&path, prompt).await
        }
        answer => answer,
    }
}
