//! What a session's `sandbox` does not say in one word.

use serde::{Deserialize, Serialize};

use crate::model::Sandbox;

#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SandboxDetails {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub landlock_abi: Option<i32>,
    /// Protections that were requested but are not in force.
    #[serde(default)]
    pub missing: Vec<String>,
}

impl SandboxDetails {
    pub fn of(sandbox: Sandbox) -> Option<Self> {
        let Sandbox { level: _, landlock_abi, missing } = sandbox;
        let is_plain = landlock_abi.is_none() && missing.is_empty();
        (!is_plain).then_some(Self { landlock_abi, missing })
    }
}
