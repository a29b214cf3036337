//! How the session's process is confined, and what people are told of that.

use std::path::Path;

use serde_json::value::RawValue;

use super::actor::SessionActor;
use super::link::Link;
use crate::agent::{Command, SpawnError, returns_login};
use crate::config::SELF_COMMAND;
use crate::model::event::ExitReason;
use crate::model::{Adapter, FsScope, Sandbox, SandboxLevel, SessionStatus};
use crate::store::Op;

/// How programs say that they may not write somewhere.
const REFUSALS: [&str; 6] = [
    "Permission denied",
    "EACCES",
    "Read-only file system",
    "EROFS",
    "Value too large for defined data type",
    "EOVERFLOW",
];

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
        let Link::Up(connected) = &mut self.link else { return };
        let is_confined = connected.sandbox != SandboxLevel::None;
        let text = update.get();
        if !is_confined || connected.has_explained || !text.contains("\"tool_call_update\"") {
            return;
        }
        if !(text.contains("\"failed\"") || text.contains("\"completed\"")) {
            return;
        }
        if NESTED.iter().any(|said| text.contains(said)) {
            connected.has_explained = true;
            let text = "the agent's own sandbox cannot start within acpd's confinement, so the agent cannot run commands in \
                it; turn the agent's own sandbox off, or choose another mode with `acpd mode`";
            tracing::warn!("{text}");
            return self.notice(self.running_turn(), "sandbox", text);
        }
        if !self.persona.home(&self.shared.home).is_some_and(|home| is_refusal(text, home, &self.workspace)) {
            return;
        }
        connected.has_explained = true;
        let scope = self.links.scope();
        let advice = match scope {
            FsScope::Sandboxed => {
                "create a session with the scope project (context.fsScope, `--scope project`), which may also write \
                    to the directories in workspace.extra"
            }
            FsScope::Project | FsScope::Full => {
                "add the directory to workspace.extra; sessions with the scope project may write to it"
            }
        };
        let text = format!(
            "the sandbox blocked a write in the home directory: this session has the scope {}, so it can only write \
                to its workspace and its own TMPDIR; {advice}",
            scope.as_str()
        );
        self.notice(self.running_turn(), "sandbox", text);
    }
}

/// Whether a text tells of a write that was refused in the home, but outside the workspace.
fn is_refusal(text: &str, home: &Path, workspace: &Path) -> bool {
    let (Some(home), Some(workspace)) = (home.to_str().filter(|home| home.len() > 1), workspace.to_str()) else {
        return false;
    };
    let is_below =
        |place: &str, directory: &str| place.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/'));
    REFUSALS.iter().any(|refusal| text.contains(refusal))
        && text.match_indices(home).any(|(at, _)| is_below(&text[at..], home) && !is_below(&text[at..], workspace))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_one_in_the_home_outside_the_workspace() {
        let (home, workspace) = (Path::new("/home/me"), Path::new("/home/me/work"));
        for (text, expected) in [
            ("error: /home/me/.cargo/registry: Permission denied (os error 13)", true),
            ("npm ERR! EACCES: mkdir '/home/me/.npm/_cacache'", true),
            ("/home/me/work/x: Permission denied", false),
            ("/home/me/workshop/x: Permission denied", true),
            ("/etc/passwd: Permission denied", false),
            ("/home/melanie/x: Permission denied", false),
            ("/home/me/.cargo is fine", false),
        ] {
            assert_eq!(is_refusal(text, home, workspace), expected, "{text}");
        }
        assert!(!is_refusal("/x: EACCES", Path::new("/"), workspace), "a daemon without a home");
    }
}
