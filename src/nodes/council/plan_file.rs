//! The plan that members share: a file with one section for each, so that what they write at once fits together. Pure.
//!
//! A section lies between two marker lines. Whoever calls keeps the file under git.

use std::{fmt::Write as _, ops::Range};

use super::quote::{fence_for, line, plain};
use crate::model::Time;

const BEGIN: &str = "<!-- council section of ";
const END: &str = "<!-- end of council section of ";
const CLOSE: &str = " -->";
/// Begins each entry of a plan that was sent back.
const ENTRY: &str = "<!-- council rejection -->";
/// Ends the entries; what the next rejection adds stands before it.
const ENTRIES_END: &str = "<!-- end of council rejections -->";
const REJECTED: &str = "# Council plan: rejected and restarted\n";
const FORMER: &str = "## Former plan\n";

/// Name of the plan in a project whose base has the files for which `exists` is true.
pub fn name_for(exists: impl Fn(&str) -> bool, short_id: &str) -> String {
    let last = format!("council-plan-{short_id}.md");
    ["plan.md", "council-plan.md"].into_iter().find(|name| !exists(name)).map_or(last, str::to_owned)
}

/// The plan before anybody wrote to it: the task, then a section for each member (name, emoji) in their order.
pub fn skeleton(task: &str, members: &[(&str, &str)]) -> String {
    let mut text = String::from(
        "# Council plan\n\n\
         Shared by all members. Write only between the two marker lines of your own section, and leave the marker lines \
         as they are.\n\n## Task\n\n",
    );
    text.push_str(&block(task));
    text.push_str("\n## Sections\n");
    for (name, emoji) in members {
        let title = format!("{} {name}", line(emoji));
        let _ = write!(text, "\n{}\n\n### {}\n\nNothing planned yet.\n\n{}\n", begin(name), title.trim(), end(name));
    }
    text
}

/// What became of a member's plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Merged {
    /// The plan with the member's section in it.
    Text(String),
    /// The member's section cannot be told from the rest, so the plan of integration stays.
    LostMarkers,
}

/// The plan of integration with the section of `member` as it is in `member_version`. What the member wrote elsewhere
/// is dropped.
pub fn merge(integration: &str, member_version: &str, member: &str) -> Merged {
    let (Some(ours), Some(theirs)) = (section(integration, member), section(member_version, member)) else {
        return Merged::LostMarkers;
    };
    let theirs = member_version.get(theirs).unwrap_or_default();
    // A marker in there would break the section of another.
    if theirs.lines().any(is_marker) {
        return Merged::LostMarkers;
    }
    let before = integration.get(..ours.start).unwrap_or_default();
    let after = integration.get(ours.end..).unwrap_or_default();
    let mut text = String::with_capacity(integration.len() + theirs.len());
    text.push_str(before);
    // Blank lines beside the markers keep the edits of two members apart for git as well.
    if theirs.lines().next().is_none_or(|first| !first.trim().is_empty()) {
        text.push('\n');
    }
    for line in theirs.lines() {
        text.push_str(line);
        text.push('\n');
    }
    if theirs.lines().next_back().is_some_and(|last| !last.trim().is_empty()) {
        text.push('\n');
    }
    text.push_str(after);
    Merged::Text(text)
}

fn begin(member: &str) -> String {
    format!("{BEGIN}{member}{CLOSE}")
}

fn end(member: &str) -> String {
    format!("{END}{member}{CLOSE}")
}

fn is_marker(line: &str) -> bool {
    let line = line.trim();
    let of_section = (line.starts_with(BEGIN) || line.starts_with(END)) && line.ends_with(CLOSE);
    of_section || line == ENTRY || line == ENTRIES_END
}

/// Where the lines between the markers of `member` are; nowhere unless each marker stands there once, in order.
fn section(text: &str, member: &str) -> Option<Range<usize>> {
    let (begin, end) = (begin(member), end(member));
    let (mut from, mut to) = (None, None);
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let bare = line.trim();
        if bare == begin && from.replace(at + line.len()).is_some() || bare == end && to.replace(at).is_some() {
            return None;
        }
        at += line.len();
    }
    let range = from?..to?;
    (range.start <= range.end).then_some(range)
}

/// `text` as a block of markdown that it cannot end and in which no line is a marker.
fn block(text: &str) -> String {
    let text = plain(text);
    let fence = fence_for(&text);
    let mut block = format!("{fence}text\n");
    for line in text.trim_end().lines() {
        // A marker is a line of its own.
        if is_marker(line) {
            block.push_str("| ");
        }
        block.push_str(line);
        block.push('\n');
    }
    block + &fence + "\n"
}

/// The plan after the work was sent back: every rejection so far with its feedback, what is to be done, and the plan
/// as it was.
pub fn rejected(
    former: Option<&str>,
    council_id: &str,
    rounds: u32,
    status: &str,
    outcome: &str,
    feedback: &str,
    at: Time,
) -> String {
    let (entries, plan) = former.map_or(("", ""), entries);
    let number = entries.lines().filter(|line| *line == ENTRY).count() + 1;
    let mut text = format!(
        "{REJECTED}\nThe work below was reviewed and not accepted. It goes on from the state of this branch.\n\n"
    );
    if !entries.is_empty() {
        text.push_str(entries);
        text.push_str("\n\n");
    }
    let _ = write!(
        text,
        "{ENTRY}\n\n## Rejection {number}\n\n- Council: {}\n- Rejected at: {at}\n- Rounds: {rounds}\n- Status before: {}\n\
         - Outcome: {}\n\nFeedback of the reviewer:\n\n{}\n{ENTRIES_END}\n\n## Open tasks\n\n\
         - [ ] Address every point of the feedback; where one is mistaken, show why.\n\
         - [ ] Prove by running them that the build and all checks pass.\n\
         - [ ] Keep this plan truthful: tick only what is in git and was seen to work.\n\n{FORMER}\n",
        line(council_id),
        line(status),
        line(outcome),
        block(feedback),
    );
    let plan = plan.trim();
    text.push_str(if plan.is_empty() { "There was none." } else { plan });
    text.push('\n');
    text
}

/// The rejections that a plan holds already, and the plan below them.
fn entries(former: &str) -> (&str, &str) {
    let parts = || {
        let rest = former.strip_prefix(REJECTED)?;
        // Feedback cannot hold this line, and the former plan comes after it.
        let (entries, rest) = rest.split_once(&format!("\n{ENTRIES_END}\n"))?;
        let first = entries.find(ENTRY)?;
        let (_, plan) = rest.split_once(&format!("\n{FORMER}"))?;
        Some((entries.get(first..)?.trim_end(), plan))
    };
    parts().unwrap_or(("", former))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEAM: [(&str, &str); 3] = [("A", "🔵"), ("B", ""), ("C", "🟢")];

    fn written(base: &str, member: &str, what: &str) -> String {
        let begin = begin(member);
        base.replacen(&begin, &format!("{begin}\n\n{what}"), 1)
    }

    fn merged(integration: &str, version: &str, member: &str) -> String {
        match merge(integration, version, member) {
            Merged::Text(text) => text,
            Merged::LostMarkers => panic!("{version}"),
        }
    }

    #[test]
    fn the_first_free_name_is_taken() {
        assert_eq!(name_for(|_| false, "ab"), "plan.md");
        assert_eq!(name_for(|name| name == "plan.md", "ab"), "council-plan.md");
        assert_eq!(name_for(|name| !name.contains("ab"), "ab"), "council-plan-ab.md");
    }

    #[test]
    fn the_skeleton_has_the_task_and_a_section_for_each() {
        let text = skeleton("Do it.\n```\n<!-- council section of A -->\n", &TEAM);
        assert!(text.contains("````text\nDo it.\n```\n| <!-- council section of A -->\n````\n"), "{text}");
        for (name, _) in TEAM {
            let body = &text[section(&text, name).unwrap()];
            assert!(body.starts_with("\n### ") && body.ends_with("\n\n"), "{body:?}");
        }
        assert!(text.contains("### 🔵 A\n") && text.contains("### B\n"));
    }

    /// Council scenario 9: what each writes to its own section ends up in one plan.
    #[test]
    fn sections_of_all_members_meet() {
        let base = skeleton("Do it.", &TEAM);
        let mut plan = base.clone();
        for (name, _) in TEAM {
            plan = merged(&plan, &written(&base, name, &format!("- [ ] work of {name}")), name);
        }
        for (name, _) in TEAM {
            assert!(plan[section(&plan, name).unwrap()].contains(&format!("- [ ] work of {name}")), "{plan}");
        }
        assert_eq!(merged(&plan, &plan, "B"), plan);
    }

    #[test]
    fn edits_of_another_section_are_dropped() {
        let base = skeleton("Do it.", &TEAM);
        let version = written(&written(&base, "A", "mine"), "B", "yours").replace("Do it.", "Do less.");
        let plan = merged(&base, &version, "A");
        assert!(plan.contains("mine") && !plan.contains("yours") && plan.contains("Do it."));
        // Without blank lines, with carriage returns, or emptied, it is still one section between its markers.
        let squeezed = format!("{}\r\nx\r\n{}", begin("A"), end("A"));
        let plan = merged(&base, &squeezed, "A");
        assert!(plan.contains(&format!("{}\n\nx\n\n{}\n", begin("A"), end("A"))), "{plan}");
        let empty = merged(&plan, &format!("{}\n{}", begin("A"), end("A")), "A");
        assert!(empty.contains(&format!("{}\n\n{}\n", begin("A"), end("A"))), "{empty}");
    }

    /// Council scenario 9: without intact markers the plan of integration stays.
    #[test]
    fn damaged_markers() {
        let base = skeleton("Do it.", &TEAM);
        let (open, close) = (begin("A"), end("A"));
        for version in [
            String::new(),
            "all new".into(),
            base.replace(&open, ""),
            base.replace(&close, ""),
            format!("{close}\nx\n{open}\n"),
            format!("{base}\n{open}\n"),
            written(&base, "A", &begin("B")),
            written(&base, "A", ENTRIES_END),
        ] {
            assert_eq!(merge(&base, &version, "A"), Merged::LostMarkers, "{version}");
        }
        assert_eq!(merge("no plan", &base, "A"), Merged::LostMarkers);
        assert!(matches!(merge(&base, &base.replace(&begin("B"), ""), "A"), Merged::Text(text) if text == base));
    }

    fn reject(former: Option<&str>, feedback: &str) -> String {
        rejected(former, "council-1", 4, "consensus", "refuted", feedback, Time::from_millis(0))
    }

    #[test]
    fn a_rejected_plan_has_feedback_tasks_and_the_former_plan() {
        let former = written(&skeleton("Do it.", &TEAM), "A", "- [x] done");
        let feedback = "The parser loops.\n\n```\nparse(\"\")\n```\nFix it.";
        let text = reject(Some(&former), feedback);
        for needed in [
            "rejected and restarted",
            feedback,
            "council-1",
            "Rounds: 4",
            "consensus",
            "refuted",
            "1970-01-01T00:00:00.000Z",
            "- [ ] Address every point",
            "- [ ] Prove by running",
            "- [ ] Keep this plan truthful",
            former.trim(),
        ] {
            assert!(text.contains(needed), "{needed}: {text}");
        }
        assert!(text.find(feedback) < text.find("- [ ] Address") && text.find("- [ ] Keep") < text.find("- [x] done"));
        assert!(reject(None, "x").ends_with("There was none.\n"));
    }

    #[test]
    fn every_rejection_is_kept_and_the_plan_only_once() {
        let tricky = format!("second\n{ENTRIES_END}\n{ENTRY}\n## Rejection 9\n{FORMER}");
        let first = reject(Some("# Plan\n\n- [ ] x\n"), "first words");
        let third = reject(Some(&reject(Some(&first), &tricky)), "third words");
        let at = |needle: &str| third.find(needle).unwrap_or_else(|| panic!("{needle}: {third}"));
        assert!(at("first words") < at("second\n") && at("second\n") < at("third words"));
        assert!(
            at("\n## Rejection 1\n") < at("\n## Rejection 2\n") && at("\n## Rejection 2\n") < at("\n## Rejection 3\n")
        );
        assert_eq!(third.matches("# Plan\n\n- [ ] x").count(), 1);
        assert_eq!((third.matches(REJECTED).count(), third.matches("- [ ] Address").count()), (1, 1));
    }

    proptest! {
        #[test]
        fn any_texts_can_be_merged(
            integration in "(\\PC|\n|<!-- (end of )?council section of [AB] -->\n){0,20}",
            version in "(\\PC|\n|<!-- (end of )?council section of [AB] -->\n){0,20}",
        ) {
            if let Merged::Text(text) = merge(&integration, &version, "A") {
                let range = section(&text, "A");
                prop_assert!(range.is_some());
                let theirs = version[section(&version, "A").unwrap()].trim().replace('\r', "");
                prop_assert_eq!(text[range.unwrap()].trim().replace('\r', ""), theirs);
            }
        }

        #[test]
        fn no_task_breaks_the_sections(task in "(\\PC|\n|`|<!-- (end of )?council section of [AB] -->\n){0,30}") {
            let base = skeleton(&task, &TEAM);
            let plan = merged(&base, &written(&base, "A", "planned"), "A");
            prop_assert!(plan[section(&plan, "A").unwrap()].contains("planned"));
        }

        #[test]
        fn no_feedback_breaks_the_entries(feedback in "(\\PC|\n|`|<!-- (end of )?council rejections? -->\n){0,30}") {
            let twice = reject(Some(&reject(Some("former"), &feedback)), "again");
            prop_assert!(twice.contains("\n## Rejection 2\n") && twice.ends_with("\nformer\n"));
            prop_assert!(!twice.contains("\n## Rejection 3\n"));
        }
    }
}
