//! The agent's plan: the whole list when it is new, and afterwards only the steps that have moved.

use serde_json::Value;

use super::super::super::transcript::step_line;

#[derive(Debug, PartialEq, Eq)]
struct Step {
    content: String,
    status: String,
}

#[derive(Debug, Default)]
pub struct Plan {
    steps: Vec<Step>,
}

impl Plan {
    /// The lines that are news.
    pub fn update(&mut self, update: &Value) -> Vec<String> {
        let entries = update["entries"].as_array().map(Vec::as_slice).unwrap_or_default();
        let text = |entry: &Value, field: &str| entry[field].as_str().unwrap_or_default().to_owned();
        let steps: Vec<Step> = entries
            .iter()
            .map(|entry| Step { content: text(entry, "content"), status: text(entry, "status") })
            .collect();
        let is_same_list = steps.len() == self.steps.len()
            && steps.iter().zip(&self.steps).all(|(new, old)| new.content == old.content);
        let lines = steps
            .iter()
            .enumerate()
            .filter(|(index, step)| !is_same_list || self.steps.get(*index) != Some(*step))
            .map(|(_, step)| step_line(&step.status, &step.content))
            .collect();
        self.steps = steps;
        lines
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn plan(statuses: [&str; 2]) -> Value {
        json!({"sessionUpdate": "plan", "entries": [
            {"content": "look", "priority": "high", "status": statuses[0]},
            {"content": "answer", "priority": "high", "status": statuses[1]},
        ]})
    }

    #[test]
    fn only_what_has_moved_is_told_again() {
        let mut shown = Plan::default();
        assert_eq!(shown.update(&plan(["in_progress", "pending"])), ["[>] look", "[ ] answer"]);
        assert_eq!(shown.update(&plan(["in_progress", "pending"])), [""; 0]);
        assert_eq!(shown.update(&plan(["completed", "pending"])), ["[x] look"]);
        assert_eq!(shown.update(&json!({"entries": [{"content": "anew", "status": "pending"}]})), ["[ ] anew"]);
        assert_eq!(shown.update(&json!({})), [""; 0]);
    }
}
