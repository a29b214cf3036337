//! What people type becomes an expression that FTS5 takes, or a refusal that says what is wrong.
//!
//! Nothing of the text reaches FTS5 but inside quotes, so that no text is a syntax error of the database. Words are all
//! wanted; `src/main.rs`, `foo-bar` and `it's` are each one phrase. On purpose are only `"a phrase"`, `prefix*`, `AND`,
//! `OR` and `NOT` in capitals, also right before a `(`, parentheses around words, and `NEAR(a b, 5)`:
//!
//! ```text
//! either  := both (OR both)*
//! both    := without (AND without)*
//! without := together (NOT together)*
//! together := item+                       as in FTS5, words side by side hold together the most
//! item    := word | "phrase" | NEAR(…) | ( either )
//! ```

use std::fmt::Write;

/// What is longer was not typed.
const CHARS_MAX: usize = 1000;
const ITEMS_MAX: usize = 64;
const DEPTH_MAX: usize = 16;
/// How far apart the words of NEAR may be, when it does not say.
const NEAR_WORDS: u32 = 10;
const NEAR_WORDS_MAX: u32 = 1000;

/// A search that makes sense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchQuery {
    expression: String,
}

/// Why a search makes none, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct SearchQueryError {
    pub problem: String,
    pub hint: &'static str,
}

const QUOTES: &str = "put phrases in quotes, as in \"exit code\"";
const OPERATORS: &str = "put AND, OR and NOT in capitals between words; write them in lower case to search for them \
    as words";
const BRACKETS: &str = "close every ( with a ); inside a word, as in main(), this is not needed";
const NEAR: &str = "write NEAR(word other), or NEAR(word other, 5) to set the largest distance in words";
const WORDS: &str = "give at least one word; \"a phrase\", prefix*, AND, OR, NOT and NEAR(a b) are supported";
const PREFIX: &str = "give at least two letters before the *";
const SHORTER: &str = "shorten the query";

impl SearchQuery {
    pub fn parse(text: &str) -> Result<Self, SearchQueryError> {
        if text.chars().count() > CHARS_MAX {
            return Err(refused(format!("is longer than {CHARS_MAX} characters"), SHORTER));
        }
        let tokens = tokens(text)?;
        if tokens.iter().filter(|token| matches!(token, Token::Item(_))).count() > ITEMS_MAX {
            return Err(refused(format!("has more than {ITEMS_MAX} words"), SHORTER));
        }
        if !tokens.iter().any(|token| matches!(token, Token::Item(_))) {
            return Err(refused("has no word to search for", WORDS));
        }
        let mut parser = Parser { tokens: &tokens, depth: 0 };
        let expression = parser.either()?;
        match parser.tokens.first() {
            None => Ok(Self { expression }),
            Some(_) => Err(refused("has a ) without a (", BRACKETS)),
        }
    }

    /// For MATCH.
    pub fn expression(&self) -> &str {
        &self.expression
    }
}

fn refused(problem: impl Into<String>, hint: &'static str) -> SearchQueryError {
    SearchQueryError { problem: problem.into(), hint }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    /// An expression of FTS5 already.
    Item(String),
    And,
    Or,
    Not,
    Open,
    Close,
}

/// Whether the tokenizer finds a word in it. Signs alone are none.
fn has_word(text: &str) -> bool {
    text.chars().any(char::is_alphanumeric)
}

/// Text as a phrase. A prefix is one of its last word.
fn phrase(text: &str, is_prefix: bool) -> String {
    // The database takes a text with a NUL for one that ends there.
    let text = text.replace('\0', " ").replace('"', "\"\"");
    format!("\"{text}\"{}", if is_prefix { " *" } else { "" })
}

/// Text as an expression; none when there are only signs in it.
fn item(text: &str, is_prefix: bool) -> Result<Option<String>, SearchQueryError> {
    // A third of all words may begin with a letter. Of ideographs, which are three bytes or more, there are enough.
    let last = text.trim_end_matches(|sign: char| !sign.is_alphanumeric());
    let last = last.rsplit(|sign: char| !sign.is_alphanumeric()).next().unwrap_or_default();
    if is_prefix && has_word(text) && last.chars().count() < 2 && last.len() < 3 {
        return Err(refused("has a * after a single letter", PREFIX));
    }
    Ok(has_word(text).then(|| phrase(text, is_prefix)))
}

fn tokens(text: &str) -> Result<Vec<Token>, SearchQueryError> {
    let mut tokens = Vec::new();
    let mut depth = 0_usize;
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        if first == '(' {
            tokens.push(Token::Open);
            depth += 1;
            rest = &rest[1..];
        } else if first == ')' && depth > 0 {
            tokens.push(Token::Close);
            depth -= 1;
            rest = &rest[1..];
        } else if first == '"' {
            let (item, after) = quoted(rest)?;
            tokens.extend(item.map(Token::Item));
            rest = after;
        } else if let Some(inside) = rest.strip_prefix("NEAR").and_then(|after| after.trim_start().strip_prefix('(')) {
            let (item, after) = near(inside)?;
            tokens.push(Token::Item(item));
            rest = after;
        } else {
            let (word, after) = word(rest, depth);
            let (token, after) = match operator(rest) {
                Some((token, after)) => (Some(token), after),
                None => (bare(word)?.map(Token::Item), after),
            };
            tokens.extend(token);
            rest = after;
        }
        rest = rest.trim_start();
    }
    if depth > 0 {
        return Err(refused("has a ( without a )", BRACKETS));
    }
    Ok(tokens)
}

/// The operator at the beginning, and what follows it. A bracket may be the end of it.
fn operator(text: &str) -> Option<(Token, &str)> {
    [("AND", Token::And), ("OR", Token::Or), ("NOT", Token::Not)].into_iter().find_map(|(name, token)| {
        let after = text.strip_prefix(name)?;
        let ends = |next: char| next.is_whitespace() || "()".contains(next);
        after.chars().next().is_none_or(ends).then_some((token, after))
    })
}

/// The word at the beginning, and what follows it. Closing brackets at its end that it does not open itself close a group.
fn word(text: &str, depth: usize) -> (&str, &str) {
    let end = text.find(char::is_whitespace).unwrap_or(text.len());
    let mut word = &text[..end];
    let count = |word: &str, bracket| word.chars().filter(|character| *character == bracket).count();
    for _ in 0..depth {
        match word.strip_suffix(')') {
            Some(shorter) if count(word, ')') > count(word, '(') => word = shorter,
            _ => break,
        }
    }
    (word, &text[word.len()..])
}

/// A word that nobody quoted; none when there are only signs in it.
fn bare(word: &str) -> Result<Option<String>, SearchQueryError> {
    if word.contains('"') {
        return Err(refused("has a quote in the middle of a word", QUOTES));
    }
    let (text, is_prefix) = word.strip_suffix('*').map_or((word, false), |text| (text, true));
    // Only what the word ends with can go on: of `c++*` the tokenizer would make every word that begins with c.
    let is_prefix = is_prefix && text.ends_with(char::is_alphanumeric);
    item(text, is_prefix)
}

/// The phrase at the beginning, whose quotes are doubled inside, and what follows it.
fn quoted(text: &str) -> Result<(Option<String>, &str), SearchQueryError> {
    let mut inside = String::new();
    let mut rest = &text[1..];
    loop {
        let (piece, after) =
            rest.split_once('"').ok_or_else(|| refused("has an opening \" without a closing one", QUOTES))?;
        inside.push_str(piece);
        rest = after;
        let Some(further) = after.strip_prefix('"') else { break };
        inside.push('"');
        rest = further;
    }
    let (rest, is_prefix) = rest.strip_prefix('*').map_or((rest, false), |rest| (rest, true));
    Ok((item(&inside, is_prefix)?, rest))
}

/// What is after `NEAR(`, and what follows its end.
fn near(text: &str) -> Result<(String, &str), SearchQueryError> {
    let mut items = Vec::new();
    let mut distance = NEAR_WORDS;
    let mut rest = text.trim_start();
    loop {
        if let Some(after) = rest.strip_prefix(')') {
            if items.len() < 2 {
                return Err(refused("has a NEAR with fewer than two words", NEAR));
            }
            return Ok((format!("NEAR({}, {distance})", items.join(" ")), after));
        }
        if let Some(after) = rest.strip_prefix(',') {
            let (number, _) = after.split_once(')').ok_or_else(|| refused("has a NEAR without its )", NEAR))?;
            let number = number.trim().parse().ok().filter(|number| *number <= NEAR_WORDS_MAX);
            let problem = || refused(format!("has a NEAR whose distance is not a number up to {NEAR_WORDS_MAX}"), NEAR);
            distance = number.ok_or_else(problem)?;
            rest = &after[after.find(')').unwrap_or(0)..];
        } else if rest.starts_with('"') {
            let (item, after) = quoted(rest)?;
            items.extend(item);
            rest = after.trim_start();
        } else {
            let end = rest.find(|character: char| character.is_whitespace() || ",)".contains(character));
            let end = end.ok_or_else(|| refused("has a NEAR without its )", NEAR))?;
            items.extend(bare(&rest[..end])?);
            rest = rest[end..].trim_start();
        }
        if items.len() > ITEMS_MAX {
            return Err(refused(format!("has more than {ITEMS_MAX} words"), SHORTER));
        }
    }
}

struct Parser<'a> {
    tokens: &'a [Token],
    depth: usize,
}

impl Parser<'_> {
    fn take(&mut self, wanted: &Token) -> bool {
        match self.tokens.split_first() {
            Some((token, rest)) if token == wanted => {
                self.tokens = rest;
                true
            }
            _ => false,
        }
    }

    fn either(&mut self) -> Result<String, SearchQueryError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(refused(format!("has brackets nested more than {DEPTH_MAX} deep"), SHORTER));
        }
        let expression = self.chain(&Token::Or, "OR", Self::both)?;
        self.depth -= 1;
        Ok(expression)
    }

    fn both(&mut self) -> Result<String, SearchQueryError> {
        self.chain(&Token::And, "AND", Self::without)
    }

    fn without(&mut self) -> Result<String, SearchQueryError> {
        self.chain(&Token::Not, "NOT", Self::together)
    }

    fn chain(
        &mut self,
        operator: &Token,
        name: &str,
        part: impl Fn(&mut Self) -> Result<String, SearchQueryError>,
    ) -> Result<String, SearchQueryError> {
        let mut expression = part(self)?;
        while self.take(operator) {
            let next = part(self)?;
            expression = format!("({expression} {name} {next})");
        }
        Ok(expression)
    }

    fn together(&mut self) -> Result<String, SearchQueryError> {
        let mut expression = self.item()?;
        while matches!(self.tokens.first(), Some(Token::Item(_) | Token::Open)) {
            let next = self.item()?;
            let _ = write!(expression, " AND {next}");
        }
        Ok(format!("({expression})"))
    }

    fn item(&mut self) -> Result<String, SearchQueryError> {
        let (token, rest) = match self.tokens.split_first() {
            Some((token, rest)) => (Some(token), rest),
            None => (None, self.tokens),
        };
        self.tokens = rest;
        match token {
            Some(Token::Item(item)) => Ok(item.clone()),
            Some(Token::Open) => {
                let expression = self.either()?;
                if self.take(&Token::Close) { Ok(expression) } else { Err(refused("has a ( without a )", BRACKETS)) }
            }
            Some(Token::Close) => Err(refused("has brackets that end without a word", BRACKETS)),
            Some(Token::And) => Err(refused("has an AND without a word before it", OPERATORS)),
            Some(Token::Or) => Err(refused("has an OR without a word before it", OPERATORS)),
            Some(Token::Not) => Err(refused("has a NOT without a word before it", OPERATORS)),
            None => Err(refused("ends with an AND, OR or NOT", OPERATORS)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn expression(text: &str) -> String {
        SearchQuery::parse(text).unwrap_or_else(|error| panic!("{text:?}: {error}")).expression
    }

    fn problem(text: &str) -> String {
        SearchQuery::parse(text).expect_err(text).problem
    }

    #[test]
    fn what_people_type_is_looked_for_as_it_stands() {
        assert_eq!(expression("hello world"), r#"("hello" AND "world")"#);
        assert_eq!(expression("src/main.rs foo-bar"), r#"("src/main.rs" AND "foo-bar")"#);
        assert_eq!(expression("it's C++ main()"), r#"("it's" AND "C++" AND "main()")"#);
        assert_eq!(expression("a + b :( -- and or not"), r#"("a" AND "b" AND "and" AND "or" AND "not")"#);
        assert_eq!(expression("text:foo ^bar"), r#"("text:foo" AND "^bar")"#);
        assert_eq!(expression("a\0b"), r#"("a b")"#);
    }

    #[test]
    fn what_is_meant_as_syntax_is_syntax() {
        assert_eq!(expression(r#""exit code" 1"#), r#"("exit code" AND "1")"#);
        assert_eq!(expression(r#""say ""hi""""#), r#"("say ""hi""")"#);
        assert_eq!(expression("migrat* \"schema ver\"*"), r#"("migrat" * AND "schema ver" *)"#);
        assert_eq!(expression("a b OR c"), r#"(("a" AND "b") OR ("c"))"#);
        assert_eq!(expression("a NOT (b OR main())"), r#"(("a") NOT ((("b") OR ("main()"))))"#);
        assert_eq!(expression("NEAR(a \"b c\", 5) d"), r#"(NEAR("a" "b c", 5) AND "d")"#);
        assert_eq!(expression("NEAR (a b)"), expression("NEAR(a b)"));
        assert_eq!(expression("a OR(b c)"), expression("a OR (b c)"));
        assert_eq!(expression("(a) AND(b) NOT(c)"), expression("(a) AND (b) NOT (c)"));
        assert_eq!(expression("ANDROID ORDER() NEARBY"), r#"("ANDROID" AND "ORDER()" AND "NEARBY")"#);
        assert_eq!(expression("c++* 字* ab*"), r#"("c++" AND "字" * AND "ab" *)"#);
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_what_is_wrong() {
        assert_eq!(problem(""), "has no word to search for");
        assert_eq!(problem(" +-*/ \"...\" "), "has no word to search for");
        assert_eq!(problem("say \"hello"), "has an opening \" without a closing one");
        assert_eq!(problem("say 5\" disk"), "has a quote in the middle of a word");
        assert_eq!(problem("a OR"), "ends with an AND, OR or NOT");
        assert_eq!(problem("NOT a"), "has a NOT without a word before it");
        assert_eq!(problem("a AND OR b"), "has an OR without a word before it");
        assert_eq!(problem("(a b"), "has a ( without a )");
        assert_eq!(problem("(a OR)"), "has brackets that end without a word");
        for prefix in ["w*", "ü*", "long.x*", "\"some w\"*", "NEAR(ab c*)"] {
            assert_eq!(problem(prefix), "has a * after a single letter", "{prefix}");
        }
        assert_eq!(problem("NEAR(a)"), "has a NEAR with fewer than two words");
        assert_eq!(problem("NEAR(a b, x)"), "has a NEAR whose distance is not a number up to 1000");
        assert_eq!(problem("NEAR(a b"), "has a NEAR without its )");
        assert_eq!(problem(&"x".repeat(1001)), "is longer than 1000 characters");
        assert_eq!(problem(&"x ".repeat(65)), "has more than 64 words");
        assert_eq!(problem(&format!("{}a{}", "(".repeat(17), ")".repeat(17))), "has brackets nested more than 16 deep");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        /// Whatever is typed, FTS5 takes what is made of it.
        #[test]
        fn every_text_is_an_expression_or_refused(texts in proptest::collection::vec(typed(), 64)) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                use sqlx::Connection;
                let mut connection = sqlx::SqliteConnection::connect("sqlite::memory:").await.unwrap();
                sqlx::query("CREATE VIRTUAL TABLE t USING fts5 (text)").execute(&mut connection).await.unwrap();
                for text in texts {
                    let Ok(query) = SearchQuery::parse(&text) else { continue };
                    let found = sqlx::query("SELECT * FROM t WHERE t MATCH ?").bind(query.expression());
                    let found = found.fetch_all(&mut connection).await;
                    assert!(found.is_ok(), "{text:?} became {:?}: {found:?}", query.expression());
                }
            });
        }
    }

    fn typed() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            prop::sample::select(vec![
                "\"", "\"\"", "(", ")", " ", "*", "AND", "OR", "NOT", "NEAR(", ", 3)", ":", "-", "^", "+", "a", "foo",
                "\0", "日本", "é", "{", "}", "'", ";", "\u{301}", "\u{200b}",
            ])
            .prop_map(str::to_owned),
            ".{0,6}",
        ];
        proptest::collection::vec(piece, 0..12).prop_map(|pieces| pieces.join(""))
    }
}
