//! Gates: how a test knows where a scripted agent is, and lets it go on.
//!
//! The agent connects to `gate.sock` next to its script, writes `NAME PID` and blocks until a line comes back. One task
//! per gate takes the connections, so that several agents may stand at several gates and be asked for in any order.

use std::collections::VecDeque;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::{record, within};

/// What `Passage::open` answers; a script may have other words among its `cases`.
const OPEN: &str = "go";

/// The gate of one agent profile. All processes of that profile come to it.
#[derive(Clone)]
pub struct Gate {
    shared: Arc<Shared>,
    /// Takes the connections for as long as somebody holds the gate.
    _task: Arc<JoinSet<()>>,
}

#[derive(Default)]
struct Shared {
    waiting: Mutex<VecDeque<Passage>>,
    arrived: Notify,
}

/// A socket for agents of every user: without capabilities, root cannot pass over the permissions of another user's socket.
fn listen_to_all(path: &Path) -> UnixListener {
    let listener = UnixListener::bind(path).expect("the socket can be bound");
    std::fs::set_permissions(path, Permissions::from_mode(0o666)).expect("the mode can be set");
    listener
}

impl Gate {
    /// Listens on the socket, before any agent can look for it.
    pub fn listen(path: &Path) -> Self {
        let listener = listen_to_all(path);
        let shared = Arc::new(Shared::default());
        let mut task = JoinSet::new();
        task.spawn(take_connections(listener, Arc::clone(&shared)));
        let directory = path.parent().expect("a socket is in a directory");
        let records = listen_to_all(&directory.join("record.sock"));
        task.spawn(record::hand_out(records, directory.to_owned()));
        Self { shared, _task: Arc::new(task) }
    }

    /// Waits until an agent has reached the gate of that name. Those who come first are given first.
    pub async fn reached(&self, name: &str) -> Passage {
        within(&format!("an agent at the gate {name:?}"), async {
            loop {
                // The notification is asked for before the look, so that an arrival between the two is not missed.
                let mut arrived = std::pin::pin!(self.shared.arrived.notified());
                arrived.as_mut().enable();
                if let Some(passage) = self.take(name) {
                    return passage;
                }
                arrived.await;
            }
        })
        .await
    }

    /// Whether an agent stands at the gate of that name at this moment.
    pub fn is_reached(&self, name: &str) -> bool {
        let mut waiting = self.shared.waiting.lock().expect("nobody panics with the lock");
        waiting.retain(Passage::is_alive);
        waiting.iter().any(|passage| passage.name == name)
    }

    /// The first agent that still waits at the gate; those that were killed there are forgotten.
    fn take(&self, name: &str) -> Option<Passage> {
        let mut waiting = self.shared.waiting.lock().expect("nobody panics with the lock");
        waiting.retain(Passage::is_alive);
        let index = waiting.iter().position(|passage| passage.name == name)?;
        waiting.remove(index)
    }
}

async fn take_connections(listener: UnixListener, shared: Arc<Shared>) {
    loop {
        let (stream, _) = listener.accept().await.expect("the gate takes connections");
        // The agent writes at once. One that is killed in between leaves no passage.
        if let Some(passage) = Passage::read(stream).await {
            shared.waiting.lock().expect("nobody panics with the lock").push_back(passage);
            shared.arrived.notify_waiters();
        }
    }
}

/// An agent that stands at a gate. Dropping it without opening ends the agent with an error.
#[derive(Debug)]
pub struct Passage {
    pub pid: u32,
    name: String,
    stream: BufReader<UnixStream>,
}

impl Passage {
    async fn read(stream: UnixStream) -> Option<Self> {
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        stream.read_line(&mut line).await.ok()?;
        let (name, process_id) = line.trim_end().rsplit_once(' ')?;
        // The kernel's word goes before the agent's, which is another number when it runs in its own pid namespace.
        let credentials = stream.get_ref().peer_cred().ok()?;
        let pid = credentials.pid().map(i32::cast_unsigned).or_else(|| process_id.parse().ok())?;
        Some(Self { pid, name: name.to_owned(), stream })
    }

    /// An agent that waits sends nothing more, so anything to read can only be its end.
    fn is_alive(&self) -> bool {
        let read = self.stream.get_ref().try_read(&mut [0]);
        read.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
    }

    /// Lets the agent go on.
    pub async fn open(self) {
        self.say(OPEN).await;
    }

    /// Lets the agent go on, if it is still there: somebody else may be about to kill it.
    pub async fn open_if_alive(mut self) {
        // An agent that is gone needs no gate.
        let _ = self.answer(OPEN).await;
    }

    /// Lets the agent go on with the steps that its script has for this word.
    pub async fn say(mut self, word: &str) {
        let written = self.answer(word).await;
        written.unwrap_or_else(|error| panic!("agent {} has left the gate {:?}: {error}", self.pid, self.name));
    }

    async fn answer(&mut self, word: &str) -> std::io::Result<()> {
        self.stream.get_mut().write_all(format!("{word}\n").as_bytes()).await
    }
}
