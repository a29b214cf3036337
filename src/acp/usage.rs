//! What agents tell of tokens and cost, read by what we look for. What is strange is as if it were not there.

use serde_json::Value;
use serde_json::value::RawValue;

use crate::model::usage::{ContextWindow, Cost, TOKENS_MAX, Tokens};

/// A `usage_update`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    pub context: Option<ContextWindow>,
    /// Of the agent's own session, until now.
    pub cost: Option<Cost>,
}

pub fn update(raw: &RawValue) -> Told {
    let Ok(update) = serde_json::from_str::<Value>(raw.get()) else { return Told::default() };
    let window = |used, size| Some(ContextWindow { used: tokens(&update, used)?, size: tokens(&update, size)? });
    let cost = |cost: &Value| Cost::new(cost.get("amount")?.as_f64()?, cost.get("currency")?.as_str()?);
    Told { context: window("/used", "/size"), cost: update.get("cost").and_then(cost) }
}

/// The tokens of a turn, from the answer to `session/prompt`: the protocol's own `usage`, or Gemini CLI's `_meta.quota`.
pub fn of_answer(result: &RawValue) -> Option<Tokens> {
    let answer: Value = serde_json::from_str(result.get()).ok()?;
    let told = if let Some(usage) = answer.get("usage").filter(|usage| usage.is_object()) {
        Tokens {
            input: tokens(usage, "/inputTokens"),
            output: tokens(usage, "/outputTokens"),
            total: tokens(usage, "/totalTokens"),
            thought: tokens(usage, "/thoughtTokens"),
            cached_read: tokens(usage, "/cachedReadTokens"),
            cached_write: tokens(usage, "/cachedWriteTokens"),
        }
    } else {
        let count = answer.pointer("/_meta/quota/token_count")?;
        Tokens { input: tokens(count, "/input_tokens"), output: tokens(count, "/output_tokens"), ..Tokens::default() }
    };
    let sum = || Some(told.input?.saturating_add(told.output?));
    let told = Tokens { total: told.total.or_else(sum), ..told };
    Some(told).filter(|told| !told.is_empty())
}

fn tokens(value: &Value, pointer: &str) -> Option<u64> {
    value.pointer(pointer)?.as_u64().filter(|tokens| *tokens <= TOKENS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(json: &str) -> Box<RawValue> {
        RawValue::from_string(json.to_owned()).unwrap()
    }

    #[test]
    fn an_update_is_read_as_far_as_it_makes_sense() {
        let whole = update(&raw(r#"{"used":10,"size":100,"cost":{"amount":0.5,"currency":"USD"}}"#));
        assert_eq!(whole.context, Some(ContextWindow { used: 10, size: 100 }));
        assert_eq!(whole.cost, Cost::new(0.5, "USD"));
        for strange in [
            r#"{"used":-1,"size":100,"cost":{"amount":-2,"currency":"USD"}}"#,
            r#"{"used":"x","size":1,"cost":{"amount":"1","currency":"USD"}}"#,
            r#"{"used":1e300,"size":1,"cost":{"amount":1e300,"currency":"USD"}}"#,
            r#"{"size":1,"cost":7}"#,
            "[]",
        ] {
            assert_eq!(update(&raw(strange)), Told::default(), "{strange}");
        }
    }

    #[test]
    fn the_usage_of_answers_is_read_in_both_shapes() {
        let own = of_answer(&raw(
            r#"{"stopReason":"end_turn","usage":{"totalTokens":9,"inputTokens":3,"outputTokens":4,"thoughtTokens":2,"cachedReadTokens":"x"}}"#,
        ));
        let expected =
            Tokens { input: Some(3), output: Some(4), total: Some(9), thought: Some(2), ..Tokens::default() };
        assert_eq!(own, Some(expected));
        assert_eq!(of_answer(&raw(r#"{"stopReason":"end_turn","usage":{}}"#)), None);
        assert_eq!(of_answer(&raw(r#"{"stopReason":"end_turn","_meta":null}"#)), None);
    }

    #[test]
    fn the_real_gemini_cli_tells_its_tokens() {
        let transcript = include_str!("../../tests/data/gemini-0.61-transcript.jsonl");
        let answers: Vec<Tokens> = transcript
            .lines()
            .filter_map(|line| {
                let entry: Value = serde_json::from_str(line).unwrap();
                of_answer(&raw(&entry["msg"]["result"].to_string()))
            })
            .collect();
        let first = Tokens { input: Some(147), output: Some(6), total: Some(153), ..Tokens::default() };
        assert_eq!(answers.first(), Some(&first));
        assert!(answers.len() > 5, "{answers:?}");
    }
}
