//! Arguments shared by `workflow_start` and `workflow_validate`.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{
    args::{invalid, run_id},
    shapes::{AgentShape, BudgetShape, ContractShape, EngineShape, Free, WorkspaceShape},
};
use crate::kernel::{Error, Source, StartRequest};

/// What a run is started from: `spec`, or `template` with `task` and the template's arguments.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StartArgs {
    /// A workflow spec { name, nodes: [{ id, kind, ... }], cwd?, contract?, budget?, workspace?, maxNodeVisits? }; full schema: resource clawo://schema/workflow-spec. Use this or template.
    #[schemars(with = "Option<Free>")]
    spec: Option<Value>,
    /// Ready-made workflow instead of spec: solve (scout, implement, verify, repair), fanout (several agents on one task), council (members in rounds on worktrees) or goal (one agent follows an objective).
    template: Option<String>,
    /// With template: what is to be done, in full.
    task: Option<String>,
    /// Absolute directory to work in; overrides the spec's.
    cwd: Option<String>,
    /// Id for the run, 1 to 128 letters, digits, '.', '_', '-'. Default: generated.
    run_id: Option<String>,
    /// Acceptance contract that decides whether the work is verified; replaces the spec's.
    #[schemars(with = "Option<ContractShape>")]
    contract: Option<Value>,
    /// Whether a starting server continues the run by itself after a crash. Default false.
    auto_resume: Option<bool>,
    /// Any text; a second start with it within a day returns the same run instead of a new one.
    #[schemars(length(min = 1, max = 256))]
    idempotency_key: Option<String>,
    /// With template solve: scouts; with fanout: the agents; with council: the members. 1 to 16.
    #[schemars(with = "Option<Vec<AgentShape>>")]
    agents: Option<Value>,
    /// With template solve: who implements.
    #[schemars(with = "Option<EngineShape>")]
    implementer: Option<Value>,
    /// With template solve: reviewers after the implementation. Default none.
    #[schemars(with = "Option<Vec<AgentShape>>")]
    reviewers: Option<Value>,
    /// With template solve: ask a person before implementing. Default false.
    human_gate: Option<bool>,
    /// With template solve or goal: repair passes after a red check. Default 3 (goal 1).
    max_repairs: Option<u32>,
    /// With template council: most rounds. Default 15.
    max_rounds: Option<u32>,
    /// With template fanout: keep all answers, or only one that passes the contract.
    select: Option<String>,
    /// With template goal: engine that pursues it, codex or claude. Default codex.
    engine: Option<String>,
    /// With template goal: its model.
    model: Option<String>,
    /// With template goal: most tokens.
    token_budget: Option<u64>,
    /// With template goal: program and arguments put before the engine's own.
    launcher: Option<Vec<String>>,
    /// With template: bounds over the whole run.
    #[schemars(with = "Option<BudgetShape>")]
    budget: Option<Value>,
    /// With template: inPlace works in the directory itself, worktree in an own git worktree and branch. Default inPlace.
    #[schemars(with = "Option<WorkspaceShape>")]
    workspace: Option<String>,
}

impl StartArgs {
    /// The request for the kernel; refuses combinations that mean nothing.
    pub fn request(self, parent: Option<String>) -> Result<StartRequest, Error> {
        if let Some(id) = &self.run_id {
            run_id("runId", id)?;
        }
        let cwd = self.cwd.map(|c| absolute("cwd", &c)).transpose()?;
        let mut extra = Map::new();
        for (name, value) in [
            ("agents", self.agents),
            ("implementer", self.implementer),
            ("reviewers", self.reviewers),
            ("humanGate", self.human_gate.map(Value::from)),
            ("maxRepairs", self.max_repairs.map(Value::from)),
            ("maxRounds", self.max_rounds.map(Value::from)),
            ("select", self.select.map(Value::from)),
            ("engine", self.engine.map(Value::from)),
            ("model", self.model.map(Value::from)),
            ("tokenBudget", self.token_budget.map(Value::from)),
            ("launcher", self.launcher.map(Value::from)),
            ("budget", self.budget),
            ("workspace", self.workspace.map(Value::from)),
        ] {
            if let Some(value) = value {
                extra.insert(name.to_owned(), value);
            }
        }
        let source = match (self.spec, self.template) {
            (Some(_), Some(_)) => return Err(invalid("template", "give either spec or template, not both")),
            (None, None) => return Err(invalid("spec", "is required, or template with task")),
            (Some(spec), None) => {
                if self.task.is_some() {
                    return Err(invalid("task", "belongs to template; a spec has prompts in its nodes"));
                }
                if let Some((name, _)) = extra.iter().next() {
                    return Err(invalid(name, "belongs to template; write it into the spec"));
                }
                Source::Spec(spec)
            }
            (None, Some(name)) => {
                let task = self.task.filter(|t| !t.trim().is_empty());
                let task = task.ok_or_else(|| invalid("task", "is required with template"))?;
                Source::Template { name, task, args: Value::Object(extra) }
            }
        };
        Ok(StartRequest {
            source,
            cwd,
            run_id: self.run_id,
            contract: self.contract,
            auto_resume: self.auto_resume.unwrap_or(false),
            idempotency_key: self.idempotency_key,
            parent,
            customs: crate::nodes::Customs::default(),
        })
    }
}

/// A directory argument as a path; only absolute ones mean the same to caller and server.
pub fn absolute(field: &str, text: &str) -> Result<PathBuf, Error> {
    let path = PathBuf::from(text);
    if text.contains('\0') {
        Err(invalid(field, "must not contain a NUL character"))
    } else if path.is_absolute() {
        Ok(path)
    } else {
        Err(invalid(field, format!("must be an absolute directory, not '{}'", super::args::shown(text))))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn request(value: Value) -> Result<StartRequest, Error> {
        serde_json::from_value::<StartArgs>(value).unwrap().request(None)
    }

    #[test]
    fn spec_and_template_exclude_each_other() {
        for (args, words) in [
            (json!({}), "spec: is required"),
            (json!({"spec": {}, "template": "solve"}), "template: give either"),
            (json!({"spec": {}, "task": "x"}), "task: belongs to template"),
            (json!({"spec": {}, "reviewers": []}), "reviewers: belongs to template"),
            (json!({"template": "solve", "task": "  "}), "task: is required with template"),
            (json!({"template": "solve", "task": "x", "cwd": "a/b"}), "cwd: must be an absolute directory"),
            (json!({"template": "solve", "task": "x", "runId": "../x"}), "runId: '../x' is not a valid run id"),
        ] {
            let error = request(args).unwrap_err();
            assert!(error.message.starts_with(words), "{:?} vs {words:?}", error.message);
        }
        let good = request(json!({"template": "council", "task": "x", "maxRounds": 2})).unwrap();
        let Source::Template { name, args, .. } = good.source else { panic!("template") };
        assert_eq!((name.as_str(), args), ("council", json!({"maxRounds": 2})));
    }
}
