//! Which version of Landlock this kernel has, as far as agents are confined by it.

use landlock::{ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetError, Scope};

/// Versions whose rights are asked for, the newest first. What later ones bring is not used.
const VERSIONS: [ABI; 6] = [ABI::V6, ABI::V5, ABI::V4, ABI::V3, ABI::V2, ABI::V1];

/// The newest version of which the kernel grants everything. Rules are made for that and thrown away: nothing is confined.
pub fn landlock_abi() -> Option<i32> {
    VERSIONS.into_iter().find(|version| is_granted(*version).is_ok()).map(|version| version as i32)
}

fn is_granted(version: ABI) -> Result<(), RulesetError> {
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(version))?;
    if version >= ABI::V4 {
        rules = rules.handle_access(AccessNet::from_all(version))?;
    }
    if version >= ABI::V6 {
        rules = rules.scope(Scope::from_all(version))?;
    }
    rules.create().map(drop)
}
