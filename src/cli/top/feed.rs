//! What comes from the daemon: a look at everything every second and when something happens, how many events there are,
//! and the log of the selected session. Each is asked for again for as long as it takes when the daemon is gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::Deserialize;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::cli::connection::{Daemon, StreamBody};
use crate::cli::error::ClientError;
use crate::cli::sse::{Frame, SseParser};
use crate::cli::text::one_line;
use crate::model::SessionId;
use crate::model::error::chain;

use super::log::LogEvent;
use super::model::Look;

/// What waits to be taken in. When it is full, the streams wait.
const TOLD_MAX: usize = 64;
const LOOK_PERIOD: Duration = Duration::from_secs(1);
/// A look that takes longer than this is told of: what is on the screen is then not how it is.
const LOOK_PATIENCE: Duration = Duration::from_secs(3);
/// However much happens, nobody looks more often.
const LOOK_GAP: Duration = Duration::from_millis(150);
/// Lists cost the daemon more than a look at what runs.
const LIST_GAP: Duration = Duration::from_millis(400);
/// Sessions are listed again after this time also when nothing was heard of them.
const LIST_PERIOD: Duration = Duration::from_secs(10);
/// Sessions that are listed; the newest ones.
const SESSIONS_MAX: usize = 500;
const QUESTIONS_MAX: usize = 500;
const RECONNECT_PAUSE: Duration = Duration::from_millis(500);
/// Events before the end of a session's log that are shown when it is selected.
const LOG_BEFORE: i64 = 2000;
/// Who goes through the list does not want to see each log on the way.
const LOG_PAUSE: Duration = Duration::from_millis(100);

/// What is told to the one who draws.
#[derive(Debug)]
pub enum Told {
    Look(Box<Look>),
    /// The daemon takes long to answer. It may still do so.
    Silent,
    /// The daemon is gone.
    Lost(String),
    /// So many events, of any session.
    Events(u64),
    Log {
        session: SessionId,
        events: Vec<LogEvent>,
    },
}

/// Rung when there is something new to see.
#[derive(Debug, Default)]
struct Bell {
    rung: Notify,
    /// Whether it concerns the list, and not only what runs.
    is_list_due: AtomicBool,
}

impl Bell {
    fn ring(&self, is_list_due: bool) {
        self.is_list_due.fetch_or(is_list_due, Ordering::AcqRel);
        self.rung.notify_one();
    }
}

pub struct Feed {
    daemon: Arc<Daemon>,
    told: mpsc::Receiver<Told>,
    teller: mpsc::Sender<Told>,
    bell: Arc<Bell>,
    tasks: JoinSet<()>,
    /// The one session whose log is followed.
    log: JoinSet<()>,
}

impl Feed {
    /// `all`: everybody's sessions, for root.
    pub fn start(daemon: Arc<Daemon>, all: bool) -> Self {
        let (teller, told) = mpsc::channel(TOLD_MAX);
        let bell = Arc::new(Bell::default());
        let mut tasks = JoinSet::new();
        tasks.spawn(look_around(Arc::clone(&daemon), all, Arc::clone(&bell), teller.clone()));
        tasks.spawn(count_events(Arc::clone(&daemon), all, Arc::clone(&bell), teller.clone()));
        Self { daemon, told, teller, bell, tasks, log: JoinSet::new() }
    }

    /// The next thing that is told. Safe to be dropped while it waits.
    pub async fn next(&mut self) -> Told {
        tokio::select! {
            Some(told) = self.told.recv() => told,
            // They have no end but a panic, which is passed on.
            Some(Err(error)) = self.tasks.join_next(), if !self.tasks.is_empty() => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(error) => Told::Lost(error.to_string()),
            },
            else => std::future::pending().await,
        }
    }

    /// Something was changed: it is worth a look.
    pub fn look(&self) {
        self.bell.ring(true);
    }

    /// Follows the log of this session, and of no other.
    pub fn follow(&mut self, session: Option<SessionId>) {
        self.log = JoinSet::new();
        if let Some(session) = session {
            self.log.spawn(follow_log(Arc::clone(&self.daemon), session, self.teller.clone()));
        }
    }
}

async fn look_around(daemon: Arc<Daemon>, all: bool, bell: Arc<Bell>, told: mpsc::Sender<Told>) {
    let mut listed_at = None::<Instant>;
    loop {
        let began = Instant::now();
        let is_rested = listed_at.is_none_or(|at| at.elapsed() >= LIST_GAP);
        let is_asked_for = is_rested && bell.is_list_due.swap(false, Ordering::AcqRel);
        let is_due = is_asked_for || listed_at.is_none_or(|at| at.elapsed() >= LIST_PERIOD);
        let mut looking = std::pin::pin!(look(&daemon, all, is_due));
        // It is waited for nevertheless: one that is only slow is shown, however slow it is.
        let looked = match timeout_at(began + LOOK_PATIENCE, &mut looking).await {
            Ok(looked) => looked,
            Err(_) if told.send(Told::Silent).await.is_err() => return,
            Err(_) => looking.await,
        };
        let tells = match looked {
            Ok(look) => {
                listed_at = if is_due { Some(began) } else { listed_at };
                Told::Look(Box::new(look))
            }
            Err(error) => {
                listed_at = None;
                Told::Lost(one_line(&chain(&error)))
            }
        };
        if told.send(tells).await.is_err() {
            return;
        }
        sleep_until(Instant::now() + LOOK_GAP).await;
        // Whichever it is: somebody has rung, or it is time.
        let is_list_due = bell.is_list_due.load(Ordering::Acquire);
        let patience = if is_list_due { LIST_GAP } else { LOOK_PERIOD };
        let _ = timeout_at(began + patience, bell.rung.notified()).await;
    }
}

async fn look(daemon: &Daemon, all: bool, with_list: bool) -> Result<Look, ClientError> {
    // Questions and sessions first: what runs is then the newest word.
    let rest = if with_list {
        let info = daemon.get(&format!("/v1/info?all={all}")).await?;
        let sessions = daemon.get(&format!("/v1/sessions?all={all}&limit={SESSIONS_MAX}")).await?;
        let questions = daemon.get(&format!("/v1/permissions?all={all}&limit={QUESTIONS_MAX}")).await?;
        Some((info, sessions, questions))
    } else {
        None
    };
    Ok(Look { processes: daemon.get(&format!("/v1/processes?all={all}")).await?, rest })
}

async fn count_events(daemon: Arc<Daemon>, all: bool, bell: Arc<Bell>, told: mpsc::Sender<Told>) {
    let path = format!("/v1/events?all={all}");
    loop {
        if let Ok(mut stream) = Frames::open(&daemon, &path, None).await {
            // What happened while nobody listened is not known.
            bell.ring(true);
            while let Ok(frames) = stream.next().await {
                if frames.iter().any(|frame| is_seen(&frame.event)) {
                    bell.ring(frames.iter().any(|frame| changes_the_list(&frame.event)));
                }
                if told.send(Told::Events(frames.len() as u64)).await.is_err() {
                    return;
                }
            }
        }
        sleep_until(Instant::now() + RECONNECT_PAUSE).await;
    }
}

/// Whether what runs looks different after it. The rest is the log's.
fn is_seen(event: &str) -> bool {
    let seen = ["session.", "process.", "turn.", "permission.", "tool.started", "tool.completed"];
    seen.iter().any(|kind| event.starts_with(kind))
}

/// Whether it is more than the next tool.
fn changes_the_list(event: &str) -> bool {
    is_seen(event) && !event.starts_with("tool.")
}

async fn follow_log(daemon: Arc<Daemon>, session: SessionId, told: mpsc::Sender<Told>) {
    sleep_until(Instant::now() + LOG_PAUSE).await;
    let path = format!("/v1/sessions/{session}/events");
    let mut cursor = None;
    loop {
        let followed = follow(&daemon, session, &path, &mut cursor, &told).await;
        // One that was deleted has no log any more.
        if followed.is_err_and(|error| error.is_api("session_not_found")) || told.is_closed() {
            return;
        }
        sleep_until(Instant::now() + RECONNECT_PAUSE).await;
    }
}

async fn follow(
    daemon: &Daemon,
    session: SessionId,
    path: &str,
    cursor: &mut Option<i64>,
    told: &mpsc::Sender<Told>,
) -> Result<(), ClientError> {
    /// How far the log reaches; the rest of the session is not needed.
    #[derive(Deserialize)]
    struct Reach {
        cursor: i64,
    }
    let after = match *cursor {
        Some(cursor) => cursor,
        None => (daemon.get::<Reach>(&format!("/v1/sessions/{session}")).await?.cursor - LOG_BEFORE).max(0),
    };
    let mut stream = Frames::open(daemon, path, Some(after)).await?;
    loop {
        let frames = stream.next().await?;
        *cursor = frames.iter().rev().find_map(|frame| frame.id).or(*cursor).or(Some(after));
        // What this client does not understand is not shown.
        let events = frames.iter().filter_map(|frame| serde_json::from_str(&frame.data).ok()).collect();
        if told.send(Told::Log { session, events }).await.is_err() {
            return Ok(());
        }
    }
}

/// A stream of events, piece by piece.
struct Frames {
    body: StreamBody,
    parser: SseParser,
    path: String,
}

impl Frames {
    async fn open(daemon: &Daemon, path: &str, after: Option<i64>) -> Result<Self, ClientError> {
        let body = daemon.stream(path, after).await?;
        Ok(Self { body, parser: SseParser::default(), path: path.to_owned() })
    }

    /// The next frames, of which there may be none. The end of the stream is an error: it has none.
    async fn next(&mut self) -> Result<Vec<Frame>, ClientError> {
        let broken = |source: Box<dyn std::error::Error + Send + Sync>| ClientError::Broken {
            operation: format!("GET {}", self.path),
            source,
        };
        match self.body.piece().await {
            Ok(Some(bytes)) => self.parser.push(&bytes).map_err(|error| broken(error.into())),
            Ok(None) => Err(broken("the daemon closed the event stream".into())),
            Err(error) => Err(broken(error.into())),
        }
    }
}
