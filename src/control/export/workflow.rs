//! A session as the scaffold of a workflow: a straight chain of one agent node per completed turn, as YAML that is parsed
//! and written again byte for byte. Keys are sorted, lists keep their order.
//!
//! It is written in pieces: the emitter's text of an item depends only on how deep that stands, so each is written alone, in
//! the surroundings that it has in the whole (a property test). The chain is found by reading the messages once to count it,
//! because edges come before nodes, and once more to write it; what a turn is made of is known when the next one begins.
//!
//! Who reads such files: <https://github.com/HodeTech/Relavium>.

use std::collections::VecDeque;

use serde_json::{Map, Value, json};

use super::pieces::{Failure, Out};
use crate::model::message::Message;
use crate::model::session::Session;
use crate::model::{Content, Role, TurnId, TurnStatus};
use crate::store::Snapshot;

/// Of the format, which its readers look at.
const SCHEMA_VERSION: &str = "1.0";
const ID_DEFAULT: &str = "exported-session";
const INPUT: &str = "input";
const OUTPUT: &str = "output";
/// What is the business of whoever runs the workflow, and not of the record.
const LEFT_TO_THE_AUTHOR: [&str; 7] =
    ["model", "temperature", "maxTokens", "max_tokens", "retry", "retries", "retryAfterSeconds"];
/// Two characters that begin something in the languages that templates are written in.
const OPENERS: [(char, char); 4] = [('{', '{'), ('{', '%'), ('{', '#'), ('$', '{')];

pub async fn write(snapshot: &Snapshot, out: &mut Out) -> Result<(), Failure> {
    let session = snapshot.session();
    let (mut length, mut chain) = (0, Chain::new(snapshot));
    while chain.next().await?.is_some() {
        length += 1;
    }
    out.text(&whole(&json!({ "schema_version": SCHEMA_VERSION }))?).await?;
    out.text("workflow:\n").await?;
    out.text(&field("agents", &json!([agent(session)]))?).await?;
    out.text("  edges:\n").await?;
    for index in 0..=length {
        let node = |index: usize, end: &str| if index == 0 || index > length { end.to_owned() } else { node_id(index) };
        out.text(&item(&["edges"], &json!({ "from": node(index, INPUT), "to": node(index + 1, OUTPUT) }))?).await?;
    }
    out.text(&field("id", &json!(workflow_id(&session.title)))?).await?;
    transcript(snapshot, out).await?;
    if !session.title.is_empty() {
        out.text(&field("name", &json!(session.title))?).await?;
    }
    out.text("  nodes:\n").await?;
    out.text(&item(&["nodes"], &json!({ "id": INPUT, "type": "input" }))?).await?;
    let (mut index, mut chain) = (0, Chain::new(snapshot));
    while let Some(Drafted { prompt, tools, .. }) = chain.next().await? {
        index += 1;
        let prompt = prompt_text(&snapshot.message(prompt).await?);
        out.text(&item(&["nodes"], &node(index, &session.profile.slug, &prompt, &tools))?).await?;
    }
    out.text(&item(&["nodes"], &json!({ "id": OUTPUT, "type": "output" }))?).await
}

/// The whole transcript, and where it comes from.
async fn transcript(snapshot: &Snapshot, out: &mut Out) -> Result<(), Failure> {
    const PLACE: [&str; 2] = ["metadata", "relaviumExport"];
    let session = snapshot.session();
    out.text("  metadata:\n    relaviumExport:\n").await?;
    // In the order of the keys, of which the messages are one in the middle.
    for (key, value) in [("agentSlug", json!(session.profile.slug)), ("createdAt", json!(session.created_at))] {
        out.text(&within(&PLACE, &json!({ key: value }))?).await?;
    }
    let mut after = 0;
    loop {
        let page = snapshot.messages(after).await?;
        let Some(last) = page.last() else { break };
        if after == 0 {
            out.text("      messages:\n").await?;
        }
        after = last.sequence;
        for message in page {
            out.text(&item(&["metadata", "relaviumExport", "messages"], &recorded(message)?)?).await?;
        }
    }
    if after == 0 {
        out.text(&within(&PLACE, &json!({ "messages": [] }))?).await?;
    }
    let title = Some(&session.title).filter(|title| !title.is_empty()).map(|title| ("title", json!(title)));
    let rest = [("sessionId", json!(session.id)), ("source", json!("session"))].into_iter().chain(title);
    for (key, value) in rest.chain([("updatedAt", json!(session.updated_at))]) {
        out.text(&within(&PLACE, &json!({ key: value }))?).await?;
    }
    Ok(())
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
    Ok(recorded)
}

/// The frozen profile, under the name that nodes refer to it by.
fn agent(session: &Session) -> Value {
    let mut agent = json!(session.profile);
    if let Some(fields) = agent.as_object_mut() {
        fields.retain(|name, _| !LEFT_TO_THE_AUTHOR.contains(&name.as_str()));
        fields.insert("id".to_owned(), json!(session.profile.slug));
    }
    agent
}

fn node_id(index: usize) -> String {
    format!("turn-{index}")
}

fn node(index: usize, slug: &str, prompt: &str, tools: &[String]) -> Value {
    let mut node = json!({ "id": node_id(index), "type": "agent", "agent_ref": slug });
    if !prompt.is_empty() {
        node["prompt_template"] = json!(neutralized(prompt));
    }
    if !tools.is_empty() {
        node["tools"] = json!(tools);
    }
    node
}

/// The words of ASCII letters and digits in the title, in small letters.
fn workflow_id(title: &str) -> String {
    let words = title.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let id = words.collect::<Vec<_>>().join("-").to_ascii_lowercase();
    if id.is_empty() { ID_DEFAULT.to_owned() } else { id }
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
fn prompt_text(message: &Message) -> String {
    match serde_json::from_str(message.content.get()) {
        Ok(Content::Text { text, .. }) => text,
        Ok(Content::Blocks { blocks }) => {
            let texts =
                blocks.iter().filter(|block| block["type"] == "text").filter_map(|block| block["text"].as_str());
            texts.collect::<Vec<_>>().join("\n\n")
        }
        _ => String::new(),
    }
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
    /// Where its prompt is.
    prompt: i64,
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
                let prompt = message.sequence;
                self.open.push_back(Drafted { turn, prompt, tools: Vec::new(), has_text: false });
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
            Role::User | Role::ToolResult | Role::System => {}
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

/// A document of its own.
fn whole(value: &Value) -> Result<String, Failure> {
    Ok(yaml_serde::to_string(&sorted(value.clone()))?)
}

/// A field of the workflow.
fn field(key: &str, value: &Value) -> Result<String, Failure> {
    within(&[], &json!({ key: value }))
}

/// One item of the list at this place in the workflow.
fn item(place: &[&str], value: &Value) -> Result<String, Failure> {
    within(place, &json!([value]))
}

/// The value as it stands at this place in the workflow, without the lines that say where it is.
fn within(place: &[&str], value: &Value) -> Result<String, Failure> {
    let mut outer = value.clone();
    for key in place.iter().rev().chain(&["workflow"]) {
        outer = Value::Object(Map::from_iter([((*key).to_owned(), outer)]));
    }
    let text = whole(&outer)?;
    Ok(text.splitn(place.len() + 2, '\n').last().unwrap_or_default().to_owned())
}

fn sorted(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<(String, Value)> =
                fields.into_iter().map(|(key, value)| (key, sorted(value))).collect();
            fields.sort_by(|(one, _), (other, _)| one.cmp(other));
            Value::Object(fields.into_iter().collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(sorted).collect()),
        leaf => leaf,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::{MessageId, SessionId, Timestamp};

    #[test]
    fn an_id_is_made_of_the_titles_words() {
        for (title, id) in [
            ("Fix the parser", "fix-the-parser"),
            ("  --Fix:  THE_parser!! ", "fix-the-parser"),
            ("Überprüfe 2 Dinge", "berpr-fe-2-dinge"),
            ("日本語", ID_DEFAULT),
            ("", ID_DEFAULT),
        ] {
            assert_eq!(workflow_id(title), id, "{title:?}");
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
        read(&mut drafts, one, 2, Role::ToolCall, &call("read"));
        read(&mut drafts, two, 3, Role::User, &text);
        read(&mut drafts, three, 4, Role::User, &text);
        for name in ["grep", "read", ""] {
            read(&mut drafts, one, 5, Role::ToolCall, &call(name));
        }
        read(&mut drafts, one, 6, Role::Agent, &text);
        drafts.read(&message(None, 7, Role::System, &text));
        assert_eq!(drafts.next(false), None, "more may come");
        // The second one was cancelled before it began.
        read(&mut drafts, three, 8, Role::Agent, &json!({"type": "thought", "text": "x", "partial": false}));
        let tools = vec!["read".to_owned(), "grep".to_owned()];
        assert_eq!(drafts.next(false), Some(Drafted { turn: one, prompt: 1, tools, has_text: true }));
        assert_eq!(drafts.next(false), Some(Drafted { turn: two, prompt: 3, tools: Vec::new(), has_text: false }));
        assert_eq!(drafts.next(false), None);
        read(&mut drafts, one, 9, Role::System, &json!({"type": "notice", "code": "late", "text": "x"}));
        assert_eq!(drafts.next(false), None, "a late word ends nothing");
        assert_eq!(drafts.next(true), Some(Drafted { turn: three, prompt: 4, tools: Vec::new(), has_text: false }));
        assert_eq!(drafts.next(true), None);
    }

    #[test]
    fn a_prompt_is_its_texts_and_a_message_says_nothing_of_models() {
        let blocks = json!({"type": "blocks", "blocks": [{"type": "text", "text": "a"}, {"type": "image", "sha256": "x"},
            {"type": "text", "text": "b"}]});
        let message = message(None, 1, Role::User, &blocks);
        assert_eq!(prompt_text(&message), "a\n\nb");
        let recorded = recorded(message).unwrap();
        assert_eq!(recorded["content"], blocks);
        assert!(recorded.get("model").is_none() && recorded.get("turnId").is_none());
        assert_eq!(node(2, "demo", "", &[]), json!({"id": "turn-2", "type": "agent", "agent_ref": "demo"}));
    }

    fn again(yaml: &str) -> String {
        let value: yaml_serde::Value = yaml_serde::from_str(yaml).unwrap();
        yaml_serde::to_string(&value).unwrap()
    }

    /// Texts that YAML has a meaning of its own for.
    fn nasty() -> impl Strategy<Value = String> {
        let parts = [
            " ",
            "\n",
            "\r\n",
            "\r",
            "\t",
            "---",
            "...",
            ": ",
            "#",
            "- ",
            "? ",
            "yes",
            "no",
            "null",
            "~",
            "1e3",
            "0x1f",
            ".inf",
            "1_000",
            "2026-01-01",
            "!tag",
            "&a",
            "*a",
            "<<",
            "|",
            ">",
            "%",
            "@",
            "`",
            "'",
            "\"",
            "\\",
            "{{",
            "[",
            "😀",
            "\u{85}",
            "\u{2028}",
            "\u{feff}",
            "\u{0}",
            "\u{1b}",
            "\u{7f}",
            "\u{9b}",
            "\u{fffe}",
            "\u{10ffff}",
        ];
        let part = prop_oneof![
            4 => prop::sample::select(parts.to_vec()).prop_map(str::to_owned),
            1 => Just("long ".repeat(100)),
            1 => any::<char>().prop_map(String::from),
        ];
        prop::collection::vec(part, 0..8).prop_map(|parts| parts.concat())
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            4 => nasty().prop_map(Value::from),
            1 => any::<i64>().prop_map(Value::from),
            1 => any::<u64>().prop_map(Value::from),
            1 => any::<f64>().prop_map(|number| json!(number)),
            1 => any::<bool>().prop_map(Value::from),
            1 => Just(Value::Null),
        ];
        leaf.prop_recursive(3, 16, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(nasty(), inner, 0..4).prop_map(|fields| json!(fields)),
            ]
        })
    }

    proptest! {
        #[test]
        fn whatever_is_written_is_written_so_again(value in any_json()) {
            let text = item(&["metadata", "relaviumExport", "messages"], &value).unwrap();
            let yaml = format!("workflow:\n  metadata:\n    relaviumExport:\n      messages:\n{text}");
            prop_assert_eq!(again(&yaml), yaml.clone());
            let read: Value = yaml_serde::from_str(&yaml).unwrap();
            prop_assert_eq!(&read["workflow"]["metadata"]["relaviumExport"]["messages"][0], &value);
        }

        #[test]
        fn pieces_make_the_whole(first in any_json(), second in any_json(), text in nasty()) {
            let pieces = [
                "workflow:\n".to_owned(), field("agents", &json!([first])).unwrap(), "  nodes:\n".to_owned(),
                item(&["nodes"], &second).unwrap(), item(&["nodes"], &json!({"z": text, "a": first})).unwrap(),
            ];
            let value = json!({"workflow": {"nodes": [second, {"z": text, "a": first}], "agents": [first]}});
            prop_assert_eq!(pieces.concat(), whole(&value).unwrap());
        }

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
            let id = workflow_id(&title);
            prop_assert!(id.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-'));
            prop_assert!(!id.is_empty() && !id.starts_with('-') && !id.ends_with('-') && !id.contains("--"));
        }
    }
}
