//! The JSON of how the daemon is.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{ErrorBody, StoreReport};

#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Health {
    /// `ok` or `degraded`.
    pub status: String,
    /// Always true in a response. Absent in older daemons, like the fields that follow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub live: Option<bool>,
    /// Whether the daemon accepts and stores new work. Absent unless requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<bool>,
    /// The daemon's problems. Those that prevent work come first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problems: Option<Vec<HealthProblem>>,
    /// Members of `control.group` do not see this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<StoreReport>,
    /// The first problem, as an error.
    #[serde(flatten)]
    #[schema(ignore)]
    pub error: Option<ErrorBody>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct HealthProblem {
    pub severity: Severity,
    pub code: String,
    /// Members of `control.group` do not see the message and the hint.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hint: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The daemon is not ready.
    Problem,
    /// The daemon works in spite of this.
    Warning,
}

impl Health {
    pub fn of(status: &str) -> Self {
        Self { status: status.to_owned(), live: None, ready: None, problems: None, store: None, error: None }
    }

    /// As it is told to a guest: that something is wrong and what it is called, but nothing of directories, disks and files.
    pub fn without_inside(self) -> Self {
        let codes_only = |problem| HealthProblem { message: String::new(), hint: String::new(), ..problem };
        let problems = self.problems.map(|problems| problems.into_iter().map(codes_only).collect());
        let error = self.error.map(|error| ErrorBody {
            error: error.error,
            message: "the daemon is not ready".to_owned(),
            hint: "ask the administrator of the daemon".to_owned(),
            details: Value::Object(Map::new()),
        });
        Self { problems, error, store: None, ..self }
    }
}

impl From<&ErrorBody> for HealthProblem {
    fn from(error: &ErrorBody) -> Self {
        let ErrorBody { error: code, message, hint, .. } = error.clone();
        Self { severity: Severity::Problem, code, message, hint }
    }
}
