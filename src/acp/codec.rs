//! Framing: lines ended by `\n`, bounded in length.
//!
//! Over-long lines are items, never errors: in tokio-util a decoder's `Err` ends the stream, and one bad
//! line must not end a session. An over-long line is discarded up to its newline without being kept in memory. So is a long
//! one that finds no room: all long lines that are under way share one budget.

use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::codec::Decoder;

/// From here on a line is long, and takes of the budget in steps of this.
const LONG_LINE_BYTES: usize = 1 << 20;

/// What a buffer is made for: as much as is read at once.
pub const BUFFER_BYTES: usize = 32 << 10;

/// The memory that all long lines share, in bytes.
pub type LongLines = Arc<Semaphore>;

/// What was between two newlines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// Not blank, and without its line ending. Whoever reads it finds out whether it is UTF-8.
    Text(Bytes),
    /// Longer than a line may be, or long when there was no room for another long one.
    TooLong { bytes: usize },
}

#[derive(Debug)]
pub struct LineCodec {
    line_bytes_max: usize,
    /// How far the buffer was searched for a newline already.
    searched: usize,
    /// Bytes of an over-long line thrown away so far; what follows up to its newline is thrown away too.
    discarded: Option<usize>,
    long_lines: LongLines,
    /// The share of the line that is being read.
    share: Option<OwnedSemaphorePermit>,
}

impl LineCodec {
    pub fn new(line_bytes_max: usize, long_lines: LongLines) -> Self {
        Self { line_bytes_max, searched: 0, discarded: None, long_lines, share: None }
    }

    /// The share of the long line that was given out last, to be kept for as long as the line is.
    pub fn take_share(&mut self) -> Option<OwnedSemaphorePermit> {
        self.share.take()
    }

    /// Whether there is room for what has come of the line so far.
    fn has_room(&mut self, bytes: usize) -> bool {
        let held = self.share.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        if bytes <= LONG_LINE_BYTES.max(held) {
            return true;
        }
        let Ok(more) = u32::try_from(bytes.next_multiple_of(LONG_LINE_BYTES) - held) else { return false };
        let Ok(more) = Arc::clone(&self.long_lines).try_acquire_many_owned(more) else { return false };
        match &mut self.share {
            Some(share) => share.merge(more),
            None => self.share = Some(more),
        }
        true
    }

    /// Makes an item of a whole line, or nothing of a blank one.
    fn item(&mut self, mut line: Bytes) -> Option<Line> {
        let bytes = line.len();
        if let Some(discarded) = self.discarded.take() {
            return Some(Line::TooLong { bytes: discarded + bytes });
        }
        if bytes > self.line_bytes_max {
            return Some(Line::TooLong { bytes });
        }
        if line.ends_with(b"\r") {
            line.truncate(line.len() - 1);
        }
        if line.iter().all(u8::is_ascii_whitespace) {
            return None;
        }
        Some(Line::Text(line))
    }
}

impl Decoder for LineCodec {
    type Item = Line;
    type Error = std::io::Error;

    fn decode(&mut self, buffer: &mut BytesMut) -> Result<Option<Line>, Self::Error> {
        while let Some(position) = memchr::memchr(b'\n', &buffer[self.searched..]) {
            let line = buffer.split_to(self.searched + position).freeze();
            buffer.advance(1);
            self.searched = 0;
            if line.len() > LONG_LINE_BYTES {
                let_go(buffer);
            }
            if let Some(item) = self.item(line) {
                return Ok(Some(item));
            }
        }
        self.searched = buffer.len();
        if self.discarded.is_some() || buffer.len() > self.line_bytes_max || !self.has_room(buffer.len()) {
            self.discarded = Some(self.discarded.unwrap_or(0) + buffer.len());
            self.share = None;
            self.searched = 0;
            buffer.clear();
            let_go(buffer);
        }
        Ok(None)
    }

    fn decode_eof(&mut self, buffer: &mut BytesMut) -> Result<Option<Line>, Self::Error> {
        if let Some(item) = self.decode(buffer)? {
            return Ok(Some(item));
        }
        // A last line without its newline: an agent that died in the middle of it, or one that ends that way.
        let rest = buffer.split().freeze();
        self.searched = 0;
        if rest.is_empty() && self.discarded.is_none() { Ok(None) } else { Ok(self.item(rest)) }
    }
}

/// A buffer that held a long line would keep its memory for as long as the agent lives: what is left moves to a small one.
fn let_go(buffer: &mut BytesMut) {
    let mut small = BytesMut::with_capacity(buffer.len().max(BUFFER_BYTES));
    small.extend_from_slice(buffer);
    *buffer = small;
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MAX: usize = 16;

    /// Feeds the input in pieces, as a pipe would.
    fn decode(input: &[u8], piece: usize) -> Vec<Line> {
        let mut codec = LineCodec::new(MAX, Arc::new(Semaphore::new(0)));
        let mut buffer = BytesMut::new();
        let mut lines = Vec::new();
        for part in input.chunks(piece) {
            buffer.extend_from_slice(part);
            while let Some(line) = codec.decode(&mut buffer).unwrap() {
                lines.push(line);
            }
            assert!(buffer.len() <= MAX + piece, "an over-long line is not kept in memory");
        }
        while let Some(line) = codec.decode_eof(&mut buffer).unwrap() {
            lines.push(line);
        }
        lines
    }

    fn text(text: &str) -> Line {
        Line::Text(Bytes::copy_from_slice(text.as_bytes()))
    }

    #[test]
    fn bad_lines_are_items_and_the_stream_goes_on() {
        let mut input = b"{\"a\":1}\r\n\n  \n".to_vec();
        input.extend_from_slice(b"\xff\xfe\n");
        input.extend_from_slice(&[b'x'; 40]);
        input.extend_from_slice(b"\nafter\nlast");
        for piece in 1..input.len() {
            let expected = [
                text("{\"a\":1}"),
                Line::Text(Bytes::from_static(b"\xff\xfe")),
                Line::TooLong { bytes: 40 },
                text("after"),
                text("last"),
            ];
            assert_eq!(decode(&input, piece), expected, "in pieces of {piece}");
        }
    }

    /// Reads a line of `mebibytes` without its end.
    fn begin(codec: &mut LineCodec, mebibytes: usize) -> BytesMut {
        let mut buffer = BytesMut::new();
        for _ in 0..mebibytes {
            buffer.extend_from_slice(&vec![b'x'; LONG_LINE_BYTES]);
            assert_eq!(codec.decode(&mut buffer).unwrap(), None);
        }
        buffer
    }

    #[test]
    fn long_lines_share_one_budget_and_give_it_back() {
        let budget = Arc::new(Semaphore::new(3 * LONG_LINE_BYTES));
        let mut codecs = [(); 2].map(|()| LineCodec::new(8 * LONG_LINE_BYTES, Arc::clone(&budget)));
        let mut first = begin(&mut codecs[0], 3);
        let mut second = begin(&mut codecs[1], 2);
        assert!(second.is_empty(), "there is no room for it, so it is not kept");
        second.extend_from_slice(b"y\n");
        let skipped = Line::TooLong { bytes: 2 * LONG_LINE_BYTES + 1 };
        assert_eq!(codecs[1].decode(&mut second).unwrap(), Some(skipped));
        first.extend_from_slice(b"\n");
        assert!(
            matches!(codecs[0].decode(&mut first).unwrap(), Some(Line::Text(line)) if line.len() == 3 * LONG_LINE_BYTES)
        );
        let share = codecs[0].take_share();
        assert_eq!(budget.available_permits(), 0, "the line is still there");
        drop(share);
        assert_eq!(budget.available_permits(), 3 * LONG_LINE_BYTES);
        assert_eq!(begin(&mut codecs[1], 2).len(), 2 * LONG_LINE_BYTES, "there is room again");
        for buffer in [first, second] {
            assert!(buffer.capacity() < LONG_LINE_BYTES, "the buffers are small again");
        }
    }

    proptest! {
        #[test]
        fn how_the_bytes_arrive_makes_no_difference(
            input in proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b'\r'), any::<u8>()], 0..120),
            piece in 1usize..20,
        ) {
            prop_assert_eq!(decode(&input, piece), decode(&input, input.len().max(1)));
        }
    }
}
