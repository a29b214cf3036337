//! Permission policies as the configuration writes them: a mode, or a table of a mode and rules.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::Value;

use crate::model::mistake;
use crate::model::permission::policy::PolicyProblem;
use crate::model::permission::rule::Rule;
use crate::model::{PermissionMode, Policy};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    mode: Option<PermissionMode>,
    rules: Option<Vec<Rule>>,
}

/// A profile's policy. What it leaves out is as `granted`, the general one, has it.
pub fn policy(value: Value, granted: Policy) -> Result<Policy, PolicyProblem> {
    let written = match value {
        Value::String(mode) => {
            let mode = mode.parse().map_err(|problem| PolicyProblem { field: String::new(), problem })?;
            Written { mode: Some(mode), rules: None }
        }
        value => read(value)?,
    };
    let Written { mode, rules } = written;
    let policy = Policy { mode: mode.unwrap_or(granted.mode), rules: rules.unwrap_or(granted.rules) };
    policy.check()?;
    Ok(policy)
}

/// The general rules.
pub fn rules(value: Value) -> Result<Vec<Rule>, PolicyProblem> {
    let policy = Policy { mode: PermissionMode::Ask, rules: read(value)? };
    let within = |problem: PolicyProblem| PolicyProblem {
        field: problem.field.strip_prefix("rules").unwrap_or(&problem.field).to_owned(),
        ..problem
    };
    policy.check().map_err(within)?;
    Ok(policy.rules)
}

fn read<T: DeserializeOwned>(value: Value) -> Result<T, PolicyProblem> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path().to_string();
        let field = if path == "." || path == "?" { String::new() } else { path };
        // The library repeats the field on a line of its own.
        let problem = error.inner().to_string();
        let problem = problem.split("\nin `").next().unwrap_or(&problem);
        PolicyProblem { field, problem: mistake::in_plain_words(problem) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(toml: &str) -> Value {
        let mut table: toml::Table = toml.parse().unwrap();
        table.remove("p").unwrap()
    }

    #[test]
    fn a_profile_keeps_what_it_does_not_say() {
        let general = Policy {
            mode: PermissionMode::Ask,
            rules: rules(value(r#"p = [{ decision = "deny", commands = ["rm"] }]"#)).unwrap(),
        };
        let mode = policy(value(r#"p = "edit""#), general.clone()).unwrap();
        assert_eq!((mode.mode, mode.rules.len()), (PermissionMode::Edit, 1), "a mode leaves the general rules");
        let own = policy(value("p = { rules = [] }"), general).unwrap();
        assert_eq!((own.mode, own.rules.len()), (PermissionMode::Ask, 0));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_rule() {
        for (toml, field, problem) in [
            (r#"p = [{ decision = "deny" }, { decision = "allow", paths = ["a", "/b"] }]"#, "[1].paths[1]", "glob"),
            (r#"p = [{ decision = "allow", paths = ["a["] }]"#, "[0].paths[0]", "glob"),
            (r#"p = [{ decision = "allow", commands = ["a; b"] }]"#, "[0].commands[0]", "shell"),
            (r#"p = [{ decision = "allow", commands = [[]] }]"#, "[0].commands[0]", "words"),
            (r#"p = [{ decision = "maybe" }]"#, "[0].decision", "maybe"),
            (r#"p = [{ decision = 5 }]"#, "[0].decision", "must be"),
            (r#"p = [{ decision = "allow", paths = 5 }]"#, "[0].paths", "must be a list"),
            ("p = 5", "", "must be a list"),
            ("p = [5]", "[0]", "must be an object"),
            (r#"p = [{ decision = "allow", kinds = ["write"] }]"#, "[0].kinds[0]", "write"),
            (r#"p = [{ decision = "allow", paths = [] }]"#, "[0].paths", "empty"),
            (r#"p = [{ decision = "allow", path = ["a"] }]"#, "[0].path", "path"),
        ] {
            let error = rules(value(toml)).unwrap_err();
            assert!(error.field == field && error.problem.contains(problem), "{toml}: {error:?}");
        }
        assert!(policy(value(r#"p = "maybe""#), Policy::of(PermissionMode::Ask)).is_err());
    }
}
