//! What the demo agent says: the question taken from its blocks, the answer, and the pieces that it is streamed in.

use serde_json::Value;

const QUOTE_CHARACTERS: usize = 200;

/// What was asked: the text, and how much else came with it.
pub struct Question {
    text: String,
    attachments: usize,
}

impl Question {
    pub fn new(blocks: &Value) -> Self {
        let blocks = blocks.as_array().map(Vec::as_slice).unwrap_or_default();
        let texts: Vec<&str> = blocks.iter().filter_map(|block| block["text"].as_str()).collect();
        Self { text: texts.join(" "), attachments: blocks.len() - texts.len() }
    }

    pub fn quote(&self) -> String {
        let words: Vec<&str> = self.text.split_whitespace().collect();
        shorten(&words.join(" "), QUOTE_CHARACTERS)
    }
}

pub fn answer_text(turn_number: u32, question: &Question, finding: &str) -> String {
    let quote = question.quote();
    let turn = match turn_number {
        1 => String::new(),
        number => format!(" This is turn {number} of our conversation."),
    };
    let attachments = match question.attachments {
        0 => String::new(),
        number => format!(" Attached to your prompt: {}.", counted(number, "block")),
    };
    format!(
        "Hello! I am the **demo agent** that is built into acpd.{turn} You asked:\n\n\
        > {quote}\n\n\
        {finding}{attachments} There is no model behind me, so that is all that I can tell you about it; but all that \
        you see here (the stream, the plan, the tool call) went through acpd as it would with a real agent.\n\n\
        What to try next:\n\n\
        - `acpd ls` shows your sessions. This one stays, even when you close the terminal.\n\
        - `acpd prompt - \"and now?\"` goes on with this conversation.\n\
        - `acpd run --agent gemini \"explain this project\"` asks a real agent.\n"
    )
}

/// Cuts a text into words, each with the white space that follows it.
pub fn word_chunks(text: &str) -> Vec<&str> {
    let mut chunks = Vec::new();
    let mut start = 0;
    let mut after_space = false;
    for (index, character) in text.char_indices() {
        // A word begins where white space ends.
        if after_space && !character.is_whitespace() {
            chunks.push(&text[start..index]);
            start = index;
        }
        after_space = character.is_whitespace();
    }
    if start < text.len() {
        chunks.push(&text[start..]);
    }
    chunks
}

pub fn counted(number: usize, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

/// The first characters of a text, with an ellipsis when that is not all of it.
pub fn shorten(text: &str, characters_max: usize) -> String {
    match text.char_indices().nth(characters_max) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_words_and_join_to_the_text() {
        assert_eq!(word_chunks("one two\n\nthree "), ["one ", "two\n\n", "three "]);
        for text in ["", " ", "a", "  a b", "\n- `x` é\u{a0}ü\n", "no_space"] {
            assert_eq!(word_chunks(text).concat(), text);
        }
    }

    #[test]
    fn long_texts_are_cut_on_a_character() {
        assert_eq!(shorten("äöü", 3), "äöü");
        assert_eq!(shorten("äöüß", 3), "äöü…");
    }
}
