//! Agents as entities: those of the configuration, which are everybody's and are changed there, and those that are made over the
//! API, which belong to whoever made them.
//!
//! A name is one agent's in the whole daemon. When the configuration takes the name of one of the API, the configuration's is
//! meant by it; the other one is still there, and is reached by its id.

use super::mcp::{self, McpRefusal};
use super::{Registry, RegistryError, admission};
use crate::model::profile::{Definition, MadeProfile, Program, Status};
use crate::model::{AgentId, AgentProfile, Chosen, Peer, Policy, Sight, Timestamp};
use crate::session::check_modes;
use crate::store::{Catalogue, Registered, Unit};

/// Profiles that one user has, the archived ones included.
const PROFILES_MAX: i64 = 1000;

#[derive(Debug, thiserror::Error)]
pub enum ProfileRefusal {
    #[error("the agent {slug:?} already exists")]
    Taken { slug: String },
    #[error("you have {max} agents, which is the limit for one user")]
    TooMany { max: i64 },
    #[error("the agent {slug:?} is defined in the configuration and cannot be changed over the API")]
    ReadOnly { slug: String },
    #[error("the agent {slug:?} is archived and takes no new sessions")]
    Archived { slug: String },
    #[error("there is no agent {base:?} in the configuration")]
    UnknownBase { base: String, known: Vec<String> },
    #[error("the base {base:?} of the agent {slug:?} is no longer in the configuration")]
    BaseGone { slug: String, base: String },
    #[error("only root may make an agent with its own command, because the daemon runs as root")]
    OwnCommand,
}

/// An agent that somebody named.
#[derive(Debug)]
pub enum Found {
    Configured(Box<AgentProfile>, Registered),
    Made(Box<MadeProfile>),
}

impl Registry {
    /// The agent with this slug or id, of those in sight.
    pub async fn agent(&self, name: &str, sight: Sight) -> Result<Found, RegistryError> {
        let (config, store) = (self.shared().config(), self.hub().store());
        let id = name.parse::<AgentId>().ok();
        let registered = store.registered_agents().await?;
        let is_named = |(slug, known): &(&String, &Registered)| *slug == name || Some(known.id) == id;
        let configured = registered.iter().find(is_named);
        if let Some((slug, known)) = configured
            && let Some(profile) = config.agents.get(slug)
        {
            let profile = AgentProfile { id: Some(known.id), ..profile.clone() };
            return Ok(Found::Configured(Box::new(profile), *known));
        }
        let made = match id {
            Some(id) => store.profile_by_id(id).await?,
            None => None,
        };
        let made = match made {
            Some(made) => Some(made),
            None => store.profile_by_slug(name).await?,
        };
        let made = made.filter(|made| sight.has(made.owner_uid));
        made.map(|made| Found::Made(Box::new(made))).ok_or_else(|| RegistryError::UnknownAgent(name.to_owned()))
    }

    /// What a profile of the API comes to with the configuration of today.
    pub fn resolved(&self, made: &MadeProfile) -> Result<AgentProfile, ProfileRefusal> {
        let config = self.shared().config();
        let general = Policy { mode: config.permissions.mode, rules: config.permissions.rules.clone() };
        let gone = |base| ProfileRefusal::BaseGone { slug: made.slug.clone(), base };
        made.resolve(&config.agents, &general).map_err(gone)
    }

    /// The whole profile with this name.
    pub(super) async fn profile(&self, name: &str, sight: Sight) -> Result<AgentProfile, RegistryError> {
        match self.agent(name, sight).await? {
            Found::Configured(profile, _) => Ok(*profile),
            Found::Made(made) => Ok(self.resolved(&made)?),
        }
    }

    /// The one for a new session, which an archived one does not take; without a name, the default one.
    pub(super) async fn profile_of_new(&self, name: Option<&str>, sight: Sight) -> Result<AgentProfile, RegistryError> {
        let config = self.shared().config();
        match self.agent(name.unwrap_or(&config.sessions.agent), sight).await? {
            Found::Configured(profile, _) => Ok(*profile),
            Found::Made(made) if made.status == Status::Archived => {
                Err(ProfileRefusal::Archived { slug: made.slug }.into())
            }
            Found::Made(made) => Ok(self.resolved(&made)?),
        }
    }

    /// Makes a profile. Its definition was checked by itself.
    pub async fn make_profile(
        &self,
        slug: String,
        definition: Definition,
        owner: Option<u32>,
        peer: &Peer,
    ) -> Result<MadeProfile, RegistryError> {
        self.check_space()?;
        let _one_at_a_time = self.profiles.pass().await;
        if self.shared().config().agents.contains_key(&slug) {
            return Err(ProfileRefusal::Taken { slug }.into());
        }
        let (id, now) = (AgentId::new(), Timestamp::now());
        let (created_at, updated_at) = (now, now);
        let status = Status::Active;
        let made =
            MadeProfile { id, slug, owner_uid: owner, definition, status, created_at, updated_at, archived_at: None };
        self.check_profile(&made)?;
        let store = self.hub().store();
        let (_, count) = store.profiles(Sight::Own(owner), true, 1, 0).await?;
        if count >= PROFILES_MAX {
            return Err(ProfileRefusal::TooMany { max: PROFILES_MAX }.into());
        }
        let slug = made.slug.clone();
        self.hub().append_own(Unit::catalogue(Catalogue::AddProfile(Box::new(made)))).await?;
        let made = store.profile_by_slug(&slug).await?.filter(|made| made.id == id);
        let made = made.ok_or(ProfileRefusal::Taken { slug })?;
        log("created an agent", &made, peer);
        Ok(made)
    }

    /// Changes a profile: `edit` tells what it is to be, and whether it is archived.
    pub async fn change_profile<E: From<RegistryError>>(
        &self,
        name: &str,
        sight: Sight,
        peer: &Peer,
        edit: impl FnOnce(&MadeProfile) -> Result<(Definition, Status), E>,
    ) -> Result<MadeProfile, E> {
        let refused = |refusal: ProfileRefusal| E::from(RegistryError::Profile(refusal));
        let _one_at_a_time = self.profiles.pass().await;
        let before = match self.agent(name, sight).await? {
            Found::Made(made) => *made,
            Found::Configured(profile, _) => return Err(refused(ProfileRefusal::ReadOnly { slug: profile.slug })),
        };
        let (definition, status) = edit(&before)?;
        if (&definition, status) == (&before.definition, before.status) {
            return Ok(before);
        }
        let is_same = definition == before.definition;
        let after = MadeProfile { definition, status, ..before };
        // One that is only put away, or taken out again, need not fit today's configuration.
        if !is_same {
            self.check_space()?;
            self.check_profile(&after)?;
        }
        let id = after.id;
        let unit = Unit::catalogue(Catalogue::ChangeProfile(Box::new(after)));
        self.hub().append_own(unit).await.map_err(RegistryError::from)?;
        let after = self.hub().store().profile_by_id(id).await.map_err(RegistryError::from)?;
        let after = after.ok_or_else(|| RegistryError::UnknownAgent(name.to_owned()))?;
        log("changed an agent profile", &after, peer);
        Ok(after)
    }

    /// Whether it narrows its base. One with a command of its own has none, and was written by whoever could write the
    /// configuration as well.
    fn check_profile(&self, made: &MadeProfile) -> Result<(), RegistryError> {
        let config = self.shared().config();
        let own;
        let base = match &made.definition.program {
            Program::Base(base) => config.agents.get(base).ok_or_else(|| {
                let known = config.agents.keys().cloned().collect();
                ProfileRefusal::UnknownBase { base: base.clone(), known }
            })?,
            Program::Own(_) => {
                let (mcp_servers_allowed, mcp_private_urls) = (true, true);
                let acpd_tools = made.definition.acpd_tools == Some(true);
                let alone = AgentProfile::new(&made.slug);
                own = AgentProfile { mcp_servers_allowed, mcp_private_urls, acpd_tools, ..alone };
                &own
            }
        };
        if let (Program::Base(_), Some(asked)) = (&made.definition.program, &made.definition.permissions) {
            let ceiling = Policy { mode: base.ceiling(made.owner_uid), ..base.permissions.clone() };
            admission::narrower(&base.slug, &ceiling, asked.clone())?;
        }
        if made.definition.acpd_tools == Some(true) && !base.acpd_tools {
            return Err(McpRefusal::NoTools { agent: base.slug.clone() }.into());
        }
        mcp::check(base, made.definition.mcp_servers.as_deref().unwrap_or_default())?;
        let profile = self.resolved(made)?;
        let chosen = Chosen { mode: profile.mode.clone(), ..Chosen::default() };
        check_modes(&profile.freeze_for(made.owner_uid), &profile.default_policy(made.owner_uid), &chosen)?;
        Ok(())
    }
}

/// No event tells of profiles, so the log has to say who it was.
fn log(what: &str, made: &MadeProfile, peer: &Peer) {
    let Peer { uid, pid, program } = peer;
    tracing::info!(agent = made.slug, id = %made.id, status = made.status.as_str(), uid, pid, program, "{what}");
}
