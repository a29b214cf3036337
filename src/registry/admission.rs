//! Who gets in: the checks before a session is made, and the slots for processes.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::oneshot;

use super::{Registry, RegistryError, Restoring, context, mcp};
use crate::agent::{self, NoProgram, WorkspaceError};
use crate::model::mcp::ChosenServer;
use crate::model::session::{Session, Workspace};
use crate::model::{
    AgentProfile, Chosen, ContextChange, Peer, PermissionMode, Policy, ProcessState, SessionId, SessionLimits, Sight,
    WorkspaceId,
};
use crate::session::{Admission, Refusal, Request, check_modes};
use crate::store::{Catalogue, Claim, Made, NewSession, Op, Unit};

/// What a new session is to be.
#[derive(Debug)]
pub struct CreateSession {
    pub workspace: WorkspaceChoice,
    pub agent: Option<String>,
    pub title: String,
    pub tags: Vec<String>,
    pub permissions: Option<Policy>,
    pub limits: SessionLimits,
    /// Checked when the process starts: before that nobody knows what there is.
    pub choices: Chosen,
    pub context: ContextChange,
    /// MCP servers, whose own definitions were checked; nothing: all of the profile's.
    pub mcp_servers: Option<Vec<ChosenServer>>,
    /// Whoever asks for it.
    pub peer: Option<Arc<Peer>>,
    /// Whose it is to be. Nothing: the daemon's own user's.
    pub owner: Option<u32>,
    /// What whoever asks for it may reach.
    pub sight: Sight,
    /// The checkpoint that it goes on from.
    pub restoring: Option<Restoring>,
    /// The request's key, committed with the session.
    pub claim: Option<Claim>,
    /// Start the process now, in the background.
    pub start: bool,
}

#[derive(Debug)]
pub enum WorkspaceChoice {
    Path(PathBuf),
    Registered(WorkspaceId),
}

impl Registry {
    /// Checks all that can be checked, reserves a slot, commits the session, and starts its process in the background.
    pub async fn create(self: &Arc<Self>, create: CreateSession) -> Result<Session, RegistryError> {
        self.check_space()?;
        let peer = create.peer.as_deref();
        let real = match &create.workspace {
            WorkspaceChoice::Path(path) => self.resolve_workspace(path, create.owner, peer).await?,
            WorkspaceChoice::Registered(id) => self.known_workspace(*id, create.sight, create.owner, peer).await?.path,
        };
        let context = self.context_of_new(real, create.owner, create.context, peer).await?;
        let profile = self.profile_of_new(create.agent.as_deref(), create.sight).await?;
        let permissions = match create.permissions {
            Some(asked) => {
                let ceiling = Policy { mode: profile.ceiling(create.owner), ..profile.permissions.clone() };
                narrower(profile.section(), &ceiling, asked)?
            }
            None => profile.default_policy(create.owner),
        };
        let frozen = profile.freeze_for(create.owner);
        let chosen = Chosen { mode: profile.mode.clone(), model: profile.model.clone(), ..Chosen::default() };
        let chosen = chosen.changed_by(&create.choices);
        check_modes(&frozen, &permissions, &chosen)?;
        let mcp_servers = mcp::chosen(&profile, create.mcp_servers)?;
        context::check_scope(&self.shared().config().sandbox, &profile, context.fs_scope)?;
        self.check_installed(&profile, create.owner).await?;
        let workspace = match create.workspace {
            WorkspaceChoice::Path(path) => self.register_workspace(&path, create.owner, peer).await?,
            WorkspaceChoice::Registered(id) => self.known_workspace(id, create.sight, create.owner, peer).await?,
        };
        let admission = if create.start { self.admit(create.owner).await? } else { Admission::None };

        let id = SessionId::new();
        let new = NewSession {
            workspace_id: workspace.id,
            workspace: workspace.path,
            profile: frozen,
            mcp_servers,
            permissions,
            title: create.title,
            tags: create.tags,
            limits: create.limits,
            chosen,
            context,
            owner_uid: create.owner,
            by: create.peer.clone(),
        };
        {
            // With the gate held no suspension can come between the look and the commit.
            let _gate = self.gate.pass().await;
            if self.is_stopping() {
                return Err(Refusal::ShuttingDown.into());
            }
            let mut unit = Unit::one(id, Op::CreateSession(Box::new(new)));
            unit.ops.extend(create.claim.map(|claim| (id, Op::Remember(Box::new((claim, Made::default()))))));
            let by = create.peer.clone();
            unit.ops.extend(create.restoring.into_iter().flat_map(|restoring| restoring.ops(id, by.clone())));
            self.hub().append(create.owner, unit).await?;
        }
        self.log_session_counts().await;
        // The session is made, whatever becomes of its process.
        if create.start
            && let Err(error) = self.send(id, Request::Start { admission }).await
        {
            tracing::warn!(session = %id, error = &error as &dyn std::error::Error, "cannot start the session's process now");
        }
        self.hub().store().session(id).await?.ok_or(RegistryError::NotFound(id))
    }

    /// Nothing new is begun that could not be recorded to its end. What ends something, or deletes it, is always tried.
    pub(super) fn check_space(&self) -> Result<(), RegistryError> {
        Ok(self.hub().store().space().check()?)
    }

    /// Where these commands are found here, of those that may be run by whoever's agents they would be.
    pub async fn find_commands(
        &self,
        commands: Vec<String>,
        owner: Option<u32>,
    ) -> Result<Vec<Result<PathBuf, NoProgram>>, WorkspaceError> {
        let shared = Arc::clone(&self.shared);
        let find = move |command: &String| agent::find_agent(command, &shared.environment);
        let looked = self.look_as(owner, move |persona, _| {
            let found = persona.run(|| commands.iter().map(find).collect());
            found.map_err(|error| WorkspaceError::NotLooked(error.to_string()))
        });
        looked.await
    }

    async fn check_installed(&self, profile: &AgentProfile, owner: Option<u32>) -> Result<(), RegistryError> {
        let found = self.find_commands(vec![profile.command.clone()], owner).await?.into_iter().next();
        let Some(Err(problem)) = found else { return Ok(()) };
        let hint = problem.advice().unwrap_or_else(|| profile.how_to_install());
        let (agent, command) = (profile.slug.clone(), profile.command.clone());
        Err(RegistryError::AgentNotInstalled { agent, command, problem: Box::new(problem), hint })
    }

    /// Registers a directory once for whoever works there, by its real path.
    pub async fn register_workspace(
        &self,
        path: &Path,
        owner: Option<u32>,
        peer: Option<&Peer>,
    ) -> Result<Workspace, RegistryError> {
        let real = self.resolve_workspace(path, owner, peer).await?;
        let identity = self.open_workspace(&real, owner, peer).await?.identity;
        let store = self.hub().store();
        if let Some(known) = store.workspace_by_path(&real, owner).await? {
            return Ok(known);
        }
        self.check_space()?;
        let id = WorkspaceId::new();
        let path = real.clone();
        self.hub().append_own(Unit::catalogue(Catalogue::AddWorkspace { id, path, owner, identity })).await?;
        let known = store.workspace_by_path(&real, owner).await?.ok_or(RegistryError::UnknownWorkspace(id))?;
        // Somebody else may have been first.
        if known.id == id {
            log_catalogue("registered a workspace", id, &real, peer);
        }
        Ok(known)
    }

    /// A workspace that is registered for whoever the session is to be of, checked again: it may have been moved or replaced
    /// since.
    async fn known_workspace(
        &self,
        id: WorkspaceId,
        sight: Sight,
        owner: Option<u32>,
        peer: Option<&Peer>,
    ) -> Result<Workspace, RegistryError> {
        let known = self.workspace(id, sight).await?;
        if known.owner_uid != owner {
            return Err(RegistryError::OthersWorkspace { id, path: known.path });
        }
        self.open_workspace(&known.path, owner, peer).await?;
        Ok(known)
    }

    /// A registered workspace in sight.
    pub async fn workspace(&self, id: WorkspaceId, sight: Sight) -> Result<Workspace, RegistryError> {
        let known = self.hub().store().workspace(id).await?;
        known.filter(|known| sight.has(known.owner_uid)).ok_or(RegistryError::UnknownWorkspace(id))
    }

    /// Forgets a workspace that no session is in.
    pub async fn remove_workspace(
        &self,
        id: WorkspaceId,
        sight: Sight,
        peer: Option<&Peer>,
    ) -> Result<Workspace, RegistryError> {
        let store = self.hub().store();
        let known = self.workspace(id, sight).await?;
        let filter = crate::store::SessionFilter { workspace: Some(id), ..Default::default() };
        let (_, sessions) = store.sessions(&filter, 1, 0).await?;
        if sessions > 0 {
            return Err(RegistryError::WorkspaceInUse { id, sessions });
        }
        self.hub().append_own(Unit::catalogue(Catalogue::RemoveWorkspace { id })).await?;
        log_catalogue("removed a workspace", id, &known.path, peer);
        Ok(known)
    }

    /// The right to a process: a free slot, or that of the session which has been idle longest. After the limit was
    /// lowered, as many more have to go as there are too many.
    ///
    /// Other users than the daemon's have a share of the slots. Who has used it up is given no more, unless a process of their
    /// own makes room.
    pub(super) async fn admit(&self, owner: Option<u32>) -> Result<Admission, RegistryError> {
        let slots = &self.shared().slots;
        let max = self.shared().config().limits.share_of_user();
        let share = owner.map(|owner| slots.shares.try_take(owner, max));
        if matches!(share, Some(None)) {
            let has_room = self.evict_one(|of| of == owner).await;
            return if has_room { Ok(Admission::Promised) } else { Err(RegistryError::ProcessShare { max }) };
        }
        if let Some(slot) = slots.try_take() {
            return Ok(Admission::Slot(slot.with(share.flatten())));
        }
        for _ in 0..=slots.excess() {
            if !self.evict_one(|_| true).await {
                return Err(RegistryError::ProcessLimit { max: self.shared().config().limits.processes });
            }
        }
        Ok(Admission::Promised)
    }

    /// Asks idle sessions, of whoever it may be and the one idle longest first, to let their process go.
    async fn evict_one(&self, may_be_of: impl Fn(Option<u32>) -> bool) -> bool {
        let mut idle: Vec<_> = {
            let actors = self.lock();
            let live = actors.iter().filter(|(_, handle)| may_be_of(handle.owner()));
            let live = live.map(|(session, handle)| (handle.live(), *session));
            live.filter(|(live, _)| live.process_state == ProcessState::Ready).collect()
        };
        idle.sort_by_key(|(live, _)| live.busy_until);
        for (_, session) in idle {
            let (reply, evicted) = oneshot::channel();
            let asked = self.lock().get(&session).is_some_and(|handle| handle.send(Request::Evict { reply }).is_ok());
            if asked && evicted.await.unwrap_or(false) {
                tracing::info!(%session, "stopped an idle process to make room for another session");
                return true;
            }
        }
        false
    }

    /// Session counts are logged whenever they change.
    pub async fn log_session_counts(&self) {
        match self.hub().store().count_by_status(Sight::All).await {
            Ok(counts) => tracing::info!(?counts, processes = self.process_count(Sight::All), "sessions"),
            Err(error) => tracing::warn!(error = &error as &dyn std::error::Error, "cannot count sessions"),
        }
    }
}

/// No event tells of workspaces, so the log has to say who it was. A directory may have any name, so it is quoted.
fn log_catalogue(what: &str, workspace: WorkspaceId, path: &str, peer: Option<&Peer>) {
    let (uid, pid) = (peer.map(|peer| peer.uid), peer.and_then(|peer| peer.pid));
    let program = peer.and_then(|peer| peer.program.as_deref());
    tracing::info!(%workspace, ?path, uid, pid, program, "{what}");
}

/// The policy that somebody asks for in place of a session's own, when it is none wider than its profile's was.
pub fn narrowed(session: &Session, asked: Policy) -> Result<Policy, RegistryError> {
    let granted = session.profile.granted().next();
    narrower(session.profile.section(), granted.as_ref().unwrap_or(&session.permissions), asked)
}

/// The policy that is asked for, when its mode is none wider. Rules need no look: of both policies the stricter word holds.
/// One that names a mode alone keeps the profile's rules, which would be of no use without it; but `deny` refuses everything.
pub(super) fn narrower(agent: &str, granted: &Policy, asked: Policy) -> Result<Policy, RegistryError> {
    if asked.mode.narrows(granted.mode) {
        let is_mode_alone = asked.rules.is_empty() && asked.mode != PermissionMode::Deny;
        let rules = if is_mode_alone { granted.rules.clone() } else { asked.rules };
        return Ok(Policy { mode: asked.mode, rules });
    }
    let (granted, asked) = (granted.mode.as_str(), asked.mode.as_str());
    Err(RegistryError::WiderPermissions { agent: agent.to_owned(), granted, asked })
}
