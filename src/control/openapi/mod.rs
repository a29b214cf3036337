//! The interface's own description, in `OpenAPI` 3.1. It follows from the code: the handlers' attributes, the schemas of the wire
//! types and the table of failures. What is served is the document that is checked in at docs/openapi.json, within this
//! program, where it costs no memory; a test holds it against the code.

mod blocks;
#[cfg(test)]
mod failures;
#[cfg(test)]
mod generated;
#[cfg(test)]
mod tests;

use axum::http::{HeaderName, header};

use crate::control::extract::NoQuery;

pub use blocks::{EventFrame, OptionValue, PromptContent, SessionRecord};

const DOCUMENT: &str = include_str!("../../../docs/openapi.json");

/// Return the description of this API.
#[utoipa::path(
    get,
    path = "/v1/openapi.json",
    operation_id = "getOpenapi",
    tag = "daemon",
    responses((status = 200, description = "The OpenAPI 3.1 document.", body = Object)),
)]
pub async fn show(_: NoQuery) -> ([(HeaderName, &'static str); 1], &'static str) {
    ([(header::CONTENT_TYPE, "application/json")], DOCUMENT)
}
