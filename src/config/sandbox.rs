//! `[sandbox]`: how agents are confined.

use std::path::{Path, PathBuf};

use toml::Value;

use super::Problem;
use super::read::Section;
use super::value::{ByteSize, FromValue};
use crate::model::FsScope;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sandbox {
    pub mode: SandboxMode,
    pub bubblewrap: BubblewrapMode,
    /// Hidden by bubblewrap, which alone can do that.
    pub hide: HomePaths,
    /// What an isolated agent has changed in its home.
    pub home_max: ByteSize,
    pub network: NetworkMode,
    pub connect_ports: Vec<u16>,
    pub bind_ports: Vec<u16>,
    /// Whether a session may have the scope `full`.
    pub allow_full: bool,
}

impl Default for Sandbox {
    fn default() -> Self {
        Self {
            mode: SandboxMode::BestEffort,
            bubblewrap: BubblewrapMode::Prefer,
            hide: HomePaths::from_words(HIDDEN),
            home_max: ByteSize(4 << 30),
            network: NetworkMode::Allow,
            connect_ports: vec![443],
            bind_ports: Vec::new(),
            allow_full: false,
        }
    }
}

/// Keys and passwords, and the profiles of browsers.
const HIDDEN: &str = "~/.ssh ~/.gnupg ~/.aws ~/.config/gcloud ~/.netrc ~/.password-store \
                      ~/.local/share/keyrings ~/.mozilla ~/.thunderbird ~/.config/BraveSoftware ~/.config/chromium \
                      ~/.config/google-chrome ~/.config/microsoft-edge ~/.config/opera ~/.config/vivaldi \
                      ~/.var/app ~/snap/firefox ~/snap/chromium";

/// How much the confinement matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SandboxMode {
    /// An agent that cannot be isolated does not start.
    Required,
    /// As far as the system can. The session's `sandbox` says how far.
    BestEffort,
    Off,
}

/// Whether agents are isolated by bubblewrap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BubblewrapMode {
    Never,
    /// Where it is installed and works.
    Prefer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkMode {
    Allow,
    /// TCP only to and on the configured ports. UDP is not restricted.
    Ports,
    None,
}

/// Paths that are absolute or begin with `~/`, which stands for the home of whoever a session belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HomePaths(Vec<String>);

impl HomePaths {
    /// Of paths without blanks.
    pub fn from_words(words: &str) -> Self {
        Self(words.split_whitespace().map(str::to_owned).collect())
    }

    pub fn new(texts: &[String]) -> Self {
        Self(texts.to_vec())
    }

    pub fn into_texts(self) -> Vec<String> {
        self.0
    }

    pub fn below(&self, home: &Path) -> Vec<PathBuf> {
        let path = |text: &String| match text.strip_prefix("~/") {
            Some(rest) => home.join(rest),
            None => PathBuf::from(text),
        };
        self.0.iter().map(path).collect()
    }
}

impl FromValue for HomePaths {
    const EXPECTED: &'static str = "write a list of paths that are absolute or start with ~/, such as [\"~/.cargo\"]";

    fn from_value(value: Value) -> Option<Self> {
        let is_whole = |text: &String| {
            let rest = text.strip_prefix("~/").or_else(|| text.strip_prefix('/'));
            // Whoever could name all of the home, or of the machine, would have another word for that.
            rest.is_some_and(|rest| !rest.trim_matches('/').is_empty() && !rest.split('/').any(|part| part == ".."))
        };
        let texts = Vec::<String>::from_value(value)?;
        texts.iter().all(is_whole).then_some(Self(texts))
    }
}

impl FromValue for Vec<u16> {
    const EXPECTED: &'static str = "write a list of ports, such as [443]";

    fn from_value(value: Value) -> Option<Self> {
        value.as_array()?.iter().map(|port| port.as_integer().and_then(|port| u16::try_from(port).ok())).collect()
    }
}

impl FromValue for SandboxMode {
    const EXPECTED: &'static str = "write \"required\", \"best-effort\" or \"off\"";

    fn from_value(value: Value) -> Option<Self> {
        match value.as_str()? {
            "required" => Some(Self::Required),
            "best-effort" => Some(Self::BestEffort),
            "off" => Some(Self::Off),
            _ => None,
        }
    }
}

impl FromValue for BubblewrapMode {
    const EXPECTED: &'static str = "write \"prefer\" or \"never\"; sandbox.mode = \"required\" requires it";

    fn from_value(value: Value) -> Option<Self> {
        match value.as_str()? {
            "never" => Some(Self::Never),
            "prefer" => Some(Self::Prefer),
            _ => None,
        }
    }
}

impl FromValue for NetworkMode {
    const EXPECTED: &'static str = "write \"allow\", \"ports\" or \"none\"";

    fn from_value(value: Value) -> Option<Self> {
        match value.as_str()? {
            "allow" => Some(Self::Allow),
            "ports" => Some(Self::Ports),
            "none" => Some(Self::None),
            _ => None,
        }
    }
}

impl FromValue for FsScope {
    const EXPECTED: &'static str = "write \"sandboxed\", \"project\" or \"full\"";

    fn from_value(value: Value) -> Option<Self> {
        value.as_str()?.parse().ok()
    }
}

pub fn read(section: &mut Section<'_>, sandbox: &mut Sandbox) {
    section.read("mode", &mut sandbox.mode);
    section.read("bubblewrap", &mut sandbox.bubblewrap);
    section.read("hide", &mut sandbox.hide);
    section.read("home_max", &mut sandbox.home_max);
    section.read("network", &mut sandbox.network);
    section.read("connect_ports", &mut sandbox.connect_ports);
    section.read("bind_ports", &mut sandbox.bind_ports);
    section.read("allow_full", &mut sandbox.allow_full);
}

pub fn check(sandbox: &Sandbox, problems: &mut Vec<Problem>) {
    if sandbox.mode == SandboxMode::Required && sandbox.bubblewrap == BubblewrapMode::Never {
        problems.push(Problem {
            key: "sandbox.bubblewrap".to_owned(),
            message: "is \"never\", but sandbox.mode is \"required\"".to_owned(),
            hint: "change one of them: \"required\" means isolated by bubblewrap".to_owned(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_absolute_or_below_the_home() {
        let read = |text: &str| HomePaths::from_value(Value::Array(vec![Value::String(text.to_owned())]));
        let paths = |text: &str| read(text).unwrap().below(Path::new("/home/me"));
        assert_eq!(paths("~/.cargo"), [Path::new("/home/me/.cargo")]);
        assert_eq!(paths("/opt/cache"), [Path::new("/opt/cache")]);
        for bad in ["", "~", "~/", "/", "//", ".cargo", "~you/x", "~/../x", "/srv/.."] {
            assert_eq!(read(bad), None, "{bad:?}");
        }
    }
}
