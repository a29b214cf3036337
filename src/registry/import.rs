//! Sessions that come from elsewhere.
//!
//! A document tells what happened, and is believed in that alone. What a session may do here is decided here: its agent is
//! this machine's profile of that name, its workspace is looked up like any other, and its permissions, its scope and its
//! MCP servers are those of the profile or less. So whoever wrote a document gains nothing by it.
//!
//! Everything is looked at first and committed at once. Imports pass one at a time, so that nobody takes an id between the
//! look and the commit.

mod steps;

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::value::to_raw_value;
use serde_json::{Map, Value};

use self::steps::{Misfit, Past, Story};
use super::{Registry, RegistryError, mcp};
use crate::config::Sandbox;
use crate::model::context::Change;
use crate::model::event::ImportedFrom;
use crate::model::export::{Document, ExportedServer, ExportedSession};
use crate::model::mcp::ChosenServer;
use crate::model::message::Message;
use crate::model::record::{self, OBSERVATIONS_MAX};
use crate::model::session::DirectoryIdentity;
use crate::model::usage::Basis;
use crate::model::{
    AgentProfile, Chosen, ContextChange, FsScope, MessageId, Meter, Peer, Policy, SessionContext, SessionId,
    SessionStatus, Sight, Timestamp, WorkspaceId,
};
use crate::session::{Refusal, check_modes};
use crate::store::{Catalogue, Imported, NewObservation, NewSession, Op, StoreError, Unit, UsageChange};

/// What is to be imported, for whom.
#[derive(Debug)]
pub struct Import {
    /// Each with the records of it that tools submitted.
    pub documents: Vec<(Document, Vec<NewObservation>)>,
    /// Of sessions that acpd has not had, or has.
    pub records: Vec<NewObservation>,
    /// Which agent they go on with. Nothing: the one that they name.
    pub agent: Option<String>,
    /// Where they go on. Nothing: where they were.
    pub workspace: Option<PathBuf>,
    /// Only tell what would be done.
    pub dry_run: bool,
    pub owner: Option<u32>,
    pub peer: Arc<Peer>,
}

/// What became of a document.
#[derive(Debug)]
pub struct ImportedSession {
    /// Its id here.
    pub id: SessionId,
    pub source_id: SessionId,
    pub title: String,
    pub agent: String,
    pub workspace: String,
    pub status: SessionStatus,
    /// When retention makes it expire.
    pub expires_at: Option<Timestamp>,
    pub turns: usize,
    pub messages: usize,
    /// It was not here before.
    pub is_new: bool,
    /// What is not as the document says.
    pub notes: Vec<String>,
}

/// What became of a record.
#[derive(Debug)]
pub struct ImportedRecord {
    /// The name of its session, in its own words.
    pub session_id: String,
    /// It was not known before.
    pub is_new: bool,
}

/// Why nothing is imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// A document is not as it should be.
    #[error("{misfit}")]
    Misfit { index: usize, misfit: Misfit },
    /// A document asks for what is not here.
    #[error("{source}")]
    Refused { index: usize, field: &'static str, source: RegistryError },
    #[error(transparent)]
    Registry(#[from] RegistryError),
}

impl From<StoreError> for ImportError {
    fn from(error: StoreError) -> Self {
        Self::Registry(error.into())
    }
}

impl Registry {
    /// Imports all of it or nothing, and tells what came of each document.
    pub async fn import(&self, import: Import) -> Result<(Vec<ImportedSession>, Vec<ImportedRecord>), ImportError> {
        self.check_space()?;
        let Import { documents, records, agent, workspace, dry_run, owner, peer } = import;
        let _turn = self.imports.pass().await;
        let mut plan = Plan {
            registry: self,
            agent: agent.as_deref(),
            workspace: workspace.as_deref(),
            owner,
            peer: &peer,
            workspaces: HashMap::new(),
            sessions: HashSet::new(),
            messages: HashSet::new(),
            unit: Unit::default(),
        };
        let mut told = Vec::with_capacity(documents.len());
        for (index, (document, observations)) in documents.into_iter().enumerate() {
            told.push(plan.add(index, document, observations).await?);
        }
        let known = plan.observe(records).await?;
        let unit = plan.unit;
        let is_empty = unit.ops.is_empty() && unit.catalogue.is_empty();
        if !dry_run && !is_empty {
            // With the gate held no suspension can come between the look and the commit.
            let _gate = self.gate.pass().await;
            if self.is_stopping() {
                return Err(RegistryError::from(Refusal::ShuttingDown).into());
            }
            self.hub().append(owner, unit).await.map_err(too_much)?;
            self.log_session_counts().await;
        }
        Ok((told, known))
    }
}

/// The writer refuses what no look before it finds: more observations of one session than there may be.
fn too_much(error: StoreError) -> RegistryError {
    match error {
        StoreError::NotCommitted(reason) if matches!(*reason, StoreError::Refused(_)) => {
            RegistryError::RecordFull { what: "observations", max: OBSERVATIONS_MAX }
        }
        error => error.into(),
    }
}

/// A directory that imported sessions go on in.
#[derive(Clone)]
struct Place {
    id: WorkspaceId,
    path: String,
}

/// What an import comes to, document by document.
struct Plan<'a> {
    registry: &'a Registry,
    agent: Option<&'a str>,
    workspace: Option<&'a Path>,
    owner: Option<u32>,
    peer: &'a Arc<Peer>,
    /// By the path that was asked for.
    workspaces: HashMap<PathBuf, Place>,
    /// What the documents so far bring.
    sessions: HashSet<SessionId>,
    messages: HashSet<MessageId>,
    unit: Unit,
}

/// The ids that a document's session and messages have here.
enum Naming {
    /// This session is here already.
    Here(SessionId),
    /// As in the document.
    Kept(SessionId),
    /// Somebody else has them.
    Derived(SessionId),
}

impl Plan<'_> {
    async fn add(
        &mut self,
        index: usize,
        document: Document,
        mut observations: Vec<NewObservation>,
    ) -> Result<ImportedSession, ImportError> {
        let misfit = |misfit: Misfit| ImportError::Misfit { index, misfit };
        let refused = |field: &'static str| move |source: RegistryError| ImportError::Refused { index, field, source };
        self.note_ids(&document).map_err(misfit)?;
        let naming = self.naming(&document).await?;
        let Document { session, turns, messages, blobs, checkpoints, .. } = document;
        let mut told = ImportedSession {
            id: session.id,
            source_id: session.id,
            title: session.title.clone(),
            agent: self.agent.unwrap_or(&session.agent.slug).to_owned(),
            workspace: session.workspace.clone(),
            status: session.status,
            expires_at: None,
            turns: turns.len(),
            messages: messages.len(),
            is_new: true,
            notes: Vec::new(),
        };
        let (id, is_derived) = match naming {
            Naming::Here(id) => return self.told_here(told, id).await,
            Naming::Kept(id) => (id, false),
            Naming::Derived(id) => (id, true),
        };
        told.id = id;
        if is_derived {
            told.notes.push("the id is already taken here, so the session has a new id".to_owned());
            for new in &mut observations {
                rename(new, session.id, id);
            }
        }
        let sight = Sight::Own(self.owner);
        let profile = self.registry.profile_of_new(Some(&told.agent), sight).await.map_err(refused("session.agent"))?;
        let place = self.place(&session.workspace).await.map_err(refused("session.workspace"))?;
        told.workspace.clone_from(&place.path);
        let limits = self.registry.shared().config().limits.clone();
        let name = |message: &Message| {
            if is_derived { derived_message(id, message) } else { message.id }
        };
        let past = Past { session: id, turns, messages, blobs, checkpoints };
        let story = steps::tell(past, &limits, name).map_err(misfit)?;
        let new = self.new_session(&session, &profile, place, &mut told.notes).await.map_err(refused("session"))?;
        let imported = Imported { observations, ..imported(session, new, story, &mut told.notes) };
        // Kept from now on, and by an agent that has not said yet whether it can restore the session.
        told.expires_at = self.registry.retention().expires_at(told.status, imported.from.at, false);
        self.unit.ops.push((id, Op::Import(Box::new(imported))));
        Ok(told)
    }

    /// Records of sessions; what was said before is not said again.
    async fn observe(&mut self, records: Vec<NewObservation>) -> Result<Vec<ImportedRecord>, StoreError> {
        let store = self.registry.hub().store();
        let (mut told, mut seen) = (Vec::with_capacity(records.len()), HashSet::new());
        for new in records {
            let content: Map<String, Value> = serde_json::from_str(new.content.get()).unwrap_or_default();
            let (name, hash) = (record::session_id(&content).to_owned(), record::content_hash(&content));
            let is_new =
                seen.insert((name.clone(), hash)) && !store.knows_observation(&name, self.owner, &hash).await?;
            if is_new {
                self.unit.catalogue.push(Catalogue::Observe(Box::new(new)));
            }
            told.push(ImportedRecord { session_id: name, is_new });
        }
        Ok(told)
    }

    /// Two documents of one import must not bring the same.
    fn note_ids(&mut self, document: &Document) -> Result<(), Misfit> {
        if !self.sessions.insert(document.session.id) {
            return Err(Misfit::new("session.id", "is also the id of another session in this import"));
        }
        let twice = document.messages.iter().position(|message| !self.messages.insert(message.id));
        twice.map_or(Ok(()), |index| Err(Misfit::new(format!("messages[{index}].id"), "appears twice")))
    }

    /// A session is known by its id; where another user has it, by one that is made of it, always in the same way.
    async fn naming(&self, document: &Document) -> Result<Naming, StoreError> {
        let store = self.registry.hub().store();
        let id = document.session.id;
        let own = self.owner.map(|owner| owner.to_string()).unwrap_or_default();
        let derived = SessionId::derived(document.session.created_at, &[&own, &id.to_string()]);
        let mut is_taken = false;
        for known in [id, derived] {
            match store.session(known).await? {
                Some(session) if session.owner_uid == self.owner => return Ok(Naming::Here(known)),
                Some(_) => is_taken = true,
                None => {}
            }
        }
        let messages: Vec<MessageId> = document.messages.iter().map(|message| message.id).collect();
        if is_taken || store.has_any_message(&messages).await? {
            return Ok(Naming::Derived(derived));
        }
        Ok(Naming::Kept(id))
    }

    /// What is here stays as it is, whatever the document says.
    async fn told_here(&self, mut told: ImportedSession, id: SessionId) -> Result<ImportedSession, ImportError> {
        let store = self.registry.hub().store();
        let here = store.session(id).await?.ok_or(RegistryError::NotFound(id))?;
        let messages = usize::try_from(store.message_count(id).await?).unwrap_or(0);
        if messages != told.messages {
            let note = format!(
                "the session is already here with {messages} messages, and the document has {}; \
                nothing was changed",
                told.messages
            );
            told.notes.push(note);
        }
        Ok(ImportedSession {
            id,
            expires_at: self.registry.expires_at(&here),
            title: here.title,
            agent: here.profile.slug,
            workspace: here.workspace,
            status: here.status,
            turns: usize::try_from(here.turns).unwrap_or(0),
            messages,
            is_new: false,
            ..told
        })
    }

    /// The directory that a session goes on in: looked up like that of any new session, and registered with the import.
    async fn place(&mut self, workspace: &str) -> Result<Place, RegistryError> {
        let asked = self.workspace.unwrap_or(Path::new(workspace));
        if let Some(place) = self.workspaces.get(asked) {
            return Ok(place.clone());
        }
        let path = self.registry.resolve_workspace(asked, self.owner, Some(self.peer)).await?;
        let identity: DirectoryIdentity =
            self.registry.open_workspace(&path, self.owner, Some(self.peer)).await?.identity;
        let known = self.registry.hub().store().workspace_by_path(&path, self.owner).await?.map(|known| known.id);
        // Two of the paths that are asked for may be the same directory.
        let planned = self.workspaces.values().find(|place| place.path == path).map(|place| place.id);
        let id = known.or(planned).unwrap_or_else(|| {
            let id = WorkspaceId::new();
            let (path, owner) = (path.clone(), self.owner);
            self.unit.catalogue.push(Catalogue::AddWorkspace { id, path, owner, identity });
            id
        });
        let place = Place { id, path };
        self.workspaces.insert(asked.to_owned(), place.clone());
        Ok(place)
    }

    async fn new_session(
        &self,
        session: &ExportedSession,
        profile: &AgentProfile,
        place: Place,
        notes: &mut Vec<String>,
    ) -> Result<NewSession, RegistryError> {
        let frozen = profile.freeze_for(self.owner);
        let permissions = permissions(&profile.default_policy(self.owner), &session.permissions, notes);
        let mut chosen = chosen(session, profile, notes);
        if check_modes(&frozen, &permissions, &chosen).is_err() {
            notes.push("its mode and options allow more than its permissions here, so they were dropped".to_owned());
            chosen = Chosen { model: chosen.model, ..Chosen::default() };
        }
        Ok(NewSession {
            context: self.context(session, profile, &place.path, notes).await?,
            workspace_id: place.id,
            workspace: place.path,
            profile: frozen,
            mcp_servers: servers(profile, session.mcp_servers.as_deref(), notes)?,
            permissions,
            title: session.title.clone(),
            tags: session.tags.clone(),
            limits: session.limits,
            chosen,
            owner_uid: self.owner,
            by: Some(Arc::clone(self.peer)),
        })
    }

    /// Its words and files are checked like those of a new session, and left out when they make no sense here.
    async fn context(
        &self,
        session: &ExportedSession,
        profile: &AgentProfile,
        workspace: &str,
        notes: &mut Vec<String>,
    ) -> Result<SessionContext, RegistryError> {
        let asked = session.context.clone();
        let fs_scope = Change::Set(scope(&self.registry.shared().config().sandbox, profile, asked.fs_scope, notes));
        let set = |file: Option<String>| file.map_or(Change::Keep, Change::Set);
        let change = ContextChange {
            active_file: set(asked.active_file),
            selection: asked.selection.map_or(Change::Keep, Change::Set),
            // What is checked out here counts, not what was there.
            git_ref: Change::Keep,
            fs_scope: fs_scope.clone(),
            variables: Change::Set(asked.variables.into_iter().map(|(name, value)| (name, Some(value))).collect()),
        };
        let new = |change| self.registry.context_of_new(workspace.to_owned(), self.owner, change, Some(self.peer));
        match new(change).await {
            Err(RegistryError::Refused(Refusal::Context(problem))) => {
                notes.push(format!("its context was dropped: {problem}"));
                new(ContextChange { fs_scope, ..ContextChange::default() }).await
            }
            context => context,
        }
    }
}

fn imported(session: ExportedSession, new: NewSession, story: Story, notes: &mut Vec<String>) -> Imported {
    let Story { mut steps, interrupted, missing } = story;
    if interrupted > 0 {
        notes.push(format!("turns that were still open are now interrupted: {interrupted}"));
    }
    if missing > 0 {
        notes.push(format!("media used by its messages but missing from the document: {missing}"));
    }
    let updated_at = session.updated_at;
    if let Some(usage) = session.usage {
        let meter = Meter { usage, basis: Basis::default() };
        steps.push((updated_at, Op::SetUsage(Box::new(UsageChange { meter, turn: None }))));
    }
    let (from, to, by) = (SessionStatus::Active, session.status, new.by.clone());
    if to != from {
        steps.push((updated_at, Op::SetStatus { from, to, reason: "import", by }));
    }
    let from = ImportedFrom {
        session_id: session.id,
        workspace: session.workspace,
        agent: session.agent.slug,
        at: Timestamp::now(),
    };
    let (created_at, last_active_at) = (session.created_at, session.last_active_at);
    Imported { new, from, created_at, updated_at, last_active_at, steps, observations: Vec::new() }
}

/// What was said of the session is said of it under its other id, or it would be nobody's here.
fn rename(new: &mut NewObservation, from: SessionId, to: SessionId) {
    let mut content: Map<String, Value> = serde_json::from_str(new.content.get()).unwrap_or_default();
    if record::session_id(&content) == from.to_string() {
        content.insert("session_id".to_owned(), Value::String(to.to_string()));
        // A map always has a JSON form.
        new.content = to_raw_value(&content).unwrap_or_else(|_| new.content.clone());
    }
}

fn derived_message(session: SessionId, message: &Message) -> MessageId {
    MessageId::derived(message.created_at, &[&session.to_string(), &message.id.to_string()])
}

/// What it had elsewhere, and no more than a new session has here by default, because importing chooses no mode.
fn permissions(granted: &Policy, asked: &Policy, notes: &mut Vec<String>) -> Policy {
    // Rules need no look: of both policies the stricter word holds.
    if asked.mode.narrows(granted.mode) {
        return asked.clone();
    }
    let (asked, default) = (asked.mode.as_str(), granted.mode.as_str());
    notes.push(format!("its permission mode was {asked:?} and is now {default:?}, the default of the agent here"));
    granted.clone()
}

fn scope(sandbox: &Sandbox, profile: &AgentProfile, asked: FsScope, notes: &mut Vec<String>) -> FsScope {
    let scope = asked.min(profile.fs_scope).within(sandbox.allow_full);
    if scope != asked {
        let (asked, granted) = (asked.as_str(), scope.as_str());
        notes.push(format!("its scope was {asked:?} and is now {granted:?}, the widest scope allowed here"));
    }
    scope
}

/// Modes, models and options are one agent's own. What was not chosen is as the profile has it, as in any new session.
fn chosen(session: &ExportedSession, profile: &AgentProfile, notes: &mut Vec<String>) -> Chosen {
    let own = Chosen { mode: profile.mode.clone(), model: profile.model.clone(), ..Chosen::default() };
    if profile.slug == session.agent.slug || session.chosen.is_empty() {
        return own.changed_by(&session.chosen);
    }
    notes.push(format!("its mode, model and options are for the agent {} and were dropped", session.agent.slug));
    own
}

/// Servers that a session brought along are programs to run and addresses to call: none of those comes from a document.
fn servers(
    profile: &AgentProfile,
    asked: Option<&[ExportedServer]>,
    notes: &mut Vec<String>,
) -> Result<Option<Vec<ChosenServer>>, RegistryError> {
    let Some(asked) = asked else { return Ok(mcp::chosen(profile, None)?) };
    let is_brought = |name: &str| profile.own_servers.iter().any(|own| own.name == name);
    let known = |server: &ExportedServer| match server {
        ExportedServer::Named(name) => Some(name.clone()),
        // What its profile brought along there: only the name counts, and this machine's profile says what that is.
        ExportedServer::Own { server, .. } => Some(server.name.clone()).filter(|name| is_brought(name)),
    };
    let mut seen = HashSet::new();
    let names = asked.iter().filter_map(known).filter(|name| seen.insert(name.clone()));
    let is_here = |server: &ChosenServer| mcp::check(profile, std::slice::from_ref(server)).is_ok();
    let kept: Vec<ChosenServer> = names.map(ChosenServer::Named).filter(is_here).collect();
    if kept.len() < asked.len() {
        notes.push(format!(
            "MCP servers dropped because the agent does not have them here: {}",
            asked.len() - kept.len()
        ));
    }
    Ok(mcp::chosen(profile, Some(kept))?)
}
