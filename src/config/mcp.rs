//! `[agents.SLUG.mcp_servers.NAME]`: the MCP servers of a profile.

use std::collections::BTreeMap;

use super::read::Section;
use crate::model::mcp::{self, ProfileServer, ServerProblem, Written};
use crate::model::{AgentProfile, Secret};

pub fn read(section: &mut Section<'_>, profile: &mut AgentProfile) {
    let servers = &mut profile.mcp_servers;
    section.section("mcp_servers", |section| {
        section.named_sections(|name, section| {
            if let Some(server) = read_server(section, name) {
                servers.insert(name.to_owned(), server);
            }
        });
    });
    if let Err(problem) = mcp::check_all(servers.iter().map(|(name, server)| (name.as_str(), server.weight()))) {
        section.problem("mcp_servers", problem, "remove some servers, or move them to another profile");
    }
    section.read("mcp_servers_allowed", &mut profile.mcp_servers_allowed);
    section.read("mcp_private_urls", &mut profile.mcp_private_urls);
    section.read("acpd_tools", &mut profile.acpd_tools);
    if profile.acpd_tools && profile.mcp_servers.contains_key(mcp::TOOLS) {
        let problem = "is the name of acpd's own server, which acpd_tools = true adds";
        section.problem("mcp_servers.acpd", problem, "choose another name, or remove acpd_tools");
    }
}

fn read_server(section: &mut Section<'_>, name: &str) -> Option<ProfileServer> {
    let (mut args, mut env, mut headers) = (Vec::new(), BTreeMap::<String, Secret>::new(), BTreeMap::new());
    let (mut command, mut url, mut kind) = (None, None, None);
    section.read("command", &mut command);
    section.read("args", &mut args);
    section.read("env", &mut env);
    section.read("url", &mut url);
    section.read("type", &mut kind);
    section.read("headers", &mut headers);
    let Some((transport, values)) = (Written { command, args, env, kind, url, headers }).sorted() else {
        section.problem("command", "is missing, or does not fit the other keys", Written::<Secret>::HINT);
        return None;
    };
    let server = ProfileServer { transport, values };
    match server.check(name) {
        Ok(()) => Some(server),
        Err(ServerProblem { field, problem, hint }) => {
            section.problem(if field.is_empty() { "NAME" } else { &field }, problem, hint);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    fn read(text: &str) -> Result<Config, String> {
        Config::read(text, "config.toml", &[].into()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_profile_has_servers_that_are_started_and_servers_that_are_called() {
        let config = read(
            "[agents.demo.mcp_servers.files]\ncommand = \"mcp-files\"\nargs = [\"{workspace}\"]\nenv = { KEY = \"${K}\" }\n\
             [agents.demo.mcp_servers.docs]\nurl = \"http://localhost:1/mcp\"\nheaders = { Authorization = \"Bearer x\" }\n\
             [agents.demo.mcp_servers.old]\nurl = \"https://a.example/sse\"\ntype = \"sse\"\n",
        );
        let profile = config.unwrap().agents.remove("demo").unwrap();
        let kinds: Vec<_> =
            profile.mcp_servers.iter().map(|(name, server)| (name.as_str(), server.transport.kind())).collect();
        assert_eq!(kinds, [("docs", "http"), ("files", "stdio"), ("old", "sse")]);
        assert!(!format!("{profile:?}").contains("Bearer"), "nobody sees a value by accident");
    }

    #[test]
    fn what_is_wrong_with_a_server_is_told_by_its_key_and_without_its_values() {
        for (text, key) in [
            ("[x]\n", "x.command"),
            ("[x]\ncommand = \"a\"\nurl = \"https://a.example\"\n", "x.command"),
            ("[x]\ncommand = \"a\"\ntype = \"http\"\n", "x.command"),
            ("[x]\nurl = \"https://a.example\"\ntype = \"carrier\"\n", "x.command"),
            ("[x]\nurl = \"https://a.example\"\nargs = [\"a\"]\n", "x.command"),
            ("[x]\ncommand = \"a\"\nnonsense = 1\n", "x.nonsense"),
            ("[x]\ncommand = \"a\"\nenv = { A = \"hidden ${\" }\n", "x.env.A"),
            ("[x]\nurl = \"https://me:hidden@a.example\"\n", "x.url"),
            ("[\"x y\"]\ncommand = \"a\"\n", "x y.NAME"),
            ("[acpd]\ncommand = \"a\"\n[agents.demo]\nacpd_tools = true\n", "acpd"),
        ] {
            let text = text.replacen('[', "[agents.demo.mcp_servers.", 1);
            let problem = read(&text).unwrap_err();
            assert!(problem.contains(&format!("agents.demo.mcp_servers.{key}: ")), "{text}\n{problem}");
            assert!(!problem.contains("hidden"), "{problem}");
        }
    }
}
