//! What the demo agent says: the question taken from its blocks, the answer, and the pieces that it is streamed in.

use serde_json::Value;

use super::workspace::Findings;

const QUOTE_CHARACTERS: usize = 200;

/// What a prompt has in it when something is to be written.
const WRITING_WORDS: [&str; 4] = ["write", "writes", "note", "notes"];

/// What was asked: the text, and what else came with it.
pub struct Question {
    text: String,
    attachments: usize,
    /// The conversation so far, which acpd hands to an agent that cannot restore it itself; in words.
    transcript_words: Option<usize>,
}

impl Question {
    pub fn new(blocks: &Value) -> Self {
        let blocks = blocks.as_array().map(Vec::as_slice).unwrap_or_default();
        let texts: Vec<&str> = blocks.iter().filter_map(|block| block["text"].as_str()).collect();
        let transcript = blocks.iter().map(|block| &block["resource"]).find(|resource| {
            resource["uri"].as_str().is_some_and(|uri| uri.starts_with("acpd:") && uri.ends_with("/transcript.md"))
        });
        let transcript_words =
            transcript.map(|resource| resource["text"].as_str().unwrap_or_default().split_whitespace().count());
        let attachments = blocks.len() - texts.len() - usize::from(transcript.is_some());
        Self { text: texts.join(" "), attachments, transcript_words }
    }

    pub fn quote(&self) -> String {
        let words: Vec<&str> = self.text.split_whitespace().collect();
        shorten(&words.join(" "), QUOTE_CHARACTERS)
    }

    /// How many words the agent was given.
    pub fn words(&self) -> usize {
        self.text.split_whitespace().count() + self.transcript_words.unwrap_or_default()
    }

    /// Whether something is to be written.
    pub fn wants_note(&self) -> bool {
        let words = self.text.split(|character: char| !character.is_alphanumeric());
        words.into_iter().any(|word| WRITING_WORDS.iter().any(|known| word.eq_ignore_ascii_case(known)))
    }

    pub fn thought(&self) -> String {
        let then = if self.wants_note() { ", and ask before I write anything" } else { " before I answer" };
        format!("The user says “{}”. I will look into the workspace{then}.", self.quote())
    }
}

/// The long answer. `told` is about the note, if there was one to write.
pub fn answer_text(turn_number: u32, question: &Question, findings: &Findings, told: &str) -> String {
    let quote = question.quote();
    let turn = match (turn_number, question.transcript_words) {
        (_, Some(words)) => format!(
            " My process is new, and acpd handed me the transcript of our conversation: {}.",
            counted(words, "word")
        ),
        (1, None) => String::new(),
        (number, None) => format!(" This is turn {number} of our conversation."),
    };
    let attachments = match question.attachments {
        0 => String::new(),
        number => format!(" Attached to your prompt: {}.", counted(number, "block")),
    };
    let told = if told.is_empty() { String::new() } else { format!("{told}\n\n") };
    let again = if turn_number > 1 || question.transcript_words.is_some() { " again" } else { "" };
    let calls = match (told.is_empty(), findings.has_file()) {
        (true, true) => "two tool calls, which only *read*",
        (true, false) => "a tool call, which only *reads*",
        (false, _) => "tool calls, with a permission request before the one that writes",
    };
    let table = findings.table();
    format!(
        "## Hello{again} from the demo agent\n\n\
        I am built into acpd, and there is **no model behind me**.{turn} You asked:\n\n\
        > {quote}\n\n\
        {told}What I found in your workspace:{attachments}\n\n\
        {table}\n\
        Everything you see here went through acpd as with a real agent:\n\n\
        - thoughts and a plan\n\
        - {calls}\n\
        - this text, word by word\n\n\
        What to try next:\n\n\
        ```sh\n\
        acpd prompt - \"write a note\"   # I ask before I write\n\
        acpd ls                        # this session is still there\n\
        acpd run \"explain this\"        # use a real agent\n\
        ```\n"
    )
}

/// The answer in the mode that says little.
pub fn brief_text(question: &Question, findings: &Findings, told: &str) -> String {
    let told = if told.is_empty() { String::new() } else { format!(" {told}") };
    format!("You asked “{}”.{told} {} There is no model behind me.\n", question.quote(), findings.sentence())
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
    fn only_the_words_for_writing_ask_for_a_note() {
        let wants = |text: &str| Question::new(&serde_json::json!([{"type": "text", "text": text}])).wants_note();
        assert!(wants("Write it") && wants("take a note!") && wants("notes, please"));
        assert!(!wants("why is this notable?") && !wants("rewrite") && !wants(""));
    }

    #[test]
    fn as_many_calls_are_told_as_there_were() {
        let question = Question::new(&serde_json::json!([{"type": "text", "text": "hello"}]));
        let directory = tempfile::tempdir().unwrap();
        let mut findings = Findings::of(&super::super::workspace::list(directory.path()));
        assert!(answer_text(1, &question, &findings, "").contains("- a tool call, which only *reads*"));
        findings.add_file("x", &Err(std::io::ErrorKind::NotFound.into()));
        assert!(answer_text(1, &question, &findings, "").contains("- two tool calls, which only *read*"));
    }

    #[test]
    fn a_transcript_is_no_attachment() {
        let blocks = serde_json::json!([
            {"type": "resource", "resource": {"uri": "acpd://sessions/1/transcript.md", "text": "write one two"}},
            {"type": "text", "text": "go on"},
        ]);
        let question = Question::new(&blocks);
        assert_eq!((question.attachments, question.words(), question.wants_note()), (0, 5, false));
    }

    #[test]
    fn long_texts_are_cut_on_a_character() {
        assert_eq!(shorten("äöü", 3), "äöü");
        assert_eq!(shorten("äöüß", 3), "äöü…");
    }
}
