//! The pictures in docs/pictures show what the program shows: the real program in a real terminal makes each of them.
//! `ACPD_UPDATE_PICTURES=1` writes them; without it their words are compared.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::print_stderr, reason = "a picture that is written is told")]

mod harness;
mod picture;
mod scene;

use std::num::NonZeroU16;
use std::path::{Path, PathBuf};
use std::pin::Pin;

use harness::{CTRL_C, Daemon};
use picture::{Picture, browser};

const COLUMNS: u16 = 84;
/// More than the program writes, so that nothing scrolls away; what is empty is cut off.
const ROWS: u16 = 60;
const TOP_COLUMNS: u16 = 100;
const TOP_ROWS: u16 = 24;
/// What the README tells to type, and what is in the workspace.
const TYPED: &str = "acpd run --agent demo \"hello\"";
/// The exit code for a turn that was cancelled.
const CANCELLED: i32 = 5;
const README: &str = "# A project\n\nIt has some text.\n";

type Drawing = fn() -> Pin<Box<dyn Future<Output = Picture>>>;

/// Each picture by its name, and how it is made.
const PICTURES: &[(&str, Drawing)] =
    &[("run", || Box::pin(run())), ("permission", || Box::pin(permission())), ("top", || Box::pin(top()))];

async fn run() -> Picture {
    let daemon = Daemon::builder().env("ACPD_DEMO_PAUSE_MS", "0").start().await;
    std::fs::write(daemon.workspace().join("README.md"), README).unwrap();
    let ended = daemon.terminal(COLUMNS, ROWS, &["run", "--agent", "demo", "hello"]).ended().await;
    assert_eq!(ended.code, 0, "{}", ended.screen);
    let size = |count| NonZeroU16::new(count).unwrap();
    let mut parser = vt100::Parser::new(size(ROWS), size(COLUMNS), 0);
    parser.process(ended.written.as_bytes());
    settled(Picture::new("acpd run", Some(TYPED), parser.screen()), &daemon)
}

async fn permission() -> Picture {
    let daemon = Daemon::builder().env("ACPD_DEMO_PAUSE_MS", "0").start().await;
    std::fs::write(daemon.workspace().join("README.md"), README).unwrap();
    let mut terminal = daemon.terminal(COLUMNS, ROWS, &["run", "--agent", "demo", "write a note"]);
    terminal.shows("once").await;
    let screen = terminal.look(vt100::Screen::clone);
    terminal.types(CTRL_C);
    assert_eq!(terminal.ended().await.code, CANCELLED);
    settled(Picture::new("acpd run", Some("acpd run --agent demo \"write a note\""), &screen), &daemon)
}

/// Without what is another one in every run.
async fn top() -> Picture {
    let daemon = scene::busy().await;
    let mut terminal = daemon.terminal(TOP_COLUMNS, TOP_ROWS, &["top"]);
    terminal.shows("? $ cargo publish").await;
    terminal.types("j");
    terminal.settles("the log and the figures", scene::is_whole).await;
    let screen = terminal.look(vt100::Screen::clone);
    terminal.types("q");
    assert_eq!(terminal.ended().await.code, 0);
    Picture::new("acpd top", None, &screen).settle(picture::ids)
}

fn settled(picture: Picture, daemon: &Daemon) -> Picture {
    let root = daemon.root().to_str().unwrap();
    let home: String = "/home/me/project".chars().chain(std::iter::repeat('x')).take(root.chars().count()).collect();
    picture.settle(picture::ids).settle(picture::durations).settle(picture::text(root, &home))
}

fn path_of(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/pictures").join(format!("{name}.svg"))
}

#[tokio::test]
async fn the_pictures_show_what_the_program_shows() {
    for (name, drawing) in PICTURES {
        let svg = drawing().await.svg();
        let path = path_of(name);
        if std::env::var_os("ACPD_UPDATE_PICTURES").is_some() {
            std::fs::write(&path, svg).unwrap();
            eprintln!("wrote {}", path.display());
            continue;
        }
        let drawn = std::fs::read_to_string(&path).unwrap_or_default();
        let (drawn, shown) = (text_of(&drawn), text_of(&svg));
        assert_eq!(
            scene::words(&drawn),
            scene::words(&shown),
            "docs/pictures/{name}.svg is not what the program shows now: look at it after \
             `ACPD_UPDATE_PICTURES=1 cargo test --test pictures`"
        );
    }
}

/// Reads every picture as a browser draws it: the file, the picture as the program makes it now, and that one in a font
/// whose characters have different widths.
#[tokio::test]
async fn a_browser_puts_every_character_into_its_column() {
    if !harness::runs_in_full("the measuring of the pictures in Chromium") || !harness::has(browser::PROGRAM) {
        return;
    }
    let (mut svgs, mut texts) = (Vec::new(), Vec::new());
    for (name, drawing) in PICTURES {
        let picture = drawing().await;
        let svg = picture.svg();
        let serif = svg.replace(picture::FONTS, "serif");
        svgs.extend([std::fs::read_to_string(path_of(name)).unwrap(), svg, serif]);
        texts.push(picture.text());
    }
    let directory = tempfile::tempdir().unwrap();
    let measured = browser::measure(directory.path(), &svgs).await;
    for (((name, _), text), measured) in PICTURES.iter().zip(&texts).zip(measured.chunks(3)) {
        let read = |index: usize, is_own_font| {
            browser::screen(&measured[index], is_own_font).unwrap_or_else(|problem| panic!("{name}.svg: {problem}"))
        };
        assert_eq!(scene::words(&read(0, true)), scene::words(text), "docs/pictures/{name}.svg");
        assert_eq!(read(1, true), *text, "{name}.svg, as it is made now");
        assert_eq!(read(2, false), *text, "{name}.svg in a proportional font");
    }
}

/// The words of a picture. Their places depend on figures that differ from run to run.
fn text_of(svg: &str) -> String {
    svg.split('<').filter_map(|piece| Some(piece.split_once('>')?.1)).collect::<Vec<_>>().join(" ")
}
