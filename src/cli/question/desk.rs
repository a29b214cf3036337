//! What a person has in front of them while a stream is followed: what the agent does, and the one question that is asked.
//!
//! A question is looked up before it is asked, because the log also has those that were answered long ago, and those that
//! the policy answers at once. While one is asked, the rest of the stream is held back, so that the question does not
//! scroll away; whoever else answers it first makes it go. Where nobody can be asked, a line says that the agent waits.

use std::collections::VecDeque;
use std::io;
use std::time::Instant;

use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use tokio::time::sleep_until;

use crate::control::wire::permissions::{AnswerPermission, Permission};
use crate::model::permission::question::PermissionStatus;

use super::super::connection::Daemon;
use super::super::error::ClientError;
use super::super::output::Output;
use super::super::render::Wait;
use super::super::stream::{Event, Notice};
use super::super::terminal::{self, Keyboard, Keys, Size, TerminalSignal, TerminalSignals, USUAL};
use super::super::view::View;
use super::dialog::{Dialog, Move};
use super::waits;

/// A daemon has far fewer open at once; what is beyond has been answered, and its answer is on its way.
const WAITING_MAX: usize = 1024;
/// After so much a person sees what goes on, and is asked again.
const HELD_BYTES_MAX: usize = 4 << 20;

pub struct Desk<'a> {
    daemon: &'a Daemon,
    output: Output,
    view: View,
    asking: Asking,
    /// Questions that came, in order, by their ids.
    waiting: VecDeque<String>,
    /// The question in front of the person.
    asked: Option<Dialog>,
    /// The request to the daemon that is under way. There is one at a time.
    request: Option<LocalBoxFuture<'a, Reply>>,
    /// What came while a question is asked.
    held: Vec<Event>,
    held_bytes: usize,
}

/// How questions reach the person.
enum Asking {
    /// Whoever looks at a log that is over is not asked.
    Never,
    /// By a line on stderr.
    Told,
    Here(Keyboard, TerminalSignals),
}

pub enum Reply {
    Looked { id: String, outcome: Result<Box<Permission>, ClientError> },
    Answered { always: bool, outcome: Result<Box<Permission>, ClientError> },
}

/// What the desk waits for.
pub enum Input {
    Reply(Reply),
    /// Nothing at Ctrl-D.
    Line(io::Result<Option<String>>),
    Key(char),
    Signal(TerminalSignal),
    /// It is time for the next picture.
    Frame,
}

impl<'a> Desk<'a> {
    pub fn new(daemon: &'a Daemon, output: Output, view: View, follow: bool) -> Self {
        let keys = match (follow && !output.json, view.takes_keys()) {
            (false, _) => None,
            (true, false) => Keys::of_person(io::stderr()),
            // The picture may be on stdout alone. Then nothing is asked, but what is typed must not be echoed into it.
            (true, true) => Keys::of_person(io::stderr()).or_else(|| Keys::of_person(io::stdout())),
        };
        let asking = match (follow, keys) {
            (false, _) => Asking::Never,
            (true, None) => Asking::Told,
            (true, Some(keys)) => {
                TerminalSignals::listen().map_or(Asking::Told, |signals| Asking::Here(Keyboard::new(keys), signals))
            }
        };
        Self {
            daemon,
            output,
            view,
            asking,
            waiting: VecDeque::new(),
            asked: None,
            request: None,
            held: Vec::new(),
            held_bytes: 0,
        }
    }

    /// An event of the stream.
    pub fn event(&mut self, event: &Event) -> Result<(), ClientError> {
        let id = event.data["permissionId"].as_str().unwrap_or_default();
        match event.kind.as_str() {
            "permission.requested" if !matches!(self.asking, Asking::Never) => {
                if self.waiting.len() >= WAITING_MAX {
                    self.waiting.pop_front();
                }
                self.waiting.push_back(id.to_owned());
            }
            "permission.resolved" => {
                self.waiting.retain(|waiting| waiting != id);
                if self.asked.as_ref().is_some_and(|asked| asked.permission().id.to_string() == id) {
                    self.withdraw()?;
                }
            }
            _ => {}
        }
        if self.asked.is_none() {
            return self.view.event(event);
        }
        self.held_bytes += event.json.len();
        self.held.push(event.clone());
        if self.held_bytes >= HELD_BYTES_MAX && self.request.is_none() {
            self.output.show(self.output.note_style.line_erased());
            self.release()?;
            self.ask()?;
        }
        Ok(())
    }

    /// Ends whatever is open on the screen. A question that was asked is left to others.
    pub fn close(&mut self) -> Result<(), ClientError> {
        self.interrupt()?;
        if let Asking::Here(keyboard, _) = &mut self.asking {
            keyboard.rest();
        }
        self.view.close()
    }

    /// Makes room for a word to the person. A question that was asked is left to others.
    pub fn interrupt(&mut self) -> Result<(), ClientError> {
        if self.asked.take().is_some() {
            self.output.show("\n");
        }
        self.release()?;
        self.view.interrupt()
    }

    /// An event beside the turn that is followed.
    pub fn beside(&mut self, event: &Event) -> Result<(), ClientError> {
        self.view.beside(event)
    }

    /// What is waited for from now on; whether a person can see that.
    pub fn wait_for(&mut self, wait: Wait) -> bool {
        self.view.wait_for(wait)
    }

    /// What comes next from the person or from the daemon; for ever nothing when neither owes anything. Safe to be dropped
    /// while it waits.
    ///
    /// `is_caught_up`: whether all that came of the stream was given to the desk; the answer to a question may be in it.
    pub async fn next(&mut self, is_caught_up: bool) -> Input {
        let is_free = self.request.is_none() && self.asked.is_none() && is_caught_up;
        if let Some(id) = self.waiting.front().filter(|_| is_free) {
            self.request = Some(look(self.daemon, id.clone()).boxed_local());
        }
        let is_asked = self.asked.is_some();
        // A question is not painted over.
        let frame = self.view.next_frame(is_caught_up).filter(|_| !is_asked);
        let takes_keys = self.view.takes_keys() && !is_asked;
        let takes_lines = is_asked && self.request.is_none();
        tokio::select! {
            biased;
            reply = reply(&mut self.request) => {
                self.request = None;
                Input::Reply(reply)
            }
            input = listen(&mut self.asking, takes_lines, takes_keys) => input,
            () = at(frame) => Input::Frame,
        }
    }

    pub fn take(&mut self, input: Input) -> Result<(), ClientError> {
        match input {
            Input::Reply(Reply::Looked { id, outcome }) => self.looked(&id, outcome),
            Input::Reply(Reply::Answered { always, outcome }) => self.answered(always, outcome),
            Input::Line(Ok(Some(line))) => self.line(&line),
            Input::Line(Ok(None)) => {
                self.output.show("\n");
                self.later()
            }
            // The terminal is gone.
            Input::Line(Err(_)) => {
                self.asking = Asking::Told;
                self.later()
            }
            Input::Key(key) => {
                self.view.key(key);
                Ok(())
            }
            Input::Signal(signal) => self.signal(signal),
            Input::Frame => self.view.paint(),
        }
    }

    /// The terminal wants something: whoever leaves it, for a while or for good, leaves it as it was.
    fn signal(&mut self, signal: TerminalSignal) -> Result<(), ClientError> {
        if signal == TerminalSignal::Resized {
            self.view.disturbed();
            return Ok(());
        }
        if signal != TerminalSignal::Continued {
            if self.asked.is_some() {
                self.output.show("\n");
            }
            self.view.interrupt()?;
            if let Asking::Here(keyboard, _) = &mut self.asking {
                keyboard.rest();
            }
        }
        match signal {
            TerminalSignal::Stopped => terminal::stop(),
            TerminalSignal::Ended(signal) => terminal::end(signal),
            TerminalSignal::Continued if self.asked.is_some() => return self.ask(),
            TerminalSignal::Continued | TerminalSignal::Resized => {}
        }
        self.view.disturbed();
        Ok(())
    }

    fn looked(&mut self, id: &str, outcome: Result<Box<Permission>, ClientError>) -> Result<(), ClientError> {
        if self.waiting.front().is_none_or(|front| front != id) {
            // It was answered meanwhile.
            return Ok(());
        }
        self.waiting.pop_front();
        match outcome {
            Ok(permission) if permission.status == PermissionStatus::Open => self.begin(*permission),
            Ok(_) => Ok(()),
            Err(_) => self.note("the agent waits for an answer; `acpd permissions` shows its request"),
        }
    }

    fn begin(&mut self, permission: Permission) -> Result<(), ClientError> {
        match &mut self.asking {
            Asking::Here(keyboard, _) if self.output.stderr_is_terminal && keyboard.is_ours() => {
                keyboard.forget();
                self.asked = Some(Dialog::new(permission, self.output.note_style));
                self.ask()
            }
            Asking::Here(..) | Asking::Told | Asking::Never => self.note(&waits(&permission)),
        }
    }

    fn line(&mut self, line: &str) -> Result<(), ClientError> {
        let Some(dialog) = &mut self.asked else { return Ok(()) };
        match dialog.line(line) {
            Move::Ask(text) => self.ask_again(&text),
            Move::ShowAll => {
                let whole = dialog.whole(size());
                self.ask_again(&whole)
            }
            Move::Later => self.later(),
            Move::Answer(answer) => {
                let id = dialog.permission().id.to_string();
                self.request = Some(answer_with(self.daemon, id, answer).boxed_local());
                Ok(())
            }
        }
    }

    fn answered(&mut self, always: bool, outcome: Result<Box<Permission>, ClientError>) -> Result<(), ClientError> {
        match outcome {
            Ok(permission) => {
                self.asked = None;
                self.release()?;
                let holds = permission.resolution.is_some_and(|resolution| resolution.always);
                if always && !holds {
                    self.note(super::APPLIES_ONCE)?;
                }
                Ok(())
            }
            // The stream tells who was first.
            Err(error) if error.is_api("permission_answered") => {
                self.asked = None;
                self.release()
            }
            Err(error) => {
                self.output.error(&error);
                self.ask()
            }
        }
    }

    /// The person decides later, or another does.
    fn later(&mut self) -> Result<(), ClientError> {
        let Some(dialog) = self.asked.take() else { return Ok(()) };
        self.release()?;
        self.note(&waits(dialog.permission()))
    }

    /// Somebody else was first, or there is nobody any more who wants to know.
    fn withdraw(&mut self) -> Result<(), ClientError> {
        self.asked = None;
        if self.request.is_none() {
            // An answer that is under way has ended its line already.
            self.output.show(self.output.note_style.line_erased());
            if let Asking::Here(keyboard, _) = &mut self.asking {
                keyboard.forget();
            }
        }
        self.release()
    }

    /// Shows the question, all of it that fits the terminal.
    fn ask(&mut self) -> Result<(), ClientError> {
        self.view.interrupt()?;
        if let Some(dialog) = &self.asked {
            self.output.show(&dialog.opening(size()));
        }
        Ok(())
    }

    fn ask_again(&mut self, said: &str) -> Result<(), ClientError> {
        self.view.interrupt()?;
        if let Some(dialog) = &self.asked {
            self.output.show(&dialog.again(said, size()));
        }
        Ok(())
    }

    fn release(&mut self) -> Result<(), ClientError> {
        self.held_bytes = 0;
        let held = std::mem::take(&mut self.held);
        held.iter().try_for_each(|event| self.view.event(event))
    }

    /// The stream does not flow, or flows again.
    pub fn notice(&mut self, notice: Notice) -> Result<(), ClientError> {
        self.view.cut_off(matches!(notice, Notice::Lost | Notice::Killed));
        notice.text().map_or(Ok(()), |text| self.note(text))
    }

    /// A word to the person, in the middle of it. A question that stands is asked anew below it, and what was typed so
    /// far, which nobody sees any more, is forgotten; one that was answered has ended its line already.
    pub fn note(&mut self, text: &str) -> Result<(), ClientError> {
        self.view.interrupt()?;
        let stands = self.asked.is_some() && self.request.is_none();
        if stands {
            self.output.show("\n");
        }
        self.output.note(text);
        if !stands {
            return Ok(());
        }
        if let Asking::Here(keyboard, _) = &mut self.asking {
            keyboard.forget();
        }
        self.ask()
    }
}

/// Of the terminal that questions are asked on.
fn size() -> Size {
    Size::of(io::stderr()).unwrap_or(USUAL)
}

async fn reply(request: &mut Option<LocalBoxFuture<'_, Reply>>) -> Reply {
    match request {
        Some(request) => request.await,
        None => std::future::pending().await,
    }
}

async fn at(frame: Option<Instant>) {
    match frame {
        Some(frame) => sleep_until(frame.into()).await,
        None => std::future::pending().await,
    }
}

/// What comes from the terminal.
async fn listen(asking: &mut Asking, for_lines: bool, for_keys: bool) -> Input {
    let Asking::Here(keyboard, signals) = asking else { return std::future::pending().await };
    let typed = async {
        match (for_lines, for_keys) {
            (true, _) => Input::Line(keyboard.line().await),
            (false, true) => Input::Key(keyboard.key().await),
            (false, false) => std::future::pending().await,
        }
    };
    tokio::select! {
        signal = signals.next() => Input::Signal(signal),
        input = typed => input,
    }
}

async fn look(daemon: &Daemon, id: String) -> Reply {
    let outcome = daemon.get(&format!("/v1/permissions/{id}")).await;
    Reply::Looked { id, outcome }
}

async fn answer_with(daemon: &Daemon, id: String, answer: AnswerPermission) -> Reply {
    let outcome = daemon.post(&format!("/v1/permissions/{id}"), &answer).await;
    Reply::Answered { always: answer.always.unwrap_or(false), outcome }
}
