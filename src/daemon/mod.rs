//! The composition root: everything is built here, run, and taken down in one numbered function.

mod activation;
mod journal;
mod lock;
mod log;
mod manager;
mod reload;
mod status;
mod watchdog;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use futures_util::StreamExt;
use rustix::fs::Mode;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook_tokio::Signals;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::activation::Activated;
use self::lock::StateLock;
use self::reload::Reloader;
use crate::agent::confine::Places;
use crate::agent::tools::{OPENED_MAX, OpenedTools};
use crate::agent::{Host, Secrets, open_files};
use crate::config::{self, Config, Overrides, Paths};
use crate::control::{self, Api, ControlSocket, Door, Server, ToolsServer};
use crate::hub::Hub;
use crate::metrics::Metrics;
use crate::notify::Notifier;
use crate::registry::{Registry, RegistryError};
use crate::security::Security;
use crate::session::{Halt, Shared, Slots};
use crate::store::{self, Direction, StoreOptions};
use crate::system;

pub use self::journal::error_mark;

/// More threads than this serve nobody: the work is waiting, not computing.
const WORKER_THREADS_MAX: usize = 4;
/// How long each of the last steps of stopping may take.
const MOMENT: Duration = Duration::from_secs(2);
/// How long killed processes may take to end, a killed shim's strays among them. A cgroup that does not empty by then is
/// left to the next start.
const KILL_TIMEOUT: Duration = Duration::from_secs(6);
/// What nobody but the daemon's user may read.
const PRIVATE_UMASK: Mode = Mode::RWXG.union(Mode::RWXO);

/// `acpd serve`.
pub fn serve(overrides: &Overrides, detached: bool) -> anyhow::Result<()> {
    // Before anything is opened: what is there now came from whoever started the daemon.
    let activated = Activated::take()?;
    system::hide_memory().context("cannot turn core dumps off")?;
    // What the daemon was started with is not for its agents.
    system::bound_kept_memory();
    system::keep_descriptors_from_children();
    if detached {
        // Started by a client's command: its terminal and its job control are not ours.
        rustix::process::setsid().context("cannot detach from the terminal's session")?;
    }
    let agent_umask = rustix::process::umask(PRIVATE_UMASK);
    open_files::raise();
    let environment: BTreeMap<String, String> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    let mut paths = Paths::resolve(overrides, &environment)?;
    if let Some(activated) = &activated {
        activated.settle(&mut paths, overrides)?;
    }
    let mut config = Config::load(paths.config.as_deref(), &environment)?;
    let fewer_connections = control::fit_connections(&mut config)?;
    // Before anything is written: a log on a full disk would only tell half of it.
    store::preflight(&store_options(&config, &paths))?;
    let secrets = Arc::new(Secrets::default());
    reload::learn_secrets(&secrets.of(None), &config, &environment);
    let _log = log::start(&config.log, &paths.logs(), detached, &secrets)?;
    if let Some(fewer) = fewer_connections {
        tracing::warn!("{fewer}");
    }
    // Half of the processors: the writer and the agents need some too, and a thread that looks for work only to find none
    // is in their way.
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get() / 2).clamp(1, WORKER_THREADS_MAX);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build();
    let runtime = runtime.context("cannot start the runtime")?;
    let origin = Origin { overrides, paths, environment, secrets, agent_umask, detached, activated };
    let outcome = runtime.block_on(run(config, origin));
    // Whatever still blocks a thread, a process that the kernel holds for one, is not waited for.
    runtime.shutdown_timeout(MOMENT);
    outcome
}

/// `acpd migrate`: to the newest schema, or down to an older one.
pub fn migrate(overrides: &Overrides, down_to: Option<i64>) -> anyhow::Result<String> {
    let environment: BTreeMap<String, String> = std::env::vars().collect();
    let paths = Paths::resolve(overrides, &environment)?;
    let config = Config::load(paths.config.as_deref(), &environment)?;
    let options = store_options(&config, &paths);
    let direction = down_to.map_or(Direction::Up, Direction::DownTo);
    store::preflight(&options)?;
    let _lock = StateLock::take(&paths)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let migrated = runtime.block_on(store::migrate(&options, direction))?;
    let database = options.database.display();
    Ok(if migrated.from == migrated.to {
        format!("{database} already has schema version {}", migrated.to)
    } else {
        format!("{database}: changed the schema version from {} to {}", migrated.from, migrated.to)
    })
}

fn store_options(config: &Config, paths: &Paths) -> StoreOptions {
    StoreOptions { database: paths.database(), backups: paths.backups(), settings: config.store.clone() }
}

/// What the daemon was started with.
struct Origin<'a> {
    overrides: &'a Overrides,
    paths: Paths,
    environment: BTreeMap<String, String>,
    secrets: Arc<Secrets>,
    agent_umask: Mode,
    detached: bool,
    activated: Option<Activated>,
}

async fn run(config: Config, origin: Origin<'_>) -> anyhow::Result<()> {
    let Origin { overrides, paths, environment, secrets, agent_umask, detached, activated } = origin;
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).context("cannot handle signals")?;
    // Before the first child: whoever started the daemon may have had the ends of children ignored.
    let child_ends = Signals::new([SIGCHLD]).context("cannot handle signals")?;
    // A limit on the size of files is an error of the write that meets it, and not the daemon's end.
    signal_hook::flag::register(SIGXFSZ, Arc::default()).context("cannot handle signals")?;
    let lock = if detached { StateLock::take_patiently(&paths).await? } else { StateLock::take(&paths)? };
    let door = Door {
        group: config.control.group.as_ref(),
        is_own_directory: paths.has_own_socket_dir,
        state_dir: &paths.state_dir,
    };
    let socket = match activated {
        Some(Activated { listener, .. }) => ControlSocket::adopt(listener, &paths.socket, door)?,
        None => ControlSocket::bind(&paths.socket, door)?,
    };
    lock.tell(&paths.socket).context("cannot write to the lock file of the state directory")?;
    let control = config.control.clone();
    let (tools, opened_tools) = mpsc::channel(OPENED_MAX);
    let shared = shared(config, &paths, environment, secrets, agent_umask, tools).await?;
    // Before the recovery: whoever waited for a turn that a killed daemon lost hears of it.
    let notifier = Notifier::new(Arc::clone(&shared)).await;
    let stop_notifying = notifier.stopper();
    let (hub, registry) = (shared.hub.clone(), Registry::new(shared));
    let (reloads, reload_requests) = mpsc::channel(control::RELOADS_MAX);
    let api = Api::new(Arc::clone(&registry), paths.state_dir.clone(), paths.socket.clone(), reloads.clone());
    let server = Server::new(socket, Arc::clone(&api), control);
    let stop_accepting = server.stopper();
    let tools_server = ToolsServer::new(opened_tools, api, stop_accepting.clone());
    let tasks = TaskTracker::new();
    let reloader = Reloader::new(Arc::clone(&registry), overrides.clone(), reload_requests);
    // It is given until the end, also while the daemon stops.
    let mut sign_of_life = JoinSet::new();
    let serving = async {
        registry.recover().await?;
        // Not earlier: what a killed daemon left is looked for by the mark that commands of notifications have too.
        tasks.spawn(notifier.run());
        tasks.spawn(server.run());
        tasks.spawn(tools_server.run());
        sign_of_life.spawn(watchdog::watch(Arc::clone(&registry)));
        tell_ready(&paths.socket);
        system::let_go_of_code();
        tasks.spawn(Arc::clone(&registry).sweep_daily());
        tasks.spawn(hub.store().clone().look_after());
        tokio::select! {
            outcome = reloader.run() => outcome,
            never = status::keep_up(&registry) => match never {},
        }
    };
    tokio::select! {
        // Where no more can wait, those that wait read the file after this signal.
        () = stop_requested(&mut signals, || drop(reloads.try_send(None))) => {}
        () = reap_children(child_ends, &registry) => {}
        // The agents go with the daemon; whoever starts it again finds all that was acknowledged.
        () = hub.lost() => anyhow::bail!("the store's writer failed; acpd cannot run without it"),
        Err(error) = serving => return Err(match error {
            // What went wrong with the store has its own hint and exit code.
            RegistryError::Store(error) => {
                let database = paths.database();
                anyhow::Error::from(error).context(format!("cannot use the database {}", database.display()))
            }
            error => error.into(),
        }),
    }
    tasks.close();
    // What ends because acpd does is no news. What runs has a moment while the sessions stop.
    stop_notifying.cancel();
    let deadline = Instant::now() + registry.shared().config().processes.shutdown_timeout;
    shut_down(&stop_accepting, &registry, &hub, &tasks, &mut signals, deadline).await;
    Ok(())
}

/// What all sessions have in common: the record, the processes' host, the configuration.
async fn shared(
    config: Config,
    paths: &Paths,
    environment: BTreeMap<String, String>,
    secrets: Arc<Secrets>,
    agent_umask: Mode,
    tools: mpsc::Sender<OpenedTools>,
) -> anyhow::Result<Arc<Shared>> {
    let metrics = Arc::new(Metrics::default());
    let hub = Hub::open(&store_options(&config, paths), secrets, Arc::clone(&metrics)).await?;
    let (mode, long_lines) = (config.processes.cgroup, config.limits.long_lines.0);
    let host = Host::new(mode, long_lines, paths.state_dir.clone(), Arc::clone(&metrics))
        .context("cannot prepare to start processes")?;
    reload::tell_unbounded(&host, &config);
    let places = Places {
        state_dir: paths.state_dir.clone(),
        socket: paths.socket.clone(),
        has_own_socket_dir: paths.has_own_socket_dir,
        config: paths.config_place.clone(),
    };
    Ok(Arc::new(Shared {
        hub,
        slots: Slots::new(config.limits.processes),
        config: config::Current::new(config, paths.config.clone()),
        home: paths.home.clone(),
        environment,
        umask: agent_umask,
        host,
        security: Security::default(),
        metrics,
        places,
        tools,
    }))
}

/// Whoever has ended and is no shim is reaped here: what the daemon was started with, and strays.
async fn reap_children(mut child_ends: Signals, registry: &Registry) {
    while child_ends.next().await.is_some() {
        registry.shared().host.reap();
    }
}

/// Whoever started the daemon may ask from now on: a service manager is told so, and others by the one line on standard output.
fn tell_ready(socket: &Path) {
    tracing::info!(socket = %socket.display(), version = env!("CARGO_PKG_VERSION"), "ready");
    manager::ready();
    let mut stdout = std::io::stdout().lock();
    if journal::takes(&stdout) {
        return;
    }
    // Whoever started it may have stopped listening.
    drop(writeln!(stdout, "acpd is ready on {}", socket.display()).and_then(|()| stdout.flush()));
}

/// Resolves at the first SIGTERM or SIGINT. What SIGHUP means depends on when it comes.
async fn stop_requested(signals: &mut Signals, hung_up: impl Fn()) {
    while let Some(signal) = signals.next().await {
        match signal {
            SIGHUP => hung_up(),
            signal => {
                tracing::info!(signal, "stopping");
                return;
            }
        }
    }
}

/// The whole end of the daemon, in order.
async fn shut_down(
    stop_accepting: &CancellationToken,
    registry: &Registry,
    hub: &Hub,
    tasks: &TaskTracker,
    signals: &mut Signals,
    deadline: Instant,
) {
    manager::stopping();
    // 1. New requests are refused from here on; whoever is being answered is answered.
    // 2. Every actor keeps what there is: partial text, the running turn as interrupted. Its process starts to go.
    //    A check or a copy of the database under way is abandoned.
    registry.halt(Halt::Suspend);
    hub.store().abandon();
    in_a_moment("sessions to store their state", registry.settled()).await;
    // 3. Every active session is suspended, in one transaction; queued turns stay queued.
    in_a_moment("sessions to be suspended", async {
        if let Err(error) = registry.suspend_all().await {
            tracing::error!(error = &error as &dyn std::error::Error, "cannot suspend the sessions");
        }
    })
    .await;
    // 4. The processes end, together, until the deadline or a second signal. A reload would serve nobody any more.
    let hung_up = || tracing::info!("ignored a reload because acpd is stopping");
    manager::wait_for(deadline.saturating_duration_since(Instant::now()));
    tokio::select! {
        () = registry.ended() => {}
        () = stop_requested(signals, hung_up) => tracing::warn!("received a second stop signal; killing the remaining agents"),
        () = tokio::time::sleep_until(deadline) => tracing::warn!("some agents did not stop in time; killing them"),
    }
    // 5. What is left is killed, and strays end too. Every later step has a moment, whatever is in trouble.
    registry.halt(Halt::Kill);
    within(KILL_TIMEOUT, "agents to end", registry.ended()).await;
    manager::wait_for(Host::LAST_LOOK);
    registry.shared().host.end_strays().await;
    // 6. Every stream ends with its last event.
    in_a_moment("event streams to end", hub.end_streams()).await;
    // 7. The socket goes, and the last connections end. A client that does not read is not waited for.
    stop_accepting.cancel();
    in_a_moment("clients to read their last events", tasks.wait()).await;
    // 8. The store is closed last.
    in_a_moment("the store to close", hub.close()).await;
    manager::status("Stopped; sessions are suspended");
    tracing::info!("stopped");
}

async fn in_a_moment(what: &str, end: impl Future<Output = ()>) {
    within(MOMENT, what, end).await;
}

async fn within(timeout: Duration, what: &str, end: impl Future<Output = ()>) {
    manager::wait_for(timeout);
    if tokio::time::timeout(timeout, end).await.is_err() {
        tracing::warn!("stopped waiting for {what}");
    }
}
