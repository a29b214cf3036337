//! The JSON of what the daemon runs on.

use serde::{Deserialize, Serialize};

/// What of the kernel is in use, not merely in it.
#[expect(clippy::struct_excessive_bools, reason = "each is a feature that is there or not")]
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Kernel {
    pub release: String,
    pub cgroup: CgroupReport,
    pub landlock: LandlockReport,
    /// Files of a workspace are opened beneath it, in one step.
    pub openat2: bool,
    /// What a dead daemon left is ended by descriptor, not by number.
    pub pidfd: bool,
    /// Who is connected is known by descriptor, not by number.
    pub peer_pidfd: bool,
    /// The daemon inherits what agents lose.
    pub subreaper: bool,
    pub user_namespaces: bool,
    pub bubblewrap: BubblewrapReport,
}

#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CgroupReport {
    /// `auto` or `off` (processes.cgroup).
    pub mode: String,
    /// Whether each agent has one of its own.
    pub in_use: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    #[serde(default)]
    pub controllers: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LandlockReport {
    /// `required`, `best-effort` or `off` (sandbox.mode).
    pub mode: String,
    /// The version that agents are confined with; none when the kernel has none.
    pub abi: Option<i32>,
    /// The version whose rights are asked for: with less, agents are confined in part.
    pub abi_wanted: i32,
}

#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BubblewrapReport {
    /// `never`, `prefer` or `require` (sandbox.bubblewrap).
    pub mode: String,
    /// Where it is installed. Whether it works here is tried at the start of an agent, which tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
}

#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Versions {
    pub acpd: String,
    pub acp_protocol: u16,
    pub store_schema: i64,
    pub sqlite: String,
}

#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ResourceLimits {
    /// Open descriptors.
    pub nofile: ResourceLimit,
}

/// None: without a limit.
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ResourceLimit {
    pub soft: Option<u64>,
    pub hard: Option<u64>,
}
