//! The few terminal codes that are used, and when: on a terminal, unless `NO_COLOR` or a dumb terminal says otherwise.

const RESET: &str = "\x1b[0m";

/// What a piece of text looks like where there are colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Paint {
    #[default]
    Plain,
    Bold,
    Dim,
    Green,
    Yellow,
    Red,
}

/// Whether nothing is known of the terminal but that it takes text: then it gets nothing else.
pub fn is_dumb() -> bool {
    std::env::var_os("TERM").is_none_or(|value| value.is_empty() || value == "dumb")
}

#[derive(Clone, Copy, Debug)]
pub struct Style {
    enabled: bool,
}

impl Style {
    pub fn for_stream(is_terminal: bool) -> Self {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self { enabled: is_terminal && !refused && !is_dumb() }
    }

    pub const fn colourless() -> Self {
        Self { enabled: false }
    }

    #[cfg(test)]
    pub const fn coloured() -> Self {
        Self { enabled: true }
    }

    #[cfg(test)]
    pub const fn plain() -> Self {
        Self { enabled: false }
    }

    pub const fn is_enabled(self) -> bool {
        self.enabled
    }

    pub fn dim(self, text: &str) -> String {
        self.wrap("\x1b[2m", text)
    }

    pub fn bold(self, text: &str) -> String {
        self.wrap("\x1b[1m", text)
    }

    pub fn red(self, text: &str) -> String {
        self.wrap("\x1b[31m", text)
    }

    pub fn green(self, text: &str) -> String {
        self.wrap("\x1b[32m", text)
    }

    pub fn yellow(self, text: &str) -> String {
        self.wrap("\x1b[33m", text)
    }

    pub fn paint(self, paint: Paint, text: &str) -> String {
        match paint {
            Paint::Plain => text.to_owned(),
            Paint::Bold => self.bold(text),
            Paint::Dim => self.dim(text),
            Paint::Green => self.green(text),
            Paint::Yellow => self.yellow(text),
            Paint::Red => self.red(text),
        }
    }

    /// What takes the line away that the cursor is in; or, where that cannot be done, ends it.
    pub const fn line_erased(self) -> &'static str {
        if self.enabled { "\r\x1b[K" } else { "\n" }
    }

    fn wrap(self, code: &str, text: &str) -> String {
        if self.enabled && !text.is_empty() { format!("{code}{text}{RESET}") } else { text.to_owned() }
    }
}
