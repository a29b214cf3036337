//! What the daemon counts and times, for Prometheus.
//!
//! Counted is where something happens; whatever can be looked at when somebody asks (how many sessions, processes, waiting
//! turns there are) is not kept here, but read then ([`Now`]). Every set of labels is closed: routes, codes, statuses and
//! steps that the program has, and agents that the configuration has. Nothing that a client or an agent makes up gets into
//! a label, so that nobody can grow them.
//!
//! The way of a prompt and of what agents say has at most an addition a batch in it.

mod labels;
mod own;
mod requests;
mod text;

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use crate::model::event::ExitReason;
use crate::model::permission::question::{Decider, Decision};
use crate::model::{ErrorCode, TurnStatus};

use labels::{EXIT_REASONS, NO_CODE, NOBODY, decider_name, decision_name, exit_reason_name};
pub use labels::{NotificationOutcome, StopStep};
use requests::Requests;
pub use requests::{MethodLabel, RouteMetrics};
pub use text::{Format, Now};

/// One label, of a closed set.
type Label = [(&'static str, &'static str); 1];
type TwoLabels = [(&'static str, &'static str); 2];

/// From a millisecond to an hour: a small agent answers at once, and a large one works for long.
const AGENT_SECONDS: [f64; 16] =
    [0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0, 900.0, 1800.0, 3600.0];

/// The counts since the daemon started.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    process_starts: Family<Vec<(&'static str, String)>, Counter>,
    process_exits: Family<Label, Counter>,
    process_stops: Family<Label, Counter>,
    handshakes: Histogram,
    turns: Family<TwoLabels, Counter>,
    turn_durations: Histogram,
    permissions_asked: Counter,
    permissions_answered: Family<TwoLabels, Counter>,
    mailbox_refusals: Counter,
    commits: Family<Label, Counter>,
    commit_failures: Counter,
    commit_durations: Histogram,
    commit_units: Histogram,
    commit_rows: Histogram,
    events: Counter,
    streamed_frames: Counter,
    streamed_bytes: Counter,
    stream_failures: Counter,
    agent_read: Counter,
    agent_written: Counter,
    requests: Requests,
    refusals: Family<Label, Counter>,
    notifications: Family<Label, Counter>,
}

/// What one commit was.
#[derive(Clone, Copy, Debug)]
pub struct Commit {
    pub is_durable: bool,
    pub units: usize,
    pub rows: usize,
    pub events: usize,
    pub took: Duration,
}

impl Default for Metrics {
    fn default() -> Self {
        let metrics = Self {
            registry: Registry::with_prefix("acpd"),
            process_starts: Family::default(),
            process_exits: Family::default(),
            process_stops: Family::default(),
            handshakes: Histogram::new(AGENT_SECONDS),
            turns: Family::default(),
            turn_durations: Histogram::new(AGENT_SECONDS),
            permissions_asked: Counter::default(),
            permissions_answered: Family::default(),
            mailbox_refusals: Counter::default(),
            commits: Family::default(),
            commit_failures: Counter::default(),
            commit_durations: Histogram::new(exponential_buckets(0.000_1, 4.0, 9)),
            commit_units: Histogram::new(exponential_buckets(1.0, 2.0, 11)),
            commit_rows: Histogram::new(exponential_buckets(1.0, 2.0, 11)),
            events: Counter::default(),
            streamed_frames: Counter::default(),
            streamed_bytes: Counter::default(),
            stream_failures: Counter::default(),
            agent_read: Counter::default(),
            agent_written: Counter::default(),
            requests: Requests::default(),
            refusals: Family::default(),
            notifications: Family::default(),
        };
        metrics.begin_at_zero();
        metrics.registered()
    }
}

impl Metrics {
    /// What has not happened yet is there too: a rate needs the zero before the first one.
    fn begin_at_zero(&self) {
        for reason in EXIT_REASONS {
            drop(self.process_exits.get_or_create(&[("reason", exit_reason_name(reason))]));
        }
        for step in StopStep::ALL {
            drop(self.process_stops.get_or_create(&[("step", step.as_str())]));
        }
        for outcome in NotificationOutcome::ALL {
            drop(self.notifications.get_or_create(&[("outcome", outcome.as_str())]));
        }
        for durability in ["full", "normal"] {
            drop(self.commits.get_or_create(&[("synchronous", durability)]));
        }
        for status in [TurnStatus::Completed, TurnStatus::Cancelled, TurnStatus::Interrupted] {
            drop(self.turns.get_or_create(&[("outcome", status.as_str()), ("code", NO_CODE)]));
        }
        for code in ErrorCode::ALL {
            drop(self.turns.get_or_create(&[("outcome", TurnStatus::Failed.as_str()), ("code", code.as_str())]));
        }
    }

    fn registered(mut self) -> Self {
        let registry = &mut self.registry;
        registry.register("process_starts", "Starts of agent processes, by agent", self.process_starts.clone());
        registry.register("process_exits", "Ends of agent processes, by reason", self.process_exits.clone());
        registry.register("process_stops", "Steps taken to stop agent processes", self.process_stops.clone());
        let help = "Time from an agent's start to its first conversation";
        registry.register_with_unit("handshake_duration", help, Unit::Seconds, self.handshakes.clone());
        registry.register("turns", "Ended turns, by outcome and error code", self.turns.clone());
        let help = "Time from the start to the end of a turn";
        registry.register_with_unit("turn_duration", help, Unit::Seconds, self.turn_durations.clone());
        let asked = self.permissions_asked.clone();
        registry.register(
            "permissions_asked",
            "Permission requests of agents, including those that the policy answered",
            asked,
        );
        let help = "Answered permission requests, by decision and by who answered";
        registry.register("permissions_answered", help, self.permissions_answered.clone());
        let help = "Requests refused because a session's mailbox was full";
        registry.register("mailbox_refusals", help, self.mailbox_refusals.clone());
        registry.register("store_commits", "Commits, by durability", self.commits.clone());
        let help = "Failed transactions";
        registry.register("store_commit_failures", help, self.commit_failures.clone());
        let help = "Duration of commits";
        registry.register_with_unit("store_commit_duration", help, Unit::Seconds, self.commit_durations.clone());
        registry.register("store_commit_units", "Units per commit", self.commit_units.clone());
        registry.register("store_commit_rows", "Operations per commit", self.commit_rows.clone());
        registry.register("events_appended", "Events committed to the log", self.events.clone());
        let help = "Server-sent events handed to connections";
        registry.register("events_streamed", help, self.streamed_frames.clone());
        let help = "Bytes of streams handed to connections";
        registry.register_with_unit("streamed", help, Unit::Bytes, self.streamed_bytes.clone());
        let help = "Streams ended because the log could not be read";
        registry.register("stream_read_failures", help, self.stream_failures.clone());
        let help = "Bytes of lines written by agents";
        registry.register_with_unit("agent_read", help, Unit::Bytes, self.agent_read.clone());
        let help = "Bytes written to agents";
        registry.register_with_unit("agent_written", help, Unit::Bytes, self.agent_written.clone());
        let help = "Answered requests, by route, method and status class";
        registry.register("http_requests", help, self.requests.answered.clone());
        let help = "Time from a request to the head of its response, by route";
        registry.register_with_unit("http_request_duration", help, Unit::Seconds, self.requests.durations.clone());
        registry.register("refusals", "Refused requests, by error code", self.refusals.clone());
        registry.register("notifications", "Notification commands, by outcome", self.notifications.clone());
        self
    }

    /// `agent` is the slug of a profile, which the configuration has, or had.
    pub fn process_started(&self, agent: &str) {
        self.process_starts.get_or_create(&vec![("agent", agent.to_owned())]).inc();
    }

    pub fn process_exited(&self, reason: ExitReason) {
        self.process_exits.get_or_create(&[("reason", exit_reason_name(reason))]).inc();
    }

    pub fn stop_step(&self, step: StopStep) {
        self.process_stops.get_or_create(&[("step", step.as_str())]).inc();
    }

    pub fn handshake_took(&self, time: Duration) {
        self.handshakes.observe(time.as_secs_f64());
    }

    pub fn turn_took(&self, time: Duration) {
        self.turn_durations.observe(time.as_secs_f64());
    }

    pub fn turn_ended(&self, status: TurnStatus, code: Option<ErrorCode>) {
        // That a turn was interrupted is its outcome already.
        let code = code.filter(|_| status == TurnStatus::Failed).map_or(NO_CODE, ErrorCode::as_str);
        self.turns.get_or_create(&[("outcome", status.as_str()), ("code", code)]).inc();
    }

    pub fn permission_asked(&self) {
        self.permissions_asked.inc();
    }

    pub fn permission_answered(&self, decision: Option<Decision>, by: &Decider) {
        let labels = [("decision", decision_name(decision)), ("by", decider_name(by))];
        self.permissions_answered.get_or_create(&labels).inc();
    }

    /// Questions that nobody waits for any more, because whoever asked is gone.
    pub fn permissions_withdrawn(&self, count: u64) {
        if count > 0 {
            self.permissions_answered.get_or_create(&[("decision", decision_name(None)), ("by", NOBODY)]).inc_by(count);
        }
    }

    pub fn mailbox_was_full(&self) {
        self.mailbox_refusals.inc();
    }

    pub fn committed(&self, commit: Commit) {
        let durability = if commit.is_durable { "full" } else { "normal" };
        self.commits.get_or_create(&[("synchronous", durability)]).inc();
        self.commit_durations.observe(commit.took.as_secs_f64());
        self.commit_units.observe(number(commit.units));
        self.commit_rows.observe(number(commit.rows));
        self.events.inc_by(commit.events as u64);
    }

    pub fn commit_failed(&self) {
        self.commit_failures.inc();
    }

    pub fn streamed(&self, frames: usize, bytes: usize) {
        self.streamed_frames.inc_by(frames as u64);
        self.streamed_bytes.inc_by(bytes as u64);
    }

    pub fn stream_failed(&self) {
        self.stream_failures.inc();
    }

    /// Bytes that came from an agent.
    pub fn heard(&self, bytes: usize) {
        self.agent_read.inc_by(bytes as u64);
    }

    /// Bytes that went to an agent.
    pub fn told(&self, bytes: usize) {
        self.agent_written.inc_by(bytes as u64);
    }

    /// What is counted of one route: a template of the router's, or what stands for none.
    pub fn route(&self, route: &str) -> RouteMetrics {
        self.requests.of(route)
    }

    /// `code` is one of the total match of errors.
    pub fn refused(&self, code: &'static str) {
        self.refusals.get_or_create(&[("code", code)]).inc();
    }

    pub fn notified(&self, outcome: NotificationOutcome) {
        self.notifications.get_or_create(&[("outcome", outcome.as_str())]).inc();
    }
}

/// Counts of what is in memory are far below what a float has no more room for.
#[expect(clippy::cast_precision_loss, reason = "a batch has hundreds of rows")]
fn number(count: usize) -> f64 {
    count as f64
}
