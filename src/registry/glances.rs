//! What all sessions with a process do now. The actors are asked; they answer between two inputs, and keep nothing for it.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::Registry;
use crate::model::{ProcessState, SessionId, Sight};
use crate::session::{Glance, Live, Request};

/// How long all of them together have for their answers. An actor that takes longer is listed without.
const PATIENCE: Duration = Duration::from_millis(500);

impl Registry {
    /// The sessions in sight that have a process, by their age, and what each says that it does.
    pub async fn glances(&self, sight: Sight) -> Vec<(SessionId, Live, Option<Glance>)> {
        let mut asked: Vec<_> = {
            let actors = self.lock();
            let in_sight = actors.iter().filter(|(_, handle)| sight.has(handle.owner()));
            let with_process = in_sight
                .map(|(session, handle)| (*session, handle.live(), handle))
                .filter(|(_, live, _)| live.process_state != ProcessState::Stopped);
            let ask = with_process.map(|(session, live, handle)| {
                let (reply, answer) = oneshot::channel();
                // One whose mailbox is full has better things to do.
                (session, live, handle.send(Request::Glance { reply }).is_ok().then_some(answer))
            });
            ask.collect()
        };
        asked.sort_unstable_by_key(|(session, _, _)| *session);
        let deadline = Instant::now() + PATIENCE;
        let mut glances = Vec::with_capacity(asked.len());
        for (session, live, answer) in asked {
            let glance = match answer {
                Some(answer) => tokio::time::timeout_at(deadline, answer).await.ok().and_then(Result::ok),
                None => None,
            };
            glances.push((session, live, glance));
        }
        glances
    }
}
