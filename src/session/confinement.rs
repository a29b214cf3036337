//! How the session's process is confined, and what people are told of that.

use serde_json::value::RawValue;

use super::actor::SessionActor;
use super::link::Link;
use crate::agent::{Command, SpawnError, returns_login};
use crate::config::SELF_COMMAND;
use crate::model::event::ExitReason;
use crate::model::{Adapter, Sandbox, SandboxLevel, SessionStatus};
use crate::store::Op;

/// How an agent's own sandbox says that it cannot start: bubblewrap, and Codex's program around it.
const NESTED: [&str; 2] = ["bwrap: ", "linux-sandbox/src/"];

impl SessionActor {
    /// The command with the session's own directories, and confined as the session's scope has it.
    pub(super) fn confined(&self, command: Command, adapter: Adapter) -> Result<Command, SpawnError> {
        self.start().confined(command, &self.profile, adapter)
    }

    /// Nothing starts in an archived session any more.
    pub(super) fn remove_directories_of_the_archived(&self) {
        if self.status == SessionStatus::Archived {
            drop(self.shared.host.directories.remove(self.id));
        }
    }

    /// The process tells what holds it.
    pub(super) fn on_confined(&mut self, sandbox: Sandbox) {
        let (level, missing) = (sandbox.level.as_str(), sandbox.missing.join("; "));
        match sandbox.level {
            SandboxLevel::Partial => tracing::warn!(level, missing, "the agent's sandbox is weaker than configured"),
            SandboxLevel::None | SandboxLevel::WritesOnly | SandboxLevel::Isolated => {
                tracing::info!(level, missing, "sandbox of the agent");
            }
        }
        if sandbox.level == SandboxLevel::Isolated
            && !returns_login(self.profile.adapter)
            && self.profile.command != SELF_COMMAND
        {
            tracing::warn!(
                "if the agent renews its sign-in, the new one stays in this session: acpd does not know its file"
            );
        }
        if let Link::Up(connected) = &mut self.link {
            connected.sandbox = sandbox.level;
        }
        self.record(Op::SetSandbox(Box::new(sandbox)));
    }

    /// The policy may forbid by now what the process was started with. Its confinement is for good, so it goes between turns,
    /// and the next one is confined as it should be.
    pub(super) fn stop_if_too_free(&mut self) {
        let Link::Up(connected) = &self.link else { return };
        let is_too_free = self.permissions.forbids_writes() && !connected.is_read_only;
        // Where nothing confines it, the next one would be as free.
        if is_too_free && connected.sandbox != SandboxLevel::None && self.link.is_ready() && self.running.is_none() {
            tracing::info!("the policy no longer lets the agent write; stopping its process");
            self.stop_process(ExitReason::Policy);
        }
    }

    /// A tool that fails because it may not write to a cache in the user's home leaves people without a clue: they are told
    /// once a process.
    pub(super) fn explain_refusals(&mut self, update: &RawValue) {
        let Link::Up(connected) = &self.link else { return };
        let is_due = connected.sandbox != SandboxLevel::None && !connected.has_explained;
        let text = update.get();
        let is_over = text.contains("\"failed\"") || text.contains("\"completed\"");
        if !is_due || !is_over || !text.contains("\"tool_call_update\"") {
            return;
        }
        let nested = "the agent's own sandbox cannot start within acpd's confinement, so the agent cannot run commands in \
            it; turn the agent's own sandbox off, or choose another mode with `acpd mode`";
        let is_nested = NESTED.iter().any(|said| text.contains(said));
        let explanation = if is_nested { Some(nested.to_owned()) } else { self.start().refusal(text, &self.profile) };
        let Some(explanation) = explanation else { return };
        tracing::warn!("{explanation}");
        if let Link::Up(connected) = &mut self.link {
            connected.has_explained = true;
        }
        self.notice(self.running_turn(), "sandbox", explanation);
    }
}
