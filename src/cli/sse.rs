//! An incremental parser of `text/event-stream`: takes bytes cut anywhere, gives the frames that they complete.
//!
//! Of the format it knows what the daemon sends: the fields `id`, `event` and `data`, and comments (heartbeats), which
//! it skips. Lines end with LF, CR or both.

/// The daemon caps what it stores of a payload far below; this only keeps nonsense from filling the memory.
const FRAME_BYTES_MAX: usize = 64 << 20;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// The cursor; the one before stays in force when a frame brings none.
    pub id: Option<i64>,
    pub event: String,
    pub data: String,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("an event is larger than {FRAME_BYTES_MAX} bytes")]
pub struct TooLarge;

#[derive(Debug, Default)]
pub struct SseParser {
    line: Vec<u8>,
    /// A line feed after a carriage return belongs to the same line end.
    after_carriage_return: bool,
    frame: Frame,
    has_data: bool,
}

impl SseParser {
    /// The frames that `bytes` complete. After an error the stream is of no use.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<Frame>, TooLarge> {
        let mut frames = Vec::new();
        for &byte in bytes {
            let is_second_half = byte == b'\n' && self.after_carriage_return;
            self.after_carriage_return = byte == b'\r';
            if is_second_half {
                continue;
            }
            if matches!(byte, b'\n' | b'\r') {
                let line = std::mem::take(&mut self.line);
                frames.extend(self.end_line(&String::from_utf8_lossy(&line)));
            } else if self.line.len() + self.frame.data.len() < FRAME_BYTES_MAX {
                self.line.push(byte);
            } else {
                return Err(TooLarge);
            }
        }
        Ok(frames)
    }

    fn end_line(&mut self, line: &str) -> Option<Frame> {
        if line.is_empty() {
            let frame = std::mem::take(&mut self.frame);
            self.frame.id = frame.id;
            return std::mem::take(&mut self.has_data).then_some(frame);
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "id" => self.frame.id = value.parse().ok().or(self.frame.id),
            "event" => value.clone_into(&mut self.frame.event),
            "data" => {
                if self.has_data {
                    self.frame.data.push('\n');
                }
                self.frame.data.push_str(value);
                self.has_data = true;
            }
            // A comment has no name before its colon; fields that nobody knows are ignored by the format's rules.
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &str = ": heartbeat\n\nid: 7\nevent: message.delta\ndata: {\"text\":\"ü 日本\"}\n\n\
                          : heartbeat\r\n\r\nid:8\r\nevent:x\r\ndata: a\r\ndata:  b\r\nretry: 5\r\n\r\n\
                          event: lonely\n\ndata\n\n";

    fn expected() -> Vec<Frame> {
        let frame = |id, event: &str, data: &str| Frame { id: Some(id), event: event.into(), data: data.into() };
        vec![frame(7, "message.delta", "{\"text\":\"ü 日本\"}"), frame(8, "x", "a\n b"), frame(8, "", "")]
    }

    #[test]
    fn a_stream_cut_at_any_byte_gives_the_same_frames() {
        let bytes = STREAM.as_bytes();
        for cut in 0..=bytes.len() {
            let mut parser = SseParser::default();
            let mut frames = parser.push(&bytes[..cut]).unwrap();
            frames.extend(parser.push(&bytes[cut..]).unwrap());
            assert_eq!(frames, expected(), "cut at {cut}");
        }
    }

    #[test]
    fn a_stream_in_single_bytes_gives_the_same_frames() {
        let mut parser = SseParser::default();
        let frames: Vec<Frame> = STREAM.bytes().flat_map(|byte| parser.push(&[byte]).unwrap()).collect();
        assert_eq!(frames, expected());
    }

    #[test]
    fn a_frame_comes_only_with_its_empty_line() {
        let mut parser = SseParser::default();
        assert_eq!(parser.push(b"id: 1\ndata: x\n").unwrap(), []);
        assert_eq!(parser.push(b"\n").unwrap().len(), 1);
    }
}
