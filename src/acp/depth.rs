//! How deep JSON is nested. An agent's own JSON is kept as it came, without being taken apart, so it may be nested deeper than
//! anybody reads it: parsers have a limit, ours is 128, and what is kept is put into messages and events besides.

/// What is kept of an agent's JSON is not nested deeper than this.
pub const DEPTH_MAX: usize = 100;

/// Whether JSON can be kept for others to read.
pub fn is_shallow(json: &str) -> bool {
    let (mut depth, mut is_text, mut is_escaped) = (0_usize, false, false);
    for byte in json.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_text => is_escaped = true,
            b'"' => is_text = !is_text,
            b'[' | b'{' if !is_text => {
                depth += 1;
                if depth > DEPTH_MAX {
                    return false;
                }
            }
            b']' | b'}' if !is_text => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_is_counted_outside_of_texts() {
        let nested = |depth: usize| format!("{}{}", r#"[{"a":"#.repeat(depth / 2), "}]".repeat(depth / 2));
        assert!(is_shallow(&nested(DEPTH_MAX)) && !is_shallow(&nested(DEPTH_MAX + 2)));
        assert!(is_shallow(&format!(r#"{{"a":"{}","b\"{}":1}}"#, "[".repeat(200), "{".repeat(200))));
        assert!(is_shallow(&"[],".repeat(200)), "what is beside each other is not nested");
    }
}
