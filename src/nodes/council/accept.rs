//! Bringing a council's work into the user's branch, once, whatever interrupts it.
//!
//! What is to be done is written down before the branch moves, so that a second call tells how far the first one came
//! and does the rest. Only what the council's record names is removed.

mod cleanup;
mod judge;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;

use cleanup::Kept;
pub(super) use cleanup::present;

use super::{
    case::Case,
    data::{Layout, Status},
    disposition::{Decision, Disposition, Dispositions, Held, Journal, MergeKind, Step},
    ground::{Ground, open},
    refusal::Refusal,
};
use crate::{
    git::{Git, LandRefusal, LandRequest, Repo, Strategy},
    model::{Code, RunOutcome},
    nodes::prompt::cut,
    sys::Clock,
    verify::Verifier,
};

/// How often a branch may move away under an acceptance.
const TRIES: u32 = 3;
/// Characters of the task in the message of a merge.
const SUBJECT_CHARS: usize = 72;
/// Message of the commit that leaves the council's talk out.
const TIDY: &str = "council(accept): leave out plan and reviews";

/// What accepting, rejecting and reviewing work with.
#[derive(Debug, Clone, Copy)]
pub struct Desk<'a> {
    /// Repositories.
    pub git: &'a Git,
    /// What became of councils.
    pub dispositions: &'a Dispositions,
    /// Times.
    pub clock: &'a dyn Clock,
    /// Acceptance of a merge that nothing has checked.
    pub verifier: &'a Verifier,
}

/// How the work is to come in.
#[derive(Debug, Clone)]
pub struct Wish {
    /// How the branch may move.
    pub strategy: Strategy,
    /// Message of a merge commit.
    pub message: Option<String>,
    /// Takes every reason against it that is one of judgement.
    pub force: bool,
}

/// An acceptance as it was made.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AcceptView {
    /// The council.
    pub council_id: String,
    /// Whether the branch moved.
    pub merged: bool,
    /// How.
    pub merge_kind: MergeKind,
    /// The branch.
    pub base_branch: String,
    /// Its commit before.
    pub before: String,
    /// Its commit afterwards.
    pub after: String,
    /// Branches of the council that are gone.
    pub branches_deleted: Vec<String>,
    /// Worktrees of the council that are gone.
    pub worktrees_removed: Vec<String>,
    /// Whether a plan was left out.
    pub plan_deleted: bool,
    /// Reviews that were left out.
    pub reviews_deleted: Vec<String>,
    /// Outcome of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<RunOutcome>,
    /// Whether what came in is what the checks saw, plan and reviews aside; absent when nothing was checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tree_as_verified: Option<bool>,
    /// What could not be removed and why; accept again to try again.
    pub cleanup_errors: Vec<String>,
    /// It was accepted before this call.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub already_accepted: bool,
}

/// An acceptance under way. Its steps are taken in their order; a journal stands between them.
#[derive(Debug)]
struct Acceptance<'a> {
    desk: Desk<'a>,
    case: &'a Case,
    chain: &'a [Layout],
    held: Held,
    disposition: Disposition,
}

/// Merges, cleans up and remembers. `chain` are the councils this one goes on with.
pub async fn accept(desk: Desk<'_>, case: &Case, chain: &[Layout], wish: &Wish) -> Result<AcceptView, Refusal> {
    let mut this = Acceptance::begin(desk, case, chain).await?;
    let before = this.disposition.status == Some(Decision::Accepted);
    if before && this.journal()?.step == Step::Done {
        return this.view(true);
    }
    let repo = this.repo().await?;
    let mut lock = repo.lock().await?;
    this.settle(&repo).await?;
    if !this.disposition.merged() {
        let mut tries = 0;
        loop {
            this.prepare(wish).await?;
            if this.is_new_mix()? {
                // Checks take their time, and the others' branches are none of this one's business meanwhile.
                drop(lock);
                let judged = judge::judge(&this, &repo).await;
                lock = repo.lock().await?;
                if let Err(refusal) = judged {
                    this.forget().await?;
                    return Err(refusal);
                }
            }
            match this.publish(&repo).await? {
                Ok(()) => break,
                Err(LandRefusal::Moved) if tries + 1 < TRIES => tries += 1,
                Err(refusal) => {
                    this.forget().await?;
                    return Err(refused(&refusal, this.case));
                }
            }
        }
        this.merged().await?;
    }
    this.clean_up(&repo).await?;
    drop(lock);
    this.view(before)
}

/// Whether the branch moved in an acceptance that was cut off. Written down, so that nobody asks again.
pub(super) async fn settled(held: &Held, repo: &Repo, disposition: &mut Disposition) -> Result<(), Refusal> {
    let Some(journal) = disposition.accept.as_mut().filter(|journal| journal.step == Step::Prepared) else {
        return Ok(());
    };
    if repo.land_finish(&journal.landing()).await? {
        journal.step = Step::Merged;
    } else {
        disposition.accept = None;
    }
    held.save(disposition).await
}

impl<'a> Acceptance<'a> {
    async fn begin(desk: Desk<'a>, case: &'a Case, chain: &'a [Layout]) -> Result<Self, Refusal> {
        ended(case)?;
        let held = desk.dispositions.lock(&case.id).await?;
        let disposition = held.load().await?;
        Ok(Self { desk, case, chain, held, disposition })
    }

    async fn repo(&self) -> Result<Repo, Refusal> {
        let lost = || Refusal::lost(&self.case.id, "the checkout");
        let layout = self.case.layout.as_ref().ok_or_else(lost)?;
        open(self.desk.git, layout).await?.ok_or_else(lost)
    }

    fn journal(&self) -> Result<&Journal, Refusal> {
        let none = || Refusal::new(Code::Internal, "an acceptance has no journal");
        self.disposition.accept.as_ref().ok_or_else(none)
    }

    async fn settle(&mut self, repo: &Repo) -> Result<(), Refusal> {
        settled(&self.held, repo, &mut self.disposition).await
    }

    /// Everything that speaks against it, then the commit that is to come in, written down.
    async fn prepare(&mut self, wish: &Wish) -> Result<(), Refusal> {
        let case = self.case;
        let ground = Ground::open(self.desk.git, case).await?;
        let reasons = self.reasons(&ground).await?;
        if !reasons.is_empty() && !wish.force {
            let text = format!("the work of council '{}' is not ready: {}", case.id, reasons.join(", "));
            let details = json!({ "reasons": reasons, "unmergedMembers": ground.unmerged().await? });
            return Err(Refusal::new(Code::AcceptNeedsForce, text).with(details));
        }
        let talk = ground.talk(self.chain, &ground.tip).await?;
        let base = &ground.layout.base_commit;
        let commit = ground.repo.restore_from(&ground.tip, base, &talk.paths(), TIDY).await?;
        let message = wish.message.clone().unwrap_or_else(|| subject(case));
        let scratch = self.desk.dispositions.scratch(&case.id);
        let request = LandRequest {
            branch: &ground.layout.base_branch,
            commit: &commit,
            strategy: wish.strategy,
            message: &message,
            scratch: &scratch,
        };
        let landing = ground.repo.land_prepare(&request).await?.map_err(|refusal| refused(&refusal, case))?;
        let (branches, worktrees) = present(&ground.repo, ground.layout, self.chain).await?;
        self.disposition.accept = Some(Journal {
            step: Step::Prepared,
            kind: landing.kind.into(),
            tree_as_verified: self.as_verified(&ground, &landing.after).await?,
            base_branch: landing.branch,
            before: landing.before,
            after: landing.after,
            plan_deleted: !talk.plans.is_empty(),
            reviews_deleted: talk.reviews,
            outcome: case.outcome,
            branches,
            worktrees,
            branches_deleted: Vec::new(),
            worktrees_removed: Vec::new(),
            cleanup_errors: Vec::new(),
            at: self.desk.clock.wall(),
        });
        self.held.save(&self.disposition).await
    }

    /// What the user should have seen before taking this in.
    async fn reasons(&self, ground: &Ground<'_>) -> Result<Vec<String>, Refusal> {
        let mut reasons = Vec::new();
        if self.case.outcome == Some(RunOutcome::Refuted) {
            reasons.push("outcome_refuted".to_owned());
        }
        match self.disposition.over(self.case.status()) {
            status @ (Status::Error | Status::Aborted | Status::Rejected) => {
                reasons.push(format!("status_{}", status.as_str()));
            }
            Status::Running | Status::Consensus | Status::MaxRounds | Status::Accepted => {}
        }
        if !ground.unmerged().await?.is_empty() {
            reasons.push("unmerged_members".to_owned());
        }
        Ok(reasons)
    }

    /// Whether a commit's tree is the one the checks saw, both without the council's talk.
    async fn as_verified(&self, ground: &Ground<'_>, after: &str) -> Result<Option<bool>, Refusal> {
        if self.case.verdict.is_none() {
            return Ok(None);
        }
        let Some(judged) = &self.case.judged else { return Ok(Some(false)) };
        if !ground.repo.has_commit(judged).await? {
            return Ok(Some(false));
        }
        let talk = ground.talk(self.chain, judged).await?;
        let base = &ground.layout.base_commit;
        let judged = ground.repo.restore_from(judged, base, &talk.paths(), TIDY).await?;
        Ok(Some(ground.repo.tree(&judged).await? == ground.repo.tree(after).await?))
    }

    /// Whether what would come in is a mix of checked work with other work, and so is itself checked by nobody.
    fn is_new_mix(&self) -> Result<bool, Refusal> {
        let journal = self.journal()?;
        let checked = self.case.outcome == Some(RunOutcome::Verified);
        Ok(checked && journal.kind == MergeKind::MergeCommit && journal.tree_as_verified == Some(false))
    }

    /// Moves the branch.
    async fn publish(&self, repo: &Repo) -> Result<Result<(), LandRefusal>, Refusal> {
        Ok(repo.land_publish(&self.journal()?.landing()).await?)
    }

    /// Writes down that nothing was moved.
    async fn forget(&mut self) -> Result<(), Refusal> {
        self.disposition.accept = None;
        self.held.save(&self.disposition).await
    }

    /// Writes down that the branch has moved.
    async fn merged(&mut self) -> Result<(), Refusal> {
        if let Some(journal) = &mut self.disposition.accept {
            journal.step = Step::Merged;
        }
        self.held.save(&self.disposition).await
    }

    /// Removes what is the council's, and writes down that it is accepted.
    async fn clean_up(&mut self, repo: &Repo) -> Result<(), Refusal> {
        if let (Some(journal), Some(layout)) = (&mut self.disposition.accept, &self.case.layout) {
            let kept = Kept { run: &self.case.run_id, after: &journal.after };
            let cleaned = cleanup::clean(repo, layout, self.chain, &kept).await;
            let (branches, worktrees) = present(repo, layout, self.chain).await?;
            let gone = |were: &[String], are: &[String]| were.iter().filter(|x| !are.contains(x)).cloned().collect();
            journal.branches_deleted = gone(&journal.branches, &branches);
            journal.worktrees_removed = gone(&journal.worktrees, &worktrees);
            journal.cleanup_errors = cleaned;
            journal.step = if journal.cleanup_errors.is_empty() { Step::Done } else { Step::Merged };
        }
        self.disposition.status = Some(Decision::Accepted);
        self.disposition.at = Some(self.desk.clock.wall());
        self.held.save(&self.disposition).await
    }

    fn view(&self, already_accepted: bool) -> Result<AcceptView, Refusal> {
        let journal = self.journal()?.clone();
        Ok(AcceptView {
            council_id: self.case.id.clone(),
            merged: journal.kind != MergeKind::None,
            merge_kind: journal.kind,
            base_branch: journal.base_branch,
            before: journal.before,
            after: journal.after,
            branches_deleted: journal.branches_deleted,
            worktrees_removed: journal.worktrees_removed,
            plan_deleted: journal.plan_deleted,
            reviews_deleted: journal.reviews_deleted,
            outcome: journal.outcome,
            tree_as_verified: journal.tree_as_verified,
            cleanup_errors: journal.cleanup_errors,
            already_accepted,
        })
    }
}

/// Refuses a council whose run goes on.
pub(super) fn ended(case: &Case) -> Result<(), Refusal> {
    if case.run_ended() {
        return Ok(());
    }
    let text = format!("run '{}' of council '{}' is {}", case.run_id, case.id, case.run_state.as_str());
    Err(Refusal::new(Code::CouncilRunning, text))
}

/// Message of a merge.
fn subject(case: &Case) -> String {
    let line = case.settings.task.split_whitespace().collect::<Vec<_>>().join(" ");
    let line: String = line.chars().take(SUBJECT_CHARS).collect();
    let mut text = format!("council: {line}\n\nCouncil: {}\n", case.id);
    if case.run_id.as_str() != case.id {
        text.push_str(&format!("Run: {}\n", case.run_id));
    }
    text
}

/// What a caller is told of a landing that was refused.
fn refused(refusal: &LandRefusal, case: &Case) -> Refusal {
    let branch = case.layout.as_ref().map(|layout| layout.base_branch.clone()).unwrap_or_default();
    let listed = |paths: &[String]| {
        let shown: Vec<&str> = paths.iter().take(20).map(|path| cut(path, 500).0).collect();
        let more = if paths.len() > 20 { format!(" and {} more", paths.len() - 20) } else { String::new() };
        format!("{}{more}", shown.join(", "))
    };
    match refusal {
        LandRefusal::BranchMissing => Refusal::new(Code::BaseBranchMissing, format!("the branch '{branch}' is gone"))
            .with(json!({ "baseBranch": branch })),
        LandRefusal::Busy(operation) => Refusal::new(
            Code::GitOperationInProgress,
            format!("the work tree of '{branch}' is in the middle of a {operation}"),
        )
        .with(json!({ "operation": operation })),
        LandRefusal::Dirty(dirty) => Refusal::new(
            Code::TreeDirty,
            format!("the work tree of '{branch}' has {} uncommitted changes: {}", dirty.total, listed(&dirty.paths)),
        )
        .with(json!({ "paths": dirty.paths, "count": dirty.total })),
        LandRefusal::NotFastForward => {
            Refusal::new(Code::NotFastForward, format!("'{branch}' has commits that the council does not have"))
        }
        LandRefusal::Conflict(files) => Refusal::new(
            Code::MergeConflict,
            format!("'{branch}' and the council do not go together in {}", listed(files)),
        )
        .with(json!({ "files": files })),
        LandRefusal::WouldOverwrite(paths) => Refusal::new(
            Code::WouldOverwrite,
            format!("ignored files stand where the council adds some: {}", listed(paths)),
        )
        .with(json!({ "paths": paths })),
        LandRefusal::Moved => Refusal::new(
            Code::BaseBranchMoved,
            format!("'{branch}' moved {TRIES} times while it was being merged into"),
        ),
    }
}
