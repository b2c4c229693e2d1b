//! Listings of the kernel: what one process is shown of runs that others execute.

use std::sync::Arc;

use claw_orchestrator::{
    kernel::{Kernel, ListQuery, view::ListEntry},
    model::{RunId, RunState},
    store::{FileStore, Options, Store},
    sys::{RealFs, SystemClock},
};
use serde_json::{Value, json};

use crate::support::{World, finished, until};

fn routers(name: &str) -> Value {
    json!({ "name": name, "nodes": [{ "id": "r", "kind": "router", "routes": [] }] })
}

fn gate() -> Value {
    json!({ "name": "g", "nodes": [{ "id": "ask", "kind": "human_gate", "prompt": "?" }] })
}

async fn list(kernel: &Kernel) -> Vec<ListEntry> {
    kernel.list(ListQuery::default()).await.unwrap().runs
}

/// The store of another process.
fn other_store(world: &World) -> FileStore {
    let options = Options {
        home: world.home(),
        wf_dir: world.home().join("wf"),
        fs: Arc::new(RealFs),
        clock: Arc::new(SystemClock),
        instance: "other".to_owned(),
        host: claw_orchestrator::sys::host_name(),
        pid: std::process::id(),
        min_free: 0,
    };
    FileStore::open(options).unwrap()
}

/// P6: whether a run is executed leaves no trace in its log; what a listing once saw of that is not believed later.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_seen_between_its_end_and_its_release_is_not_live_for_good() {
    let world = World::bare();
    let kernel = world.kernel().await;
    let run = world.run(&kernel, routers("w")).await.run_id;
    let claim = other_store(&world).claim(&RunId::parse(run.as_str()).unwrap()).unwrap();
    for _ in 0..2 {
        let listed = list(&kernel).await;
        assert_eq!((listed[0].state, listed[0].live), (Some(RunState::Completed), true), "{listed:#?}");
    }
    claim.release().unwrap();
    let listed = list(&kernel).await;
    assert_eq!((listed[0].state, listed[0].live, listed[0].interrupted), (Some(RunState::Completed), false, false));
}

/// P6: a run that another process makes, parks, ends or deletes shows at once.
#[tokio::test(flavor = "multi_thread")]
async fn what_other_processes_do_shows_at_once() {
    let world = World::bare();
    let (here, there) = (world.kernel().await, world.kernel().await);
    assert!(list(&here).await.is_empty());
    let first = world.run(&there, routers("w")).await.run_id;
    let parked = there.start(world.start(gate())).await.unwrap().run_id;
    finished(&there, parked.as_str()).await;
    until(&here, parked.as_str(), |view| !view.live).await;
    let shown = |runs: &[ListEntry]| {
        runs.iter().map(|r| (r.run_id.clone(), r.state, r.live, r.interrupted)).collect::<Vec<_>>()
    };
    let newest_first = [
        (parked.clone(), Some(RunState::AwaitingHuman), false, false),
        (first.clone(), Some(RunState::Completed), false, false),
    ];
    assert_eq!(shown(&list(&here).await), newest_first);
    let only = |state| ListQuery { state: Some(state), limit: 10, ..ListQuery::default() };
    let waiting = here.list(only(RunState::AwaitingHuman)).await.unwrap().runs;
    assert_eq!(waiting.iter().map(|r| &r.run_id).collect::<Vec<_>>(), [&parked]);

    there.cancel(parked.as_str(), None).await.unwrap();
    assert!(here.list(only(RunState::AwaitingHuman)).await.unwrap().runs.is_empty());
    let cancelled = here.list(only(RunState::Cancelled)).await.unwrap().runs;
    assert_eq!(cancelled.iter().map(|r| &r.run_id).collect::<Vec<_>>(), [&parked]);
    there.delete(parked.as_str()).await.unwrap();
    assert_eq!(list(&here).await.iter().map(|r| r.run_id.clone()).collect::<Vec<_>>(), [first]);
}

/// What this process executes is shown as it was last committed, without the disk.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_executed_here_is_live() {
    let world = World::bare();
    let kernel = world.kernel().await;
    let model = world.scenario("slow", json!([{ "steps": [{ "sleep": 60_000 }, { "say": "done" }] }]));
    let spec = json!({ "name": "s", "nodes": [crate::support::agent("slow", "x", &model)] });
    let run = kernel.start(world.start(spec)).await.unwrap().run_id;
    until(&kernel, run.as_str(), |view| view.current_node.as_deref() == Some("slow")).await;
    for kernel in [&kernel, &world.kernel().await] {
        let listed = list(kernel).await;
        let entry = &listed[0];
        assert_eq!((entry.state, entry.live, entry.interrupted), (Some(RunState::Running), true, false), "{entry:#?}");
        assert_eq!(entry.current_node.as_deref(), Some("slow"));
    }
    let ended = kernel.cancel(run.as_str(), None).await.unwrap();
    assert_eq!(ended.state, RunState::Cancelled);
    assert_eq!(list(&kernel).await[0].state, Some(RunState::Cancelled));
}
