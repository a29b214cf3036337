//! Waits that people can see: an agent that does not begin a conversation, and one that says nothing in a turn. Neither is an
//! error yet. Each is told once, with what it may be about.

use std::time::Duration;

use tokio::time::Instant;

use super::actor::SessionActor;
use super::handshake::{Handshake, Step};
use super::servers::suspicion;
use super::turns::Stage;
use crate::model::{EventBody, Timestamp};
use crate::store::Op;

impl SessionActor {
    /// When people are told that this step takes long. Only those of a conversation: for them MCP servers are started.
    pub(super) fn notice_of(&self, step: Step) -> Option<Instant> {
        let notice = self.shared.config().processes.session_notice?;
        matches!(step, Step::Resume | Step::Load | Step::New).then(|| Instant::now() + notice)
    }

    /// When there is something to tell next.
    pub(super) fn next_notice(&self) -> Option<Instant> {
        let handshake = self.link.handshake().and_then(|handshake| handshake.notice_at);
        [handshake, self.silence_notice()].into_iter().flatten().min()
    }

    /// When a silence is told of; not while it is acpd that has to answer.
    fn silence_notice(&self) -> Option<Instant> {
        let running = self.running.as_ref()?;
        let is_silent = running.stage == Stage::Prompted && !running.is_ending() && !running.is_silence_told;
        let notice = self.shared.config().sessions.silence_notice.filter(|_| is_silent && !self.owes_answer())?;
        Some(running.heard_at + notice)
    }

    pub(super) fn tell_waits(&mut self, now: Instant) {
        if let Some(handshake) = self.link.handshake_mut()
            && handshake.notice_at.take_if(|notice_at| *notice_at <= now).is_some()
        {
            let body = process_waiting(handshake, now.duration_since(handshake.asked_at));
            tracing::info!(phase = handshake.step.name(), "the agent has not answered the handshake yet");
            self.record(Op::Event { turn: None, body });
        }
        if self.silence_notice().is_some_and(|notice_at| notice_at <= now) {
            self.tell_silence(now);
        }
    }

    fn tell_silence(&mut self, now: Instant) {
        let timeout = self.shared.config().sessions.turn_silence_timeout;
        let Some(running) = &mut self.running else { return };
        running.is_silence_told = true;
        let (turn, silence) = (running.turn, now.duration_since(running.heard_at));
        let until = timeout.and_then(|timeout| Timestamp::now().after(timeout.saturating_sub(silence)));
        let patience = match until {
            Some(until) => format!("acpd waits until {until} (sessions.turn_silence_timeout)"),
            None => "acpd waits without a time limit (sessions.turn_silence_timeout)".to_owned(),
        };
        let message = format!(
            "the agent has sent nothing for {}: it may be thinking, running a tool, or retrying a busy service \
                (agents can do that silently for minutes); {patience}",
            in_words(silence)
        );
        tracing::info!(%turn, seconds = silence.as_secs(), "the agent is silent");
        self.record(Op::Event {
            turn: Some(turn),
            body: EventBody::TurnWaiting { seconds: silence.as_secs(), message },
        });
    }

    /// What an agent that does not begin a conversation may be waiting for, as the end of a sentence.
    pub(super) fn suspicion(&self) -> String {
        match self.link.handshake() {
            Some(handshake) if matches!(handshake.step, Step::Resume | Step::Load | Step::New) => {
                format!("; {}", suspicion(&handshake.servers))
            }
            _ => String::new(),
        }
    }
}

fn process_waiting(handshake: &Handshake, waited: Duration) -> EventBody {
    let phase = handshake.step.name();
    let (seconds, words) = (waited.as_secs(), in_words(waited));
    let message = format!("the agent has not answered {phase} for {words}: {}", suspicion(&handshake.servers));
    let servers = handshake.servers.iter().map(|server| server.name.clone()).collect();
    EventBody::ProcessWaiting { phase, seconds, servers, message }
}

fn in_words(duration: Duration) -> String {
    match duration.as_secs() {
        0 => format!("{} ms", duration.as_millis()),
        seconds => format!("{seconds} s"),
    }
}
