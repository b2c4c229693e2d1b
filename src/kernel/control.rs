//! Cancel, steer, approve, delete: from any process, for a run that any process executes.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::{
    Error, Inner, Result,
    live::{Command, Live},
    plan, query, recovery, start, verdict,
    view::Deleted,
    workspace,
};
use crate::{
    model::{
        Code, Event, NodeId, NodeKind, NodeState, RunId, RunRecord, RunState, WorkflowSpec,
        run::{Injection, Steer},
    },
    nodes::{Customs, council::data::rounds_begun, prompt::cut},
    store::InboxItem,
    sys::{ids, tasks},
};

/// How long the owner of a run may take to do what another process asks.
const OWNER_LIMIT: Duration = Duration::from_secs(5);
/// How long a run executed here may take to end after a cancel.
const CANCEL_LIMIT: Duration = Duration::from_secs(30);
/// Longest correction, in bytes.
const STEER_MAX: usize = 16 * 1024;
/// How long a run that has ended may take to put its workspace away.
const PUT_AWAY_LIMIT: Duration = Duration::from_secs(5);
/// Tries at a run that changes hands at this very moment.
const TRIES: u32 = 5;

/// Tries at a run whose actor parks it at this moment: it writes and syncs a little before it lets go.
const PARK_TRIES: u32 = 60;
/// Corrections that may wait for an agent; more than this nobody reads.
const STEERS_MAX: usize = 32;
/// Longest reason of a cancel kept, in bytes.
const REASON_MAX: usize = 1000;

/// Ends a run.
pub(super) async fn cancel(kernel: &Arc<Inner>, run: &RunId, reason: Option<String>) -> Result<()> {
    let reason = reason.map(|r| cut(&r, REASON_MAX).0.to_owned());
    let mut asked = None;
    for _ in 0..TRIES {
        not_superseded(kernel, run, asked.as_ref())?;
        let found = query::load(kernel, run).await?;
        // Lost while it was read, and what was read may be the successor's.
        not_superseded(kernel, run, asked.as_ref())?;
        terminal(&found.record)?;
        if let Some(live) = found.here {
            let (done, answer) = oneshot::channel();
            asked = Some(live.clone());
            if live.commands.send(Command::Cancel { reason: reason.clone(), done }).await.is_ok() {
                match tokio::time::timeout(CANCEL_LIMIT, answer).await {
                    Ok(Ok(())) => return Ok(()),
                    // The actor parked the run, lost it or could not write; what is to be done now the record tells.
                    Ok(Err(_)) => {}
                    Err(_) => {
                        let text = format!("run '{run}' is being cancelled, but has not ended yet; look at its status");
                        return Err(Error::new(Code::Busy, text));
                    }
                }
            }
        } else if found.live {
            let body = json!({ "kind": "cancel", "reason": reason });
            let asked = ask_owner(kernel, run, ids::sortable(), body, |record, _| record.state.is_terminal()).await?;
            match asked {
                Asked::Recorded | Asked::Taken(Owner::Live) => return Ok(()),
                Asked::Taken(Owner::Gone) | Asked::Withdrawn => {}
            }
        } else {
            let why = reason.clone();
            match start::take_over(kernel, run, move |record| cancelled(record, why.as_deref())).await {
                Ok(writer) => {
                    let record = writer.record.clone();
                    writer.release().await;
                    cancelled_alone(kernel, &record, reason).await;
                    return Ok(());
                }
                Err(e) if e.code == Code::RunOwned => {}
                Err(e) => return Err(e),
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Err(Error::new(Code::Busy, "the run changes hands right now; call again"))
}

/// Refuses what was asked of an actor that lost its run meanwhile: the caller means the run as this process had
/// it, and whoever goes on with it, or has made it anew, may stand somewhere else.
fn not_superseded(kernel: &Inner, run: &RunId, asked: Option<&Live>) -> Result<()> {
    let lost = kernel.live.lost_lately(run, kernel.services.clock.boot());
    if lost || asked.is_some_and(|live| live.superseded.is_cancelled()) {
        let text =
            format!("another process took run '{run}' over while it was asked; look at its status and ask again");
        return Err(Error::new(Code::Superseded, text));
    }
    Ok(())
}

/// What an actor does after a cancel, done for a run that had none: its child ends, its worktree is given back.
async fn cancelled_alone(kernel: &Arc<Inner>, record: &RunRecord, reason: Option<String>) {
    cancel_child(kernel, record, reason).await;
    if let Some(path) = &record.workspace_path {
        workspace::close_left(kernel, record, path).await;
    }
}

/// Ends the child of the node a run stands at, when it has one that has not ended.
pub(super) async fn cancel_child(kernel: &Arc<Inner>, record: &RunRecord, reason: Option<String>) {
    let current = record.current_node.as_ref().and_then(|id| record.node(id.as_str()));
    let open = current.filter(|n| matches!(n.state, NodeState::Running | NodeState::Cancelled | NodeState::Failed));
    if let Some(child) = open.and_then(|n| n.child_run_id.clone())
        && let Err(e) = Box::pin(cancel(kernel, &child, reason)).await
        && !matches!(e.code, Code::RunTerminal | Code::RunNotFound)
    {
        tracing::warn!(%child, error = %e, "a child run could not be cancelled");
    }
}

/// What cancelling a run that nobody executes puts on the record.
fn cancelled(record: &RunRecord, reason: Option<&str>) -> Result<Vec<Event>> {
    terminal(record)?;
    let mut events = Vec::new();
    if let Some(id) = &record.current_node
        && let Some(entry) = record.node(id.as_str())
        && matches!(entry.state, NodeState::Running | NodeState::AwaitingHuman)
    {
        events.push(plan::node_state(id, NodeState::Cancelled, entry.visits, entry.attempts));
    }
    events.push(plan::ending(&verdict::cancelled(reason)));
    Ok(events)
}

/// Refuses to change a run that has ended.
fn terminal(record: &RunRecord) -> Result<()> {
    if record.state.is_terminal() {
        let text = format!("run '{}' has already ended as {}", record.run_id, record.state.as_str());
        return Err(Error::new(Code::RunTerminal, text));
    }
    Ok(())
}

/// Queues a correction; gives the node whose prompt is next.
pub(super) async fn steer(kernel: &Arc<Inner>, run: &RunId, text: &str) -> Result<String> {
    if text.trim().is_empty() || text.len() > STEER_MAX {
        return Err(Error::new(Code::InvalidArgument, format!("text: give 1 to {STEER_MAX} bytes")));
    }
    let clock = kernel.services.clock.clone();
    let make = |_: &WorkflowSpec, record: &RunRecord, id: &str| {
        if record.steers.iter().filter(|s| s.applied.is_empty()).count() >= STEERS_MAX {
            let text = format!("{STEERS_MAX} corrections wait already for an agent of run '{run}'");
            return Err(Error::new(Code::Busy, text));
        }
        let waits_for = record.current_node.as_ref().map_or_else(|| "the first agent".to_owned(), ToString::to_string);
        let steer = Steer { id: id.to_owned(), text: text.to_owned(), at: clock.wall(), applied: Vec::new() };
        let body = json!({ "kind": "steer", "text": text });
        Ok(Word { event: Event::Steer { steer }, body, answer: waits_for })
    };
    post(kernel, run, make, |record, id| record.steers.iter().any(|s| s.id == id)).await
}

/// Queues words for the next round of a council; gives that round.
pub(super) async fn inject(kernel: &Arc<Inner>, run: &RunId, node: &NodeId, text: &str) -> Result<u32> {
    let clock = kernel.services.clock.clone();
    let make = |spec: &WorkflowSpec, record: &RunRecord, id: &str| {
        let entry = record.node(node.as_str()).filter(|entry| entry.state == NodeState::Running);
        let Some(entry) = entry.filter(|_| record.current_node.as_ref() == Some(node)) else {
            let text = format!("the council at node '{node}' of run '{run}' is not talking any more");
            return Err(Error::new(Code::RunTerminal, text));
        };
        if record.injections.iter().filter(|i| i.round.is_none()).count() >= STEERS_MAX {
            return Err(Error::new(
                Code::Busy,
                format!("{STEERS_MAX} messages wait already for a round of run '{run}'"),
            ));
        }
        let rounds = rounds_begun(entry.visits, entry.data.as_ref());
        let last = match spec.node(node.as_str()).map(|(_, node)| &node.kind) {
            Some(NodeKind::Council(council)) => council.max_rounds,
            Some(_) | None => 0,
        };
        if rounds >= last {
            let text = format!("round {rounds} is the last one, and it has begun; nobody would read this any more");
            return Err(Error::new(Code::LastRoundRunning, text));
        }
        let injection =
            Injection { id: id.to_owned(), node: node.clone(), text: text.to_owned(), at: clock.wall(), round: None };
        let body = json!({ "kind": "inject", "node": node, "text": text });
        Ok(Word { event: Event::Inject { injection }, body, answer: rounds + 1 })
    };
    post(kernel, run, make, |record, id| record.injections.iter().any(|i| i.id == id)).await
}

/// Lets a run end when what goes on in it has ended.
pub(super) async fn wind_down(kernel: &Arc<Inner>, run: &RunId) -> Result<()> {
    let make = |_: &WorkflowSpec, _: &RunRecord, _: &str| {
        Ok(Word { event: Event::WindDown, body: json!({ "kind": "wind_down" }), answer: () })
    };
    post(kernel, run, make, |record, _| record.winding_down || record.state.is_terminal()).await
}

/// Something to be put on the record of a run that goes on.
struct Word<T> {
    /// The event.
    event: Event,
    /// The same as a request to the process that executes the run.
    body: Value,
    /// What the caller is told.
    answer: T,
}

/// Puts an event on the record of a run that has not ended, wherever it is executed. `make` says what, or why not,
/// given the record and a new id; `seen` finds it on the record.
async fn post<T, M, S>(kernel: &Arc<Inner>, run: &RunId, make: M, seen: S) -> Result<T>
where
    M: Fn(&WorkflowSpec, &RunRecord, &str) -> Result<Word<T>>,
    S: Fn(&RunRecord, &str) -> bool,
{
    let mut asked = None;
    for _ in 0..TRIES {
        not_superseded(kernel, run, asked.as_ref())?;
        let found = query::load(kernel, run).await?;
        // Lost while it was read, and what was read may be the successor's.
        not_superseded(kernel, run, asked.as_ref())?;
        terminal(&found.record)?;
        let id = ids::sortable();
        let word = make(&found.spec, &found.record, &id)?;
        if let Some(live) = found.here {
            let (done, answer) = oneshot::channel();
            asked = Some(live.clone());
            let sent = live.commands.send(Command::Record { event: Box::new(word.event), done }).await;
            if sent.is_ok() && answer.await.is_ok() {
                return Ok(word.answer);
            }
        } else if found.live {
            match ask_owner(kernel, run, id, word.body, &seen).await? {
                // What was taken stays in the run's directory until it is on the record, whoever goes on with it.
                Asked::Recorded | Asked::Taken(_) => return Ok(word.answer),
                Asked::Withdrawn => {}
            }
        } else {
            let event = word.event;
            let queued = start::take_over(kernel, run, move |record| {
                terminal(record)?;
                Ok(vec![event])
            });
            match queued.await {
                Ok(writer) => {
                    writer.release().await;
                    return Ok(word.answer);
                }
                Err(e) if e.code == Code::RunOwned => {}
                Err(e) => return Err(e),
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Err(Error::new(Code::Busy, "the run changes hands right now; call again"))
}

/// What became of a request to the owner of a run.
enum Asked {
    /// It is on the record.
    Recorded,
    /// The owner took it and has not put it on the record yet.
    Taken(Owner),
    /// The run has no owner any more, and the request was taken back.
    Withdrawn,
}

/// Whether the owner that took a request is still there.
enum Owner {
    Live,
    Gone,
}

/// Leaves a request in the run's inbox and waits for the event it becomes.
async fn ask_owner<F>(kernel: &Arc<Inner>, run: &RunId, id: String, body: Value, seen: F) -> Result<Asked>
where
    F: Fn(&RunRecord, &str) -> bool,
{
    let item = InboxItem { id, body };
    let (store, id, put) = (kernel.store.clone(), run.clone(), item.clone());
    tasks::blocking("inbox", move || store.inbox_put(&id, &put))
        .await
        .map_err(|e| super::internal(&e))?
        .map_err(|e| super::store_error(&e))?;
    let deadline = tokio::time::Instant::now() + OWNER_LIMIT;
    let live = loop {
        let found = query::load(kernel, run).await?;
        if seen(&found.record, &item.id) {
            return Ok(Asked::Recorded);
        }
        if !found.live || tokio::time::Instant::now() >= deadline {
            break found.live;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let (store, id, name) = (kernel.store.clone(), run.clone(), item.id.clone());
    let withdrawn = tasks::blocking("inbox", move || store.inbox_withdraw(&id, &name)).await;
    let withdrawn = withdrawn.map_err(|e| super::internal(&e))?.map_err(|e| super::store_error(&e))?;
    match (withdrawn, live) {
        (true, true) => {}
        (true, false) => return Ok(Asked::Withdrawn),
        (false, true) => return Ok(Asked::Taken(Owner::Live)),
        (false, false) => return Ok(Asked::Taken(Owner::Gone)),
    }
    let owner = owner(kernel, run).await;
    Err(Error::new(Code::NotExecutingHere, format!("run '{run}' is executed by {owner}, which does not answer")))
}

/// The owner of a run, for people.
async fn owner(kernel: &Arc<Inner>, run: &RunId) -> String {
    let (store, id) = (kernel.store.clone(), run.clone());
    let lease = tasks::blocking("owner", move || store.load(&id).ok().and_then(|l| l.owner)).await.ok().flatten();
    let field = |key: &str| lease.as_ref().and_then(|l| l.get(key)).cloned().unwrap_or_default();
    let host = field("host").as_str().unwrap_or("an unknown host").to_owned();
    match field("pid").as_u64() {
        Some(pid) => format!("process {pid} on {host}"),
        None => format!("a process on {host}"),
    }
}

/// Answers the open gate and lets the run go on.
pub(super) async fn approve(kernel: &Arc<Inner>, run: &RunId, approved: bool, comment: Option<String>) -> Result<()> {
    if comment.as_ref().is_some_and(|c| c.len() > STEER_MAX) {
        return Err(Error::new(Code::InvalidArgument, format!("comment: give at most {STEER_MAX} bytes")));
    }
    let not_waiting = |record: &RunRecord| {
        let answered = record.nodes.iter().any(|n| n.approved.is_some());
        let what = if answered { "gate already answered" } else { "no gate waits for an answer" };
        Error::new(Code::GateNotWaiting, format!("{what}; the run is {}", record.state.as_str()))
    };
    for _ in 0..PARK_TRIES {
        let found = query::load(kernel, run).await?;
        if found.record.gate.is_none() || found.record.state != RunState::AwaitingHuman {
            return Err(not_waiting(&found.record));
        }
        let words = comment.clone();
        let taken = start::take_over(kernel, run, move |record| {
            recovery::answered(record, approved, words).ok_or_else(|| not_waiting(record))
        });
        match taken.await {
            Ok(writer) if kernel.executes => {
                start::execute(kernel, writer, Customs::default());
                return Ok(());
            }
            Ok(writer) => {
                writer.release().await;
                return Ok(());
            }
            // The actor that parked it lets go at this moment, or another answer is being written.
            Err(e) if e.code == Code::RunOwned => tokio::time::sleep(Duration::from_millis(50)).await,
            Err(e) => return Err(e),
        }
    }
    Err(Error::new(Code::Busy, "the run changes hands right now; call again"))
}

/// Deletes a run nobody executes, its snapshots with it.
pub(super) async fn delete(kernel: &Arc<Inner>, run: &RunId) -> Result<Deleted> {
    let record = query::load(kernel, run).await.ok().map(|found| found.record);
    if let Some(live) = kernel.live.get(run) {
        // The actor of a run that has just ended still puts its workspace away.
        let ended = live.record.borrow().state.is_terminal();
        if !ended || tokio::time::timeout(PUT_AWAY_LIMIT, let_go(kernel, run)).await.is_err() {
            return Err(Error::new(Code::RunLive, format!("run '{run}' is being executed")));
        }
    }
    let (store, id) = (kernel.store.clone(), run.clone());
    let deleted = tasks::blocking("delete", move || store.delete(&id)).await.map_err(|e| super::internal(&e))?;
    deleted.map_err(|e| super::store_error(&e))?;
    if let Some(record) = &record
        && let Ok(Some(repo)) = kernel.services.git.open(std::path::Path::new(&record.cwd)).await
        && let Err(e) = repo.delete_refs(&workspace::snapshot_prefix(run)).await
    {
        tracing::warn!(%run, error = %e, "the run's snapshots stay");
    }
    if let Some(record) = &record
        && let Some(path) = &record.workspace_path
    {
        // What is in it goes to the branch, which stays.
        workspace::close_left(kernel, record, path).await;
    }
    let branch = match &record {
        Some(record) => kept_branch(kernel, record).await,
        None => None,
    };
    Ok(Deleted { run_id: run.clone(), deleted: true, branch })
}

/// Waits until this process executes a run no more.
async fn let_go(kernel: &Inner, run: &RunId) {
    loop {
        let mut idle = std::pin::pin!(kernel.idle.notified());
        idle.as_mut().enable();
        if kernel.live.get(run).is_none() {
            return;
        }
        idle.await;
    }
}

/// The branch of a run's own worktree, unless somebody deleted it meanwhile.
async fn kept_branch(kernel: &Inner, record: &RunRecord) -> Option<String> {
    let branch = record.workspace_branch.clone()?;
    let repo = kernel.services.git.open(std::path::Path::new(&record.cwd)).await.ok()??;
    let own = format!("refs/heads/{branch}");
    let found = repo.refs(own.rsplit_once('/').map_or("refs/heads", |(above, _)| above)).await.ok()?;
    found.iter().any(|(name, _)| *name == own).then_some(branch)
}
