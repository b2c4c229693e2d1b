//! Cutting a council's view to a size, the latest round last.

use serde::Serialize;

use super::{CouncilView, last_chars};

/// Characters kept of a task that is cut.
const TASK: usize = 1_000;
/// Characters kept of a role that is cut.
const ROLE: usize = 200;
/// Characters kept of other texts that are cut.
const TEXT: usize = 500;
/// Files of a disagreement and conflicts kept when there are too many.
const FILES: usize = 20;
/// Members named and files listed in one place.
const PLACES: usize = 10;

/// Bytes on the wire.
fn size(view: &CouncilView) -> usize {
    struct Count(usize);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    match view.serialize(&mut serde_json::Serializer::new(&mut count)) {
        Ok(()) => count.0,
        Err(_) => usize::MAX,
    }
}

/// Cuts until the view has at most `max` bytes: settings and summaries first, then older replies, then the latest ones.
pub fn fit(view: &mut CouncilView, max: usize) {
    if size(view) <= max {
        return;
    }
    let latest = view.responses.iter().map(|response| response.round).max().unwrap_or(0);
    settings(view);
    for kept in [1_000, 300, 0] {
        if size(view) > max {
            replies(view, kept, |round| round < latest);
        }
    }
    if size(view) > max {
        lists(view);
    }
    // What is left of many rounds is their frame.
    while size(view) > max && view.responses.iter().any(|response| response.round < latest) {
        let older = view.responses.iter().filter(|response| response.round < latest).count();
        view.responses.drain(..older.div_ceil(2));
        note(view, "older replies: call council_status with round");
    }
    while size(view) > max && view.consensus_votes.len() > view.config.agents.len() {
        let older = view.consensus_votes.len() - view.config.agents.len();
        view.consensus_votes.drain(..older.div_ceil(2));
        note(view, "older votes: read the run's record");
    }
    for kept in [2_000, 1_000, 300, 0] {
        if size(view) > max {
            replies(view, kept, |_| true);
        }
    }
}

fn note(view: &mut CouncilView, what: &str) {
    if !view.truncated.iter().any(|known| known == what) {
        view.truncated.push(what.to_owned());
    }
}

/// The beginning of a text; whether something was cut.
fn head(text: &mut String, max: usize) -> bool {
    let Some((end, _)) = text.char_indices().nth(max) else { return false };
    text.truncate(end);
    text.push('…');
    true
}

fn settings(view: &mut CouncilView) {
    let mut any = head(&mut view.task, TASK);
    for agent in &mut view.config.agents {
        for text in [&mut agent.persona, &mut agent.prompt].into_iter().flatten() {
            any |= head(text, ROLE);
        }
        for text in [&mut agent.engine, &mut agent.model, &mut agent.acp_agent].into_iter().flatten() {
            any |= head(text, ROLE);
        }
    }
    for text in [&mut view.error, &mut view.final_summary, &mut view.compact_context].into_iter().flatten() {
        any |= head(text, 6 * TEXT);
    }
    if any {
        note(view, "task, roles and summaries: read the run's record, or call with full");
    }
}

fn replies(view: &mut CouncilView, kept: usize, which: impl Fn(u32) -> bool) {
    for response in view.responses.iter_mut().filter(|response| which(response.round)) {
        let shorter = last_chars(&response.content, kept);
        if shorter.len() < response.content.len() {
            response.content = shorter.to_owned();
            response.truncated = true;
        }
        if let Some(error) = &mut response.error {
            head(error, TEXT);
        }
        response.planning_violations.truncate(PLACES);
        if let Some(merge) = &mut response.merge {
            merge.files.truncate(PLACES);
        }
    }
    note(view, "replies: call council_status with round and full");
}

fn lists(view: &mut CouncilView) {
    if let Some(disagreement) = &mut view.disagreement
        && disagreement.files.len() > FILES
    {
        disagreement.files.truncate(FILES);
        disagreement.truncated = true;
    }
    view.conflicts.truncate(FILES);
    for conflict in &mut view.conflicts {
        conflict.files.truncate(PLACES);
    }
    for injection in view.pending_injections.iter_mut().chain(&mut view.undelivered_injections) {
        head(&mut injection.message, TEXT);
    }
    view.warnings.truncate(FILES);
    for warning in &mut view.warnings {
        head(warning, TEXT);
    }
    note(view, "conflicts and messages: call council_review, or read the run's record");
}
