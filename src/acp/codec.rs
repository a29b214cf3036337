//! Framing: lines ended by `\n`, bounded in length.
//!
//! Over-long and non-UTF-8 lines are items, never errors: in tokio-util a decoder's `Err` ends the stream, and one bad
//! line must not end a session. An over-long line is discarded up to its newline without being kept in memory.

use bytes::{Buf, Bytes, BytesMut};
use tokio_util::codec::Decoder;

/// What was between two newlines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// Valid UTF-8, not blank, without its line ending.
    Text(Bytes),
    TooLong {
        bytes: usize,
    },
    NotUtf8 {
        bytes: usize,
    },
}

#[derive(Debug)]
pub struct LineCodec {
    line_bytes_max: usize,
    /// How far the buffer was searched for a newline already.
    searched: usize,
    /// Bytes of an over-long line thrown away so far.
    discarded: usize,
}

impl LineCodec {
    pub fn new(line_bytes_max: usize) -> Self {
        Self { line_bytes_max, searched: 0, discarded: 0 }
    }

    /// Makes an item of a whole line, or nothing of a blank one.
    fn item(&mut self, mut line: Bytes) -> Option<Line> {
        let discarded = std::mem::take(&mut self.discarded);
        let bytes = discarded + line.len();
        if bytes > self.line_bytes_max {
            return Some(Line::TooLong { bytes });
        }
        if line.ends_with(b"\r") {
            line.truncate(line.len() - 1);
        }
        if line.iter().all(u8::is_ascii_whitespace) {
            return None;
        }
        match std::str::from_utf8(&line) {
            Ok(_) => Some(Line::Text(line)),
            Err(_) => Some(Line::NotUtf8 { bytes }),
        }
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
            if let Some(item) = self.item(line) {
                return Ok(Some(item));
            }
        }
        self.searched = buffer.len();
        if buffer.len() + self.discarded > self.line_bytes_max {
            self.discarded += buffer.len();
            self.searched = 0;
            buffer.clear();
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
        if rest.is_empty() && self.discarded == 0 { Ok(None) } else { Ok(self.item(rest)) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MAX: usize = 16;

    /// Feeds the input in pieces, as a pipe would.
    fn decode(input: &[u8], piece: usize) -> Vec<Line> {
        let mut codec = LineCodec::new(MAX);
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
                Line::NotUtf8 { bytes: 2 },
                Line::TooLong { bytes: 40 },
                text("after"),
                text("last"),
            ];
            assert_eq!(decode(&input, piece), expected, "in pieces of {piece}");
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
