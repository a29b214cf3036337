//! Trials of agents: who gets one, and that each comes to its end, whoever asked for it and went.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{Registry, RegistryError, mcp};
use crate::model::{AgentProfile, Sight};
use crate::session::{Refusal, Slot, Trial, TrialWish, try_agent};

/// Agents that are tried at once, of all users together: each is a process that works as hard as it can.
pub const TRIALS_MAX: usize = 4;

/// The trials that go on, by whose they are.
#[derive(Debug, Default)]
pub struct Trials(Mutex<Vec<Option<u32>>>);

/// One of them, until it is dropped.
struct Turn {
    trials: Arc<Trials>,
    owner: Option<u32>,
}

impl Trials {
    fn begin(self: &Arc<Self>, owner: Option<u32>) -> Option<Turn> {
        let mut owners = self.lock();
        (owners.len() < TRIALS_MAX).then(|| {
            owners.push(owner);
            Turn { trials: Arc::clone(self), owner }
        })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Option<u32>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut owners = self.trials.lock();
        if let Some(place) = owners.iter().position(|owner| *owner == self.owner) {
            owners.swap_remove(place);
        }
    }
}

impl Registry {
    /// Tries an agent for whoever its process would be of. It takes a slot that is free and drives nobody out of theirs:
    /// somebody is only curious.
    pub async fn try_agent(
        &self,
        slug: &str,
        owner: Option<u32>,
        sight: Sight,
        with_session: bool,
        timeout: Option<Duration>,
    ) -> Result<(AgentProfile, Trial), RegistryError> {
        if self.is_stopping() {
            return Err(Refusal::ShuttingDown.into());
        }
        let profile = self.profile(slug, sight).await?;
        let mcp_servers = mcp::chosen(&profile, None)?;
        let limit = RegistryError::TrialLimit { max: TRIALS_MAX };
        let turn = self.trials.begin(owner).ok_or(limit)?;
        let slot = self.free_slot(owner)?;
        let wish = TrialWish { profile: profile.clone(), mcp_servers, owner, with_session, timeout };
        let (shared, halt) = (Arc::clone(&self.shared), self.halt.watch());
        let tried = self.see_through(async move {
            let trial = try_agent(shared, wish, slot, halt).await;
            drop(turn);
            trial
        });
        let trial = tried.await.map_err(|_| RegistryError::ActorFailed)?;
        Ok((profile, trial))
    }

    /// How many agents are being tried now, of those in sight.
    pub fn trial_count(&self, sight: Sight) -> usize {
        self.trials.lock().iter().filter(|owner| sight.has(**owner)).count()
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
