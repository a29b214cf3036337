//! Policies: a mode and ordered rules; and what holds for a session, which is the stricter of two of them.

use serde::{Deserialize, Serialize};

use super::rule::{Rule, Ruling};
use super::standing::StandingRule;
use super::{Located, PermissionMode, Verdict};

/// Rules of one policy.
const RULES_MAX: usize = 256;

/// A permission mode and rules. The first matching rule decides; otherwise the mode decides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    pub mode: PermissionMode,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 256)]
    pub rules: Vec<Rule>,
}

/// A part of a policy that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyProblem {
    /// Such as `rules[2].paths`.
    pub field: String,
    pub problem: String,
}

impl Policy {
    pub const fn of(mode: PermissionMode) -> Self {
        Self { mode, rules: Vec::new() }
    }

    pub fn check(&self) -> Result<(), PolicyProblem> {
        if self.rules.len() > RULES_MAX {
            let problem = format!("must be at most {RULES_MAX}");
            return Err(PolicyProblem { field: "rules".to_owned(), problem });
        }
        for (index, rule) in self.rules.iter().enumerate() {
            rule.check()
                .map_err(|(name, problem)| PolicyProblem { field: format!("rules[{index}].{name}"), problem })?;
        }
        Ok(())
    }

    pub fn judge(&self, action: &Located) -> Verdict {
        let matching = self.rules.iter().enumerate().find(|(_, rule)| rule.matches(action));
        let Some((index, rule)) = matching else { return self.mode.judge(action) };
        let by = format!("rules[{index}]");
        match rule.decision {
            Ruling::Allow => Verdict::Allow { by },
            Ruling::Deny => Verdict::Deny { by },
            Ruling::Ask => Verdict::Ask,
        }
    }

    /// The decision of the first rule that matches.
    fn ruling(&self, action: &Located) -> Option<Ruling> {
        self.rules.iter().find(|rule| rule.matches(action)).map(|rule| rule.decision)
    }

    /// Whether a rule says less than the mode, so that not all is allowed that the mode allows.
    pub fn has_exceptions(&self) -> bool {
        self.rules.iter().any(|rule| rule.decision != Ruling::Allow)
    }

    /// Whether the workspace is not to be written to by the agent's process itself.
    pub const fn forbids_writes(&self) -> bool {
        matches!(self.mode, PermissionMode::ReadOnly | PermissionMode::Deny)
    }
}

/// All that decides what a session's agent may do.
#[derive(Clone, Debug)]
pub struct Authority {
    /// The rules of the profile's base, where the profile has its own, and the same mode.
    pub base: Option<Policy>,
    /// The profile's rules and the widest mode that the session may have, as they were when the session was made.
    pub profile: Policy,
    /// The session's mode and rules, which only narrow that.
    pub session: Policy,
    /// What persons have answered for good.
    pub standing: Vec<StandingRule>,
}

impl Authority {
    fn policies(&self) -> impl Iterator<Item = &Policy> {
        self.base.iter().chain([&self.profile, &self.session])
    }

    /// The stricter word of profile and session holds. What a person said for good lifts a question, and never a
    /// refusal; and a refusal for good holds against everything.
    pub fn judge(&self, action: &Located) -> Verdict {
        let matching = |allows: bool| {
            let rule = self.standing.iter().find(|rule| rule.allows == allows && rule.matches(action));
            rule.map(|rule| format!("rule {}", rule.id))
        };
        let (profile, session) = (self.profile.judge(action).of("profile"), self.session.judge(action).of("session"));
        // Most sessions have their profile's rules: a rule is named as the profile's, and a mode as the session's.
        let verdict = match self.profile.ruling(action) {
            Some(_) => profile.or_stricter(session),
            None => session.or_stricter(profile),
        };
        let verdict = match &self.base {
            Some(base) => verdict.or_stricter(base.judge(action).of("base")),
            None => verdict,
        };
        match verdict {
            Verdict::Deny { .. } => verdict,
            Verdict::Allow { .. } | Verdict::Ask if let Some(by) = matching(false) => Verdict::Deny { by },
            Verdict::Ask => matching(true).map_or(Verdict::Ask, |by| Verdict::Allow { by }),
            Verdict::Allow { .. } => verdict,
        }
    }

    /// Whether it is a rule, and not a mode, that has a person asked.
    pub fn has_rule_that_asks(&self, action: &Located) -> bool {
        self.policies().any(|policy| policy.ruling(action) == Some(Ruling::Ask))
    }

    /// The verdict on a question that is no action.
    pub fn judge_question(&self) -> Verdict {
        let base = self.base.as_ref().map(|base| ("base", base));
        let mut policies = base.into_iter().chain([("profile", &self.profile), ("session", &self.session)]);
        match policies.find(|(_, policy)| policy.mode == PermissionMode::Deny) {
            Some((whose, _)) => Verdict::Deny { by: format!("{whose} mode deny") },
            None => Verdict::Ask,
        }
    }

    /// Whether the workspace is not to be written to by the agent's process itself.
    pub fn forbids_writes(&self) -> bool {
        self.policies().any(Policy::forbids_writes)
    }
}
