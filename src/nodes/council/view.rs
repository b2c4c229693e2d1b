//! A council as callers see it, made of what its run kept and of what was decided about it. Pure.

mod fit;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

pub use fit::fit;

use super::{
    case::{Case, Said},
    data::{Conflict, Disagreement, INTEGRATION, Merge, Reply, Status, TAIL_CHARS, UserMoved, VoteSource},
    disposition::Disposition,
    transcript::{LastReply, compact_context, final_summary},
};
use crate::model::{
    RunId, RunOutcome, Time,
    spec::{CouncilAgent, CouncilNode},
};

/// A council.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CouncilView {
    /// Its id.
    pub id: String,
    /// The run it is part of.
    pub run_id: RunId,
    /// What is to be done.
    pub task: String,
    /// Its settings.
    pub config: ConfigView,
    /// running, consensus, max_rounds, error, aborted, accepted or rejected.
    pub status: Status,
    /// For programs, when it is an error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_code: Option<String>,
    /// What went wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The round that goes on, or the last one.
    pub round: u32,
    /// Replies by round, in the members' order.
    pub responses: Vec<ResponseView>,
    /// Every vote; advisory.
    pub consensus_votes: Vec<VoteView>,
    /// When it began.
    pub start_time: Time,
    /// When its rounds ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_time: Option<Time>,
    /// What it came to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub final_summary: Option<String>,
    /// Its last two rounds in few lines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compact_context: Option<String>,
    /// Part of its branches' and folders' names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub short_id: Option<String>,
    /// Whether a live process executes it.
    pub live: bool,
    /// Whether workflow_resume would go on with it.
    pub resumable: bool,
    /// Branch that should receive the work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_branch: Option<String>,
    /// Its commit at the start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_commit: Option<String>,
    /// Branch with the work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub integration_branch: Option<String>,
    /// Its commit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub integration_commit: Option<String>,
    /// Where the plan is, relative to the top of the repository.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan_file: Option<String>,
    /// Work of members that did not fit.
    pub conflicts: Vec<Conflict>,
    /// Members whose work is not in integration.
    pub unmerged_members: Vec<String>,
    /// What members agree and disagree on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disagreement: Option<Disagreement>,
    /// Messages that wait for the next round.
    pub pending_injections: Vec<InjectionView>,
    /// Messages that no round was left for.
    pub undelivered_injections: Vec<InjectionView>,
    /// Changes of the user's branch or files while rounds went on.
    pub user_branch_moved: Vec<UserMoved>,
    /// Outcome of the run, once it has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<RunOutcome>,
    /// Bundle behind the verdict.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evidence_id: Option<String>,
    /// US dollars of its members.
    pub cost_usd: f64,
    /// The council that goes on with the work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub continued_by: Option<String>,
    /// The council this one goes on with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub continue_from: Option<String>,
    /// What the caller should know.
    pub warnings: Vec<String>,
    /// What was cut and how to get the rest.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub truncated: Vec<String>,
}

/// A council's settings.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigView {
    /// Members in their order.
    pub agents: Vec<AgentView>,
    /// Most rounds.
    pub max_rounds: u32,
    /// The project.
    pub project_dir: String,
    /// Limit of one send in milliseconds.
    pub agent_timeout_ms: u64,
    /// Most tool turns of a member in a round.
    pub max_turns_per_agent: u32,
    /// Cap of a member over all rounds, in US dollars.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_budget_usd: Option<f64>,
    /// Permission mode of members without one.
    pub default_permission_mode: String,
}

/// A member.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentView {
    /// Its name.
    pub name: String,
    /// Shown beside it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub emoji: String,
    /// Its role.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persona: Option<String>,
    /// Its role when there is no persona.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// Who answers; absent is the default engine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    /// Its model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Agent that engine acp runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acp_agent: Option<String>,
    /// Thinking effort.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effort: Option<String>,
    /// What it may do without asking.
    pub permission_mode: String,
    /// More than one model at once.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ultracode: bool,
}

/// A reply.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResponseView {
    /// The member.
    pub agent: String,
    /// The round.
    pub round: u32,
    /// Its text; the end of it when truncated.
    pub content: String,
    /// Whether there is more.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
    /// Its vote.
    pub consensus: bool,
    /// Where the vote was found.
    pub consensus_source: VoteSource,
    /// It said both in one line.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ambiguous: bool,
    /// Its turn failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The session.
    pub session_key: String,
    /// End of its turn.
    pub timestamp: Time,
    /// Times it was asked again because it said nothing.
    pub empty_retries: u32,
    /// Times it was asked for the whole report.
    pub follow_ups: u32,
    /// Milliseconds.
    pub duration_ms: u64,
    /// US dollars.
    pub cost_usd: f64,
    /// Tip of its branch afterwards.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// The runtime committed what it had left uncommitted.
    pub auto_committed: bool,
    /// Where work is kept that could not be taken over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub salvage_ref: Option<String>,
    /// What became of its work, once the round ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub merge: Option<Merge>,
    /// Paths outside the plan changed in the planning round.
    pub planning_violations: Vec<String>,
}

/// A vote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VoteView {
    /// The member.
    pub agent: String,
    /// The round.
    pub round: u32,
    /// Yes or no.
    pub vote: bool,
    /// Where it was found.
    pub source: VoteSource,
}

impl VoteView {
    /// The vote of a reply.
    pub fn of(reply: &Reply) -> Self {
        Self { agent: reply.agent.clone(), round: reply.round, vote: reply.consensus, source: reply.consensus_source }
    }
}

/// A message of the operator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InjectionView {
    /// What was said.
    pub message: String,
    /// When.
    pub at: Time,
}

/// What of a council is shown.
#[derive(Debug, Clone, Default)]
pub struct Scope {
    /// Only the replies of this round.
    pub round: Option<u32>,
    /// Whole texts of replies, by round and member, where they were read.
    pub texts: BTreeMap<(u32, String), String>,
}

/// Shows a council.
pub fn view(case: &Case, disposition: &Disposition, scope: &Scope) -> CouncilView {
    let (error_code, error) = case.error();
    let status = disposition.over(case.status());
    let over = case.status() != Status::Running;
    let layout = case.layout.as_ref();
    let rejected = disposition.reject.last().map(|rejection| rejection.commit.clone());
    let waiting: Vec<InjectionView> = case
        .injections
        .iter()
        .filter(|injection| injection.round.is_none())
        .map(|injection| InjectionView { message: injection.text.clone(), at: injection.at })
        .collect();
    let (pending, undelivered) = if over { (Vec::new(), waiting) } else { (waiting, Vec::new()) };
    let mut responses = Vec::new();
    for said in case.replies.iter().filter(|said| scope.round.is_none_or(|round| round == said.reply.round)) {
        responses.push(response(case, said, scope));
    }
    CouncilView {
        id: case.id.clone(),
        run_id: case.run_id.clone(),
        task: case.settings.task.clone(),
        config: config(&case.settings, &case.project_dir),
        status,
        error_code,
        error,
        round: case.round(),
        responses,
        consensus_votes: case.replies.iter().map(|said| VoteView::of(&said.reply)).collect(),
        start_time: case.started,
        end_time: case.end_time(),
        final_summary: over.then(|| summary(case, status)),
        compact_context: (!case.replies.is_empty()).then(|| context(case, status)),
        short_id: layout.map(|layout| layout.short_id.clone()),
        live: case.live && !case.run_ended(),
        resumable: case.resumable(),
        base_branch: layout.map(|layout| layout.base_branch.clone()),
        base_commit: layout.map(|layout| layout.base_commit.clone()),
        integration_branch: layout.map(|layout| layout.branch(INTEGRATION)),
        integration_commit: rejected.or_else(|| case.integration_commit()),
        plan_file: layout.map(|layout| layout.plan_file.clone()),
        conflicts: case.conflicts(),
        unmerged_members: case.unmerged(),
        disagreement: case.last_end().map(|end| end.disagreement.clone()),
        pending_injections: pending,
        undelivered_injections: undelivered,
        user_branch_moved: case.ends.values().filter_map(|end| end.user_moved.clone()).collect(),
        outcome: case.outcome,
        evidence_id: case.verdict.as_ref().and_then(|verdict| verdict.evidence_id.clone()),
        cost_usd: case.cost_usd(),
        continued_by: disposition.continued_by.clone(),
        continue_from: case.settings.continue_from.clone(),
        warnings: layout.map(|layout| layout.warnings.clone()).unwrap_or_default(),
        truncated: Vec::new(),
    }
}

fn config(settings: &CouncilNode, project_dir: &str) -> ConfigView {
    let agent = |agent: &CouncilAgent| AgentView {
        name: agent.name.clone(),
        emoji: agent.emoji.clone(),
        persona: agent.persona.clone(),
        prompt: agent.prompt.clone(),
        engine: agent.choice.engine.clone(),
        model: agent.choice.model.clone(),
        acp_agent: agent.choice.acp_agent.clone(),
        effort: agent.choice.effort.clone(),
        permission_mode: agent
            .choice
            .permission_mode
            .clone()
            .unwrap_or_else(|| settings.default_permission_mode.clone()),
        ultracode: agent.ultracode,
    };
    ConfigView {
        agents: settings.agents.iter().map(agent).collect(),
        max_rounds: settings.max_rounds,
        project_dir: project_dir.to_owned(),
        agent_timeout_ms: settings.agent_timeout_ms,
        max_turns_per_agent: settings.max_turns_per_agent,
        max_budget_usd: settings.max_budget_usd,
        default_permission_mode: settings.default_permission_mode.clone(),
    }
}

fn response(case: &Case, said: &Said, scope: &Scope) -> ResponseView {
    let reply = &said.reply;
    let end = case.ends.get(&reply.round);
    let (content, truncated) = match scope.texts.get(&(reply.round, reply.agent.clone())) {
        Some(whole) => (whole.clone(), false),
        None => (last_chars(&reply.tail, TAIL_CHARS).to_owned(), reply.truncated),
    };
    ResponseView {
        agent: reply.agent.clone(),
        round: reply.round,
        content,
        truncated,
        consensus: reply.consensus,
        consensus_source: reply.consensus_source,
        ambiguous: reply.ambiguous,
        error: reply.error.clone(),
        session_key: reply.session_key.clone(),
        timestamp: reply.timestamp,
        empty_retries: reply.empty_retries,
        follow_ups: reply.follow_ups,
        duration_ms: reply.duration_ms,
        cost_usd: reply.cost_usd,
        commit: reply.commit.clone(),
        auto_committed: reply.auto_committed,
        salvage_ref: reply.salvage_ref.clone(),
        merge: end.and_then(|end| end.merges.get(&reply.agent)).cloned(),
        planning_violations: end.and_then(|end| end.planning_violations.get(&reply.agent)).cloned().unwrap_or_default(),
    }
}

fn summary(case: &Case, status: Status) -> String {
    let members: Vec<LastReply<'_>> = case.last_words().into_iter().map(last).collect();
    let rounds = u32::try_from(case.ends.len()).unwrap_or(u32::MAX);
    final_summary(&case.settings.task, status.as_str(), rounds, &case.project_dir, &members)
}

fn last(said: &Said) -> LastReply<'_> {
    LastReply {
        name: &said.reply.agent,
        yes: said.reply.consensus,
        source: said.reply.consensus_source,
        text: said.text.as_ref().map_or(&said.reply.tail, |text| &text.text),
    }
}

fn context(case: &Case, status: Status) -> String {
    let replies: Vec<(u32, &str, &str)> =
        case.replies.iter().map(|said| (said.reply.round, said.reply.agent.as_str(), last(said).text)).collect();
    compact_context(&case.settings.task, case.round(), case.settings.max_rounds, status.as_str(), &replies)
}

/// The last `max` characters of a text.
fn last_chars(text: &str, max: usize) -> &str {
    match max.checked_sub(1).and_then(|back| text.char_indices().rev().nth(back)) {
        Some((start, _)) => text.get(start..).unwrap_or_default(),
        None if max == 0 => "",
        None => text,
    }
}
