//! Modes in which an agent grants itself more than the session's policy does (Gemini CLI's `yolo`, for one). They cannot be
//! chosen unless the profile names them, and an agent that goes into one by itself is asked to go back.

use super::Refusal;
use super::actor::SessionActor;
use crate::config::SELF_COMMAND;
use crate::model::adapter::{Asks, by_name};
use crate::model::agent::FrozenProfile;
use crate::model::permission::PermissionMode;
use crate::model::permission::policy::Policy;
use crate::model::{Adapter, Choice, Chosen, ErrorCode, TurnError};

/// How often one process is asked to go back before it is stopped.
const RETURNS_MAX: u32 = 3;

/// The first of these choices that grants more than profile and session do.
pub fn check_modes(profile: &FrozenProfile, session: &Policy, chosen: &Chosen) -> Result<(), Refusal> {
    let wider = chosen.each().into_iter().find(|choice| is_wider(profile, session, choice));
    wider.map_or(Ok(()), |choice| {
        Err(Refusal::WiderMode { choice: Box::new(choice), agent: profile.slug.clone(), policy: session.mode.as_str() })
    })
}

/// Whether the agent asks. Before it has announced its mode, the mode is the one that acpd would choose. acpd's own agent asks.
pub fn asks(adapter: Adapter, command: &str, mode: Option<&str>) -> Asks {
    let mode = mode.or_else(|| adapter.quirks().modes.first()?.1.first().copied());
    if command == SELF_COMMAND { Asks::Always } else { adapter.asks(mode.unwrap_or_default()) }
}

fn is_wider(profile: &FrozenProfile, session: &Policy, choice: &Choice) -> bool {
    let (mode, asks) = match choice {
        Choice::Mode(mode) => (mode.as_str(), profile.adapter.asks(mode)),
        // Some agents have their mode among their options, or a setting beside it.
        Choice::Option(id, value) if is_about_modes(id) => {
            let value = value.as_str().unwrap_or_default();
            (value, if id == "mode" { profile.adapter.asks(value) } else { by_name(value) })
        }
        Choice::Option(..) | Choice::Model(_) => return false,
    };
    let grants = |policy: &Policy| PermissionMode::Edit.narrows(policy.mode) && !policy.has_exceptions();
    let is_granted = match asks {
        Asks::Always | Asks::Unknown => true,
        Asks::ExceptEdits => grants(session) && profile.granted().all(|policy| grants(&policy)),
        // No policy grants everything: even the one that allows asks for git.
        Asks::Model | Asks::Never => false,
    };
    !is_granted && !profile.modes_allowed.iter().any(|allowed| allowed == mode)
}

fn is_about_modes(option: &str) -> bool {
    let option = option.to_ascii_lowercase();
    ["mode", "approval", "permission"].iter().any(|word| option.contains(word))
}

impl SessionActor {
    /// Whether the session must not have this.
    pub(super) fn is_too_wide(&self, choice: &Choice) -> bool {
        is_wider(&self.profile, &self.permissions.session, choice)
    }

    /// Switches an agent that is in a mode which grants too much to one that asks. At a start, a notice says so
    /// only if the session was in another mode before.
    pub(super) fn leave_wider_mode(&mut self, is_start: bool) {
        let Some(wide) = self.choices.mode().map(str::to_owned) else { return };
        let is_too_wide = |mode: &str| self.is_too_wide(&Choice::Mode(mode.to_owned()));
        // What is asked for already is none that is too wide.
        if !is_too_wide(&wide) || !self.link.is_ready() || self.choices.is_asking_for_mode() {
            return;
        }
        let adapter = self.profile.adapter;
        let why = format!("the mode {wide:?}, in which it {}", adapter.asks(&wide).warning().unwrap_or_default());
        let hint = format!("to allow that mode, add it to agents.{}.modes_allowed", self.profile.section());
        let Some(back) = self.choices.modes_instead(adapter).find(|mode| !is_too_wide(mode)) else {
            let text = format!("the agent is in {why}, and offers no narrower mode; {hint}");
            return self.notice(None, "wider_mode", text);
        };
        if self.choices.count_return() > RETURNS_MAX {
            let message = format!("the agent keeps returning to {why}; {hint}");
            return self.fault(TurnError::new(ErrorCode::Protocol, message));
        }
        if !self.choices.settle_in(&back) || !is_start {
            self.notice(None, "wider_mode", format!("acpd switched the agent from {why}, to {back:?}; {hint}"));
        }
        self.ask_for(Choice::Mode(back));
    }
}
