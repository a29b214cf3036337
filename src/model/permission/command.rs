//! Command lines, as far as rules look into them.
//!
//! Two questions, and each errs on the safe side. Whether a rule allows a command is asked of its argument vector, and a
//! text that a shell would do anything more with than to cut it into words has none ([`vector`]). Whether a rule forbids
//! a command, or it touches what is guarded, is asked of everything in it that looks like a word ([`words`]).

use super::CommandText;

/// What git does that nobody is to find done without having been asked.
const GUARDED_SUBCOMMANDS: [&str; 4] = ["commit", "push", "commit-tree", "send-pack"];

/// The arguments of a command that is nothing but a program with its arguments. There are none when a shell would expand,
/// redirect, combine or continue anything in it. Quotes are understood where they make a text plain.
pub fn vector(command: &CommandText) -> Option<Vec<String>> {
    let arguments = match command {
        // Nobody knows whether the agent puts them together for a shell again, so they have to be plain too.
        CommandText::Arguments(arguments) => {
            arguments.iter().all(|argument| argument.chars().all(is_plain)).then(|| arguments.clone())?
        }
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

/// Everything in a command that could be a word, however it is quoted, escaped or put together.
pub fn words(command: &CommandText) -> Vec<String> {
    let text = match command {
        CommandText::Arguments(arguments) => arguments.join(" "),
        CommandText::Shell(text) => text.clone(),
    };
    let text: String = text.chars().filter(|character| !matches!(character, '\'' | '"' | '\\')).collect();
    let is_part = |character: char| character.is_alphanumeric() || "_./-".contains(character);
    text.split(|character| !is_part(character)).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

/// Whether the words of a prefix come in this order anywhere in the command, with anything between them. Programs are
/// compared without their directories.
pub fn mentions(command: &CommandText, prefix: &[String]) -> bool {
    let words = words(command);
    let mut rest = words.iter();
    prefix
        .iter()
        .enumerate()
        .all(|(index, wanted)| rest.any(|word| word == wanted || (index == 0 && program(word) == program(wanted))))
}

/// Whether it may commit or push, or touches `.git`.
pub fn is_guarded(command: &CommandText) -> bool {
    are_guarded(&words(command))
}

pub fn are_guarded(words: &[String]) -> bool {
    let runs_git = words.iter().any(|word| program(word) == "git");
    let commits = words.iter().any(|word| GUARDED_SUBCOMMANDS.contains(&word.as_str()));
    // `git-push` is a program of its own.
    let is_part_of_git = |word: &String| {
        program(word).strip_prefix("git-").is_some_and(|subcommand| GUARDED_SUBCOMMANDS.contains(&subcommand))
    };
    (runs_git && commits) || words.iter().any(|word| is_part_of_git(word) || names_git_directory(word))
}

/// Whether a directory on the way is a repository's own.
pub fn names_git_directory(path: &str) -> bool {
    path.split('/').any(|component| component.eq_ignore_ascii_case(".git"))
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
        assert_eq!(vector(&arguments(&["cargo", "test;rm"])), None);
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
        ] {
            assert!(is_guarded(&shell(text)), "{text:?}");
        }
        for text in ["git status", "git diff", "echo push", "cargo test", "git clone https://x/y.git", "cat .gitignore"]
        {
            assert!(!is_guarded(&shell(text)), "{text:?}");
        }
        assert!(is_guarded(&CommandText::Arguments(vec!["bash".into(), "-c".into(), "git push".into()])));
    }
}
