//! Another user than the daemon's, for whom a daemon of root works: who they are by the user database.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::path::PathBuf;

use nix::unistd::{Gid, Uid, User};

use super::shim::Owner;

/// Names that speak of whoever started the daemon: where root's things are, and by which sockets root's agents for keys and
/// messages are reached. None of them is another user's, whoever lists it.
const OF_THE_DAEMONS_USER: [&str; 11] = [
    "DBUS_SESSION_BUS_ADDRESS",
    "HOME",
    "KRB5CCNAME",
    "LOGNAME",
    "MAIL",
    "SHELL",
    "SSH_AGENT_PID",
    "SSH_AUTH_SOCK",
    "TMPDIR",
    "USER",
    "XAUTHORITY",
];
/// And all directories of the desktop's standard.
const OF_THE_DAEMONS_USER_PREFIX: &str = "XDG_";

#[derive(Debug, PartialEq, Eq)]
pub struct Account {
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
    pub name: String,
    pub home: PathBuf,
    pub shell: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum AccountError {
    #[error("the user {uid} is not in the user database of this machine")]
    Unknown { uid: u32 },
    #[error("cannot look up the user {uid} in the user database of this machine")]
    Unavailable {
        uid: u32,
        #[source]
        source: nix::Error,
    },
    #[error("the user {uid} has no home directory in the user database of this machine")]
    NoHome { uid: u32 },
}

impl AccountError {
    /// What is to be done about it.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Unknown { .. } => "ask the administrator to create the user with a home directory",
            Self::Unavailable { .. } => {
                "try again; the administrator can check the sources of users in \
                /etc/nsswitch.conf"
            }
            Self::NoHome { .. } => "ask the administrator to set one: usermod --home DIRECTORY USER",
        }
    }
}

impl Account {
    /// Asks the user database, which may take its time: it can be somewhere in the network.
    pub fn of(uid: u32) -> Result<Self, AccountError> {
        let unavailable = |source| AccountError::Unavailable { uid, source };
        let user = User::from_uid(Uid::from_raw(uid)).map_err(unavailable)?.ok_or(AccountError::Unknown { uid })?;
        let name = CString::new(user.name.as_str()).map_err(|_| AccountError::Unknown { uid })?;
        let groups = nix::unistd::getgrouplist(&name, user.gid).map_err(unavailable)?;
        if !user.dir.is_absolute() {
            return Err(AccountError::NoHome { uid });
        }
        Ok(Self {
            uid,
            gid: user.gid.as_raw(),
            groups: groups.into_iter().map(Gid::as_raw).collect(),
            name: user.name,
            home: user.dir,
            shell: user.shell,
        })
    }

    /// The daemon's environment as it is for this user: nothing of it that is root's own, and their names in place of it.
    pub fn environment(&self, daemons: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        let is_of_the_daemons_user =
            |name: &str| OF_THE_DAEMONS_USER.contains(&name) || name.starts_with(OF_THE_DAEMONS_USER_PREFIX);
        let shared = daemons.iter().filter(|(name, _)| !is_of_the_daemons_user(name));
        let mut environment: BTreeMap<String, String> =
            shared.map(|(name, value)| (name.clone(), value.clone())).collect();
        let own = [
            ("HOME", self.home.to_string_lossy().into_owned()),
            ("LOGNAME", self.name.clone()),
            ("SHELL", self.shell.to_string_lossy().into_owned()),
            ("USER", self.name.clone()),
        ];
        environment.extend(own.map(|(name, value)| (name.to_owned(), value)));
        environment
    }

    /// Whom the shim becomes.
    pub fn owner(&self) -> Owner {
        Owner { user: self.uid, group: self.gid, groups: self.groups.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_the_daemons_user_is_in_another_users_environment() {
        let account = Account {
            uid: 1000,
            gid: 1000,
            groups: vec![1000],
            name: "me".to_owned(),
            home: PathBuf::from("/home/me"),
            shell: PathBuf::from("/bin/sh"),
        };
        let daemons = ["HOME", "USER", "TMPDIR", "SSH_AUTH_SOCK", "XDG_RUNTIME_DIR", "XDG_ANY", "PATH", "KEY"];
        let daemons = daemons.map(|name| (name.to_owned(), "root's".to_owned())).into();
        let environment = account.environment(&daemons);
        let shown: Vec<String> = environment.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(shown, ["HOME=/home/me", "KEY=root's", "LOGNAME=me", "PATH=root's", "SHELL=/bin/sh", "USER=me"]);
    }

    #[test]
    fn whoever_is_not_there_is_not_made_up() {
        assert!(matches!(Account::of(4_000_000_000), Err(AccountError::Unknown { uid: 4_000_000_000 })));
    }
}
