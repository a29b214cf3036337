//! What a call of a tool asks of the daemon, and what of the answer a model is given.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value, json};

use super::tool::Tool;
use crate::cli::connection::{Daemon, with_query};
use crate::cli::error::ClientError;
use crate::model::SessionId;

/// What a list may have in an answer: a model has to read all of it.
const LIST_BYTES_MAX: usize = 32 << 10;
/// Entries of a list when the call does not say, and at the most.
const RECORDS_DEFAULT: u64 = 10;
const MOMENTS_DEFAULT: u64 = 50;
const LIMIT_MAX: u64 = 100;

type Arguments = Map<String, Value>;

pub async fn call(
    daemon: &Daemon,
    session: SessionId,
    tool: Tool,
    mut arguments: Arguments,
) -> Result<Value, ClientError> {
    match tool {
        Tool::SubmitAgentSession => {
            // The daemon refuses the id of another session.
            arguments.entry("session_id").or_insert_with(|| json!(session));
            let mut submitted: Value = daemon.post("/v1/records", &arguments).await?;
            if submitted["warnings"] == json!([]) {
                remove(&mut submitted, "warnings");
            }
            Ok(submitted)
        }
        Tool::QueryAgentHistory => {
            limit(&mut arguments, RECORDS_DEFAULT);
            let path = match text(&arguments, "session_id")? {
                Some(id) => format!("/v1/records/{}", encoded(id)),
                None => with_query("/v1/records", &parameters(&arguments)),
            };
            let mut found: Value = daemon.get(&path).await?;
            // They are long, and the snapshot has the same data.
            remove(&mut found, "observations");
            let listed = found.get_mut("records").and_then(Value::as_array_mut);
            listed.into_iter().flatten().for_each(|record| remove(record, "observations"));
            Ok(bounded(found))
        }
        Tool::QueryEntityTimeline => {
            limit(&mut arguments, MOMENTS_DEFAULT);
            daemon.get(&with_query("/v1/timeline", &parameters(&arguments))).await.map(bounded)
        }
        Tool::CreateCheckpoint => daemon.post(&format!("/v1/sessions/{session}/checkpoints"), &arguments).await,
        Tool::RestoreCheckpoint => restore(daemon, session, &arguments).await,
    }
}

/// The session's own checkpoint of that name, or else the newest in the same workspace.
async fn restore(daemon: &Daemon, own: SessionId, arguments: &Arguments) -> Result<Value, ClientError> {
    let name = text(arguments, "name")?.ok_or_else(|| wrong("name", "is missing"))?;
    if let Some(unknown) = arguments.keys().find(|key| !["name", "session_id"].contains(&key.as_str())) {
        return Err(wrong(unknown, "is not an argument of this tool"));
    }
    if let Some(session) = text(arguments, "session_id")? {
        return daemon.get(&of_session(session, name)).await;
    }
    match daemon.get(&of_session(&own.to_string(), name)).await {
        Err(error) if error.is_api("checkpoint_not_found") => {}
        answer => return answer,
    }
    let shown: Value = daemon.get(&format!("/v1/sessions/{own}")).await?;
    let workspace = shown["workspaceId"].as_str().unwrap_or_default().to_owned();
    let asked = [("name", name.to_owned()), ("workspaceId", workspace), ("limit", "1".to_owned())];
    let found: Value = daemon.get(&with_query("/v1/checkpoints", &asked)).await?;
    let Some(session) = found["checkpoints"][0]["sessionId"].as_str() else {
        let message = format!("no session of this workspace has a checkpoint {name:?}");
        return Err(ClientError::local(message, "query_agent_history lists the checkpoints of earlier sessions"));
    };
    daemon.get(&of_session(session, name)).await
}

fn limit(arguments: &mut Arguments, usual: u64) {
    let limit = arguments.entry("limit").or_insert_with(|| usual.into());
    // What is no number the daemon refuses.
    if limit.as_u64().is_some_and(|limit| limit > LIMIT_MAX) {
        *limit = LIMIT_MAX.into();
    }
}

fn remove(object: &mut Value, field: &str) {
    if let Some(object) = object.as_object_mut() {
        object.shift_remove(field);
    }
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

fn of_session(session: &str, name: &str) -> String {
    format!("/v1/sessions/{}/checkpoints/{}", encoded(session), encoded(name))
}

fn text<'a>(arguments: &'a Arguments, name: &str) -> Result<Option<&'a str>, ClientError> {
    match arguments.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if !text.is_empty() => Ok(Some(text)),
        Some(_) => Err(wrong(name, "must be a non-empty string")),
    }
}

fn wrong(argument: &str, problem: &str) -> ClientError {
    ClientError::local(
        format!("{argument}: {problem}"),
        "read the tool's schema, correct the arguments and call the tool again",
    )
}

/// As the query of a request. What it does not take the daemon names.
fn parameters(arguments: &Arguments) -> Vec<(&str, String)> {
    let given = arguments.iter().filter(|(_, value)| !value.is_null());
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    given.map(|(name, value)| (name.as_str(), text(value))).collect()
}

/// A list without as many of its last entries as it takes to be short enough, and told to be so. One entry is always there.
fn bounded(mut answer: Value) -> Value {
    let size = |value: &Value| value.to_string().len();
    let mut left = size(&answer);
    let lists = answer.as_object_mut().into_iter().flat_map(|object| object.values_mut());
    let Some(list) = lists.filter_map(Value::as_array_mut).max_by_key(|list| list.len()) else { return answer };
    let before = list.len();
    while left > LIST_BYTES_MAX && list.len() > 1 {
        left -= list.pop().map_or(0, |entry| size(&entry) + 1);
    }
    let cut = before - list.len();
    if cut > 0 {
        answer["left_out"] = json!(cut);
        answer["hint"] = json!("the answer was too long, so the last entries were left out; request fewer entries");
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_as_long_as_a_model_can_read_and_says_what_it_lacks() {
        let short = json!({"records": [1, 2, 3], "total": 3});
        assert_eq!(bounded(short.clone()), short);
        let long = json!({"records": vec!["x".repeat(1000); 100], "total": 100});
        let cut = bounded(long);
        let kept = cut["records"].as_array().unwrap().len();
        assert!((20..40).contains(&kept), "{kept}");
        assert_eq!(cut["left_out"], json!(100 - kept));
        assert!(cut.to_string().len() < LIST_BYTES_MAX + 200);
        let one = bounded(json!({"records": ["x".repeat(LIST_BYTES_MAX)]}));
        assert_eq!(one["records"].as_array().unwrap().len(), 1);
        assert_eq!(bounded(json!(7)), json!(7));
    }

    #[test]
    fn names_are_written_so_that_they_stay_one_part_of_the_path() {
        assert_eq!(of_session("a", "x/../y?z"), "/v1/sessions/a/checkpoints/x%2F%2E%2E%2Fy%3Fz");
        let arguments = json!({"limit": 3, "order": "asc", "from": null});
        let Value::Object(arguments) = arguments else { panic!("no object") };
        assert_eq!(parameters(&arguments), [("limit", "3".to_owned()), ("order", "asc".to_owned())]);
    }
}
