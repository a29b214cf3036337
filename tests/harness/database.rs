//! The daemon's database: its writer, held, and the rows, read and changed. No other process can open it while the daemon runs.

use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use serde_json::json;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions, Connection};

use super::Daemon;

/// How often a held thread is looked at: the end of its process must be waited for here.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// The daemon's writer thread, stopped as if the disk did not answer.
pub struct HeldWriter {
    release: Sender<()>,
    holder: JoinHandle<()>,
}

impl HeldWriter {
    /// The daemon lets nobody but root trace it.
    pub fn is_possible() -> bool {
        let is_root = rustix::process::geteuid().is_root();
        if !is_root {
            super::skip("only root can stop a thread of the daemon");
        }
        is_root
    }

    /// Stops the writer of the daemon with this process id.
    pub fn hold(daemon: u32) -> Self {
        let (release, released) = channel();
        let (stopped, is_stopped) = channel();
        let writer = thread_named(daemon, "writer");
        // The kernel takes the thread that stops another one for its tracer, and only that one can let it go on.
        let holder = std::thread::spawn(move || {
            ptrace::seize(writer, ptrace::Options::empty()).expect("the writer can be traced");
            ptrace::interrupt(writer).expect("the writer can be stopped");
            waitpid(writer, Some(WaitPidFlag::__WALL)).expect("the writer stops");
            stopped.send(()).expect("the test waits");
            until_released_or_ended(writer, &released);
        });
        is_stopped.recv().expect("the writer is stopped");
        Self { release, holder }
    }

    /// Lets the writer go on.
    pub fn let_go(self) {
        drop(self.release);
        self.holder.join().expect("the writer was held");
    }
}

fn thread_named(process: u32, name: &str) -> Pid {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).expect("the daemon runs");
    let mut tasks = tasks.map(|task| task.expect("the threads can be listed").path());
    let is_named = |task: &Path| std::fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm.trim() == name);
    let task = tasks.find(|task| is_named(task)).expect("the daemon has such a thread");
    let number = task.file_name().and_then(|number| number.to_str()?.parse().ok());
    Pid::from_raw(number.expect("a thread is named by its number"))
}

fn until_released_or_ended(writer: Pid, released: &Receiver<()>) {
    while released.recv_timeout(LOOK_INTERVAL) == Err(RecvTimeoutError::Timeout) {
        if !matches!(waitpid(writer, Some(WaitPidFlag::__WALL | WaitPidFlag::WNOHANG)), Ok(WaitStatus::StillAlive)) {
            return;
        }
    }
    ptrace::detach(writer, None).expect("the writer is stopped");
}

impl Daemon {
    /// Changes the database, as a crash or a fault of the disk would. A daemon that runs is killed for it, and started again.
    pub async fn sql(&mut self, statements: String) {
        let was_running = self.is_running();
        if was_running {
            self.kill().await;
        }
        let mut connection = open(&self.state_dir().join("acpd.db")).await;
        let changed = sqlx::raw_sql(sqlx::AssertSqlSafe(statements)).execute(&mut connection).await;
        changed.expect("the statements are sound");
        connection.close().await.expect("the database can be closed");
        if was_running {
            self.launch().await;
        }
    }

    /// Lets the test decide whether the store can record an event: see [`Self::fill_log`].
    pub async fn prepare_full_log(&mut self) {
        let full = "CREATE TRIGGER full BEFORE INSERT ON events WHEN EXISTS (SELECT 1 FROM workspaces WHERE path LIKE '%/full') \
             BEGIN SELECT RAISE(ABORT, 'disk full'); END";
        self.sql(full.to_owned()).await;
    }

    /// From now on every write of an event fails, as it would on a full disk, until [`Self::free_log`].
    pub async fn fill_log(&self) -> String {
        let directory = self.workspace().join("full");
        std::fs::create_dir_all(&directory).expect("the workspace can be written");
        let registered = self.post("/v1/workspaces", json!({"path": directory})).await.expect_status(201);
        registered["id"].as_str().expect("a workspace has an id").to_owned()
    }

    pub async fn free_log(&self, full: &str) {
        self.delete(&format!("/v1/workspaces/{full}")).await.expect_status(200);
    }

    /// One number out of the database, for what the interface does not show. While the daemon runs, out of a backup.
    pub async fn sql_number(&self, query: String) -> i64 {
        let (database, copy) = (self.state_dir().join("acpd.db"), self.state_dir().join("copy-to-look-at.db"));
        if self.is_running() {
            self.post("/v1/backup", json!({"path": copy})).await.expect_status(201);
        }
        let mut connection = open(if self.is_running() { &copy } else { &database }).await;
        let number = sqlx::query_scalar(sqlx::AssertSqlSafe(query)).fetch_one(&mut connection).await;
        connection.close().await.expect("the database can be closed");
        if self.is_running() {
            std::fs::remove_file(copy).expect("the copy is there");
        }
        number.expect("the query is sound")
    }
}

async fn open(database: &Path) -> SqliteConnection {
    SqliteConnectOptions::new().filename(database).connect().await.expect("the database can be opened")
}
