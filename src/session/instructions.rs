//! The profile's system prompt, for agents that take it with their prompts alone.
//!
//! It is the first block of the first prompt of every conversation that the agent begins. Like the transcript it is owed until
//! a turn that shows it ends with a stop reason. An agent that has restored its conversation has it there.

use crate::model::agent::FrozenProfile;
use crate::store::Op;

pub struct Instructions {
    /// None: there are none, or the agent takes them in another way.
    text: Option<String>,
    owed: bool,
    /// The running turn shows them.
    shown: bool,
}

impl Instructions {
    pub fn new(profile: &FrozenProfile, owed: bool) -> Self {
        let text = profile.system_prompt.clone().filter(|_| !profile.adapter.quirks().takes_system_prompt);
        Self { text, owed, shown: false }
    }

    /// The agent begins anew, and has yet to be given them, if there are any. What there is to record.
    pub fn owe(&mut self) -> Option<Op> {
        self.shown = false;
        self.set_owed(self.text.is_some())
    }

    /// What the prompt of a turn that begins starts with.
    pub fn show(&mut self) -> Option<&str> {
        self.shown = self.owed;
        self.text.as_deref().filter(|_| self.shown)
    }

    /// The turn that runs has ended with a stop reason.
    pub fn were_shown(&mut self) -> Option<Op> {
        if std::mem::take(&mut self.shown) { self.set_owed(false) } else { None }
    }

    fn set_owed(&mut self, owed: bool) -> Option<Op> {
        (std::mem::replace(&mut self.owed, owed) != owed).then_some(Op::OweInstructions(owed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Adapter, AgentProfile};

    fn instructions(adapter: Adapter) -> Instructions {
        let system_prompt = Some("Be brief.".to_owned());
        Instructions::new(&AgentProfile { system_prompt, adapter, ..AgentProfile::new("x") }.freeze(), false)
    }

    #[test]
    fn they_are_owed_until_a_turn_that_shows_them_has_ended() {
        let mut instructions = instructions(Adapter::Generic);
        assert_eq!(instructions.show(), None, "the agent has them");
        assert!(matches!(instructions.owe(), Some(Op::OweInstructions(true))));
        assert_eq!(instructions.show(), Some("Be brief."));
        assert_eq!(instructions.show(), Some("Be brief."), "the turn before failed");
        assert!(instructions.owe().is_none(), "nothing new to record");
        assert!(instructions.were_shown().is_none(), "to an agent that is gone");
        assert_eq!(instructions.show(), Some("Be brief."));
        assert!(matches!(instructions.were_shown(), Some(Op::OweInstructions(false))));
        assert_eq!(instructions.show(), None);
    }

    #[test]
    fn an_agent_that_takes_them_otherwise_is_not_given_them_twice() {
        let mut instructions = instructions(Adapter::Claude);
        assert!(instructions.owe().is_none());
        assert_eq!(instructions.show(), None);
    }
}
