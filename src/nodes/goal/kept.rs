//! What a goal node keeps in its data, over attempts, visits and restarts; and what it makes of it.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::{
    engines::{GoalEnd, GoalStatus, GoalView, KnownGoal},
    model::{
        Time,
        run::{GoalState, Spend},
        spec::{GoalNode, OBJECTIVE_MAX},
    },
    nodes::{Attempt, NodeCtx, Report, prompt},
};

/// Key of the goal in the node's data; it outlives a visit.
pub const GOAL_DATA: &str = "goal";
/// Longest text kept of an agent's last words, in characters.
const WORDS_MAX: usize = 4000;
/// Longest error kept, in bytes.
const ERROR_MAX: usize = 1000;
/// Longest wait before a try, in milliseconds.
const BACKOFF_MAX_MS: u64 = 15 * 60_000;
/// Added to a stated reset, because clocks differ.
const RESET_MARGIN_MS: i64 = 1500;
/// Least room for what failed in a new objective, in characters; a long objective gives way to it.
const BRIEF_MIN: usize = 800;

/// Everything that is kept.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Kept {
    thread_id: String,
    objective: String,
    status: GoalStatus,
    tokens_used: u64,
    time_used_seconds: u64,
    resumes: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_message: Option<String>,
    cost_usd: f64,
    /// Visit the goal was set in, and attempts of it that had failed then.
    set_in: Option<(u32, u32)>,
    /// Red words that were in force then.
    red: Vec<String>,
    /// Tries after stalls, over all visits.
    stalls: u32,
    /// A wait before the next try.
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<Time>,
    /// How long it was to be, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    asked_ms: Option<u64>,
    /// Why the goal ended, once it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    ended: Option<Final>,
}

/// How a goal ended, on the record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Final {
    /// It is reached.
    Complete,
    /// The reason why it is not.
    Failed(String),
}

/// What is to be done with the conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Begin {
    /// Nothing: the goal ended before.
    Ended(Final),
    /// Set this objective, whatever goal there is.
    Set(String),
    /// Go on with the goal there is.
    GoOn,
}

impl Kept {
    /// What earlier attempts and visits left; a new node begins on the conversation its spec names.
    pub(super) fn of(attempt: &Attempt, node: &GoalNode) -> Self {
        let kept = attempt.parts.get(GOAL_DATA).and_then(|(data, _)| serde_json::from_value::<Self>(data.clone()).ok());
        kept.unwrap_or_else(|| Self { thread_id: node.thread_id.clone().unwrap_or_default(), ..Self::default() })
    }

    /// What this attempt begins with.
    pub(super) fn begin(&self, attempt: &Attempt, node: &GoalNode, marker: &str) -> Begin {
        let Some(set_in) = self.set_in else { return Begin::Set(objective(attempt, node, marker)) };
        let same = set_in == (attempt.visit, attempt.failures);
        let new_red = !attempt.red_marks.is_empty() && attempt.red_marks != self.red;
        match &self.ended {
            Some(end) if same => Begin::Ended(end.clone()),
            // It was set again after the word, or before any.
            None if same || !new_red => Begin::GoOn,
            Some(_) | None => Begin::Set(objective(attempt, node, marker)),
        }
    }

    /// Whether a conversation is known.
    pub(super) fn thread(&self) -> Option<&String> {
        Some(&self.thread_id).filter(|id| !id.is_empty())
    }

    /// What the engine is told of the goal it had.
    pub(super) fn known(&self, node: &GoalNode) -> KnownGoal {
        KnownGoal {
            objective: self.objective.clone(),
            token_budget: Some(node.token_budget),
            tokens_used: self.tokens_used,
            time_used_seconds: self.time_used_seconds,
        }
    }

    /// An engine process goes on with it.
    pub(super) fn resumed(&mut self) {
        self.resumes = self.resumes.saturating_add(1);
    }

    /// This attempt goes on with it, so that its end is this attempt's.
    pub(super) fn taken_up(&mut self, attempt: &Attempt) {
        self.set_in = Some((attempt.visit, attempt.failures));
    }

    /// The engine took a new objective.
    pub(super) fn set(&mut self, attempt: &Attempt, objective: &str) {
        objective.clone_into(&mut self.objective);
        self.set_in = Some((attempt.visit, attempt.failures));
        self.red.clone_from(&attempt.red_marks);
        self.ended = None;
        self.status = GoalStatus::Active;
    }

    /// Takes news in; whether it must be on the record at once.
    pub(super) fn news(&mut self, view: &GoalView) -> bool {
        let moved = self.status != view.status || (self.thread_id.is_empty() && !view.thread_id.is_empty());
        if self.thread_id.is_empty() {
            self.thread_id.clone_from(&view.thread_id);
        }
        self.status = view.status;
        self.tokens_used = view.tokens_used;
        self.time_used_seconds = view.time_used_seconds;
        if let Some(words) = &view.last_message {
            self.last_message = Some(words.chars().take(WORDS_MAX).collect());
        }
        if let Some(error) = &view.last_error {
            self.last_error = Some(prompt::cut(error, ERROR_MAX).0.to_owned());
        }
        moved
    }

    /// The other conversation that news came from, when there is one.
    pub(super) fn foreign<'a>(&self, id: &'a str) -> Option<&'a str> {
        (!self.thread_id.is_empty() && !id.is_empty() && id != self.thread_id).then_some(id)
    }

    /// What was used.
    pub(super) fn spent(&mut self, spend: &Spend) {
        self.cost_usd += spend.cost_usd;
    }

    /// The goal has ended like this; `None` when it has not.
    pub(super) fn end(&mut self, end: &GoalEnd, node: &GoalNode) -> Option<Final> {
        let ended = match end {
            GoalEnd::Complete => Final::Complete,
            GoalEnd::Blocked(why) => Final::Failed(format!("the goal is blocked: {why}")),
            GoalEnd::BudgetLimited => {
                let (used, budget) = (self.tokens_used, node.token_budget);
                Final::Failed(format!("the goal is budgetLimited: it used {used} of {budget} tokens"))
            }
            GoalEnd::Stalled(_) | GoalEnd::Interrupted | GoalEnd::Failed(_) => return None,
        };
        self.ended = Some(ended.clone());
        Some(ended)
    }

    /// Counts a try after a stall and says when it is due; `None` when there were enough.
    pub(super) fn stalled(&mut self, why: &str, reset: Option<Time>, now: Time, node: &GoalNode) -> Option<()> {
        self.last_error = Some(prompt::cut(why, ERROR_MAX).0.to_owned());
        if self.stalls >= node.capacity_retry.max {
            return None;
        }
        let wait = node.capacity_retry.backoff_ms.saturating_mul(1 << self.stalls.min(40)).min(BACKOFF_MAX_MS);
        self.stalls += 1;
        let due = now.plus_millis(i64::try_from(wait).unwrap_or(i64::MAX));
        let due = reset.map_or(due, |at| at.plus_millis(RESET_MARGIN_MS).max(due));
        self.until = Some(due);
        self.asked_ms = u64::try_from(due.millis().saturating_sub(now.millis())).ok();
        Some(())
    }

    /// The wait that is under way: its end, and how long it was to be.
    pub(super) fn wait(&self) -> Option<(Time, Option<u64>)> {
        self.until.map(|until| (until, self.asked_ms))
    }

    /// The wait is over.
    pub(super) fn waited(&mut self) {
        (self.until, self.asked_ms) = (None, None);
    }

    /// Tries after stalls so far.
    pub(super) fn stalls(&self) -> u32 {
        self.stalls
    }

    /// The latest failure in words.
    pub(super) fn last_error(&self) -> &str {
        self.last_error.as_deref().unwrap_or("no reason given")
    }

    /// The agent's latest words.
    pub(super) fn last_message(&self) -> Option<&String> {
        self.last_message.as_ref()
    }

    /// As the node's data.
    pub(super) fn data(&self) -> Value {
        json!(self)
    }

    /// Puts it on the record.
    pub(super) async fn checkpoint(&self, ctx: &NodeCtx) {
        ctx.report.send(Report::Part { key: GOAL_DATA.to_owned(), data: self.data(), text: None }).await;
    }

    /// Puts it on the record and waits until it is there; false when it will not be.
    pub(super) async fn recorded(&self, ctx: &NodeCtx) -> bool {
        self.checkpoint(ctx).await;
        let (done, recorded) = oneshot::channel();
        ctx.report.send(Report::Recorded(done)).await;
        recorded.await.is_ok()
    }
}

/// The goal of a node as callers see it.
pub fn shown(data: Option<&Value>) -> Option<GoalState> {
    serde_json::from_value(data?.get(GOAL_DATA)?.clone()).ok()
}

/// The objective of this attempt: what failed before the node's own, within what an engine takes.
fn objective(attempt: &Attempt, node: &GoalNode, marker: &str) -> String {
    if attempt.red.is_empty() {
        return node.objective.clone();
    }
    let length = |text: &str| text.chars().count();
    let start = |text: &str, max: usize| text.chars().take(max).collect::<String>();
    let head = prompt::GOAL_REPAIR.trim();
    let frame = format!("{head}\n\n<<<failed {marker}\n\n{marker}>>>\n\n## Goal\n\n");
    let free = OBJECTIVE_MAX.saturating_sub(length(&frame));
    let own = start(node.objective.trim(), free.saturating_sub(BRIEF_MIN));
    let facts = prompt::failures(&attempt.red, free.saturating_sub(length(&own)), marker);
    format!("{head}\n\n<<<failed {marker}\n{facts}\n{marker}>>>\n\n## Goal\n\n{own}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::spec::{CapacityRetry, EngineChoice};

    fn node(max: u32) -> GoalNode {
        GoalNode {
            objective: "x".to_owned(),
            choice: EngineChoice::default(),
            cwd: None,
            sandbox: None,
            launcher: Vec::new(),
            thread_id: None,
            token_budget: 1,
            capacity_retry: CapacityRetry { max, backoff_ms: 400_000 },
            stall_ms: 1,
        }
    }

    /// Waits double up to a quarter of an hour, a later reset wins, and the tries are counted over a restart.
    #[test]
    fn tries_are_bounded_and_their_waits_grow() {
        let (mut kept, now) = (Kept::default(), Time::from_millis(0));
        let mut waits = Vec::new();
        while kept.stalled("busy", None, now, &node(4)).is_some() {
            waits.push(kept.until.unwrap().millis());
            kept = serde_json::from_value(kept.data()).unwrap();
        }
        assert_eq!(waits, [400_000, 800_000, 900_000, 900_000]);
        let mut kept = Kept::default();
        kept.stalled("quota", Some(Time::from_millis(5_000_000)), now, &node(1)).unwrap();
        assert_eq!(kept.until.unwrap().millis(), 5_001_500);
    }

    /// News of another conversation are foreign, and only a change of status must be kept at once.
    #[test]
    fn news_are_taken_in() {
        let mut kept = Kept::default();
        let view = |id: &str, status| GoalView { thread_id: id.into(), status, tokens_used: 3, ..GoalView::default() };
        assert!(kept.foreign("a").is_none() && kept.news(&view("a", GoalStatus::Active)));
        assert!(!kept.news(&view("a", GoalStatus::Active)) && kept.news(&view("a", GoalStatus::Paused)));
        assert_eq!((kept.foreign("b"), kept.foreign(""), kept.tokens_used), (Some("b"), None, 3));
        let shown = shown(Some(&json!({ GOAL_DATA: kept.data() }))).unwrap();
        assert_eq!((shown.thread_id.as_str(), shown.status.as_str()), ("a", "paused"));
    }
}
