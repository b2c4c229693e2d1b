//! Regular expressions of callers: one linear-time engine, one bound on their size.
//!
//! Matching works on bytes, so files and answers in any encoding can be searched.

use regex::bytes::{Regex, RegexBuilder};

/// Largest compiled form in bytes; a counted repetition of a huge class would otherwise take all memory.
const COMPILED_MAX: usize = 10 << 20;
/// Characters of the engine's reason that are shown.
const REASON_MAX: usize = 160;

/// Compiles `text`, or says why not in one line.
pub(super) fn compile(text: &str) -> Result<Regex, String> {
    RegexBuilder::new(text).size_limit(COMPILED_MAX).build().map_err(|error| {
        // The engine draws the place on several lines; its last line is the reason.
        let whole = error.to_string();
        let line = whole.lines().last().unwrap_or_default().trim();
        line.trim_start_matches("error: ").chars().take(REASON_MAX).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Acceptance scenario 11 and case SV-3: nested quantifiers on a megabyte finish at once.
    #[test]
    fn catastrophic_patterns_are_linear() {
        let mut text = vec![b'a'; 1 << 20];
        text.push(b'b');
        assert!(!compile("^(a+)+$").unwrap().is_match(&text));
        assert!(!compile("(a+)+$").unwrap().is_match(&text));
        assert!(!compile("^(a|a)*c").unwrap().is_match(&text));
    }

    #[test]
    fn bad_and_huge_patterns_are_refused_in_one_line() {
        for bad in ["(", "a{2,1}", r"(?P<n", r"\p{Nope}", r"(\w{1000}){1000}"] {
            let reason = compile(bad).unwrap_err();
            assert!(!reason.is_empty() && !reason.contains('\n'), "{bad}: {reason}");
        }
    }
}
