//! Command lines, as far as rules look into them.
//!
//! Two questions, and each errs on the safe side. Whether a rule allows a command is asked of its argument vector, and a
//! text that a shell would do anything more with than to cut it into words has none ([`vector`]). Whether a rule forbids
//! a command, or it touches what is guarded, is asked of everything in it that looks like a word, or that a shell could
//! make one of ([`words`]).

use super::CommandText;

/// What git does that nobody is to find done without having been asked.
const GUARDED_SUBCOMMANDS: [&str; 4] = ["commit", "push", "commit-tree", "send-pack"];

/// Stands in a word for whatever a shell puts there: the value of a variable, the output of a command, what a pattern
/// matches.
const UNKNOWN: char = '\u{1}';

/// The arguments of a command that is nothing but a program with its arguments. There are none when a shell would expand,
/// redirect, combine or continue anything in it. Quotes are understood where they make a text plain. Arguments that are
/// given one by one go to no shell, and are what they are.
pub fn vector(command: &CommandText) -> Option<Vec<String>> {
    let arguments = match command {
        CommandText::Arguments(arguments) => arguments.clone(),
        CommandText::Shell(text) => split(text)?,
    };
    Some(arguments).filter(|arguments| !arguments.is_empty())
}

/// Cuts a text into words, when that is all that a shell would do with it.
pub fn split(text: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            ' ' | '\t' => words.extend(word.take()),
            '\'' | '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match characters.next()? {
                        end if end == character => break,
                        '$' | '`' | '\\' | '!' if character == '"' => return None,
                        control if control.is_control() => return None,
                        plain => word.push(plain),
                    }
                }
            }
            plain if is_plain(plain) => word.get_or_insert_default().push(plain),
            _ => return None,
        }
    }
    words.extend(word);
    Some(words)
}

/// Characters that mean themselves to every shell, wherever they stand.
fn is_plain(character: char) -> bool {
    character.is_ascii_alphanumeric() || "_./:=@%+,-".contains(character)
}

/// Everything in a command that could be a word, however it is quoted, escaped or put together. Where a shell puts
/// something in, the word has [`UNKNOWN`].
pub fn words(command: &CommandText) -> Vec<String> {
    let text = match command {
        CommandText::Arguments(arguments) => arguments.join(" "),
        CommandText::Shell(text) => text.clone(),
    };
    let mut words = words_of(&text);
    // A line goes on behind a backslash, unless the backslash itself is escaped. So both are looked at.
    if text.contains("\\\n") {
        words.extend(words_of(&text.replace("\\\n", "")));
    }
    words
}

fn words_of(text: &str) -> Vec<String> {
    // What is quoted behind a `$` is a text like any other, but for its escapes (`has_escapes`).
    let text = text.replace("$'", "").replace("$\"", "");
    let mut characters = text.chars().filter(|character| !matches!(character, '\'' | '"' | '\\')).peekable();
    let mut marked = String::new();
    while let Some(character) = characters.next() {
        match character {
            '$' => {
                marked.push(UNKNOWN);
                match characters.peek() {
                    Some(first) if first.is_ascii_alphabetic() || *first == '_' => {
                        while characters.next_if(|c| c.is_ascii_alphanumeric() || *c == '_').is_some() {}
                    }
                    Some(special) if special.is_ascii_digit() || "@*#?$!-".contains(*special) => {
                        characters.next();
                    }
                    _ => {}
                }
            }
            '*' | '?' => marked.push(UNKNOWN),
            // What is between them is looked at by itself.
            '(' if !marked.ends_with(UNKNOWN) => marked.push(' '),
            '(' | '{' | '[' => marked.extend([UNKNOWN, ' ']),
            ')' | '}' | ']' => marked.extend([' ', UNKNOWN]),
            '`' => marked.extend([UNKNOWN, ' ', UNKNOWN]),
            other => marked.push(other),
        }
    }
    let is_part = |character: char| character.is_alphanumeric() || "_./-".contains(character) || character == UNKNOWN;
    marked.split(|character| !is_part(character)).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

fn is_unknown(word: &str) -> bool {
    word.chars().all(|character| character == UNKNOWN)
}

/// Whether a text for bash spells characters by their numbers: `$'\x67it'`.
fn has_escapes(command: &CommandText) -> bool {
    let has =
        |text: &String| text.split("$'").skip(1).any(|rest| rest.split('\'').next().unwrap_or(rest).contains('\\'));
    match command {
        CommandText::Arguments(arguments) => arguments.iter().any(has),
        CommandText::Shell(text) => has(text),
    }
}

/// Whether a word is another, or may become it.
fn may_be(word: &str, wanted: &str) -> bool {
    let (Some((begin, _)), Some((_, end))) = (word.split_once(UNKNOWN), word.rsplit_once(UNKNOWN)) else {
        return word == wanted;
    };
    // What is nothing but unknown may be anything, and is taken for nothing: else every variable would be a question.
    let is_told = !begin.is_empty() || !end.is_empty();
    let is_long_enough = wanted.len() >= begin.len() + end.len();
    word == wanted || (is_told && is_long_enough && wanted.starts_with(begin) && wanted.ends_with(end))
}

/// Whether the words of a prefix come in this order anywhere in the command, with anything between them. Programs are
/// compared without their directories.
pub fn mentions(command: &CommandText, prefix: &[String]) -> bool {
    let (words, prefix) = (words(command), words(&CommandText::Arguments(prefix.to_vec())));
    let mut rest = words.iter();
    prefix.iter().filter(|wanted| !is_unknown(wanted)).enumerate().all(|(index, wanted)| {
        rest.any(|word| may_be(word, wanted) || (index == 0 && may_be(program(word), program(wanted))))
    })
}

/// Whether it may commit or push, or touches `.git`.
pub fn is_guarded(command: &CommandText) -> bool {
    has_escapes(command) || are_guarded(&words(command))
}

fn are_guarded(words: &[String]) -> bool {
    let is_subcommand = |word: &str| GUARDED_SUBCOMMANDS.iter().any(|subcommand| may_be(word, subcommand));
    let runs_git = words.iter().any(|word| may_be(program(word), "git"));
    let commits = words.iter().any(|word| is_subcommand(word));
    // `git-push` is a program of its own.
    let is_part_of_git = |word: &String| {
        GUARDED_SUBCOMMANDS.iter().any(|subcommand| may_be(program(word), &format!("git-{subcommand}")))
    };
    // Whatever is put in right there is the subcommand, or the program.
    let is_hidden = words.array_windows().any(|[first, second]| {
        (program(first) == "git" && is_unknown(second)) || (is_unknown(first) && is_subcommand(second))
    });
    (runs_git && commits) || is_hidden || words.iter().any(|word| is_part_of_git(word) || names_git_directory(word))
}

/// Whether a directory on the way is a repository's own.
pub fn names_git_directory(path: &str) -> bool {
    path.split('/').any(|component| may_be(&component.to_ascii_lowercase(), ".git"))
}

/// The words that may be paths. Of one that is not known to its end there is the directory that it is in.
pub fn paths(command: &CommandText) -> Vec<String> {
    let path = |word: String| match word.split_once(UNKNOWN) {
        None => Some(word),
        Some((known, _)) => known.rsplit_once('/').map(|(directory, _)| directory.to_owned()),
    };
    words(command).into_iter().filter_map(path).filter(|path| !path.is_empty()).collect()
}

fn program(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(text: &str) -> CommandText {
        CommandText::Shell(text.to_owned())
    }

    #[test]
    fn only_what_is_nothing_but_words_has_a_vector() {
        assert_eq!(vector(&shell("cargo test  --all")).unwrap(), ["cargo", "test", "--all"]);
        assert_eq!(vector(&shell("echo 'a; b' \"c (d)\" e''f")).unwrap(), ["echo", "a; b", "c (d)", "ef"]);
        for text in [
            "",
            "  ",
            "a; b",
            "a | b",
            "a && b",
            "a & b",
            "a > b",
            "a < b",
            "$(a)",
            "`a`",
            "a $b",
            "a \"$b\"",
            "a \"`b`\"",
            "a *",
            "a ?",
            "a [b]",
            "a {b,c}",
            "a ~",
            "a #b",
            "a\nb",
            "a \\\nb",
            "a\\ b",
            "a 'b",
            "a \"b",
            "!a",
            "(a)",
            "a ^b",
            "a\rb",
            "a\0b",
            "a 'b\nc'",
            "caf\u{e9}",
        ] {
            assert_eq!(vector(&shell(text)), None, "{text:?}");
        }
        let arguments =
            |arguments: &[&str]| CommandText::Arguments(arguments.iter().map(|&word| word.into()).collect());
        assert_eq!(vector(&arguments(&["cargo", "test"])).unwrap(), ["cargo", "test"]);
        assert_eq!(vector(&arguments(&["echo", "a b;c"])).unwrap(), ["echo", "a b;c"], "no shell sees them");
        assert_eq!(vector(&arguments(&[])), None);
    }

    #[test]
    fn commits_and_pushes_are_found_wherever_they_stand() {
        for text in [
            "git push",
            "git commit -m x",
            "git -C x push",
            "git -c a=b commit",
            "/usr/bin/git push",
            "env git push",
            "env A=b git push",
            "cd x && git push",
            "sh -c 'git push'",
            "g\\it pu''sh",
            "true;git push",
            "(git push)",
            "git-push x",
            "/usr/lib/git-core/git-commit",
            "sudo git push",
            "rm -rf .git",
            "echo x > .git/hooks/pre-commit",
            "cat a/.GIT/config",
            "git pu\\\nsh",
            "git pu$@sh",
            "git $'pu\\x73h'",
            "git $'push'",
            "git pu{,}sh",
            "git pu$(true)sh",
            "$(echo g)it push",
            "g\"$X\"it ${Y}sh",
            "rm -r .gi?",
            "rm -rf .*",
            "git $X",
            "${X} push",
            "sh -c 'git p$1'",
        ] {
            assert!(is_guarded(&shell(text)), "{text:?}");
        }
        for text in [
            "git status",
            "git diff",
            "echo push",
            "cargo test",
            "git clone https://x/y.git",
            "cat .gitignore",
            "git add src/*.rs",
            "git log $REF",
            "grep 'a$' b",
            "echo {a,b}",
        ] {
            assert!(!is_guarded(&shell(text)), "{text:?}");
        }
        assert!(is_guarded(&CommandText::Arguments(vec!["bash".into(), "-c".into(), "git push".into()])));
    }
}
