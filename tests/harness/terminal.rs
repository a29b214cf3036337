//! A terminal with `acpd` in it: a real pseudo-terminal, which is its controlling one, and an emulator that knows what a
//! person would see on the screen by now.
//!
//! ```ignore
//! let mut terminal = daemon.terminal(80, 24, &["run", "--agent", "echo", "hello"]);
//! terminal.shows("allow once").await;
//! terminal.types("y\n");
//! let end = terminal.ended().await;
//! insta::assert_snapshot!(end.screen);
//! ```

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::num::NonZeroU16;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::pty::{OpenptFlags, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcsetwinsize};
use tokio::process::{Child, Command};
use tokio::sync::watch;

use super::within;

pub const CTRL_C: &str = "\x03";
pub const CTRL_D: &str = "\x04";
pub const CTRL_Z: &str = "\x1a";
pub const ESCAPE: &str = "\x1b";

/// What a person has in front of them.
struct Emulation {
    parser: vt100::Parser,
    /// All that was ever written to the terminal, as it came.
    written: String,
}

pub struct Terminal {
    child: Child,
    /// The terminal's other side, where keys come from.
    keys: File,
    emulation: watch::Receiver<Emulation>,
    sender: watch::Sender<Emulation>,
    /// How much of what was written [`Self::until`] has looked at.
    seen: usize,
}

/// What is left when the program has ended.
#[derive(Debug)]
pub struct Ended {
    /// 128 and the signal's number, as a shell tells it, for one that was killed.
    pub code: i32,
    /// The screen's lines, without white space at their ends.
    pub screen: String,
    /// All that was ever written to the terminal, as it came.
    pub written: String,
    /// Whether the terminal was left as a shell wants it.
    pub is_sane: bool,
}

impl Terminal {
    /// Starts the command in a terminal of its own. `TERM` is set here, the rest of its environment is the caller's.
    pub fn start(columns: u16, rows: u16, command: &Command) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        unlockpt(&master).unwrap();
        tcsetwinsize(&master, size(columns, rows)).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let name = Path::new(std::ffi::OsStr::from_bytes(name.to_bytes()));
        let slave = OpenOptions::new().read(true).write(true).custom_flags(nix::libc::O_NOCTTY).open(name).unwrap();
        let child = attached(command, &slave).spawn().expect("acpd can be started in a terminal");
        // Only the program holds it open from now on.
        drop(slave);
        let mut output = File::from(master);
        let keys = output.try_clone().unwrap();
        let parser = vt100::Parser::new(cells(rows), cells(columns), 0);
        let (sender, emulation) = watch::channel(Emulation { parser, written: String::new() });
        let feed = sender.clone();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            let mut is_closed = false;
            loop {
                match output.read(&mut bytes) {
                    Ok(count @ 1..) => feed.send_modify(|emulation| {
                        emulation.parser.process(&bytes[..count]);
                        emulation.written.push_str(&String::from_utf8_lossy(&bytes[..count]));
                    }),
                    // A terminal that the program has closed is an error to read. The kernel may report that while the last
                    // output is still in its queue. Each read waits for what was in the queue before, so the next one gets it.
                    _ if !is_closed => is_closed = true,
                    _ => break,
                }
            }
        });
        Self { child, keys, emulation, sender, seen: 0 }
    }

    /// Waits until the text is on the screen, within one line of it, and gives the screen.
    pub async fn shows(&mut self, text: &str) -> String {
        self.settles(&format!("{text:?} on the screen"), |screen| screen.contains(text)).await
    }

    /// Waits until the screen is as it should be, and gives it.
    pub async fn settles(&mut self, what: &str, is_so: impl Fn(&str) -> bool) -> String {
        let waiting = self.emulation.wait_for(|emulation| is_so(&screen_of(&emulation.parser)));
        let found = tokio::time::timeout(super::DEADLINE, waiting).await.ok().and_then(Result::ok);
        let found = found.map(|emulation| screen_of(&emulation.parser));
        found.unwrap_or_else(|| panic!("{what} never came:\n{}", self.screen()))
    }

    /// What is written from here on, as it comes, up to and including the text.
    pub async fn until(&mut self, text: &str) -> String {
        let seen = self.seen;
        let waiting = self.emulation.wait_for(|emulation| emulation.written[seen..].contains(text));
        let found = tokio::time::timeout(super::DEADLINE, waiting).await.ok().and_then(Result::ok);
        let found = found.map(|emulation| emulation.written.clone());
        let written = found.unwrap_or_else(|| panic!("{text:?} was never written:\n{}", self.screen()));
        self.seen = seen + written[seen..].find(text).unwrap() + text.len();
        written[seen..self.seen].to_owned()
    }

    /// The screen as it is now.
    pub fn screen(&self) -> String {
        screen_of(&self.emulation.borrow().parser)
    }

    /// Looks at the emulator itself: colours, the cursor, the alternate screen.
    pub fn look<T>(&self, at: impl FnOnce(&vt100::Screen) -> T) -> T {
        at(self.emulation.borrow().parser.screen())
    }

    pub fn types(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// As when a person pulls at the window's corner.
    pub fn resize(&mut self, columns: u16, rows: u16) {
        self.sender.send_modify(|emulation| emulation.parser.screen_mut().set_size(cells(rows), cells(columns)));
        tcsetwinsize(&self.keys, size(columns, rows)).unwrap();
    }

    pub fn pid(&self) -> u32 {
        self.child.id().expect("it runs")
    }

    /// Whether the terminal is as a shell wants it: it echoes, gives lines, makes signals of keys, and Ctrl-C discards output.
    pub fn is_sane(&self) -> bool {
        is_sane(&self.keys, &self.emulation.borrow())
    }

    /// Whether Ctrl-C and Ctrl-Z leave alone what the program has written and the terminal has not yet shown.
    pub fn keeps_output(&self) -> bool {
        modes_of(&self.keys).contains(LocalModes::NOFLSH)
    }

    /// Waits for the end of the program and of all that it wrote.
    pub async fn ended(mut self) -> Ended {
        let status = within("the end of acpd in its terminal", self.child.wait()).await.unwrap();
        drop(self.sender);
        // The thread lets go when it has read everything.
        within("the end of the terminal", async { while self.emulation.changed().await.is_ok() {} }).await;
        let emulation = self.emulation.borrow();
        let signal = std::os::unix::process::ExitStatusExt::signal(&status).unwrap_or_default();
        Ended {
            code: status.code().unwrap_or(128 + signal),
            screen: screen_of(&emulation.parser),
            written: emulation.written.clone(),
            // Only now: what gives the terminal back is the last that is written to it.
            is_sane: is_sane(&self.keys, &emulation),
        }
    }
}

fn is_sane(terminal: &File, emulation: &Emulation) -> bool {
    let modes = modes_of(terminal);
    let is_cooked =
        modes.contains(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG) && !modes.contains(LocalModes::NOFLSH);
    let screen = emulation.parser.screen();
    is_cooked && !screen.alternate_screen() && !screen.hide_cursor()
}

fn modes_of(terminal: &File) -> LocalModes {
    rustix::termios::tcgetattr(terminal).unwrap().local_modes
}

/// The same command, leading a session whose terminal this is. `setsid` becomes the program, so its pid is the program's.
fn attached(command: &Command, slave: &File) -> Command {
    let command = command.as_std();
    let mut attached = Command::new("setsid");
    attached.arg("--ctty").arg(command.get_program()).args(command.get_args()).env_clear();
    attached.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?)))).env("TERM", "xterm-256color");
    if let Some(directory) = command.get_current_dir() {
        attached.current_dir(directory);
    }
    let stream = || slave.try_clone().unwrap();
    attached.stdin(stream()).stdout(stream()).stderr(stream()).kill_on_drop(true);
    attached
}

fn cells(count: u16) -> NonZeroU16 {
    NonZeroU16::new(count).expect("a terminal has at least a cell")
}

fn size(columns: u16, rows: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

fn screen_of(parser: &vt100::Parser) -> String {
    let screen = parser.screen();
    let (_, columns) = screen.size();
    let lines: Vec<String> = screen.rows(0, columns.get()).map(|line| line.trim_end().to_owned()).collect();
    lines.join("\n").trim_end().to_owned()
}
