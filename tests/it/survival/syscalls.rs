//! What a commit asks of the system: one write and one sync of the log, and no other sync.

use std::process::Command;

use serde_json::json;

use super::{log_of, possible, say, succeeds};
use crate::{
    server::host::{Host, command},
    support::World,
};

/// Everything that makes data durable.
const SYNCS: [&str; 6] = ["fsync(", "fdatasync(", "sync_file_range(", "syncfs(", "msync(", "sync("];
/// Everything that changes a file's bytes.
const WRITES: [&str; 5] = ["write(", "pwrite64(", "writev(", "pwritev(", "pwritev2("];

/// P1, store proof 4: the calls of a run of twenty nodes that do no work, as the kernel saw them.
#[test]
fn a_commit_is_one_write_and_one_sync() {
    if !possible("syscalls", succeeds("strace", &["-V"]), "there is no strace (Debian package strace)") {
        return;
    }
    let world = World::bare();
    let file = world.root().join("calls");
    let plain = command(&world, &["mcp"]);
    let mut traced = Command::new("strace");
    let calls = "trace=write,pwrite64,writev,pwritev,pwritev2,fsync,fdatasync,sync_file_range,sync,syncfs,msync,\
                 rename,renameat,renameat2";
    traced.args(["-D", "-f", "-y", "-qq", "-s", "16", "-e", calls, "-e", "signal=none", "-o"]).arg(&file);
    traced.arg(plain.get_program()).args(plain.get_args());
    traced.env_clear().envs(plain.get_envs().filter_map(|(k, v)| Some((k, v?)))).current_dir(world.project());
    let mut host = Host::silent(traced, &world.root().join("server.log"));
    host.read();
    host.initialize("2025-11-25");
    let nodes: Vec<_> = (0..20).map(|n| json!({ "id": format!("r{n}"), "kind": "router", "routes": [] })).collect();
    host.start(&world, "routed", json!({ "name": "routers", "nodes": nodes }));
    let done = host.until("routed", |v| v["live"] == false);
    assert_eq!(done["state"], "completed", "{done:#}");
    assert_eq!(host.close().0, 0);

    let log = "/wf/routed/events.jsonl>";
    let text = String::from_utf8_lossy(&std::fs::read(&file).unwrap()).into_owned();
    // `pid call(fd<path>, ...`; what another thread interrupted is said a second time without its arguments.
    let entered: Vec<&str> =
        text.lines().filter_map(|l| l.split_once(' ')).map(|(_, call)| call.trim_start()).collect();
    let appeared = entered.iter().position(|c| c.starts_with("rename") && c.contains("wf/routed\"")).unwrap();
    let (mut commits, mut others, mut unsynced) = (0, Vec::new(), 0);
    for call in &entered[appeared..] {
        let (write, sync) = (WRITES.iter().any(|c| call.starts_with(c)), SYNCS.iter().any(|c| call.starts_with(c)));
        match (call.contains(log), write, sync) {
            (true, true, _) => unsynced += 1,
            (true, _, true) => {
                assert!(call.starts_with("fdatasync("), "{call}");
                assert_eq!(unsynced, 1, "one write before each sync: {call}");
                (unsynced, commits) = (0, commits + 1);
            }
            (false, _, true) => others.push((*call).to_owned()),
            _ => {}
        }
    }
    assert_eq!(unsynced, 0, "a write that was never synced");
    // The first line was written before the run had its name.
    let lines = log_of(&world, "routed").len();
    assert_eq!(commits, lines - 1);
    assert!(commits >= 20, "{commits}");
    // Making a run visible costs a sync of each directory of the rename; a commit costs none.
    let dirs: Vec<&str> =
        others.iter().filter_map(|c| c.split_once('<')?.1.split_once('>')).map(|(path, _)| path).collect();
    let wf = world.home().join("wf");
    let expected = [wf.clone(), wf.join(".staging")];
    assert_eq!(dirs, expected.each_ref().map(|p| p.to_str().unwrap()), "{others:#?}");
    say(&format!("commit under strace: {commits} commits, {commits} writes, {commits} fdatasync, 0 other syncs"));
}
