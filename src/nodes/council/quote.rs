//! Words of others put where they cannot pass for more: between marks they do not hold, without what hides. Pure.

use crate::sys::text;

/// `text` quoted under `title`, closed by a word that does not occur in either.
pub(super) fn fence(title: &str, text: &str, seed: &str) -> String {
    let (title, text) = (line(title), plain(text));
    let mut mark = if seed.is_empty() { "quote".to_owned() } else { seed.to_owned() };
    let mut more = 0_u32;
    while text.contains(&mark) || title.contains(&mark) {
        more += 1;
        mark = format!("{seed}-{more}");
    }
    format!("<<<{title} {mark}\n{}\n{mark}>>>\n", text.trim_end())
}

/// `text` without control characters, escape sequences and characters that hide or reorder what is read.
pub(super) fn plain(text: &str) -> String {
    let mut plain = text::strip(text);
    plain.retain(|c| {
        !matches!(c, '\u{ad}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
    });
    plain
}

/// The same in one line.
pub(super) fn line(text: &str) -> String {
    let plain = plain(text);
    plain.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A fence of markdown longer than any in `text`.
pub(super) fn fence_for(text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    "`".repeat(longest.max(2) + 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_text_ends_its_quotation(text in "(\\PC|\n|\u{1b}|\u{200b}|k|3y|k3y|-1|>>>|<<<){0,40}", title in "(\\PC|k3y|-1){0,5}") {
            let quoted = fence(&title, &text, "k3y");
            let (head, body) = quoted.split_once('\n').unwrap();
            let mark = head.rsplit(' ').next().unwrap().trim_start_matches("<<<");
            let close = format!("\n{mark}>>>\n");
            prop_assert!(body.ends_with(&close));
            prop_assert_eq!(quoted.matches(mark).count(), 2);
        }
    }
}
