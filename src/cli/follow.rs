//! Following a stream until it is over: one turn for whoever wrote the prompt, or a session for whoever looks on.

use serde_json::value::RawValue;

use crate::control::wire::{Accepted, Cancel, CancelAccepted, Prompt};
use crate::model::{SessionId, TurnId};

use super::connection::Daemon;
use super::context::Context;
use super::error::ClientError;
use super::exit::Exit;
use super::interrupts::Interrupts;
use super::question::Desk;
use super::render::{Outcome, Scope};
use super::stream::{Event, EventStream};
use super::text::short_id;
use super::view::View;

/// Follows one turn to its end. The first Ctrl-C cancels it, the second leaves.
pub async fn turn(
    context: &Context,
    daemon: &Daemon,
    session: SessionId,
    accepted: &Accepted,
    interrupts: &mut Interrupts,
) -> Result<Exit, ClientError> {
    match accepted.position {
        0 => {}
        1 => context.output.note("queued behind one turn"),
        turns => context.output.note(&format!("queued behind {turns} turns")),
    }
    let mut desk = Desk::new(daemon, context.output, View::new(context.output, Scope::Turn), true);
    let mut stream = EventStream::new(daemon, context.output, session, Some(accepted.after), true);
    let mut is_cancelling = false;
    loop {
        let is_caught_up = stream.is_caught_up();
        let event = tokio::select! {
            biased;
            () = interrupts.next() => {
                desk.close()?;
                if is_cancelling {
                    return Ok(leave(context, session));
                }
                is_cancelling = true;
                context.output.note("cancelling the turn; Ctrl-C again leaves without waiting for its end");
                match interrupts.unless(cancel(daemon, session, accepted.turn_id)).await {
                    Ok(()) => {}
                    Err(ClientError::Left) => return Ok(leave(context, session)),
                    Err(error) => context.output.error(&error),
                }
                continue;
            }
            input = desk.next(is_caught_up) => {
                desk.take(input)?;
                continue;
            }
            event = stream.next() => event,
        };
        let event = match event {
            Ok(Some(event)) => event,
            // A stream that follows has no end; one that ends all the same must not be asked for ever.
            Ok(None) => {
                let hint = format!("`acpd attach {}` comes back to it", short_id(session));
                return Err(ClientError::local("the stream ended before the turn did", hint));
            }
            Err(error) => {
                desk.close()?;
                tell_how_to_come_back(context, session, &error);
                return Err(error);
            }
        };
        if event.turn_id != Some(accepted.turn_id) {
            continue;
        }
        desk.event(&event)?;
        if event.kind == "turn.completed" {
            desk.close()?;
            return outcome(&event).map(|outcome| Exit::of_turn(outcome.status));
        }
    }
}

/// Follows a session until it has an end, or to the tail of its log. Ctrl-C leaves.
pub async fn session(
    context: &Context,
    daemon: &Daemon,
    session: SessionId,
    after: Option<i64>,
    follow: bool,
) -> Result<Exit, ClientError> {
    let mut interrupts = Interrupts::listen()?;
    let mut desk = Desk::new(daemon, context.output, View::new(context.output, Scope::Session), follow);
    let mut stream = EventStream::new(daemon, context.output, session, after, follow);
    loop {
        let is_caught_up = stream.is_caught_up();
        let event = tokio::select! {
            biased;
            input = desk.next(is_caught_up) => {
                desk.take(input)?;
                continue;
            }
            event = interrupts.unless(stream.next()) => event,
        };
        match event {
            Ok(Some(event)) => {
                desk.event(&event)?;
                // Nothing can follow but what was committed with it.
                if event.kind == "session.status" && (event.data["to"] == "archived" || event.data["to"] == "error") {
                    stream.end_at_tail();
                }
            }
            Ok(None) => {
                desk.close()?;
                return Ok(Exit::Ok);
            }
            Err(ClientError::Left) => {
                desk.close()?;
                return Ok(leave(context, session));
            }
            Err(error) => {
                desk.close()?;
                tell_how_to_come_back(context, session, &error);
                return Err(error);
            }
        }
    }
}

/// Whoever can only not be shown what goes on has left nothing behind that has ended.
fn tell_how_to_come_back(context: &Context, session: SessionId, error: &ClientError) {
    let attach = format!("`acpd attach {}`", short_id(session));
    match error {
        error if error.is_overload() => {
            context.output.note(&format!("the session goes on: {attach} comes back to it"));
        }
        ClientError::Unreachable { .. } | ClientError::Broken { .. } | ClientError::TooSlow { .. } => {
            context.output.note(&format!("{attach} tells what became of it when the daemon can be reached"));
        }
        _ => {}
    }
}

fn leave(context: &Context, session: SessionId) -> Exit {
    context.output.note(&format!("left; the session goes on: `acpd attach {}` comes back to it", short_id(session)));
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
            context.output.note("the session was suspended; resumed it");
            daemon.post(&path, prompt).await
        }
        answer => answer,
    }
}
