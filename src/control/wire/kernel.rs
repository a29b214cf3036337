//! The JSON of what the daemon runs on.

use serde::{Deserialize, Serialize};

/// Kernel features that acpd uses.
#[expect(clippy::struct_excessive_bools, reason = "each is a feature that is there or not")]
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Kernel {
    pub release: String,
    pub cgroup: CgroupReport,
    pub landlock: LandlockReport,
    /// Whether acpd opens workspace files with openat2, which cannot leave the workspace.
    pub openat2: bool,
    /// Whether acpd kills stale processes by pidfd instead of by process id.
    pub pidfd: bool,
    /// Whether acpd identifies connected clients by pidfd instead of by process id.
    pub peer_pidfd: bool,
    /// Whether the daemon inherits orphaned processes of agents.
    pub subreaper: bool,
    pub user_namespaces: bool,
    pub bubblewrap: BubblewrapReport,
}

#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CgroupReport {
    /// `auto` or `off` (processes.cgroup).
    pub mode: String,
    /// Whether each agent has its own cgroup.
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
    /// The Landlock version in use; null if the kernel has none.
    pub abi: Option<i32>,
    /// The Landlock version that acpd asks for. With an older one the sandbox is weaker.
    pub abi_wanted: i32,
}

#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BubblewrapReport {
    /// `never` or `prefer` (sandbox.bubblewrap).
    pub mode: String,
    /// The path of bubblewrap. Whether it works here is tested when an agent starts.
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
    /// Open file descriptors.
    pub nofile: ResourceLimit,
}

/// A resource limit. Null means unlimited.
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ResourceLimit {
    pub soft: Option<u64>,
    pub hard: Option<u64>,
}
