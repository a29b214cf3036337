//! The JSON of checkpoints.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use super::{PermissionPolicy, Session, Start};
use crate::model::Checkpoint;
use crate::model::object;

#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateCheckpoint {
    #[schema(min_length = 1, max_length = 128)]
    pub name: String,
    /// Any JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub state: Option<Box<RawValue>>,
}

#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct CheckpointList {
    pub checkpoints: Vec<Checkpoint>,
    pub total: i64,
    pub limit: i64,
    pub offset: i64,
}

#[derive(Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RestoreCheckpoint {
    /// Whether to create a session that continues from the checkpoint: true, or the options of that session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new_session: Option<NewSession>,
}

#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(untagged)]
pub enum NewSession {
    Flag(bool),
    Options(Box<RestoredSession>),
}

/// Options of a session that continues from a checkpoint. Absent fields are taken from the checkpoint's session. The
/// title comes from the first prompt.
#[derive(Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RestoredSession {
    /// With another agent, the settings that depend on the agent come from its profile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 200)]
    pub title: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 32)]
    pub tags: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::optional")]
    pub permissions: Option<PermissionPolicy>,
    #[serde(default)]
    pub start: Start,
}

impl NewSession {
    /// Nothing, when none is wanted.
    pub fn wanted(self) -> Option<RestoredSession> {
        match self {
            Self::Flag(false) => None,
            Self::Flag(true) => Some(RestoredSession::default()),
            Self::Options(options) => Some(*options),
        }
    }
}

impl<'de> Deserialize<'de> for NewSession {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(FlagOrOptions)
    }
}

/// By hand, so that what is wrong within the options is told with its field.
struct FlagOrOptions;

impl<'de> Visitor<'de> for FlagOrOptions {
    type Value = NewSession;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("true, false or a JSON object")
    }

    fn visit_bool<E>(self, flag: bool) -> Result<NewSession, E> {
        Ok(NewSession::Flag(flag))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<NewSession, A::Error> {
        RestoredSession::deserialize(MapAccessDeserializer::new(map)).map(Box::new).map(NewSession::Options)
    }
}

#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Restored {
    pub checkpoint: Checkpoint,
    /// The state of the checkpoint.
    #[schema(value_type = serde_json::Value)]
    pub state: Box<RawValue>,
    /// The session that continues from the checkpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<Session>,
}
