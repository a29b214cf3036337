//! Redaction: finds the secrets that acpd gave to agents in rows, events, log lines and responses.
//!
//! [`Secrets`] knows the secrets of each owner, and only grows: a key that was replaced is still a secret. What is replaced or
//! held back shows that acpd knows it. So text of a session is searched for the secrets of the session's owner only
//! ([`OwnerSecrets`]), and other owners' secrets cannot be guessed; only the daemon's log is searched for all. A [`Redactor`]
//! finds values in bytes, text and JSON, as they are and as JSON and Rust's `{:?}` write them, and puts `[redacted:NAME]` in
//! their place. A [`Stream`] does so for text that comes in pieces: it holds back an end that may be the beginning of a value.
//! Values in another encoding, base64 for example, are not found.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use aho_corasick::{AhoCorasick, AhoCorasickKind, BuildError, MatchKind};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

/// Shorter values are found in every other text, and are no secrets worth the name.
const SECRET_BYTES_MIN: usize = 8;
/// Values of one owner that are remembered; of more, the oldest are forgotten.
const KNOWN_MAX: usize = 1024;
/// How often `{:?}` may have quoted a value, or a JSON text with it.
const DEBUG_DEPTH: usize = 2;

/// A secret and what it is called.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Known {
    name: String,
    value: String,
}

impl Known {
    /// Nothing, when the value is too short to be looked for.
    pub fn new(name: &str, value: &str) -> Option<Self> {
        let value = value.trim();
        (value.len() >= SECRET_BYTES_MIN).then(|| Self { name: name.to_owned(), value: value.to_owned() })
    }
}

impl fmt::Debug for Known {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}=[secret]", self.name)
    }
}

/// The secrets that the daemon knows, by owner; `None` is the daemon's own user.
#[derive(Debug, Default)]
pub struct Secrets {
    by_owner: RwLock<BTreeMap<Option<u32>, Arc<Redactor>>>,
    all: RwLock<Option<Arc<Redactor>>>,
}

impl Secrets {
    pub fn of(self: &Arc<Self>, owner: Option<u32>) -> OwnerSecrets {
        OwnerSecrets { secrets: Arc::clone(self), owner }
    }

    /// Finds the secrets of all owners, for the log, which only the daemon's own user reads.
    pub fn redactor_of_all(&self) -> Option<Arc<Redactor>> {
        self.all.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The secrets that one owner's agents were given. The owner can read them there, so that redaction reveals nothing.
#[derive(Clone, Debug)]
pub struct OwnerSecrets {
    secrets: Arc<Secrets>,
    owner: Option<u32>,
}

impl OwnerSecrets {
    /// From here on these are redacted too.
    pub fn learn(&self, more: Vec<Known>) {
        let mut by_owner = self.secrets.by_owner.write().unwrap_or_else(PoisonError::into_inner);
        let mut known = by_owner.get(&self.owner).map(|redactor| redactor.known.clone()).unwrap_or_default();
        let count = known.len();
        let mut seen: HashSet<String> = known.iter().map(|known| known.value.clone()).collect();
        known.extend(more.into_iter().filter(|known| seen.insert(known.value.clone())));
        if known.len() == count {
            return;
        }
        known.drain(..known.len().saturating_sub(KNOWN_MAX));
        let all = Redactor::new(known).and_then(|own| {
            by_owner.insert(self.owner, Arc::new(own));
            let all: BTreeSet<&Known> = by_owner.values().flat_map(|redactor| &redactor.known).collect();
            Redactor::new(all.into_iter().cloned().collect())
        });
        match all {
            Ok(all) => *self.secrets.all.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(all)),
            // The values would have to be gigabytes.
            Err(error) => tracing::error!(%error, "cannot search for new secrets"),
        }
    }

    /// None while the owner has no secrets, so that searching costs nothing.
    pub fn redactor(&self) -> Option<Arc<Redactor>> {
        self.secrets.by_owner.read().unwrap_or_else(PoisonError::into_inner).get(&self.owner).cloned()
    }

    /// The text as its owner may see it.
    pub fn redact(&self, text: &mut String) {
        if let Some(redactor) = self.redactor()
            && let Cow::Owned(redacted) = redactor.text(text)
        {
            *text = redacted;
        }
    }
}

/// Finds secrets.
pub struct Redactor {
    known: Vec<Known>,
    finder: AhoCorasick,
    /// What is looked for, and what is put in its place, each under the number of its pattern.
    patterns: Vec<String>,
    marks: Vec<String>,
    /// Whether a pattern begins with this byte.
    begins: [bool; 256],
    pattern_bytes_max: usize,
}

impl Redactor {
    fn new(known: Vec<Known>) -> Result<Self, BuildError> {
        let (mut patterns, mut marks) = (Vec::new(), Vec::new());
        for Known { name, value } in &known {
            for form in forms(value) {
                patterns.push(form);
                marks.push(format!("[redacted:{name}]"));
            }
        }
        // The kind that grows with the patterns alone: a certificate is a secret too.
        let finder = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .kind(Some(AhoCorasickKind::ContiguousNFA))
            .build(&patterns)?;
        let mut begins = [false; 256];
        patterns.iter().filter_map(|pattern| pattern.bytes().next()).for_each(|byte| begins[usize::from(byte)] = true);
        let pattern_bytes_max = patterns.iter().map(String::len).max().unwrap_or(0);
        Ok(Self { known, finder, patterns, marks, begins, pattern_bytes_max })
    }

    pub fn is_in(&self, bytes: impl AsRef<[u8]>) -> bool {
        self.finder.is_match(bytes.as_ref())
    }

    pub fn bytes<'a>(&self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        if self.is_in(bytes) { self.finder.replace_all_bytes(bytes, &self.marks).into() } else { bytes.into() }
    }

    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        if self.is_in(text) { self.finder.replace_all(text, &self.marks).into() } else { text.into() }
    }

    /// The JSON without its secrets; nothing, when there is none in it. What is replaced are whole texts and numbers, so
    /// that JSON stays JSON.
    pub fn json(&self, raw: &RawValue) -> Option<Box<RawValue>> {
        let is_found = self.is_in(raw.get());
        if !is_found && !has_escaped_ascii(raw.get()) {
            return None;
        }
        let redacted = serde_json::from_str::<Value>(raw.get()).and_then(|value| {
            let redacted = self.value(value.clone());
            (redacted != value).then(|| to_raw_value(&redacted)).transpose()
        });
        match redacted {
            Ok(redacted) => redacted,
            // What is nested too deep to be read, and has a secret, is not kept.
            Err(_) => is_found.then(|| RawValue::NULL.to_owned()),
        }
    }

    fn value(&self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.text(&text).into_owned()),
            Value::Number(number) if self.is_in(number.to_string()) => self.text(&number.to_string()).into(),
            Value::Array(items) => items.into_iter().map(|item| self.value(item)).collect(),
            Value::Object(fields) => {
                fields.into_iter().map(|(name, field)| (self.text(&name).into_owned(), self.value(field))).collect()
            }
            other @ (Value::Null | Value::Bool(_) | Value::Number(_)) => other,
        }
    }

    /// Where the end begins that may be the beginning of a secret.
    fn unclear_from(&self, bytes: &[u8]) -> usize {
        let first = (bytes.len() + 1).saturating_sub(self.pattern_bytes_max);
        let begins = |start: &usize| {
            let end = &bytes[*start..];
            self.begins[usize::from(end[0])]
                && self.patterns.iter().any(|pattern| pattern.len() > end.len() && pattern.as_bytes().starts_with(end))
        };
        (first..bytes.len()).find(begins).unwrap_or(bytes.len())
    }
}

impl fmt::Debug for Redactor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Redactor").field(&self.known).finish()
    }
}

/// What comes in pieces.
#[derive(Default)]
pub struct Stream {
    held: Vec<u8>,
}

impl Stream {
    /// Takes a piece in, and gives what is clear by now.
    pub fn push<'a>(&mut self, redactor: &Redactor, piece: &'a [u8]) -> Cow<'a, [u8]> {
        if self.held.is_empty() && redactor.unclear_from(piece) == piece.len() {
            return redactor.bytes(piece);
        }
        let mut all = std::mem::take(&mut self.held);
        all.extend_from_slice(piece);
        let mut unclear = redactor.unclear_from(&all);
        let (mut clear, mut done) = (Vec::with_capacity(unclear), 0);
        for found in redactor.finder.find_iter(&all) {
            if found.start() >= unclear {
                break;
            }
            clear.extend_from_slice(&all[done..found.start()]);
            clear.extend_from_slice(redactor.marks[found.pattern()].as_bytes());
            done = found.end();
            if done > unclear {
                unclear = done + redactor.unclear_from(&all[done..]);
            }
        }
        clear.extend_from_slice(&all[done..unclear]);
        self.held = all.split_off(unclear);
        clear.into()
    }

    /// The same for text, which stays text.
    pub fn push_text<'a>(&mut self, redactor: &Redactor, piece: &'a str) -> Cow<'a, str> {
        match self.push(redactor, piece.as_bytes()) {
            Cow::Borrowed(_) => Cow::Borrowed(piece),
            Cow::Owned(clear) => Cow::Owned(text_of(clear)),
        }
    }

    /// What was held back, because nothing follows. It may be a secret that begins like a longer one.
    pub fn end(&mut self, redactor: Option<&Redactor>) -> Vec<u8> {
        let held = std::mem::take(&mut self.held);
        redactor.map_or_else(|| held.clone(), |redactor| redactor.bytes(&held).into_owned())
    }

    pub fn end_text(&mut self, redactor: Option<&Redactor>) -> String {
        text_of(self.end(redactor))
    }
}

/// A piece of a secret may be in it.
impl fmt::Debug for Stream {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Stream").field("held_bytes", &self.held.len()).finish()
    }
}

/// Patterns begin and end between characters, so what is cut out of text leaves text.
fn text_of(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// Whether JSON writes characters by their numbers that need it not. Then what is looked for may be there in any form.
fn has_escaped_ascii(json: &str) -> bool {
    let bytes = json.as_bytes();
    memchr::memmem::find_iter(bytes, b"\\u00").any(|at| matches!(bytes.get(at + 4), Some(b'2'..=b'7')))
}

/// The ways in which a value is written: as it is, within the quotes of a JSON text as different writers have it, and within
/// those of `{:?}`, which quotes other quoted text again.
fn forms(value: &str) -> HashSet<String> {
    let quoted = Value::from(value).to_string();
    let quoted = quoted[1..quoted.len() - 1].to_owned();
    let ascii = |write: fn(u16) -> String| -> String {
        let written = |unit| u8::try_from(unit).ok().filter(u8::is_ascii).map(|byte| char::from(byte).to_string());
        quoted.encode_utf16().map(|unit| written(unit).unwrap_or_else(|| write(unit))).collect()
    };
    let lower = ascii(|unit| format!("\\u{unit:04x}"));
    let upper = ascii(|unit| format!("\\u{unit:04X}"));
    // As Go does by default, for pages of the web.
    let for_pages = [("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026")];
    let for_pages = for_pages.iter().fold(quoted.clone(), |text, (plain, escaped)| text.replace(plain, escaped));
    let mut forms = HashSet::from([value.to_owned(), quoted.clone(), lower, upper, for_pages]);
    // Some writers take the meaning from slashes too.
    let slashed: Vec<String> =
        forms.iter().filter(|form| *form != value || quoted == value).map(|form| form.replace('/', "\\/")).collect();
    forms.extend(slashed);
    for _ in 0..DEBUG_DEPTH {
        let debugged: Vec<String> = forms.iter().map(|form| format!("{form:?}")).collect();
        forms.extend(debugged.iter().map(|form| form[1..form.len() - 1].to_owned()));
    }
    forms
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn redactor(values: &[(&str, &str)]) -> Arc<Redactor> {
        let secrets = Arc::new(Secrets::default()).of(None);
        secrets.learn(values.iter().filter_map(|(name, value)| Known::new(name, value)).collect());
        secrets.redactor().unwrap()
    }

    fn json(redactor: &Redactor, text: &str) -> String {
        let raw = RawValue::from_string(text.to_owned()).unwrap();
        redactor.json(&raw).unwrap_or(raw).get().to_owned()
    }

    #[test]
    fn what_is_not_there_costs_nothing() {
        let secrets = Arc::new(Secrets::default()).of(None);
        secrets.learn(Known::new("SHORT", "1234567").into_iter().collect());
        assert!(secrets.redactor().is_none());
        let redactor = redactor(&[("KEY", "hunter2-hunter2")]);
        assert!(matches!(redactor.text("nothing"), Cow::Borrowed("nothing")));
        assert!(matches!(Stream::default().push(&redactor, b"nothing"), Cow::Borrowed(b"nothing")));
        assert!(redactor.json(RawValue::NULL).is_none());
        assert_eq!(format!("{redactor:?}"), "Redactor([KEY=[secret]])");
    }

    #[test]
    fn a_value_is_found_in_every_form_that_json_gives_it() {
        let redactor = redactor(&[
            ("A", "pa\"ss\\wo/rd\n1"),
            ("B", "schlüssel-🗝"),
            ("C", "longer-secret"),
            ("D", "longer-secret-yet"),
            ("E", "a<b>&c=d&e"),
        ]);
        for text in ["pa\"ss\\wo/rd\n1", r#"pa\"ss\\wo/rd\n1"#, r#"pa\"ss\\wo\/rd\n1"#] {
            assert_eq!(redactor.text(&format!("<{text}>")), "<[redacted:A]>", "{text}");
        }
        for text in ["schlüssel-🗝", r"schl\u00fcssel-\ud83d\udddd", r"schl\u00FCssel-\uD83D\uDDDD"] {
            assert_eq!(redactor.text(text), "[redacted:B]", "{text}");
        }
        assert_eq!(redactor.text(r"a\u003cb\u003e\u0026c=d\u0026e"), "[redacted:E]");
        assert_eq!(redactor.text("longer-secret-yet longer-secret"), "[redacted:D] [redacted:C]");
        assert_eq!(redactor.bytes(b"\xfflonger-secret").as_ref(), b"\xff[redacted:C]");
    }

    #[test]
    fn json_stays_json() {
        let redactor = redactor(&[("N", "12345678"), ("W", "nabcdefg"), ("K", "a-long-key")]);
        assert_eq!(
            json(&redactor, r#"{"n":12345678,"m":[1.5,true,null]}"#),
            r#"{"n":"[redacted:N]","m":[1.5,true,null]}"#
        );
        assert_eq!(json(&redactor, r#"["\nabcdefg"]"#), r#"["\nabcdefg"]"#, "a line's end and no n");
        assert_eq!(
            json(&redactor, r#"{"a-long-key":{"x":"see a-long-key"}}"#),
            r#"{"[redacted:K]":{"x":"see [redacted:K]"}}"#
        );
        let escaped = r#"["\u0061-long-\u006bey", "\u0041"]"#;
        assert_eq!(json(&redactor, escaped), r#"["[redacted:K]","A"]"#, "written by number without need");
        assert_eq!(json(&redactor, r#"[ "\u0041" ]"#), r#"[ "\u0041" ]"#, "left as it is");
        let deep = format!("{}\"a-long-key\"{}", "[".repeat(1000), "]".repeat(1000));
        assert_eq!(json(&redactor, &deep), "null");
    }

    #[test]
    fn an_end_that_may_begin_a_secret_is_held_back() {
        let redactor = redactor(&[("A", "secret-one"), ("B", "secret-one-and-more"), ("C", "xxsecret")]);
        let mut stream = Stream::default();
        let mut push = |piece: &str| stream.push_text(&redactor, piece).into_owned();
        assert_eq!(push("say secr"), "say ");
        assert_eq!(push("ecy"), "secrecy");
        assert_eq!(push("secret-one"), "", "it may be the longer one");
        assert_eq!(push("!"), "[redacted:A]!");
        assert_eq!(push("xxsecret"), "[redacted:C]", "it is over, although another one may begin in it");
        assert_eq!(push("secret-one-and-m"), "");
        assert_eq!(push("ore, s"), "[redacted:B], ");
        assert_eq!(stream.end_text(Some(&redactor)), "s");
        assert_eq!(stream.end_text(Some(&redactor)), "");
        stream.push(&redactor, b"secret-one");
        assert_eq!(stream.end_text(Some(&redactor)), "[redacted:A]");
    }

    #[test]
    fn debug_formatting_hides_no_secret() {
        let value = "pa\"ss'w\\rd\u{1b}\u{200b}\n1";
        let (json, debug) = (Value::from(value).to_string(), format!("{value:?}"));
        for text in [format!("{json:?}"), format!("{debug:?}"), Value::from(debug.as_str()).to_string(), debug] {
            assert!(!redactor(&[("A", value)]).text(&text).contains("ss"), "{text}");
        }
    }

    #[test]
    fn what_was_replaced_is_still_known_and_owners_share_no_room() {
        let secrets = Arc::new(Secrets::default());
        let learn = |owner, value: &str| secrets.of(owner).learn(Known::new("KEY", value).into_iter().collect());
        for (owner, value) in
            [(None, "first-key"), (None, "second-key"), (None, "first-key"), (Some(1), "first-key-and-more")]
        {
            learn(owner, value);
        }
        (0..=KNOWN_MAX).for_each(|number| learn(Some(2), &format!("one-of-many-{number}")));
        let text = "first-key second-key first-key-and-more one-of-many-0 one-of-many-1";
        let redacted = |redactor: Option<Arc<Redactor>>| redactor.unwrap().text(text).replace("[redacted:KEY]", "*");
        assert_eq!(redacted(secrets.of(None).redactor()), "* * *-and-more one-of-many-0 one-of-many-1");
        assert_eq!(redacted(secrets.of(Some(1)).redactor()), "first-key second-key * one-of-many-0 one-of-many-1");
        assert_eq!(redacted(secrets.redactor_of_all()), "* * * one-of-many-0 *");
        assert!(secrets.of(Some(3)).redactor().is_none(), "an owner without secrets costs nothing");
    }

    proptest! {
        #[test]
        fn how_the_text_is_cut_makes_no_difference(
            text in "(abcabcab|cabcabca|[abc])*",
            cuts in proptest::collection::vec(0usize..8, 1..40),
        ) {
            let redactor = redactor(&[("A", "abcabcab"), ("B", "abcabcabcab"), ("C", "cabcabca")]);
            let mut stream = Stream::default();
            let (mut out, mut rest) = (String::new(), text.as_str());
            for cut in cuts {
                let (piece, after) = rest.split_at(cut.min(rest.len()));
                out.push_str(&stream.push_text(&redactor, piece));
                rest = after;
            }
            out.push_str(&stream.push_text(&redactor, rest));
            out.push_str(&stream.end_text(Some(&redactor)));
            prop_assert_eq!(out, redactor.text(&text));
        }
    }
}
