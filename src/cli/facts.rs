//! Facts, in groups: a name and what is to be said, in two columns that fit the terminal.

use super::style::{Paint, Style};
use super::text::{columns, one_line, wrapped};

const GAP: usize = 2;
/// Where there is less room than this for what is said, the terminal may break the lines itself.
const VALUE_COLUMNS_MIN: usize = 20;

/// The groups, an empty line between them.
#[derive(Default)]
pub struct Facts {
    groups: Vec<Vec<Fact>>,
}

struct Fact {
    name: &'static str,
    value: String,
    paint: Paint,
}

impl Facts {
    /// What follows stands apart from what was before.
    pub fn group(&mut self) {
        if self.groups.last().is_none_or(|group| !group.is_empty()) {
            self.groups.push(Vec::new());
        }
    }

    /// Values are cleaned here, so that nobody who tells facts can forget it. An empty one is no fact.
    pub fn painted(&mut self, name: &'static str, value: &str, paint: Paint) {
        let value = one_line(value);
        if value.is_empty() {
            return;
        }
        if self.groups.is_empty() {
            self.group();
        }
        if let Some(group) = self.groups.last_mut() {
            group.push(Fact { name, value, paint });
        }
    }

    pub fn tell(&mut self, name: &'static str, value: &str) {
        self.painted(name, value, Paint::Plain);
    }

    pub fn maybe(&mut self, name: &'static str, value: Option<String>) {
        self.tell(name, &value.unwrap_or_default());
    }

    /// The lines, within `width` columns when there is a terminal.
    pub fn render(&self, width: Option<usize>, style: Style) -> String {
        let names = self.groups.iter().flatten().map(|fact| columns(fact.name)).max().unwrap_or(0);
        let indent = names + GAP;
        let room = width.map(|width| width.saturating_sub(indent)).filter(|room| *room >= VALUE_COLUMNS_MIN);
        let groups = self.groups.iter().filter(|group| !group.is_empty()).map(|group| {
            let lines = group.iter().enumerate().map(|(index, fact)| {
                // A name that stands above already need not be said again.
                let is_new = index == 0 || group[index - 1].name != fact.name;
                let name = if is_new { fact.name } else { "" };
                let pieces = room.map_or_else(|| vec![fact.value.clone()], |room| wrapped(&fact.value, room));
                let pieces = pieces.iter().map(|piece| style.paint(fact.paint, piece)).collect::<Vec<_>>();
                format!(
                    "{}{}",
                    style.dim(&format!("{name:<indent$}")),
                    pieces.join(&format!("\n{}", " ".repeat(indent)))
                )
            });
            lines.collect::<Vec<_>>().join("\n")
        });
        groups.collect::<Vec<_>>().join("\n\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_stand_in_two_columns_and_are_wrapped() {
        let mut facts = Facts::default();
        facts.tell("status", "active");
        facts.tell("nothing", "");
        facts.group();
        facts.tell("a name", "one two three four five\x1b[2J");
        facts.tell("a name", "again");
        insta::assert_snapshot!(facts.render(Some(28), Style::plain()), @r"
        status  active

        a name  one two three four
                five[2J
                again
        ");
        assert!(facts.render(None, Style::plain()).contains("three four five[2J\n"));
    }
}
