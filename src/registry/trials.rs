//! Trials of agents: who gets one, and that each comes to its end, whoever asked for it and went.

use std::sync::Arc;
use std::time::Duration;

use super::{Registry, RegistryError};
use crate::model::AgentProfile;
use crate::session::{Refusal, Slot, Trial, TrialWish, try_agent};

/// Agents that are tried at once, of all users together: each is a process that works as hard as it can.
pub const TRIALS_MAX: usize = 4;

impl Registry {
    /// Tries an agent for whoever its process would be of. It takes a slot that is free and drives nobody out of theirs:
    /// somebody is only curious.
    pub async fn try_agent(
        &self,
        slug: &str,
        owner: Option<u32>,
        with_session: bool,
        timeout: Option<Duration>,
    ) -> Result<(AgentProfile, Trial), RegistryError> {
        if self.is_stopping() {
            return Err(Refusal::ShuttingDown.into());
        }
        let profile = self.profile(Some(slug))?;
        let limit = RegistryError::TrialLimit { max: TRIALS_MAX };
        let turn = Arc::clone(&self.trials).try_acquire_owned().map_err(|_| limit)?;
        let slot = self.free_slot(owner)?;
        let wish = TrialWish { profile: profile.clone(), owner, with_session, timeout };
        let (shared, halt) = (Arc::clone(&self.shared), self.halt.watch());
        let tried = self.see_through(async move {
            let trial = try_agent(shared, wish, slot, halt).await;
            drop(turn);
            trial
        });
        let trial = tried.await.map_err(|_| RegistryError::ActorFailed)?;
        Ok((profile, trial))
    }

    fn free_slot(&self, owner: Option<u32>) -> Result<Slot, RegistryError> {
        let (slots, config) = (&self.shared().slots, self.shared().config());
        let max = config.limits.share_of_user();
        let share = match owner.map(|owner| slots.shares.try_take(owner, max)) {
            Some(None) => return Err(RegistryError::ProcessShare { max }),
            share => share.flatten(),
        };
        let slot = slots.try_take().ok_or(RegistryError::ProcessLimit { max: config.limits.processes })?;
        Ok(slot.with(share))
    }
}
