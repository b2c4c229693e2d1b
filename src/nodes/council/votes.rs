//! What a member's reply votes. Reads only the forms it is told of and never guesses from the tone. Pure.
//!
//! Everything hangs on the word `consensus` (or its Chinese counterpart): each place it stands at is looked at once, so
//! reading takes time in the length of the text only.

use std::ops::Range;

use super::data::VoteSource;

/// The word in tags; compared without regard to case.
const WORD: &str = "consensus";
/// Its Chinese counterpart: "consensus vote".
const CHINESE: &str = "共识投票";
/// Begins the line that some engines put before a reply.
const COMPLETED: &str = "[Agent completed";

/// A vote.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Vote {
    /// Whether it is a yes.
    pub yes: bool,
    /// Where it was found.
    pub source: VoteSource,
    /// The line of the last tag also holds the opposite tag, so it was an echo of the question and counts as no.
    pub ambiguous: bool,
}

/// The forms of a vote, by precedence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Form {
    /// `[CONSENSUS: YES]`.
    Strict,
    /// `consensus: yes`.
    Plain,
    /// `**consensus**: yes`.
    Bold,
    /// `consensus=yes`.
    Equals,
    /// `共识投票：yes`.
    Chinese,
    /// `[CONSENSUS] yes`.
    Bracket,
}

/// A vote at its place.
#[derive(Debug, Clone)]
struct Found {
    form: Form,
    yes: bool,
    at: Range<usize>,
}

/// The vote in `text`: its last strict tag, else the last match of the first other form that occurs.
pub fn read(text: &str) -> Vote {
    let mut strict: Option<(Found, bool)> = None;
    let mut variant: Option<Found> = None;
    for found in all(text) {
        if found.form == Form::Strict {
            let mixed = strict.as_ref().is_some_and(|(last, mixed)| {
                let between = text.get(last.at.end..found.at.start).unwrap_or_default();
                !between.contains('\n') && (*mixed || last.yes != found.yes)
            });
            strict = Some((found, mixed));
        } else if variant.as_ref().is_none_or(|best| found.form <= best.form) {
            variant = Some(found);
        }
    }
    match (strict, variant) {
        (Some((found, mixed)), _) => Vote { yes: found.yes && !mixed, source: VoteSource::Strict, ambiguous: mixed },
        (None, Some(found)) => Vote { yes: found.yes, source: VoteSource::Variant, ambiguous: false },
        (None, None) => Vote::default(),
    }
}

/// Whether `text` holds a vote of any form.
pub fn has_marker(text: &str) -> bool {
    all(text).next().is_some()
}

/// `text` without its votes, for readers who must not take them for their own or another's.
pub fn strip(text: &str) -> String {
    let once = without(text, "");
    // Taking a tag out can join what was around it to another one; a visible gap cannot.
    if has_marker(&once) { without(&once, "…") } else { once }
}

/// `text` with every vote replaced, without blank ends.
fn without(text: &str, instead: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut from = 0;
    for found in all(text) {
        kept.push_str(text.get(from..found.at.start).unwrap_or_default());
        kept.push_str(instead);
        from = found.at.end.max(from);
    }
    kept.push_str(text.get(from..).unwrap_or_default());
    kept.trim().to_owned()
}

/// `text` without a leading line by which an engine says that its agent ended, trimmed.
pub fn clean(text: &str) -> &str {
    let text = text.trim();
    let line = text.lines().next().unwrap_or_default();
    match (line.starts_with(COMPLETED), line.find(']')) {
        (true, Some(end)) => text.get(end + 1..).unwrap_or_default().trim(),
        _ => text,
    }
}

/// Every vote in the order of the text.
fn all(text: &str) -> impl Iterator<Item = Found> + '_ {
    let mut from = 0;
    std::iter::from_fn(move || {
        loop {
            let (at, len) = next_word(text, from)?;
            from = at + len;
            if let Some(found) = vote_at(text, at, len) {
                from = found.at.end;
                return Some(found);
            }
        }
    })
}

/// Place and length of the next word a vote can begin with.
fn next_word(text: &str, from: usize) -> Option<(usize, usize)> {
    let bytes = text.as_bytes().get(from..)?;
    bytes.iter().enumerate().find_map(|(at, byte)| {
        let word = match byte {
            b'c' | b'C' => WORD,
            0xe5 => CHINESE,
            _ => return None,
        };
        let here = bytes.get(at..at + word.len())?;
        here.eq_ignore_ascii_case(word.as_bytes()).then_some((from + at, word.len()))
    })
}

/// The vote whose word stands at `at`.
fn vote_at(text: &str, at: usize, len: usize) -> Option<Found> {
    let (before, rest) = (text.get(..at)?, text.get(at + len..)?);
    let found =
        |form, start: usize, (yes, after): (bool, &str)| Some(Found { form, yes, at: start..text.len() - after.len() });
    if text.as_bytes().get(at) == Some(&0xe5) {
        return found(Form::Chinese, at, answer(separators(rest))?);
    }
    let outer = before.trim_end();
    let bracket = outer.strip_suffix('[').map(str::len);
    let inner = rest.trim_start();
    if let Some(start) = bracket {
        if let Some(tail) = inner.strip_prefix([':', '：'])
            && let Some((yes, after)) = word(tail.trim_start())
            && let Some(after) = after.trim_start().strip_prefix(']')
        {
            return found(Form::Strict, start, (yes, after));
        }
        if let Some(tail) = inner.strip_prefix(']') {
            return found(Form::Bracket, start, answer(separators(tail))?);
        }
    }
    // A part of another word is no vote.
    if before.ends_with(|last: char| last.is_ascii_alphanumeric() || last == '_') {
        return None;
    }
    if let Some(tail) = inner.strip_prefix("**") {
        return found(Form::Bold, outer.strip_suffix("**")?.len(), answer(separators(tail))?);
    }
    if let Some(tail) = inner.strip_prefix('=') {
        return found(Form::Equals, at, answer(tail.trim_start())?);
    }
    let tail = separators(rest);
    if tail.len() == rest.len() { None } else { found(Form::Plain, at, answer(tail)?) }
}

/// `text` after colons and spaces.
fn separators(text: &str) -> &str {
    text.trim_start_matches(|c: char| c.is_whitespace() || matches!(c, ':' | '：'))
}

/// A yes or no at the start, and what follows.
fn word(text: &str) -> Option<(bool, &str)> {
    let starts = |word: &str| text.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word));
    if starts("yes") {
        Some((true, text.get(3..)?))
    } else if starts("no") {
        Some((false, text.get(2..)?))
    } else {
        None
    }
}

/// The same where the word ends there and offers no choice: `not`, `no-one`, `yes/no` and `yes or no` are no answers.
fn answer(text: &str) -> Option<(bool, &str)> {
    let (yes, after) = word(text)?;
    let mut next = after.chars();
    let goes_on = match next.next() {
        Some('-' | '\'' | '’' | '/' | '|') => next.next().is_some_and(char::is_alphanumeric),
        // Chinese is written without spaces; there the next letter begins the next word.
        Some(c) => c == '_' || c.is_alphanumeric() && !matches!(c, '\u{3040}'..='\u{9fff}'),
        None => false,
    };
    let choice = after
        .trim_start()
        .get(..2)
        .filter(|or| or.eq_ignore_ascii_case("or"))
        .and_then(|_| after.trim_start().get(2..))
        .is_some_and(|rest| rest.starts_with(char::is_whitespace) && word(rest.trim_start()).is_some());
    (!goes_on && !choice).then_some((yes, after))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn vote(text: &str) -> (bool, VoteSource) {
        let vote = read(text);
        assert!(!vote.ambiguous, "{text}");
        assert_eq!(has_marker(text), vote.source != VoteSource::None, "{text}");
        (vote.yes, vote.source)
    }

    /// Council scenario 11: what counts, in which form, and what does not.
    #[test]
    fn every_form_of_a_vote() {
        use VoteSource::{None, Strict, Variant};
        for (text, yes, source) in [
            ("[CONSENSUS: YES]", true, Strict),
            ("[CONSENSUS: NO]", false, Strict),
            ("[consensus：yes]", true, Strict),
            ("[ Consensus \u{3000}： no ]", false, Strict),
            ("**[CONSENSUS:YES]**\n", true, Strict),
            ("Consensus: yes", true, Variant),
            ("consensus yes.", true, Variant),
            ("consensus：： NO", false, Variant),
            ("[CONSENSUS YES]", true, Variant),
            ("**Consensus**: no", false, Variant),
            ("**consensus**：YES", true, Variant),
            ("CONSENSUS=YES", true, Variant),
            ("consensus = no", false, Variant),
            ("共识投票：YES", true, Variant),
            ("共识投票: no。", false, Variant),
            ("共识投票 YES我同意", true, Variant),
            ("[CONSENSUS] yes", true, Variant),
            ("[consensus]: NO", false, Variant),
            ("consensus not reached", false, None),
            ("consensus yesterday", false, None),
            ("consensus no_way", false, None),
            ("consensus no-one wants", false, None),
            ("consensus: YES/NO", false, None),
            ("vote with consensus: yes or no", false, None),
            ("nonconsensus: yes", false, None),
            ("consensusyes", false, None),
            ("I agree with everything, ship it!", false, None),
            ("", false, None),
        ] {
            assert_eq!(vote(text), (yes, source), "{text}");
        }
    }

    /// Council scenario 11: the later tag counts, a strict tag beats other forms, and these have their own order.
    #[test]
    fn which_of_several_votes_counts() {
        use VoteSource::{Strict, Variant};
        assert_eq!(vote("[CONSENSUS: YES]\nwait\n[CONSENSUS: NO]"), (false, Strict));
        assert_eq!(vote("[CONSENSUS: NO]\nfixed\n[CONSENSUS: YES]\n"), (true, Strict));
        assert_eq!(vote("[CONSENSUS: YES]\nconsensus: no"), (true, Strict));
        assert_eq!(vote("consensus: yes\n[CONSENSUS] no"), (true, Variant));
        assert_eq!(vote("[CONSENSUS] yes\nCONSENSUS=no"), (false, Variant));
        assert_eq!(vote("consensus: yes\nconsensus: no"), (false, Variant));
        assert_eq!(vote("[CONSENSUS: YES] and again [CONSENSUS: YES]"), (true, Strict));
    }

    /// Council scenario 11: an echo of the question is no answer, unless an answer follows on a later line.
    #[test]
    fn both_tags_on_one_line_are_a_no() {
        let both = Vote { yes: false, source: VoteSource::Strict, ambiguous: true };
        assert_eq!(read("[CONSENSUS: YES] or [CONSENSUS: NO]"), both);
        assert_eq!(read("x\n[CONSENSUS: NO] / [CONSENSUS: YES]"), both);
        assert_eq!(read("[CONSENSUS: NO], [CONSENSUS: YES], [CONSENSUS: YES]"), both);
        assert_eq!(
            vote("end with [CONSENSUS: YES] or [CONSENSUS: NO]\n\n[CONSENSUS: YES]"),
            (true, VoteSource::Strict)
        );
    }

    #[test]
    fn votes_are_taken_out_of_text() {
        assert_eq!(strip("All done.\n\n[CONSENSUS: YES]\n"), "All done.");
        assert_eq!(strip("[consensus：no] a **Consensus**: no b 共识投票：YES"), "a  b");
        assert_eq!(strip("consensus not reached"), "consensus not reached");
        assert!(!has_marker(&strip("[CONSENSUS: [CONSENSUS: NO] YES]")));
    }

    #[test]
    fn the_line_of_an_engine_is_no_reply() {
        assert_eq!(clean("  [Agent completed with 3 tool calls]\n\nDone.\n"), "Done.");
        assert_eq!(clean("[Agent completed]"), "");
        assert_eq!(clean("[Agent completed no bracket\nx"), "[Agent completed no bracket\nx");
        assert_eq!(clean("Done. [Agent completed]"), "Done. [Agent completed]");
    }

    /// Council scenarios 11 and 33: long replies, with and without tricks, are read in one pass.
    #[test]
    fn long_replies() {
        assert_eq!(vote(&"words without a vote ".repeat(2_000)), (false, VoteSource::None));
        for filler in ["consensus ", "[", "[consensus:", "共识投票：", "consensus\n\n\n\n", " ", "consensus: yes\n"]
        {
            let text = format!("{}\n[CONSENSUS: YES]", filler.repeat((2 << 20) / filler.len()));
            assert_eq!(vote(&text), (true, VoteSource::Strict), "{filler}");
        }
    }

    proptest! {
        #[test]
        fn any_text_can_be_read(text in "(\\PC|\n|\\[ ?CONSENSUS ?[:：] ?(YES|NO) ?\\]|consensus|共识投票|yes|no|\\*\\*|=|:){0,40}") {
            let vote = read(&text);
            prop_assert_eq!(has_marker(&text), vote.source != VoteSource::None);
            prop_assert!(!(vote.ambiguous && vote.yes));
            prop_assert!(read(&strip(&text)).source != VoteSource::Strict);
            prop_assert!(text.contains(clean(&text)));
        }

        #[test]
        fn a_last_line_decides(text in "(\\PC|\n|\\[CONSENSUS: (YES|NO)\\]){0,30}", yes: bool) {
            let word = if yes { "YES" } else { "NO" };
            let voted = read(&format!("{text}\n[CONSENSUS: {word}]"));
            prop_assert_eq!(voted, Vote { yes, source: VoteSource::Strict, ambiguous: false });
        }
    }
}
