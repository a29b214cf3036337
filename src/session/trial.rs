//! A trial of an agent: its process is started as a session's would be, shakes hands, and goes down the ladder again.
//!
//! Nothing of it is recorded, and nothing stays: no process, no directory. It has the session's own temporary directory for a
//! workspace, because a real one is nobody's to try things in. It has no tools of acpd's, because there is no session to record
//! anything of.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::time::{Instant, timeout_at};

use super::failure::{self, SignIn};
use super::servers::{reachable, suspicion};
use super::start::Start;
use super::{Halt, Shared, Slot};
use crate::acp::introduction::{self, Introduction};
use crate::acp::{Envelope, Line, PROTOCOL_VERSION, RpcError, choices, incoming, outgoing};
use crate::agent::confine::SessionDirectories;
use crate::agent::{self, Exit, NoProgram, OpenWorkspace, Output, Persona, Process};
use crate::config::Config;
use crate::lane::LaneWatch;
use crate::model::agent::FrozenProfile;
use crate::model::error::chain;
use crate::model::mcp::{ChosenServer, ReadyServer};
use crate::model::{Adapter, AgentProfile, ErrorCode, FsScope, Sandbox, SessionId, TurnError};

/// What is taken of what an agent announces.
const ANNOUNCED_BYTES_MAX: usize = 256 << 10;
/// How long to listen for what an agent says of the login by itself.
const LOGIN_PATIENCE: Duration = Duration::from_secs(2);
/// The id of no request.
const NOBODY: u64 = u64::MAX;
const INITIALIZE: &str = "initialize";
const AUTHENTICATE: &str = "authenticate";
const NEW: &str = "session/new";

/// What is to be tried.
#[derive(Debug)]
pub struct TrialWish {
    pub profile: AgentProfile,
    /// As a session's are; nothing: all of the profile's.
    pub mcp_servers: Option<Vec<ChosenServer>>,
    /// Whose process it is to be. Nothing: the daemon's own user's.
    pub owner: Option<u32>,
    /// Whether a conversation is begun too, which tells whether somebody is signed in.
    pub with_session: bool,
    /// How long the agent may take, from its start to its last answer, beside the deadlines that hold in a session. To be
    /// stopped it has the time of the ladder, which a session's has too.
    pub timeout: Option<Duration>,
}

/// What was seen. Whatever is not there was not come to.
#[derive(Debug, Default)]
pub struct Trial {
    pub program: Option<PathBuf>,
    pub protocol_version: Option<u16>,
    pub introduction: Introduction,
    /// Nothing, when nobody can tell.
    pub signed_in: Option<bool>,
    pub modes: Vec<String>,
    pub models: Vec<String>,
    pub sandbox: Option<Sandbox>,
    pub initialize_took: Option<Duration>,
    pub session_took: Option<Duration>,
    /// What is not as it should be with its MCP servers.
    pub warnings: Vec<String>,
    pub error: Option<TrialError>,
    /// Whether it was whoever asked who had no more time, and no deadline of a session.
    pub is_cut_short: bool,
}

#[derive(Debug)]
pub enum TrialError {
    /// The command names no program that its user can run.
    NoProgram(NoProgram),
    /// It went wrong, as it would in a session.
    Failed(TurnError),
}

impl From<TurnError> for TrialError {
    fn from(error: TurnError) -> Self {
        Self::Failed(error)
    }
}

/// Tries an agent, to its end: when this is over, nothing of it is left. The slot is held for as long.
pub async fn try_agent(shared: Arc<Shared>, wish: TrialWish, slot: Slot, mut halt: LaneWatch<Halt>) -> Trial {
    let mut trial = Trial::default();
    let session = SessionId::new();
    if let Err(error) = run(&shared, session, &wish, &mut halt, &mut trial).await {
        trial.error = Some(error);
    }
    // It is gone by itself when the daemon goes.
    shared.host.directories.remove(session).await.ok();
    drop(slot);
    trial
}

async fn run(
    shared: &Arc<Shared>,
    session: SessionId,
    wish: &TrialWish,
    halt: &mut LaneWatch<Halt>,
    trial: &mut Trial,
) -> Result<(), TrialError> {
    let until = wish.timeout.map(|timeout| Instant::now() + timeout);
    let config = shared.config();
    let mut profile = wish.profile.freeze();
    loop {
        let mut talk = begin(shared, session, wish, &profile, until, trial).await?;
        let outcome = tokio::select! {
            outcome = talk.shake_hands(wish, &config, trial) => outcome,
            _ = halt.above(Halt::No) => Err(TurnError::new(ErrorCode::Interrupted, "the daemon is stopping")),
        };
        let outcome = outcome.map_err(|error| match &talk.exit {
            Some(_) => error,
            None => failure::with_stderr(error, &talk.process.stderr_tail()),
        });
        let outcome = outcome.map_err(|error| {
            start(shared, session, &talk.persona, &talk.workspace, &profile).explained(error, &profile)
        });
        let ended = talk.exit.as_ref().filter(|_| trial.protocol_version.is_none());
        let older = ended.and_then(|exit| profile.adapter.older_arguments(&profile.args, &exit.stderr));
        trial.sandbox = talk.sandbox.take();
        trial.is_cut_short = talk.is_cut_short;
        talk.end(halt).await;
        match older {
            Some(arguments) => profile.args = arguments,
            None => return Ok(outcome?),
        }
    }
}

/// Starts the agent's process.
async fn begin(
    shared: &Arc<Shared>,
    session: SessionId,
    wish: &TrialWish,
    profile: &FrozenProfile,
    until: Option<Instant>,
    trial: &mut Trial,
) -> Result<Talk, TrialError> {
    let place = enter(shared, session, wish).await?;
    let program = place.program.map_err(TrialError::NoProgram)?;
    trial.program = Some(program.clone());
    let start = start(shared, session, &place.persona, &place.own.tmp, profile);
    tracing::info!(agent = profile.slug, owner = wish.owner, "checking the agent");
    let (bounds, secrets) = (shared.bounds(), shared.hub.secrets(wish.owner));
    let spawned = start
        .command(program, profile, place.workspace)
        .and_then(|command| Ok((start.servers(&command, profile, wish.mcp_servers.as_deref(), None)?, command)))
        .and_then(|(ready, command)| Ok((Process::spawn(&command, bounds, secrets, &shared.host)?, ready)));
    let (process, ready) = spawned.map_err(|error| not_started(&chain(&error)))?;
    trial.warnings = ready.warnings;
    Ok(Talk {
        process,
        persona: place.persona,
        workspace: place.own.tmp,
        servers: ready.servers,
        next_id: 0,
        until,
        is_cut_short: false,
        is_signed_in: None,
        sign_in: SignIn { account: None, advice: wish.profile.how_to_sign_in() },
        adapter: profile.adapter,
        sandbox: None,
        exit: None,
    })
}

/// What the process is started with: all that a session has whose creator chooses nothing.
fn start<'a>(
    shared: &'a Shared,
    session: SessionId,
    persona: &'a Persona,
    workspace: &'a Path,
    profile: &'a FrozenProfile,
) -> Start<'a> {
    let (scope, env_names) = (FsScope::default(), profile.env_names.as_slice());
    Start { shared, session, persona, workspace, scope, is_read_only: false, env_names, conversation: None }
}

struct Place {
    persona: Persona,
    own: SessionDirectories,
    workspace: OpenWorkspace,
    program: Result<PathBuf, NoProgram>,
}

/// The user database or the disk may be far away, so it is a thread that waits for them.
async fn enter(shared: &Arc<Shared>, session: SessionId, wish: &TrialWish) -> Result<Place, TurnError> {
    let (shared, owner, command) = (Arc::clone(shared), wish.owner, wish.profile.command.clone());
    let looked = tokio::task::spawn_blocking(move || {
        let persona = Persona::of(owner).map_err(|error| chain(&error))?;
        let found = persona.run(|| agent::find_agent(&command, &shared.environment));
        let program = found.unwrap_or(Err(NoProgram::NotOnPath(command)));
        let made = shared.host.directories.make(session, persona.owner().as_ref());
        let opened = made.and_then(|own| agent::open_own(&own.tmp).map(|workspace| (own, workspace)));
        let (own, workspace) = opened.map_err(|error| format!("cannot create a directory for it: {error}"))?;
        Ok::<_, String>(Place { persona, own, workspace, program })
    });
    let looked = looked.await.unwrap_or_else(|error| Err(error.to_string()));
    looked.map_err(|problem| not_started(&problem))
}

fn not_started(why: &str) -> TurnError {
    TurnError::new(ErrorCode::AgentExited, format!("cannot start the agent: {why}"))
}

/// A process that is talked to, one request at a time.
struct Talk {
    process: Process,
    persona: Persona,
    workspace: PathBuf,
    servers: Vec<ReadyServer>,
    next_id: u64,
    until: Option<Instant>,
    is_cut_short: bool,
    /// What it has said of that by itself.
    is_signed_in: Option<bool>,
    sign_in: SignIn,
    adapter: Adapter,
    sandbox: Option<Sandbox>,
    exit: Option<Exit>,
}

impl Talk {
    async fn shake_hands(&mut self, wish: &TrialWish, config: &Config, trial: &mut Trial) -> Result<(), TurnError> {
        let began = Instant::now();
        let (files, terminals) = (wish.profile.client_files, !wish.profile.terminal_commands.is_empty());
        let line = outgoing::initialize(self.next_id, files, terminals);
        let step = (INITIALIZE, "processes.initialize_timeout");
        let result = self.ask(line, step, config.processes.initialize_timeout, config).await?;
        let result = result.map_err(|error| failure::refused(INITIALIZE, &error, &self.sign_in))?;
        trial.initialize_took = Some(began.elapsed());
        let initialized = incoming::initialized(&result).map_err(|error| failure::unreadable(INITIALIZE, &error))?;
        let (version, abilities) = (initialized.protocol_version, initialized.abilities.mcp);
        let (servers, left_out) =
            reachable(std::mem::take(&mut self.servers), |server| abilities.reach(&server.transport));
        self.servers = servers;
        trial.warnings.extend(Some(left_out).filter(|left_out| !left_out.is_empty()));
        trial.protocol_version = Some(version);
        trial.introduction = introduction::introduction(&result);
        if version != PROTOCOL_VERSION {
            let message = format!("the agent speaks ACP version {version}; acpd needs version {PROTOCOL_VERSION}");
            return Err(TurnError::new(ErrorCode::Protocol, message));
        }
        if let Some(method) = &wish.profile.auth_method {
            let line = outgoing::authenticate(self.next_id, method);
            let step = (AUTHENTICATE, "processes.session_timeout");
            let answer = self.ask(line, step, config.processes.session_timeout, config).await?;
            answer.map_err(|error| failure::refused(AUTHENTICATE, &error, &self.sign_in))?;
        }
        if wish.with_session {
            self.begin_session(config, trial).await?;
        }
        Ok(())
    }

    async fn begin_session(&mut self, config: &Config, trial: &mut Trial) -> Result<(), TurnError> {
        let began = Instant::now();
        let workspace = self.workspace.display().to_string();
        let surroundings =
            outgoing::Surroundings { workspace: &workspace, servers: &self.servers, system_prompt: None };
        let line = outgoing::new_session(self.next_id, surroundings);
        let step = (NEW, "processes.session_timeout");
        let answer = self.ask(line, step, config.processes.session_timeout, config).await?;
        trial.session_took = Some(began.elapsed());
        let result = answer.map_err(|error| {
            if error.code == RpcError::AUTH_REQUIRED {
                trial.signed_in = Some(false);
            }
            failure::refused(NEW, &error, &self.sign_in)
        })?;
        incoming::session_id(&result).map_err(|error| failure::unreadable(NEW, &error))?;
        let news = choices::news(&result, ANNOUNCED_BYTES_MAX);
        // Newer agents have both among their options.
        let mut options = news.known.config_options.unwrap_or_default();
        let mut offered = |named: Option<Vec<String>>, option: &str| {
            named.or_else(|| options.remove(option).flatten()).unwrap_or_default()
        };
        trial.modes = offered(news.known.modes, "mode");
        trial.models = offered(news.known.models, "model");
        self.hear_of_login(&trial.introduction).await?;
        // Many agents answer `session/new` without a sign-in and refuse the first prompt, so the answer alone proves nothing.
        let is_proven = self.adapter.quirks().new_session_needs_login.then_some(true);
        trial.signed_in = self.is_signed_in.or(is_proven);
        Ok(())
    }

    /// An agent that announces that it tells of the login may do so after its answer.
    async fn hear_of_login(&mut self, introduction: &Introduction) -> Result<(), TurnError> {
        let deadline = Instant::now() + LOGIN_PATIENCE;
        while introduction.tells_of_login && self.is_signed_in.is_none() {
            match timeout_at(deadline, self.process.next()).await {
                Ok(Some(Output::Lines { lines, shares: _shares })) => {
                    for line in &lines {
                        self.read(line, NOBODY)?;
                    }
                }
                Ok(Some(Output::Started { .. })) => {}
                // It has answered already, so whatever happens now is no failure of what was tried.
                Ok(Some(Output::Exited(exit))) => {
                    self.exit = Some(exit);
                    return Ok(());
                }
                Ok(None | Some(Output::NotReading { .. })) | Err(_) => return Ok(()),
            }
        }
        Ok(())
    }

    /// Sends a request, and waits for its answer until its deadline. What the agent asks meanwhile is declined.
    async fn ask(
        &mut self,
        line: bytes::Bytes,
        (step, setting): (&str, &str),
        timeout: Duration,
        config: &Config,
    ) -> Result<Result<Box<RawValue>, RpcError>, TurnError> {
        let id = self.next_id;
        self.next_id += 1;
        self.send(line)?;
        let own = Instant::now() + timeout;
        let deadline = self.until.map_or(own, |until| until.min(own));
        loop {
            let Ok(output) = timeout_at(deadline, self.process.next()).await else {
                self.is_cut_short = deadline != own;
                let setting = if self.is_cut_short { "timeoutSeconds" } else { setting };
                let mut message = format!("the agent did not answer {step} in time ({setting})");
                if step == NEW {
                    message = format!("{message}; {}", suspicion(&self.servers));
                }
                return Err(TurnError::new(ErrorCode::Timeout, message));
            };
            match output.unwrap_or(Output::Exited(Exit::LOST)) {
                Output::Started { sandbox, account, .. } => {
                    self.sandbox = Some(*sandbox);
                    self.sign_in.account = account;
                }
                Output::NotReading { message } => return Err(TurnError::new(ErrorCode::Timeout, message)),
                Output::Exited(exit) => {
                    let error = failure::exited(config, step, &exit);
                    self.exit = Some(exit);
                    return Err(error);
                }
                Output::Lines { lines, shares: _shares } => {
                    // What stands behind the answer counts as well: an agent may tell of its login there.
                    let mut answer = None;
                    for line in &lines {
                        answer = self.read(line, id)?.or(answer);
                    }
                    if let Some(answer) = answer {
                        return Ok(answer);
                    }
                }
            }
        }
    }

    /// The answer that is waited for, if the line is it.
    fn read(&mut self, line: &Line, waited_for: u64) -> Result<Option<Result<Box<RawValue>, RpcError>>, TurnError> {
        let Line::Text(bytes) = line else { return Ok(None) };
        let Ok(text) = std::str::from_utf8(bytes) else { return Ok(None) };
        match Envelope::parse(text) {
            Envelope::Answer { id, outcome } if id == waited_for => Ok(Some(outcome.map(ToOwned::to_owned))),
            Envelope::Notification { method, params: Some(params) } if method == introduction::AUTH_STATUS => {
                self.is_signed_in = introduction::is_signed_in(params).or(self.is_signed_in);
                Ok(None)
            }
            Envelope::Request { id, method, .. } => {
                let refusal = format!("acpd is only checking the agent and does not carry out {method}");
                self.send(outgoing::failure(id, RpcError::METHOD_NOT_FOUND, refusal))?;
                Ok(None)
            }
            Envelope::Noise if self.adapter.is_login_prompt(text) => {
                // Whatever is said to it now it takes for the code.
                self.process.kill();
                Err(failure::auth_required(failure::LOGIN_PROMPT, &self.sign_in))
            }
            Envelope::Answer { .. } | Envelope::Notification { .. } | Envelope::Noise => Ok(None),
        }
    }

    fn send(&self, line: bytes::Bytes) -> Result<(), TurnError> {
        self.process.send(line).map_err(|error| TurnError::new(ErrorCode::Timeout, error.to_string()))
    }

    /// Down the ladder, and straight to its end when the daemon has no time for that.
    async fn end(mut self, halt: &mut LaneWatch<Halt>) {
        self.process.stop();
        let mut is_killed = false;
        while self.exit.is_none() {
            tokio::select! {
                output = self.process.next() => match output {
                    Some(Output::Exited(exit)) => self.exit = Some(exit),
                    Some(_) => {}
                    None => self.exit = Some(Exit::LOST),
                },
                _ = halt.above(Halt::Suspend), if !is_killed => {
                    is_killed = true;
                    self.process.kill();
                }
            }
        }
    }
}
