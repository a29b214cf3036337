//! What a turn took and used, for the one line at its end.

use serde_json::Value;

use crate::model::{Timestamp, TurnStatus};

use super::super::text::{count, duration, one_line, thousands};
use super::glyphs::Glyphs;
use super::ink::{Ink, Line};

#[derive(Debug, Default)]
pub struct Tally {
    began: Option<Timestamp>,
    tools: u64,
    /// How much of the agent's context is full, in per cent.
    context: Option<u64>,
}

impl Tally {
    pub fn begin(&mut self, at: Timestamp) {
        *self = Self { began: Some(at), tools: 0, context: self.context };
    }

    pub fn tool(&mut self) {
        self.tools += 1;
    }

    pub fn usage(&mut self, update: &Value) {
        if let (Some(used), Some(size @ 1..)) = (update["used"].as_u64(), update["size"].as_u64()) {
            self.context = Some(used.saturating_mul(100) / size);
        }
    }

    /// The line, of what is known; `data` is that of `turn.completed`.
    pub fn line(&self, status: TurnStatus, data: &Value, at: Timestamp, glyphs: &Glyphs) -> Option<Line> {
        let usage = &data["usage"];
        let mut parts: Vec<String> = self.began.map(|began| duration(began, at)).into_iter().collect();
        parts.extend((self.tools > 0).then(|| count(self.tools, "tool")));
        match (usage["inputTokens"].as_u64(), usage["outputTokens"].as_u64(), usage["totalTokens"].as_u64()) {
            (Some(input), Some(output), _) => {
                parts.push(format!("{} in, {} out", count(input, "token"), thousands(output)));
            }
            (_, _, Some(total)) => parts.push(count(total, "token")),
            (Some(input), None, None) => parts.push(format!("{} in", count(input, "token"))),
            (None, Some(output), None) => parts.push(format!("{} out", count(output, "token"))),
            (None, None, None) => {}
        }
        parts.extend(cost(&usage["cost"]));
        parts.extend(self.context.map(|percent| format!("context {percent}%")));
        let mark = if status == TurnStatus::Completed { glyphs.done } else { glyphs.failed };
        let separator = format!(" {} ", glyphs.dot);
        (!parts.is_empty()).then(|| Line::new(&format!("{mark} {}", parts.join(&separator)), Ink::DIM))
    }
}

fn cost(cost: &Value) -> Option<String> {
    let amount = cost["amount"].as_f64()?;
    let currency = one_line(cost["currency"].as_str().unwrap_or_default());
    let digits = format!("{amount:.4}");
    Some(match currency.as_str() {
        "USD" => format!("${digits}"),
        "" => digits,
        currency => format!("{digits} {currency}"),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_known_is_told() {
        let at = Timestamp::from_millis;
        let line = |tally: &Tally, data: Value| {
            tally.line(TurnStatus::Completed, &data, at(12_400), Glyphs::unicode()).map(|line| line.text())
        };
        let mut tally = Tally::default();
        assert_eq!(line(&tally, json!({})), None);
        tally.begin(at(0));
        assert_eq!(line(&tally, json!({"usage": null})).unwrap(), "✓ 12.4s");
        tally.tool();
        tally.usage(&json!({"used": 24_000, "size": 200_000}));
        let cost = json!({"amount": 0.0123, "currency": "USD"});
        let usage = json!({"inputTokens": 1204, "outputTokens": 356, "totalTokens": 1560, "cost": cost});
        assert_eq!(
            line(&tally, json!({"usage": usage})).unwrap(),
            "✓ 12.4s · 1 tool · 1,204 tokens in, 356 out · $0.0123 · context 12%"
        );
        assert!(line(&tally, json!({"usage": {"inputTokens": 1}})).unwrap().contains("1 token in"));
    }
}
