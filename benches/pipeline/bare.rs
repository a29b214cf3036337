//! The bare pipe: the agent as a child, and the least that a client must do with its lines. This is what acpd is
//! compared with.

use std::borrow::Cow;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::agent;
use crate::text::Received;

/// What a client looks at in a line of the agent.
#[derive(Deserialize)]
struct Line<'a> {
    id: Option<u64>,
    #[serde(borrow)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow)]
    params: Option<Params<'a>>,
}

#[derive(Deserialize)]
struct Params<'a> {
    #[serde(borrow)]
    update: Update<'a>,
}

#[derive(Deserialize)]
struct Update<'a> {
    #[serde(borrow)]
    content: Content<'a>,
}

#[derive(Deserialize)]
struct Content<'a> {
    #[serde(borrow)]
    text: Cow<'a, str>,
}

/// An agent whose pipes we hold ourselves. Dropping it ends it.
pub struct BarePipe {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    line: Vec<u8>,
    last_id: u64,
}

impl BarePipe {
    /// Starts the agent and does the handshake.
    pub fn start() -> anyhow::Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg(agent::ARGUMENT)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the agent")?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            bail!("the agent has no pipes");
        };
        let mut pipe = Self { child, input, output: BufReader::new(output), line: Vec::new(), last_id: 0 };
        pipe.call("initialize", &json!({"protocolVersion": 1, "clientCapabilities": {}}), 0)?;
        pipe.call("session/new", &json!({"cwd": "/", "mcpServers": []}), 0)?;
        Ok(pipe)
    }

    /// Prompts, and returns how long it took until the answer was read. All the chunks must have come before it.
    pub fn turn(&mut self, prompt: &str, chunks: usize) -> anyhow::Result<Duration> {
        let params = json!({"sessionId": "bench", "prompt": [{"type": "text", "text": prompt}]});
        self.call("session/prompt", &params, chunks)
    }

    fn call(&mut self, method: &str, params: &Value, chunks: usize) -> anyhow::Result<Duration> {
        self.last_id += 1;
        let request = json!({"jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params});
        let request = format!("{request}\n");
        let mut received = Received::expecting(chunks);
        let start = Instant::now();
        self.input.write_all(request.as_bytes())?;
        loop {
            self.line.clear();
            if self.output.read_until(b'\n', &mut self.line)? == 0 {
                bail!("the agent ended before it answered {method}");
            }
            let line: Line<'_> = serde_json::from_slice(&self.line).context("a line that is no message")?;
            if line.id == Some(self.last_id) {
                break;
            }
            if let (Some("session/update"), Some(params)) = (line.method.as_deref(), line.params) {
                received.push(&params.update.content.text)?;
            }
        }
        let took = start.elapsed();
        received.finish()?;
        Ok(took)
    }
}

impl Drop for BarePipe {
    fn drop(&mut self) {
        // It may have ended by itself, and then there is nothing to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
