//! What the help of each command shows as examples. A test reads every line as the command line would.

/// A line is two spaces, what one types, and after two or more spaces what that does.
const EXAMPLES: &[(&str, &str)] = &[
    (
        "serve",
        "  acpd serve                                    in this terminal, until Ctrl-C
  acpd serve --config ./config.toml --state-dir /tmp/acpd-trial",
    ),
    (
        "migrate",
        "  acpd migrate                                  to this version's schema
  acpd migrate --down 12                        back, before an older acpd is installed",
    ),
    (
        "run",
        "  acpd run \"fix the failing test\"
  acpd run --agent demo hello                   without any key or model
  git diff | acpd run \"review this\"
  acpd run --no-wait \"write the tests\"          accepted; acpd attach - shows the rest
  acpd run --attach screen.png \"what is wrong here?\"
  acpd run --timeout 10m \"update the dependencies\"
  acpd run -C ~/src/app --title changelog \"write the changelog\"",
    ),
    (
        "new",
        "  acpd new --agent demo                         prints the id of the session
  acpd new --title docs --tag work --permissions edit
  acpd new --lazy                               the agent starts with the first prompt
  acpd new --mcp files --mcp docs               with these of the agent's MCP servers; --no-mcp: none",
    ),
    (
        "prompt",
        "  acpd prompt - \"and now document it\"           to the newest session of this directory
  acpd prompt docs \"shorter, please\"            to the one with the title docs
  cargo test 2>&1 | acpd prompt - \"explain this\"
  acpd prompt - --attach screen.png \"what is wrong here?\"",
    ),
    (
        "attach",
        "  acpd attach -                                 what the newest session here did and does
  acpd attach - --tail 1                        only the last turn, and what follows
  acpd attach 5f6a7b8c9d0e --json               its events, one a line",
    ),
    (
        "ls",
        "  acpd ls                                       active and suspended ones
  acpd ls --all                                 archived ones too, and those in error
  acpd ls --agent gemini --status suspended
  acpd ls -w                                    kept in view until q
  acpd ls -C . --json",
    ),
    ("ps", "  acpd ps                                       agents that run now"),
    ("rename", "  acpd rename - \"fix the parser\""),
    (
        "logs",
        "  acpd logs                                     the last 100 lines of the daemon's log
  acpd logs -f -n 20                            the last 20, and every new one",
    ),
    ("reload", "  acpd reload                                   after a change of the file"),
    (
        "config",
        "  acpd config                                   keys that differ from their defaults
  acpd config --default                         every key, explained
  acpd config set sessions.agent claude",
    ),
    (
        "config get",
        "  acpd config get limits.processes
  acpd config get limits                        all keys of the section",
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
        "  acpd show -                                   the newest session of this directory
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
        "  acpd turns -                                  each prompt, and how it ended
  acpd turns - --json",
    ),
    (
        "search",
        "  acpd search exit code                         messages with both words
  acpd search '\"exit code\" NOT daemon' --since 7d
  acpd search migrat* --role agent -C .",
    ),
    (
        "export",
        "  acpd export - --output session.json           for `acpd import` on another machine
  acpd export docs --format markdown | less
  acpd export - --format workflow --output docs.yaml --force",
    ),
    (
        "checkpoint",
        "  acpd checkpoint create - half --state '{\"next\": \"write the tests\"}'
  acpd checkpoint list -
  acpd checkpoint restore - half --new          a session that goes on from there",
    ),
    (
        "checkpoint create",
        "  acpd checkpoint create - half
  acpd checkpoint create - half --state @state.json
  git diff --stat | jq -Rs . | acpd checkpoint create - half --state -",
    ),
    ("checkpoint list", "  acpd checkpoint list -"),
    ("checkpoint show", "  acpd checkpoint show - half                   its state, as JSON"),
    (
        "checkpoint restore",
        "  acpd checkpoint restore - half                its state
  acpd checkpoint restore - half --new --title \"second try\"",
    ),
    (
        "records",
        "  acpd records                                  what was done in which session
  acpd records show - --json
  acpd records submit session.json",
    ),
    (
        "records list",
        "  acpd records list --order-by duration -n 5    the longest
  acpd records list --source submitted",
    ),
    ("records show", "  acpd records show -                           of the newest session here"),
    (
        "records submit",
        "  acpd records submit .cursor/memory/sessions/s-100.json
  jq .record export.json | acpd records submit -",
    ),
    (
        "timeline",
        "  acpd timeline ISSUE-7                         the sessions with such an outcome
  acpd timeline - --from 7d",
    ),
    (
        "cancel",
        "  acpd cancel -                                 the running turn
  acpd cancel - --queued                        and all that wait",
    ),
    (
        "mode",
        "  acpd mode -                                   which there are, and which is in force\n  acpd mode - plan",
    ),
    ("model", "  acpd model -                                  which there are, and which is in force"),
    (
        "permissions",
        "  acpd permissions                              what waits for an answer
  acpd permissions - --all                      all that this session asked, with the answers",
    ),
    (
        "approve",
        "  acpd approve                                  the only question that is open
  acpd approve 7b8c9d0e                         this one, as `acpd permissions` shows it
  acpd approve 7b8c9d0e --always                and the same again in this session",
    ),
    (
        "reject",
        "  acpd reject                                   the only question that is open
  acpd reject 7b8c9d0e --always                 this one, and the same again in this session",
    ),
    (
        "rules",
        "  acpd rules -                                  what was answered with \"always\" here
  acpd rules - --revoke 7b8c9d0e",
    ),
    ("resume", "  acpd resume -\n  acpd resume docs"),
    ("archive", "  acpd archive -                                done with it; it can still be read"),
    (
        "rm",
        "  acpd rm - --reason \"wrong branch\"             archives it, and says why
  acpd rm 5f6a7b8c9d0e --purge                  deletes it with all its messages",
    ),
    (
        "gc",
        "  acpd gc --dry-run                             what would be deleted, and when
  acpd gc",
    ),
    (
        "import",
        "  acpd import session.json                      go on with a session of another machine
  acpd import session.json --workspace . --agent demo
  acpd import old.db --workspace /home/a/src=/home/b/src --dry-run
  acpd import .cursor/memory/sessions           every JSON file in it: exports and session records",
    ),
    ("backup", "  acpd backup ~/acpd-2026-07-01.db"),
    (
        "agents",
        "  acpd agents                                   what there is, and what is missing
  acpd agents check gemini                      start it, shake hands, see whether it is signed in
  acpd agents add mine --command ~/bin/agent    a program of your own",
    ),
    ("agents list", "  acpd agents list --json"),
    ("agents show", "  acpd agents show gemini                       its command, and what it needs"),
    (
        "agents check",
        "  acpd agents check                             the default agent
  acpd agents check gemini codex                these
  acpd agents check --all                       all that are installed",
    ),
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
    ("agents archive", "  acpd agents archive reviewer                  its sessions go on"),
    (
        "agents add",
        "  acpd agents add mine --command /opt/agent --arg=--acp
  acpd agents add mine --npx @scope/agent --env-pass SCOPE_API_KEY --default
  acpd agents add fast --uvx fast-agent-acp --arg=--model --arg=haiku
  acpd agents add claude --env-file ~/.config/acpd/claude.env",
    ),
    ("agents remove", "  acpd agents remove mine                       sessions of it go on"),
    ("workspaces", "  acpd workspaces"),
    ("workspaces add", "  acpd workspaces add ~/src/app"),
    ("workspaces rm", "  acpd workspaces rm ~/src/app"),
    (
        "status",
        "  acpd status                                   how the daemon is; never starts one
  acpd status --json",
    ),
    ("stop", "  acpd stop                                     the next `acpd run` starts it again"),
    ("top", "  acpd top                                      q leaves, ? tells the keys"),
    (
        "doctor",
        "  acpd doctor                                   look at everything, and try the default agent
  acpd doctor --agents                          try every agent that is installed
  acpd doctor --json                            an array of {group, check, status, message, hint}",
    ),
    (
        "install-service",
        "  acpd install-service --user                   your own daemon, from login on
  acpd install-service --user --uninstall
  sudo acpd install-service                     the machine's, for the group acpd
  acpd install-service --print                  only show the units",
    ),
    (
        "socket",
        "  acpd socket
  curl --unix-socket \"$(acpd socket)\" http://acpd/v1/sessions",
    ),
    (
        "mcp",
        "  acpd mcp --socket ~/.local/state/acpd/run/ID/tools.sock   as an agent starts it, with its session's socket",
    ),
    (
        "completions",
        "  source <(acpd completions bash)               in ~/.bashrc
  source <(acpd completions zsh)                in ~/.zshrc, after compinit
  acpd completions fish | source                in ~/.config/fish/config.fish",
    ),
    (
        "man",
        "  acpd man | man -l -                           the first page, now
  acpd man --out ~/.local/share/man/man1        all pages: man acpd, man acpd-run",
    ),
];

/// The examples of the command at this path, such as `agents check`.
pub fn of(path: &str) -> Option<&'static str> {
    EXAMPLES.iter().find(|(name, _)| *name == path).map(|(_, text)| *text)
}
