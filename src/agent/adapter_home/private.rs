//! The private home of an agent without an adapter: the session's own home, which `HOME` and the XDG variables name.
//!
//! What is in the user's home is there as a link, so that programs find their settings and toolchains and may not change them.
//! Caches are not, because programs make them again. New files stay in the session. What the profile lists in `home_copy` is
//! copied, so that the agent may change it. An agent that writes to an overlay of its home needs none of this.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::{AdapterHome, OPENCODE, Part, Take};
use crate::agent::confine::{Confinement, SessionDirectories};
use crate::model::Adapter;

const HOME: &str = "HOME";
const CACHE: &str = ".cache";
/// What is deep comes first, because a link in its place would lead to the user's.
const LINKED: [&str; 6] = [CACHE, ".config", ".local/share", ".local/state", ".local", ""];

impl AdapterHome {
    /// None if the agent has no home, its profile says where it is, or the agent can write there.
    pub fn private(
        own: &SessionDirectories,
        home_copy: &[String],
        confinement: &Confinement,
        given: &BTreeSet<String>,
        environment: &BTreeMap<String, String>,
    ) -> Option<Self> {
        let inherited = |variable| environment.get(variable).map(PathBuf::from).filter(|_| !given.contains(variable));
        let users = inherited(HOME).filter(|home| home.parent().is_some())?;
        let real = users.canonicalize().unwrap_or_else(|_| users.clone());
        if confinement.writable.iter().any(|directory| real.starts_with(directory)) {
            return None;
        }
        let xdg = OPENCODE.iter().filter_map(|(variable, place, _)| Some((*variable, *place, inherited(variable)?)));
        let xdg: Vec<(&str, &str, PathBuf)> = xdg.collect();
        let moved = xdg.iter().map(|(variable, place, _)| (*variable, *place)).chain([(HOME, "")]);
        let text = |place| own.home.join(place).to_string_lossy().trim_end_matches('/').to_owned();
        let moved = moved.map(|(variable, place)| (variable.to_owned(), text(place))).collect();
        let part = |to: &Path, only, take| {
            let elsewhere = xdg.iter().find_map(|(_, place, users)| Some(users.join(to.strip_prefix(place).ok()?)));
            let from = elsewhere.unwrap_or_else(|| users.join(to));
            Part { from, to: to.to_owned(), only, also: Vec::new(), take }
        };
        let copied = home_copy.iter().filter_map(|path| {
            let path = Path::new(path.strip_prefix("~/")?);
            Some(part(path.parent()?, Some(vec![path.file_name()?.to_string_lossy().into_owned()]), Take::Whole))
        });
        let linked = LINKED.iter().map(|place| part(Path::new(place), (*place == CACHE).then(Vec::new), Take::Links));
        let parts = copied.chain(linked).collect();
        let hidden = confinement.isolation.as_ref().map(|isolation| isolation.hidden.clone()).unwrap_or_default();
        Some(Self { adapter: Adapter::Generic, home: own.home.clone(), parts, hidden, gemini: None, moved })
    }
}
