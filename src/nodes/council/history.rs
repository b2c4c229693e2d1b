//! The part of a member's prompt that quotes what everybody said before. Pure.

use std::fmt::Write as _;

use super::{
    prompt::PastReply,
    quote::{fence, line, plain},
    votes,
};

/// Characters shown of an earlier reply: its end.
pub(super) const REPLY_CHARS: usize = 1_500;
/// Characters of all earlier replies together with their headings.
pub(super) const HISTORY_CHARS: usize = 60_000;
/// Room for the line that names the rounds left out.
const NOTICE: usize = 100;

/// Adds the newest rounds that there is room for, oldest first, as `me` reads them.
pub(super) fn write(text: &mut String, history: &[PastReply], me: &str, seed: &str) {
    let mut rounds: Vec<u32> = history.iter().map(|reply| reply.round).collect();
    rounds.sort_unstable();
    rounds.dedup();
    let mut shown: Vec<String> = Vec::new();
    let mut room = HISTORY_CHARS - NOTICE;
    let mut left_out = None;
    for round in rounds.into_iter().rev() {
        let mut replies = String::new();
        for reply in history.iter().filter(|reply| reply.round == round) {
            replies.push_str(&past(reply, me, seed));
        }
        if replies.is_empty() {
            continue;
        }
        let part = format!("### Round {round}\n\n{replies}");
        let Some(left) = room.checked_sub(part.chars().count()) else {
            left_out = Some(round);
            break;
        };
        room = left;
        shown.push(part);
    }
    if shown.is_empty() {
        return;
    }
    text.push_str("## Earlier replies\n\n");
    if let Some(round) = left_out {
        let _ = writeln!(text, "Replies up to round {round} are left out.\n");
    }
    for part in shown.iter().rev() {
        text.push_str(part);
    }
}

/// A reply of an earlier round; nothing when it said nothing.
fn past(reply: &PastReply, me: &str, seed: &str) -> String {
    let said = plain(&reply.text);
    let said = votes::strip(votes::clean(&said));
    let said = said.trim();
    if said.is_empty() {
        return String::new();
    }
    let skip = said.chars().count().saturating_sub(REPLY_CHARS);
    let end: String = said.chars().skip(skip).collect();
    let you = if reply.name == me { " (you)" } else { "" };
    let part = if skip > 0 { ", the end of it" } else { "" };
    let vote = if reply.yes { "YES" } else { "NO" };
    let title = format!("{}{you}, round {}, voted {vote}{part}", line(&reply.name), reply.round);
    fence(&title, &end, seed) + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(history: &[PastReply]) -> String {
        let mut text = String::new();
        write(&mut text, history, "B", "k3y");
        text
    }

    fn said(round: u32, name: &str, text: &str) -> PastReply {
        PastReply { round, name: name.into(), yes: false, text: text.into() }
    }

    #[test]
    fn history_is_bounded_and_the_newest_rounds_stay() {
        let long = format!("start {}end", "é".repeat(5_000));
        let all = (1..=49).flat_map(|n| ["A", "B", "C"].map(|name| (n, name)));
        let history: Vec<PastReply> = all.map(|(n, name)| said(n, name, &format!("{long} {n}"))).collect();
        let text = shown(&history);
        assert!(text.chars().count() <= HISTORY_CHARS, "{}", text.chars().count());
        assert!(text.contains("\n\nReplies up to round 37 are left out.\n\n### Round 38\n"), "{}", &text[..200]);
        assert!(text.find("### Round 38\n") < text.find("### Round 49\n") && text.ends_with("end 49\nk3y>>>\n\n"));
        let (head, rest) = text.split("<<<").nth(1).unwrap().split_once('\n').unwrap();
        let body = rest.split_once("\nk3y>>>").unwrap().0;
        assert_eq!(head, "A, round 38, voted NO, the end of it k3y");
        assert_eq!((body.chars().count(), body.contains("start")), (REPLY_CHARS, false));
    }

    #[test]
    fn who_said_nothing_is_left_out() {
        assert_eq!(shown(&[said(1, "A", " \u{1b}[0m\n"), said(1, "C", "[Agent completed]\n[CONSENSUS: NO]")]), "");
        assert!(shown(&[said(1, "B", "I")]).contains("<<<B (you), round 1, voted NO k3y\nI\nk3y>>>\n"));
    }
}
