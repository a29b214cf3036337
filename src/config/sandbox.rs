//! `[sandbox]`: how agents are confined.

use std::path::{Path, PathBuf};

use toml::Value;

use super::Problem;
use super::read::Section;
use super::value::FromValue;
use crate::model::FsScope;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sandbox {
    pub mode: SandboxMode,
    pub bubblewrap: BubblewrapMode,
    /// Hidden by bubblewrap, which alone can do that.
    pub hide: HomePaths,
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
            bubblewrap: BubblewrapMode::Never,
            hide: HomePaths::from_texts(&["~/.ssh", "~/.gnupg", "~/.aws", "~/.config/gcloud", "~/.netrc"]),
            network: NetworkMode::Allow,
            connect_ports: vec![443],
            bind_ports: Vec::new(),
            allow_full: false,
        }
    }
}

/// How much the confinement matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SandboxMode {
    /// What cannot be confined as asked is not started.
    Required,
    /// As far as the kernel can, and the session says how far that is.
    BestEffort,
    Off,
}

/// Whether agents are started through bubblewrap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BubblewrapMode {
    Never,
    /// Where it is installed and works.
    Prefer,
    /// And without it not at all.
    Require,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkMode {
    Allow,
    /// TCP only to and on the ports that are named.
    Deny,
}

/// Paths that are absolute or begin with `~/`, which stands for the home of whoever a session belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HomePaths(Vec<String>);

impl HomePaths {
    pub fn from_texts(texts: &[&str]) -> Self {
        Self(texts.iter().map(|text| (*text).to_owned()).collect())
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
    const EXPECTED: &'static str = "write \"never\", \"prefer\" or \"require\"";

    fn from_value(value: Value) -> Option<Self> {
        match value.as_str()? {
            "never" => Some(Self::Never),
            "prefer" => Some(Self::Prefer),
            "require" => Some(Self::Require),
            _ => None,
        }
    }
}

impl FromValue for NetworkMode {
    const EXPECTED: &'static str = "write \"allow\" or \"deny\"";

    fn from_value(value: Value) -> Option<Self> {
        match value.as_str()? {
            "allow" => Some(Self::Allow),
            "deny" => Some(Self::Deny),
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
    section.read("network", &mut sandbox.network);
    section.read("connect_ports", &mut sandbox.connect_ports);
    section.read("bind_ports", &mut sandbox.bind_ports);
    section.read("allow_full", &mut sandbox.allow_full);
}

/// What contradicts itself would confine less than it says.
pub fn check(sandbox: &Sandbox, problems: &mut Vec<Problem>) {
    if sandbox.mode == SandboxMode::Off && sandbox.bubblewrap == BubblewrapMode::Require {
        problems.push(Problem {
            key: "sandbox.bubblewrap".to_owned(),
            message: "is \"require\", but sandbox.mode is \"off\"".to_owned(),
            hint: "change one of them: mode = \"off\" disables the sandbox".to_owned(),
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
