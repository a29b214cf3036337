//! A login that an agent renews in a session is the user's login, and goes back to them.
//!
//! Agents renew what they sign in with by themselves, and some providers take the old one back then: without this a session
//! would cost the user their login. But the file is the agent's to write, and the agent may be anybody's: what goes back must be the same account's,
//! renewed, and not good for longer than renewals are. A file that the user has renewed meanwhile is left alone.

use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use super::disk;

/// Logins are small.
const LOGIN_BYTES_MAX: u64 = 64 << 10;
/// A renewal that claims to be good for longer is none.
const RENEWED_FOR_MAX: Duration = Duration::from_hours(24);

/// What an agent's login looks like: where in the file is what.
#[derive(Debug, PartialEq, Eq)]
pub struct Login {
    pub file: &'static str,
    /// Until when it is good, or when it was renewed: later is newer. Milliseconds, or RFC 3339.
    time: &'static str,
    /// Whose it is. A renewal does not change that.
    same: &'static str,
    /// Texts without which it is none.
    present: &'static [&'static str],
}

/// Google does not give a new token to renew with: what renews is the same, so nobody can put another account's in its place.
pub const GEMINI: Login = Login {
    file: "oauth_creds.json",
    time: "/expiry_date",
    same: "/refresh_token",
    present: &["/access_token", "/refresh_token"],
};
pub const CLAUDE: Login = Login {
    file: ".credentials.json",
    time: "/claudeAiOauth/expiresAt",
    same: "/claudeAiOauth/subscriptionType",
    present: &["/claudeAiOauth/accessToken", "/claudeAiOauth/refreshToken"],
};
pub const CODEX: Login = Login {
    file: "auth.json",
    time: "/last_refresh",
    same: "/tokens/account_id",
    present: &["/tokens/access_token", "/tokens/refresh_token"],
};
pub const QWEN: Login = Login {
    file: "oauth_creds.json",
    time: "/expiry_date",
    same: "/resource_url",
    present: &["/access_token", "/refresh_token"],
};

/// A login that a session has a copy of.
#[derive(Debug)]
pub struct Lent {
    login: &'static Login,
    /// The user's own, by its real path.
    users: PathBuf,
    /// The directory that the session's is in.
    directory: OwnedFd,
}

impl Lent {
    /// Lends the user's login to a session. One that the session has renewed already, and could not give back then, goes back
    /// first; any other goes for the user's. Nothing, when the user has none.
    pub fn lend(login: &'static Login, users: &Path, directory: OwnedFd) -> io::Result<Option<Self>> {
        let users = match users.canonicalize() {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            found => found?,
        };
        let lent = Self { login, users, directory };
        if !matches!(lent.give_back(), Ok(true)) {
            let bytes = disk::read(disk::open_real(&lent.users)?, LOGIN_BYTES_MAX)?;
            disk::put(&lent.directory, OsStr::new(login.file), disk::PRIVATE, bytes.as_slice())?;
        }
        Ok(Some(lent))
    }

    /// Gives the login back, if the agent has renewed it; whether it has.
    pub fn give_back(&self) -> io::Result<bool> {
        let name = OsStr::new(self.login.file);
        let file = match disk::open(&self.directory, name) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            opened => opened?,
        };
        let renewed = disk::read(file, LOGIN_BYTES_MAX)?;
        let (Some(parent), Some(own_name)) = (self.users.parent(), self.users.file_name()) else { return Ok(false) };
        let parent = disk::directory_real(parent)?;
        let users = disk::open(&parent, own_name)?;
        let mode = disk::PRIVATE & rustix::fs::Mode::from_raw_mode(users.metadata()?.mode());
        let known = disk::read(users, LOGIN_BYTES_MAX)?;
        if !self.login.is_renewed(&known, &renewed, SystemTime::now()) {
            return Ok(false);
        }
        disk::put(&parent, own_name, mode, renewed.as_slice())?;
        Ok(true)
    }
}

impl Login {
    fn is_renewed(&self, known: &[u8], renewed: &[u8], now: SystemTime) -> bool {
        let parsed = (serde_json::from_slice::<Value>(known), serde_json::from_slice::<Value>(renewed));
        let (Ok(known), Ok(renewed)) = parsed else { return false };
        let time = |login: &Value| login.pointer(self.time).and_then(milliseconds);
        let (Some(before), Some(after)) = (time(&known), time(&renewed)) else { return false };
        let until = now.checked_add(RENEWED_FOR_MAX).and_then(|until| until.duration_since(UNIX_EPOCH).ok());
        let latest = until.and_then(|until| i64::try_from(until.as_millis()).ok()).unwrap_or(0);
        let is_text =
            |pointer: &&str| renewed.pointer(pointer).and_then(Value::as_str).is_some_and(|text| !text.is_empty());
        before < after
            && after <= latest
            && known.pointer(self.same) == renewed.pointer(self.same)
            && self.present.iter().all(is_text)
    }
}

fn milliseconds(time: &Value) -> Option<i64> {
    match time {
        Value::Number(number) => number.as_i64().or_else(|| number.as_u64()?.try_into().ok()),
        Value::String(text) => text.parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_millisecond),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use serde_json::json;

    use super::*;

    const NOW_MS: u64 = 1_800_000_000_000;
    const HOUR_MS: u64 = 3_600_000;

    fn google(token: &str, refresh: &str, expiry_ms: u64) -> Value {
        json!({ "access_token": token, "refresh_token": refresh, "scope": "s", "expiry_date": expiry_ms })
    }

    #[test]
    fn only_the_same_account_renewed_goes_back() {
        let now = UNIX_EPOCH + Duration::from_millis(NOW_MS);
        let known = google("old", "r", NOW_MS - HOUR_MS).to_string();
        let is_renewed = |login: &Login, renewed: &str| login.is_renewed(known.as_bytes(), renewed.as_bytes(), now);
        assert!(is_renewed(&GEMINI, &google("new", "r", NOW_MS + HOUR_MS).to_string()));
        for (renewed, why) in [
            (google("new", "another", NOW_MS + HOUR_MS).to_string(), "another account's"),
            (google("", "r", NOW_MS + HOUR_MS).to_string(), "no token"),
            (google("new", "r", NOW_MS - HOUR_MS).to_string(), "not newer"),
            (google("new", "r", NOW_MS - 2 * HOUR_MS).to_string(), "older"),
            (google("new", "r", NOW_MS + 48 * HOUR_MS).to_string(), "for too long"),
            (json!({ "access_token": "new", "expiry_date": NOW_MS + HOUR_MS }).to_string(), "nothing to renew with"),
            ("{".to_owned(), "not whole"),
            ("[]".to_owned(), "something else"),
            (String::new(), "empty"),
        ] {
            assert!(!is_renewed(&GEMINI, &renewed), "{why}");
        }
    }

    #[test]
    fn times_are_numbers_or_texts() {
        let now = UNIX_EPOCH + Duration::from_millis(NOW_MS);
        let codex = |at: &str, account: &str| {
            json!({ "last_refresh": at, "tokens": { "access_token": "a", "refresh_token": "r", "account_id": account } })
                .to_string()
        };
        let (before, after) = (codex("2027-01-01T00:00:00Z", "me"), codex("2027-01-15T07:00:00.5Z", "me"));
        assert!(CODEX.is_renewed(before.as_bytes(), after.as_bytes(), now));
        assert!(!CODEX.is_renewed(after.as_bytes(), before.as_bytes(), now));
        assert!(!CODEX.is_renewed(before.as_bytes(), codex("2027-01-15T07:00:00Z", "you").as_bytes(), now));
    }

    fn soon() -> u64 {
        u64::try_from(UNIX_EPOCH.elapsed().unwrap().as_millis()).unwrap() + HOUR_MS
    }

    #[test]
    fn a_login_is_lent_and_given_back_where_the_user_keeps_it() {
        let base = tempfile::tempdir().unwrap();
        let (kept, own) = (base.path().join("kept"), base.path().join("own"));
        for directory in [&kept, &own] {
            fs::create_dir(directory).unwrap();
        }
        let users = base.path().join("oauth_creds.json");
        let directory = || disk::directory(&own).unwrap();
        assert!(Lent::lend(&GEMINI, &users, directory()).unwrap().is_none(), "there is none");

        // Some keep their files elsewhere, and have links in the home.
        let (real, copy) = (kept.join("login.json"), own.join("oauth_creds.json"));
        symlink(&real, &users).unwrap();
        let old = google("old", "r", 1).to_string();
        fs::write(&real, &old).unwrap();
        fs::set_permissions(&real, fs::Permissions::from_mode(0o600)).unwrap();
        let lent = Lent::lend(&GEMINI, &users, directory()).unwrap().unwrap();
        assert_eq!(fs::read_to_string(&copy).unwrap(), old);
        assert!(!lent.give_back().unwrap(), "it is as it was");

        fs::write(&copy, google("bad", "another", soon()).to_string()).unwrap();
        assert!(!lent.give_back().unwrap());
        assert_eq!(fs::read_to_string(&real).unwrap(), old);

        let new = google("new", "r", soon()).to_string();
        fs::write(&copy, &new).unwrap();
        assert!(lent.give_back().unwrap());
        assert!(users.is_symlink() && fs::read_to_string(&users).unwrap() == new);
        assert_eq!(real.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert!(!lent.give_back().unwrap(), "once");

        fs::remove_file(&copy).unwrap();
        assert!(!lent.give_back().unwrap(), "a login that the agent removes is removed for the session");
        assert!(real.exists());
    }

    #[test]
    fn what_could_not_be_given_back_is_at_the_next_start() {
        let base = tempfile::tempdir().unwrap();
        let (users, own) = (base.path().join("oauth_creds.json"), base.path().join("own"));
        fs::create_dir(&own).unwrap();
        let new = google("new", "r", soon()).to_string();
        fs::write(&users, google("old", "r", 1).to_string()).unwrap();
        fs::write(own.join("oauth_creds.json"), &new).unwrap();
        Lent::lend(&GEMINI, &users, disk::directory(&own).unwrap()).unwrap();
        assert_eq!(fs::read_to_string(&users).unwrap(), new);

        fs::write(own.join("oauth_creds.json"), "rubbish").unwrap();
        Lent::lend(&GEMINI, &users, disk::directory(&own).unwrap()).unwrap();
        assert_eq!(fs::read_to_string(own.join("oauth_creds.json")).unwrap(), new, "rubbish goes for the user's");
    }
}
