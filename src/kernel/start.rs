//! Starting and continuing runs.

use std::{path::Path, sync::Arc};

use tokio::sync::mpsc;

use super::{
    Error, Inner, Result, Source, StartRequest, account,
    actor::Actor,
    customs,
    live::{COMMANDS_MAX, Live},
    naming::{Keyed, check_key, fresh_id, handle, keyed, named, repeated},
    recovery,
    spec::{self, SUBFLOW_DEPTH_MAX},
    state,
    validate::{self, Valid},
    view::Started,
    workspace,
    writer::Writer,
};
use crate::{
    model::{
        Code, Contract, Event, NodeKind, RunId, RunRecord, RunState, WorkflowSpec,
        run::{ArtifactRef, Baseline, ParentRef},
        spec::{ContractSource, Workspace},
    },
    nodes::{Customs, budget::tighter},
    store::{self, NewRun},
    sys::{ids, tasks},
    verify::{evidence::sha256, protected},
};

/// Where the protected tests of a run are kept.
const PROTECTED: &str = "nodes/protected.json";
/// Looks for the run of another creator of the same id.
const CREATOR_LOOKS: u32 = 20;
/// Pause between two looks; all together a start that failed answers half a second later.
const CREATOR_PAUSE: std::time::Duration = std::time::Duration::from_millis(25);
/// Tries to get the making of a worktree; ten seconds, in which most checkouts are done.
const TURN_TRIES: u32 = 400;
/// Ref of the uncommitted state a run found.
const START_LABEL: &str = "start";

/// Who a new run belongs to and what it may use at most.
#[derive(Debug, Clone, Default)]
pub(super) struct Lineage {
    /// Parent, for a child.
    pub(super) parent: Option<ParentRef>,
    /// What is left of the parent's budget.
    pub(super) budget: crate::model::spec::Budget,
    /// What its change set is counted from; a subflow keeps its parent's.
    pub(super) baseline: Option<Baseline>,
    /// Protected tests of the parent, as the bytes of its artifact.
    pub(super) protected: Option<Vec<u8>>,
}

/// Starts a run a caller asked for.
pub(super) async fn start(kernel: &Arc<Inner>, request: StartRequest) -> Result<Started> {
    if kernel.stop.is_cancelled() {
        return Err(Error::new(Code::Busy, "the server is shutting down; start the run again when it is back"));
    }
    let (inner, asked) = (kernel.clone(), request.clone());
    let checked = tasks::blocking("validate", move || validate::request(&inner, &asked)).await;
    let valid = checked.map_err(|e| super::internal(&e))?.map_err(|problems| validate::refusal(&problems))?;
    let lineage = lineage(kernel, request.parent.as_deref()).await?;
    // Two starts of one name in this process take turns, so that the loser finds the winner's run.
    let _turn = match (&request.run_id, &request.idempotency_key) {
        (None, None) => None,
        _ => Some(kernel.named.lock().await),
    };
    let chosen = match (&request.run_id, &request.idempotency_key) {
        (Some(id), key) => {
            let id = RunId::parse(id).map_err(|e| Error::new(Code::InvalidArgument, e.to_string()))?;
            if let Some(key) = key {
                check_key(key)?;
                if let Some(started) = repeated(kernel, &id, key).await? {
                    return Ok(started);
                }
            }
            id
        }
        (None, Some(key)) => match keyed(kernel, handle(&request.source), key).await? {
            Keyed::Existing(started) => return Ok(*started),
            Keyed::Free(id) => id,
        },
        (None, None) => match handle(&request.source) {
            Some(kind) => named(&ids::handle(kind, kernel.services.clock.wall()))?,
            None => fresh_id(kernel, &valid.spec.name)?,
        },
    };
    let mut valid = valid;
    if let Source::Tool(..) = request.source {
        valid.warnings.extend(super::fanouts::ground(kernel, &valid.spec).await?);
    }
    let created = create(kernel, chosen.clone(), valid, &request, lineage).await;
    match (created, &request.idempotency_key) {
        // Another start with the same key won the race for the same id.
        (Err(e), Some(key)) if e.code == Code::RunExists => match repeated(kernel, &chosen, key).await? {
            Some(started) => Ok(started),
            None => Err(e),
        },
        (created, _) => created,
    }
}

/// The parent a caller inside a run belongs to.
async fn lineage(kernel: &Arc<Inner>, parent: Option<&str>) -> Result<Lineage> {
    let Some(parent) = parent else { return Ok(Lineage::default()) };
    let Ok(run_id) = RunId::parse(parent) else { return Ok(Lineage::default()) };
    // An agent may carry the id of a run of another home; then there is nothing to belong to.
    let Ok(found) = super::query::load(kernel, &run_id).await else { return Ok(Lineage::default()) };
    let depth = found.record.parent.as_ref().map_or(0, |p| p.depth) + 1;
    if depth > SUBFLOW_DEPTH_MAX {
        let text = format!("runs started from inside runs are nested more than {SUBFLOW_DEPTH_MAX} deep");
        return Err(Error::new(Code::BudgetExceeded, text));
    }
    let used = kernel.services.clock.wall().millis().saturating_sub(found.record.created_at.millis());
    // Where it is executed here, its account knows more than its log.
    let meter = match kernel.live.get(&run_id) {
        Some(live) => live.meter,
        None => Arc::new(account::of(&found.spec, &found.record)),
    };
    let budget = meter.left(u64::try_from(used).unwrap_or(0));
    if meter.reached().is_some() {
        return Err(Error::new(Code::BudgetExceeded, "the budget of the run this agent belongs to is used up"));
    }
    Ok(Lineage { parent: Some(ParentRef { run_id, node: None, depth }), budget, ..Lineage::default() })
}

/// Records what the run finds, creates it durably and lets it go.
async fn create(
    kernel: &Arc<Inner>,
    run_id: RunId,
    valid: Valid,
    request: &StartRequest,
    lineage: Lineage,
) -> Result<Started> {
    let Valid { mut spec, warnings } = valid;
    spec.budget = tighter(&spec.budget, &lineage.budget);
    let record = launch(
        kernel,
        run_id,
        spec.clone(),
        lineage,
        request.auto_resume,
        request.idempotency_key.clone(),
        request.customs.clone(),
    )
    .await?;
    Ok(answer(&spec, &record, warnings))
}

/// Creates a run and starts its actor.
pub(super) async fn launch(
    kernel: &Arc<Inner>,
    run_id: RunId,
    spec: WorkflowSpec,
    lineage: Lineage,
    auto_resume: bool,
    idempotency_key: Option<String>,
    customs: Customs,
) -> Result<RunRecord> {
    not_taken(kernel, &run_id).await?;
    let refused = |e: crate::git::Error| Error::new(Code::SpecInvalid, format!("cwd: {e}"));
    let cwd = Path::new(&spec.cwd).to_path_buf();
    let repo = kernel.services.git.open(&cwd).await.map_err(refused)?;
    let mut baseline = Baseline { in_git: repo.is_some(), ..Baseline::default() };
    let mut own = None;
    if let Some(inherited) = lineage.baseline {
        baseline = inherited;
    } else if let Some(repo) = &repo {
        baseline.base_sha = repo.head().await.map_err(refused)?;
        if spec.workspace == Workspace::InPlace {
            let refname = workspace::snapshot_ref(&run_id, START_LABEL);
            match repo.snapshot(&refname, &format!("clawo run {run_id} start")).await {
                Ok(snapshot) => baseline.snapshot = Some(snapshot.commit),
                Err(e) => {
                    // Another process that starts the same id at this moment writes the same ref.
                    not_about_to_be_taken(kernel, &run_id).await?;
                    return Err(refused(e));
                }
            }
        }
    }
    if spec.workspace == Workspace::Worktree {
        let need = |why: &str| Error::new(Code::SpecInvalid, format!("workspace: a worktree needs {why}"));
        let repo = repo.as_ref().ok_or_else(|| need("a git repository at cwd"))?;
        if baseline.base_sha.is_none() {
            return Err(need("at least one commit"));
        }
        let turn = turn(kernel, &run_id).await?;
        let opened = workspace::open(kernel, repo, &run_id, turn).await;
        own = Some(opened.map_err(|e| Error::new(Code::StoreUnavailable, format!("no worktree: {e}")))?);
    }
    // Where the checks run decides what they reach, so a run below the top is recorded from there.
    let place = match &own {
        Some(own) => Some((own.path.clone(), own.work_dir.clone())),
        None => repo.as_ref().map(|r| (r.top().to_path_buf(), cwd.clone())),
    };
    let mut artifacts = Vec::new();
    let bytes = match (lineage.protected, protecting(&spec), place) {
        (Some(bytes), _, _) => Some(bytes),
        (None, Some(contract), Some((top, dir))) => {
            let fs = kernel.services.fs.clone();
            let taken =
                tasks::blocking("protect", move || protected::take_in(fs.as_ref(), &top, &dir, &contract)).await;
            let taken = taken.map_err(|e| super::internal(&e))?;
            let taken =
                taken.map_err(|e| Error::new(Code::StoreUnavailable, format!("the tests cannot be read: {e}")))?;
            Some(serde_json::to_vec(&taken).map_err(|e| super::internal(&e))?)
        }
        _ => None,
    };
    if let Some(bytes) = bytes {
        baseline.protected =
            Some(ArtifactRef { path: PROTECTED.to_owned(), bytes: bytes.len() as u64, sha256: sha256(&bytes) });
        artifacts.push((PROTECTED.to_owned(), bytes));
    }
    let created = Event::RunCreated {
        workflow: spec.name.clone(),
        cwd: spec.cwd.clone(),
        at: kernel.services.clock.wall(),
        baseline: Some(baseline),
        auto_resume,
        parent: lineage.parent,
        workspace_branch: own.as_ref().map(|o| o.branch.clone()),
        workspace_path: own.as_ref().map(|o| o.path.to_string_lossy().into_owned()),
        work_dir: own.as_ref().map(|o| o.work_dir.to_string_lossy().into_owned()),
        idempotency_key,
    };
    let spec = Arc::new(spec);
    let new = NewRun {
        run_id: run_id.clone(),
        spec: spec::write(&spec),
        events: vec![serde_json::to_value(&created).map_err(|e| super::internal(&e))?],
        artifacts,
    };
    let (store, id, parsed) = (kernel.store.clone(), run_id.clone(), spec.clone());
    let made = tasks::blocking("create", move || -> store::Result<_> {
        let claim = store.create(new)?;
        let loaded = store.load(&id)?;
        let mut record = state::empty(&id, &parsed);
        state::apply_stored(&mut record, &parsed, &loaded.lines);
        Ok((claim, record))
    })
    .await
    .map_err(|e| super::internal(&e))?;
    let (claim, record) = match (made, &own, &repo) {
        (Ok(made), _, _) => made,
        (Err(e), Some(own), Some(repo)) => {
            if let Err(e) = repo.worktree_remove(&own.path).await {
                tracing::warn!(%run_id, error = %e, "the worktree of a run that was not created stays");
            }
            return Err(super::store_error(&e));
        }
        (Err(e), _, _) => return Err(super::store_error(&e)),
    };
    execute(kernel, Writer::new(spec, record.clone(), claim), customs);
    Ok(record)
}

/// Refuses an id that a run has.
async fn not_taken(kernel: &Arc<Inner>, run_id: &RunId) -> Result<()> {
    let (store, id) = (kernel.store.clone(), run_id.clone());
    let taken = tasks::blocking("exists", move || store.exists(&id)).await.map_err(|e| super::internal(&e))?;
    if taken.map_err(|e| super::store_error(&e))? {
        return Err(super::store_error(&store::Error::Exists(run_id.clone())));
    }
    Ok(())
}

/// Refuses an id that a run has or gets within a moment, after something that two creators of one id do to each
/// other: the winner's run appears a few syncs after its marks in the repository.
async fn not_about_to_be_taken(kernel: &Arc<Inner>, run_id: &RunId) -> Result<()> {
    for _ in 0..CREATOR_LOOKS {
        not_taken(kernel, run_id).await?;
        tokio::time::sleep(CREATOR_PAUSE).await;
    }
    not_taken(kernel, run_id).await
}

/// The turn to make the worktree of a run that does not exist; the loser of a race finds the winner's run.
async fn turn(kernel: &Arc<Inner>, run_id: &RunId) -> Result<workspace::Making> {
    for _ in 0..TURN_TRIES {
        let making = workspace::making(kernel, run_id).await;
        let making = making.map_err(|e| Error::new(Code::StoreUnavailable, format!("no worktree: {e}")))?;
        not_taken(kernel, run_id).await?;
        if let Some(making) = making {
            return Ok(making);
        }
        tokio::time::sleep(CREATOR_PAUSE).await;
    }
    Err(Error::new(Code::Busy, format!("another process makes the worktree of run '{run_id}'; call again")))
}

/// The contract the protected tests are recorded for: the first that runs a command. `None` protects nothing.
///
/// One record serves every verifier of the run, so all their commands count as reachable.
pub(super) fn protecting(spec: &WorkflowSpec) -> Option<Contract> {
    let inline = spec.nodes.iter().filter_map(|n| match &n.kind {
        NodeKind::Verifier(v) => match &v.contract {
            ContractSource::Inline(contract) => Some(contract),
            ContractSource::Run => None,
        },
        NodeKind::Agent(_)
        | NodeKind::Fanout(_)
        | NodeKind::HumanGate(_)
        | NodeKind::Router(_)
        | NodeKind::Subflow(_)
        | NodeKind::Goal(_)
        | NodeKind::Council(_) => None,
    });
    let mut merged: Option<Contract> = None;
    for contract in spec.contract.iter().chain(inline).filter(|c| c.protect_tests && c.has_command()) {
        match &mut merged {
            None => merged = Some(contract.clone()),
            Some(all) => all.checks.extend(contract.checks.iter().cloned()),
        }
    }
    let subflow = spec.nodes.iter().any(|n| matches!(n.kind, NodeKind::Subflow(_)));
    let empty = Contract { id: None, checks: Vec::new(), fix_on_failure_rounds: 0, protect_tests: true };
    merged.or_else(|| subflow.then_some(empty))
}

/// Starts the actor of a claimed run. The claim is ours, so nobody else executes it.
pub(super) fn execute(kernel: &Arc<Inner>, writer: Writer, customs: Customs) {
    let (sender, commands) = mpsc::channel(COMMANDS_MAX);
    let run = writer.record.run_id.clone();
    let entry = Entry { kernel: kernel.clone(), run: run.clone(), commands: sender.clone() };
    let (inner, record, spec) = (kernel.clone(), writer.watch(), writer.spec.clone());
    let actor = Actor::new(kernel.clone(), writer, customs, commands);
    let (superseded, meter) = (actor.superseded.clone(), actor.meter.clone());
    kernel.live.insert(run, Live { commands: sender, spec, record: record.clone(), superseded, meter });
    let work = async move {
        let run = entry.run.clone();
        actor.run().await;
        drop(entry);
        if record.borrow().state == RunState::AwaitingHuman {
            super::parked::watch(&inner, run);
        }
    };
    tasks::spawn("run", work);
}

/// A run's place among those executed here, given up however its actor ends, by a panic too.
struct Entry {
    kernel: Arc<Inner>,
    run: RunId,
    commands: mpsc::Sender<super::live::Command>,
}

impl Drop for Entry {
    fn drop(&mut self) {
        let now = self.kernel.services.clock.boot();
        self.kernel.live.remove(&self.run, &self.commands, now);
        self.kernel.idle.notify_waiters();
    }
}

/// Claims a run whose owner is gone and goes on with it; `extra` is committed first.
pub(super) async fn take_over<F>(kernel: &Arc<Inner>, run: &RunId, extra: F) -> Result<Writer>
where
    F: FnOnce(&RunRecord) -> Result<Vec<Event>>,
{
    let (inner, id) = (kernel.clone(), run.clone());
    let opened = tasks::blocking("open", move || recovery::open(&inner, &id)).await.map_err(|e| super::internal(&e))?;
    let opened = opened.map_err(|e| super::store_error(&e))?;
    let mut writer = Writer::new(opened.spec, opened.record, opened.claim);
    let events = match extra(&writer.record) {
        Ok(events) => events,
        Err(e) => {
            writer.release().await;
            return Err(e);
        }
    };
    writer.commit(events).await.map_err(|e| super::store_error(&e))?;
    Ok(writer)
}

/// Continues a run.
pub(super) async fn resume(kernel: &Arc<Inner>, run: &RunId, customs: Customs) -> Result<()> {
    if kernel.live.get(run).is_some() {
        return Ok(());
    }
    let found = super::query::load(kernel, run).await?;
    if found.record.state.is_terminal() || found.record.state == RunState::AwaitingHuman {
        return Ok(());
    }
    let spec = found.spec.clone();
    customs::given(&spec, &customs)?;
    let mut before = None;
    let writer = take_over(kernel, run, |record| {
        if record.state.is_terminal() || record.state == RunState::AwaitingHuman {
            return Ok(Vec::new());
        }
        before = record.current_node.as_ref().and_then(|id| record.node(id.as_str())).cloned();
        Ok(recovery::interrupted(&spec, record))
    })
    .await;
    let writer = match writer {
        Ok(writer) => writer,
        // Another caller of this process was faster.
        Err(e) if e.code == Code::RunOwned && kernel.live.get(run).is_some() => return Ok(()),
        Err(e) => return Err(e),
    };
    if writer.record.state.is_terminal() || writer.record.state == RunState::AwaitingHuman {
        writer.release().await;
        return Ok(());
    }
    // What the lost attempt left in the workspace is kept before anything touches it again.
    let mut writer = writer;
    let record = writer.record.clone();
    if let Some((_, node)) = record.current_node.as_ref().and_then(|id| spec.node(id.as_str()))
        && let Some(lost) = before
        && record.node(node.id.as_str()).is_some_and(|entry| entry.attempts > lost.attempts)
    {
        let events = workspace::snapshot(kernel, &record, node, &lost).await;
        writer.commit(events).await.map_err(|e| super::store_error(&e))?;
    }
    execute(kernel, writer, customs);
    Ok(())
}

/// What a start answers.
pub(super) fn answer(spec: &WorkflowSpec, record: &RunRecord, warnings: Vec<crate::model::Problem>) -> Started {
    Started {
        run_id: record.run_id.clone(),
        workflow: record.workflow.clone(),
        state: record.state,
        nodes: spec.nodes.iter().map(|n| n.id.to_string()).collect(),
        warnings,
        existing: false,
    }
}
