//! Goals: the program takes one turn after the other by itself until its agent says that it is done.
//!
//! Nothing stops it from taking turns in which nothing happens, so a goal always has a token budget, and one that idles
//! is paused.

use serde_json::{Value, json};

use super::{
    app::{App, Asked, Doing, note},
    classify::refused,
    turn::str_of,
};
use crate::{
    engines::{
        EngineError, ErrorClass, GoalEnd, GoalSet, GoalStatus, GoalView, TurnOutcome, dialect::Step, jsonrpc::RpcError,
    },
    model::Time,
};

/// Longest objective, in characters; the program takes no longer one.
pub(super) const MAX_OBJECTIVE: usize = 4000;
/// Budget of a goal whose caller gives none, in tokens as the program counts them for goals. Weeks of work for a
/// person, and yet an end.
const DEFAULT_BUDGET: u64 = 20_000_000;
/// Turns in a row that neither used a tool nor said anything new, after which the goal is paused.
const MAX_IDLE_TURNS: u32 = 5;
/// Characters kept of the agent's latest words.
const MAX_LAST_MESSAGE: usize = 4000;

/// What following a goal waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GoalStep {
    /// The goal before is gone.
    Clear,
    /// The new one is set.
    Set,
    /// How the one there is stands.
    Look,
    /// It is active again.
    Reactivate,
    /// It is paused, as ordered.
    Pause,
    /// It is paused, because it idles.
    PauseIdle,
}

/// The thread's goal as far as it is known.
#[derive(Debug, Default)]
pub(super) struct Goal {
    view: GoalView,
    /// The view is of after the latest order, so that it can end the following.
    fresh: bool,
    /// To be set once the goal before is gone.
    set: Option<GoalSet>,
    reactivate: bool,
    /// Ordered to stand still.
    pausing: bool,
    /// Paused because it idled.
    idled: bool,
    idle_turns: u32,
    /// What ended its latest turn badly.
    error: Option<EngineError>,
}

/// Why this cannot be a goal.
pub(super) fn unfit(set: &GoalSet) -> Option<EngineError> {
    let length = set.objective.trim().chars().count();
    let text = match length {
        0 => "the objective is empty".to_owned(),
        _ if length > MAX_OBJECTIVE => {
            format!("the objective has {length} characters; shorten it to at most {MAX_OBJECTIVE}")
        }
        _ if set.token_budget == Some(0) => "the token budget must be above 0".to_owned(),
        _ => return None,
    };
    Some(EngineError::new(ErrorClass::Other, text))
}

/// What sets a goal.
pub(super) fn setting(set: &GoalSet) -> Value {
    let budget = set.token_budget.unwrap_or(DEFAULT_BUDGET);
    json!({ "objective": set.objective.trim(), "status": "active", "tokenBudget": budget })
}

impl App {
    /// Sets a goal, or takes up the one there is.
    pub(super) fn follow_goal(&mut self, set: Option<&GoalSet>, reactivate: bool) -> Result<Vec<String>, EngineError> {
        if let Some(error) = set.and_then(unfit) {
            return Err(error);
        }
        self.doing = Doing::Goal;
        let goal = &mut self.goal;
        (goal.fresh, goal.pausing, goal.idled, goal.idle_turns) = (false, false, false, 0);
        (goal.set, goal.reactivate) = (set.cloned(), reactivate);
        let (step, method) =
            if set.is_some() { (GoalStep::Clear, "thread/goal/clear") } else { (GoalStep::Look, "thread/goal/get") };
        Ok(vec![self.request(Asked::Goal(step), method, json!({}))])
    }

    /// Pauses first, so that no turn follows the one that is interrupted then.
    pub(super) fn pause_goal(&mut self) -> Vec<String> {
        if !matches!(self.doing, Doing::Goal) {
            return self.interrupt_lines();
        }
        self.goal.pausing = true;
        if self.goal.fresh && self.goal.view.status != GoalStatus::Active {
            // It ends with this turn; pausing it would take that back.
            return self.interrupt_lines();
        }
        vec![self.request(Asked::Goal(GoalStep::Pause), "thread/goal/set", json!({ "status": "paused" }))]
    }

    pub(super) fn goal_answered(&mut self, step: GoalStep, result: Result<Value, RpcError>) -> Vec<Step> {
        let following = matches!(self.doing, Doing::Goal);
        let goal = result.as_ref().ok().and_then(|r| r.get("goal")).filter(|g| !g.is_null()).cloned();
        if let Some(goal) = &goal {
            self.goal.read(goal);
        }
        match (step, result) {
            (GoalStep::PauseIdle, Ok(_)) => {
                self.goal.idled = true;
                if following { self.goal_moved() } else { note(idled()) }
            }
            (GoalStep::PauseIdle, Err(_)) => Vec::new(),
            _ if !following => Vec::new(),
            (GoalStep::Clear, _) => match self.goal.set.take() {
                Some(set) if !self.goal.pausing => {
                    vec![Step::Reply(self.request(Asked::Goal(GoalStep::Set), "thread/goal/set", setting(&set)))]
                }
                Some(_) | None => self.goal_over(GoalEnd::Interrupted),
            },
            (GoalStep::Set, Err(e)) => self.goal_over(GoalEnd::Failed(refused("codex did not take the goal", &e))),
            (GoalStep::Reactivate, Err(e)) => {
                self.goal_over(GoalEnd::Failed(refused("codex did not go on with the goal", &e)))
            }
            (GoalStep::Look, Err(e)) => self.goal_over(GoalEnd::Failed(refused("codex does not tell its goal", &e))),
            (GoalStep::Look, Ok(_)) if goal.is_none() => {
                let text = "the thread has no goal, or it was cleared; set one";
                self.goal_over(GoalEnd::Failed(EngineError::new(ErrorClass::Other, text)))
            }
            (GoalStep::Look, Ok(_)) if self.goal.must_be_roused(self.turn.active()) => {
                let active = json!({ "status": "active" });
                vec![Step::Reply(self.request(Asked::Goal(GoalStep::Reactivate), "thread/goal/set", active))]
            }
            (GoalStep::Look | GoalStep::Set | GoalStep::Reactivate, Ok(_)) => {
                self.goal.fresh = true;
                self.goal.error = None;
                self.goal_moved()
            }
            (GoalStep::Pause, Err(e)) if !self.turn.active() => {
                self.goal_over(GoalEnd::Failed(refused("codex did not pause the goal", &e)))
            }
            (GoalStep::Pause, _) => {
                self.goal.fresh = true;
                if self.turn.active() {
                    self.interrupt_lines().into_iter().map(Step::Reply).collect()
                } else {
                    self.goal_moved()
                }
            }
        }
    }

    /// The program tells how the goal stands.
    pub(super) fn goal_told(&mut self, goal: &Value) -> Vec<Step> {
        self.goal.read(goal);
        if matches!(self.doing, Doing::Goal) && self.goal.fresh { self.goal_moved() } else { Vec::new() }
    }

    /// Told when a goal is cleared, and also of a thread that never had one; so it is looked again.
    pub(super) fn goal_cleared(&mut self) -> Vec<Step> {
        if !matches!(self.doing, Doing::Goal) || !self.goal.fresh {
            return Vec::new();
        }
        self.goal.reactivate = false;
        vec![Step::Reply(self.request(Asked::Goal(GoalStep::Look), "thread/goal/get", json!({})))]
    }

    /// A turn ended; `own` is one that somebody here asked for. The line that pauses a goal which idles.
    pub(super) fn goal_turn(&mut self, outcome: &TurnOutcome, own: bool) -> Option<String> {
        let goal = &mut self.goal;
        goal.error = outcome.error.clone().filter(|e| e.class != ErrorClass::Interrupted);
        goal.view.last_error = goal.error.as_ref().map(|e| e.message.clone());
        let said: String = outcome.text.chars().take(MAX_LAST_MESSAGE).collect();
        let said = Some(said).filter(|s| !s.trim().is_empty());
        let new = said.is_some() && said != goal.view.last_message;
        if new {
            goal.view.last_message = said;
        }
        let idle = !own && outcome.error.is_none() && outcome.tool_calls == 0 && !new;
        goal.idle_turns = if idle { goal.idle_turns.saturating_add(1) } else { 0 };
        if goal.idle_turns < MAX_IDLE_TURNS || goal.view.status != GoalStatus::Active || goal.pausing {
            return None;
        }
        goal.idle_turns = 0;
        Some(self.request(Asked::Goal(GoalStep::PauseIdle), "thread/goal/set", json!({ "status": "paused" })))
    }

    /// How the goal stands now, and its end when it has one. A turn under way is waited for, so that what it uses is
    /// accounted for.
    pub(super) fn goal_moved(&mut self) -> Vec<Step> {
        let mut steps = vec![Step::Goal(self.goal.view.clone())];
        if self.goal.fresh
            && !self.turn.active()
            && let Some(end) = self.goal.end(self.resets_at)
        {
            steps.extend(self.goal_over(end));
        }
        steps
    }

    fn goal_over(&mut self, end: GoalEnd) -> Vec<Step> {
        self.doing = Doing::Nothing;
        self.goal.fresh = false;
        vec![Step::GoalEnded(end, self.goal.view.clone())]
    }

    /// The goal for a caller.
    pub(super) fn goal_json(&self) -> Value {
        serde_json::to_value(&self.goal.view).unwrap_or_default()
    }

    /// Takes a goal out of an answer; whether there is one.
    pub(super) fn goal_read(&mut self, answer: &Value) -> bool {
        let goal = answer.get("goal").filter(|g| !g.is_null());
        if let Some(goal) = goal {
            self.goal.read(goal);
            self.goal.idle_turns = 0;
        }
        goal.is_some()
    }
}

impl Goal {
    fn read(&mut self, goal: &Value) {
        let number = |key: &str| goal.get(key).and_then(Value::as_u64).unwrap_or(0);
        let objective = str_of(goal, "objective").to_owned();
        if objective != self.view.objective {
            (self.view.last_message, self.view.last_error) = (None, None);
        }
        self.view.thread_id = str_of(goal, "threadId").to_owned();
        self.view.objective = objective;
        self.view.tokens_used = number("tokensUsed");
        self.view.time_used_seconds = number("timeUsedSeconds");
        // A status of a later version is none we could act on; the goal then counts as being worked on.
        let status = goal.get("status").cloned().unwrap_or_default();
        self.view.status = serde_json::from_value(status).unwrap_or_default();
    }

    /// Whether it was made to stand still from here.
    pub(super) fn stands_still(&self) -> bool {
        (self.pausing || self.idled) && self.view.status == GoalStatus::Paused
    }

    /// Whether it has to be set active again to go on.
    fn must_be_roused(&self, working: bool) -> bool {
        match self.view.status {
            GoalStatus::Active => self.reactivate && !working,
            GoalStatus::Paused | GoalStatus::Blocked | GoalStatus::UsageLimited => self.reactivate,
            GoalStatus::BudgetLimited | GoalStatus::Complete => false,
        }
    }

    fn end(&self, resets_at: Option<Time>) -> Option<GoalEnd> {
        let stalled = |class, text: String| Some(GoalEnd::Stalled(EngineError::new(class, text)));
        match self.view.status {
            GoalStatus::Active => None,
            GoalStatus::Complete => Some(GoalEnd::Complete),
            GoalStatus::BudgetLimited => Some(GoalEnd::BudgetLimited),
            GoalStatus::Paused if self.idled => stalled(ErrorClass::Other, idled()),
            GoalStatus::Paused => stalled(ErrorClass::Other, "the goal is paused".to_owned()),
            GoalStatus::UsageLimited => Some(GoalEnd::Stalled(self.error.clone().unwrap_or_else(|| EngineError {
                class: ErrorClass::Quota,
                message: "the goal waits for a usage limit to end".to_owned(),
                retry_at: resets_at,
                over: None,
            }))),
            // A turn that failed blocks the goal as well; then the failure says whether it may go on later.
            GoalStatus::Blocked => Some(match &self.error {
                Some(e) if matches!(e.class, ErrorClass::Overloaded | ErrorClass::Quota) => GoalEnd::Stalled(e.clone()),
                Some(e) => GoalEnd::Failed(e.clone()),
                None => GoalEnd::Blocked(
                    self.view.last_message.clone().unwrap_or_else(|| "the agent gave no reason".to_owned()),
                ),
            }),
        }
    }
}

fn idled() -> String {
    format!("{MAX_IDLE_TURNS} turns in a row neither used a tool nor said anything new; the goal was paused")
}
