use proptest::prelude::*;

use super::*;

fn stdio(command: &str) -> Transport {
    Transport::Stdio { command: command.to_owned(), args: vec![] }
}

fn http(url: &str) -> Transport {
    Transport::Http { url: url.to_owned() }
}

fn own(name: &str, transport: Transport, values: &[(&str, &str)]) -> OwnServer {
    let values = values.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    OwnServer { name: name.to_owned(), transport, values }
}

#[test]
fn a_session_has_what_it_chose_or_all_of_its_profiles() {
    let server = |name: &str| ProfileServer { transport: stdio("x"), values: BTreeMap::new() }.freeze(name);
    let profile = [server("a"), server("b")];
    let names = |chosen: Option<&[ChosenServer]>| -> Vec<String> {
        let name = |server: SessionServer<'_>| match server {
            SessionServer::Profile(server) => server.name.clone(),
            SessionServer::Own(server) => format!("own {}", server.name),
        };
        of_session(&profile, chosen).into_iter().map(name).collect()
    };
    assert_eq!(names(None), ["a", "b"]);
    assert_eq!(names(Some(&[])), Vec::<String>::new());
    let chosen = [ChosenServer::Named("b".to_owned()), ChosenServer::Own(own("c", stdio("y"), &[]))];
    assert_eq!(names(Some(&chosen)), ["b", "own c"]);
    let kept: Vec<ChosenServer> = serde_json::from_str(&serde_json::to_string(&chosen).unwrap()).unwrap();
    assert_eq!(kept, chosen, "the record gives back what it was given");
}

#[test]
fn a_frozen_server_holds_no_value() {
    let values = BTreeMap::from([("API_KEY".to_owned(), Secret::from("hunter2-hunter2"))]);
    let frozen = ProfileServer { transport: stdio("x"), values }.freeze("a");
    let text = serde_json::to_string(&frozen).unwrap();
    assert_eq!(text, r#"{"name":"a","type":"stdio","command":"x","args":[],"valueNames":["API_KEY"]}"#);
    assert_eq!(serde_json::from_str::<FrozenServer>(&text).unwrap(), frozen);
}

#[test]
fn what_looks_like_a_secret_is_not_taken_as_plain_text() {
    for name in ["Authorization", "Proxy-Authorization", "Cookie", "X-Api-Key", "x_TOKEN", "Client-Secret", "PASSWORD"]
    {
        let problem = own("a", http("https://a.example/"), &[(name, "literal")]).check().unwrap_err();
        assert_eq!(problem.field, format!("headers.{name}"));
        assert!(problem.hint.contains("${NAME}") && !problem.problem.contains("literal"), "{problem:?}");
        own("a", http("https://a.example/"), &[(name, "Bearer ${IT}")]).check().unwrap();
    }
    let problem = own("a", stdio("x"), &[("PLAIN", "sk-ant-api03-0123456789abcdef")]).check().unwrap_err();
    assert!(problem.field == "env.PLAIN" && !problem.problem.contains("sk-"), "{problem:?}");
    own("a", stdio("x"), &[("LANG", "C"), ("MODE", "fast")]).check().unwrap();
    assert_eq!(own("a", http("https://a.example/?api_key=1"), &[]).check().unwrap_err().field, "url");
}

#[test]
fn what_is_wrong_is_told_by_its_field() {
    let long = "x".repeat(TEXT_BYTES_MAX + 1);
    for (server, field) in [
        (own("", stdio("x"), &[]), ""),
        (own("a", stdio(" "), &[]), "command"),
        (own("a", stdio(&long), &[]), "command"),
        (own("a", Transport::Stdio { command: "x".to_owned(), args: vec!["\0".to_owned()] }, &[]), "args"),
        (own("a", Transport::Stdio { command: "x".to_owned(), args: vec![String::new(); ARGS_MAX + 1] }, &[]), "args"),
        (own("a", http("nonsense"), &[]), "url"),
        (own("a", http(&format!("https://a.example/{}", "x".repeat(URL_BYTES_MAX))), &[]), "url"),
        (own("a", stdio("x"), &[("A-B", "x")]), "env"),
        (own("a", http("https://a.example/"), &[("A B", "x")]), "headers"),
        (own("a", http("https://a.example/"), &[("A", "x\r\nB: y")]), "headers.A"),
        (own("a", stdio("x"), &[("A", &long)]), "env.A"),
        (own("a", stdio("x"), &[("A", "${")]), "env.A"),
        (own("a", stdio("${SHELL}"), &[]), "command"),
        (own("a", http("https://a.example/${X}"), &[]), "url"),
        (own("a", http("https://a.example/"), &[("X", "1"), ("x", "2")]), "headers.x"),
        (
            own("a", http("https://a.example/"), &[("Authorization", "Bearer a-literal-${HOME}")]),
            "headers.Authorization",
        ),
    ] {
        assert_eq!(server.check().unwrap_err().field, field, "{server:?}");
    }
    assert!(check_all([("a", 1), ("b", 1), ("a", 1)].into_iter()).unwrap_err().contains("twice"));
    let many: Vec<String> = (0..=SERVERS_MAX).map(|number| format!("s{number}")).collect();
    let many: Vec<(&str, usize)> = many.iter().map(|name| (name.as_str(), 9)).collect();
    assert!(check_all(many.iter().copied()).is_err());
    assert_eq!(check_all(many.iter().skip(1).copied()), Ok(()));
    assert!(check_all([("a", ALL_BYTES_MAX)].into_iter()).unwrap_err().contains("together"));
}

proptest! {
    #[test]
    fn names_are_of_a_few_characters(name in "[A-Za-z0-9_-]{1,64}") {
        prop_assert!(is_name(&name));
    }

    #[test]
    fn other_names_are_refused(name in "\\PC{0,80}") {
        let is_plain = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
        prop_assert_eq!(is_name(&name), is_plain && !name.is_empty() && name.len() <= 64);
    }
}
