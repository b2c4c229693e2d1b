//! What the members agree and disagree on after a round, from their votes and the files they changed. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use super::{
    data::{Disagreement, MemberChange, SharedFile, SharedKind, VoteSource, Votes},
    quote::line,
};

/// Files listed at most.
pub const FILES_MAX: usize = 200;
/// Lines shown at most.
pub const LINES_MAX: usize = 40;
/// Characters of a line.
const LINE_CHARS: usize = 240;

/// A file that a member changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed {
    /// Relative to the top of the repository.
    pub path: String,
    /// `added modified deleted renamed`.
    pub change: &'static str,
    /// Lines.
    pub insertions: u64,
    /// Lines.
    pub deletions: u64,
    /// The file's object; absent when it was deleted.
    pub blob: Option<String>,
}

/// The summary of a round: `votes` and `changes` by member, `conflicts` the paths of merges that failed.
///
/// A file is listed when two members changed it; one in conflict always, since the other side of a conflict may be
/// older than the round. Who did not say is neither for nor against.
pub fn of(
    round: u32,
    votes: &[(String, bool, VoteSource)],
    changes: &[(String, Vec<Changed>)],
    conflicts: &BTreeSet<String>,
) -> Disagreement {
    let mut by_vote = Votes::default();
    for (member, yes, source) in votes {
        let list = match (source, yes) {
            (VoteSource::None, _) => &mut by_vote.none,
            (VoteSource::Strict | VoteSource::Variant, true) => &mut by_vote.yes,
            (VoteSource::Strict | VoteSource::Variant, false) => &mut by_vote.no,
        };
        list.push(member.clone());
    }
    let mut by_path: BTreeMap<&str, Vec<(&str, &Changed)>> =
        conflicts.iter().map(|path| (path.as_str(), Vec::new())).collect();
    for (member, files) in changes {
        for file in files {
            let members = by_path.entry(&file.path).or_default();
            if members.iter().all(|(known, _)| known != member) {
                members.push((member, file));
            }
        }
    }
    let mut files: Vec<SharedFile> = by_path
        .into_iter()
        .filter_map(|(path, members)| {
            let kind = if conflicts.contains(path) {
                SharedKind::Conflict
            } else if members.len() < 2 {
                return None;
            } else if members.iter().all(|(_, file)| Some(&file.blob) == members.first().map(|(_, first)| &first.blob))
            {
                SharedKind::Identical
            } else {
                SharedKind::Divergent
            };
            let members = members.into_iter().map(|(member, file)| change(member, file)).collect();
            Some(SharedFile { path: path.to_owned(), kind, members })
        })
        .collect();
    files.sort_by(|a, b| (a.kind, &a.path).cmp(&(b.kind, &b.path)));
    let files_total = files.len();
    files.truncate(FILES_MAX);
    let split = !by_vote.yes.is_empty() && !by_vote.no.is_empty();
    Disagreement { round, votes: by_vote, split, files, files_total, truncated: files_total > FILES_MAX }
}

fn change(member: &str, file: &Changed) -> MemberChange {
    MemberChange {
        member: member.to_owned(),
        change: file.change.to_owned(),
        insertions: file.insertions,
        deletions: file.deletions,
        blob: file.blob.clone(),
    }
}

/// The summary for a reader, in at most [`LINES_MAX`] lines.
pub fn lines(d: &Disagreement) -> String {
    let names = |names: &[String]| if names.is_empty() { "nobody".to_owned() } else { names.join(", ") };
    let mut lines = vec![
        format!("Votes of round {}: {}", d.round, if d.split { "split" } else { "not split" }),
        format!("YES: {}", names(&d.votes.yes)),
        format!("NO: {}", names(&d.votes.no)),
    ];
    if !d.votes.none.is_empty() {
        lines.push(format!("no vote: {}", names(&d.votes.none)));
    }
    if d.files_total > 0 {
        lines.push(format!("Files that several members changed, or that are in conflict: {}", d.files_total));
    }
    // The last line is for what does not fit.
    let room = LINES_MAX - 1 - lines.len();
    let shown = if d.files_total <= room + 1 { d.files_total } else { room };
    for file in d.files.iter().take(shown) {
        let kind = match file.kind {
            SharedKind::Conflict => "conflict",
            SharedKind::Divergent => "divergent",
            SharedKind::Identical => "identical",
        };
        let mut text = format!("{kind} {}", line(&file.path));
        for (at, member) in file.members.iter().enumerate() {
            let sign = if at == 0 { ": " } else { ", " };
            let MemberChange { member, change, insertions, deletions, blob: _ } = member;
            let _ = write!(text, "{sign}{member} {change} +{insertions} -{deletions}");
        }
        lines.push(text);
    }
    let listed = d.files.len().min(shown);
    if listed < d.files_total {
        lines.push(format!("and {} more", d.files_total - listed));
    }
    let mut text = String::new();
    for line in lines {
        match line.char_indices().nth(LINE_CHARS) {
            Some((end, _)) => text.extend([line.get(..end).unwrap_or_default(), "…\n"]),
            None => text.extend([line.as_str(), "\n"]),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(path: &str, change: &'static str, blob: Option<&str>) -> Changed {
        Changed { path: path.into(), change, insertions: 3, deletions: 1, blob: blob.map(str::to_owned) }
    }

    fn vote(member: &str, yes: bool, source: VoteSource) -> (String, bool, VoteSource) {
        (member.into(), yes, source)
    }

    #[test]
    fn votes_and_files_are_sorted_out() {
        let changes = [
            (
                "A".to_owned(),
                vec![
                    changed("same", "added", Some("1")),
                    changed("gone", "deleted", None),
                    changed("z", "modified", Some("2")),
                    changed("half", "deleted", None),
                    changed("alone", "added", Some("9")),
                ],
            ),
            (
                "B".to_owned(),
                vec![
                    changed("same", "added", Some("1")),
                    changed("gone", "deleted", None),
                    changed("z", "modified", Some("3")),
                    changed("half", "modified", Some("4")),
                    changed("x.txt", "modified", Some("5")),
                ],
            ),
        ];
        let votes = [
            vote("A", true, VoteSource::Strict),
            vote("B", false, VoteSource::Variant),
            vote("C", false, VoteSource::None),
        ];
        let conflicts = BTreeSet::from(["x.txt".to_owned()]);
        let d = of(3, &votes, &changes, &conflicts);
        assert_eq!((d.round, d.split, d.files_total, d.truncated), (3, true, 5, false));
        assert_eq!((d.votes.yes.len(), d.votes.no.len(), d.votes.none.len()), (1, 1, 1));
        let files: Vec<_> = d.files.iter().map(|file| (file.path.as_str(), file.kind, file.members.len())).collect();
        // Council scenario 8: a conflict stays listed when only one side of it is from this round.
        assert_eq!(
            files,
            [
                ("x.txt", SharedKind::Conflict, 1),
                ("half", SharedKind::Divergent, 2),
                ("z", SharedKind::Divergent, 2),
                ("gone", SharedKind::Identical, 2),
                ("same", SharedKind::Identical, 2),
            ]
        );
        let shown = lines(&d);
        for line in [
            "YES: A\n",
            "NO: B\n",
            "no vote: C\n",
            "conflict x.txt: B modified +3 -1\n",
            "half: A deleted +3 -1, B modified",
        ] {
            assert!(shown.contains(line), "{line}: {shown}");
        }
    }

    #[test]
    fn silence_does_not_split() {
        let votes = [vote("A", true, VoteSource::Strict), vote("B", false, VoteSource::None)];
        assert!(!of(1, &votes, &[], &BTreeSet::new()).split);
    }

    #[test]
    fn lists_are_bounded() {
        let many = |count: usize, blob: &str| -> Vec<Changed> {
            (0..count).map(|n| changed(&format!("f{n:04}\n{}", "x".repeat(400)), "added", Some(blob))).collect()
        };
        for (count, rows) in [(0, 3), (1, 5), (36, 40), (37, 40), (1_000, 40)] {
            let d = of(2, &[], &[("A".into(), many(count, "1")), ("B".into(), many(count, "2"))], &BTreeSet::new());
            assert_eq!((d.files.len(), d.files_total, d.truncated), (count.min(200), count, count > 200));
            let shown = lines(&d);
            assert_eq!(shown.lines().count(), rows, "{count}");
            assert_eq!(shown.contains("more\n"), count > 36, "{count}");
            assert!(shown.lines().all(|line| line.chars().count() <= LINE_CHARS + 1));
        }
    }
}
