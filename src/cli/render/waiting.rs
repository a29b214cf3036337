//! What is being waited for, with a spinner and the time that it takes; shown when nothing has come for a moment.

use std::time::{Duration, Instant};

use crate::model::Timestamp;

use super::glyphs::Glyphs;
use super::ink::{Colour, Ink, Line};

/// Less silence than this is none.
const PATIENCE: Duration = Duration::from_millis(300);
/// Words that come in gusts need no spinner between them.
const PATIENCE_WITH_WORDS: Duration = Duration::from_secs(1);

/// What there is to wait for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wait {
    Nothing,
    Queued(usize),
    /// The agent's process, by the agent's name where that is known.
    Starting(String),
    Agent,
    /// The same, for so long that it was told.
    Silence,
    Thoughts,
    Answer,
    Cancellation,
}

pub struct Waiting {
    glyphs: &'static Glyphs,
    wait: Wait,
    since: Timestamp,
    /// When something came last.
    quiet_since: Instant,
    /// Since when the daemon cannot be heard. Until it is back, it is what is waited for.
    cut_off_since: Option<Timestamp>,
}

impl Waiting {
    pub fn new(glyphs: &'static Glyphs) -> Self {
        Self { glyphs, wait: Wait::Nothing, since: Timestamp::now(), quiet_since: Instant::now(), cut_off_since: None }
    }

    pub fn for_what(&mut self, wait: Wait, at: Timestamp) {
        self.wait = wait;
        self.since = at;
    }

    pub fn what(&self) -> &Wait {
        &self.wait
    }

    /// Whether the daemon cannot be heard now.
    pub fn cut_off(&mut self, is_lost: bool) {
        self.cut_off_since = is_lost.then(Timestamp::now);
    }

    pub fn is_cut_off(&self) -> bool {
        self.cut_off_since.is_some()
    }

    /// Something came.
    pub fn heard(&mut self, at: Timestamp) {
        self.cut_off_since = None;
        self.quiet_since = Instant::now();
        if matches!(self.wait, Wait::Agent | Wait::Silence) {
            self.wait = Wait::Agent;
            self.since = at;
        }
    }

    /// The agent has said nothing for long. The time counts on from when it did.
    pub fn is_silent(&mut self) {
        if self.wait == Wait::Agent {
            self.wait = Wait::Silence;
        }
    }

    /// When it is time to say what is being waited for, if ever.
    pub fn due(&self, has_words: bool) -> Option<Instant> {
        let patience = if has_words { PATIENCE_WITH_WORDS } else { PATIENCE };
        (self.wait != Wait::Nothing || self.is_cut_off()).then(|| self.quiet_since + patience)
    }

    pub fn line(&self, now: Timestamp) -> Option<Line> {
        let what = match &self.wait {
            _ if self.is_cut_off() => "waiting for the daemon".to_owned(),
            Wait::Nothing => return None,
            Wait::Queued(1) => "queued behind one turn".to_owned(),
            Wait::Queued(turns) => format!("queued behind {turns} turns"),
            Wait::Starting(agent) if agent.is_empty() => "starting the agent".to_owned(),
            Wait::Starting(agent) => format!("starting {agent}"),
            Wait::Agent => "waiting for the agent".to_owned(),
            Wait::Silence => "the agent is silent, perhaps retrying".to_owned(),
            Wait::Thoughts => "thinking".to_owned(),
            Wait::Answer => "the agent waits for an answer".to_owned(),
            Wait::Cancellation => "cancelling".to_owned(),
        };
        let spinner = Line::new(self.glyphs.spinner(now.as_millis()), Ink::PLAIN.colour(Colour::Cyan));
        Some(spinner.and(
            &format!(" {what}{} {}", self.glyphs.ellipsis, elapsed(self.cut_off_since.unwrap_or(self.since), now)),
            Ink::DIM,
        ))
    }
}

/// How long it takes so far, in whole seconds.
pub fn elapsed(since: Timestamp, now: Timestamp) -> String {
    let seconds = now.since(since).as_secs();
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m {}s", seconds / 60, seconds % 60),
        _ => format!("{}h {}m", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_that_of_what_is_waited_for() {
        let at = Timestamp::from_millis;
        let mut waiting = Waiting::new(Glyphs::unicode());
        assert!(waiting.line(at(0)).is_none() && waiting.due(false).is_none());
        waiting.for_what(Wait::Starting("gemini".to_owned()), at(1000));
        waiting.heard(at(2000));
        let text = |waiting: &Waiting, millis| waiting.line(at(millis)).unwrap().text();
        assert_eq!(text(&waiting, 4000), "⠋ starting gemini… 3s");
        waiting.for_what(Wait::Agent, at(4000));
        waiting.heard(at(5000));
        assert_eq!(text(&waiting, 77_000), "⠋ waiting for the agent… 1m 12s");
        assert!(waiting.due(true) > waiting.due(false));
        waiting.cut_off(true);
        assert!(text(&waiting, 77_000).contains("waiting for the daemon"));
        waiting.cut_off(false);
        assert!(text(&waiting, 77_000).contains("waiting for the agent"));
        waiting.is_silent();
        assert_eq!(text(&waiting, 77_000), "⠋ the agent is silent, perhaps retrying… 1m 12s");
        waiting.heard(at(78_000));
        assert_eq!(text(&waiting, 79_000), "⠋ waiting for the agent… 1s");
    }
}
