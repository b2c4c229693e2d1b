//! A council as people read it: the transcript, the closing summary, and the few lines that carry it on. Pure.
//!
//! Nothing parses these texts. What members wrote stands in blocks that it cannot end.

use std::fmt::Write as _;

use super::{
    data::{Disagreement, Merge, MergeStatus, VoteSource},
    disagreement,
    quote::{fence_for, line, plain},
    votes,
};
use crate::{model::Time, nodes::prompt::cut};

/// Bytes of one reply in a transcript.
pub const REPLY_MAX: usize = 1 << 20;
/// Bytes of all replies in a transcript; the newest are kept whole first.
pub const REPLIES_MAX: usize = 32 << 20;
/// Bytes of a reply when that is used up.
const SHORT_MAX: usize = 4_000;
/// Characters of a member's last reply in the summary.
pub const SUMMARY_CHARS: usize = 400;
/// Characters of a reply's line in the context.
pub const CONTEXT_CHARS: usize = 300;
/// Characters of the task in summary and context.
const TASK_CHARS: usize = 2_000;

/// What is written down of a council.
#[derive(Debug, Clone, Copy)]
pub struct Transcript<'a> {
    /// Its id.
    pub council_id: &'a str,
    /// The user's project.
    pub project_dir: &'a str,
    /// What it works on.
    pub task: &'a str,
    /// The word for its state.
    pub status: &'a str,
    /// What went wrong.
    pub error: Option<&'a str>,
    /// When it began.
    pub started: Time,
    /// When its rounds ended.
    pub ended: Option<Time>,
    /// Oldest first.
    pub rounds: &'a [Round<'a>],
    /// [`final_summary`], once there is one.
    pub summary: Option<&'a str>,
}

/// A round.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Round<'a> {
    /// From 1.
    pub round: u32,
    /// What the operator put in.
    pub injections: Vec<&'a str>,
    /// In the order of members.
    pub members: Vec<Member<'a>>,
    /// Absent while the round goes on.
    pub disagreement: Option<&'a Disagreement>,
}

/// A member's part of a round.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Member<'a> {
    /// Its name.
    pub name: &'a str,
    /// May be empty.
    pub emoji: &'a str,
    /// The whole reply, or as much of it as there is.
    pub reply: &'a str,
    /// Its vote.
    pub yes: bool,
    /// Where the vote was found.
    pub source: VoteSource,
    /// It said both in one line.
    pub ambiguous: bool,
    /// Its turn failed.
    pub error: Option<&'a str>,
    /// What became of its work; absent until it was merged.
    pub merge: Option<&'a Merge>,
}

/// The transcript in markdown.
pub fn render(t: &Transcript<'_>) -> String {
    let mut text =
        format!("# Council {}\n\n- Directory: {}\n- Started: {}\n", line(t.council_id), line(t.project_dir), t.started);
    if let Some(ended) = t.ended {
        let _ = writeln!(text, "- Ended: {ended}");
    }
    let _ = writeln!(text, "- Status: {}", line(t.status));
    if let Some(error) = t.error {
        let _ = writeln!(text, "- Error: {}", line(error));
    }
    text.push_str("\n## Task\n\n");
    block(&mut text, t.task, REPLY_MAX);
    let limits = limits(t.rounds);
    for (round, limits) in t.rounds.iter().zip(&limits) {
        let _ = writeln!(text, "\n## Round {}", round.round);
        for injection in &round.injections {
            text.push_str("\n### Message from the operator\n\n");
            block(&mut text, injection, REPLY_MAX);
        }
        for (member, limit) in round.members.iter().zip(limits) {
            part(&mut text, member, *limit);
        }
        if let Some(d) = round.disagreement {
            text.push_str("\n### After the round\n\n");
            block(&mut text, &disagreement::lines(d), REPLY_MAX);
        }
    }
    if let Some(summary) = t.summary {
        text.push_str("\n## Summary\n\n");
        block(&mut text, summary, REPLY_MAX);
    }
    text
}

/// How much of each reply there is room for.
fn limits(rounds: &[Round<'_>]) -> Vec<Vec<usize>> {
    let mut room = REPLIES_MAX;
    let mut limits: Vec<Vec<usize>> = Vec::with_capacity(rounds.len());
    for round in rounds.iter().rev() {
        let members = round.members.iter().map(|member| {
            let wanted = member.reply.len().min(REPLY_MAX);
            match room.checked_sub(wanted) {
                Some(left) => {
                    room = left;
                    REPLY_MAX
                }
                None => SHORT_MAX,
            }
        });
        limits.push(members.collect());
    }
    limits.reverse();
    limits
}

fn part(text: &mut String, member: &Member<'_>, limit: usize) {
    let title = format!("{} {}", line(member.emoji), line(member.name));
    let vote = if member.yes { "YES" } else { "NO" };
    let source = match (member.source, member.ambiguous) {
        (VoteSource::Strict, false) => "strict",
        (VoteSource::Strict | VoteSource::Variant | VoteSource::None, true) => "strict, both in one line",
        (VoteSource::Variant, false) => "variant",
        (VoteSource::None, false) => "none",
    };
    let _ = writeln!(text, "\n### {}\n\nVote: {vote} ({source})", title.trim());
    if let Some(error) = member.error {
        let _ = writeln!(text, "Error: {}", line(error));
    }
    if let Some(merge) = member.merge {
        let status = match merge.status {
            MergeStatus::Merged => "merged",
            MergeStatus::Nothing => "nothing to merge",
            MergeStatus::Conflict => "conflict",
            MergeStatus::Skipped => "skipped",
        };
        let _ = writeln!(text, "Merge: {status}");
        for file in &merge.files {
            let _ = writeln!(text, "- {}: {}", line(&file.path), line(&file.kind));
        }
    }
    text.push('\n');
    block(text, member.reply, limit);
}

/// At most `max` bytes of `words` in a block of markdown.
fn block(text: &mut String, words: &str, max: usize) {
    let (shown, over) = cut(words, max);
    let shown = plain(shown);
    let shown = shown.trim_end();
    if shown.is_empty() {
        text.push_str("(no text)\n");
        return;
    }
    let fence = fence_for(shown);
    let _ = write!(text, "{fence}text\n{shown}\n{fence}\n");
    if over {
        let _ = writeln!(text, "\n({} of {} bytes are shown)", cut(words, max).0.len(), words.len());
    }
}

/// A member's last reply.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LastReply<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its vote.
    pub yes: bool,
    /// Where the vote was found.
    pub source: VoteSource,
    /// The reply from its beginning.
    pub text: &'a str,
}

/// What a council came to: task, state, rounds, directory, and each member's last vote and the beginning of its last
/// reply.
pub fn final_summary(task: &str, status: &str, rounds: u32, project_dir: &str, members: &[LastReply<'_>]) -> String {
    let mut text = format!(
        "Task: {}\nStatus: {}\nRounds: {rounds}\nDirectory: {}\n",
        beginning(plain(task).trim(), TASK_CHARS),
        line(status),
        line(project_dir)
    );
    for member in members {
        let vote = match (member.source, member.yes) {
            (VoteSource::None, _) => "NO (did not vote)",
            (VoteSource::Strict | VoteSource::Variant, true) => "YES",
            (VoteSource::Strict | VoteSource::Variant, false) => "NO",
        };
        let _ = write!(text, "\n{}: {vote}\n", line(member.name));
        let said = said(member.text);
        if !said.is_empty() {
            let _ = writeln!(text, "{}", beginning(&said, SUMMARY_CHARS));
        }
    }
    text
}

/// A council in few lines, for whoever goes on with it: the replies of its last two rounds, each (round, name, text) in
/// one line.
pub fn compact_context(task: &str, round: u32, max_rounds: u32, status: &str, replies: &[(u32, &str, &str)]) -> String {
    let mut text = format!(
        "Task: {}\nRound: {round} / {max_rounds}\nStatus: {}\n",
        beginning(&line(task), TASK_CHARS),
        line(status)
    );
    let last = replies.iter().map(|(round, ..)| *round).max().unwrap_or(0);
    for (round, name, reply) in replies.iter().filter(|(round, ..)| *round + 1 >= last) {
        let row = format!("[{round}] {}: {}", line(name), line(&said(reply)));
        let _ = writeln!(text, "{}", beginning(row.trim_end(), CONTEXT_CHARS));
    }
    text
}

/// A reply without votes and control characters.
fn said(reply: &str) -> String {
    votes::strip(votes::clean(&plain(reply)))
}

/// At most `max` characters of `text`; a mark shows that there is more.
fn beginning(text: &str, max: usize) -> String {
    if text.chars().nth(max).is_none() {
        return text.to_owned();
    }
    let kept: String = text.chars().take(max.saturating_sub(1)).collect();
    kept + "…"
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::nodes::council::data::{ConflictFile, Votes};

    fn transcript<'a>(rounds: &'a [Round<'a>]) -> Transcript<'a> {
        Transcript {
            council_id: "council-m1-9f3c1a2b",
            project_dir: "/r/app",
            task: "Build it.",
            status: "max_rounds",
            error: None,
            started: Time::from_millis(0),
            ended: Some(Time::from_millis(60_000)),
            rounds,
            summary: Some("In short."),
        }
    }

    fn member<'a>(name: &'a str, reply: &'a str) -> Member<'a> {
        Member { name, reply, ..Member::default() }
    }

    #[test]
    fn everything_is_in_the_transcript() {
        let merge = Merge {
            status: MergeStatus::Conflict,
            files: vec![ConflictFile { path: "x.txt".into(), kind: "content".into() }],
        };
        let d = Disagreement { votes: Votes { yes: vec!["A".into()], ..Votes::default() }, ..Disagreement::default() };
        let a = Member {
            emoji: "🔵",
            yes: true,
            source: VoteSource::Strict,
            merge: Some(&merge),
            ..member("A", "Done.\n[CONSENSUS: YES]")
        };
        let b = Member { error: Some("engine exited"), ..member("B", "") };
        let rounds = [Round { round: 2, injections: vec!["hurry"], members: vec![a, b], disagreement: Some(&d) }];
        let text = render(&transcript(&rounds));
        let mut from = 0;
        for needed in "# Council council-m1-9f3c1a2b|/r/app|Started: 1970-01-01T00:00:00.000Z|\
            Ended: 1970-01-01T00:01:00.000Z|Status: max_rounds|Build it.|## Round 2|hurry|### 🔵 A|\
            Vote: YES (strict)|Merge: conflict|- x.txt: content|Done.\n[CONSENSUS: YES]|### B|Vote: NO (none)|\
            Error: engine exited|(no text)|YES: A|## Summary|In short."
            .split('|')
        {
            let at = text[from..].find(needed).unwrap_or_else(|| panic!("{needed}: {text}"));
            from += at + needed.len();
        }
    }

    /// Council scenario 33: a huge reply is cut, and many of them are bounded together.
    #[test]
    fn replies_are_bounded() {
        let huge = "é".repeat(REPLY_MAX);
        let one = [Round { round: 1, members: vec![member("A", &huge)], ..Round::default() }];
        let text = render(&transcript(&one));
        assert!(text.len() < REPLY_MAX + 1_000 && text.contains("(1048576 of 2097152 bytes are shown)"));
        let rounds: Vec<Round<'_>> =
            (1..=5).map(|round| Round { round, members: vec![member("A", &huge); 16], ..Round::default() }).collect();
        let limits = limits(&rounds);
        assert_eq!(
            (limits[0][0], limits[2][15], limits[3][0], limits[4][15]),
            (SHORT_MAX, SHORT_MAX, REPLY_MAX, REPLY_MAX)
        );
    }

    #[test]
    fn the_summary_has_each_members_last_word() {
        let long = format!("[Agent completed]\n[CONSENSUS: YES]\n{}", "w".repeat(1_000));
        let members = [
            LastReply { name: "A", yes: true, source: VoteSource::Strict, text: &long },
            LastReply { name: "B", text: "\u{1b}[1mhm", ..LastReply::default() },
        ];
        let text = final_summary("Build it.", "consensus", 4, "/r/app", &members);
        let start = "Task: Build it.\nStatus: consensus\nRounds: 4\nDirectory: /r/app\n\nA: YES\nwww";
        assert!(text.starts_with(start), "{text}");
        assert!(text.ends_with("…\n\nB: NO (did not vote)\nhm\n") && text.matches('w').count() == SUMMARY_CHARS - 1);
        assert!(!text.contains("CONSENSUS"));
    }

    #[test]
    fn the_context_has_the_last_two_rounds_in_lines() {
        let long = "long ".repeat(100);
        let replies =
            [(1, "A", "first"), (2, "A", "second\n\nline\n[consensus：no]"), (3, "A", long.as_str()), (3, "B", "")];
        let text = compact_context("Build\nit.", 3, 15, "running", &replies);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[..4], ["Task: Build it.", "Round: 3 / 15", "Status: running", "[2] A: second line"]);
        assert_eq!((lines[4].chars().count(), lines[5], lines.len()), (CONTEXT_CHARS, "[3] B:", 6));
    }

    proptest! {
        #[test]
        fn no_reply_ends_its_block(reply in "(\\PC|\n|`|``|\u{1b}|\r){0,40}") {
            let mut text = String::new();
            block(&mut text, &reply, REPLY_MAX);
            if text != "(no text)\n" {
                let fence = text.split("text\n").next().unwrap().to_owned();
                prop_assert!(fence.len() >= 3 && fence.bytes().all(|b| b == b'`'));
                prop_assert_eq!(text.matches(&fence).count(), 2);
            }
        }
    }
}
