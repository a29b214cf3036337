//! Who asks: the process at the other end of a connection, as the kernel tells it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Characters of a program's name that are kept. The kernel has 15 bytes for it, but for threads of its own.
const PROGRAM_CHARS_MAX: usize = 64;

/// Who made a change, when it was somebody and not the daemon itself.
pub type By = Option<Arc<Peer>>;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Peer {
    pub uid: u32,
    /// Null if the client runs in a namespace that the daemon cannot see.
    pub pid: Option<i32>,
    /// The short name of the client's program, if it was still running when acpd looked.
    pub program: Option<String>,
}

impl Peer {
    /// A program's name as the kernel has it. A program can call itself anything: what would act on a terminal or begin a
    /// line of its own is written out.
    pub fn program_name(name: &[u8]) -> String {
        let name = String::from_utf8_lossy(name.strip_suffix(b"\n").unwrap_or(name));
        let mut shown = String::new();
        for character in name.chars().take(PROGRAM_CHARS_MAX) {
            if is_invisible(character) {
                shown.extend(character.escape_unicode());
            } else {
                shown.push(character);
            }
        }
        shown
    }
}

/// Control characters, and those that have the text around them shown in another order.
pub fn is_invisible(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// How far somebody sees. Who owns something is a user, or nobody, which is the daemon's own user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sight {
    #[default]
    All,
    Own(Option<u32>),
}

impl Sight {
    pub fn has(self, owner: Option<u32>) -> bool {
        match self {
            Self::All => true,
            Self::Own(user) => user == owner,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_programs_name_is_cut_and_cannot_act_on_a_terminal() {
        assert_eq!(Peer::program_name(b"acpd\n"), "acpd");
        assert_eq!(Peer::program_name(b"a b\x1b[2J\n\n"), "a b\\u{1b}[2J\\u{a}");
        assert_eq!(Peer::program_name("x\u{202e}y".as_bytes()), "x\\u{202e}y");
        assert_eq!(Peer::program_name(b"\xff"), "\u{fffd}");
        assert_eq!(Peer::program_name(&[b'x'; 1000]).len(), PROGRAM_CHARS_MAX);
    }

    #[test]
    fn nobody_sees_what_is_anothers() {
        assert!(Sight::All.has(Some(1)) && Sight::All.has(None));
        assert!(Sight::Own(Some(1)).has(Some(1)) && Sight::Own(None).has(None));
        assert!(!Sight::Own(Some(1)).has(None) && !Sight::Own(None).has(Some(1)) && !Sight::Own(Some(1)).has(Some(2)));
    }
}
