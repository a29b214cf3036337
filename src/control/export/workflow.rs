//! A session as the scaffold of a workflow for <https://github.com/HodeTech/Relavium>: a straight chain of one agent node per
//! completed turn. Relavium refuses a key that it does not know, except below `metadata`, which holds all that is acpd's own.
//!
//! The document is written in pieces, each at its own indentation. Edges come before nodes, so the messages are read once to
//! count the chain, and once more to write it.

use std::collections::VecDeque;

use serde_json::{Value, json};

use super::pieces::{Failure, Out};
use super::yaml::lines;
use crate::model::message::Message;
use crate::model::{Content, Role, TurnId, TurnStatus};
use crate::store::Snapshot;

/// Of the format, which its readers look at.
const SCHEMA_VERSION: &str = "1.0";
const ID_DEFAULT: &str = "exported-session";
const INPUT: &str = "input";
const OUTPUT: &str = "output";
/// What the author of the workflow decides.
const LEFT_TO_THE_AUTHOR: [&str; 7] =
    ["model", "temperature", "maxTokens", "max_tokens", "retry", "retries", "retryAfterSeconds"];
/// How deep the fields of the workflow, and those of its `relaviumExport`, are indented.
const FIELDS: usize = 2;
const EXPORT_FIELDS: usize = 6;
/// Two characters that begin something in the languages that templates are written in.
const OPENERS: [(char, char); 4] = [('{', '{'), ('{', '%'), ('{', '#'), ('$', '{')];

pub async fn write(snapshot: &Snapshot, out: &mut Out) -> Result<(), Failure> {
    let session = snapshot.session();
    let (mut length, mut chain) = (0, Chain::new(snapshot));
    while chain.next().await?.is_some() {
        length += 1;
    }
    out.text(&lines(&json!({ "schema_version": SCHEMA_VERSION }), 0)).await?;
    out.text("workflow:\n  edges:\n").await?;
    for index in 0..=length {
        let node = |index: usize, end: &str| if index == 0 || index > length { end.to_owned() } else { node_id(index) };
        out.text(&lines(&json!([{ "from": node(index, INPUT), "to": node(index + 1, OUTPUT) }]), FIELDS)).await?;
    }
    let id = Some(kebab(&session.title)).filter(|id| !id.is_empty());
    out.text(&lines(&json!({ "id": id.as_deref().unwrap_or(ID_DEFAULT) }), FIELDS)).await?;
    transcript(snapshot, out).await?;
    if !session.title.is_empty() {
        out.text(&lines(&json!({ "name": session.title }), FIELDS)).await?;
    }
    out.text("  nodes:\n").await?;
    out.text(&lines(&json!([{ "id": INPUT, "type": "input" }]), FIELDS)).await?;
    let (mut index, mut chain) = (0, Chain::new(snapshot));
    while let Some(Drafted { prompts, tools, .. }) = chain.next().await? {
        index += 1;
        let mut texts = Vec::new();
        for prompt in prompts {
            texts.extend(prompt_text(&snapshot.message(prompt).await?));
        }
        let node = node(index, &session.profile.slug, &texts.join("\n\n"), &tools);
        out.text(&lines(&json!([node]), FIELDS)).await?;
    }
    out.text(&lines(&json!([{ "id": OUTPUT, "type": "output" }]), FIELDS)).await
}

/// The whole transcript, and where it comes from.
async fn transcript(snapshot: &Snapshot, out: &mut Out) -> Result<(), Failure> {
    let session = snapshot.session();
    out.text("  metadata:\n    relaviumExport:\n").await?;
    // The messages stand between the two, because keys are sorted.
    let mut before = json!({ "agentSlug": session.profile.slug, "agentSnapshot": session.profile,
        "createdAt": session.created_at });
    if let Some(profile) = before["agentSnapshot"].as_object_mut() {
        profile.retain(|name, _| !LEFT_TO_THE_AUTHOR.contains(&name.as_str()));
    }
    out.text(&lines(&before, EXPORT_FIELDS)).await?;
    let mut after = 0;
    loop {
        let page = snapshot.messages(after).await?;
        let Some(last) = page.last() else { break };
        if after == 0 {
            out.text("      messages:\n").await?;
        }
        after = last.sequence;
        for message in page {
            out.text(&lines(&json!([recorded(message)?]), EXPORT_FIELDS)).await?;
        }
    }
    if after == 0 {
        out.text(&lines(&json!({ "messages": [] }), EXPORT_FIELDS)).await?;
    }
    let mut rest = json!({ "sessionId": session.id, "source": "session", "updatedAt": session.updated_at });
    if !session.title.is_empty() {
        rest["title"] = json!(session.title);
    }
    out.text(&lines(&rest, EXPORT_FIELDS)).await
}

/// A message as it is in the record, without what every one of them has in common and what only this machine knows.
fn recorded(message: Message) -> Result<Value, Failure> {
    let mut recorded = json!({
        "id": message.id, "sequence": message.sequence, "role": message.role,
        "content": serde_json::from_str::<Value>(message.content.get())?, "createdAt": message.created_at,
    });
    if let Some(turn) = message.turn_id {
        recorded["turnId"] = json!(turn);
    }
    if let Some(call) = message.tool_call_id {
        recorded["toolCallId"] = json!(call);
    }
    if let Some(model) = message.model {
        recorded["model"] = json!(model);
    }
    Ok(recorded)
}

fn node_id(index: usize) -> String {
    format!("turn-{index}")
}

fn node(index: usize, slug: &str, prompt: &str, tools: &[String]) -> Value {
    let mut node = json!({ "id": node_id(index), "type": "agent", "agent_ref": kebab(slug) });
    if !prompt.is_empty() {
        node["prompt_template"] = json!(neutralized(prompt));
    }
    if !tools.is_empty() {
        node["tools"] = json!(tools);
    }
    node
}

/// The words of ASCII letters and digits, in small letters and with a dash between them: the only form of ids in a workflow.
fn kebab(text: &str) -> String {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("-").to_ascii_lowercase()
}

/// The text as nobody who fills in templates takes it for one: with a space within whatever opens something. A text that has
/// been through this has no opener left, so that it stays as it is.
fn neutralized(text: &str) -> String {
    let mut neutral = String::with_capacity(text.len());
    let mut before = None;
    for character in text.chars() {
        if before.is_some_and(|before| OPENERS.contains(&(before, character))) {
            neutral.push(' ');
        }
        neutral.push(character);
        before = Some(character);
    }
    neutral
}

/// What the user wrote: its texts, without what is attached.
fn prompt_text(message: &Message) -> Vec<String> {
    let mut texts = match serde_json::from_str(message.content.get()) {
        Ok(Content::Text { text, .. }) => vec![text],
        Ok(Content::Blocks { blocks }) => {
            let texts = blocks.iter().filter(|block| block["type"] == "text");
            texts.filter_map(|block| block["text"].as_str()).map(str::to_owned).collect()
        }
        _ => Vec::new(),
    };
    texts.retain(|text| !text.is_empty());
    texts
}

/// The turns that become nodes, in order: those that were completed, and in which the agent said something.
struct Chain<'a> {
    snapshot: &'a Snapshot,
    drafts: Drafts,
    /// How far messages are read, and whether that is to their end.
    after: i64,
    is_end: bool,
}

impl<'a> Chain<'a> {
    fn new(snapshot: &'a Snapshot) -> Self {
        Self { snapshot, drafts: Drafts::default(), after: 0, is_end: false }
    }

    async fn next(&mut self) -> Result<Option<Drafted>, Failure> {
        loop {
            while let Some(drafted) = self.drafts.next(self.is_end) {
                if drafted.has_text && self.snapshot.turn(drafted.turn).await?.status == TurnStatus::Completed {
                    return Ok(Some(drafted));
                }
            }
            if self.is_end {
                return Ok(None);
            }
            let page = self.snapshot.messages(self.after).await?;
            self.after = page.last().map_or(self.after, |last| last.sequence);
            self.is_end = page.is_empty();
            for message in &page {
                self.drafts.read(message);
            }
        }
    }
}

/// What is known of a turn when all of its messages are read.
#[derive(Debug, PartialEq, Eq)]
struct Drafted {
    turn: TurnId,
    /// Where the user's messages are: an imported prompt of several parts is one message for each.
    prompts: Vec<i64>,
    /// In the order in which they were used first.
    tools: Vec<String>,
    /// Whether the agent said anything.
    has_text: bool,
}

/// Turns whose messages are still being read. They run one after the other, but a prompt is recorded when it is accepted,
/// which may be long before its turn begins.
#[derive(Debug, Default)]
struct Drafts {
    open: VecDeque<Drafted>,
    /// Those before it are over: a later turn has begun.
    over: usize,
}

impl Drafts {
    fn read(&mut self, message: &Message) {
        let Some(turn) = message.turn_id else { return };
        let Some(position) = self.open.iter().position(|draft| draft.turn == turn) else {
            // Nothing else begins a turn; a late word of one that is over changes nothing.
            if message.role == Role::User {
                let prompts = vec![message.sequence];
                self.open.push_back(Drafted { turn, prompts, tools: Vec::new(), has_text: false });
            }
            return;
        };
        self.over = self.over.max(position);
        let Some(draft) = self.open.get_mut(position) else { return };
        match message.role {
            Role::Agent => {
                let is_text = |content| matches!(content, Content::Text { text, .. } if !text.is_empty());
                draft.has_text = draft.has_text || serde_json::from_str(message.content.get()).is_ok_and(is_text);
            }
            Role::ToolCall => {
                if let Ok(Content::ToolCall { name, .. }) = serde_json::from_str(message.content.get())
                    && !name.is_empty()
                    && !draft.tools.contains(&name)
                {
                    draft.tools.push(name);
                }
            }
            Role::User => draft.prompts.push(message.sequence),
            Role::ToolResult | Role::System => {}
        }
    }

    /// The next turn of which no more is to come.
    fn next(&mut self, is_end: bool) -> Option<Drafted> {
        if is_end {
            return self.open.pop_front();
        }
        self.over = self.over.checked_sub(1)?;
        self.open.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::{MessageId, SessionId, Timestamp};

    #[test]
    fn an_id_is_made_of_the_words() {
        for (text, id) in [
            ("Fix the parser", "fix-the-parser"),
            ("  --Fix:  THE_parser!! ", "fix-the-parser"),
            ("Überprüfe 2 Dinge", "berpr-fe-2-dinge"),
            ("my_agent__2_", "my-agent-2"),
            ("日本語", ""),
            ("", ""),
        ] {
            assert_eq!(kebab(text), id, "{text:?}");
        }
    }

    #[test]
    fn nothing_is_left_to_fill_in() {
        for (text, neutral) in [
            ("use {{ secrets.KEY }} here", "use { { secrets.KEY }} here"),
            ("{{{x}}} ${{ y }} ${HOME} {% if %} {# no #}", "{ { {x}}} $ { { y }} $ {HOME} { % if %} { # no #}"),
            ("$5 { } {a} # % }}", "$5 { } {a} # % }}"),
        ] {
            assert_eq!(neutralized(text), neutral);
        }
    }

    fn message(turn: Option<TurnId>, sequence: i64, role: Role, content: &Value) -> Message {
        Message {
            id: MessageId::new(),
            session_id: SessionId::new(),
            sequence,
            turn_id: turn,
            role,
            content: serde_json::value::to_raw_value(content).unwrap(),
            tool_call_id: None,
            model: Some("large".to_owned()),
            by: None,
            created_at: Timestamp::from_millis(0),
        }
    }

    fn call(name: &str) -> Value {
        json!({"type": "tool_call", "id": "1", "name": name, "kind": "read", "arguments": null})
    }

    #[test]
    fn a_turn_is_known_when_the_next_one_begins() {
        let (one, two, three) = (TurnId::new(), TurnId::new(), TurnId::new());
        let text = json!({"type": "text", "text": "x", "partial": false});
        let mut drafts = Drafts::default();
        let read = |drafts: &mut Drafts, turn, sequence, role, content: &Value| {
            drafts.read(&message(Some(turn), sequence, role, content));
        };
        read(&mut drafts, one, 1, Role::User, &text);
        read(&mut drafts, one, 2, Role::User, &text);
        read(&mut drafts, one, 3, Role::ToolCall, &call("read"));
        read(&mut drafts, two, 4, Role::User, &text);
        read(&mut drafts, three, 5, Role::User, &text);
        for name in ["grep", "read", ""] {
            read(&mut drafts, one, 6, Role::ToolCall, &call(name));
        }
        read(&mut drafts, one, 7, Role::Agent, &text);
        drafts.read(&message(None, 8, Role::System, &text));
        assert_eq!(drafts.next(false), None, "more may come");
        // The second one was cancelled before it began.
        read(&mut drafts, three, 9, Role::Agent, &json!({"type": "thought", "text": "x", "partial": false}));
        let tools = vec!["read".to_owned(), "grep".to_owned()];
        assert_eq!(drafts.next(false), Some(Drafted { turn: one, prompts: vec![1, 2], tools, has_text: true }));
        assert_eq!(
            drafts.next(false),
            Some(Drafted { turn: two, prompts: vec![4], tools: Vec::new(), has_text: false })
        );
        assert_eq!(drafts.next(false), None);
        read(&mut drafts, one, 10, Role::System, &json!({"type": "notice", "code": "late", "text": "x"}));
        assert_eq!(drafts.next(false), None, "a late word ends nothing");
        assert_eq!(
            drafts.next(true),
            Some(Drafted { turn: three, prompts: vec![5], tools: Vec::new(), has_text: false })
        );
        assert_eq!(drafts.next(true), None);
    }

    proptest! {
        #[test]
        fn what_is_neutral_stays_so(text in "([{}$%#]|[a-z ]|\\PC){0,24}") {
            let neutral = neutralized(&text);
            let pairs = neutral.chars().zip(neutral.chars().skip(1));
            prop_assert!(pairs.clone().all(|pair| !OPENERS.contains(&pair)), "{}", neutral);
            prop_assert_eq!(neutralized(&neutral), neutral.clone());
            let letters = |text: &str| text.chars().filter(|character| *character != ' ').collect::<String>();
            prop_assert_eq!(letters(&neutral), letters(&text));
        }

        #[test]
        fn an_id_is_ascii_and_kebab(title in "\\PC{0,40}") {
            let id = kebab(&title);
            prop_assert!(id.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-'));
            prop_assert!(!id.starts_with('-') && !id.ends_with('-') && !id.contains("--"));
        }
    }
}
