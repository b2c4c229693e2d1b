//! The end of a council: what is left in worktrees, the transcript, the words for the record, where later steps work.

use super::{
    collect,
    data::{Ended, INTEGRATION, Layout, Reply, Status},
    fault::{Fault, NO_BUDGET, TIMEOUT},
    kept::Kept,
    rounds::Rounds,
    shared::{Shared, files},
    transcript::{self, LastReply, Member, Round, Transcript},
};
use crate::{
    git::At,
    nodes::{NewWorkDir, NodeResult, Stop},
    sys::fs::{create_dir_all, write_atomic},
    verify::protected,
};

/// Folder of the transcripts, below the home.
const LOGS: &str = "council-logs";
/// Worktree in which the tests of the base are looked at; no member can be called so.
const BASE: &str = ".base";

impl Rounds {
    /// Ends the attempt with what the rounds came to. `late` says that its limit passed.
    pub(super) async fn finish(mut self, end: Result<Status, Fault>, late: bool) -> NodeResult {
        let shared = std::sync::Arc::clone(&self.shared);
        let mut result = match end {
            Ok(status) => match self.good(status).await {
                Ok(result) => result,
                Err(fault) => self.bad(fault).await,
            },
            Err(Fault::Stopped) if late && !shared.ctx.cancel.is_cancelled() => {
                let ms = shared.limit().as_millis();
                self.bad(Fault::failed(TIMEOUT, format!("the council did not end within {ms} ms"))).await
            }
            Err(Fault::Stopped) => self.stopped().await,
            Err(fault) => self.bad(fault).await,
        };
        result.unkillable = std::mem::take(&mut self.unkillable);
        result.steers_seen = std::mem::take(&mut self.steers).into_iter().collect();
        result
    }

    async fn good(&mut self, status: Status) -> Result<NodeResult, Fault> {
        let shared = std::sync::Arc::clone(&self.shared);
        let work_dir = work_dir(&shared).await?;
        let ended = self.ended(status, None).await;
        self.kept.write_ended(&shared.ctx, ended).await;
        let summary = summary(&shared, &self.kept, status);
        transcript(&shared, &self.kept, Some(&summary)).await;
        shared.log("info", format!("complete: {} after {} rounds", status.as_str(), self.kept.rounds()));
        Ok(NodeResult { output: Some(summary), work_dir: Some(work_dir), ..NodeResult::default() })
    }

    async fn bad(&mut self, fault: Fault) -> NodeResult {
        let shared = std::sync::Arc::clone(&self.shared);
        let (code, text) = match &fault {
            Fault::Stopped => return self.stopped().await,
            Fault::Exhausted(why) => (NO_BUDGET, why.clone()),
            Fault::Failed { code, text, .. } => (*code, text.clone()),
        };
        shared.log("warn", format!("error: {code}: {text}"));
        tidy(&shared, self.kept.next().0, "council(error)").await;
        let ended = self.ended(Status::Error, Some((code, text))).await;
        self.kept.write_ended(&shared.ctx, ended).await;
        let summary = summary(&shared, &self.kept, Status::Error);
        transcript(&shared, &self.kept, Some(&summary)).await;
        NodeResult { status: fault.status(), output: Some(summary), ..NodeResult::default() }
    }

    async fn stopped(&mut self) -> NodeResult {
        let shared = std::sync::Arc::clone(&self.shared);
        let result = NodeResult { status: crate::nodes::Status::Stopped, ..NodeResult::default() };
        let (status, error) = match shared.ctx.stop.get() {
            Some(Stop::Cancelled) => (Status::Aborted, None),
            Some(Stop::Budget) => (Status::Error, Some((NO_BUDGET, "the time of the run is used up".to_owned()))),
            None if shared.ctx.wind_down.is_cancelled() && !shared.ctx.cancel.is_cancelled() => (Status::Aborted, None),
            // The run goes on, here later or elsewhere now: everything stays as it is.
            Some(Stop::Shutdown | Stop::Superseded) | None => return result,
        };
        tidy(&shared, self.kept.next().0, "council(abort)").await;
        let ended = self.ended(status, error).await;
        self.kept.write_ended(&shared.ctx, ended).await;
        transcript(&shared, &self.kept, None).await;
        result
    }

    async fn ended(&self, status: Status, error: Option<(&str, String)>) -> Ended {
        let shared = &self.shared;
        let last = self.kept.ends.values().next_back();
        let (error_code, error) = error.map(|(code, text)| (code.to_owned(), text)).unzip();
        let tip = shared.repo.branch_tip(&shared.layout.branch(INTEGRATION)).await.ok().flatten();
        Ended {
            status,
            error_code,
            error,
            rounds: self.kept.rounds(),
            integration: tip.clone().or_else(|| last.map(|end| end.integration.clone())),
            unmerged: match &tip {
                Some(tip) => unmerged(shared, tip).await,
                None => last.map(|end| end.unmerged.clone()).unwrap_or_default(),
            },
            at: shared.ctx.now(),
        }
    }
}

/// Members whose branch `commit` does not hold, as far as that can be told.
async fn unmerged(shared: &Shared, commit: &str) -> Vec<String> {
    super::place::unmerged(shared, &shared.layout, commit)
        .await
        .map_or_else(|_| Vec::new(), |found| found.into_iter().map(|(name, _)| name).collect())
}

/// Commits what members left, and removes their worktrees where that loses nothing. Branches stay. A failure is told
/// and leaves the worktree alone.
async fn tidy(shared: &Shared, round: u32, word: &str) {
    for seat in &shared.layout.seats {
        let name = seat.name.as_str();
        let message = format!("{word}: {name} - uncommitted work");
        let path = shared.layout.worktree(name);
        let removed = async {
            if shared.repo.worktree_open(&path).await?.is_none() {
                return Ok(());
            }
            let start = shared.layout.start_commit.as_str();
            collect::collect(shared, name, round, start, &message).await?;
            let _lock = shared.repo.lock().await?;
            Ok::<(), Fault>(shared.repo.worktree_remove(&path).await?)
        };
        if let Err(fault) = removed.await {
            shared.log("warn", format!("the worktree of {name} stays: {fault:?}"));
        }
    }
}

/// Where later steps of the run work.
async fn work_dir(shared: &Shared) -> Result<NewWorkDir, Fault> {
    let layout = &shared.layout;
    let _lock = shared.repo.lock().await?;
    let tip = shared.repo.branch_tip(&layout.branch(INTEGRATION)).await?;
    let tip = tip.ok_or_else(|| Fault::lost("the integration branch is gone"))?;
    let (repo, _) = shared.worktree(INTEGRATION, &tip).await?;
    let protected = match &shared.ctx.attempt.council.protecting {
        Some(contract) => Some(tests_of_base(shared, contract).await?),
        None => None,
    };
    Ok(NewWorkDir {
        path: layout.project(INTEGRATION),
        top: repo.top().to_path_buf(),
        base: layout.base_commit.clone(),
        protected,
    })
}

/// The protected tests of the commit that the work began at.
async fn tests_of_base(shared: &Shared, contract: &crate::model::Contract) -> Result<Vec<u8>, Fault> {
    let path = shared.layout.folder().join(BASE);
    // A crash may have left it.
    if shared.repo.worktree_open(&path).await?.is_some() {
        shared.repo.worktree_remove(&path).await?;
    }
    let base = shared.repo.worktree_at(&path, At::Detached(&shared.layout.base_commit)).await?;
    let (fs, top, contract) = (shared.ctx.services.fs.clone(), base.top().to_path_buf(), contract.clone());
    let prefix = shared.layout.prefix.clone();
    let taken = files("protect", move || {
        let dir = if prefix.is_empty() { top.clone() } else { top.join(&prefix) };
        protected::take_in(fs.as_ref(), &top, &dir, &contract)
    });
    let taken = taken.await.and_then(|tests| serde_json::to_vec(&tests).map_err(|e| e.to_string()));
    if let Err(e) = shared.repo.worktree_remove(&path).await {
        shared.log("warn", format!("{} stays: {e}", path.display()));
    }
    taken.map_err(|e| Fault::failed("git_failed", format!("the tests of the base cannot be read: {e}")))
}

/// What the council came to, in words.
fn summary(shared: &Shared, kept: &Kept, status: Status) -> String {
    let last = |name: &str| -> Option<&Reply> { kept.replies.values().rev().find_map(|round| round.get(name)) };
    let members: Vec<LastReply<'_>> = shared
        .layout
        .seats
        .iter()
        .filter_map(|seat| {
            let reply = last(&seat.name)?;
            let text = kept.text(reply.round, &reply.agent);
            Some(LastReply { name: &seat.name, yes: reply.consensus, source: reply.consensus_source, text })
        })
        .collect();
    let dir = shared.layout.user_dir();
    transcript::final_summary(&shared.node.task, status.as_str(), kept.rounds(), &dir.to_string_lossy(), &members)
}

/// Writes the transcript anew. For people only: what goes wrong is told, and nothing else.
pub(super) async fn transcript(shared: &Shared, kept: &Kept, summary: Option<&str>) {
    let text = render(shared, kept, summary);
    let text = shared.ctx.services.redactor.text(&text);
    let dir = shared.ctx.services.config.home.join(LOGS);
    let path = dir.join(format!("{}.md", shared.layout.council_id));
    let fs = shared.ctx.services.fs.clone();
    let written = files("transcript", move || {
        create_dir_all(fs.as_ref(), &dir)?;
        write_atomic(fs.as_ref(), &path, text.as_bytes())
    });
    if let Err(e) = written.await {
        shared.log("warn", format!("the transcript was not written: {e}"));
    }
}

fn render(shared: &Shared, kept: &Kept, summary: Option<&str>) -> String {
    let layout: &Layout = &shared.layout;
    let rounds: Vec<Round<'_>> = kept
        .starts
        .values()
        .map(|start| {
            let end = kept.ends.get(&start.round);
            let replies = kept.replies.get(&start.round);
            let members = layout.seats.iter().filter_map(|seat| {
                let reply = replies?.get(&seat.name)?;
                Some(Member {
                    name: &seat.name,
                    emoji: &seat.emoji,
                    reply: kept.text(start.round, &seat.name),
                    yes: reply.consensus,
                    source: reply.consensus_source,
                    ambiguous: reply.ambiguous,
                    error: reply.error.as_deref(),
                    merge: end.and_then(|end| end.merges.get(&seat.name)),
                })
            });
            Round {
                round: start.round,
                injections: start.injections.iter().map(|i| i.text.as_str()).collect(),
                members: members.collect(),
                disagreement: end.map(|end| &end.disagreement),
            }
        })
        .collect();
    let dir = layout.user_dir();
    let ended = kept.ended.as_ref();
    transcript::render(&Transcript {
        council_id: &layout.council_id,
        project_dir: &dir.to_string_lossy(),
        task: &shared.node.task,
        status: ended.map_or(Status::Running, |ended| ended.status).as_str(),
        error: ended.and_then(|ended| ended.error.as_deref()),
        started: kept.starts.values().next().map_or_else(|| shared.ctx.now(), |start| start.at),
        ended: ended.map(|ended| ended.at),
        rounds: &rounds,
        summary,
    })
}

/// Words that were kept of an attempt that ended well, for one that a crash made repeat its end.
pub(super) fn is_good(status: Status) -> bool {
    matches!(status, Status::Consensus | Status::MaxRounds)
}
