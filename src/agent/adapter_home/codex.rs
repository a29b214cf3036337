//! Codex's settings in a session's home: the user's, with a permission profile in which Codex asks.
//!
//! Codex runs commands below bubblewrap, which cannot start within acpd's confinement. With `sandbox_approval`, Codex then asks
//! whether to run the command without its own sandbox. So it asks for every command, which then runs within acpd's confinement.
//! Where bubblewrap works, for example because acpd's confinement is partial, commands can only read without asking.

use toml::Table;

pub const SETTINGS: &str = "config.toml";

/// The mode is called `permission-profile:acpd`.
const OURS: &str = r#"
approvals_reviewer = "user"
default_permissions = "acpd"
[approval_policy.granular]
mcp_elicitations = true
request_permissions = true
rules = true
sandbox_approval = true
skill_approval = true
"#;
const PROFILE: &str = r#"acpd = { extends = ":read-only" }"#;
/// The variable whose settings go before those of the workspace: with full access to the disk there, Codex would need no sandbox,
/// and so would not ask.
pub const VARIABLE: &str = "CODEX_CONFIG";
pub const ENFORCED: &str =
    r#"{"permissions":{"acpd":{"extends":":read-only","filesystem":{":root":"read"},"network":{"enabled":false}}}}"#;

/// The settings of a session, from the user's.
pub fn settings(users: &str) -> Result<String, String> {
    let read = |text: &str| text.parse::<Table>().map_err(|error| error.message().to_owned());
    let mut settings = read(users)?;
    // `sandbox_mode` would replace the profile, and the settings of a trusted project could replace how Codex asks.
    settings.retain(|key, _| key != "sandbox_mode" && key != "projects");
    settings.extend(read(OURS)?);
    let profiles = settings.entry("permissions").or_insert_with(|| Table::new().into());
    profiles.as_table_mut().ok_or("`permissions` is not a table")?.extend(read(PROFILE)?);
    Ok(settings.to_string())
}
