//! Modes in which an agent grants itself more than the session's policy does (Gemini CLI's `yolo`, for one). They cannot be
//! chosen unless the profile names them, and an agent that goes into one by itself is asked to go back.

use super::Refusal;
use super::actor::SessionActor;
use crate::model::adapter::mode_grant;
use crate::model::agent::FrozenProfile;
use crate::model::permission::PermissionMode;
use crate::model::permission::policy::Policy;
use crate::model::{Choice, Chosen, ErrorCode, TurnError};

/// How often one process is asked to go back before it is stopped.
const RETURNS_MAX: u32 = 3;

/// The first of these choices that grants more than profile and session do.
pub fn check_modes(profile: &FrozenProfile, session: &Policy, chosen: &Chosen) -> Result<(), Refusal> {
    let wider = chosen.each().into_iter().find(|choice| is_wider(profile, session, choice));
    wider.map_or(Ok(()), |choice| {
        Err(Refusal::WiderMode { choice: Box::new(choice), agent: profile.slug.clone(), policy: session.mode.as_str() })
    })
}

fn is_wider(profile: &FrozenProfile, session: &Policy, choice: &Choice) -> bool {
    let mode = match choice {
        Choice::Mode(mode) => mode.as_str(),
        // Some agents have their mode among their options.
        Choice::Option(id, value) if is_about_modes(id) => value.as_str().unwrap_or_default(),
        Choice::Option(..) | Choice::Model(_) => return false,
    };
    let Some(grant) = mode_grant(mode) else { return false };
    let is_named = profile.modes_allowed.iter().any(|allowed| allowed == mode);
    let grants = |policy: &Policy| grant.narrows(policy.mode) && !policy.has_exceptions();
    // No policy grants everything: even the one that allows asks for git.
    let is_granted =
        grant != PermissionMode::Allow && grants(session) && profile.granted().all(|policy| grants(&policy));
    !is_named && !is_granted
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

    /// An agent that is in a mode which it must not be in is asked for another one.
    pub(super) fn leave_wider_mode(&mut self) {
        let Some(wide) = self.choices.mode().map(|mode| Choice::Mode(mode.to_owned())) else { return };
        // What is asked for already is none that is too wide.
        if !self.is_too_wide(&wide) || !self.link.is_ready() || self.choices.is_asking_for_mode() {
            return;
        }
        let Some(back) = self.choices.modes_instead().map(Choice::Mode).find(|mode| !self.is_too_wide(mode)) else {
            let text = format!(
                "the agent is in {wide}, which allows more than the session's policy, and offers no narrower \
                    mode"
            );
            return self.notice(None, "wider_mode", text);
        };
        if self.choices.count_return() > RETURNS_MAX {
            let message = format!("the agent keeps returning to {wide}, which allows more than the session's policy");
            return self.fault(TurnError::new(ErrorCode::Protocol, message));
        }
        let text = format!(
            "the agent is in {wide}, which allows more than the session's policy; acpd switches it to \
            {back}"
        );
        self.notice(None, "wider_mode", text);
        self.ask_for(back);
    }
}
