//! A login that an agent renews in a session is the user's login, and goes back to them.
//!
//! Agents renew what they sign in with by themselves, and some providers take the old one back then: without this a session
//! would cost the user their login. But the file is the agent's to write, and the agent may be anybody's. So nothing of it
//! goes back but the fields that a renewal renews, put into the user's own file, and only when they are the same account's, newer, and not
//! good for longer than renewals are. A file that the user has renewed meanwhile is left alone.

use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::Mode;
use serde_json::{Map, Value};

use super::disk;

/// Logins are small.
const LOGIN_BYTES_MAX: u64 = 64 << 10;
/// What an agent's login looks like: where in the file is what.
#[derive(Debug, PartialEq, Eq)]
pub struct Login {
    pub file: &'static str,
    /// Until when it is good, or when it was renewed: later is newer. Milliseconds, or RFC 3339.
    time: &'static str,
    /// From now to that time at the most: what claims more is no renewal.
    time_ahead_max: Duration,
    /// Whose it is. A renewal does not change that.
    same: &'static str,
    /// Texts that a renewal renews.
    renewed: &'static [&'static str],
    /// One that need not be there.
    also_renewed: &'static str,
}

/// Google does not give a new token to renew with.
pub const GEMINI: Login = Login {
    file: "oauth_creds.json",
    time: "/expiry_date",
    time_ahead_max: Duration::from_hours(2),
    same: "/refresh_token",
    renewed: &["/access_token"],
    also_renewed: "/id_token",
};
pub const CLAUDE: Login = Login {
    file: ".credentials.json",
    time: "/claudeAiOauth/expiresAt",
    time_ahead_max: Duration::from_hours(24),
    same: "/claudeAiOauth/subscriptionType",
    renewed: &["/claudeAiOauth/accessToken", "/claudeAiOauth/refreshToken"],
    also_renewed: "",
};
pub const CODEX: Login = Login {
    file: "auth.json",
    time: "/last_refresh",
    time_ahead_max: Duration::from_hours(1),
    same: "/tokens/account_id",
    renewed: &["/tokens/access_token", "/tokens/refresh_token"],
    also_renewed: "/tokens/id_token",
};
pub const QWEN: Login = Login {
    file: "oauth_creds.json",
    time: "/expiry_date",
    time_ahead_max: Duration::from_hours(24),
    same: "/resource_url",
    renewed: &["/access_token", "/refresh_token"],
    also_renewed: "",
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
            Err(error) if error.kind() == ErrorKind::NotFound => {
                // Whoever has signed out has done so everywhere.
                disk::remove(&directory, OsStr::new(login.file))?;
                return Ok(None);
            }
            found => found?,
        };
        let lent = Self { login, users, directory };
        lent.give_back().ok();
        let bytes = disk::read(disk::open_real(&lent.users)?, LOGIN_BYTES_MAX)?;
        // Somebody may be writing it just now, and what the session has is good.
        let is_whole = serde_json::from_slice::<Map<String, Value>>(&bytes).is_ok();
        if is_whole || lent.sessions().is_err() {
            disk::put(&lent.directory, OsStr::new(login.file), disk::PRIVATE, bytes.as_slice())?;
        }
        Ok(Some(lent))
    }

    /// What the session has, as far as it is one.
    fn sessions(&self) -> io::Result<Value> {
        let bytes = disk::read(disk::open(&self.directory, OsStr::new(self.login.file))?, LOGIN_BYTES_MAX)?;
        Ok(Value::Object(serde_json::from_slice(&bytes)?))
    }

    /// Gives the login back, if the agent has renewed it; whether it has.
    pub fn give_back(&self) -> io::Result<bool> {
        let sessions = self.sessions()?;
        let (Some(parent), Some(name)) = (self.users.parent(), self.users.file_name()) else { return Ok(false) };
        let parent = disk::directory_real(parent)?;
        let file = disk::open(&parent, name)?;
        let mode = disk::PRIVATE & Mode::from_raw_mode(file.metadata()?.mode());
        let users: Value = serde_json::from_slice(&disk::read(file, LOGIN_BYTES_MAX)?)?;
        let Some(renewed) = self.login.renewal(&users, &sessions, SystemTime::now()) else { return Ok(false) };
        disk::put_for_good(&parent, name, mode, format!("{renewed:#}").as_bytes())?;
        Ok(true)
    }
}

impl Login {
    /// The user's login with what the session's has renewed of it, if that is so.
    fn renewal(&self, users: &Value, sessions: &Value, now: SystemTime) -> Option<Value> {
        let time = |login: &Value| login.pointer(self.time).and_then(milliseconds);
        let (before, after) = (time(users)?, time(sessions)?);
        let until = now.checked_add(self.time_ahead_max)?.duration_since(UNIX_EPOCH).ok()?;
        let is_newer = before < after && u128::try_from(after).is_ok_and(|after| after <= until.as_millis());
        if !is_newer || users.pointer(self.same)?.as_str()? != sessions.pointer(self.same)?.as_str()? {
            return None;
        }
        let mut renewed = users.clone();
        *renewed.pointer_mut(self.time)? = sessions.pointer(self.time)?.clone();
        for pointer in self.renewed {
            let text = sessions.pointer(pointer)?.as_str().filter(|text| !text.is_empty())?;
            *renewed.pointer_mut(pointer).filter(|place| place.is_string())? = text.into();
        }
        let also = sessions.pointer(self.also_renewed).and_then(Value::as_str);
        if let Some(place) = renewed.pointer_mut(self.also_renewed).filter(|place| place.is_string())
            && let Some(text) = also
        {
            *place = text.into();
        }
        Some(renewed)
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
        let users = google("old", "r", NOW_MS - HOUR_MS);
        let renewal = |sessions: &Value| GEMINI.renewal(&users, sessions, now);
        assert_eq!(renewal(&google("new", "r", NOW_MS + HOUR_MS)), Some(google("new", "r", NOW_MS + HOUR_MS)));
        for (sessions, why) in [
            (google("new", "another", NOW_MS + HOUR_MS), "another account's"),
            (google("", "r", NOW_MS + HOUR_MS), "no token"),
            (google("new", "r", NOW_MS - HOUR_MS), "not newer"),
            (google("new", "r", NOW_MS - 2 * HOUR_MS), "older"),
            (google("new", "r", NOW_MS + 3 * HOUR_MS), "for too long"),
            (json!({ "access_token": "new", "expiry_date": NOW_MS + HOUR_MS }), "nothing to renew with"),
            (json!([]), "something else"),
        ] {
            assert_eq!(renewal(&sessions), None, "{why}");
        }
        let mut planted = google("new", "r", NOW_MS + HOUR_MS);
        planted["type"] = json!("external_account");
        planted["token_url"] = json!("https://elsewhere.example");
        planted["scope"] = json!({ "of": "another shape" });
        planted["id_token"] = json!("not there before");
        let expected = Some(google("new", "r", NOW_MS + HOUR_MS));
        assert_eq!(renewal(&planted), expected, "nothing goes back but what a renewal renews");
        let nobodys = json!({ "access_token": "a", "expiry_date": 1 });
        assert_eq!(GEMINI.renewal(&nobodys, &nobodys, now), None);
    }

    #[test]
    fn times_are_numbers_or_texts() {
        let now = UNIX_EPOCH + Duration::from_millis(NOW_MS);
        let codex = |at: &str, account: &str| {
            json!({ "OPENAI_API_KEY": null, "last_refresh": at,
                "tokens": { "id_token": at, "access_token": at, "refresh_token": at, "account_id": account } })
        };
        let (before, after) = (codex("2027-01-01T00:00:00Z", "me"), codex("2027-01-15T07:00:00.5Z", "me"));
        assert_eq!(CODEX.renewal(&before, &after, now), Some(after.clone()));
        assert_eq!(CODEX.renewal(&after, &before, now), None);
        assert_eq!(CODEX.renewal(&before, &codex("2027-01-15T07:00:00Z", "you"), now), None);
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
        let given: Value = serde_json::from_slice(&fs::read(&users).unwrap()).unwrap();
        assert!(users.is_symlink());
        assert_eq!(given.to_string(), new);
        assert_eq!(real.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert!(!lent.give_back().unwrap(), "once");

        fs::remove_file(&copy).unwrap();
        assert!(lent.give_back().is_err(), "a login that the agent removes is removed for the session");
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
        let lend = || Lent::lend(&GEMINI, &users, disk::directory(&own).unwrap()).unwrap();
        let login = |path: &Path| serde_json::from_slice::<Value>(&fs::read(path).unwrap()).unwrap().to_string();
        lend();
        assert_eq!(login(&users), new);

        fs::write(own.join("oauth_creds.json"), "rubbish").unwrap();
        lend();
        assert_eq!(login(&own.join("oauth_creds.json")), new, "rubbish goes for the user's");
        fs::write(&users, "").unwrap();
        lend();
        assert_eq!(login(&own.join("oauth_creds.json")), new, "but not for what is being written just now");

        fs::remove_file(&users).unwrap();
        assert!(lend().is_none());
        assert!(!own.join("oauth_creds.json").exists(), "whoever signs out is signed out here too");
    }
}
