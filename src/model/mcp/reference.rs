//! `${NAME}` in a value: the variable of that name takes its place when an agent is started. There is no other meaning of
//! `${`, and no way to write it as it is.

const OPEN: &str = "${";

/// A name that a variable of the environment can have.
pub fn is_variable(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// The names that a value refers to, in order; nothing, when it has a `${` that begins no reference.
pub fn names(value: &str) -> Option<Vec<&str>> {
    value.split(OPEN).skip(1).map(|rest| reference(rest).map(|(name, _)| name)).collect()
}

/// What stands around the references of a value. What is malformed is all text.
pub fn literals(value: &str) -> impl Iterator<Item = &str> {
    value.split(OPEN).enumerate().map(|(index, part)| match reference(part) {
        Some((_, text)) if index > 0 => text,
        _ => part,
    })
}

/// The value with every reference replaced, and with `fill` done to the text around them; or the first name that has no value.
/// What takes the place of something is not looked at again.
pub fn resolve<'a>(
    value: &str,
    fill: impl Fn(&str) -> String,
    look_up: impl Fn(&str) -> Option<&'a str>,
) -> Result<String, String> {
    let mut parts = value.split(OPEN);
    let mut resolved = fill(parts.next().unwrap_or_default());
    for rest in parts {
        // What is malformed has been refused before, and is not told: it may be part of a secret.
        let (name, text) = reference(rest).ok_or_else(String::new)?;
        resolved.push_str(look_up(name).ok_or_else(|| name.to_owned())?);
        resolved.push_str(&fill(text));
    }
    Ok(resolved)
}

/// What stands between `${` and `}`, and what follows.
fn reference(rest: &str) -> Option<(&str, &str)> {
    rest.split_once('}').filter(|(name, _)| is_variable(name))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn references_are_found_and_replaced_once() {
        let look_up = |name: &str| match name {
            "A" => Some("1"),
            "B" => Some("${A}"),
            "EMPTY" => Some(""),
            _ => None,
        };
        for (value, resolved) in [
            ("plain $A {A} $", "plain $A {A} $"),
            ("Bearer ${A}", "Bearer 1"),
            ("${A}${B}-${EMPTY}.", "1${A}-."),
            ("", ""),
        ] {
            assert_eq!(resolve(value, str::to_owned, look_up).as_deref(), Ok(resolved), "{value:?}");
        }
        assert_eq!(resolve("${A} ${NONE}", str::to_owned, look_up), Err("NONE".to_owned()));
        let fill = |text: &str| text.replace("{A}", "${A}");
        assert_eq!(resolve("{A}${A}{A}", fill, look_up).as_deref(), Ok("${A}1${A}"), "neither is done to the other");
        assert_eq!(names("x ${A} ${B_2}"), Some(vec!["A", "B_2"]));
        assert_eq!(literals("x ${A} y${B}").collect::<Vec<_>>(), ["x ", " y", ""]);
        for malformed in ["${", "${}", "${A", "${A B}", "${1}", "x ${A} ${-}", "${${A}}"] {
            assert_eq!(names(malformed), None, "{malformed:?}");
        }
    }

    proptest! {
        #[test]
        fn what_refers_to_nothing_stays_as_it_is(value in "[^$]*") {
            prop_assert_eq!(names(&value), Some(vec![]));
            prop_assert_eq!(resolve(&value, str::to_owned, |_| None), Ok(value));
        }

        #[test]
        fn whoever_names_its_references_can_be_resolved(value in "[a-c ${}]{0,24}") {
            let resolved = resolve(&value, str::to_owned, |_| Some("x"));
            prop_assert_eq!(names(&value).is_some(), resolved.is_ok());
        }
    }
}
