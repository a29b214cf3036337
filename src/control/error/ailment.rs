//! What can be wrong with the daemon as a whole.

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;

use super::{Answer, store_answer};
use crate::model::error::chain;
use crate::store::{DAMAGED_HINT, Fault, StoreError};

#[derive(Debug)]
pub enum Ailment {
    /// It stops.
    Stopping,
    /// The store cannot be written.
    Unwritable(Arc<StoreError>),
    /// A write did not end in time.
    Stalled { waited: Duration },
    /// There is too little space for new work.
    ShortOfSpace(StoreError),
    /// A check has found the database damaged.
    Damaged { problem: String },
}

pub(super) fn answer(ailment: Ailment) -> Answer {
    use StatusCode as S;
    match ailment {
        Ailment::Stopping => {
            let (message, hint) = ("the daemon is stopping", "try again when the daemon is running");
            Answer::new(S::SERVICE_UNAVAILABLE, "shutting_down", message, hint)
        }
        Ailment::Unwritable(error) => {
            let message = format!("cannot write to the store: {}", chain(error.as_ref()));
            let hint = match error.fault() {
                Fault::Other => "check the free space and the permissions of the state directory".to_owned(),
                _ => error.hint(),
            };
            Answer::new(S::SERVICE_UNAVAILABLE, "store_unwritable", message, hint)
        }
        Ailment::Stalled { waited } => {
            let message = format!("a test write to the store did not finish within {waited:?}");
            let hint = "check whether the disk of the state directory responds";
            Answer::new(S::SERVICE_UNAVAILABLE, "store_stalled", message, hint)
        }
        Ailment::ShortOfSpace(error) => Answer { status: S::SERVICE_UNAVAILABLE, ..store_answer(&error) },
        Ailment::Damaged { problem } => {
            let message = format!("the database is damaged: {problem}");
            Answer::new(S::SERVICE_UNAVAILABLE, "store_damaged", message, DAMAGED_HINT)
        }
    }
}
