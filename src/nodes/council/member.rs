//! A member's turn in a round: its prompt, a second and third try when it says nothing, two questions for the report
//! when it says too little.

use std::{sync::Arc, time::Duration};

use super::{
    collect,
    data::{Reply, TAIL_CHARS},
    fault::Fault,
    prompt::{EMPTY_AGAIN, FOLLOW_UP},
    session::{Said, Talk},
    shared::Shared,
    votes,
};

/// Times an empty answer is asked for again.
const RETRIES: u32 = 2;
/// Times the report is asked for.
const FOLLOW_UPS: u32 = 2;
/// Limit of such a question.
const FOLLOW_UP_LIMIT: Duration = Duration::from_secs(60);
/// Pause before another send.
const PAUSE: Duration = Duration::from_secs(5);
/// Characters from which an answer counts as a report.
const REPORT_CHARS: usize = 100;

/// What a member's turn begins with.
#[derive(Debug)]
pub(super) struct Seating {
    /// Place in the order of members.
    pub(super) index: usize,
    /// From 1.
    pub(super) round: u32,
    /// Name of its session.
    pub(super) session: String,
    /// What it is told.
    pub(super) prompt: String,
    /// What it is.
    pub(super) charter: String,
    /// US dollars it has spent before.
    pub(super) spent: f64,
    /// Commit its branch is at.
    pub(super) commit: String,
    /// Where work of a turn is that was cut off.
    pub(super) salvage: Option<String>,
}

/// What came of it.
#[derive(Debug)]
pub(super) struct Turned {
    /// Its reply and the whole text; absent when it was stopped.
    pub(super) reply: Option<(Reply, String)>,
    /// The council cannot go on.
    pub(super) fault: Option<Fault>,
    /// Processes that could not be ended.
    pub(super) unkillable: Vec<String>,
}

/// Takes the turn. When it returns, the member's processes have ended and its work is on its branch.
pub(super) async fn take(shared: Arc<Shared>, seating: Seating) -> Turned {
    let mut turned = Turned { reply: None, fault: None, unkillable: Vec::new() };
    let Some(agent) = shared.node.agents.get(seating.index) else { return turned };
    let clock = &shared.ctx.services.clock;
    let begun = clock.boot();
    shared.log("info", format!("agent-start: round {}, {}", seating.round, agent.name));
    let mut talk = Talk::new(&shared, agent, &seating.session, &seating.charter, seating.spent);
    let spoken = speak(&shared, &mut talk, &seating.prompt).await;
    talk.close().await;
    turned.unkillable = std::mem::take(&mut talk.unkillable);
    if shared.cancel.is_cancelled() {
        return turned;
    }
    let Some(spoken) = spoken else { return turned };
    let message = format!("council(round-{}): {} - uncommitted work", seating.round, agent.name);
    let work = collect::collect(&shared, &agent.name, seating.round, &seating.commit, &message).await;
    let work = match work {
        Ok(work) => work,
        Err(fault) => {
            turned.fault = Some(fault);
            return turned;
        }
    };
    let (text, error) = match spoken.error {
        Some(why) => (format!("Error: {why}"), Some(why)),
        None => (spoken.text, None),
    };
    let vote = if error.is_some() { votes::Vote::default() } else { votes::read(&text) };
    let (tail, truncated) = tail(&text);
    let mut notes = work.notes;
    notes.extend(seating.salvage.iter().map(|kept| format!("What your cut-off turn had done is kept as {kept}.")));
    let took = clock.boot().saturating_sub(begun);
    turned.reply = Some((
        Reply {
            round: seating.round,
            agent: agent.name.clone(),
            tail,
            truncated,
            consensus: vote.yes,
            consensus_source: vote.source,
            ambiguous: vote.ambiguous,
            error,
            session_key: if talk.opened { seating.session.clone() } else { String::new() },
            timestamp: shared.ctx.now(),
            empty_retries: spoken.retries,
            follow_ups: spoken.follow_ups,
            duration_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            cost_usd: talk.cost,
            commit: work.commit,
            auto_committed: work.auto_committed,
            salvage_ref: work.salvage_ref.or(seating.salvage),
            notes,
        },
        text,
    ));
    turned
}

/// What a member said in all.
#[derive(Debug, Default)]
struct Spoken {
    text: String,
    error: Option<String>,
    retries: u32,
    follow_ups: u32,
}

/// All sends of a turn; nothing when it was stopped.
async fn speak(shared: &Shared, talk: &mut Talk<'_>, prompt: &str) -> Option<Spoken> {
    let limit = Duration::from_millis(shared.node.agent_timeout_ms);
    let mut spoken = Spoken::default();
    let mut message = prompt;
    loop {
        match talk.say(message, limit).await {
            Said::Stopped => return None,
            Said::Failed(why) => {
                spoken.error = Some(why);
                return Some(spoken);
            }
            Said::Text(text) => spoken.text = text,
        }
        if !votes::clean(&spoken.text).is_empty() || spoken.retries == RETRIES {
            break;
        }
        pause(shared).await?;
        spoken.retries += 1;
        message = if talk.alive() { EMPTY_AGAIN } else { prompt };
    }
    while spoken.follow_ups < FOLLOW_UPS && is_short(&spoken.text) {
        pause(shared).await?;
        spoken.follow_ups += 1;
        // A session that died takes the whole prompt along.
        let whole = format!("{prompt}\n{FOLLOW_UP}");
        let message = if talk.alive() { FOLLOW_UP } else { whole.as_str() };
        match talk.say(message, FOLLOW_UP_LIMIT).await {
            Said::Stopped => return None,
            Said::Failed(why) => {
                shared.log("warn", format!("a question for the report failed: {why}"));
                break;
            }
            Said::Text(text) if votes::clean(&text).is_empty() => {}
            Said::Text(text) => spoken.text = text,
        }
    }
    Some(spoken)
}

/// Whether an answer is no report and holds no vote.
fn is_short(text: &str) -> bool {
    votes::clean(text).chars().take(REPORT_CHARS).count() < REPORT_CHARS && !votes::has_marker(text)
}

/// Waits a moment; nothing when stopped meanwhile.
async fn pause(shared: &Shared) -> Option<()> {
    tokio::select! {
        () = shared.cancel.cancelled() => None,
        () = tokio::time::sleep(PAUSE) => Some(()),
    }
}

/// The end of a text, and whether there is more.
pub(super) fn tail(text: &str) -> (String, bool) {
    let skip = text.char_indices().rev().nth(TAIL_CHARS).map(|(at, c)| at + c.len_utf8());
    match skip {
        Some(at) => (text.get(at..).unwrap_or_default().to_owned(), true),
        None => (text.to_owned(), false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_reply_is_kept_in_place() {
        let long = format!("start{}", "é".repeat(TAIL_CHARS));
        let (end, more) = tail(&long);
        assert_eq!((end.chars().count(), end.starts_with('é'), more), (TAIL_CHARS, true, true));
        assert_eq!(tail(&long[5..]), (long[5..].to_owned(), false));
    }

    /// Council scenarios 11 and 12: who is asked for a report.
    #[test]
    fn short_answers_without_a_vote_are_asked_about() {
        assert!(is_short("done") && is_short("") && is_short(&format!("[Agent completed x]\n{}", "a".repeat(99))));
        for long in ["done [CONSENSUS: NO]", "**Consensus**: yes", &"a".repeat(100), &"b".repeat(40_000)] {
            assert!(!is_short(long), "{long}");
        }
    }
}
