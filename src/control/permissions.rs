//! Questions of agents: listed, shown and answered; and what was answered for good.

use std::sync::Arc;

use axum::extract::State;
use serde::Deserialize;
use utoipa::IntoParams;

use super::Api;
use super::caller::Caller;
use super::error::ApiError;
use super::extract::{Id, Json, LIMIT_MAX, NoQuery, Query, Within, page};
use super::wire::permissions::{
    AnswerPermission, ElicitationAction, Permission, PermissionList, PermissionRule, PermissionRuleList,
};
use crate::model::permission::question::Decision;
use crate::model::{Peer, PermissionId, RuleId, SessionId};
use crate::registry::RegistryError;
use crate::session::{PermissionAnswer, Refusal};
use crate::store::PermissionFilter;

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListQuery {
    /// `open` for open permission requests, `all` to include answered ones.
    #[param(pattern = "^(open|all)$", default = "open")]
    status: Option<String>,
    /// Include the permission requests of all users. Only root can do this; for other users it has no effect.
    #[serde(default)]
    all: bool,
    /// Maximum number of items to return.
    #[param(minimum = 1, maximum = 1000, default = 20)]
    limit: Option<i64>,
    /// Number of items to skip.
    #[param(minimum = 0, default = 0)]
    offset: Option<i64>,
}

/// List the permission requests of all sessions, by default only open ones.
#[utoipa::path(
    get,
    path = "/v1/permissions",
    operation_id = "listPermissions",
    tag = "permissions",
    params(ListQuery),
    responses((status = 200, description = "A page of permission requests.", body = PermissionList)),
)]
pub async fn of_all(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Query(query): Query<ListQuery>,
) -> Result<Json<PermissionList>, ApiError> {
    list(&api, &caller, None, &query).await
}

/// List a session's permission requests, by default only open ones.
#[utoipa::path(
    get,
    path = "/v1/sessions/{id}/permissions",
    operation_id = "listSessionPermissions",
    tag = "permissions",
    params(
        ("id" = SessionId, Path, description = "The session's id."),
        ListQuery,
    ),
    responses((status = 200, description = "A page of permission requests.", body = PermissionList)),
)]
pub async fn of_session(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Id(session): Id<SessionId>,
    Query(query): Query<ListQuery>,
) -> Result<Json<PermissionList>, ApiError> {
    caller.session(&api, session).await?;
    list(&api, &caller, Some(session), &query).await
}

async fn list(
    api: &Api,
    caller: &Caller,
    session: Option<SessionId>,
    query: &ListQuery,
) -> Result<Json<PermissionList>, ApiError> {
    let (limit, offset) = page(query.limit, query.offset)?;
    let open_only = match query.status.as_deref() {
        None | Some("open") => true,
        Some("all") => false,
        Some(other) => return Err(ApiError::invalid("status", format!("must be open or all, not {other:?}"))),
    };
    let sight = if session.is_some() { caller.sight() } else { caller.listing(query.all) };
    let filter = PermissionFilter { sight, session, open_only };
    let (permissions, total) = api.registry.hub().store().permissions(filter, limit, offset).await?;
    let permissions = permissions.into_iter().map(Permission::from).collect();
    Ok(Json(PermissionList { permissions, total, limit, offset }))
}

/// Show a permission request.
#[utoipa::path(
    get,
    path = "/v1/permissions/{id}",
    operation_id = "getPermission",
    tag = "permissions",
    params(
        ("id" = PermissionId, Path, description = "The permission request's id."),
    ),
    responses((status = 200, description = "The permission request, with its answer if there is one.", body = Permission)),
)]
pub async fn show(
    State(api): State<Arc<Api>>,
    _: NoQuery,
    caller: Caller,
    Id(id): Id<PermissionId>,
) -> Result<Json<Permission>, ApiError> {
    Ok(Json(known(&api, &caller, id, None).await?))
}

/// Answer a permission request. The first answer counts.
#[utoipa::path(
    post,
    path = "/v1/permissions/{id}",
    operation_id = "answerPermission",
    tag = "permissions",
    params(
        ("id" = PermissionId, Path, description = "The permission request's id."),
    ),
    request_body = AnswerPermission,
    responses((status = 200, description = "The answered permission request. The answer is committed and goes to the agent.", body = Permission)),
)]
pub async fn answer(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Id(id): Id<PermissionId>,
    Json(request): Json<AnswerPermission>,
) -> Result<Json<Permission>, ApiError> {
    decide(&api, &caller, id, None, request).await
}

/// Answer a permission request of a session. The first answer counts.
#[utoipa::path(
    post,
    path = "/v1/sessions/{id}/permissions/{permission}",
    operation_id = "answerSessionPermission",
    tag = "permissions",
    params(
        ("id" = SessionId, Path, description = "The session's id."),
        ("permission" = PermissionId, Path, description = "The permission request's id."),
    ),
    request_body = AnswerPermission,
    responses((status = 200, description = "The answered permission request. The answer is committed and goes to the agent.", body = Permission)),
)]
pub async fn answer_in_session(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Within { session, id }: Within<PermissionId>,
    Json(request): Json<AnswerPermission>,
) -> Result<Json<Permission>, ApiError> {
    caller.session(&api, session).await?;
    decide(&api, &caller, id, Some(session), request).await
}

async fn decide(
    api: &Api,
    caller: &Caller,
    id: PermissionId,
    session: Option<SessionId>,
    request: AnswerPermission,
) -> Result<Json<Permission>, ApiError> {
    let answer = understood(request)?;
    let asked = known(api, caller, id, session).await?;
    match api.registry.answer(asked.session_id, id, answer, Peer::clone(&caller.peer)).await {
        Ok(()) => Ok(Json(known(api, caller, id, session).await?)),
        // Whoever was first is in the record by now.
        Err(RegistryError::Refused(Refusal::PermissionClosed(_))) => {
            Err(ApiError::PermissionAnswered(Box::new(known(api, caller, id, session).await?)))
        }
        Err(error) => Err(error.into()),
    }
}

/// Exactly one way of answering, and what belongs to it.
fn understood(request: AnswerPermission) -> Result<PermissionAnswer, ApiError> {
    let AnswerPermission { option_id, decision, always, action, content } = request;
    let misplaced =
        |field: &str, with: &str| Err(ApiError::invalid(field, format!("can only be given together with {with}")));
    if always.is_some() && decision.is_none() {
        return misplaced("always", "decision");
    }
    if content.is_some() && action != Some(ElicitationAction::Accept) {
        return misplaced("content", "the action accept");
    }
    match (option_id, decision, action) {
        (Some(option), None, None) => Ok(PermissionAnswer::Option(option)),
        (None, Some(decision), None) => Ok(PermissionAnswer::Decision { decision, always: always.unwrap_or(false) }),
        (None, None, Some(action)) => {
            let decision = match action {
                ElicitationAction::Accept => Some(Decision::Allow),
                ElicitationAction::Decline => Some(Decision::Reject),
                ElicitationAction::Cancel => None,
            };
            Ok(PermissionAnswer::Elicitation { decision, content })
        }
        (None, None, None) => Err(ApiError::invalid("decision", "is missing; give optionId, decision or action")),
        _ => Err(ApiError::invalid(
            "decision",
            "conflicts with another field; give only one of optionId, decision and action",
        )),
    }
}

/// List a session's rules that came from "always" answers.
#[utoipa::path(
    get,
    path = "/v1/sessions/{id}/rules",
    operation_id = "listRules",
    tag = "permissions",
    params(("id" = SessionId, Path, description = "The session's id.")),
    responses((status = 200, description = "The session's rules.", body = PermissionRuleList)),
)]
pub async fn rules(
    State(api): State<Arc<Api>>,
    _: NoQuery,
    caller: Caller,
    Id(session): Id<SessionId>,
) -> Result<Json<PermissionRuleList>, ApiError> {
    caller.session(&api, session).await?;
    let rules = api.registry.hub().store().standing_rules(session).await?;
    let rules: Vec<PermissionRule> = rules.into_iter().map(PermissionRule::from).collect();
    let total = i64::try_from(rules.len()).unwrap_or(i64::MAX);
    Ok(Json(PermissionRuleList { rules, total, limit: LIMIT_MAX, offset: 0 }))
}

/// Delete a rule of a session.
///
/// Returns the deleted rule.
#[utoipa::path(
    delete,
    path = "/v1/sessions/{id}/rules/{rule}",
    operation_id = "revokeRule",
    tag = "permissions",
    params(
        ("id" = SessionId, Path, description = "The session's id."),
        ("rule" = RuleId, Path, description = "The rule's id."),
    ),
    responses((status = 200, description = "The deleted rule.", body = PermissionRule)),
)]
pub async fn revoke(
    State(api): State<Arc<Api>>,
    _: NoQuery,
    caller: Caller,
    Within { session, id }: Within<RuleId>,
) -> Result<Json<PermissionRule>, ApiError> {
    caller.session(&api, session).await?;
    let rules = api.registry.hub().store().standing_rules(session).await?;
    let rule = rules.into_iter().find(|rule| rule.id == id).ok_or_else(|| ApiError::NoSuchRule(id.to_string()))?;
    api.registry.revoke(session, id, Some(caller.by())).await?;
    Ok(Json(rule.into()))
}

/// The question, when there is one and it is this session's.
async fn known(
    api: &Api,
    caller: &Caller,
    id: PermissionId,
    session: Option<SessionId>,
) -> Result<Permission, ApiError> {
    let permission = api.registry.hub().store().permission(id).await?;
    let permission = permission.filter(|permission| session.is_none_or(|session| permission.session == session));
    let permission = permission.ok_or_else(|| ApiError::NoSuchPermission(id.to_string()))?;
    caller.reach(api, permission.session).await.map_err(|error| match error {
        ApiError::NoSuchSession(_) => ApiError::NoSuchPermission(id.to_string()),
        error => error,
    })?;
    Ok(permission.into())
}
