//! acpd keeps coding agents running. One program: `serve` is the daemon, every other command a client of its socket.
//!
//! The modules stand in the order of their layers: each uses only what stands above it (docs/architecture.md).

mod model;
mod config;
mod private;
mod system;
mod lane;
mod security;
mod metrics;
mod acp;
mod demo;
mod store;
mod agent;
mod hub;
mod session;
mod registry;
mod notify;
mod control;
mod cli;
mod daemon;

use std::io::Write;
use std::process::ExitCode;

use tokio::runtime::Runtime;

use crate::cli::{Cli, Command, Exit};
use crate::store::StoreError;

fn main() -> ExitCode {
    // The shim and the stage before an agent come first: what they do to their process must meet no runtime and no thread.
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next() {
        Some(first) if first == agent::shim::ARGUMENT => return agent::shim::run(arguments),
        Some(first) if first == agent::confine::stage::ARGUMENT => return agent::confine::stage::run(arguments),
        Some(first) if first == agent::confine::home_layer::ARGUMENT => {
            return agent::confine::home_layer::run(arguments);
        }
        _ => {}
    }
    // A shell that asks what can follow is answered before anything is done.
    cli::completion::answer();
    let Cli { globals, command } = cli::parse();
    match command {
        Command::DemoAgent => demo::run(),
        Command::Serve(serve) => told(daemon::serve(&globals.overrides(), serve.detached).map(|()| None)),
        Command::Migrate(migrate) => told(daemon::migrate(&globals.overrides(), migrate.down).map(Some)),
        Command::Mcp(command) => on_this_thread(cli::serve_tools(command, &globals), Runtime::shutdown_background),
        Command::Shell(command) => cli::print(&command, &globals),
        Command::Client(client) => on_this_thread(cli::run(client, &globals), drop),
    }
}

/// Does the work of a client. `end` says whether to wait for what still blocks: a read of standard input may never end.
fn on_this_thread(work: impl Future<Output = ExitCode>, end: impl FnOnce(Runtime)) -> ExitCode {
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => {
            let code = runtime.block_on(work);
            end(runtime);
            code
        }
        Err(error) => told(Err(error.into())),
    }
}

/// What there is to say goes to standard output, what went wrong to standard error.
fn told(outcome: anyhow::Result<Option<String>>) -> ExitCode {
    let (written, code) = match outcome {
        Ok(None) => (Ok(()), ExitCode::SUCCESS),
        Ok(Some(text)) => (writeln!(std::io::stdout(), "{text}"), ExitCode::SUCCESS),
        Err(error) => {
            let text = model::error::chain(error.as_ref());
            let (text, code) = match error.downcast_ref::<StoreError>() {
                Some(refused) => (format!("{text}\nhint: {}", refused.hint()), ExitCode::from(Exit::Store.code())),
                None => (text, ExitCode::FAILURE),
            };
            // The journal takes each line for itself.
            let mark = daemon::error_mark();
            let text = text.replace('\n', &format!("\n{mark}"));
            (writeln!(std::io::stderr(), "{mark}error: {text}"), code)
        }
    };
    // With nobody left to read, the exit code is all there is to say.
    drop(written);
    code
}
