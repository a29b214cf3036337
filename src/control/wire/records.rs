//! The JSON of records and timelines. It is `snake_case`: these documents have readers of their own.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::control::openapi::SessionRecord;
use crate::model::record::validate::Warning;
use crate::model::{ObservationId, Timestamp};
use crate::store;

/// A session and the records submitted for it.
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct RecordEntity {
    pub entity_id: String,
    /// The latest value of each field.
    #[schema(value_type = SessionRecord)]
    pub snapshot: Map<String, Value>,
    /// The newest observations, in order.
    pub observations: Vec<RecordObservation>,
    pub observation_count: i64,
}

#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct RecordObservation {
    pub id: ObservationId,
    pub observed_at: Timestamp,
    /// The submitted document.
    #[schema(value_type = Object)]
    pub content: Box<RawValue>,
}

#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct RecordList {
    pub records: Vec<RecordEntity>,
    pub total: i64,
    pub limit: i64,
    pub offset: i64,
}

/// A submitted session record.
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct SubmittedRecord {
    pub entity_id: String,
    pub observation_count: i64,
    /// Warnings about the record.
    pub warnings: Vec<Warning>,
}

#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Timeline {
    pub entity: String,
    /// The entries, in order of time.
    #[serde(rename = "timeline")]
    pub items: Vec<TimelineItem>,
    pub total: i64,
    pub limit: i64,
    pub offset: i64,
}

#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct TimelineItem {
    #[serde(rename = "type")]
    #[schema(pattern = "^(session_start|checkpoint|outcome|session_end)$")]
    pub kind: String,
    pub timestamp: Timestamp,
    pub session_id: String,
    pub entity_id: String,
    /// The checkpoint, without its state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub checkpoint: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub outcome: Option<Box<RawValue>>,
}

impl From<store::Observation> for RecordObservation {
    fn from(observation: store::Observation) -> Self {
        let store::Observation { id, observed_at, content } = observation;
        Self { id, observed_at, content }
    }
}

impl From<store::TimelineItem> for TimelineItem {
    fn from(item: store::TimelineItem) -> Self {
        let store::TimelineItem { kind, at, entity, session_name, data } = item;
        let (checkpoint, outcome) = if kind == "checkpoint" { (data, None) } else { (None, data) };
        Self { kind, timestamp: at, session_id: session_name, entity_id: entity, checkpoint, outcome }
    }
}
