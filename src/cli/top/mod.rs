//! `acpd top`: everything that runs, on the whole screen.
//!
//! [`model`] is what is shown and what keys do, without a terminal; [`screen`] draws it; [`feed`] brings what the daemon
//! says; [`actions`] has it do something; [`terminal`] takes the terminal and gives it back. Here they are put together.

mod actions;
mod columns;
mod feed;
mod log;
mod model;
mod panes;
mod question;
mod rate;
mod row;
mod screen;
mod terminal;
#[cfg(test)]
mod tests;

use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use futures_util::StreamExt;
use ratatui::crossterm::event::{self, Event, KeyEvent, KeyEventKind};
use serde_json::value::RawValue;
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};
use signal_hook::low_level::emulate_default_handler;
use signal_hook_tokio::Signals;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::model::{SessionId, Timestamp};

use super::connection::Daemon;
use super::context::Context;
use super::error::ClientError;
use super::exit::Exit;
use super::style::is_dumb;

use self::actions::Done;
use self::feed::{Feed, Told};
use self::model::{Action, Deed, Lost, Model};
use self::screen::Look;
use self::terminal::Terminal;

/// Keys that wait. Nobody types faster.
const KEYS_MAX: usize = 64;
/// However much happens, nobody sees more pictures than these.
const FRAME_PERIOD: Duration = Duration::from_millis(40);
/// Ages and times go on also when nothing else does.
const CLOCK_PERIOD: Duration = Duration::from_secs(1);
/// What is taken in between two pictures at the most.
const BATCH_MAX: usize = 256;
/// Only in builds for tests: has the key `!` panic.
const PANIC_VARIABLE: &str = "ACPD_TEST_TOP_PANIC";

/// Watch sessions and processes live on the full screen
///
/// Shows what sessions do and use, and the log of one session. Keys answer permission requests, cancel, resume and archive;
/// `?` lists them. With --json, prints the current state once.
#[derive(Args, Debug)]
pub struct Top {
    /// Show the sessions of all users (root only)
    #[arg(long)]
    pub all: bool,
}

impl Top {
    pub async fn execute(self, context: &Context) -> Result<Exit, ClientError> {
        if context.output.json {
            let daemon = context.daemon().await?;
            let answer: Box<RawValue> = daemon.get(&format!("/v1/processes?all={}", self.all)).await?;
            context.output.print_json(&answer)?;
            return Ok(Exit::Ok);
        }
        if !io::stdin().is_terminal() || !io::stdout().is_terminal() || is_dumb() {
            return Err(ClientError::local(
                "`acpd top` needs a terminal that can move the cursor",
                "`acpd ls --watch` updates a list of sessions; `acpd top --json` prints the current state once",
            ));
        }
        let daemon = Arc::new(context.daemon().await?);
        let terminal = Terminal::take().map_err(|source| ClientError::io("use the terminal", source))?;
        Session::new(daemon, self.all, terminal)?.run().await
    }
}

/// One person in front of one terminal.
struct Session {
    daemon: Arc<Daemon>,
    terminal: Terminal,
    look: Look,
    model: Model,
    feed: Feed,
    followed: Option<SessionId>,
    keys: mpsc::Receiver<io::Result<Event>>,
    signals: Signals,
    /// What is under way with the daemon: one thing at a time of those that keys ask for.
    deeds: JoinSet<Done>,
    may_panic: bool,
}

/// What happens next.
enum Input {
    Terminal(io::Result<Event>),
    Told(Told),
    Done(Done),
    Signal(i32),
    Clock,
}

impl Session {
    fn new(daemon: Arc<Daemon>, all: bool, terminal: Terminal) -> Result<Self, ClientError> {
        let signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT]);
        let signals = signals.map_err(|source| ClientError::io("listen to signals", source))?;
        let (sender, keys) = mpsc::channel(KEYS_MAX);
        // It ends with the process, or when nobody takes what it reads.
        std::thread::spawn(move || {
            loop {
                let read = event::read();
                let has_failed = read.is_err();
                if sender.blocking_send(read).is_err() || has_failed {
                    return;
                }
            }
        });
        Ok(Self {
            feed: Feed::start(Arc::clone(&daemon), all),
            daemon,
            terminal,
            look: Look { has_colours: has_colours(), is_utf8: is_utf8() },
            model: Model::new(),
            followed: None,
            keys,
            signals,
            deeds: JoinSet::new(),
            may_panic: cfg!(debug_assertions) && std::env::var_os(PANIC_VARIABLE).is_some(),
        })
    }

    async fn run(mut self) -> Result<Exit, ClientError> {
        let broken = |source| ClientError::io("use the terminal", source);
        loop {
            self.draw().map_err(broken)?;
            let next_frame = Instant::now() + FRAME_PERIOD;
            // Nothing is drawn when nothing happens; and when something does, what else comes by then is taken in first.
            let mut input = self.next(Instant::now() + CLOCK_PERIOD).await;
            for _ in 0..BATCH_MAX {
                let is_over = matches!(input, Input::Clock);
                if let Some(exit) = self.take(input).map_err(broken)? {
                    return Ok(exit);
                }
                if is_over || next_frame <= Instant::now() {
                    break;
                }
                input = self.next(next_frame).await;
            }
        }
    }

    /// The next thing that happens, or that nothing did until then.
    async fn next(&mut self, deadline: Instant) -> Input {
        tokio::select! {
            biased;
            Some(signal) = self.signals.next() => Input::Signal(signal),
            Some(event) = self.keys.recv() => Input::Terminal(event),
            Some(done) = self.deeds.join_next(), if !self.deeds.is_empty() => match done {
                Ok(done) => Input::Done(done),
                Err(error) => match error.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    Err(error) => Input::Done(Done::Failed { message: error.to_string(), hint: String::new() }),
                },
            },
            told = self.feed.next() => Input::Told(told),
            () = sleep_until(deadline) => Input::Clock,
        }
    }

    /// Takes something in; with what the program ends, when it does.
    fn take(&mut self, input: Input) -> io::Result<Option<Exit>> {
        let mut exit = None;
        match input {
            Input::Terminal(event) => {
                if let Event::Key(key) = event?
                    && key.kind != KeyEventKind::Release
                {
                    exit = self.key(key)?;
                }
                // A size that has changed is seen when it is drawn.
            }
            Input::Told(told) => self.told(told),
            Input::Done(done) => self.done(done),
            Input::Signal(SIGINT) => exit = Some(Exit::Left),
            Input::Signal(SIGTSTP) => self.suspend()?,
            // Whoever stopped it without asking has perhaps used the terminal meanwhile.
            Input::Signal(SIGCONT) => {
                self.terminal.leave();
                self.terminal.return_to()?;
            }
            Input::Signal(signal) => {
                // Whoever sent it finds what it expects: a process that ended by it.
                self.terminal.leave();
                emulate_default_handler(signal)?;
            }
            Input::Clock => self.model.rate.advance(second()),
        }
        if self.followed != self.model.selected {
            self.followed = self.model.selected;
            self.feed.follow(self.followed);
        }
        Ok(exit)
    }

    fn key(&mut self, key: KeyEvent) -> io::Result<Option<Exit>> {
        if self.may_panic && key.code == event::KeyCode::Char('!') {
            panic_for_a_test();
        }
        match self.model.key(key) {
            None => {}
            Some(Action::Leave) => return Ok(Some(Exit::Ok)),
            Some(Action::Interrupt) => return Ok(Some(Exit::Left)),
            Some(Action::Suspend) => self.suspend()?,
            Some(Action::Redraw) => self.terminal.redraw()?,
            Some(Action::Do(deed)) => self.perform(deed),
        }
        Ok(None)
    }

    fn perform(&mut self, deed: Deed) {
        let daemon = Arc::clone(&self.daemon);
        self.deeds.spawn(async move { actions::perform(&daemon, deed).await });
    }

    fn told(&mut self, told: Told) {
        match told {
            Told::Look(look) => {
                if let Some(deed) = self.model.take(*look) {
                    self.perform(deed);
                }
            }
            Told::Silent => self.model.lost = Some(Lost::Silent),
            Told::Lost(why) => self.model.lost = Some(Lost::Gone(why)),
            Told::Events(count) => self.model.rate.add(count, second()),
            Told::Log { session, events } => {
                // What is still under way of another one is not wanted any more.
                if Some(session) == self.model.selected {
                    for event in &events {
                        self.model.log.take(event);
                    }
                }
            }
        }
    }

    fn done(&mut self, done: Done) {
        // That one no key has asked for.
        if let Done::Checked { question, answer } = done {
            return self.model.checked(question, answer);
        }
        self.model.doing = None;
        match done {
            Done::Said(text) => self.model.say(text),
            Done::Asked(question) => self.model.ask(*question),
            Done::Failed { message, hint } => self.model.complain(message, hint),
            Done::Checked { .. } => {}
        }
        self.feed.look();
    }

    /// Ctrl-Z: the shell has the terminal until somebody has this go on.
    fn suspend(&mut self) -> io::Result<()> {
        self.terminal.leave();
        emulate_default_handler(SIGTSTP)?;
        self.terminal.return_to()
    }

    fn draw(&mut self) -> io::Result<()> {
        self.model.rate.advance(second());
        let (model, look) = (&mut self.model, self.look);
        self.terminal.draw(|frame| screen::draw(frame, model, look, Timestamp::now()))
    }
}

fn second() -> u64 {
    u64::try_from(Timestamp::now().as_millis() / 1000).unwrap_or(0)
}

fn has_colours() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Whether the locale takes more than ASCII. One that is not set says nothing, and nearly every terminal does.
fn is_utf8() -> bool {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
        .iter()
        .find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()));
    locale.is_none_or(|locale| locale.to_lowercase().replace('-', "").contains("utf8"))
}

#[expect(clippy::panic, reason = "a test wants to see what becomes of the terminal")]
fn panic_for_a_test() {
    panic!("a test asked for this");
}
