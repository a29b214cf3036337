//! The examples in the help of each command. A test parses every line as a command line.

/// A line is two spaces, the command, and after two or more spaces what it does.
const EXAMPLES: &[(&str, &str)] = &[
    (
        "serve",
        "  acpd serve                                    run until Ctrl-C
  acpd serve --config ./config.toml --state-dir /tmp/acpd-trial",
    ),
    (
        "migrate",
        "  acpd migrate                                  migrate to this version's schema
  acpd migrate --down 12                        before you install an older acpd",
    ),
    (
        "run",
        "  acpd run \"fix the failing test\"
  acpd run --agent demo hello                   needs no key and no model
  git diff | acpd run \"review this\"
  acpd run --no-wait \"write the tests\"          return at once; acpd attach - shows the answer
  acpd run --attach screen.png \"what is wrong here?\"
  acpd run --timeout 10m \"update the dependencies\"
  acpd run -C ~/src/app --title changelog \"write the changelog\"",
    ),
    (
        "new",
        "  acpd new --agent demo                         print the id of the session
  acpd new --title docs --tag work --permissions edit
  acpd new --lazy                               start the agent with the first prompt
  acpd new --mcp files --mcp docs               use only these of the agent's MCP servers",
    ),
    (
        "prompt",
        "  acpd prompt - \"now document it\"               prompt the newest session here
  acpd prompt docs \"shorter, please\"            prompt the session with the title docs
  cargo test 2>&1 | acpd prompt - \"explain this\"
  acpd prompt - --attach screen.png \"what is wrong here?\"",
    ),
    (
        "attach",
        "  acpd attach -                                 follow the newest session here
  acpd attach - --tail 1                        start with its last turn
  acpd attach 5f6a7b8c9d0e --json               print its events, one per line",
    ),
    (
        "ls",
        "  acpd ls                                       list active and suspended sessions
  acpd ls --all                                 include archived sessions and sessions in error
  acpd ls --agent gemini --status suspended
  acpd ls -w                                    update the list until you press q
  acpd ls -C . --json",
    ),
    ("ps", "  acpd ps                                       list the agents that run now"),
    ("rename", "  acpd rename - \"fix the parser\""),
    (
        "logs",
        "  acpd logs                                     show the last 100 lines
  acpd logs -f -n 20                            show the last 20 lines and follow",
    ),
    ("reload", "  acpd reload                                   after you have changed the file"),
    (
        "config",
        "  acpd config                                   list keys that differ from their defaults
  acpd config --default                         print every key with a comment
  acpd config set sessions.agent claude",
    ),
    (
        "config get",
        "  acpd config get limits.processes
  acpd config get limits                        print all keys of the section",
    ),
    (
        "config set",
        "  acpd config set sessions.agent claude
  acpd config set workspace.roots '[\"~/src\"]'",
    ),
    ("config edit", "  acpd config edit"),
    ("config path", "  acpd config path"),
    (
        "show",
        "  acpd show -                                   show the newest session here
  acpd show 5f6a7b8c9d0e --json",
    ),
    (
        "messages",
        "  acpd messages -
  acpd messages - --last 10
  acpd messages docs --since 2h --json",
    ),
    (
        "turns",
        "  acpd turns -                                  list the turns of the newest session here
  acpd turns - --json",
    ),
    (
        "search",
        "  acpd search exit code                         find messages with both words
  acpd search '\"exit code\" NOT daemon' --since 7d
  acpd search migrat* --role agent -C .",
    ),
    (
        "export",
        "  acpd export - --output session.json           to import on another machine
  acpd export docs --format markdown | less
  acpd export - --format workflow --output docs.yaml --force",
    ),
    (
        "checkpoint",
        "  acpd checkpoint create - half --state '{\"next\": \"write the tests\"}'
  acpd checkpoint list -
  acpd checkpoint restore - half --new          continue in a new session",
    ),
    (
        "checkpoint create",
        "  acpd checkpoint create - half
  acpd checkpoint create - half --state @state.json
  git diff --stat | jq -Rs . | acpd checkpoint create - half --state -",
    ),
    ("checkpoint list", "  acpd checkpoint list -"),
    ("checkpoint show", "  acpd checkpoint show - half                   print its state as JSON"),
    (
        "checkpoint restore",
        "  acpd checkpoint restore - half                print its state
  acpd checkpoint restore - half --new --title \"second try\"",
    ),
    (
        "records",
        "  acpd records                                  list session records
  acpd records show - --json
  acpd records submit session.json",
    ),
    (
        "records list",
        "  acpd records list --order-by duration -n 5    list the five longest
  acpd records list --source submitted",
    ),
    ("records show", "  acpd records show -                           show the record of the newest session here"),
    (
        "records submit",
        "  acpd records submit .cursor/memory/sessions/s-100.json
  acpd records submit - < record.json           read it from standard input",
    ),
    (
        "timeline",
        "  acpd timeline ISSUE-7                         list what happened to ISSUE-7, oldest first
  acpd timeline - --from 7d",
    ),
    (
        "cancel",
        "  acpd cancel -                                 cancel the running turn
  acpd cancel - --queued                        cancel the queued turns too",
    ),
    (
        "mode",
        "  acpd mode -                                   list the modes, the current one marked\n  acpd mode - plan",
    ),
    ("model", "  acpd model -                                  list the models, the current one marked"),
    (
        "permissions",
        "  acpd permissions                              list open requests
  acpd permissions - --all                      include answered requests of this session",
    ),
    (
        "approve",
        "  acpd approve                                  allow the only open request
  acpd approve 7b8c9d0e                         allow this one (ids: acpd permissions)
  acpd approve 7b8c9d0e --always                allow it and identical requests",
    ),
    (
        "reject",
        "  acpd reject                                   reject the only open request
  acpd reject 7b8c9d0e --always                 reject it and identical requests",
    ),
    (
        "rules",
        "  acpd rules -                                  list the rules of this session
  acpd rules - --revoke 7b8c9d0e",
    ),
    ("resume", "  acpd resume -\n  acpd resume docs"),
    (
        "keep",
        "  acpd keep -                                   exempt it from retention
  acpd keep - --undo                            let it expire again",
    ),
    ("archive", "  acpd archive -                                end it; its messages stay readable"),
    (
        "rm",
        "  acpd rm - --reason \"wrong branch\"             archive it and record why
  acpd rm 5f6a7b8c9d0e --purge                  delete it with all its messages",
    ),
    (
        "gc",
        "  acpd gc --dry-run                             show what would be deleted, and when
  acpd gc",
    ),
    (
        "import",
        "  acpd import session.json                      continue a session from another machine
  acpd import session.json --workspace . --agent demo
  acpd import old.db --workspace /home/a/src=/home/b/src --dry-run
  acpd import .cursor/memory/sessions           import every export and record in it",
    ),
    ("backup", "  acpd backup ~/acpd-2026-07-01.db"),
    (
        "agents",
        "  acpd agents                                   list agents and what is missing
  acpd agents check gemini                      start it and check the sign-in
  acpd agents add mine --command ~/bin/agent    add your own program",
    ),
    ("agents list", "  acpd agents list --json"),
    ("agents show", "  acpd agents show gemini                       show its command and requirements"),
    (
        "agents check",
        "  acpd agents check                             check the default agent
  acpd agents check gemini codex
  acpd agents check --all                       check all installed agents",
    ),
    (
        "agents key",
        "  acpd agents key gemini                        type or paste the key; it is not shown
  acpd agents key opencode --variable OPENROUTER_API_KEY < key.txt",
    ),
    ("agents login", "  acpd agents login claude                      run its own sign-in here, then check it"),
    (
        "agents create",
        "  acpd agents create reviewer --base claude --system-prompt @review.md --mode plan
  acpd agents create quick --model haiku --tag cheap",
    ),
    (
        "agents edit",
        "  acpd agents edit reviewer --system-prompt 'You review. You change nothing.'
  acpd agents edit reviewer --unset model --restore",
    ),
    ("agents archive", "  acpd agents archive reviewer                  existing sessions continue"),
    (
        "agents add",
        "  acpd agents add mine --command /opt/agent --arg=--acp
  acpd agents add mine --npx @scope/agent --env-pass SCOPE_API_KEY --default
  acpd agents add fast --uvx fast-agent-acp --arg=--model --arg=haiku
  acpd agents add claude --env-file ~/.config/acpd/claude.env",
    ),
    ("agents remove", "  acpd agents remove mine                       existing sessions continue"),
    ("workspaces", "  acpd workspaces"),
    ("workspaces add", "  acpd workspaces add ~/src/app"),
    ("workspaces rm", "  acpd workspaces rm ~/src/app"),
    (
        "status",
        "  acpd status                                   never starts a daemon
  acpd status --json",
    ),
    ("stop", "  acpd stop                                     the next `acpd run` starts it again"),
    ("top", "  acpd top                                      q quits, ? lists the keys"),
    (
        "doctor",
        "  acpd doctor                                   check everything and start the default agent
  acpd doctor --agents                          start every installed agent
  acpd doctor --json                            print [{group, check, status, message, hint}]",
    ),
    (
        "install-service",
        "  acpd install-service --user                   your own daemon, started at login
  acpd install-service --user --uninstall
  sudo acpd install-service                     one for the machine, for the group acpd
  acpd install-service --print                  print the units, install nothing",
    ),
    (
        "socket",
        "  acpd socket
  curl --unix-socket \"$(acpd socket)\" http://acpd/v1/sessions",
    ),
    ("mcp", "  acpd mcp --socket ~/.local/state/acpd/run/ID/tools.sock"),
    (
        "completions",
        "  source <(acpd completions bash)               in ~/.bashrc
  source <(acpd completions zsh)                in ~/.zshrc, after compinit
  acpd completions fish | source                in ~/.config/fish/config.fish",
    ),
    (
        "man",
        "  acpd man | man -l -                           read the first page
  acpd man --out ~/.local/share/man/man1        then: man acpd, man acpd-run",
    ),
];

/// The examples of the command at this path, such as `agents check`.
pub fn of(path: &str) -> Option<&'static str> {
    EXAMPLES.iter().find(|(name, _)| *name == path).map(|(_, text)| *text)
}
