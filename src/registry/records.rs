//! Checkpoints and records: what is added to a session from outside, without its actor. The writer decides, after all that was
//! appended before; when it refuses, a look tells why.

use serde_json::{Map, Value};

use super::{Registry, RegistryError};
use crate::model::checkpoint::{CHECKPOINTS_MAX, Checkpoint, Origin};
use crate::model::record::{self, ENTITIES_MAX, OBSERVATIONS_MAX};
use crate::model::{By, Content, MessageId, Role, SessionId, SessionStatus};
use crate::session::Refusal;
use crate::store::{Catalogue, Claim, Made, NewCheckpoint, NewMessage, NewObservation, Op, StoreError, Unit};

/// What became of an observation.
#[derive(Debug)]
pub struct Observed {
    pub entity: String,
    pub observation_count: i64,
    /// It was not known before.
    pub is_new: bool,
}

/// What a new session is told of the checkpoint that it goes on from.
#[derive(Debug)]
pub struct Restoring {
    pub origin: Origin,
    pub context: String,
}

impl Restoring {
    /// The agent gets it before its first prompt, whenever that is.
    pub(super) fn ops(self, session: SessionId, by: By) -> [(SessionId, Op); 3] {
        let message = MessageId::new();
        let text = NewMessage::new(message, None, Role::System, &Content::text(self.context)).added_by(by);
        [Op::SetOrigin(Box::new(self.origin)), Op::Message(text), Op::KeepForPrompt(message)].map(|op| (session, op))
    }
}

impl Registry {
    pub async fn add_checkpoint(
        &self,
        session: SessionId,
        owner: Option<u32>,
        mut new: NewCheckpoint,
        claim: Option<Claim>,
    ) -> Result<Checkpoint, RegistryError> {
        self.check_space()?;
        // As it is going to be recorded, so that it is found.
        self.hub().secrets(owner).redact(&mut new.name);
        self.check_checkpoint(session, &new.name).await?;
        let (id, name) = (new.id.to_string(), new.name.clone());
        let mut unit = Unit::default();
        unit.ops.extend(claim.map(|claim| (session, Op::Remember(Box::new((claim, Made::default()))))));
        unit.ops.push((session, Op::AddCheckpoint(Box::new(new))));
        if let Err(error) = self.hub().append(owner, unit).await {
            // Something came between the look and the commit.
            self.check_checkpoint(session, &name).await?;
            return Err(error.into());
        }
        self.hub().store().checkpoint(session, &id).await?.ok_or(RegistryError::NotFound(session))
    }

    /// Whether the session can have a checkpoint of this name.
    async fn check_checkpoint(&self, session: SessionId, name: &str) -> Result<(), RegistryError> {
        let store = self.hub().store();
        match store.status(session).await?.ok_or(RegistryError::NotFound(session))? {
            SessionStatus::Active | SessionStatus::Suspended => {}
            SessionStatus::Archived => return Err(Refusal::NotActive(SessionStatus::Archived).into()),
            SessionStatus::Error => return Err(self.in_error(session).await?),
        }
        if store.checkpoint(session, name).await?.is_some_and(|known| known.name == name) {
            return Err(RegistryError::CheckpointExists(name.to_owned()));
        }
        if store.count_checkpoints(session).await? >= CHECKPOINTS_MAX {
            return Err(RegistryError::CheckpointLimit { max: CHECKPOINTS_MAX });
        }
        Ok(())
    }

    /// Records what somebody says of a session.
    pub async fn observe(&self, new: NewObservation) -> Result<Observed, RegistryError> {
        self.check_space()?;
        let store = self.hub().store();
        let (id, owner, bytes_max) = (new.id, new.owner, new.snapshot_bytes_max);
        let content: Map<String, Value> = serde_json::from_str(new.content.get()).unwrap_or_default();
        let name = record::session_id(&content);
        if let Err(error) = self.hub().append(owner, Unit::catalogue(Catalogue::Observe(Box::new(new)))).await {
            return Err(match error {
                StoreError::NotCommitted(reason) if matches!(*reason, StoreError::Refused(_)) => {
                    self.full(name, owner, bytes_max).await?
                }
                error => error.into(),
            });
        }
        let is_new = store.has_observation(id).await?;
        let entity = store.entity_named(name, owner).await?;
        // Only a purge of the session can have taken it away.
        let entity = entity.ok_or(StoreError::Refused("a session record of a deleted session"))?;
        Ok(Observed { entity: entity.id, observation_count: entity.observation_count, is_new })
    }

    /// Which bound an observation would have exceeded.
    async fn full(&self, name: &str, owner: Option<u32>, bytes_max: usize) -> Result<RegistryError, StoreError> {
        let store = self.hub().store();
        let (what, max) = match store.entity_named(name, owner).await? {
            None => ("sessions", ENTITIES_MAX),
            Some(entity) if entity.observation_count >= OBSERVATIONS_MAX => ("observations", OBSERVATIONS_MAX),
            Some(_) => ("bytes", i64::try_from(bytes_max).unwrap_or(i64::MAX)),
        };
        Ok(RegistryError::RecordFull { what, max })
    }
}
