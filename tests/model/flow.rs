//! Workflows in a form that is small enough to be made at random, written as a caller would, and understood twice:
//! by the kernel from its JSON, by the oracle from here.

use serde_json::{Value, json};

use crate::script::Temper;

/// Limit of one turn where agents may hang.
pub const TURN_MS: u64 = 800;

/// A workflow.
#[derive(Debug, Clone, PartialEq)]
pub struct Flow {
    pub steps: Vec<Step>,
    /// Whether the run has a contract.
    pub contract: bool,
    pub max_visits: u32,
    pub no_progress: u32,
    pub max_turns: Option<u64>,
    pub max_cents: Option<u64>,
    pub max_wall_ms: Option<u64>,
}

/// One step.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    pub what: What,
    pub retries: u32,
    pub backoff_ms: u64,
    /// Whether a failure lets control move on.
    pub go_on: bool,
    /// Explicit successor.
    pub next: Option<usize>,
}

/// What a step does.
#[derive(Debug, Clone, PartialEq)]
pub enum What {
    Agent(Temper),
    Fanout { members: usize, merge: bool, temper: Temper },
    Verifier { run: bool, advisory: bool },
    Router { routes: Vec<(When, usize)>, default: Option<usize> },
    Gate,
    Subflow(Box<Flow>),
}

/// When a route is taken.
#[derive(Debug, Clone, PartialEq)]
pub enum When {
    Always,
    Failed(usize),
    Succeeded(usize),
    Verified(usize),
    VisitsLt(usize, u32),
    All(Vec<When>),
}

/// A step without anything special.
pub fn step(what: What) -> Step {
    Step { what, retries: 0, backoff_ms: 100, go_on: false, next: None }
}

/// A flow without anything special.
pub fn flow(steps: Vec<Step>) -> Flow {
    Flow { steps, contract: false, max_visits: 5, no_progress: 3, max_turns: None, max_cents: None, max_wall_ms: None }
}

/// The checks of every contract.
fn contract() -> Value {
    json!({ "checks": [
        { "id": "a", "type": "file", "path": "a" },
        { "id": "b", "type": "file", "path": "b" },
    ] })
}

impl Step {
    pub fn retry(mut self, retries: u32, backoff_ms: u64) -> Self {
        (self.retries, self.backoff_ms) = (retries, backoff_ms);
        self
    }

    pub fn go_on(mut self) -> Self {
        self.go_on = true;
        self
    }
}

impl Flow {
    /// Name of a step; unique in a case because a child's has its parent's before it.
    pub fn name(prefix: &str, index: usize) -> String {
        format!("{prefix}{index}")
    }

    /// Prefix of the names in the child of a step.
    pub fn below(prefix: &str, index: usize) -> String {
        format!("{prefix}{index}x")
    }

    /// As a caller writes it.
    pub fn json(&self, prefix: &str) -> Value {
        let name = |index: usize| Self::name(prefix, index % self.steps.len());
        let nodes: Vec<Value> = self.steps.iter().enumerate().map(|(i, step)| step.json(i, prefix, &name)).collect();
        let mut spec = json!({
            "name": "model", "nodes": nodes, "maxNodeVisits": self.max_visits, "noProgressLimit": self.no_progress,
        });
        let mut budget = json!({});
        if let Some(turns) = self.max_turns {
            budget["maxAgentTurns"] = json!(turns);
        }
        if let Some(cents) = self.max_cents {
            budget["maxCostUsd"] = json!(dollars(cents));
        }
        if let Some(ms) = self.max_wall_ms {
            budget["maxWallMs"] = json!(ms);
        }
        if budget != json!({}) {
            spec["budget"] = budget;
        }
        if self.contract {
            spec["contract"] = contract();
        }
        spec
    }

    /// Whether anything bounds what it may use, children included.
    pub fn is_bounded(&self) -> bool {
        let own = self.max_turns.is_some() || self.max_cents.is_some() || self.max_wall_ms.is_some();
        own || self.steps.iter().any(|s| matches!(&s.what, What::Subflow(child) if child.is_bounded()))
    }

    /// Whether a person is asked anywhere.
    pub fn has_gate(&self) -> bool {
        self.steps.iter().any(|s| match &s.what {
            What::Gate => true,
            What::Subflow(child) => child.has_gate(),
            What::Agent(_) | What::Fanout { .. } | What::Verifier { .. } | What::Router { .. } => false,
        })
    }

    /// The temper of the agents of a step, found by its name.
    pub fn temper(&self, prefix: &str, node: &str) -> Option<Temper> {
        self.steps.iter().enumerate().find_map(|(index, step)| match &step.what {
            What::Agent(temper) | What::Fanout { temper, .. } if Self::name(prefix, index) == node => Some(*temper),
            What::Subflow(child) => child.temper(&Self::below(prefix, index), node),
            What::Agent(_) | What::Fanout { .. } | What::Verifier { .. } | What::Router { .. } | What::Gate => None,
        })
    }
}

/// Cents with half a cent less, so that no sum of whole cents meets a bound exactly.
pub fn dollars(cents: u64) -> f64 {
    (cents as f64 - 0.5) / 100.0
}

impl Step {
    fn json(&self, index: usize, prefix: &str, name: &dyn Fn(usize) -> String) -> Value {
        let mut node = match &self.what {
            What::Agent(temper) => {
                let mut node = json!({ "kind": "agent", "prompt": "work" });
                if *temper == Temper::Hanging {
                    node["timeoutMs"] = json!(TURN_MS);
                }
                node
            }
            What::Fanout { members, merge, .. } => {
                let agents: Vec<Value> = (0..*members).map(|i| json!({ "name": member(i) })).collect();
                json!({
                    "kind": "fanout", "prompt": "work", "agents": agents, "synthesize": merge, "agentTimeoutMs": TURN_MS,
                })
            }
            What::Verifier { run, advisory } => {
                let contract = if *run { json!("run") } else { contract() };
                json!({ "kind": "verifier", "contract": contract, "advisory": advisory })
            }
            What::Router { routes, default } => {
                let routes: Vec<Value> =
                    routes.iter().map(|(when, to)| json!({ "when": when.json(name), "to": name(*to) })).collect();
                let mut node = json!({ "kind": "router", "routes": routes });
                if let Some(to) = default {
                    node["default"] = json!(name(*to));
                }
                node
            }
            What::Gate => json!({ "kind": "human_gate", "prompt": "May I?" }),
            What::Subflow(child) => {
                json!({ "kind": "subflow", "workflow": child.json(&Flow::below(prefix, index)) })
            }
        };
        node["id"] = json!(name(index));
        node["retry"] = json!({ "max": self.retries, "backoffMs": self.backoff_ms });
        if self.go_on {
            node["onFailure"] = json!("continue");
        }
        if let Some(next) = self.next
            && !matches!(self.what, What::Router { .. })
        {
            node["next"] = json!(name(next));
        }
        node
    }
}

/// Name of a member of a fan-out.
pub fn member(index: usize) -> String {
    format!("m{index}")
}

impl When {
    fn json(&self, name: &dyn Fn(usize) -> String) -> Value {
        match self {
            Self::Always => json!({ "type": "always" }),
            Self::Failed(i) => json!({ "type": "node_failed", "node": name(*i) }),
            Self::Succeeded(i) => json!({ "type": "node_succeeded", "node": name(*i) }),
            Self::Verified(i) => json!({ "type": "verified", "node": name(*i) }),
            Self::VisitsLt(i, n) => json!({ "type": "visits_lt", "node": name(*i), "n": n }),
            Self::All(all) => json!({ "type": "and", "all": all.iter().map(|w| w.json(name)).collect::<Vec<_>>() }),
        }
    }
}
