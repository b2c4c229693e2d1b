//! The rounds: who starts from where, turns at once, merges, and whether there is another one.
//!
//! ```text
//!   sync, start on record --> turns, each on record --> merges, end on record --> all agree? last? --+
//!      ^                                                                                             |
//!      +------------------------------------------- pause -------------------------------------------+
//! ```

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use serde_json::json;
use tokio::task::JoinSet;

use super::{
    briefing,
    data::{Conflict, RoundEnd, RoundStart, Status, UserMoved, VoteSource},
    ending,
    fault::{ALL_FAILED, Fault, NO_BUDGET, recorded},
    kept::Kept,
    member::{self, Seating, Turned},
    merging, place, resume,
    session::over,
    shared::Shared,
    sync,
};
use crate::{
    model::{Code, run::Waiting},
    nodes::{Report, budget::ROUNDING},
};

/// Silent rounds in a row after which nobody is asked any more.
const SILENT_MAX: usize = 2;
/// Who waits between two rounds.
const PAUSE: &str = "council";

/// The rounds of one attempt.
#[derive(Debug)]
pub(super) struct Rounds {
    /// What every part works with.
    pub(super) shared: Arc<Shared>,
    /// What is on the record.
    pub(super) kept: Kept,
    /// Corrections that members were told.
    pub(super) steers: BTreeSet<String>,
    /// Processes that could not be ended.
    pub(super) unkillable: Vec<String>,
    /// Silent rounds of an attempt that failed, which this one need not answer for.
    pub(super) forgiven: usize,
}

impl Rounds {
    /// Goes on until the rounds end.
    pub(super) async fn run(&mut self) -> Result<Status, Fault> {
        let shared = Arc::clone(&self.shared);
        let ctx = &shared.ctx;
        let (mut round, mut begun) = self.kept.next();
        if round == 1 && !begun {
            place::make(&shared).await?;
        }
        shared.log(
            "info",
            format!("session-start: council {}, {} members", shared.layout.council_id, shared.layout.seats.len()),
        );
        // The last round may have ended just before a crash.
        if let Some(status) = self.judge(round.saturating_sub(1)).await? {
            return Ok(status);
        }
        loop {
            shared.go_on()?;
            if ctx.wind_down.is_cancelled() {
                return Err(Fault::Stopped);
            }
            if let Some(why) = ctx.budget.reached() {
                return Err(Fault::Exhausted(why));
            }
            let (start, salvage) = if begun {
                let finished = self.kept.replies.get(&round).cloned().unwrap_or_default();
                let start = self.kept.starts.get(&round).cloned().unwrap_or_default();
                self.votes_again(&finished).await;
                let salvage = resume::restore(&shared, &start, &finished).await?;
                // They were this round's when it began, whatever the record says of them.
                self.taken(&start).await;
                (start, salvage)
            } else {
                self.affordable()?;
                (self.begin(round).await?, BTreeMap::new())
            };
            shared.log("info", format!("round-start: round {round} of {}", shared.node.max_rounds));
            self.turns(&start, salvage, begun).await?;
            self.conclude(&start).await?;
            if let Some(status) = self.judge(round).await? {
                return Ok(status);
            }
            self.pause().await?;
            (round, begun) = (round + 1, false);
        }
    }

    /// Fails when no member has money left.
    fn affordable(&self) -> Result<(), Fault> {
        let Some(cap) = self.shared.node.max_budget_usd else { return Ok(()) };
        let spent = |name: &String| self.kept.spent.get(name).copied().unwrap_or(0.0);
        let names = self.shared.layout.seats.iter().map(|seat| &seat.name);
        if names.clone().any(|name| cap - spent(name) > ROUNDING) {
            return Ok(());
        }
        let each: Vec<String> = names.map(|name| format!("{name}: {}", over(spent(name), cap))).collect();
        Err(Fault::hopeless(NO_BUDGET, format!("no member can begin another turn: {}", each.join("; "))))
    }

    /// Brings everybody up to date and puts the start of a round on the record.
    async fn begin(&mut self, round: u32) -> Result<RoundStart, Fault> {
        let shared = Arc::clone(&self.shared);
        let ctx = &shared.ctx;
        let open =
            round.checked_sub(1).and_then(|last| self.kept.ends.get(&last)).map_or(&[][..], |end| &end.conflicts);
        let open: BTreeSet<&str> = open.iter().map(|conflict| conflict.member.as_str()).collect();
        let (integration, members) = sync::all(&shared, round, &open).await?;
        let injections = ctx.injections.borrow().clone();
        let mut start = RoundStart {
            round,
            integration,
            members,
            injections,
            base: shared.repo.branch_tip(&shared.layout.base_branch).await?,
            user_tree: user_tree(&shared).await,
            at: ctx.now(),
        };
        self.kept.write_start(ctx, start.clone()).await;
        recorded(ctx).await?;
        // Whoever spoke before the start was on the record was promised this round.
        let late: Vec<_> = ctx
            .injections
            .borrow()
            .iter()
            .filter(|i| start.injections.iter().all(|known| known.id != i.id))
            .cloned()
            .collect();
        if !late.is_empty() {
            start.injections.extend(late);
            self.kept.write_start(ctx, start.clone()).await;
        }
        self.taken(&start).await;
        recorded(ctx).await?;
        Ok(start)
    }

    /// Tells the record which words the round took.
    async fn taken(&self, start: &RoundStart) {
        let ctx = &self.shared.ctx;
        let open: BTreeSet<String> = ctx.injections.borrow().iter().map(|i| i.id.clone()).collect();
        let ids: Vec<String> = start.injections.iter().map(|i| i.id.clone()).filter(|id| open.contains(id)).collect();
        if !ids.is_empty() {
            ctx.report.send(Report::Injected { ids, round: start.round }).await;
        }
    }

    /// Gives the votes again that a crash kept from the record.
    async fn votes_again(&self, finished: &BTreeMap<String, super::data::Reply>) {
        for reply in finished.values() {
            let vote = self.vote(reply);
            if !self.shared.ctx.attempt.council.votes.contains(&vote) {
                self.shared.ctx.report.send(Report::Vote(vote)).await;
            }
        }
    }

    fn vote(&self, reply: &super::data::Reply) -> serde_json::Value {
        let vote = if reply.consensus { "YES" } else { "NO" };
        json!({
            "council": self.shared.layout.council_id, "agent": reply.agent, "round": reply.round, "vote": vote,
            "source": reply.consensus_source,
        })
    }

    /// Lets all members that have not finished take their turns, as many at once as there are free sessions.
    async fn turns(&mut self, start: &RoundStart, salvage: BTreeMap<String, String>, again: bool) -> Result<(), Fault> {
        let shared = Arc::clone(&self.shared);
        let common = briefing::common(&shared, &self.kept, start).await?;
        self.steers.extend(common.steers().map(str::to_owned));
        let mut waiting = VecDeque::new();
        for (index, seat) in shared.layout.seats.iter().enumerate() {
            if self.kept.replies.get(&start.round).is_some_and(|replies| replies.contains_key(&seat.name)) {
                continue;
            }
            let plain = format!("{}-{}-r{}", shared.layout.council_id, seat.name, start.round);
            waiting.push_back(Seating {
                index,
                round: start.round,
                session: if again { format!("{plain}-a{}", shared.ctx.attempt.attempt) } else { plain },
                prompt: common.prompt(&shared, &self.kept, start, index).await,
                charter: common.charter(&shared, index),
                spent: self.kept.spent.get(&seat.name).copied().unwrap_or(0.0),
                commit: start.members.get(&seat.name).unwrap_or(&start.integration).clone(),
                salvage: salvage.get(&seat.name).cloned(),
            });
        }
        let room = free(&shared).await;
        let mut running: JoinSet<Turned> = JoinSet::new();
        let mut fault = None;
        loop {
            while fault.is_none() && running.len() < room && !shared.cancel.is_cancelled() {
                let Some(seating) = waiting.pop_front() else { break };
                running.spawn(member::take(Arc::clone(&shared), seating));
            }
            let Some(joined) = running.join_next().await else { break };
            match joined {
                Ok(turned) => {
                    self.unkillable.extend(turned.unkillable);
                    // The others go on: what they do must be over before anything else happens here.
                    fault = fault.or(turned.fault);
                    if let Some((reply, text)) = turned.reply {
                        self.finished(reply, text).await;
                    }
                }
                Err(e) => {
                    fault = Some(Fault::failed(Code::Internal.as_str(), format!("a member's turn broke off: {e}")));
                }
            }
        }
        shared.go_on()?;
        match fault {
            Some(fault) => Err(fault),
            None => recorded(&shared.ctx).await,
        }
    }

    /// Puts a finished member on the record.
    async fn finished(&mut self, reply: super::data::Reply, text: String) {
        let shared = Arc::clone(&self.shared);
        let vote = self.vote(&reply);
        let (word, source) = (if reply.consensus { "YES" } else { "NO" }, reply.consensus_source);
        let level = if matches!(source, VoteSource::Strict) { "info" } else { "warn" };
        let source = match source {
            VoteSource::Strict => "strict",
            VoteSource::Variant => "variant",
            VoteSource::None => "none",
        };
        let failed = reply.error.as_ref().map(|why| format!("; error: {why}")).unwrap_or_default();
        let line = format!("agent-complete: round {}, {} voted {word} ({source}){failed}", reply.round, reply.agent);
        *self.kept.spent.entry(reply.agent.clone()).or_default() += reply.cost_usd;
        self.kept.write_reply(&shared.ctx, reply, text).await;
        shared.ctx.report.send(Report::Vote(vote)).await;
        shared.log(level, line);
    }

    /// Merges the members' work and puts the end of the round on the record.
    async fn conclude(&mut self, start: &RoundStart) -> Result<(), Fault> {
        let shared = Arc::clone(&self.shared);
        let replies = self.kept.replies.get(&start.round).cloned().unwrap_or_default();
        let earlier: Vec<Conflict> =
            self.kept.ends.values().next_back().map(|end| end.conflicts.clone()).unwrap_or_default();
        let merged = merging::merge(&shared, start, &earlier).await?;
        let (disagreement, planning_violations) = merging::compare(&shared, start, &replies, &merged.conflicts).await?;
        let said = |reply: &super::data::Reply| reply.error.is_none() && !reply.tail.trim().is_empty();
        let end = RoundEnd {
            round: start.round,
            merges: merged.merges,
            conflicts: merged.conflicts,
            planning_violations,
            disagreement,
            integration: merged.integration,
            unmerged: merged.unmerged,
            user_moved: user_moved(&shared, start).await?,
            replied: replies.values().any(said),
            lost_plans: merged.lost_plans,
        };
        let votes = &end.disagreement.votes;
        let count = |names: &Vec<String>| names.len();
        shared.log(
            "info",
            format!(
                "round-end: round {}, {} yes, {} no, {} without a vote; {} merged, {} in conflict",
                end.round,
                count(&votes.yes),
                count(&votes.no),
                count(&votes.none),
                end.merges.values().filter(|m| matches!(m.status, super::data::MergeStatus::Merged)).count(),
                end.conflicts.len(),
            ),
        );
        self.kept.write_end(&shared.ctx, end).await;
        recorded(&shared.ctx).await?;
        ending::transcript(&shared, &self.kept, None).await;
        Ok(())
    }

    /// Whether the rounds end with this one.
    async fn judge(&self, round: u32) -> Result<Option<Status>, Fault> {
        let Some(end) = self.kept.ends.get(&round) else { return Ok(None) };
        let replies = self.kept.replies.get(&round);
        let yes = |name: &String| replies.and_then(|r| r.get(name)).is_some_and(|reply| reply.consensus);
        let agreed = self.shared.layout.seats.iter().all(|seat| yes(&seat.name)) && end.unmerged.is_empty();
        if agreed {
            // What was said before now is here after this.
            recorded(&self.shared.ctx).await?;
            if self.shared.ctx.injections.borrow().is_empty() || round >= self.shared.node.max_rounds {
                return Ok(Some(Status::Consensus));
            }
        }
        if self.kept.silent().saturating_sub(self.forgiven) >= SILENT_MAX {
            let text = format!("no member answered in {SILENT_MAX} rounds in a row");
            return Err(Fault::failed(ALL_FAILED, text));
        }
        Ok((round >= self.shared.node.max_rounds).then_some(Status::MaxRounds))
    }

    /// Waits between two rounds.
    async fn pause(&self) -> Result<(), Fault> {
        let ctx = &self.shared.ctx;
        let pause = ctx.services.config.round_pause;
        if pause.is_zero() {
            return Ok(());
        }
        let until = ctx.now().plus_millis(i64::try_from(pause.as_millis()).unwrap_or(i64::MAX));
        let detail = "the next round begins in a moment".to_owned();
        let waiting = Waiting { kind: "pause".to_owned(), since: ctx.now(), until: Some(until), detail };
        ctx.report.send(Report::Wait { who: PAUSE.to_owned(), waiting: Some(waiting) }).await;
        tokio::select! {
            () = self.shared.cancel.cancelled() => {}
            () = ctx.wind_down.cancelled() => {}
            () = tokio::time::sleep(pause) => {}
        }
        ctx.report.send(Report::Wait { who: PAUSE.to_owned(), waiting: None }).await;
        self.shared.go_on()
    }
}

/// How many members may have a session at once.
async fn free(shared: &Shared) -> usize {
    let pool = &shared.ctx.services.pool;
    match pool.in_use_by_home().await {
        Ok(used) => pool.max().saturating_sub(used).max(1),
        Err(e) => {
            shared.log("warn", format!("the sessions in use cannot be counted: {e}"));
            1
        }
    }
}

/// Digest of the user's tree. One that cannot be taken is told, and then nothing is said about the tree.
async fn user_tree(shared: &Shared) -> Option<String> {
    let digest = shared.repo.digest().await;
    digest.inspect_err(|e| shared.log("warn", format!("the user's tree cannot be looked at: {e}"))).ok()
}

/// What became of the user's branch and tree since the start of the round.
async fn user_moved(shared: &Shared, start: &RoundStart) -> Result<Option<UserMoved>, Fault> {
    let branch = &shared.layout.base_branch;
    let (from, to) =
        (start.base.clone().unwrap_or_default(), shared.repo.branch_tip(branch).await?.unwrap_or_default());
    let tree = match &start.user_tree {
        Some(before) => user_tree(shared).await.is_some_and(|now| now != *before),
        None => false,
    };
    if from == to && !tree {
        return Ok(None);
    }
    shared.log("warn", format!("the user's branch {branch} or its tree changed in round {}", start.round));
    // With another commit the digest is another one anyway.
    Ok(Some(UserMoved { tree: from == to, from, to, round: start.round }))
}
