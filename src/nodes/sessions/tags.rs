//! Makes tags inside of texts that others wrote harmless, also with characters in them that nobody sees.

/// Whether a reader does not see the character: it can hide a tag from a search, not from a model.
pub(super) fn invisible(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}'
        | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
        || (c.is_control() && !matches!(c, '\n' | '\t'))
}

/// `text` with the bracket in front of every opening or closing tag called one of `names` written as `&lt;`. Case, white space
/// and invisible characters make no difference.
pub(super) fn neutral(text: &str, names: &[&str]) -> String {
    let mut out = String::with_capacity(text.len());
    for (at, c) in text.char_indices() {
        if is_open(c) && begins(text.get(at + c.len_utf8()..).unwrap_or_default(), names) {
            out.push_str("&lt;");
        } else {
            out.push(c);
        }
    }
    out
}

/// The bracket and what looks like it.
fn is_open(c: char) -> bool {
    matches!(c, '<' | '\u{ff1c}' | '\u{fe64}' | '\u{2039}' | '\u{27e8}' | '\u{3008}')
}

/// Whether a tag of one of the names begins here, behind its bracket.
fn begins(rest: &str, names: &[&str]) -> bool {
    let mut seen = rest.chars().filter(|c| !invisible(*c) && !c.is_whitespace());
    let longest = names.iter().map(|n| n.len()).max().unwrap_or(0);
    let mut word: String =
        seen.by_ref().skip_while(|c| matches!(c, '/' | '\u{ff0f}' | '\u{2215}')).take(longest).collect();
    word.make_ascii_lowercase();
    // Dashes and underscores have many doubles.
    let same = |name: &&str| word.len() >= name.len() && plain(&word).starts_with(&plain(name));
    names.iter().any(same)
}

fn plain(word: &str) -> String {
    let dash =
        |c: char| matches!(c, '-' | '_' | '\u{2010}'..='\u{2015}' | '\u{2212}' | '\u{fe63}' | '\u{ff0d}' | '\u{ff3f}');
    word.chars().map(|c| if dash(c) { '-' } else { c }).collect()
}

/// A text as the value of an attribute in double quotes.
pub(super) fn attribute(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars().filter(|c| !invisible(*c)) {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&apos;"),
            '\n' | '\t' => out.push(' '),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_found_however_they_are_written() {
        let names = ["cross-session-message"];
        for tag in [
            "</cross-session-message>",
            "< / CROSS-session-message>",
            "<cross\u{200b}-session\u{2060}-mess\u{ad}age from=\"x\">",
            "<\u{feff}/cross\u{2011}session_message>",
            "\u{ff1c}cross-session-message",
            "<\ncross-session\n-message>",
            "<//cross-session-message",
        ] {
            let out = neutral(&format!("a < b {tag} c"), &names);
            assert!(out.starts_with("a < b &lt;"), "{tag:?} -> {out:?}");
        }
        for harmless in ["a<b", "<cross>", "vec<cross_session>", "<<", "é<", ""] {
            assert_eq!(neutral(harmless, &names), harmless);
        }
        assert_eq!(attribute("a\"b'<c>&\u{200b}\nd"), "a&quot;b&apos;&lt;c&gt;&amp; d");
    }
}
