//! `acpd records`: sessions as other tools read them, acpd's own and what others have submitted.

use clap::{Args, Subcommand, ValueEnum};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};

use crate::cli::connection::{Daemon, with_query};
use crate::cli::context::{Context, read};
use crate::cli::error::ClientError;
use crate::cli::exit::Exit;
use crate::cli::table::{Fit, Table};
use crate::cli::text::{age, count};
use crate::cli::{document, lookup};
use crate::control::wire::records::{RecordEntity, RecordList, SubmittedRecord};
use crate::model::{Timestamp, record};

/// List, show and submit session records
///
/// A session record summarizes a session in a format that other tools share: actions, checkpoints, outcomes and times. acpd
/// derives the records of its own sessions from their turns and tool calls. Other tools can submit records.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Records {
    #[command(subcommand)]
    pub action: Option<Action>,
    #[command(flatten)]
    pub list: List,
}

#[derive(Debug, Subcommand)]
pub enum Action {
    /// List session records, both derived and submitted
    List(List),
    /// Print a session record
    Show {
        /// Record id or `session_id`; or a session: id prefix or suffix, exact title, or - for the newest one here
        session: String,
    },
    /// Submit a session record of another tool and print its entity id
    Submit {
        /// File with one record as JSON, or - for stdin
        file: String,
    },
}

#[derive(Args, Debug)]
pub struct List {
    /// Field to sort by
    #[arg(long, value_name = "FIELD", default_value = "started_at", value_parser = ["started_at", "ended_at", "duration", "session_id", "observation_count", "last_observed_at"])]
    pub order_by: String,
    /// Sort in ascending order
    #[arg(long)]
    pub asc: bool,
    /// Only submitted records, or only records derived from acpd's own sessions
    #[arg(long, value_name = "SOURCE", value_enum, default_value_t)]
    pub source: Source,
    /// List the records of all users (root only)
    #[arg(long)]
    pub all: bool,
    /// List at most this many
    #[arg(long, short = 'n', value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub limit: Option<u32>,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub enum Source {
    #[default]
    All,
    Submitted,
    Derived,
}

impl Records {
    pub async fn execute(self, context: &Context) -> Result<Exit, ClientError> {
        match self.action {
            None => self.list.execute(context).await,
            Some(Action::List(list)) => list.execute(context).await,
            Some(Action::Show { session }) => show(context, &session).await,
            Some(Action::Submit { file }) => submit(context, &file).await,
        }
    }
}

impl List {
    async fn execute(self, context: &Context) -> Result<Exit, ClientError> {
        let source = match self.source {
            Source::All => "all",
            Source::Submitted => "submitted",
            Source::Derived => "derived",
        };
        let mut parameters = vec![
            ("order_by", self.order_by),
            ("order", if self.asc { "asc" } else { "desc" }.to_owned()),
            ("source", source.to_owned()),
            ("all", self.all.to_string()),
        ];
        parameters.extend(self.limit.map(|limit| ("limit", limit.to_string())));
        let answer: Box<RawValue> = context.daemon().await?.get(&with_query("/v1/records", &parameters)).await?;
        let output = context.output;
        if output.json {
            output.print_json(&answer)?;
            return Ok(Exit::Ok);
        }
        let list: RecordList = read(&answer)?;
        output.print(&table(&list.records).render(output.width(), output.style))?;
        if list.records.is_empty() {
            output.aside("no records; every session has one, and `acpd records submit` adds more");
        } else if i64::try_from(list.records.len()).is_ok_and(|shown| shown < list.total) {
            output.aside(&format!("{} of {}; --limit shows more", list.records.len(), list.total));
        }
        Ok(Exit::Ok)
    }
}

fn table(records: &[RecordEntity]) -> Table {
    let now = Timestamp::now();
    let mut table = Table::new([
        ("SESSION", Fit::Whole),
        ("AGE", Fit::Number),
        ("SECONDS", Fit::Number),
        ("ACTIONS", Fit::Number),
        ("FAILED", Fit::NumberIfAny),
        ("OUTCOMES", Fit::NumberIfAny),
        ("SUBMITTED", Fit::NumberIfAny),
    ]);
    let some = |number: usize| if number == 0 { String::new() } else { number.to_string() };
    for RecordEntity { snapshot, observation_count, .. } in records {
        let actions = listed(snapshot, "actions");
        let failed = actions.iter().filter(|action| action["result"] == "failure").count();
        let duration = snapshot.get("duration").and_then(Value::as_f64);
        table.row(&[
            record::session_id(snapshot).to_owned(),
            record::time(snapshot.get("started_at")).map(|time| age(time, now)).unwrap_or_default(),
            duration.map(|seconds| format!("{seconds:.1}")).unwrap_or_default(),
            actions.len().to_string(),
            some(failed),
            some(listed(snapshot, "outcomes").len()),
            some(usize::try_from(*observation_count).unwrap_or(0)),
        ]);
    }
    table
}

fn listed<'a>(snapshot: &'a Map<String, Value>, field: &str) -> &'a [Value] {
    snapshot.get(field).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

async fn show(context: &Context, name: &str) -> Result<Exit, ClientError> {
    let daemon = context.daemon().await?;
    let answer = find(&daemon, name).await?;
    if context.output.json {
        context.output.print_json(&answer)?;
        return Ok(Exit::Ok);
    }
    let entity: RecordEntity = read(&answer)?;
    let snapshot = to_raw_value(&entity.snapshot)
        .map_err(|source| ClientError::Answer { operation: "the request".to_owned(), source })?;
    document::print(context.output, &snapshot)?;
    Ok(Exit::Ok)
}

/// A record by its own names; what is none of them names a session.
async fn find(daemon: &Daemon, name: &str) -> Result<Box<RawValue>, ClientError> {
    let path = |name: &str| format!("/v1/records/{}", utf8_percent_encode(name, NON_ALPHANUMERIC));
    if name != "-" {
        match daemon.get(&path(name)).await {
            Err(error) if error.is_api("record_not_found") => {}
            answer => return answer,
        }
    }
    let session = lookup::session(daemon, name).await?;
    daemon.get(&path(&session.to_string())).await
}

async fn submit(context: &Context, file: &str) -> Result<Exit, ClientError> {
    let record = document::file(file)?;
    let answer: Box<RawValue> = context.daemon().await?.post("/v1/records", &record).await?;
    let output = context.output;
    if !output.json {
        let taken: SubmittedRecord = read(&answer)?;
        for warning in &taken.warnings {
            output.note(&format!("{} {}", warning.field, warning.message));
        }
    }
    context.show(&answer, |taken: SubmittedRecord| {
        if output.stdout_is_terminal {
            let observations = count(taken.observation_count.unsigned_abs(), "observation");
            format!("record {}, {observations}", taken.entity_id)
        } else {
            taken.entity_id
        }
    })
}
