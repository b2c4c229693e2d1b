//! One council as its run tells of it: the documents its node kept, and where run and node stand. Pure.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::data::{
    Conflict, Ended, INTEGRATION, Key, Layout, PREFIX, Reply, RoundEnd, RoundStart, Status, rounds_begun,
};
use crate::model::{
    Contract, NodeId, NodeKind, NodeState, RunId, RunOutcome, RunRecord, RunState, Time, WorkflowSpec,
    run::{Injection, NodeRecord, OutputText, Verdict},
    spec::CouncilNode,
};

/// A reply with the beginning of its text and, when that is longer, where the whole text is.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Said {
    /// What is known about it.
    pub reply: Reply,
    /// The text.
    pub text: Option<OutputText>,
}

/// A council.
#[derive(Debug, Clone)]
pub struct Case {
    /// Its id.
    pub id: String,
    /// The run it is part of.
    pub run_id: RunId,
    /// Its node.
    pub node: NodeId,
    /// Which visit of the node.
    pub visit: u32,
    /// Its settings.
    pub settings: CouncilNode,
    /// The project's directory.
    pub project_dir: String,
    /// Where the run stands.
    pub run_state: RunState,
    /// Outcome of the run, once it has ended.
    pub outcome: Option<RunOutcome>,
    /// Verdict in force.
    pub verdict: Option<Verdict>,
    /// Commit of the integration branch that verdict is about.
    pub judged: Option<String>,
    /// The contract of the run.
    pub contract: Option<Contract>,
    /// Whether a live process executes the run.
    pub live: bool,
    /// Where it lies; absent until it was set up.
    pub layout: Option<Layout>,
    /// Beginnings of rounds.
    pub starts: BTreeMap<u32, RoundStart>,
    /// Replies by round, in the members' order.
    pub replies: Vec<Said>,
    /// Ends of rounds.
    pub ends: BTreeMap<u32, RoundEnd>,
    /// End of all rounds.
    pub ended: Option<Ended>,
    /// Words of the operator for this node.
    pub injections: Vec<Injection>,
    /// Commit of the integration branch after later nodes of the run.
    kept: Option<String>,
    /// When it began.
    pub started: Time,
    /// When run or node ended.
    stopped: Option<Time>,
    /// Where the node stands; another visit's when that is not the latest.
    node_state: NodeState,
    /// Failure of the node.
    node_error: Option<String>,
}

/// The id of a visit of a council node.
pub fn id_of(spec: &WorkflowSpec, run: &RunId, node: &NodeId, visit: u32) -> String {
    let councils = spec.nodes.iter().filter(|n| matches!(n.kind, NodeKind::Council(_))).count();
    match (councils, visit) {
        (1, 0 | 1) => run.to_string(),
        (_, 0 | 1) => format!("{run}-{node}"),
        (_, visit) => format!("{run}-{node}-v{visit}"),
    }
}

impl Case {
    /// The council of a visit of a node. `None` when the node is no council.
    pub fn of(
        spec: &WorkflowSpec,
        record: &RunRecord,
        node: &NodeId,
        visit: u32,
        verdict: Option<&Verdict>,
        live: bool,
    ) -> Option<Self> {
        let NodeKind::Council(settings) = &spec.node(node.as_str())?.1.kind else { return None };
        let entry = record.node(node.as_str())?;
        let data = entry.data.as_ref();
        let layout: Option<Layout> = Key::Layout.read(visit, data);
        let rounds = rounds_begun(visit, data);
        let latest = visit >= entry.visits;
        let dir = match &settings.project_dir {
            Some(own) => std::path::Path::new(&record.cwd).join(own).to_string_lossy().into_owned(),
            None => record.cwd.clone(),
        };
        let id = layout.as_ref().map(|l| l.council_id.clone()).filter(|id| !id.is_empty());
        let starts: BTreeMap<u32, RoundStart> =
            (1..=rounds).filter_map(|round| Some((round, Key::Start(round).read(visit, data)?))).collect();
        let first = starts.values().next().map(|start| start.at);
        Some(Self {
            id: id.unwrap_or_else(|| id_of(spec, &record.run_id, node, visit)),
            run_id: record.run_id.clone(),
            node: node.clone(),
            visit,
            settings: settings.clone(),
            project_dir: dir,
            run_state: record.state,
            outcome: record.outcome,
            verdict: verdict.cloned(),
            judged: verdict.and_then(|v| kept(record.node(v.node.as_str())?)),
            contract: spec.contract.clone(),
            live,
            starts,
            replies: replies(visit, data, layout.as_ref(), settings),
            ends: (1..=rounds).filter_map(|round| Some((round, Key::End(round).read(visit, data)?))).collect(),
            ended: Key::Ended.read(visit, data),
            injections: record.injections.iter().filter(|i| i.node == *node).cloned().collect(),
            kept: layout.as_ref().and_then(|layout| kept_below(record, layout)),
            started: first.or(entry.started_at.filter(|_| latest)).unwrap_or(record.created_at),
            stopped: if latest { record.ended_at.or(entry.ended_at) } else { record.ended_at },
            node_state: if latest { entry.state } else { NodeState::Succeeded },
            node_error: if latest { entry.error.clone() } else { None },
            layout,
        })
    }

    /// How its rounds ended, whatever was decided about the work since.
    pub fn status(&self) -> Status {
        if let Some(ended) = self.ended.as_ref().filter(|ended| ended.status != Status::Running) {
            return ended.status;
        }
        match (self.run_state, self.node_state) {
            (RunState::Cancelled, _) | (_, NodeState::Cancelled) => Status::Aborted,
            (RunState::Failed | RunState::Completed, _) | (_, NodeState::Failed | NodeState::Skipped) => Status::Error,
            (
                RunState::Pending | RunState::Running | RunState::AwaitingHuman | RunState::Verifying,
                NodeState::Pending | NodeState::Running | NodeState::AwaitingHuman | NodeState::Succeeded,
            ) => Status::Running,
        }
    }

    /// Code and sentence of what went wrong.
    pub fn error(&self) -> (Option<String>, Option<String>) {
        if self.status() != Status::Error {
            return (None, None);
        }
        let told = self.ended.as_ref().filter(|ended| ended.error_code.is_some() || ended.error.is_some());
        if let Some(ended) = told {
            return (ended.error_code.clone(), ended.error.clone());
        }
        let text = self.node_error.clone();
        let code = text.as_deref().and_then(|text| text.split_once(':')).map(|(word, _)| word);
        let is_code = |word: &&str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
        (code.filter(is_code).map(str::to_owned), text)
    }

    /// Whether the run has ended, later nodes and checks included.
    pub fn run_ended(&self) -> bool {
        self.run_state.is_terminal()
    }

    /// Whether nothing executes it and a resume would.
    pub fn resumable(&self) -> bool {
        !self.run_ended() && !self.live && self.run_state != RunState::AwaitingHuman
    }

    /// The round that goes on, or the last one.
    pub fn round(&self) -> u32 {
        self.starts.keys().next_back().copied().unwrap_or(0)
    }

    /// When its rounds ended.
    pub fn end_time(&self) -> Option<Time> {
        match &self.ended {
            Some(ended) => Some(ended.at),
            None => self.stopped.filter(|_| self.status() != Status::Running),
        }
    }

    /// The last round that ended.
    pub fn last_end(&self) -> Option<&RoundEnd> {
        self.ends.values().next_back()
    }

    /// Commit of the integration branch as the run left it.
    pub fn integration_commit(&self) -> Option<String> {
        let ended = self.ended.as_ref().and_then(|ended| ended.integration.clone());
        let round = || self.last_end().map(|end| end.integration.clone());
        let start = || self.starts.values().next_back().map(|start| start.integration.clone());
        self.kept.clone().or(ended).or_else(round).or_else(start).filter(|commit| !commit.is_empty())
    }

    /// Members whose work is not in integration.
    pub fn unmerged(&self) -> Vec<String> {
        match (&self.ended, self.last_end()) {
            (Some(ended), _) => ended.unmerged.clone(),
            (None, Some(end)) => end.unmerged.clone(),
            (None, None) => Vec::new(),
        }
    }

    /// What does not fit.
    pub fn conflicts(&self) -> Vec<Conflict> {
        self.last_end().map(|end| end.conflicts.clone()).unwrap_or_default()
    }

    /// The last reply of each member, in their order.
    pub fn last_words(&self) -> Vec<&Said> {
        let of = |name: &str| self.replies.iter().rev().find(|said| said.reply.agent == name);
        self.settings.agents.iter().filter_map(|agent| of(&agent.name)).collect()
    }

    /// US dollars of its members.
    pub fn cost_usd(&self) -> f64 {
        let sum: f64 = self.replies.iter().map(|said| said.reply.cost_usd).sum();
        (sum * 1e9).round() / 1e9
    }
}

/// The replies of a visit by round and in the members' order.
fn replies(visit: u32, data: Option<&Value>, layout: Option<&Layout>, settings: &CouncilNode) -> Vec<Said> {
    let prefix = format!("{PREFIX}{visit}:reply:");
    let mut found: Vec<Said> = data
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .filter(|(key, _)| key.starts_with(&prefix))
        .filter_map(|(_, value)| {
            let text = value.get("text").and_then(|text| OutputText::deserialize(text).ok());
            Some(Said { reply: Reply::deserialize(value).ok()?, text })
        })
        .collect();
    let place = |name: &str| match layout {
        Some(layout) if !layout.seats.is_empty() => layout.seats.iter().position(|seat| seat.name == name),
        Some(_) | None => settings.agents.iter().position(|agent| agent.name == name),
    };
    found.sort_by_key(|said| (said.reply.round, place(&said.reply.agent)));
    found
}

/// The commit that a node of the run left on the integration branch it worked on.
fn kept(entry: &NodeRecord) -> Option<String> {
    entry.data.as_ref()?.get(INTEGRATION)?.get("commit")?.as_str().map(str::to_owned)
}

/// The same of the node that ended last, when the run works in this council's integration worktree.
fn kept_below(record: &RunRecord, layout: &Layout) -> Option<String> {
    let here = record.work_top.as_deref().map(std::path::Path::new) == Some(layout.worktree(INTEGRATION).as_path());
    let nodes = record.nodes.iter().filter(|_| here).filter_map(|node| Some((node.ended_at, kept(node)?)));
    nodes.max_by_key(|(at, _)| *at).map(|(_, commit)| commit)
}
