//! Who asks, and how far they see and reach.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;

use super::Api;
use super::error::ApiError;
use crate::model::session::Session;
use crate::model::{Peer, SessionId, Sight};
use crate::store::EventScope;

/// What an agent may say to its tools at once. It has no prompts with pictures to send.
const AGENT_BODY_BYTES_MAX: usize = 1 << 20;

/// What somebody is to this daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The user whose daemon it is, or root in that user's place.
    Own,
    /// Root, of whom the daemon is that serves others too.
    Root,
    /// Another user, whom a daemon of root serves.
    Member,
    /// The agent of this session, at the socket of its tools. It stands for the session's owner. Of sessions, it changes only its
    /// own.
    Agent { session: SessionId, owner: Option<u32> },
}

/// Every handler has one: what it reads and changes goes through it, so that nobody reaches what is another's.
#[derive(Clone, Debug)]
pub struct Caller {
    pub peer: Arc<Peer>,
    standing: Standing,
}

impl Caller {
    pub fn new(peer: Arc<Peer>, standing: Standing) -> Self {
        Self { peer, standing }
    }

    /// Whose is what they make. Nothing: the daemon's own user's.
    pub fn owner(&self) -> Option<u32> {
        match self.standing {
            Standing::Own | Standing::Root => None,
            Standing::Member => Some(self.peer.uid),
            Standing::Agent { owner, .. } => owner,
        }
    }

    /// What they may reach when they name it.
    pub fn sight(&self) -> Sight {
        match self.standing {
            Standing::Own | Standing::Root => Sight::All,
            Standing::Member | Standing::Agent { .. } => Sight::Own(self.owner()),
        }
    }

    /// What lists show them: their own, and to root, who asks for it, all.
    pub fn listing(&self, all: bool) -> Sight {
        match self.standing {
            Standing::Root if !all => Sight::Own(self.owner()),
            Standing::Own | Standing::Root | Standing::Member | Standing::Agent { .. } => self.sight(),
        }
    }

    /// Refuses an agent every session but its own, by the very id.
    pub fn writes(&self, session: &str) -> Result<(), ApiError> {
        match self.standing {
            Standing::Agent { session: own, .. } if own.to_string() != session => Err(ApiError::OtherSession),
            Standing::Own | Standing::Root | Standing::Member | Standing::Agent { .. } => Ok(()),
        }
    }

    /// The largest body that is taken of them, where `max` is taken of people.
    pub fn body_max(&self, max: usize) -> usize {
        if self.agent_of().is_some() { max.min(AGENT_BODY_BYTES_MAX) } else { max }
    }

    /// Who did it, for the record.
    pub fn by(&self) -> Arc<Peer> {
        Arc::clone(&self.peer)
    }

    /// The log of what lists show them.
    pub fn log(&self, all: bool) -> EventScope {
        match self.listing(all) {
            Sight::All => EventScope::All,
            Sight::Own(owner) => EventScope::Owner(owner),
        }
    }

    /// Whether the daemon itself is another's: its inside is none of theirs.
    pub fn is_guest(&self) -> bool {
        match self.standing {
            Standing::Own | Standing::Root => false,
            Standing::Member | Standing::Agent { .. } => true,
        }
    }

    /// The session whose agent it is, if it is one.
    pub fn agent_of(&self) -> Option<SessionId> {
        match self.standing {
            Standing::Agent { session, .. } => Some(session),
            Standing::Own | Standing::Root | Standing::Member => None,
        }
    }

    /// Refuses what is done to the daemon as a whole to those whose it is not.
    pub fn host_only(&self) -> Result<(), ApiError> {
        if self.is_guest() { Err(ApiError::RootOnly) } else { Ok(()) }
    }

    /// The session, or that there is none that they may see.
    pub async fn session(&self, api: &Api, id: SessionId) -> Result<Session, ApiError> {
        let session = api.registry.hub().store().session(id).await?;
        let session = session.filter(|session| self.sight().has(session.owner_uid));
        session.ok_or_else(|| ApiError::NoSuchSession(id.to_string()))
    }

    /// Refuses a session that they may not see. Whoever may see all is not looked up: whether there is such a session is
    /// then told by whoever is asked next.
    pub async fn reach(&self, api: &Api, id: SessionId) -> Result<(), ApiError> {
        match self.sight() {
            Sight::All => Ok(()),
            Sight::Own(_) => self.session(api, id).await.map(drop),
        }
    }
}

impl FromRequestParts<Arc<Api>> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<Api>) -> Result<Self, ApiError> {
        parts.extensions.get::<Self>().cloned().ok_or(ApiError::NoCaller)
    }
}
