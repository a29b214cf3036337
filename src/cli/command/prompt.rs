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
/// A suspended session is resumed first. What is piped into the command follows the words of the prompt, or is the
/// prompt when there are none. What the agent asks is asked on the terminal. Ctrl-C cancels the turn, and a second one leaves while the session goes on.
#[derive(Args, Debug)]
pub struct Prompt {
    /// An id or a part of it, a title, or - for the newest session here
    pub session: String,
    /// The prompt; several words are joined
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
