//! How requests are read: bodies, queries and ids, each refused with the name of what is wrong.

use std::str::FromStr;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Uri, header};
use axum::response::{IntoResponse, Response};
use percent_encoding::percent_decode_str;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use utoipa::IntoParams;

use super::Api;
use super::caller::Caller;
use super::error::ApiError;
use super::load::LoadEvent;
use super::memory::{self, Budget, Share};
use super::misreading;
use crate::model::{PermissionId, RuleId, SessionId, TurnId, WorkspaceId};

/// What a body may have of structure beside that of a prompt's text: the blocks' own fields, and a context with its
/// variables.
const STRUCTURE_ROOM: usize = 32 << 10;

/// Rows in a list when the request does not say, and at the most.
pub const LIMIT_DEFAULT: i64 = 20;
pub const LIMIT_MAX: i64 = 1000;

/// A JSON body, and a JSON answer.
pub struct Json<T>(pub T);

impl<T: DeserializeOwned> FromRequest<Arc<Api>> for Json<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, api: &Arc<Api>) -> Result<Self, ApiError> {
        let body = read_body(request, api).await?;
        from_json(&body.ok_or_else(|| ApiError::invalid("", "the body is missing"))?.bytes).map(Self)
    }
}

/// A JSON body that may be left out.
pub struct OptionalJson<T>(pub T);

impl<T: DeserializeOwned + Default> FromRequest<Arc<Api>> for OptionalJson<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, api: &Arc<Api>) -> Result<Self, ApiError> {
        match read_body(request, api).await? {
            Some(body) => from_json(&body.bytes).map(Self),
            None => Ok(Self(T::default())),
        }
    }
}

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        match serde_json::to_vec(&self.0) {
            Ok(body) => ([(header::CONTENT_TYPE, "application/json")], body).into_response(),
            Err(error) => {
                let what = format!("cannot write the response as JSON: {error}");
                ApiError::from(crate::store::StoreError::Damaged { what }).into_response()
            }
        }
    }
}

/// A body, with its share of the memory that all bodies have.
pub(super) struct WholeBody {
    pub bytes: Bytes,
    pub share: Option<Share>,
}

/// How large a body may be, and whose memory it takes.
pub(super) struct Bounds<'a> {
    pub bytes_max: usize,
    /// Brackets and commas, and the setting that they follow from.
    pub structure_max: usize,
    pub setting: &'static str,
    pub budget: &'a Budget,
}

/// The whole body, which must say that it is JSON; nothing when it is empty.
pub(super) async fn read_body(request: Request, api: &Arc<Api>) -> Result<Option<WholeBody>, ApiError> {
    let config = api.registry.shared().config();
    let bounds = Bounds {
        bytes_max: config.control.body_max.0,
        structure_max: config.limits.prompt_max.0.saturating_add(STRUCTURE_ROOM),
        setting: "limits.prompt_max",
        budget: &api.bodies,
    };
    read_within(request, api, &bounds).await
}

pub(super) async fn read_within(
    request: Request,
    api: &Arc<Api>,
    bounds: &Bounds<'_>,
) -> Result<Option<WholeBody>, ApiError> {
    let config = api.registry.shared().config();
    // Nothing that takes a body takes a query as well.
    no_query(request.uri())?;
    let (head, body) = request.into_parts();
    let caller = head.extensions.get::<Caller>().ok_or(ApiError::NoCaller)?;
    let (uid, max) = (caller.peer.uid, caller.body_max(bounds.bytes_max));
    if let Some(found) = encoding(&head.headers) {
        return Err(ApiError::UnsupportedEncoding { found });
    }
    let announced = head.headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    let collected = memory::collect(body, announced, max, (bounds.budget, uid));
    let collected = tokio::time::timeout(config.control.body_timeout, collected).await;
    let (body, share) = collected.unwrap_or(Err(ApiError::BodyTimeout)).inspect_err(|error| {
        if matches!(error, ApiError::BodyTimeout) {
            api.load.count(LoadEvent::BodyTimeout);
        }
    })?;
    if body.is_empty() {
        return Ok(None);
    }
    let found = head.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    let essence = found.split(';').next().unwrap_or("").trim();
    if !essence.eq_ignore_ascii_case("application/json") {
        return Err(ApiError::UnsupportedMediaType { found: found.to_owned() });
    }
    check_structure(&body, bounds)?;
    Ok(Some(WholeBody { bytes: body, share }))
}

/// What was done to a body that acpd cannot undo.
fn encoding(headers: &HeaderMap) -> Option<String> {
    let found = headers.get_all(header::CONTENT_ENCODING).iter();
    let mut found = found.map(|value| String::from_utf8_lossy(value.as_bytes()).trim().to_owned());
    found.find(|found| !found.is_empty() && !found.eq_ignore_ascii_case("identity"))
}

/// A value takes a hundred times its JSON in memory when it is read, so bodies of nothing but brackets are refused before
/// that. Within a text these bytes are no structure, but there are no more of them than a prompt has.
fn check_structure(body: &[u8], bounds: &Bounds<'_>) -> Result<(), ApiError> {
    let count = body.iter().filter(|byte| matches!(byte, b'[' | b'{' | b',')).count();
    let Bounds { structure_max, setting, .. } = bounds;
    if count <= *structure_max {
        return Ok(());
    }
    let problem = format!("the body has {count} brackets and commas; the maximum is {structure_max} ({setting})");
    Err(ApiError::invalid("", problem))
}

pub(super) fn from_json<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    // A list would be taken for the fields in their order.
    if !body.trim_ascii_start().starts_with(b"{") {
        let hint = "send one JSON object in { }";
        return Err(ApiError::misunderstood("", "the body is not a JSON object", hint));
    }
    let mut reader = serde_json::Deserializer::from_slice(body);
    let value = serde_path_to_error::deserialize(&mut reader).map_err(|error| misreading::explained(&error))?;
    reader.end().map_err(|error| ApiError::invalid("", format!("unexpected data after the JSON object: {error}")))?;
    Ok(value)
}

/// A query where there is nothing to ask for.
pub(super) fn no_query(uri: &Uri) -> Result<(), ApiError> {
    let query = uri.query().unwrap_or("");
    match form_urlencoded::parse(query.as_bytes()).next() {
        None => Ok(()),
        Some((name, _)) => {
            let name = misreading::shortened(name);
            let problem = format!("unknown field `{name}`; this route has no query parameters");
            Err(ApiError::misunderstood(name, problem, "remove the query"))
        }
    }
}

/// No query: for routes where there is nothing to ask for. One that is there all the same is refused, as an unknown field is.
pub struct NoQuery;

impl FromRequestParts<Arc<Api>> for NoQuery {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<Api>) -> Result<Self, ApiError> {
        no_query(&parts.uri).map(|()| Self)
    }
}

/// A query string.
pub struct Query<T>(pub T);

impl<T: DeserializeOwned> FromRequestParts<Arc<Api>> for Query<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<Api>) -> Result<Self, ApiError> {
        from_query(parts.uri.query().unwrap_or("")).map(Self)
    }
}

pub(super) fn from_query<T: DeserializeOwned>(query: &str) -> Result<T, ApiError> {
    // What is no UTF-8 would be read as if it had been replacement characters.
    if percent_decode_str(query).decode_utf8().is_err() {
        let hint = "percent-encode the query as UTF-8";
        return Err(ApiError::misunderstood("", "the query is not valid UTF-8", hint));
    }
    let pairs = serde_urlencoded::Deserializer::new(form_urlencoded::parse(query.as_bytes()));
    serde_path_to_error::deserialize(pairs).map_err(|error| misreading::explained(&error))
}

/// The page of a list.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PageQuery {
    /// Maximum number of items to return.
    #[param(minimum = 1, maximum = 1000, default = 20)]
    pub limit: Option<i64>,
    /// Number of items to skip.
    #[param(minimum = 0, default = 0)]
    pub offset: Option<i64>,
}

/// A page of a list, within its bounds.
pub fn page(limit: Option<i64>, offset: Option<i64>) -> Result<(i64, i64), ApiError> {
    let limit = limit.unwrap_or(LIMIT_DEFAULT);
    let offset = offset.unwrap_or(0);
    if !(1..=LIMIT_MAX).contains(&limit) {
        return Err(ApiError::invalid("limit", format!("must be from 1 to {LIMIT_MAX}")));
    }
    if offset < 0 {
        return Err(ApiError::invalid("offset", "must not be negative"));
    }
    Ok((limit, offset))
}

/// An id in the path. What is no id names nothing, so it is not found.
pub struct Id<T>(pub T);

/// What kind of thing an id names.
pub trait Named: FromStr {
    fn not_found(id: String) -> ApiError;
}

macro_rules! named {
    ($($id:ty: $not_found:ident),*) => {
        $(impl Named for $id {
            fn not_found(id: String) -> ApiError {
                ApiError::$not_found(id)
            }
        })*
    };
}

named!(
    SessionId: NoSuchSession,
    TurnId: NoSuchTurn,
    WorkspaceId: NoSuchWorkspace,
    PermissionId: NoSuchPermission,
    RuleId: NoSuchRule
);

pub fn named<T: Named>(text: String) -> Result<T, ApiError> {
    text.parse().map_err(|_| T::not_found(text))
}

impl<T: Named> FromRequestParts<Arc<Api>> for Id<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Result<Self, ApiError> {
        let Text(text) = Text::from_request_parts(parts, api).await?;
        named(text).map(Self)
    }
}

/// A name in the path.
pub struct Text(pub String);

impl FromRequestParts<Arc<Api>> for Text {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Result<Self, ApiError> {
        let path = Path::<String>::from_request_parts(parts, api).await;
        path.map(|Path(text)| Self(text)).map_err(|error| ApiError::invalid("", error.body_text()))
    }
}

/// Two names in the path.
pub struct Texts(pub String, pub String);

impl FromRequestParts<Arc<Api>> for Texts {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Result<Self, ApiError> {
        let path = Path::<(String, String)>::from_request_parts(parts, api).await;
        path.map(|Path((first, second))| Self(first, second))
            .map_err(|error| ApiError::invalid("id", error.body_text()))
    }
}

/// A session, and something of its own, in the path.
pub struct Within<T> {
    pub session: SessionId,
    pub id: T,
}

impl<T: Named> FromRequestParts<Arc<Api>> for Within<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Result<Self, ApiError> {
        let Texts(session, id) = Texts::from_request_parts(parts, api).await?;
        Ok(Self { session: named(session)?, id: named(id)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_may_have_as_much_structure_as_a_prompt_has_bytes() {
        let budget = Budget::new(0, 0, Arc::default());
        let check = |body: &str, prompt_bytes_max: usize| {
            let (structure_max, setting) = (prompt_bytes_max + STRUCTURE_ROOM, "limits.prompt_max");
            check_structure(body.as_bytes(), &Bounds { bytes_max: 0, structure_max, setting, budget: &budget })
        };
        let commas = format!(r#"{{"text":"{}"}}"#, ",".repeat(100));
        assert!(check(&commas, 100).is_ok(), "a prompt may be all commas");
        let nothing = "[],".repeat(STRUCTURE_ROOM);
        assert!(check(&nothing, STRUCTURE_ROOM).is_ok());
        assert!(check(&nothing, STRUCTURE_ROOM - 1).is_err());
    }
}
