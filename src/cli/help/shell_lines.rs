//! What acpd is called with in lines of a shell, for tests that hold documents against the command line.

/// Every call of `acpd` in a script: also those in pipelines, in lists, and in `$(…)` and `<(…)`.
pub fn calls(script: &str) -> Vec<Vec<String>> {
    let whole = script.replace("\\\n", " ");
    whole.lines().flat_map(calls_in_line).collect()
}

fn calls_in_line(line: &str) -> Vec<Vec<String>> {
    let mut calls = Vec::new();
    let mut words: Vec<String> = Vec::new();
    let mut word = Word::default();
    let mut characters = line.chars().peekable();
    let mut quote = None;
    while let Some(character) = characters.next() {
        match (quote, character) {
            (Some(open), close) if open == close => quote = None,
            (Some('"'), '\\') => word.push(characters.next().unwrap_or_default()),
            (Some(_), inside) => word.push(inside),
            (None, '\'' | '"') => {
                word.begin();
                quote = Some(character);
            }
            (None, '#') if word.0.is_none() => break,
            (None, space) if space.is_whitespace() => word.end(&mut words),
            (None, '|' | ';' | '&' | '(' | ')' | '`') => {
                word.end(&mut words);
                calls.extend(call(&words));
                words.clear();
            }
            (None, plain) => word.push(plain),
        }
    }
    word.end(&mut words);
    calls.extend(call(&words));
    calls
}

#[derive(Default)]
struct Word(Option<String>);

impl Word {
    fn begin(&mut self) {
        self.0.get_or_insert_default();
    }

    fn push(&mut self, character: char) {
        self.0.get_or_insert_default().push(character);
    }

    fn end(&mut self, words: &mut Vec<String>) {
        words.extend(self.0.take());
    }
}

/// The words from `acpd` on, without redirections; nothing when another program is called.
fn call(words: &[String]) -> Option<Vec<String>> {
    let is_prefix = |word: &&String| {
        let is_assignment =
            word.split_once('=').is_some_and(|(name, _)| name.chars().all(|c| c.is_ascii_uppercase() || c == '_'));
        is_assignment || ["sudo", "exec", "time", "$"].contains(&word.as_str())
    };
    let mut rest = words.iter().skip_while(is_prefix);
    let first = rest.next()?;
    let is_cargo = first == "cargo" && rest.clone().take(2).eq(["run", "--"]);
    if is_cargo {
        rest.nth(1);
    } else if first != "acpd" {
        return None;
    }
    let mut call = vec!["acpd".to_owned()];
    while let Some(word) = rest.next() {
        match word.as_str() {
            ">" | ">>" | "<" | "2>" => drop(rest.next()),
            redirection if redirection.starts_with(['>', '<']) || redirection.starts_with("2>") => {}
            word => call.push(word.to_owned()),
        }
    }
    Some(call)
}

#[test]
fn calls_are_found_wherever_they_stand() {
    let script = "acpd run \"fix it\" # here\ngit diff | acpd run 'a b'\nsource <(acpd completions bash)\n\
        A=1 acpd ls > x 2>&1 && acpd \\\n  status\necho acpd ls\ncargo run -- ls --all\ncurl \"$(acpd socket)\"";
    let found: Vec<String> = calls(script).into_iter().map(|call| call.join("_")).collect();
    let expected =
        ["acpd_run_fix it", "acpd_run_a b", "acpd_completions_bash", "acpd_ls", "acpd_status", "acpd_ls_--all"];
    assert_eq!(found, expected);
}
