//! `acpd prompt`: goes on with a session.

use clap::Args;

use crate::cli::attachments::Attachments;
use crate::cli::context::Context;
use crate::cli::error::ClientError;
use crate::cli::exit::Exit;
use crate::cli::interrupts::Interrupts;
use crate::cli::{follow, lookup, prompt_text};

/// Send a prompt to a session and stream the answer
///
/// A suspended session is resumed first. Piped input is appended to the prompt, or is the prompt if no words are given.
/// Permission requests are shown on the terminal. Ctrl-C cancels the turn; a second Ctrl-C detaches and the session
/// continues.
#[derive(Args, Debug)]
pub struct Prompt {
    /// Session: id, id prefix or suffix, exact title, or - for the newest one here
    pub session: String,
    /// Prompt; words are joined with spaces
    pub text: Vec<String>,
    #[command(flatten)]
    pub attachments: Attachments,
    #[command(flatten)]
    pub following: follow::Following,
    #[command(flatten)]
    pub waiting: follow::Waiting,
}

impl Prompt {
    pub async fn execute(self, context: &Context) -> Result<Exit, ClientError> {
        let Some(text) = prompt_text::gather(&self.text, context.output)? else {
            return Err(prompt_text::missing_after(&self.session, self.names_session(context).await));
        };
        let prompt = self.attachments.prompt(text)?;
        let daemon = context.daemon().await?;
        let session = lookup::session(&daemon, &self.session).await?;
        let mut interrupts = Interrupts::listen()?;
        let accepted = interrupts.unless(follow::send_prompt(context, &daemon, session, &prompt)).await?;
        if !self.waiting.is_wanted() {
            return follow::tell_accepted(context, session, &accepted);
        }
        interrupts.after(self.waiting.timeout);
        follow::turn(context, &daemon, session, &accepted, "", self.following, &mut interrupts).await
    }

    /// Whether what stands in the session's place is one. No daemon is started for that.
    async fn names_session(&self, context: &Context) -> bool {
        if self.session == "-" {
            return true;
        }
        match context.running_daemon().await {
            Ok(daemon) => lookup::session(&daemon, &self.session).await.is_ok(),
            Err(_) => false,
        }
    }
}
