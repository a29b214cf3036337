//! Where an agent's environment comes from, and what of it is secret.
//!
//! ```text
//! the daemon's allowlist < env_pass < env_file < credentials < env      what stands further right wins
//! ```
//!
//! Files are read at each start of a process, so a new key holds from the next one on. No error shows a value.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use super::env_file::{self, SyntaxError};
use super::redact::Known;
use crate::model::AgentProfile;
use crate::model::agent::FrozenProfile;
use crate::model::mcp::reference;

/// Names that every agent gets from the daemon's environment. Everything else must be named by the profile.
const ALLOWED: [&str; 22] = [
    "HOME",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "LANG",
    "LANGUAGE",
    "LOGNAME",
    "NODE_EXTRA_CA_CERTS",
    "NO_PROXY",
    "PATH",
    "SHELL",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "TMPDIR",
    "TZ",
    "USER",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_STATE_HOME",
    "http_proxy",
    "https_proxy",
    "no_proxy",
];
const ALLOWED_PREFIX: &str = "LC_";
/// Of those, the ones that may have a password in them when a profile sets them.
const WITH_PASSWORDS: [&str; 4] = ["HTTPS_PROXY", "HTTP_PROXY", "http_proxy", "https_proxy"];

/// Endings of names whose values are no secrets, in every profile. Not `_URL`: an address can contain a password or a token.
const PLAIN_ENDINGS: [&str; 4] = ["_MODEL", "_MODEL_ID", "_MODEL_NAME", "_REGION"];

/// Headers of an MCP server that hold no secret, in lower case: their values are in every other text.
const PLAIN_HEADERS: [&str; 5] = ["accept", "accept-language", "cache-control", "content-type", "user-agent"];

/// systemd's name for where a service's credentials are.
const CREDENTIALS_DIRECTORY: &str = "CREDENTIALS_DIRECTORY";

/// The largest file of variables, and the largest credential: far above any key, and within what a process can be given.
const FILE_BYTES_MAX: u64 = 64 << 10;
/// What others than the owner may do with a file of keys: nothing.
const OTHERS: u32 = 0o077;

#[derive(Debug, thiserror::Error)]
pub enum EnvironmentError {
    #[error(
        "the env_file {path:?} does not exist; create it, or write \"-{}\" in the profile if it is optional",
        .path.display()
    )]
    Missing { path: PathBuf },
    #[error("cannot read the env_file {path:?}: {source}; let acpd's user own it: chown {user} {path:?}")]
    Unreadable { path: PathBuf, user: u32, source: std::io::Error },
    #[error("the env_file {path:?} is not a regular file; give a file with NAME=value lines")]
    NotAFile { path: PathBuf },
    #[error(
        "the env_file {path:?} belongs to the user {owner}, who could change its variables; let acpd's user own it: \
            chown {user} {path:?}"
    )]
    Foreign { path: PathBuf, owner: u32, user: u32 },
    #[error("other users can access the env_file {path:?} (mode {mode:03o}); remove their access: chmod 600 {path:?}")]
    Open { path: PathBuf, mode: u32 },
    #[error("the env_file {path:?} is larger than {FILE_BYTES_MAX} bytes; keep only variables in it")]
    TooLarge { path: PathBuf },
    #[error("the env_file {path:?} is invalid in line {}: it {}; write NAME=value lines", .error.line, .error.problem)]
    Syntax { path: PathBuf, error: SyntaxError },
    #[error(
        "cannot use the credential {credential:?} for {name}: acpd was started without credentials \
            (CREDENTIALS_DIRECTORY); start it from a systemd unit with LoadCredential={credential}:PATH, or use \
            env_file"
    )]
    NoCredentials { name: String, credential: String },
    #[error(
        "cannot read the credential {credential:?} for {name}: {problem}; check LoadCredential={credential}:PATH in \
            acpd's unit"
    )]
    Credential { name: String, credential: String, problem: String },
}

/// Pairs of names and values from one place.
type Variables = Vec<(String, String)>;

/// What a process starts with, but for what acpd adds itself.
#[derive(Debug, Default)]
pub struct Gathered {
    pub variables: BTreeMap<String, String>,
    pub secrets: Vec<Known>,
    /// The names that the profile itself gives a value, and does not only pass on.
    pub given: BTreeSet<String>,
}

pub fn gather(
    frozen: &FrozenProfile,
    current: Option<&AgentProfile>,
    environment: &BTreeMap<String, String>,
) -> Result<Gathered, EnvironmentError> {
    let mut own: BTreeMap<String, String> = passed(frozen, environment).into_iter().collect();
    let mut gathered = Gathered { variables: allowed(environment), ..Gathered::default() };
    for source in given(frozen, current, environment) {
        let source = source?;
        gathered.given.extend(source.iter().map(|(name, _)| name.clone()));
        own.extend(source);
    }
    // Not of each place: the agent's owner does not learn a value that another place overrides.
    gathered.secrets.extend(secrets(frozen, current, &own));
    gathered.secrets.extend(server_secrets(current));
    gathered.variables.extend(own);
    Ok(gathered)
}

/// The secrets of a profile as far as they can be had now.
pub fn known(profile: &AgentProfile, environment: &BTreeMap<String, String>) -> Vec<Known> {
    let frozen = profile.freeze();
    let there = given(&frozen, Some(profile), environment).flatten();
    let own = [passed(&frozen, environment)]
        .into_iter()
        .chain(there)
        .flat_map(|source| secrets(&frozen, Some(profile), &source.into_iter().collect()));
    own.chain(server_secrets(Some(profile))).collect()
}

/// The names in `env_pass` for which the agent gets a value from nowhere. Reads files.
pub fn unset(profile: &AgentProfile, environment: &BTreeMap<String, String>) -> Vec<String> {
    let frozen = profile.freeze();
    let given = given(&frozen, Some(profile), environment).flatten().flatten();
    let given: BTreeSet<String> = given.map(|(name, _)| name).collect();
    let is_unset = |name: &&String| !environment.contains_key(*name) && !given.contains(*name);
    profile.env_pass.iter().filter(is_unset).cloned().collect()
}

/// What is written for MCP servers in the profile itself. What refers to variables has their secrets, which are known, and
/// what stands around them. Of `Bearer …` and its like, what follows the word is a secret by itself.
fn server_secrets(current: Option<&AgentProfile>) -> Vec<Known> {
    let Some(profile) = current else { return Vec::new() };
    let is_plain =
        |key: &str| is_plain(key, &profile.env_plain) || PLAIN_HEADERS.contains(&key.to_ascii_lowercase().as_str());
    let values = profile.mcp_servers.values().flat_map(|server| &server.values);
    values
        .filter(|(key, _)| !is_plain(key))
        .flat_map(|(key, value)| reference::literals(value.reveal()).map(move |text| (key, text)))
        .flat_map(|(key, text)| {
            let after_word = text.split_once(' ').map(|(_, rest)| rest).filter(|rest| !rest.contains(' '));
            [Some(text), after_word].into_iter().flatten().filter_map(|text| Known::new(key, text))
        })
        .collect()
}

/// What the profile passes on from the daemon's environment. What it gives itself goes before that.
fn passed(frozen: &FrozenProfile, environment: &BTreeMap<String, String>) -> Variables {
    let passed = environment.iter().filter(|(name, _)| frozen.env_pass.contains(name));
    passed.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// What the profile gives itself, place by place; the later one wins.
fn given(
    frozen: &FrozenProfile,
    current: Option<&AgentProfile>,
    environment: &BTreeMap<String, String>,
) -> impl Iterator<Item = Result<Variables, EnvironmentError>> {
    let directory = environment.get(CREDENTIALS_DIRECTORY).map(Path::new);
    let files = frozen.env_file.iter().map(|file| read_env_file(file));
    let credentials = frozen.credentials.iter().map(move |(name, credential)| {
        read_credential(directory, name, credential).map(|value| vec![(name.clone(), value)])
    });
    // A profile that is gone leaves the names without values.
    let own = current.into_iter().flat_map(|profile| &profile.env).filter(|(name, _)| frozen.env_names.contains(name));
    let own: Variables = own.map(|(name, value)| (name.clone(), value.reveal().to_owned())).collect();
    files.chain(credentials).chain([Ok(own)])
}

fn secrets(frozen: &FrozenProfile, current: Option<&AgentProfile>, source: &BTreeMap<String, String>) -> Vec<Known> {
    // As the profile says today: whoever finds that a name is no secret after all helps the sessions that are there.
    let plain = current.map_or(&frozen.env_plain, |profile| &profile.env_plain);
    source
        .iter()
        .filter(|(name, _)| !is_plain(name, plain))
        .filter_map(|(name, value)| Known::new(name, value))
        .collect()
}

/// What every agent gets of the daemon's environment, and its terminals too.
pub fn allowed(environment: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let allowed = environment.iter().filter(|(name, _)| is_allowed(name));
    allowed.map(|(name, value)| (name.clone(), value.clone())).collect()
}

fn is_allowed(name: &str) -> bool {
    ALLOWED.contains(&name) || name.starts_with(ALLOWED_PREFIX)
}

/// Whether values of this name are no secrets: in every profile, or because the profile says so.
fn is_plain(name: &str, plain: &[String]) -> bool {
    (is_allowed(name) && !WITH_PASSWORDS.contains(&name))
        || PLAIN_ENDINGS.iter().any(|ending| name.ends_with(ending))
        || plain.iter().any(|plain| plain.strip_suffix('*').map_or(plain == name, |start| name.starts_with(start)))
}

/// Reads a file of variables; one that need not be there and is not has none.
fn read_env_file(reference: &str) -> Result<Variables, EnvironmentError> {
    let (path, is_optional) = reference.strip_prefix('-').map_or((reference, false), |path| (path, true));
    let path = PathBuf::from(path);
    let user = rustix::process::geteuid().as_raw();
    let file = match open(&path, OFlags::empty()) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound && is_optional => return Ok(Vec::new()),
        Err(error) if error.kind() == ErrorKind::NotFound => return Err(EnvironmentError::Missing { path }),
        Err(source) => return Err(EnvironmentError::Unreadable { path, user, source }),
    };
    // Of what was opened, and not of what the path leads to by now.
    let metadata = match file.metadata() {
        Ok(metadata) => metadata,
        Err(source) => return Err(EnvironmentError::Unreadable { path, user, source }),
    };
    if !metadata.is_file() {
        return Err(EnvironmentError::NotAFile { path });
    }
    if ![0, user].contains(&metadata.uid()) {
        return Err(EnvironmentError::Foreign { path, owner: metadata.uid(), user });
    }
    let mode = metadata.mode() & 0o777;
    if mode & OTHERS != 0 {
        return Err(EnvironmentError::Open { path, mode });
    }
    match read(file) {
        Ok(Some(bytes)) => env_file::parse(&bytes).map_err(|error| EnvironmentError::Syntax { path, error }),
        Ok(None) => Err(EnvironmentError::TooLarge { path }),
        Err(source) => Err(EnvironmentError::Unreadable { path, user, source }),
    }
}

/// A credential's value. Who may read it is systemd's to say, by means that the file's mode does not show.
fn read_credential(directory: Option<&Path>, name: &str, credential: &str) -> Result<String, EnvironmentError> {
    let (name, credential) = (name.to_owned(), credential.to_owned());
    let Some(directory) = directory else { return Err(EnvironmentError::NoCredentials { name, credential }) };
    let failed = |problem: String| {
        let (name, credential) = (name.clone(), credential.clone());
        EnvironmentError::Credential { name, credential, problem }
    };
    let file = open(&directory.join(&credential), OFlags::NOFOLLOW).map_err(|error| failed(error.to_string()))?;
    if !file.metadata().is_ok_and(|metadata| metadata.is_file()) {
        return Err(failed("it is not a regular file".to_owned()));
    }
    let bytes = read(file).map_err(|error| failed(error.to_string()))?;
    let bytes = bytes.ok_or_else(|| failed(format!("it is larger than {FILE_BYTES_MAX} bytes")))?;
    let text = String::from_utf8(bytes).map_err(|_| failed("it is not UTF-8".to_owned()))?;
    let text = text.strip_suffix('\n').map_or(text.as_str(), |text| text.strip_suffix('\r').unwrap_or(text));
    if text.contains('\0') {
        return Err(failed("it has a zero byte, which a variable cannot contain".to_owned()));
    }
    Ok(text.to_owned())
}

/// Not blocking: what is there may be a pipe that nobody writes to.
fn open(path: &Path, more: OFlags) -> std::io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY | more;
    Ok(File::from(rustix::fs::open(path, flags, Mode::empty())?))
}

/// All of a file; nothing, when that is too much.
fn read(file: File) -> std::io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    Ok(Some(bytes).filter(|bytes| bytes.len() as u64 <= FILE_BYTES_MAX))
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;
    use crate::model::mcp::{ProfileServer, Transport};

    fn private(path: &Path, text: &str) {
        std::fs::write(path, text).unwrap();
        std::fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
    }

    #[test]
    fn a_file_of_keys_is_taken_only_from_whom_it_can_be_trusted_to_come() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys");
        let reference = path.to_str().unwrap().to_owned();
        let told = |reference: &str| read_env_file(reference).unwrap_err().to_string();
        assert!(told(&reference).contains("does not exist"));
        assert_eq!(read_env_file(&format!("-{reference}")).unwrap(), []);

        private(&path, "KEY=value\n");
        assert_eq!(read_env_file(&reference).unwrap(), [("KEY".to_owned(), "value".to_owned())]);
        let link = directory.path().join("link");
        symlink(&path, &link).unwrap();
        assert!(read_env_file(link.to_str().unwrap()).is_ok(), "what counts is the file that it leads to");
        for mode in [0o640, 0o604, 0o620, 0o777] {
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let told = told(&reference);
            assert!(told.contains(&format!("mode {mode:o}")) && told.contains("chmod 600 "), "{told}");
        }
        private(&path, "KEY=value\nhunter2\n");
        let syntax = told(&reference);
        assert!(syntax.contains("line 2") && !syntax.contains("hunter2"), "{syntax}");
        private(&path, &format!("KEY={}", "x".repeat(usize::try_from(FILE_BYTES_MAX).unwrap())));
        assert!(told(&format!("-{reference}")).contains("larger than"));
        assert!(told(directory.path().to_str().unwrap()).contains("not a regular file"));
        let pipe = directory.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, Mode::RWXU, 0).unwrap();
        assert!(told(pipe.to_str().unwrap()).contains("not a regular file"), "and nobody waits for it");
        if rustix::process::geteuid().is_root() {
            private(&path, "KEY=value");
            std::os::unix::fs::chown(&path, Some(4321), None).unwrap();
            assert!(told(&reference).contains("belongs to the user 4321"));
        }
    }

    #[test]
    fn a_credential_is_a_file_in_the_directory_and_no_other() {
        let directory = tempfile::tempdir().unwrap();
        let at = Some(directory.path());
        for (text, value) in [("key", "key"), ("key\n", "key"), ("key\r\n", "key"), ("a\n\n", "a\n"), ("", "")] {
            std::fs::write(directory.path().join("c"), text).unwrap();
            assert_eq!(read_credential(at, "KEY", "c").unwrap(), value, "{text:?}");
        }
        symlink("/etc/passwd", directory.path().join("link")).unwrap();
        std::fs::write(directory.path().join("binary"), b"\xff\xfe").unwrap();
        std::fs::write(directory.path().join("zero"), b"a\0b").unwrap();
        for credential in ["link", "absent", ".", "binary", "zero"] {
            assert!(read_credential(at, "KEY", credential).is_err(), "{credential}");
        }
        let told = read_credential(None, "KEY", "c").unwrap_err().to_string();
        assert!(told.contains("LoadCredential=c:PATH"), "{told}");
    }

    #[test]
    fn what_is_written_for_servers_is_a_secret_unless_it_refers_to_one_or_is_plain() {
        let url = "https://a.example/".to_owned();
        let values = [
            ("Accept", "application/json"),
            ("Authorization", "Bearer literal-token"),
            ("X-Plain", "plain-and-long"),
            ("X-Reference", "Bearer ${TOKEN}"),
            ("X-Words", "three plain words"),
        ]
        .map(|(key, value)| (key.to_owned(), value.into()));
        let server = ProfileServer { transport: Transport::Http { url }, values: values.into() };
        let profile = AgentProfile {
            mcp_servers: BTreeMap::from([("a".to_owned(), server)]),
            env_plain: vec!["X-Plain".to_owned()],
            ..AgentProfile::new("x")
        };
        let expected = [
            ("Authorization", "Bearer literal-token"),
            ("Authorization", "literal-token"),
            ("X-Words", "three plain words"),
        ];
        let expected: Vec<Known> = expected.iter().filter_map(|(name, value)| Known::new(name, value)).collect();
        // In a comparison, because whoever looks at them sees no value.
        assert!(server_secrets(Some(&profile)) == expected);
        assert!(known(&profile, &BTreeMap::new()) == expected);
    }

    #[test]
    fn names_that_are_no_secrets_are_told_by_the_profile_or_known_to_all() {
        let plain = ["GEMINI_CLI_*", "PROJECT"].map(str::to_owned);
        for name in ["GEMINI_CLI_HOME", "PROJECT", "HOME", "LC_ALL", "PATH", "KIMI_MODEL_NAME", "AWS_REGION"] {
            assert!(is_plain(name, &plain), "{name}");
        }
        for name in ["GEMINI_API_KEY", "PROJECT_KEY", "HTTPS_PROXY", "LD_PRELOAD", "MODEL_KEY", "KIMI_BASE_URL"] {
            assert!(!is_plain(name, &plain), "{name}");
        }
    }
}
