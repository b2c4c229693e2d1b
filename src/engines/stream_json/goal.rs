//! Goals of Claude Code: a command that sets one, turns that a judge sends on, and looks at how it stands.
//!
//! ```text
//!   /goal TEXT --> working --- result ---> looking (/goal) --+-- active: go on ------> working
//!                     |                        ^             +-- active, over budget -> clearing (/goal clear)
//!                     +--- over budget: interrupt            +-- gone: the session file tells how it ended
//! ```

use serde_json::Value;

use super::{StreamJson, str_of, transcript::Word, user_line};
use crate::{
    engines::{
        Answer, Ask, EngineError, ErrorClass, GoalEnd, GoalSet, GoalStatus, GoalView, TurnEvent, TurnOutcome, Usage,
        dialect::Step,
    },
    model::{Time, spec::OBJECTIVE_MAX},
};

/// Said when the program's own cap of refusals in a row ended its turn and the goal is still open, or after a stall.
const GO_ON: &str =
    "The goal is not reached yet. Go on with it from where you stopped, without repeating what is done.";
/// Times a turn that the program's cap ended is gone on with; each is up to nine refusals of the judge.
const MAX_WENT_ON: u32 = 32;
/// Looks at a session file that does not say yet how the goal ended; it is written behind the output.
const MAX_LOOKS: u32 = 300;
/// Longest last words kept, in characters.
const WORDS_MAX: usize = 4000;

/// A goal that is being followed.
#[derive(Debug)]
pub(super) struct Goal {
    view: GoalView,
    phase: Phase,
    budget: Option<u64>,
    /// Tokens before the turn under way.
    settled: u64,
    /// Seconds before this process followed it.
    before: u64,
    since: Option<Time>,
    went_on: u32,
    looks: u32,
    /// Why the turn did not end well.
    trouble: Option<EngineError>,
    /// It is being stopped by us.
    pausing: bool,
    over: bool,
}

/// What the next end of a turn ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// A turn of the model.
    Working,
    /// A bare `/goal`.
    Looking,
    /// A `/goal clear`.
    Clearing,
}

/// Something about a goal that was asked for besides following it.
#[derive(Debug)]
pub(super) struct Question {
    /// It takes a turn of the model.
    turn: bool,
}

/// The words of the command: a single word could be a subcommand, `clear` for one.
fn condition(objective: &str) -> String {
    let text = objective.trim();
    if text.contains(char::is_whitespace) { text.to_owned() } else { format!("\"{text}\"") }
}

fn checked(objective: &str) -> Result<(), EngineError> {
    let length = objective.chars().count();
    if objective.trim().is_empty() || length > OBJECTIVE_MAX {
        let text = format!("an objective has 1 to {OBJECTIVE_MAX} characters, this one has {length}");
        return Err(EngineError::new(ErrorClass::Other, text));
    }
    Ok(())
}

/// Tokens as goals count them: what was read from a cache is free.
fn tokens(usage: Usage) -> u64 {
    usage.input.saturating_add(usage.cache_write).saturating_add(usage.output)
}

/// An answer of the program itself, to a command.
fn is_command(result: &Value) -> bool {
    let turns = result.get("num_turns").and_then(Value::as_u64);
    turns == Some(0) && str_of(result, "terminal_reason").is_empty() && !super::flag(result, "is_error")
}

impl StreamJson {
    /// Sets a goal, or takes up the one the conversation has.
    pub(super) fn goal_lines(&mut self, set: Option<&GoalSet>) -> Result<Vec<String>, EngineError> {
        self.begin_turn();
        let known = self.known.take().unwrap_or_default();
        let mut goal = Goal {
            view: GoalView::default(),
            phase: Phase::Looking,
            budget: known.token_budget,
            settled: known.tokens_used,
            before: known.time_used_seconds,
            since: None,
            went_on: 0,
            looks: 0,
            trouble: None,
            pausing: false,
            over: false,
        };
        let line = match set {
            Some(set) => {
                checked(&set.objective)?;
                goal.phase = Phase::Working;
                (goal.budget, goal.settled, goal.before) = (set.token_budget, 0, 0);
                goal.view.objective.clone_from(&set.objective);
                user_line(&format!("/goal {}", condition(&set.objective)), true)
            }
            None => {
                goal.view.objective = known.objective;
                user_line("/goal", true)
            }
        };
        goal.view.tokens_used = goal.settled;
        self.goal = Some(goal);
        Ok(vec![line])
    }

    /// Adds to the turns of the goal. The text joins the turn under way, or becomes the next one.
    pub(super) fn goal_steer(&mut self, text: &str) -> Option<Vec<String>> {
        self.goal.as_ref().map(|_| vec![user_line(text, false)])
    }

    /// Takes a line while a goal is followed.
    pub(super) fn goal_line(&mut self, value: &Value, now: Time) -> Vec<Step> {
        if let Some(goal) = &mut self.goal {
            goal.since.get_or_insert(now);
        }
        let background = value.get("origin").map(|o| str_of(o, "kind")) == Some("task-notification");
        if str_of(value, "type") == "result" && !background {
            return self.goal_result(value, now);
        }
        let mut steps = self.value(value, now);
        let news = match (str_of(value, "type"), str_of(value, "subtype")) {
            ("system", "init") => true,
            ("system", "notification") if str_of(value, "key") == "stop-hook-error" => {
                let text = "the judge of the goal gave no usable word";
                if let Some(goal) = &mut self.goal {
                    goal.trouble = Some(EngineError::new(ErrorClass::Overloaded, text));
                }
                false
            }
            ("assistant", _) => {
                let words = steps
                    .iter()
                    .rev()
                    .find_map(|s| if let Step::Event(TurnEvent::Text(text)) = s { Some(text.clone()) } else { None });
                if let (Some(words), Some(goal)) = (words, &mut self.goal) {
                    goal.view.last_message = Some(words.chars().take(WORDS_MAX).collect());
                }
                steps.extend(self.over_budget());
                true
            }
            _ => false,
        };
        if news {
            steps.extend(self.news(now));
        }
        steps
    }

    /// Interrupts the turn once it is known to have used more than the goal may.
    fn over_budget(&mut self) -> Option<Step> {
        let partial = self.turn.partial.usage().map_or(0, tokens);
        let goal = self.goal.as_mut()?;
        goal.view.tokens_used = goal.settled.saturating_add(partial);
        let over = goal.budget.is_some_and(|budget| goal.view.tokens_used > budget);
        if !over || goal.over || goal.pausing {
            return None;
        }
        goal.over = true;
        self.interrupting();
        Some(Step::Reply(self.control("interrupt").1))
    }

    fn news(&mut self, now: Time) -> Option<Step> {
        let id = self.session_id.clone().unwrap_or_default();
        let goal = self.goal.as_mut()?;
        goal.view.thread_id = id;
        let since = goal.since.unwrap_or(now);
        let seconds = now.millis().saturating_sub(since.millis()) / 1000;
        goal.view.time_used_seconds = goal.before.saturating_add(u64::try_from(seconds).unwrap_or(0));
        Some(Step::Goal(goal.view.clone()))
    }

    /// A turn ended, of the model or of a command.
    fn goal_result(&mut self, value: &Value, now: Time) -> Vec<Step> {
        self.learn_id(value);
        if is_command(value) {
            return self.goal_told(str_of(value, "result"), now);
        }
        let mut steps = self.result(value, now);
        // A turn without words is none that failed: the cap of the judge ends one so.
        let silent = str_of(value, "result").is_empty() && !super::flag(value, "is_error");
        let aborted = str_of(value, "terminal_reason").starts_with("aborted");
        let mut used = None;
        let mut trouble = None;
        for step in &mut steps {
            if let Step::Ended(outcome) = step {
                used = outcome.usage;
                if silent && !aborted {
                    (outcome.ok, outcome.error) = (true, None);
                }
                trouble = outcome.error.clone();
            }
        }
        let Some(goal) = &mut self.goal else { return steps };
        goal.settled = goal.settled.saturating_add(used.map_or(0, tokens));
        goal.view.tokens_used = goal.settled;
        goal.over |= goal.budget.is_some_and(|budget| goal.settled > budget);
        if !(aborted && goal.over) {
            goal.trouble = trouble.or(goal.trouble.take());
        }
        if let Some(e) = &goal.trouble {
            goal.view.last_error = Some(e.to_string());
        }
        let pausing = goal.pausing;
        steps.extend(self.news(now));
        if pausing {
            steps.extend(self.goal_ends(GoalEnd::Interrupted, GoalStatus::Paused, now));
            return steps;
        }
        steps.push(self.look_at_goal(Phase::Looking));
        steps
    }

    /// Asks how the goal stands, or takes it away.
    fn look_at_goal(&mut self, phase: Phase) -> Step {
        self.begin_turn();
        if let Some(goal) = &mut self.goal {
            goal.phase = phase;
        }
        let text = if phase == Phase::Clearing { "/goal clear" } else { "/goal" };
        Step::Reply(user_line(text, true))
    }

    /// The program answered a command about the goal.
    fn goal_told(&mut self, text: &str, now: Time) -> Vec<Step> {
        let Some(goal) = &mut self.goal else { return Vec::new() };
        if goal.pausing {
            return self.goal_ends(GoalEnd::Interrupted, GoalStatus::Paused, now);
        }
        if goal.phase == Phase::Clearing {
            return self.goal_ends(GoalEnd::BudgetLimited, GoalStatus::BudgetLimited, now);
        }
        if text.starts_with("No goal set") {
            return self.goal_gone(now);
        }
        if !text.starts_with("Goal active") {
            let e = EngineError::new(ErrorClass::Other, text);
            return self.goal_ends(GoalEnd::Failed(e), GoalStatus::Blocked, now);
        }
        if goal.over {
            return vec![self.look_at_goal(Phase::Clearing)];
        }
        if let Some(e) = goal.trouble.take() {
            let end = if passes(e.class) { GoalEnd::Stalled(e) } else { GoalEnd::Failed(e) };
            return self.goal_ends(end, GoalStatus::Active, now);
        }
        if goal.went_on >= MAX_WENT_ON {
            let text = format!("the judge refused the work until it was sent on {MAX_WENT_ON} times");
            return self.goal_ends(GoalEnd::Blocked(text), GoalStatus::Blocked, now);
        }
        goal.went_on += 1;
        goal.phase = Phase::Working;
        self.begin_turn();
        vec![Step::Reply(user_line(GO_ON, false))]
    }

    /// There is no goal any more: the session file says why.
    fn goal_gone(&mut self, now: Time) -> Vec<Step> {
        let id = self.session_id.clone().unwrap_or_default();
        let Some(goal) = &mut self.goal else { return Vec::new() };
        let condition = Some(condition(&goal.view.objective)).filter(|_| !goal.view.objective.is_empty());
        match self.transcript.as_ref().and_then(|t| t.word(&id, condition.as_deref())) {
            Some(Word::Met(_)) => self.goal_ends(GoalEnd::Complete, GoalStatus::Complete, now),
            Some(Word::Failed(why)) => self.goal_ends(GoalEnd::Blocked(why), GoalStatus::Blocked, now),
            Some(Word::Cleared) => {
                let text = "the goal was cleared by somebody else";
                let e = EngineError::new(ErrorClass::Other, text);
                self.goal_ends(GoalEnd::Failed(e), GoalStatus::Blocked, now)
            }
            Some(Word::Open) | None if goal.looks < MAX_LOOKS => {
                goal.looks += 1;
                vec![self.look_at_goal(Phase::Looking)]
            }
            Some(Word::Open) | None => {
                let text = "there is no goal any more, and the session file does not say how it ended";
                let e = EngineError::new(ErrorClass::Protocol, text);
                self.goal_ends(GoalEnd::Failed(e), GoalStatus::Blocked, now)
            }
        }
    }

    fn goal_ends(&mut self, end: GoalEnd, status: GoalStatus, now: Time) -> Vec<Step> {
        if let Some(goal) = &mut self.goal {
            goal.view.status = status;
        }
        let Some(Step::Goal(view)) = self.news(now) else { return Vec::new() };
        self.goal = None;
        vec![Step::Goal(view.clone()), Step::GoalEnded(end, view)]
    }

    /// The turn is interrupted and the goal stays as it is.
    pub(super) fn pausing(&mut self) {
        if let Some(goal) = &mut self.goal {
            goal.pausing = true;
        }
    }

    /// Lines of what a caller asks about goals; `None` when it is about something else.
    pub(super) fn goal_ask(&mut self, ask: &Ask) -> Option<Result<Vec<String>, EngineError>> {
        let (text, turn) = match ask {
            Ask::GoalSet(set) => {
                if let Err(e) = checked(&set.objective) {
                    return Some(Err(e));
                }
                if set.token_budget.is_some() {
                    let text = "a goal of this engine has no token budget of its own; leave it out";
                    return Some(Err(crate::engines::not_supported(text)));
                }
                (format!("/goal {}", condition(&set.objective)), true)
            }
            Ask::GoalGet => ("/goal".to_owned(), false),
            Ask::GoalClear => ("/goal clear".to_owned(), false),
            Ask::Compact(_)
            | Ask::SwitchModel(_)
            | Ask::Fork
            | Ask::Rollback(_)
            | Ask::Models
            | Ask::Threads { .. }
            | Ask::Review(_)
            | Ask::GoalPause
            | Ask::GoalResume
            | Ask::Native { .. } => return None,
        };
        self.begin_turn();
        self.goal_question = Some(Question { turn });
        Some(Ok(vec![user_line(&text, true)]))
    }

    /// Takes a line while something about goals is asked.
    pub(super) fn asked_line(&mut self, value: &Value, now: Time) -> Vec<Step> {
        let mut steps = self.value(value, now);
        let Some(at) = steps.iter().position(|s| matches!(s, Step::Ended(_))) else { return steps };
        let Step::Ended(outcome) = steps.remove(at) else { return steps };
        let asked = self.goal_question.take();
        let command = is_command(value);
        let text = outcome.text.clone();
        let data = serde_json::json!({
            "text": text,
            "active": if command { text.starts_with("Goal active") } else { text.is_empty() },
        });
        let answer = match outcome.error.clone() {
            // What the program answers to a command is no turn of a model.
            _ if command && asked.as_ref().is_some_and(|a| a.turn) => Err(EngineError::new(ErrorClass::Other, text)),
            _ if command => Ok(Answer { data, turn: None }),
            Some(e) if !text.is_empty() || passes(e.class) => Err(e),
            Some(_) | None => Ok(Answer { data, turn: Some(*outcome) }),
        };
        steps.push(Step::Answered(Box::new(answer)));
        steps
    }
}

/// Whether a failure goes by with time.
fn passes(class: ErrorClass) -> bool {
    match class {
        ErrorClass::Quota
        | ErrorClass::Overloaded
        | ErrorClass::Timeout
        | ErrorClass::Crashed
        | ErrorClass::Interrupted => true,
        ErrorClass::Auth
        | ErrorClass::ContextOverflow
        | ErrorClass::PermissionDenied
        | ErrorClass::Refused
        | ErrorClass::Protocol
        | ErrorClass::StartFailed
        | ErrorClass::NotSupported
        | ErrorClass::BudgetExceeded
        | ErrorClass::Other => false,
    }
}

/// Forgets the goal: the turn that begins has nothing to do with it.
pub(super) fn forget(dialect: &mut StreamJson) {
    dialect.goal = None;
    dialect.goal_question = None;
}

/// The outcome of a goal's turn that was cut off.
pub(super) fn cut(dialect: &mut StreamJson, error: EngineError) -> TurnOutcome {
    forget(dialect);
    dialect.cut_off(error)
}
