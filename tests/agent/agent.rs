//! A scripted ACP agent: it does what a JSON file says, and nothing else.
//!
//! `test-agent SCRIPT.json` speaks ACP on its stdin and stdout. The script is an array of steps, run in order; each
//! step is an object whose first key is its verb. Every step ends with stdout flushed. After the last step the agent
//! exits with 0.
//!
//! # What the agent hears
//!
//! | step | what it does |
//! |---|---|
//! | `{"expect":"METHOD","contains":"TEXT"?}` | reads until METHOD comes, and remembers its id and `params.sessionId` |
//! | `{"switch":{"METHOD":[steps],…}}` | reads the next message, remembers it like `expect`, runs that method's steps |
//! | `{"reply":RESULT}` | answers the request that was expected last |
//! | `{"replyError":{"code":N,"message":"…"}}` | answers it with an error |
//! | `{"prompt":[steps]}` | expects `session/prompt`, runs the steps, replies `end_turn` |
//! | `{"handshake":{…}}` | answers `initialize`, then `session/new`, `session/load` or `session/resume` |
//!
//! A `session/cancel` that is not expected is kept: a later `expect` of it is met at once, until the next prompt
//! begins. Any other method out of turn ends the agent with 90. `handshake` takes, all optional, `capabilities` (the
//! `agentCapabilities`), `initialize` and `newSession` (more fields for those answers), `load` and `afterLoad` (steps to
//! run before and after `session/load` is answered, which is where agents replay their history), and `loadError` and
//! `resumeError` (errors to answer those two with; the agent then takes the next way that the client tries), and
//! `newAfterLoad` (it takes one also after a load that it answered well).
//!
//! `{"record":true}` writes everything that the agent hears from then on to `heard.jsonl` next to the script, where all
//! processes of the script append (the harness hands the open file out at `record.sock`): `{"pid":N,"message":{…}}` each, and `{"pid":N,"eof":true}` at the end of stdin.
//!
//! # What the agent says
//!
//! | step | what it does |
//! |---|---|
//! | `{"sessionId":"x-{pid}"}` | changes the session id of what follows (`test-session` at first) |
//! | `{"text":"…"}`, `{"thought":"…"}` | one `agent_message_chunk`, one `agent_thought_chunk` |
//! | `{"update":{…}}` | a `session/update` with that update |
//! | `{"flood":{"count":N,"text":"chunk {} "}}` | N message chunks, `{}` replaced by the index from 0 |
//! | `{"notify":{"method":…,"params":…}}` | any notification |
//! | `{"request":{"method":…,"params":…}}` | a request, and waits for its answer |
//! | `{"ask":{…}}`, `{"awaitAnswer":true}` | the two halves of `request`, so that several can be open at once |
//! | `{"textFromAnswer":true}` | the last answer's result or error, as text |
//! | `{"textFromPrompt":true}`, `{"textFromParams":true}` | the last prompt's text; all params of the last `expect` |
//! | `{"textFromEnvironment":"NAME"}` | that variable, or `(unset)` |
//! | `{"textFromCwd":true}`, `{"textFromPid":true}` | the working directory, the process id |
//! | `{"textFromUser":true}` | `UID GID GROUP,GROUP…`, real ids, the groups in order |
//! | `{"textFromChildren":true}` | the process ids of all `fork`s so far, separated by spaces |
//! | `{"textFromRead":"PATH"}` | the file's text, or `error: …` |
//! | `{"textFromWrite":{"path":…,"text":…}}` | `written`, or `error: …` |
//! | `{"textFromShell":"COMMAND"}` | what `sh -c COMMAND` writes, and `exit N`; `{prompt}` is the last prompt |
//! | `{"textFromSocket":{"path":…,"send":…}}` | the first line of a Unix socket's answer, `(closed)`, or `error: …` |
//! | `{"textFromMcp":{"server":…,"tool":…,"arguments":…}}` | what an MCP server of the conversation answers, as JSON |
//!
//! `textFromMcp` starts the server when it is first asked, and keeps it. Without `tool` it lists the tools, and with `"pid":true` it
//! tells the server's process. With nothing but `server` the last line of the last prompt is the call, as JSON.
//!
//! In the params of a request `{terminal0}`, `{terminal1}`, … stand for the ids of the terminals that the client has made so
//! far, in the order of its answers.
//!
//! Requests of the agent have the ids 1, 2, 3, …: on purpose the same numbers that a client is likely to use.
//!
//! # Meeting the test
//!
//! `{"gate":"name","cases":{"WORD":[steps],…}?}` connects to `gate.sock` in the script's directory, writes `name PID`
//! and blocks until a line comes back: the test knows that the agent is here, and lets it go on. With `cases`, the
//! steps that the line names are run, so the test can decide what comes next; a line without a case runs nothing.
//!
//! # Misbehaving
//!
//! | step | what it does |
//! |---|---|
//! | `{"stderr":"…"}`, `{"floodStderr":N}` | a line, or N bytes, on stderr |
//! | `{"stdout":"…"}`, `{"bytes":[255,10]}` | raw text or bytes on stdout, as they are |
//! | `{"longLine":N}` | N times `x` and a newline |
//! | `{"ignoreSignals":["TERM","INT","HUP"]}` | blocks them, for itself and the children that it forks later |
//! | `{"ignoreEof":true}` | from here on an EOF of stdin blocks the agent for ever instead of ending it |
//! | `{"hang":true}`, `{"stopReading":true}` | blocks for ever; stdin is never read again |
//! | `{"fork":{"count":1,"ownGroup":false,"setsid":false,"orphan":false,"clearEnv":false}}` | idle children |
//! | `{"allocate":N}` | takes N bytes of memory, writes to all of them and keeps them |
//! | `{"exit":N}`, `{"killSelf":"KILL"}` | ends with that code, by that signal |
//! | `{"exitMidLine":"{\"json"}` | writes that without a newline and exits with 1 |
//!
//! The children of `fork` do nothing but hold stdio. The agent goes on when they are where they belong: in their own
//! group or session, and with `orphan` without the parent that started them.
//!
//! # Control
//!
//! `{"repeat":[steps],"times":N?}` runs the steps again and again, N times or until EOF.
//!
//! # A launcher
//!
//! `test-agent --without-landlock PROGRAM ARGUMENT…` becomes PROGRAM, for which the kernel has no Landlock.
//!
//! # Exit codes
//!
//! 0: end of the script, or EOF of stdin. 90: something unexpected came. 91: the script is wrong. 92: the system
//! refused something that the script needs.

mod mcp;
mod processes;
mod runner;
mod step;
mod unlocked;
mod wire;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use wire::End;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let end = match arguments.first().map(String::as_str) {
        Some("--idle") => processes::idle(&arguments[1..]),
        Some("--without-landlock") => unlocked::execute(&arguments[1..]),
        Some(script) if arguments.len() == 1 => run_script(Path::new(script)),
        _ => Err(End::bad_script("usage: test-agent SCRIPT.json")),
    };
    match end {
        Ok(()) => ExitCode::SUCCESS,
        Err(end) => {
            if let Some(reason) = &end.reason {
                // `eprintln!` would panic when the reader of stderr is gone, and hide the exit code.
                let _ = writeln!(std::io::stderr(), "test-agent: {reason}");
            }
            ExitCode::from(end.code)
        }
    }
}

fn run_script(path: &Path) -> Result<(), End> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| End::bad_script(format!("cannot read {}: {error}", path.display())))?;
    let script: Vec<serde_json::Value> = serde_json::from_str(&text)
        .map_err(|error| End::bad_script(format!("{} is not an array of steps: {error}", path.display())))?;
    let directory = path.parent().unwrap_or(Path::new("."));
    runner::Agent::new(directory)?.run(&script)
}
