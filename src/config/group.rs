//! `control.group`: whom a daemon of root serves besides root.

use nix::unistd::{Gid, Group};
use toml::Value;

use super::read::Section;
use super::value::FromValue;

/// A group of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlGroup {
    pub name: String,
    pub gid: u32,
}

/// The group as it is written: by its name or by its number. An empty name is nobody.
#[derive(Default)]
struct Written(String);

impl FromValue for Written {
    const EXPECTED: &'static str = "write the name of a group, such as \"acpd\", or its number; \"\" admits no group";

    fn from_value(value: Value) -> Option<Self> {
        match value {
            Value::String(name) => Some(Self(name)),
            Value::Integer(number) => u32::try_from(number).ok().map(|number| Self(number.to_string())),
            _ => None,
        }
    }
}

pub fn read(section: &mut Section<'_>, group: &mut Option<ControlGroup>) {
    const KEY: &str = "group";
    let mut written = Written::default();
    section.read(KEY, &mut written);
    let Written(written) = written;
    if written.is_empty() {
        return;
    }
    // Whoever is not root can neither hand out the socket nor run agents as others.
    if !rustix::process::geteuid().is_root() {
        let hint = "remove it, or run the daemon as root: only root's daemon can run agents as their owners";
        return section.problem(KEY, "is only for a daemon that runs as root", hint);
    }
    match find(&written) {
        Ok(Some(found)) => *group = Some(found),
        Ok(None) => {
            let hint = format!("create the group with `groupadd --system {written}`, or name an existing group");
            section.problem(KEY, format!("names the group {written:?}, which does not exist"), hint);
        }
        Err(error) => {
            let hint = "check the group's name and the groups entry of /etc/nsswitch.conf";
            section.problem(KEY, format!("names the group {written:?}; looking it up failed: {error}"), hint);
        }
    }
}

/// A name that is a number is one all the same, when a group has it.
fn find(written: &str) -> nix::Result<Option<ControlGroup>> {
    let by_name = Group::from_name(written)?;
    let found = match (by_name, written.parse().ok()) {
        (Some(group), _) => Some(group),
        (None, Some(number)) => Group::from_gid(Gid::from_raw(number))?,
        (None, None) => None,
    };
    Ok(found.map(|group| ControlGroup { name: group.name, gid: group.gid.as_raw() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_found_by_its_name_and_by_its_number() {
        let root = find("root").unwrap().unwrap();
        assert_eq!((root.name.as_str(), root.gid), ("root", 0));
        assert_eq!(find("0").unwrap().unwrap(), root);
        assert_eq!(find("no-such-group").unwrap(), None);
        assert_eq!(find("4294967294").unwrap(), None);
    }
}
