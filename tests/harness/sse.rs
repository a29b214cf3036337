//! An incremental parser of `text/event-stream`, after the WHATWG specification.

/// The longest line that is gathered. A daemon that never ends a line fails the test instead of filling the memory.
const LINE_BYTES_MAX: usize = 64 << 20;

/// One dispatched event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The last id that was sent, which stays in force until another one comes.
    pub id: String,
    pub event: String,
    pub data: String,
}

/// Takes the stream in pieces of any size, cut anywhere, and gives the events that they complete.
#[derive(Debug, Default)]
pub struct SseParser {
    /// The line that has not ended yet.
    line: Vec<u8>,
    /// The last byte was a carriage return, so a line feed that follows belongs to the same line end.
    after_carriage_return: bool,
    is_past_first_line: bool,
    id: String,
    event: String,
    data: String,
    comments: usize,
}

impl SseParser {
    pub fn push(&mut self, bytes: &[u8]) -> Vec<Frame> {
        let mut frames = Vec::new();
        for &byte in bytes {
            let is_second_half = byte == b'\n' && self.after_carriage_return;
            self.after_carriage_return = byte == b'\r';
            match byte {
                _ if is_second_half => {}
                b'\n' | b'\r' => {
                    let line = std::mem::take(&mut self.line);
                    frames.extend(self.end_line(&line));
                }
                _ => {
                    assert!(self.line.len() < LINE_BYTES_MAX, "an event line without an end");
                    self.line.push(byte);
                }
            }
        }
        frames
    }

    /// How many comments came, heartbeats among them.
    pub fn comments(&self) -> usize {
        self.comments
    }

    fn end_line(&mut self, line: &[u8]) -> Option<Frame> {
        let text = String::from_utf8_lossy(line);
        let text = if self.is_past_first_line { &text } else { text.strip_prefix('\u{feff}').unwrap_or(&text) };
        self.is_past_first_line = true;
        if text.is_empty() {
            return self.dispatch();
        }
        let (field, value) = text.split_once(':').unwrap_or((text, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "" => self.comments += 1,
            "event" => value.clone_into(&mut self.event),
            "data" => {
                self.data.push_str(value);
                self.data.push('\n');
            }
            "id" if !value.contains('\0') => value.clone_into(&mut self.id),
            // `retry` is for browsers; the rest is ignored by the specification.
            _ => {}
        }
        None
    }

    fn dispatch(&mut self) -> Option<Frame> {
        let event = std::mem::take(&mut self.event);
        let mut data = std::mem::take(&mut self.data);
        // Without a data line there is nothing to dispatch; with one, its last line end is not part of the data.
        data.pop()?;
        let event = if event.is_empty() { "message".to_owned() } else { event };
        Some(Frame { id: self.id.clone(), event, data })
    }
}
