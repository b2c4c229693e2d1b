//! Goals of a scripted agent: `/goal` as the real program plays it, with a judge out of the scenario.

use std::io;

use serde_json::{Value, json};

use super::{
    agent::{Agent, OpenGoal},
    scenario::Judgement,
};

/// Refusals in a row after which a turn ends although its goal is open, as with the real program.
const CAP: u32 = 8;

/// What follows a reply.
pub(super) enum Round {
    /// The end of the turn.
    Over,
    /// The same, because the judge refused too often.
    Capped,
    /// Another reply, to this.
    Again(String),
}

/// The argument of a `/goal` command.
pub(super) fn command(prompt: &str) -> Option<&str> {
    let rest = prompt.strip_prefix("/goal")?;
    (rest.is_empty() || rest.starts_with(char::is_whitespace)).then(|| rest.trim())
}

impl Agent<'_> {
    /// What a bare `/goal` says.
    pub(super) fn goal_stands(&self) -> String {
        match &self.progress.goal {
            None => "No goal set. Usage: `/goal <condition>`".to_owned(),
            Some(goal) if goal.turns == 0 => format!("Goal active: {} (not yet evaluated)", goal.condition),
            Some(goal) => {
                format!("Goal active: {} ({} turns)\nLast check: {}", goal.condition, goal.turns, goal.reason)
            }
        }
    }

    /// Opens a goal.
    pub(super) fn set_goal(&mut self, condition: &str) -> io::Result<()> {
        let goal = OpenGoal { condition: condition.to_owned(), ..OpenGoal::default() };
        self.tell(&goal, &json!({ "met": false, "sentinel": true }))?;
        self.progress.goal = Some(goal);
        self.save();
        Ok(())
    }

    /// Takes the goal away.
    pub(super) fn clear_goal(&mut self) -> io::Result<String> {
        let Some(goal) = self.progress.goal.take() else { return Ok("No goal set".to_owned()) };
        self.tell(&goal, &json!({ "met": true, "sentinel": true }))?;
        Ok(format!("Goal cleared: {}", goal.condition))
    }

    /// Lets the judge look at the goal, if one is open.
    pub(super) fn judged(&mut self, misses: &mut u32) -> io::Result<Round> {
        let Some(mut goal) = self.progress.goal.clone() else { return Ok(Round::Over) };
        let judge = &self.scenario.judge;
        let word = judge.get(self.progress.judged).or(judge.last()).cloned();
        let word = word.unwrap_or(Judgement { ok: true, ..Judgement::default() });
        self.progress.judged += 1;
        if word.broken {
            self.save();
            self.print(&self.account.judge_failed())?;
            return Ok(Round::Over);
        }
        goal.turns += 1;
        let about = json!({ "reason": word.reason, "iterations": goal.turns });
        if word.ok || word.impossible {
            let end = json!({ "met": word.ok, "failed": word.impossible });
            self.tell(&goal, &merged(end, &about))?;
            self.progress.goal = None;
            self.save();
            return Ok(Round::Over);
        }
        self.tell(&goal, &merged(json!({ "met": false }), &about))?;
        goal.reason.clone_from(&word.reason);
        let feedback = format!("Stop hook feedback:\n[{}]: {}", goal.condition, word.reason);
        self.progress.goal = Some(goal);
        self.save();
        self.print(&self.account.feedback(&feedback))?;
        *misses += 1;
        Ok(if *misses > CAP { Round::Capped } else { Round::Again(feedback) })
    }

    fn tell(&self, goal: &OpenGoal, what: &Value) -> io::Result<()> {
        let about = json!({ "type": "goal_status", "condition": goal.condition });
        self.note(&merged(about, what)).map_err(io::Error::other)
    }
}

fn merged(mut first: Value, more: &Value) -> Value {
    if let (Some(first), Some(more)) = (first.as_object_mut(), more.as_object()) {
        first.extend(more.clone());
    }
    first
}
