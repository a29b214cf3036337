//! The agent's plan as a checklist that changes in place.

use serde_json::Value;

use super::super::text::one_line;
use super::glyphs::Glyphs;
use super::ink::{Colour, Ink, Line, indented};

/// Of a longer plan, the steps around the one that is at work are shown while it goes on.
const REGION_STEPS: usize = 8;

#[derive(Debug, PartialEq, Eq)]
struct Step {
    content: String,
    status: String,
}

#[derive(Debug)]
pub struct Checklist {
    glyphs: &'static Glyphs,
    steps: Vec<Step>,
}

impl Checklist {
    pub fn new(glyphs: &'static Glyphs) -> Self {
        Self { glyphs, steps: Vec::new() }
    }

    /// Takes the plan as it is now. What is given back is the last of another list, which this one replaces.
    pub fn update(&mut self, update: &Value, columns: usize) -> Vec<Line> {
        let entries = update["entries"].as_array().map(Vec::as_slice).unwrap_or_default();
        let text = |entry: &Value, field: &str| one_line(entry[field].as_str().unwrap_or_default());
        let steps: Vec<Step> = entries
            .iter()
            .map(|entry| Step { content: text(entry, "content"), status: text(entry, "status") })
            .collect();
        let goes_on = steps.iter().any(|step| self.steps.iter().any(|old| old.content == step.content));
        let last = if goes_on { Vec::new() } else { self.end(columns) };
        self.steps = steps;
        last
    }

    /// The plan as it is now, or what matters of it.
    pub fn region(&self, columns: usize) -> Vec<Line> {
        if self.steps.len() <= REGION_STEPS {
            return self.lines(&self.steps, columns);
        }
        let current = self.steps.iter().position(|step| step.status != "completed").unwrap_or(self.steps.len());
        let first = current.saturating_sub(2).min(self.steps.len() - REGION_STEPS);
        let last = first + REGION_STEPS;
        let rest = |count: usize, word: &str| {
            (count > 0).then(|| Line::new(&format!("{} {count} {word}", self.glyphs.ellipsis), Ink::DIM))
        };
        let mut lines: Vec<Line> = rest(first, "before").into_iter().collect();
        lines.extend(self.lines(&self.steps[first..last], columns));
        lines.extend(rest(self.steps.len() - last, "more"));
        lines
    }

    /// The plan as it was in the end. There is none any more.
    pub fn end(&mut self, columns: usize) -> Vec<Line> {
        let steps = std::mem::take(&mut self.steps);
        self.lines(&steps, columns)
    }

    fn lines(&self, steps: &[Step], columns: usize) -> Vec<Line> {
        steps.iter().flat_map(|step| self.line(step, columns)).collect()
    }

    fn line(&self, step: &Step, columns: usize) -> Vec<Line> {
        let (mark, mark_ink, ink) = match step.status.as_str() {
            "completed" => (self.glyphs.step_done, Ink::PLAIN.colour(Colour::Green), Ink::DIM),
            "in_progress" => (self.glyphs.step_running, Ink::PLAIN.colour(Colour::Yellow), Ink::PLAIN),
            _ => (self.glyphs.step_pending, Ink::DIM, Ink::PLAIN),
        };
        let mark = Line::new(mark, mark_ink).and(" ", Ink::PLAIN);
        let rest = Line::new(&" ".repeat(mark.width()), Ink::PLAIN);
        indented(&Line::new(&step.content, ink).wrap(columns.saturating_sub(mark.width())), &mark, &rest)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn texts(lines: &[Line]) -> Vec<String> {
        lines.iter().map(Line::text).collect()
    }

    fn plan(steps: &[(&str, &str)]) -> Value {
        let entries: Vec<Value> =
            steps.iter().map(|(content, status)| json!({"content": content, "status": status})).collect();
        json!({"entries": entries})
    }

    #[test]
    fn a_plan_is_told_once_when_it_is_over_or_replaced() {
        let mut list = Checklist::new(Glyphs::unicode());
        assert!(list.update(&plan(&[("look", "in_progress"), ("answer", "pending")]), 40).is_empty());
        assert_eq!(texts(&list.region(40)), ["▸ look", "○ answer"]);
        assert!(
            list.update(&plan(&[("look", "completed"), ("answer", "pending"), ("more", "pending")]), 40).is_empty()
        );
        assert_eq!(texts(&list.update(&plan(&[("a new one", "pending")]), 40)), ["✔ look", "○ answer", "○ more"]);
        assert_eq!(texts(&list.end(40)), ["○ a new one"]);
        assert!(list.region(40).is_empty() && list.end(40).is_empty());
    }

    #[test]
    fn a_long_plan_is_shown_around_the_step_at_work() {
        let steps: Vec<String> = (0..20).map(|number| format!("step {number}")).collect();
        let status = |index: usize| if index < 10 { "completed" } else { "pending" };
        let steps: Vec<(&str, &str)> =
            steps.iter().enumerate().map(|(index, step)| (step.as_str(), status(index))).collect();
        let mut list = Checklist::new(Glyphs::unicode());
        list.update(&plan(&steps), 40);
        let region = texts(&list.region(40));
        assert_eq!((region.len(), region[0].as_str()), (REGION_STEPS + 2, "… 8 before"));
        assert!(region.contains(&"○ step 10".to_owned()) && region.last().unwrap() == "… 4 more");
        assert_eq!(list.end(40).len(), 20);
    }
}
