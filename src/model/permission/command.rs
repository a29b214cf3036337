//! Command lines, as far as rules look into them.
//!
//! Two questions, and each errs on the safe side. Whether a rule allows a command is asked of its argument vector, and a
//! text that a shell would do anything more with than to cut it into words has none ([`vector`]). Whether a rule forbids
//! a command, or it touches what is guarded, is asked of everything in it that looks like a word, or that a shell could
//! make one of ([`words`]).

use super::CommandText;

/// What git does without changing anything. Every other verb is guarded, and so is an alias.
const READING: &str = "annotate blame cat-file check-attr check-ignore cherry count-objects describe diff diff-files \
                       diff-index diff-tree for-each-ref grep log ls-files ls-tree merge-base name-rev range-diff rev-list \
                       rev-parse shortlog show show-branch show-ref status version whatchanged";
/// Verbs that only read with this next word.
const READING_WITH: &str = "branch --show-current,reflog show,remote get-url,stash list,worktree list";
/// Options before the verb that neither run anything nor lead elsewhere.
const HARMLESS: &str =
    "--help --literal-pathspecs --no-optional-locks --no-pager --no-replace-objects --version -P -h -v";
/// Options by which reading verbs write or run something. git accepts their beginnings, too.
const ACTING: &str = "--ext-diff --filters --open-files-in-pager --output --textconv";
/// Verbs that are recognized where the program is not.
const WRITING: &str = "am cherry-pick commit commit-tree http-push merge pull push rebase revert send-pack update-ref";
/// Programs that add words to the end of a command.
const EXTENDING: &str = "parallel xargs";

/// Stands in a word for what a shell puts there: the value of a variable, or the output of a command.
const UNKNOWN: char = '\u{1}';
/// Stands in a word for a glob.
const GLOB: char = '\u{2}';

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

/// Whether a command begins with variables of its own: `A=b cargo test`, `env A=b cargo test`.
pub fn sets_variables(command: &CommandText) -> bool {
    let words = vector(command).or_else(|| match command {
        CommandText::Shell(text) => Some(text.split_whitespace().map(str::to_owned).collect()),
        CommandText::Arguments(_) => None,
    });
    let sets = |word: &String| word.contains('=');
    words.as_deref().and_then(<[String]>::split_first).is_some_and(|(first, rest)| {
        sets(first) || (program(first) == "env" && rest.iter().any(|word| sets(word) || word.starts_with('-')))
    })
}

/// Everything in a command that could be a word, however it is quoted, escaped or put together. Where a shell puts
/// something in, the word has [`UNKNOWN`] or [`GLOB`].
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
    let is_part = |character: char| character.is_alphanumeric() || "_./-".contains(character) || is_hole(character);
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
            '~' if !marked.ends_with(is_part) => {
                marked.push(UNKNOWN);
                characters.next_if(|c| matches!(c, '+' | '-'));
            }
            '*' | '?' => marked.push(GLOB),
            // What is between them is looked at by itself.
            '(' if !marked.ends_with(UNKNOWN) => marked.push(' '),
            '(' => marked.extend([UNKNOWN, ' ']),
            ')' => marked.extend([' ', UNKNOWN]),
            '{' | '[' => marked.extend([GLOB, ' ']),
            '}' | ']' => marked.extend([' ', GLOB]),
            '`' => marked.extend([UNKNOWN, ' ', UNKNOWN]),
            other => marked.push(other),
        }
    }
    marked.split(|character| !is_part(character)).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

const fn is_hole(character: char) -> bool {
    matches!(character, UNKNOWN | GLOB)
}

fn is_unknown(word: &str) -> bool {
    word.chars().all(is_hole)
}

fn is_in(list: &str, word: &str) -> bool {
    list.split(' ').any(|known| known == word)
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
    let (Some((begin, _)), Some((_, end))) = (word.split_once(is_hole), word.rsplit_once(is_hole)) else {
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

/// Whether it may have git do more than read, or touches `.git`.
pub fn is_guarded(command: &CommandText) -> bool {
    let words = words(command);
    let has = |is_meant: &dyn Fn(&str) -> bool| words.iter().any(|word| is_meant(word));
    let writes = |word: &str| WRITING.split(' ').any(|verb| may_be(word, verb));
    let is_verb = |word: &str| WRITING.split(' ').any(|verb| may_be(program(word), &format!("git-{verb}")));
    // Where the program is hidden, the verb tells.
    let is_hidden = words.array_windows().any(|[first, second]| is_unknown(first) && writes(second));
    let may_run_git = has(&|word| may_be(program(word), "git"));
    let is_extended = has(&|word| is_in(EXTENDING, program(word)));
    let is_changed = may_run_git && (has(&writes) || has(&|word| word.starts_with("GIT_")));
    let acts = invocations(&words).any(|(verb, rest)| match verb {
        Some(verb) => !only_reads(verb, rest),
        None => is_extended,
    });
    has_escapes(command) || is_hidden || is_changed || acts || has(&is_verb) || has(&names_git_directory)
}

/// Whether the first words of a command say that it has git do more than read, or touches `.git`. An option does not say
/// what git does.
pub fn names_guarded(prefix: &[String]) -> bool {
    let words = words(&CommandText::Arguments(prefix.to_vec()));
    let is_named = |(verb, rest): (Option<&str>, &[String])| {
        verb.is_some_and(|verb| !verb.starts_with('-') && !is_in(READING, verb) && !only_reads(verb, rest))
    };
    words.iter().any(|word| names_git_directory(word)) || invocations(&words).any(is_named)
}

/// What git is called with wherever it is named: the verb, or an option before it that matters, and the words after it.
/// `git-push` is a program of its own.
fn invocations(words: &[String]) -> impl Iterator<Item = (Option<&str>, &[String])> {
    words.iter().enumerate().filter_map(|(index, word)| {
        let rest = &words[index + 1..];
        let is_name = |verb: &&str| verb.chars().all(|c| c.is_ascii_lowercase() || c == '-' || is_hole(c));
        if let Some(verb) = program(word).strip_prefix("git-").filter(is_name) {
            return Some((Some(verb), rest));
        }
        let rest = &rest[rest.iter().take_while(|option| is_in(HARMLESS, option)).count()..];
        let (verb, rest) = rest.split_first().map_or((None, rest), |(verb, rest)| (Some(verb.as_str()), rest));
        (program(word) == "git").then_some((verb, rest))
    })
}

fn only_reads(verb: &str, rest: &[String]) -> bool {
    let acts = |option: &String| {
        let is_begun = |acting: &str| option.len() > "--".len() && acting.starts_with(option.as_str());
        let opens_pager =
            verb == "grep" && !option.starts_with("--") && option.starts_with('-') && option.contains('O');
        opens_pager || ACTING.split(' ').any(|acting| is_begun(acting) || may_be(option, acting))
    };
    let reads_with = |pair: &str| rest.first().is_some_and(|next| pair == format!("{verb} {next}"));
    (is_in(READING, verb) || READING_WITH.split(',').any(reads_with)) && !rest.iter().any(acts)
}

/// Whether a directory on the way is a repository's own.
pub fn names_git_directory(path: &str) -> bool {
    path.split('/').any(|component| may_be(&component.to_ascii_lowercase(), ".git"))
}

/// The words that may be paths, or globs. Of a word with an unknown part there is what stands before and behind it.
pub fn paths(command: &CommandText) -> Vec<String> {
    let known = |word: String| {
        let before = word.split_once(UNKNOWN).map(|(before, _)| before.rsplit_once('/').map_or("", |(above, _)| above));
        let behind = word.rsplit_once(UNKNOWN).map(|(_, behind)| behind.trim_start_matches('/'));
        [before.unwrap_or(&word), behind.unwrap_or_default()].map(|path| path.replace(GLOB, "*"))
    };
    words(command).into_iter().flat_map(known).filter(|path| !path.is_empty()).collect()
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
        let none = " ¦  ¦a; b¦a | b¦a && b¦a & b¦a > b¦a < b¦$(a)¦`a`¦a $b¦a \"$b\"¦a \"`b`\"¦a *¦a ?¦a [b]¦a {b,c}¦a ~¦a #b¦\
                    a\nb¦a \\\nb¦a\\ b¦a 'b¦a \"b¦!a¦(a)¦a ^b¦a\rb¦a\0b¦a 'b\nc'¦caf\u{e9}";
        for text in none.split('¦') {
            assert_eq!(vector(&shell(text)), None, "{text:?}");
        }
        let arguments =
            |arguments: &[&str]| CommandText::Arguments(arguments.iter().map(|&word| word.into()).collect());
        assert_eq!(vector(&arguments(&["cargo", "test"])).unwrap(), ["cargo", "test"]);
        assert_eq!(vector(&arguments(&["echo", "a b;c"])).unwrap(), ["echo", "a b;c"], "no shell sees them");
        assert_eq!(vector(&arguments(&[])), None);
    }

    #[test]
    fn git_is_guarded_wherever_it_stands_unless_it_is_known_to_read() {
        let guarded = "git push¦git commit -m x¦git -C x push¦git -c a=b commit¦/usr/bin/git push¦env git push¦env A=b git push¦\
            cd x && git push¦sh -c 'git push'¦g\\it pu''sh¦true;git push¦(git push)¦git-push x¦/usr/lib/git-core/git-commit¦\
            sudo git push¦rm -rf .git¦echo x > .git/hooks/pre-commit¦cat a/.GIT/config¦git pu\\\nsh¦git pu$@sh¦git $'pu\\x73h'¦\
            git $'push'¦git pu{,}sh¦git pu$(true)sh¦$(echo g)it push¦g\"$X\"it ${Y}sh¦rm -r .gi?¦rm -rf .*¦git $X¦${X} push¦\
            sh -c 'git p$1'¦git status --out$X¦git --no-pager am¦git\tstatus;git\npull¦git l*g¦echo push | xargs git¦\
            git --git-dir ~/x log¦git-l$X¦git --exec-path log¦git notes¦git grep --open x¦git log --ou=x";
        for text in guarded.split('¦') {
            assert!(is_guarded(&shell(text)), "{text:?}");
        }
        let free = "git status¦git diff¦echo push¦cargo test¦curl https://x/y.git¦cat .gitignore¦git log $REF¦grep 'a$' b¦\
            echo {a,b}¦git log --oneline -O x¦git diff HEAD~1¦which git¦cat docs/git-tips.md¦git stash list";
        for text in free.split('¦') {
            assert!(!is_guarded(&shell(text)), "{text:?}");
        }
        assert!(is_guarded(&CommandText::Arguments(vec!["bash".into(), "-c".into(), "git push".into()])));
    }
}
