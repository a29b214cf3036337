//! The syntax of a file of variables, which is that of systemd's `EnvironmentFile=`.
//!
//! ```text
//! # a comment            ; another one
//! NAME=value             blanks around the value do not count, and a \ takes the meaning from what follows it
//! export NAME="a \"value\" over
//! two lines"             within double quotes \ stands before " \ ` $ only
//! NAME='as it is'        within single quotes it does not
//! ```

use std::iter::Peekable;
use std::str::Chars;

#[derive(Debug, PartialEq, Eq)]
pub struct SyntaxError {
    pub line: usize,
    pub problem: &'static str,
}

/// The names and values in their order. A name that comes again is there again.
pub fn parse(bytes: &[u8]) -> Result<Vec<(String, String)>, SyntaxError> {
    let text = std::str::from_utf8(bytes).map_err(|error| SyntaxError {
        line: memchr::memchr_iter(b'\n', &bytes[..error.valid_up_to()]).count() + 1,
        problem: "is not UTF-8",
    })?;
    let mut reader = Reader { rest: text.chars().peekable(), line: 1 };
    let mut variables = Vec::new();
    while let Some(first) = reader.rest.peek().copied() {
        match first {
            first if first.is_whitespace() => drop(reader.next()),
            '#' | ';' => reader.skip_line(),
            _ => variables.push(reader.variable()?),
        }
    }
    Ok(variables)
}

/// The text with this variable set, and everything else as it was.
pub fn set(text: &str, name: &str, value: &str) -> Result<String, SyntaxError> {
    let escape = |character| matches!(character, '"' | '\\' | '`' | '$').then_some('\\').into_iter().chain([character]);
    let line = format!("{name}=\"{}\"\n", value.chars().flat_map(escape).collect::<String>());
    let mut reader = Reader { rest: text.chars().peekable(), line: 1 };
    let (mut kept, mut is_set) = (String::new(), false);
    let mut begin = 0;
    while let Some(first) = reader.rest.peek().copied() {
        let is_it = match first {
            first if first.is_whitespace() => reader.next().is_none(),
            '#' | ';' => {
                reader.skip_line();
                false
            }
            _ => reader.variable()?.0 == name,
        };
        let end = text.len() - reader.rest.clone().map(char::len_utf8).sum::<usize>();
        kept.push_str(match (is_it, is_set) {
            (false, _) => &text[begin..end],
            (true, false) => &line,
            (true, true) => "",
        });
        is_set |= is_it;
        begin = end;
    }
    if !is_set {
        let gap = if kept.is_empty() || kept.ends_with('\n') { "" } else { "\n" };
        kept = format!("{kept}{gap}{line}");
    }
    Ok(kept)
}

struct Reader<'a> {
    rest: Peekable<Chars<'a>>,
    line: usize,
}

impl Reader<'_> {
    fn next(&mut self) -> Option<char> {
        let next = self.rest.next();
        self.line += usize::from(next == Some('\n'));
        next
    }

    fn skip_line(&mut self) {
        while !matches!(self.next(), None | Some('\n')) {}
    }

    fn variable(&mut self) -> Result<(String, String), SyntaxError> {
        let line = self.line;
        let wrong = |problem| SyntaxError { line, problem };
        let mut name = String::new();
        loop {
            match self.rest.peek() {
                Some('=') => break,
                None | Some('\n') => return Err(wrong("has no =")),
                Some(character) => name.push(*character),
            }
            self.next();
        }
        self.next();
        let name = name.trim();
        let name = name.strip_prefix("export ").map_or(name, str::trim_start);
        let is_name = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
            && name.chars().all(|character| character.is_ascii_alphanumeric() || character == '_');
        if !is_name {
            return Err(wrong("has an invalid variable name before the ="));
        }
        let value = self.value(line)?;
        if value.contains('\0') {
            return Err(wrong("has a zero byte, which a variable cannot contain"));
        }
        Ok((name.to_owned(), value))
    }

    /// Everything up to the end of the line that is neither quoted nor continued.
    fn value(&mut self, line: usize) -> Result<String, SyntaxError> {
        let mut value = String::new();
        // How much of it was quoted or escaped: blanks there are meant.
        let mut meant = 0;
        while self.rest.next_if(|character| matches!(character, ' ' | '\t')).is_some() {}
        while let Some(character) = self.next() {
            match character {
                '\n' => break,
                '\\' => match self.next() {
                    None | Some('\n') => continue,
                    Some(escaped) => value.push(escaped),
                },
                '"' | '\'' => self
                    .quoted(character, &mut value)
                    .ok_or(SyntaxError { line, problem: "starts a quotation that does not end" })?,
                _ => {
                    value.push(character);
                    continue;
                }
            }
            meant = value.len();
        }
        value.truncate(meant.max(value.trim_end().len()));
        Ok(value)
    }

    fn quoted(&mut self, quote: char, value: &mut String) -> Option<()> {
        loop {
            match self.next()? {
                end if end == quote => return Some(()),
                '\\' if quote == '"' => match self.next()? {
                    '\n' => {}
                    escaped @ ('"' | '\\' | '`' | '$') => value.push(escaped),
                    other => value.extend(['\\', other]),
                },
                character => value.push(character),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_systemd_reads_them() {
        let parsed = |text: &str| parse(text.as_bytes()).map(|variables| variables.into_iter().next());
        for (text, name, value) in [
            ("KEY=value", "KEY", "value"),
            ("\n# comment\n; comment\n  KEY = value with blanks \t\r\n", "KEY", "value with blanks"),
            ("export KEY=value", "KEY", "value"),
            ("KEY=", "KEY", ""),
            ("KEY=a=b#c", "KEY", "a=b#c"),
            ("KEY=\"a \\\"b\\\" \\\\ \\n $x\"", "KEY", "a \"b\" \\ \\n $x"),
            ("KEY='a \"b\" \\ '", "KEY", "a \"b\" \\ "),
            ("KEY=\"two\nlines\"", "KEY", "two\nlines"),
            ("KEY='a'\"b\"c", "KEY", "abc"),
            ("KEY=a\\\nb", "KEY", "ab"),
            ("KEY=a\\ ", "KEY", "a "),
            ("_k1=ü", "_k1", "ü"),
        ] {
            assert_eq!(parsed(text), Ok(Some((name.to_owned(), value.to_owned()))), "{text:?}");
        }
        assert_eq!(parsed("# only a comment"), Ok(None));
        let two = parse(b"A='x'\nB=y\n").unwrap();
        assert_eq!(two, [("A", "x"), ("B", "y")].map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    #[test]
    fn a_variable_is_replaced_and_the_rest_stays() {
        let before = "# mine\nA='two\nlines'\nexport B=old\nC=3\nB=older";
        assert_eq!(set(before, "B", "new").unwrap(), "# mine\nA='two\nlines'\nB=\"new\"\nC=3\n");
        assert_eq!(set("A=1", "B", "x").unwrap(), "A=1\nB=\"x\"\n");
        let value = "a \"b\" \\ `c` $d 'e' #f";
        let text = set("", "KEY", value).unwrap();
        assert_eq!(parse(text.as_bytes()).unwrap(), [("KEY".to_owned(), value.to_owned())]);
        assert!(set("no variable\n", "B", "x").is_err());
    }

    #[test]
    fn what_is_wrong_is_told_by_its_line() {
        for (text, line) in [
            (&b"A=1\nhunter2\n"[..], 2),
            (b"A='1\n2'\n3=x", 3),
            (b"A=1\n\nB='x", 3),
            (b"A B=1", 1),
            (b"=1", 1),
            (b"A=\0", 1),
            (b"A=1\n\xff", 2),
        ] {
            assert_eq!(parse(text).map_err(|error| error.line), Err(line), "{text:?}");
        }
    }
}
