//! Requests that may come again: what has the `Idempotency-Key` of an earlier one is answered as that was.
//!
//! The key is committed with what its request brings about ([`crate::store::Claim`]), so that there is never one without
//! the other. Requests with one key are taken one after another, in front of everything that they could bring about; and
//! one that has begun goes on to its end when its client goes away, because that client may be about to ask again.
//!
//! A handler takes [`Keyed`] in place of `Json`, asks [`begin`], answers [`Attempt::Again`] from what is remembered, and
//! hands its work to [`First::run`].

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::{IntoResponse, Response};
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use tokio::sync::OwnedMutexGuard;
use tracing::Instrument;

use super::Api;
use super::caller::Caller;
use super::error::ApiError;
use super::extract::{from_json, read_body};
use crate::model::SessionId;
use crate::registry::RegistryError;
use crate::store::{Claim, Remembered};

pub const KEY: HeaderName = HeaderName::from_static("idempotency-key");
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
pub const KEY_CHARS_MAX: usize = 255;

/// A JSON body, and the key under which it came.
pub struct Keyed<T> {
    pub key: Option<Key>,
    pub body: T,
}

pub struct Key {
    uid: u32,
    text: String,
    body_hash: [u8; 32],
}

impl Key {
    /// The path says more than the session: the same body about something else is another request.
    pub fn about(self, what: &str) -> Self {
        let body_hash = Sha256::new().chain_update(self.body_hash).chain_update(what).finalize().into();
        Self { body_hash, ..self }
    }
}

impl<T: DeserializeOwned> FromRequest<Arc<Api>> for Keyed<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, api: &Arc<Api>) -> Result<Self, ApiError> {
        keyed(request, api, || Err(ApiError::invalid("", "the body is missing"))).await
    }
}

/// The same, where the body may be left out.
pub struct OptionalKeyed<T>(pub Keyed<T>);

impl<T: DeserializeOwned + Default> FromRequest<Arc<Api>> for OptionalKeyed<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, api: &Arc<Api>) -> Result<Self, ApiError> {
        keyed(request, api, || Ok(T::default())).await.map(Self)
    }
}

async fn keyed<T: DeserializeOwned>(
    request: Request,
    api: &Arc<Api>,
    missing: impl FnOnce() -> Result<T, ApiError>,
) -> Result<Keyed<T>, ApiError> {
    let text = key_of(request.headers())?;
    // Every connection has a peer; what had none would share its keys with nobody else.
    let uid = request.extensions().get::<Caller>().map_or(u32::MAX, |caller| caller.peer.uid);
    let body = read_body(request, api).await?;
    let bytes = body.as_ref().map_or(&[][..], |body| &body.bytes);
    let key = text.map(|text| Key { uid, text, body_hash: Sha256::digest(bytes).into() });
    Ok(Keyed { key, body: if body.is_some() { from_json(bytes)? } else { missing()? } })
}

fn key_of(headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    let wrong = |problem: &str| Err(ApiError::invalid("Idempotency-Key", problem));
    let mut values = headers.get_all(KEY).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return wrong("is given more than once");
    }
    let text = String::from_utf8_lossy(value.as_bytes()).into_owned();
    if !(1..=KEY_CHARS_MAX).contains(&text.len()) || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return wrong(&format!("must have 1 to {KEY_CHARS_MAX} visible ASCII characters, without spaces"));
    }
    Ok(Some(text))
}

/// A request, seen in the light of those before it.
pub enum Attempt {
    First(First),
    /// It has been carried out.
    Again(Remembered),
}

/// A request that is to be carried out now.
pub struct First(Option<(Claim, Turn)>);

/// Looks whether a request has been carried out. One under the same key that is being carried out is waited for.
pub async fn begin(
    api: &Api,
    key: Option<Key>,
    route: &'static str,
    scope: Option<SessionId>,
) -> Result<Attempt, ApiError> {
    let Some(Key { uid, text, body_hash }) = key else {
        return Ok(Attempt::First(First(None)));
    };
    let claim = Claim { uid, route, scope, key: text, body_hash };
    let turn = api.keys.enter(Name { uid, route, scope, key: claim.key.clone() }).await;
    match api.registry.hub().store().remembered(&claim).await? {
        Some(remembered) if remembered.is_same_body => Ok(Attempt::Again(remembered)),
        Some(_) => Err(ApiError::IdempotencyMismatch { key: claim.key }),
        None => Ok(Attempt::First(First(Some((claim, turn))))),
    }
}

impl First {
    /// Carries the request out. The work commits its claim with whatever else it commits; when it fails, nothing is
    /// remembered.
    pub async fn run<T, W>(self, api: &Arc<Api>, work: impl FnOnce(Option<Claim>) -> W) -> Result<T, ApiError>
    where
        T: Send + 'static,
        W: Future<Output = Result<T, ApiError>> + Send + 'static,
    {
        let Some((claim, turn)) = self.0 else { return work(None).await };
        let work = work(Some(claim));
        let whole = async move {
            let outcome = work.await;
            drop(turn);
            outcome
        };
        let outcome = api.registry.see_through(whole.in_current_span()).await;
        outcome.unwrap_or(Err(ApiError::Registry(RegistryError::ActorFailed)))
    }
}

/// An answer that was given before.
pub fn again(answer: impl IntoResponse) -> Response {
    let mut response = answer.into_response();
    response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
    response
}

/// What a key is unique within.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Name {
    uid: u32,
    route: &'static str,
    scope: Option<SessionId>,
    key: String,
}

type Gate = Arc<tokio::sync::Mutex<()>>;

/// The keys of requests that are being carried out: as many as there are requests.
#[derive(Debug, Default)]
pub struct Keys(Arc<Mutex<HashMap<Name, Gate>>>);

/// The right to carry out the request of one key. Dropping it lets the next one look.
struct Turn {
    keys: Arc<Mutex<HashMap<Name, Gate>>>,
    name: Name,
    passage: Option<OwnedMutexGuard<()>>,
}

impl Keys {
    async fn enter(&self, name: Name) -> Turn {
        let gate = Arc::clone(lock(&self.0).entry(name.clone()).or_default());
        // Made before the wait, so that whoever stops waiting tidies up as well.
        let mut turn = Turn { keys: Arc::clone(&self.0), name, passage: None };
        turn.passage = Some(gate.lock_owned().await);
        turn
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut keys = lock(&self.keys);
        self.passage = None;
        // Nobody holds the gate or waits at it, and nobody can come while the map is locked.
        if keys.get(&self.name).is_some_and(|gate| Arc::strong_count(gate) == 1) {
            keys.remove(&self.name);
        }
    }
}

fn lock(keys: &Mutex<HashMap<Name, Gate>>) -> MutexGuard<'_, HashMap<Name, Gate>> {
    keys.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(key: &str) -> Name {
        Name { uid: 1, route: "prompt", scope: None, key: key.to_owned() }
    }

    #[tokio::test]
    async fn one_key_is_one_after_another_and_nothing_is_left_of_it() {
        let keys = Arc::new(Keys::default());
        let first = keys.enter(name("a")).await;
        drop(keys.enter(name("b")).await);
        let (mut second, mut third) = (Box::pin(keys.enter(name("a"))), Box::pin(keys.enter(name("a"))));
        assert!(futures_util::poll!(&mut second).is_pending());
        assert!(futures_util::poll!(&mut third).is_pending());
        drop(second);
        drop(first);
        drop(third.await);
        assert!(lock(&keys.0).is_empty());
    }

    #[test]
    fn a_key_is_visible_ascii() {
        let headers = |values: &[&[u8]]| {
            let pairs = values.iter().map(|value| (KEY, HeaderValue::from_bytes(value).unwrap()));
            pairs.collect::<HeaderMap>()
        };
        let two: HeaderMap = {
            let mut headers = headers(&[b"a"]);
            headers.append(KEY, HeaderValue::from_static("b"));
            headers
        };
        assert!(key_of(&two).is_err());
        assert_eq!(key_of(&headers(&[])).unwrap(), None);
        assert_eq!(key_of(&headers(&[b"a-Z~!"])).unwrap().as_deref(), Some("a-Z~!"));
        assert!(key_of(&headers(&["x".repeat(255).as_bytes()])).is_ok());
        for wrong in [b"".as_slice(), b"a b", b"a\tb", "ä".as_bytes(), b"\xff", "x".repeat(256).as_bytes()] {
            assert!(key_of(&headers(&[wrong])).is_err(), "{wrong:?}");
        }
    }
}
