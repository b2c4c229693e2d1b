//! A start that a kill cuts off: the same call can be made again.

use std::time::Duration;

use serde_json::json;

use super::host::Host;
use crate::{
    support::{World, git},
    survival::Random,
};

/// OF-6, surface section 3: a start that was cut by a kill can be made again under the same id or key, also where it
/// had made a worktree; a branch with work in it is never taken for a leftover.
#[test]
fn a_start_that_was_cut_can_be_repeated() {
    let world = World::new();
    let mut random = Random(u64::from(std::process::id()) | 1);
    let spec = |workspace: &str| json!({ "name": "r", "workspace": workspace, "nodes": [{ "id": "one", "kind": "router", "routes": [] }] });
    for round in 0..16 {
        let workspace = ["worktree", "inPlace"][round % 2];
        let start =
            json!({ "spec": spec(workspace), "cwd": world.project(), "idempotencyKey": format!("key {round}") });
        let mut cut = Host::open(&world);
        cut.call("workflow_list", json!({}));
        cut.send_call("workflow_start", start.clone());
        std::thread::sleep(Duration::from_millis(random.below(90)));
        cut.crash();
        let mut host = Host::open(&world);
        let run = host.call("workflow_start", start)["runId"].as_str().unwrap().to_owned();
        if host.call("workflow_status", json!({ "runId": run }))["interrupted"] == true {
            host.call("workflow_resume", json!({ "runId": run }));
        }
        let done = host.until(&run, |v| v["endedAt"].is_string());
        assert_eq!(done["state"], "completed", "round {round}: {done:#}");
    }

    let left = |id: &str| {
        let path = world.home().join("worktrees").join(id);
        git(&world.project(), &["worktree", "add", "-q", "-b", &format!("clawo/{id}"), path.to_str().unwrap()]);
        path
    };
    let mut host = Host::open(&world);
    let start = |id: &str| json!({ "spec": spec("worktree"), "cwd": world.project(), "runId": id });
    left("empty");
    host.call("workflow_start", start("empty"));
    assert_eq!(host.until("empty", |v| v["endedAt"].is_string())["state"], "completed");
    let changed = left("changed");
    std::fs::write(changed.join("work"), "mine").unwrap();
    assert_eq!(host.refused("workflow_start", start("changed")), "store_unavailable");
    assert_eq!(std::fs::read_to_string(changed.join("work")).unwrap(), "mine");
    let committed = left("committed");
    std::fs::write(committed.join("work"), "mine").unwrap();
    git(&committed, &["add", "-A"]);
    git(&committed, &["commit", "-q", "-m", "work"]);
    let tip = git(&committed, &["rev-parse", "HEAD"]);
    assert_eq!(host.refused("workflow_start", start("committed")), "store_unavailable");
    assert_eq!(git(&world.project(), &["rev-parse", "clawo/committed"]), tip);
}
