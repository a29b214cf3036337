//! `acpd run`: the whole product in one line.

use clap::Args;

use crate::cli::attachments::Attachments;
use crate::cli::context::Context;
use crate::cli::error::ClientError;
use crate::cli::exit::{self, Exit};
use crate::cli::interrupts::Interrupts;
use crate::cli::render::Glyphs;
use crate::cli::text::short_id;
use crate::cli::{follow, prompt_text};
use crate::control::wire::{Accepted, Session, Start};
use crate::model::permission::PermissionMode;

use super::new::{SessionOptions, real_directory};

const LONG_HELP: &str = "\
Start a session, send a prompt and stream the answer.

The answer goes to stdout; plans and tool calls go to stderr. The session stays when the command ends: continue it with \
`acpd prompt -`. Permission requests are shown on the terminal. Without a terminal they wait for `acpd approve` or \
`acpd reject`. On a terminal the answer is rendered as Markdown; press t to fold or unfold the agent's thoughts, and ? to \
list the keys. Ctrl-C cancels the turn; a second Ctrl-C detaches and the session continues. Piped input is appended to the \
prompt, or is the prompt if no words are given. If no daemon runs, the command starts one. That daemon does not inherit \
this shell's environment, except a few variables such as PATH and HOME, and those that profiles name in env_pass.";

/// Start a session, send a prompt and stream the answer
#[derive(Args, Debug)]
#[command(long_about = LONG_HELP, after_long_help = exit::HELP)]
pub struct Run {
    /// Prompt; words are joined with spaces
    pub prompt: Vec<String>,
    #[command(flatten)]
    pub attachments: Attachments,
    #[command(flatten)]
    pub options: SessionOptions,
    #[command(flatten)]
    pub following: follow::Following,
    #[command(flatten)]
    pub waiting: follow::Waiting,
}

impl Run {
    pub async fn execute(self, context: &Context) -> Result<Exit, ClientError> {
        let request = self.options.request(Start::Eager)?;
        let text = prompt_text::gather(&self.prompt, context.output)?.ok_or_else(prompt_text::missing)?;
        let prompt = self.attachments.prompt(text)?;
        let daemon = context.daemon().await?;
        let mut interrupts = Interrupts::listen()?;
        let session: Session = interrupts.unless(daemon.post("/v1/sessions", &request)).await?;
        let sent = interrupts.unless(follow::send_prompt(context, &daemon, session.id, &prompt)).await;
        if matches!(&sent, Err(ClientError::Api { status, .. }) if status.is_client_error()) {
            // A session whose first prompt was refused is empty, and `-` would mean it from now on.
            let path = format!("/v1/sessions/{}?purge=true", session.id);
            drop(daemon.delete::<Session>(&path).await);
        }
        let accepted = sent?;
        if !self.waiting.is_wanted() {
            return follow::tell_accepted(context, session.id, &accepted);
        }
        if !context.output.stderr_is_terminal || context.output.json {
            // On a terminal it is said at the end, with how to go on.
            context.output.note(&format!("session {}", session.id));
        }
        // A policy that allows everything does not rely on requests.
        if let Some(warning) = session.asks.warning().filter(|_| session.permissions.mode != PermissionMode::Allow) {
            context.output.note(&format!("{} {warning}", session.agent));
        }
        interrupts.after(self.waiting.timeout);
        let agent = &session.agent;
        // A notice about the session may have come before its first turn.
        let all = Accepted { after: 0, ..accepted };
        let exit = follow::turn(context, &daemon, session.id, &all, agent, self.following, &mut interrupts).await?;
        if exit != Exit::Left {
            // A dash means the newest session of the current directory, which need not be where this one works.
            let is_here = real_directory(None).is_ok_and(|here| here.to_str() == Some(session.workspace.as_str()));
            let name = if is_here { "-".to_owned() } else { short_id(session.id) };
            let Glyphs { dot, ellipsis, .. } = Glyphs::of_environment();
            let next = format!("session {} {dot} acpd prompt {name} \"{ellipsis}\" continues it", session.id);
            context.output.aside(&next);
        }
        Ok(exit)
    }
}
