//! A value that is never shown, and the one rule for what looks like a secret.

use std::fmt;

/// What names of headers and variables contain that hold secrets, by habit.
const NAMES: [&str; 8] = ["authorization", "cookie", "credential", "key", "passwd", "password", "secret", "token"];
/// How tokens begin. They have 20 bytes or more, a digit among them.
const TOKENS: [&str; 11] =
    ["sk-", "sk_", "ghp_", "gho_", "ghs_", "github_pat_", "glpat-", "xox", "AKIA", "AIza", "hf_"];

pub fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    NAMES.iter().any(|word| name.contains(word))
}

/// What makes a variable or header look like a secret, if anything does.
pub fn suspicion(name: &str, value: &str) -> Option<&'static str> {
    if is_secret_name(name) {
        return Some("has the name of a secret");
    }
    let begins = |word: &str| TOKENS.iter().any(|token| word.starts_with(token));
    let is_token = |word: &str| word.len() >= 20 && word.contains(|c: char| c.is_ascii_digit()) && begins(word);
    let has_token = value.contains("PRIVATE KEY-----") || value.split_whitespace().any(is_token);
    has_token.then_some("has the form of a secret")
}

/// A secret, or what may be one. Whoever debugs what holds it sees that there is one, and not which.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The value itself. Whoever asks for it hands it to an agent, or takes care that nobody else sees it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl From<String> for Secret {
    fn from(value: String) -> Self {
        Self(value)
    }
}

impl From<&str> for Secret {
    fn from(value: &str) -> Self {
        Self(value.to_owned())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("[secret]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_sees_it_by_accident() {
        let secret = Secret::from("hunter2-hunter2");
        assert_eq!(format!("{secret:?} {:#?}", Some(&secret)).matches("hunter2").count(), 0);
        assert_eq!(secret.reveal(), "hunter2-hunter2");
    }
}
