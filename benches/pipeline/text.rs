//! The text that the agent says and everybody must receive: chunks of 16 bytes, each with its own number, so that one
//! that is lost, doubled or out of place is seen.

use anyhow::bail;

pub const CHUNK_BYTES: usize = 16;

/// The chunk with this number.
pub fn chunk(number: usize) -> String {
    format!("{number:015} ")
}

/// What has come so far of the text that must come.
#[derive(Debug)]
pub struct Received {
    chunks: usize,
    next: usize,
    /// What is left of the chunk that came in part.
    rest: String,
}

impl Received {
    pub fn expecting(chunks: usize) -> Self {
        Self { chunks, next: 0, rest: String::new() }
    }

    /// Takes the next piece, which may be many chunks or a part of one.
    pub fn push(&mut self, mut piece: &str) -> anyhow::Result<()> {
        while !piece.is_empty() {
            if self.rest.is_empty() {
                self.rest = chunk(self.next);
                self.next += 1;
            }
            let length = self.rest.len().min(piece.len());
            let (Some((head, tail)), Some((expected, rest))) =
                (piece.split_at_checked(length), self.rest.split_at_checked(length))
            else {
                bail!("lost data: a piece of foreign text came: {piece:?}");
            };
            if self.next > self.chunks || head != expected {
                bail!("lost data: {head:?} came in the place of chunk {}, {expected:?}", self.next - 1);
            }
            self.rest = rest.to_owned();
            piece = tail;
        }
        Ok(())
    }

    /// Whether all of it has come.
    pub fn finish(&self) -> anyhow::Result<()> {
        if self.next != self.chunks || !self.rest.is_empty() {
            bail!("lost data: {} of {} chunks came", self.next, self.chunks);
        }
        Ok(())
    }
}
