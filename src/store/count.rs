//! What of a commit is counted by what it says: turns that ended, and questions. It is counted once it is committed, so
//! what a client sees of it is in the counts already.

use super::{Op, Unit};
use crate::metrics::Metrics;

pub fn count(metrics: &Metrics, units: &[Unit]) {
    for (_, op) in units.iter().flat_map(|unit| &unit.ops) {
        match op {
            Op::FinishTurn { status, error, .. } => {
                metrics.turn_ended(*status, error.as_ref().map(|error| error.code));
            }
            Op::AskPermission(_) => metrics.permission_asked(),
            Op::ResolvePermission(resolved) => {
                metrics.permission_answered(resolved.resolution.decision, &resolved.resolution.by);
            }
            _ => {}
        }
    }
}
