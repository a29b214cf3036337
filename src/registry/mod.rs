//! The registry: which sessions have an actor, who may have a process, and the end of actors that are done.
//!
//! Invariants:
//! 1. A session has at most one actor. Loading and registering are one step, behind a gate.
//! 2. Requests are queued under the lock of the map, and an actor leaves the map under the same lock with an empty
//!    mailbox; so nobody reaches a dying mailbox.
//! 3. An actor that panics takes only its own process with it; its turn ends as `internal`.

mod admission;
mod context;
mod glances;
mod import;
mod lookups;
mod mcp;
mod profiles;
mod records;
mod recovery;
mod retention;
mod trials;
mod turnstile;

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

use crate::agent::{NoProgram, WorkspaceError};
use crate::hub::Hub;
use crate::lane::Lane;
use crate::model::status::Denied;
use crate::model::{
    By, ErrorCode, LastError, Peer, PermissionId, ProcessState, RuleId, SessionId, SessionStatus, Sight, TurnId,
    WorkspaceId,
};
use crate::session::{
    self, Accepted, Admission, Edit, Halt, Live, NewPrompt, PermissionAnswer, Refusal, Reply, Request, SessionActor,
    SessionHandle, Shared, SystemMessage,
};
use crate::store::{StoreError, Unit};

use turnstile::Turnstile;

pub use admission::{CreateSession, WorkspaceChoice, narrowed};
pub use import::{Import, ImportError, ImportedRecord, ImportedSession};
pub use mcp::McpRefusal;
pub use profiles::{Found, ProfileRefusal};
pub use records::Restoring;
pub use retention::{Sweep, Swept, SweptSession};

/// Why a turn failed whose end did not get into the record.
const RECORD_LOST: &str = "acpd could not write to the store; read `acpd logs` and check the free disk space";
/// How long a session whose record cannot be written rests before it is tried again.
const RECOVERY_PAUSE: Duration = Duration::from_secs(2);

#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    #[error("there is no session {0}")]
    NotFound(SessionId),
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Refused, because of what ended the session.
    #[error("the session is in error and cannot continue")]
    InError { cause: Option<LastError> },
    #[error("all {max} agent processes are in use")]
    ProcessLimit { max: usize },
    #[error("all your {max} agent processes are in use")]
    ProcessShare { max: usize },
    #[error("{max} agent checks are already running, which is the limit")]
    TrialLimit { max: usize },
    #[error("there is no agent {0:?}")]
    UnknownAgent(String),
    #[error("cannot start the agent {agent:?}: {problem}")]
    AgentNotInstalled { agent: String, command: String, problem: Box<NoProgram>, hint: String },
    #[error("sessions of the agent {agent:?} may have the permission mode {granted:?} at most, not {asked:?}")]
    WiderPermissions { agent: String, granted: &'static str, asked: &'static str },
    #[error("the agent {agent:?} allows at most the scope {granted:?}, not {asked:?}")]
    WiderScope { agent: String, granted: &'static str, asked: &'static str },
    #[error(transparent)]
    Mcp(#[from] McpRefusal),
    #[error(transparent)]
    Profile(#[from] ProfileRefusal),
    #[error("the configuration does not allow the scope \"full\" (sandbox.allow_full)")]
    FullScope,
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
    #[error("there is no workspace {0}")]
    UnknownWorkspace(WorkspaceId),
    #[error("the workspace {id} belongs to another user")]
    OthersWorkspace { id: WorkspaceId, path: String },
    #[error("the workspace {id} still has {sessions} sessions")]
    WorkspaceInUse { id: WorkspaceId, sessions: i64 },
    #[error("the session already has a checkpoint {0:?}")]
    CheckpointExists(String),
    #[error("the session has {max} checkpoints, which is the limit")]
    CheckpointLimit { max: i64 },
    #[error("there would be more than {max} {what}, which is the limit")]
    RecordFull { what: &'static str, max: i64 },
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("internal error: the session's task failed")]
    ActorFailed,
}

#[derive(Debug)]
pub struct Registry {
    shared: Arc<Shared>,
    actors: Mutex<HashMap<SessionId, SessionHandle>>,
    /// Held while a session is loaded and registered, so that nobody acts on a row that is out of date.
    gate: Turnstile,
    /// Held while a prompt finds a slot and hands it to its session.
    admission: Turnstile,
    /// Held while a profile is made or changed, so that no change is made to one that is out of date.
    profiles: Turnstile,
    /// Held from the first look of an import to its commit.
    imports: Turnstile,
    halt: Lane<Halt>,
    tasks: TaskTracker,
    /// The right to try an agent.
    trials: Arc<trials::Trials>,
}

impl Registry {
    pub fn new(shared: Arc<Shared>) -> Arc<Self> {
        Arc::new(Self {
            shared,
            actors: Mutex::default(),
            gate: Turnstile::default(),
            admission: Turnstile::default(),
            profiles: Turnstile::default(),
            imports: Turnstile::default(),
            halt: Lane::new(Halt::No),
            tasks: TaskTracker::new(),
            trials: Arc::default(),
        })
    }

    pub fn hub(&self) -> &Hub {
        &self.shared.hub
    }

    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Whether the daemon stops: nothing new is taken on.
    pub fn is_stopping(&self) -> bool {
        self.halt.level() != Halt::No
    }

    /// What a session's process is doing now.
    pub fn live(&self, session: SessionId) -> Live {
        self.lock().get(&session).map_or(Live::STOPPED, SessionHandle::live)
    }

    /// How many processes are in each state but that of none.
    pub fn process_states(&self) -> [(ProcessState, u64); 4] {
        let mut states = [ProcessState::Starting, ProcessState::Ready, ProcessState::Busy, ProcessState::Stopping]
            .map(|state| (state, 0));
        for handle in self.lock().values() {
            let now = handle.live().process_state;
            states.iter_mut().filter(|(state, _)| *state == now).for_each(|(_, count)| *count += 1);
        }
        states
    }

    /// How many processes there are: of the sessions in sight, and of agents that are tried.
    pub fn process_count(&self, sight: Sight) -> usize {
        let has_process = |handle: &&SessionHandle| handle.live().process_state != ProcessState::Stopped;
        let trials = self.trial_count(sight);
        self.lock().values().filter(|handle| sight.has(handle.owner())).filter(has_process).count() + trials
    }

    /// Accepts a prompt: first for a process that is there; then with a slot, or the promise of one.
    pub async fn prompt(self: &Arc<Self>, session: SessionId, prompt: NewPrompt) -> Result<Accepted, RegistryError> {
        self.check_space()?;
        let ask = |admission| {
            let prompt = Box::new(prompt.clone());
            self.ask(session, move |reply| Request::Prompt { prompt, admission, reply })
        };
        let needs_slot = |outcome: &Result<_, _>| matches!(outcome, Err(RegistryError::Refused(Refusal::NeedsSlot)));
        let outcome = ask(Admission::None).await;
        if !needs_slot(&outcome) {
            return outcome;
        }
        let owner = self.check_workspace_of(session).await?;
        // One at a time: of two prompts to one session only the first needs a slot.
        let _admission = self.admission.pass().await;
        let outcome = ask(Admission::None).await;
        if !needs_slot(&outcome) {
            return outcome;
        }
        ask(self.admit(owner).await?).await
    }

    /// Records a system message, which waits for the session's next prompt. It needs no process.
    pub async fn system_message(
        self: &Arc<Self>,
        session: SessionId,
        message: SystemMessage,
    ) -> Result<(), RegistryError> {
        self.check_space()?;
        self.ask(session, |reply| Request::SystemMessage { message, reply }).await
    }

    /// A context in it is one that was checked ([`Self::checked_context`]).
    pub async fn change(self: &Arc<Self>, session: SessionId, edit: Edit) -> Result<(), RegistryError> {
        self.check_space()?;
        let edit = Box::new(edit);
        self.ask(session, |reply| Request::Change { edit, reply }).await
    }

    pub async fn cancel(
        self: &Arc<Self>,
        session: SessionId,
        turn: Option<TurnId>,
        queued: bool,
        by: By,
    ) -> Result<Vec<TurnId>, RegistryError> {
        self.ask(session, |reply| Request::Cancel { turn, queued, by, reply }).await
    }

    /// Answers a question. The first answer wins; it is committed, and the agent told.
    pub async fn answer(
        self: &Arc<Self>,
        session: SessionId,
        permission: PermissionId,
        answer: PermissionAnswer,
        by: Peer,
    ) -> Result<(), RegistryError> {
        self.ask(session, |reply| Request::Answer { permission, answer, by, reply }).await
    }

    /// Takes back what somebody has answered for good.
    pub async fn revoke(self: &Arc<Self>, session: SessionId, rule: RuleId, by: By) -> Result<(), RegistryError> {
        self.ask(session, |reply| Request::Revoke { rule, by, reply }).await
    }

    pub async fn resume(self: &Arc<Self>, session: SessionId, by: By) -> Result<(), RegistryError> {
        self.check_space()?;
        self.ask(session, |reply| Request::Resume { by, reply }).await
    }

    pub async fn close(
        self: &Arc<Self>,
        session: SessionId,
        reason: Option<String>,
        purge: bool,
        by: By,
    ) -> Result<(), RegistryError> {
        self.ask(session, |reply| Request::Close { reason, purge, by, reply }).await
    }

    /// Sends a request and waits for its answer.
    async fn ask<T>(
        self: &Arc<Self>,
        session: SessionId,
        request: impl FnOnce(Reply<T>) -> Request,
    ) -> Result<T, RegistryError> {
        let (reply, answer) = oneshot::channel();
        self.send(session, request(reply)).await?;
        match answer.await.map_err(|_| RegistryError::ActorFailed)? {
            // The request came when the actor had only its end before it.
            Err(Refusal::Purged) => Err(RegistryError::NotFound(session)),
            Err(Refusal::NotActive(SessionStatus::Error) | Refusal::Denied(Denied::ErrorIsFinal)) => {
                Err(self.in_error(session).await?)
            }
            answer => Ok(answer?),
        }
    }

    /// Queues a request with the session's actor, making the actor when there is none.
    async fn send(self: &Arc<Self>, session: SessionId, request: Request) -> Result<(), RegistryError> {
        if self.is_stopping() {
            return Err(Refusal::ShuttingDown.into());
        }
        if let Some(handle) = self.lock().get(&session) {
            return self.hand_over(handle, request);
        }
        let _gate = self.gate.pass().await;
        // The halt may have come meanwhile, and after it nobody is registered.
        if self.is_stopping() {
            return Err(Refusal::ShuttingDown.into());
        }
        if let Some(handle) = self.lock().get(&session) {
            return self.hand_over(handle, request);
        }
        let actor = self.load(session).await?;
        let (actor, handle) = actor.ok_or(RegistryError::NotFound(session))?;
        handle.send(request)?;
        self.register(session, actor, handle);
        Ok(())
    }

    /// Queues a request, or refuses it when too many wait already.
    fn hand_over(&self, handle: &SessionHandle, request: Request) -> Result<(), RegistryError> {
        handle.send(request).map_err(|refusal| {
            self.shared.metrics.mailbox_was_full();
            refusal.into()
        })
    }

    /// The actor of a session, when there is such a session. One whose record is damaged ends in error.
    async fn load(&self, session: SessionId) -> Result<Option<(SessionActor, SessionHandle)>, RegistryError> {
        match Box::pin(self.read(session)).await {
            Err(RegistryError::Store(StoreError::Damaged { what })) => {
                Err(Box::pin(self.condemn(session, what)).await?)
            }
            read => read,
        }
    }

    async fn read(&self, session: SessionId) -> Result<Option<(SessionActor, SessionHandle)>, RegistryError> {
        let store = self.hub().store();
        let Some(row) = store.session(session).await? else {
            return Ok(None);
        };
        // Nobody runs a turn, or waits for an answer, of a session that has no actor.
        self.withdraw_questions(Some(session), row.open_permissions > 0).await?;
        self.settle_running_turns(session, ErrorCode::Internal, RECORD_LOST).await?;
        let open_turns = store.open_turns(session).await?;
        let (announced, waiting) = (store.announced(session).await?, store.waiting_messages(session).await?);
        let standing = store.standing_rules(session).await?;
        Ok(Some(session::actor(
            row,
            open_turns,
            waiting,
            standing,
            &announced,
            Arc::clone(&self.shared),
            self.halt.watch(),
        )))
    }

    /// Called with the gate held.
    fn register(self: &Arc<Self>, session: SessionId, actor: SessionActor, handle: SessionHandle) {
        let mut actors = self.lock();
        actors.insert(session, handle);
        tracing::debug!(%session, actors = actors.len(), "an actor starts");
        drop(actors);
        let registry = Arc::clone(self);
        let span = tracing::info_span!(parent: None, "session", %session);
        self.tasks.spawn(async move { registry.drive(session, actor).await }.instrument(span));
    }

    /// Runs a session's actor to its end, and sees to it that nothing is left of it. When an actor fails, the next one
    /// takes up what waits.
    async fn drive(self: Arc<Self>, session: SessionId, first: SessionActor) {
        let mut next = Some(first);
        while let Some(mut actor) = next {
            let reason = match AssertUnwindSafe(actor.run()).catch_unwind().await {
                Ok(Ok(())) => {
                    let mut actors = self.lock();
                    if actor.has_mail() {
                        next = Some(actor);
                        continue;
                    }
                    actors.remove(&session);
                    return tracing::debug!(actors = actors.len(), "an actor ends");
                }
                Ok(Err(error)) => {
                    tracing::error!(error = &error as &dyn std::error::Error, "cannot write a session to the store");
                    RECORD_LOST
                }
                Err(_) => {
                    tracing::error!(
                        "internal error: the session's task panicked; killing its process and failing its \
                        turn"
                    );
                    "acpd failed while the turn was running; this is a bug in acpd, see its log"
                }
            };
            next = self.succeed(session, actor, reason).await;
        }
    }

    /// Puts the record right after an actor that failed, and makes its successor when turns wait. It goes on at once when
    /// a turn has ended, and after a pause when none has: so it neither spins nor gives up.
    async fn succeed(&self, session: SessionId, failed: SessionActor, reason: &str) -> Option<SessionActor> {
        let mut halt = self.halt.watch();
        let mut has_rested = false;
        // Nobody gets a new actor for it until the record is put right.
        let mut gate = self.gate.pass().await;
        self.lock().remove(&session);
        failed.abandon();
        loop {
            match self.settle_abandoned(session, reason).await {
                Ok((_, None)) | Err(RegistryError::InError { .. }) => return None,
                // What waits stays queued for the next daemon.
                Ok(_) if self.is_stopping() => return None,
                Ok((settled, Some((actor, handle)))) if settled > 0 || has_rested => {
                    self.lock().insert(session, handle);
                    return Some(actor);
                }
                Ok((_, Some(_))) => {}
                Err(error) => {
                    tracing::error!(error = &error as &dyn std::error::Error, "cannot repair a session in the store");
                }
            }
            drop(gate);
            if tokio::time::timeout(RECOVERY_PAUSE, halt.above(Halt::No)).await.is_ok() {
                return None;
            }
            has_rested = true;
            gate = self.gate.pass().await;
            if self.lock().contains_key(&session) {
                // Somebody asked for the session meanwhile, and it has an actor.
                return None;
            }
        }
    }

    /// Ends the turn of an actor that is gone, tells how many there were, and makes a new actor when turns wait.
    async fn settle_abandoned(
        &self,
        session: SessionId,
        reason: &str,
    ) -> Result<(usize, Option<(SessionActor, SessionHandle)>), RegistryError> {
        // What the old actor had on its way to the writer comes first.
        self.hub().append_own(Unit::default()).await?;
        self.withdraw_questions(Some(session), true).await?;
        let settled = self.settle_running_turns(session, ErrorCode::Internal, reason).await?;
        let waits = !self.hub().store().open_turns(session).await?.is_empty();
        let next = if waits { self.load(session).await? } else { None };
        Ok((settled, next))
    }

    /// Resolves when all that a request needs has shown that it moves: the locks, however many wait for them, and the writer.
    pub async fn beat(&self) -> Result<(), StoreError> {
        self.gate.moves().await;
        self.admission.moves().await;
        drop(self.lock());
        self.hub().beat().await
    }

    /// Has something done to its end, even when whoever asked for it goes away meanwhile.
    pub fn see_through<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
        self.tasks.spawn(work)
    }

    /// Tells every actor that the daemon stops. New requests are refused from here on.
    pub fn halt(&self, halt: Halt) {
        self.halt.raise(halt);
    }

    /// Resolves when every actor has ended and every process is reaped.
    pub async fn ended(&self) {
        self.tasks.close();
        self.tasks.wait().await;
        self.shared.host.tasks.close();
        self.shared.host.tasks.wait().await;
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, SessionHandle>> {
        self.actors.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
