//! The traps: each of them is a way in which a policy could allow what nobody allowed.

use proptest::prelude::*;

use super::policy::{Authority, Policy};
use super::rule::{CommandPrefix, PathGlob, Rule, Ruling};
use super::standing::{StandingRule, Subject};
use super::*;
use crate::model::{Peer, RuleId, Timestamp};

fn rule(decision: Ruling) -> Rule {
    Rule { decision, kinds: None, paths: None, commands: None }
}

fn with_paths(decision: Ruling, globs: &[&str]) -> Rule {
    Rule { paths: Some(globs.iter().map(|glob| PathGlob::new(glob).unwrap()).collect()), ..rule(decision) }
}

fn with_command(decision: Ruling, prefix: &[&str]) -> Rule {
    let prefix = CommandPrefix(prefix.iter().map(|&word| word.to_owned()).collect());
    Rule { commands: Some(vec![prefix]), ..rule(decision) }
}

fn policy(mode: PermissionMode, rules: Vec<Rule>) -> Policy {
    Policy { mode, rules }
}

fn inside(path: &str) -> Place {
    Place::Inside { real: path.to_owned(), named: path.to_owned() }
}

fn edit(places: Vec<Place>) -> Located {
    Located { said: ToolKind::Edit, places, ..Located::default() }
}

fn run(text: &str) -> Located {
    Located { said: ToolKind::Execute, command: Some(CommandText::Shell(text.to_owned())), ..Located::default() }
}

fn word(policy: &Policy, action: &Located) -> &'static str {
    match policy.judge(action) {
        Verdict::Allow { .. } => "allow",
        Verdict::Deny { .. } => "deny",
        Verdict::Ask => "ask",
    }
}

#[test]
fn a_command_that_nobody_knows_is_asked_and_met_by_every_rule_that_forbids_commands() {
    let unknown = Located { said: ToolKind::Execute, tool: Some("shell".to_owned()), ..Located::default() };
    let all = vec![rule(Ruling::Allow), Rule { kinds: Some(vec![ToolKind::Execute]), ..rule(Ruling::Allow) }];
    assert_eq!(word(&policy(PermissionMode::Allow, all), &unknown), "ask");
    assert_eq!(word(&policy(PermissionMode::Allow, vec![with_command(Ruling::Deny, &["rm"])]), &unknown), "deny");
    assert_eq!(word(&policy(PermissionMode::Allow, vec![with_paths(Ruling::Deny, &["a"])]), &unknown), "ask");
    assert_eq!(Subject::of(&unknown), None, "the same again cannot be told");
}

#[test]
fn an_always_for_a_command_is_for_its_directory_and_variables() {
    let at = |cwd: &str, env: &[(&str, &str)]| Located {
        cwd: Some(inside(cwd)).filter(|_| !cwd.is_empty()),
        env: env.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect(),
        ..run("./run.sh")
    };
    let made = at("good", &[("CI", "1")]);
    let (yes, no) = (standing(true, &made), standing(false, &made));
    assert!(yes.matches(&made));
    for other in [at("", &[("CI", "1")]), at("evil", &[("CI", "1")]), at("good", &[]), at("good", &[("CI", "2")])] {
        assert!(!yes.matches(&other), "{other:?}");
        assert!(no.matches(&other), "a refusal holds everywhere: {other:?}");
    }
    let outside = Located { cwd: Some(Place::Outside { named: "/x".to_owned() }), ..run("make") };
    assert_eq!(Subject::of(&outside), None);
    assert_eq!(word(&policy(PermissionMode::Ask, vec![with_command(Ruling::Allow, &["make"])]), &outside), "ask");
    let in_git = Located { cwd: Some(inside(".git/hooks")), ..run("make") };
    assert_eq!(word(&policy(PermissionMode::Allow, vec![]), &in_git), "ask");
}

#[test]
fn an_always_for_a_tool_is_for_what_it_was_given() {
    let given =
        |input: &str| Located { tool: Some("t".to_owned()), input: Some(input.to_owned()), ..Located::default() };
    let rule = standing(true, &given("1"));
    assert!(rule.matches(&given("1")) && !rule.matches(&given("2")));
    assert!(!rule.matches(&Located { input: None, ..given("1") }));
}

#[test]
fn a_rule_of_an_older_version_is_narrower_or_ignored() {
    let rule = |json: &str| StandingRule { subject: serde_json::from_str(json).unwrap(), ..standing(true, &run("x")) };
    let command = rule(r#"{"kind": "execute", "command": "sh"}"#);
    let words = CommandText::Arguments(["sh", "-c", "ls"].map(str::to_owned).into());
    let unclear = Located { is_unclear: true, input: Some("1".to_owned()), ..run("sh") };
    assert!(command.matches(&run("sh")) && !command.matches(&unclear));
    assert!(!command.matches(&Located { command: Some(words), ..run("sh") }));
    let other = Located { said: ToolKind::Other, tool: Some("wipe".to_owned()), ..edit(vec![inside("a")]) };
    assert!(
        !rule(r#"{"kind": "other", "paths": ["a"]}"#).matches(&other),
        "another tool may do anything with the file"
    );
    let beside = Located { beside: vec![inside("b")], ..edit(vec![inside("a")]) };
    assert!(!rule(r#"{"kind": "edit", "paths": ["a"]}"#).matches(&beside));
}

fn standing(allows: bool, action: &Located) -> StandingRule {
    StandingRule {
        id: RuleId::new(),
        allows,
        subject: Subject::of(action).unwrap(),
        made_by: Peer { uid: 1, pid: None, program: None },
        made_at: Timestamp::from_millis(0),
    }
}

#[test]
fn an_always_lifts_a_question_and_never_a_refusal() {
    let (test, push) = (run("cargo test"), run("git push"));
    let judge = |mode, rules, standing: Vec<StandingRule>, action: &Located| {
        let (profile, session) = (policy(mode, rules), policy(PermissionMode::Allow, vec![]));
        Authority { base: None, profile, session, standing }.judge(action)
    };
    let allowed = |verdict: Verdict| matches!(verdict, Verdict::Allow { .. });
    let denied = |verdict: Verdict| matches!(verdict, Verdict::Deny { .. });
    let yes = |action: &Located| vec![standing(true, action)];
    assert!(allowed(judge(PermissionMode::Ask, vec![], yes(&test), &test)));
    assert!(allowed(judge(PermissionMode::Ask, vec![], yes(&push), &push)), "a person named it");
    assert_eq!(judge(PermissionMode::Ask, vec![], yes(&test), &run("cargo test; rm x")), Verdict::Ask);
    assert!(denied(judge(PermissionMode::Deny, vec![], yes(&test), &test)));
    assert!(denied(judge(PermissionMode::Ask, vec![with_command(Ruling::Deny, &["cargo"])], yes(&test), &test)));
    assert!(denied(judge(PermissionMode::Allow, vec![], vec![standing(false, &test)], &test)));

    let files = edit(vec![inside("a"), inside("b")]);
    assert!(allowed(judge(PermissionMode::Ask, vec![], yes(&files), &edit(vec![inside("b")]))));
    assert_eq!(judge(PermissionMode::Ask, vec![], yes(&files), &edit(vec![inside("a"), inside("c")])), Verdict::Ask);
    assert_eq!(judge(PermissionMode::Ask, vec![], yes(&files), &edit(vec![])), Verdict::Ask);
    let delete = Located { said: ToolKind::Delete, ..edit(vec![inside("a")]) };
    assert_eq!(judge(PermissionMode::Ask, vec![], yes(&files), &delete), Verdict::Ask, "another kind is another thing");

    let tool = Located { said: ToolKind::Other, tool: Some("weather".to_owned()), ..Located::default() };
    assert!(allowed(judge(PermissionMode::Ask, vec![], yes(&tool), &tool)));
    let writing = Located { places: vec![inside("a")], ..tool.clone() };
    assert_eq!(judge(PermissionMode::Ask, vec![], yes(&tool), &writing), Verdict::Ask, "it names a file now");
    assert_eq!(Subject::of(&edit(vec![Place::Outside { named: "/x".to_owned() }])), None);
}

fn strictness(verdict: &Verdict) -> u8 {
    match verdict {
        Verdict::Allow { .. } => 0,
        Verdict::Ask => 1,
        Verdict::Deny { .. } => 2,
    }
}

fn any_mode() -> impl Strategy<Value = PermissionMode> {
    use PermissionMode::{Allow, Ask, Deny, Edit, ReadOnly};
    prop::sample::select(vec![Ask, ReadOnly, Edit, Allow, Deny])
}

fn any_kind() -> impl Strategy<Value = ToolKind> {
    prop::sample::select(vec![ToolKind::Read, ToolKind::Edit, ToolKind::Execute, ToolKind::Delete, ToolKind::Other])
}

fn any_policy() -> impl Strategy<Value = Policy> {
    let ruling = prop::sample::select(vec![Ruling::Allow, Ruling::Deny, Ruling::Ask]);
    let paths = prop::option::of(prop::sample::select(vec!["**", "src/*", "a", ".git/**"]));
    let command = prop::option::of(prop::sample::select(vec!["cargo", "git", "rm"]));
    let rule =
        (ruling, prop::option::of(any_kind()), paths, command).prop_map(|(decision, kind, paths, command)| Rule {
            kinds: kind.map(|kind| vec![kind]),
            paths: paths.map(|glob| vec![PathGlob::new(glob).unwrap()]),
            commands: command.map(|word| vec![CommandPrefix(vec![word.to_owned()])]),
            ..rule(decision)
        });
    (any_mode(), prop::collection::vec(rule, 0..4)).prop_map(|(mode, rules)| policy(mode, rules))
}

fn any_action() -> impl Strategy<Value = Located> {
    let place = prop::sample::select(vec!["src/x", "a", ".git/config", "docs/y"]);
    let place = (place, any::<bool>())
        .prop_map(|(path, is_inside)| if is_inside { inside(path) } else { Place::Outside { named: path.to_owned() } });
    let command = prop::option::of("(cargo|git|rm|sh) ?(push|test|status|-c)?[;|&$ ]?[a-z]{0,3}");
    (any_kind(), prop::collection::vec(place, 0..3), command).prop_map(|(said, places, command)| Located {
        said,
        places,
        command: command.map(CommandText::Shell),
        tool: Some("tool".to_owned()),
        ..Located::default()
    })
}

proptest! {
    #[test]
    fn the_stricter_word_holds(profile in any_policy(), session in any_policy(), action in any_action()) {
        let (by_profile, by_session) = (profile.judge(&action), session.judge(&action));
        let both = Authority { base: None, profile, session, standing: vec![] }.judge(&action);
        prop_assert_eq!(strictness(&both), strictness(&by_profile).max(strictness(&by_session)));
    }

    #[test]
    fn a_standing_answer_never_allows_what_is_denied(profile in any_policy(), session in any_policy(), action in any_action()) {
        let before = Authority { base: None, profile: profile.clone(), session: session.clone(), standing: vec![] }.judge(&action);
        if let Some(subject) = Subject::of(&action) {
            let rule = StandingRule { subject, ..standing(true, &run("x")) };
            let after = Authority { base: None, profile, session, standing: vec![rule] }.judge(&action);
            let is_denied = matches!(before, Verdict::Deny { .. });
            prop_assert_eq!(strictness(&after), if is_denied { 2 } else { 0 });
        }
    }

    #[test]
    fn no_prefix_allows_what_a_shell_would_do_more_with(
        before in "[a-z /=.-]{0,8}",
        meta in prop::sample::select(";|&$`<>(){}*?[]!#~\n\r\\^\u{a0}\0\u{2028}".chars().collect::<Vec<char>>()),
        after in "[a-z /;|&$=.-]{0,8}",
    ) {
        let policy = policy(PermissionMode::Ask, vec![with_command(Ruling::Allow, &["cargo", "test"])]);
        let text = format!("cargo test {before}{meta}{after}");
        prop_assert_eq!(policy.judge(&run(&text)), Verdict::Ask);
    }

    #[test]
    fn no_mode_and_no_general_rule_allows_git(mode in any_mode(), before in "[a-z ;&]{0,6}", after in "[a-z ]{0,6}") {
        let policy = policy(mode, vec![rule(Ruling::Allow), with_command(Ruling::Allow, &["git"])]);
        let verdict = policy.judge(&run(&format!("{before} git {after} push")));
        prop_assert!(strictness(&verdict) > 0, "{:?}", verdict);
    }
}
