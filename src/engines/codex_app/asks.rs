//! What can be asked of a thread besides turns.

use serde_json::{Value, json};

use super::{
    app::{App, Asked, Doing},
    catalog,
    classify::refused,
    goal,
    turn::str_of,
};
use crate::engines::{
    Ask, EngineError, ErrorClass, GoalSet, TurnOutcome, dialect::Step, jsonrpc::RpcError, not_supported,
};

/// Turns dropped at once at most; one page of the list of turns holds so many.
const MAX_DROPPED: u32 = 50;
/// Pages of models read at most; the list has one.
const MAX_PAGES: u32 = 10;
/// Conversations on a page at most.
const MAX_THREADS: u32 = 100;

/// What part of an ask an answer belongs to.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Part {
    Compact,
    Review,
    Switch(String),
    Fork,
    /// The branch is let go of, so that another process can take it up.
    LetGo(String),
    /// The turns, of which the last so many go.
    Turns(u32),
    Revert(u32),
    Models(Vec<Value>, u32),
    Threads,
    /// The goal before is gone, and this one is to be set.
    GoalReplaced(GoalSet),
    Goal,
    GoalCleared,
}

/// Which turn an ask waits for.
#[derive(Debug, Clone, PartialEq)]
enum Awaited {
    None,
    /// The next one that begins.
    Next,
    /// This one.
    Turn(String),
}

/// An ask under way.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Question {
    number: u64,
    awaited: Awaited,
    review: bool,
}

impl Question {
    /// Whether it waits for the turn called `ids`.
    pub(super) fn waits_for(&self, ids: &[String]) -> bool {
        matches!(&self.awaited, Awaited::Turn(id) if ids.contains(id))
    }
}

impl App {
    /// Begins an ask.
    pub(super) fn asked_for(&mut self, ask: &Ask) -> Result<Vec<String>, EngineError> {
        let wrong = |text: String| Err(EngineError::new(ErrorClass::Other, text));
        let none = json!({});
        let (part, method, params) = match ask {
            Ask::Compact(_) => (Part::Compact, "thread/compact/start", none),
            Ask::SwitchModel(model) if model.trim().is_empty() => return wrong("the model is empty".to_owned()),
            Ask::SwitchModel(model) => {
                (Part::Switch(model.clone()), "thread/settings/update", json!({ "model": model }))
            }
            Ask::Fork => {
                let sandbox = self.opening.sandbox.as_str();
                let params = json!({
                    "excludeTurns": true, "deferGoalContinuation": true, "sandbox": sandbox, "approvalPolicy": "never",
                });
                (Part::Fork, "thread/fork", params)
            }
            Ask::Rollback(n) if !(1..=MAX_DROPPED).contains(n) => {
                return wrong(format!("{n} turns cannot be dropped; use 1 to {MAX_DROPPED}"));
            }
            Ask::Rollback(n) => (Part::Turns(*n), "thread/turns/list", json!({ "limit": n, "itemsView": "notLoaded" })),
            Ask::Models => (Part::Models(Vec::new(), 1), "model/list", json!({ "limit": 100 })),
            Ask::Threads { cursor, limit } => {
                let kinds = json!(["cli", "vscode", "exec", "appServer"]);
                let limit = (*limit).clamp(1, MAX_THREADS);
                (Part::Threads, "thread/list", json!({ "cursor": cursor, "limit": limit, "sourceKinds": kinds }))
            }
            Ask::Review(scope) => {
                (Part::Review, "review/start", json!({ "target": target(scope)?, "delivery": "inline" }))
            }
            Ask::GoalSet(set) => {
                if let Some(error) = goal::unfit(set) {
                    return Err(error);
                }
                (Part::GoalReplaced(set.clone()), "thread/goal/clear", none)
            }
            Ask::GoalGet => (Part::Goal, "thread/goal/get", none),
            Ask::GoalPause => (Part::Goal, "thread/goal/set", json!({ "status": "paused" })),
            Ask::GoalResume => (Part::Goal, "thread/goal/set", json!({ "status": "active" })),
            Ask::GoalClear => (Part::GoalCleared, "thread/goal/clear", none),
            Ask::Native { name, .. } => return Err(not_supported(&format!("codex-app has no {name}"))),
        };
        self.asks = self.asks.wrapping_add(1);
        let awaited = if part == Part::Compact { Awaited::Next } else { Awaited::None };
        self.doing = Doing::Ask(Question { number: self.asks, awaited, review: part == Part::Review });
        Ok(vec![self.ask_line(part, method, params)])
    }

    fn ask_line(&mut self, part: Part, method: &str, params: Value) -> String {
        let asked = Asked::Ask(self.asks, part);
        // These two are about no thread and take no id of one.
        if matches!(method, "model/list" | "thread/list") {
            return self.peer.request(asked, method, &params);
        }
        self.request(asked, method, params)
    }

    pub(super) fn ask_answered(&mut self, number: u64, part: Part, result: Result<Value, RpcError>) -> Vec<Step> {
        let Doing::Ask(question) = &mut self.doing else { return Vec::new() };
        if question.number != number {
            return Vec::new();
        }
        let answer = match result {
            Ok(answer) => answer,
            // The branch is there; that it is still held is only a pity.
            Err(_) if matches!(part, Part::LetGo(_)) => Value::Null,
            Err(e) => return self.ask_failed(refused("codex refused", &e)),
        };
        match part {
            // The turn that follows is the answer.
            Part::Compact => Vec::new(),
            Part::Review => {
                let id = answer.get("turn").map(|t| str_of(t, "id")).unwrap_or_default().to_owned();
                question.awaited = Awaited::Turn(id.clone());
                self.turn.learn(&id);
                Vec::new()
            }
            Part::Switch(model) => {
                self.model = Some(model.clone());
                self.answer(json!({ "model": model }), None)
            }
            Part::Fork => {
                let id = answer.get("thread").map(|t| str_of(t, "id")).unwrap_or_default().to_owned();
                let params = json!({ "threadId": id });
                vec![Step::Reply(self.peer.request(Asked::Ask(number, Part::LetGo(id)), "thread/unsubscribe", &params))]
            }
            Part::LetGo(id) => self.answer(json!({ "threadId": id, "forkedFrom": self.thread }), None),
            Part::Turns(n) => self.revert(n, &answer),
            Part::Revert(dropped) => {
                self.tokens.cut_back();
                self.answer(json!({ "dropped": dropped }), None)
            }
            Part::Models(mut models, page) => {
                let data = answer.get("data").and_then(Value::as_array).into_iter().flatten();
                let hidden = |m: &&Value| m.get("hidden").and_then(Value::as_bool).unwrap_or(false);
                models.extend(data.filter(|m| !hidden(m)).map(catalog::for_caller));
                let cursor = str_of(&answer, "nextCursor");
                if cursor.is_empty() || page >= MAX_PAGES {
                    return self.answer(json!({ "models": models }), None);
                }
                let params = json!({ "limit": 100, "cursor": cursor });
                vec![Step::Reply(self.ask_line(Part::Models(models, page + 1), "model/list", params))]
            }
            Part::Threads => {
                let data = answer.get("data").and_then(Value::as_array).into_iter().flatten();
                let threads: Vec<Value> = data.map(thread).collect();
                self.answer(json!({ "threads": threads, "nextCursor": answer.get("nextCursor") }), None)
            }
            Part::GoalReplaced(set) => {
                vec![Step::Reply(self.ask_line(Part::Goal, "thread/goal/set", goal::setting(&set)))]
            }
            Part::Goal => {
                let goal = if self.goal_read(&answer) { self.goal_json() } else { Value::Null };
                self.answer(json!({ "goal": goal }), None)
            }
            Part::GoalCleared => self.answer(json!({ "cleared": answer.get("cleared") }), None),
        }
    }

    /// The turns come newest first.
    fn revert(&mut self, n: u32, answer: &Value) -> Vec<Step> {
        let turns = answer.get("data").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let first = usize::try_from(n).ok().and_then(|n| turns.get(n.checked_sub(1)?)).map(|t| str_of(t, "id"));
        let Some(id) = first.filter(|id| !id.is_empty()) else {
            let text = format!("the thread has only {} turns, so {n} cannot be dropped", turns.len());
            return self.ask_failed(EngineError::new(ErrorClass::Other, text));
        };
        let params = json!({ "beforeTurnId": id });
        vec![Step::Reply(self.ask_line(Part::Revert(n), "thread/revert", params))]
    }

    fn ask_failed(&mut self, error: EngineError) -> Vec<Step> {
        self.doing = Doing::Nothing;
        vec![Step::Answered(Box::new(Err(error)))]
    }

    /// A turn began that an ask may wait for.
    pub(super) fn ask_turn_started(&mut self, id: &str) {
        if let Doing::Ask(question) = &mut self.doing
            && question.awaited == Awaited::Next
        {
            question.awaited = Awaited::Turn(id.to_owned());
        }
    }

    /// The turn that an ask waited for is over.
    pub(super) fn ask_turn(&mut self, outcome: TurnOutcome) -> Vec<Step> {
        let review = matches!(&self.doing, Doing::Ask(q) if q.review);
        if let Some(error) = outcome.error.clone() {
            self.keep(outcome);
            return self.ask_failed(error);
        }
        let data = if review { json!({ "review": outcome.text }) } else { json!({ "compacted": true }) };
        self.answer(data, Some(outcome))
    }
}

/// The one range of changes a review is about.
fn target(scope: &Value) -> Result<Value, EngineError> {
    let text = |key: &str| Some(str_of(scope, key).trim()).filter(|t| !t.is_empty());
    let uncommitted = scope.get("uncommitted").and_then(Value::as_bool).unwrap_or(false);
    let mut targets = Vec::new();
    if uncommitted {
        targets.push(json!({ "type": "uncommittedChanges" }));
    }
    targets.extend(text("base").map(|branch| json!({ "type": "baseBranch", "branch": branch })));
    targets.extend(text("commit").map(|sha| json!({ "type": "commit", "sha": sha })));
    targets.extend(text("instructions").map(|text| json!({ "type": "custom", "instructions": text })));
    match (targets.pop(), targets.is_empty()) {
        (Some(target), true) => Ok(target),
        (_, _) => {
            let text = "a review takes exactly one of `uncommitted`, `base`, `commit` and `instructions`";
            Err(EngineError::new(ErrorClass::Other, text))
        }
    }
}

/// A stored conversation for a caller.
fn thread(thread: &Value) -> Value {
    let part = |key: &str| thread.get(key).cloned().unwrap_or_default();
    json!({
        "threadId": part("id"), "name": part("name"), "preview": part("preview"), "cwd": part("cwd"),
        "model": part("model"), "createdAt": part("createdAt"), "updatedAt": part("updatedAt"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_review_has_one_scope() {
        let typed = |scope: Value| target(&scope).map(|t| t["type"].clone());
        assert_eq!(typed(json!({ "uncommitted": true })).unwrap(), "uncommittedChanges");
        assert_eq!(typed(json!({ "base": "main", "commit": " " })).unwrap(), "baseBranch");
        assert_eq!(typed(json!({ "commit": "abc", "uncommitted": false })).unwrap(), "commit");
        assert!(typed(json!({ "commit": "abc", "base": "main" })).is_err());
        assert!(typed(json!({})).is_err());
    }
}
