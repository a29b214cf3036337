//! The JSON of a search.

use serde::{Deserialize, Serialize};

use crate::model::message::Role;
use crate::model::{MessageId, SessionId, Timestamp, TurnId, WorkspaceId};
use crate::store;

#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct SearchResults {
    pub results: Vec<SearchResult>,
    /// The number of matches, counted up to 10,000.
    pub total: usize,
    pub limit: i64,
    pub offset: i64,
    /// The number of messages in the searched scope that are not indexed yet.
    pub pending: i64,
}

#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SearchResult {
    pub session_id: SessionId,
    pub title: String,
    pub workspace: String,
    pub workspace_id: WorkspaceId,
    pub agent: String,
    pub message_id: MessageId,
    pub sequence: i64,
    pub turn_id: Option<TurnId>,
    pub role: Role,
    pub created_at: Timestamp,
    pub snippet: Snippet,
    /// The rank; smaller is better. Absent for members of `control.group`, because it is computed from the messages of
    /// all users.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<f64>,
}

#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Snippet {
    pub text: String,
    /// The matches in the text: start and end, counted in Unicode code points.
    #[schema(value_type = Vec<Vec<usize>>)]
    pub matches: Vec<(usize, usize)>,
}

impl From<store::Hit> for SearchResult {
    fn from(hit: store::Hit) -> Self {
        Self {
            session_id: hit.session,
            title: hit.title,
            workspace: hit.workspace,
            workspace_id: hit.workspace_id,
            agent: hit.agent,
            message_id: hit.message,
            sequence: hit.sequence,
            turn_id: hit.turn,
            role: hit.role,
            created_at: hit.created_at,
            snippet: Snippet { text: hit.snippet.text, matches: hit.snippet.matches },
            rank: hit.rank,
        }
    }
}
