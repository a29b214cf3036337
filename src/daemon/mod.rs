//! The composition root: everything is built here, run, and taken down in one numbered function.

mod lock;
mod log;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use futures_util::StreamExt;
use rustix::fs::Mode;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook_tokio::Signals;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::lock::StateLock;
use crate::agent::Bounds;
use crate::config::{Config, Overrides, Paths};
use crate::control::{Api, ControlSocket, Server};
use crate::hub::Hub;
use crate::registry::Registry;
use crate::session::{Halt, Shared, Slots};
use crate::store::{self, Direction, StoreOptions};

/// More threads than this serve nobody: the work is waiting, not computing.
const WORKER_THREADS_MAX: usize = 4;
/// How long each of the last steps of stopping may take.
const MOMENT: Duration = Duration::from_secs(2);
/// What nobody but the daemon's user may read.
const PRIVATE_UMASK: Mode = Mode::RWXG.union(Mode::RWXO);

/// `acpd serve`.
pub fn serve(overrides: &Overrides, detached: bool) -> anyhow::Result<()> {
    if detached {
        // Started by a client's command: its terminal and its job control are not ours.
        rustix::process::setsid().context("cannot leave the session of the terminal")?;
    }
    let agent_umask = rustix::process::umask(PRIVATE_UMASK);
    let environment: BTreeMap<String, String> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    let paths = Paths::resolve(overrides, &environment)?;
    let config = Config::load(paths.config.as_deref(), &environment)?;
    let _log = log::start(&config.log, &paths.logs(), detached, &environment)?;
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(WORKER_THREADS_MAX);
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()
        .context("cannot start the runtime")?
        .block_on(run(config, paths, environment, agent_umask, detached))
}

/// `acpd migrate`: to the newest schema, or down to an older one.
pub fn migrate(overrides: &Overrides, down_to: Option<i64>) -> anyhow::Result<String> {
    let environment: BTreeMap<String, String> = std::env::vars().collect();
    let paths = Paths::resolve(overrides, &environment)?;
    let config = Config::load(paths.config.as_deref(), &environment)?;
    let options = store_options(&config, &paths);
    let direction = down_to.map_or(Direction::Up, Direction::DownTo);
    let _lock = StateLock::take(&paths)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let migrated = runtime.block_on(store::migrate(&options, direction))?;
    let database = options.database.display();
    Ok(if migrated.from == migrated.to {
        format!("{database} has schema version {} already", migrated.to)
    } else {
        format!("{database}: schema version {} is now {}", migrated.from, migrated.to)
    })
}

fn store_options(config: &Config, paths: &Paths) -> StoreOptions {
    StoreOptions { database: paths.database(), backups: paths.backups(), settings: config.store.clone() }
}

async fn run(
    config: Config,
    paths: Paths,
    environment: BTreeMap<String, String>,
    agent_umask: Mode,
    detached: bool,
) -> anyhow::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).context("cannot take signals")?;
    let lock = if detached { StateLock::take_patiently(&paths).await? } else { StateLock::take(&paths)? };
    let socket = ControlSocket::bind(&paths.socket)?;
    lock.tell(&paths.socket).context("cannot write to the lock of the state directory")?;
    let hub = Hub::open(&store_options(&config, &paths)).await?;
    let roots = config.workspace_roots(&paths.home);
    let bounds = bounds(&config, agent_umask);
    let slots = Slots::new(config.limits.processes);
    let control = config.control.clone();
    let shutdown_timeout = config.processes.shutdown_timeout;
    let process_tasks = TaskTracker::new();
    let shared = Arc::new(Shared { hub: hub.clone(), config, roots, environment, bounds, slots, process_tasks });
    let registry = Registry::new(shared);
    registry.recover().await?;

    let api = Api::new(Arc::clone(&registry), paths.state_dir.clone(), paths.socket.clone());
    let server = Server::new(socket, api, control);
    let stop_accepting = server.stopper();
    let tasks = TaskTracker::new();
    tasks.spawn(server.run());
    tasks.close();
    tell_ready(&paths.socket);

    stop_requested(&mut signals).await;
    let deadline = Instant::now() + shutdown_timeout;
    shut_down(&stop_accepting, &registry, &hub, &tasks, &mut signals, deadline).await;
    Ok(())
}

fn bounds(config: &Config, umask: Mode) -> Bounds {
    Bounds {
        line_bytes_max: config.limits.line_max.0,
        stderr_tail_bytes: config.limits.stderr_tail.0,
        stdin_timeout: config.processes.stdin_timeout,
        eof_grace: config.processes.eof_grace,
        term_grace: config.processes.term_grace,
        umask,
    }
}

/// The one line on standard output: whoever started the daemon may ask from now on.
fn tell_ready(socket: &Path) {
    tracing::info!(socket = %socket.display(), version = env!("CARGO_PKG_VERSION"), "ready");
    let mut stdout = std::io::stdout().lock();
    // Whoever started it may have stopped listening.
    drop(writeln!(stdout, "acpd is ready on {}", socket.display()).and_then(|()| stdout.flush()));
}

/// Resolves at the first SIGTERM or SIGINT.
async fn stop_requested(signals: &mut Signals) {
    while let Some(signal) = signals.next().await {
        match signal {
            SIGHUP => tracing::warn!("the configuration is read at start only; restart acpd to change it"),
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
    // 1. New requests are refused from here on; whoever is being answered is answered.
    // 2. Every actor keeps what there is: partial text, the running turn as interrupted. Its process starts to go.
    registry.halt(Halt::Suspend);
    // 3. The processes end, together, until the deadline or a second signal.
    tokio::select! {
        () = registry.ended() => {}
        () = stop_requested(signals) => tracing::warn!("told to stop again; killing what is left"),
        () = tokio::time::sleep_until(deadline) => tracing::warn!("some agents did not stop in time; killing them"),
    }
    // 4. What is left is killed. From here on nothing is waited for longer than a moment, whatever is in trouble.
    registry.halt(Halt::Kill);
    in_a_moment("the end of the agents", registry.ended()).await;
    // 5. Every active session is suspended, in one transaction; queued turns stay queued. It comes after everything that
    //    the actors had to write, so that no change of theirs meets a status that they do not know of.
    in_a_moment("the suspension of the sessions", async {
        if let Err(error) = registry.suspend_all().await {
            tracing::error!(error = &error as &dyn std::error::Error, "the sessions could not be suspended");
        }
    })
    .await;
    // 6. Every stream ends with its last event.
    in_a_moment("the end of the record", hub.end_streams()).await;
    // 7. The last connections end, and the socket goes. A client that does not read is not waited for.
    stop_accepting.cancel();
    in_a_moment("clients to take their last events", tasks.wait()).await;
    // 8. The store is closed last.
    in_a_moment("the store to close", hub.close()).await;
    tracing::info!("stopped");
}

async fn in_a_moment(what: &str, end: impl Future<Output = ()>) {
    if tokio::time::timeout(MOMENT, end).await.is_err() {
        tracing::warn!("did not wait any longer for {what}");
    }
}
