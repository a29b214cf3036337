//! The few signs that are drawn, and what stands for them where the locale has no such letters.

#[derive(Clone, Copy, Debug)]
pub struct Glyphs {
    pub done: &'static str,
    pub failed: &'static str,
    pub folded: &'static str,
    pub unfolded: &'static str,
    pub step_done: &'static str,
    pub step_running: &'static str,
    pub step_pending: &'static str,
    pub bullet: &'static str,
    pub checked: &'static str,
    pub unchecked: &'static str,
    pub bar: &'static str,
    pub rule: &'static str,
    pub crossing: &'static str,
    pub ellipsis: &'static str,
    pub dot: &'static str,
    spinner: &'static [&'static str],
}

static UNICODE: Glyphs = Glyphs {
    done: "✓",
    failed: "✗",
    folded: "▸",
    unfolded: "▾",
    step_done: "✔",
    step_running: "▸",
    step_pending: "○",
    bullet: "•",
    checked: "☑",
    unchecked: "☐",
    bar: "│",
    rule: "─",
    crossing: "┼",
    ellipsis: "…",
    dot: "·",
    spinner: &["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"],
};

static ASCII: Glyphs = Glyphs {
    done: "ok",
    failed: "x",
    folded: ">",
    unfolded: "v",
    step_done: "[x]",
    step_running: "[>]",
    step_pending: "[ ]",
    bullet: "*",
    checked: "[x]",
    unchecked: "[ ]",
    bar: "|",
    rule: "-",
    crossing: "+",
    ellipsis: "...",
    dot: "-",
    spinner: &["|", "/", "-", "\\"],
};

impl Glyphs {
    /// As the environment's locale has them. Where none is named, terminals take UTF-8 today.
    pub fn of_environment() -> &'static Self {
        let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        Self::of_locale(["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set).as_deref())
    }

    fn of_locale(locale: Option<&str>) -> &'static Self {
        let is_utf8 = |locale: &str| {
            let locale = locale.to_ascii_lowercase();
            locale.contains("utf-8") || locale.contains("utf8")
        };
        if locale.is_none_or(is_utf8) { &UNICODE } else { &ASCII }
    }

    #[cfg(test)]
    pub const fn unicode() -> &'static Self {
        &UNICODE
    }

    /// The spinner's sign at this moment, a tenth of a second each.
    pub fn spinner(&self, millis: i64) -> &'static str {
        let frames = i64::try_from(self.spinner.len()).unwrap_or(1);
        let index = usize::try_from((millis / 100).rem_euclid(frames)).unwrap_or_default();
        self.spinner.get(index).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_locale_without_the_signs_gets_others() {
        for locale in [None, Some("C.UTF-8"), Some("de_DE.utf8")] {
            assert_eq!(Glyphs::of_locale(locale).done, "✓", "{locale:?}");
        }
        for locale in ["C", "POSIX", "en_US", "de_DE.ISO-8859-1"] {
            assert!(Glyphs::of_locale(Some(locale)).done.is_ascii(), "{locale}");
        }
        let all: String = (0..20).map(|frame| ASCII.spinner(frame * 100)).collect();
        assert!(all.is_ascii());
    }
}
