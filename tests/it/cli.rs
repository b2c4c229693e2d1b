//! The command line as its users meet it: the built program, its output and its exit status.

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use tempfile::TempDir;

/// Longest wait for something that usually takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(30);

/// A state directory and a project of a test's own.
struct World {
    place: TempDir,
}

impl World {
    fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        for name in ["home", "project"] {
            std::fs::create_dir(place.path().join(name)).unwrap();
        }
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(place.path().join("home"), std::fs::Permissions::from_mode(0o700)).unwrap();
        Self { place }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// The program with nothing of the caller's environment but PATH.
    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("clawo"));
        command
            .args(args)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", self.place.path())
            .env("CLAWO_HOME", self.path("home"))
            .current_dir(self.path("project"))
            .stdin(Stdio::null());
        command
    }

    fn run(&self, args: &[&str]) -> Answer {
        Answer::new(args, self.command(args).output().unwrap())
    }

    fn run_with_input(&self, args: &[&str], input: &str) -> Answer {
        use std::io::Write;
        let mut child =
            self.command(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        Answer::new(args, child.wait_with_output().unwrap())
    }

    /// A command that goes on while others run.
    fn background(&self, args: &[&str]) -> Running {
        let child = self.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        Running { child: Some(child), args: args.iter().map(|a| (*a).to_owned()).collect() }
    }

    fn write(&self, name: &str, value: &Value) -> String {
        let path = self.path(name);
        std::fs::write(&path, value.to_string()).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// Makes the project a git repository with one commit.
    fn git(&self) {
        std::fs::write(self.path("project/a.txt"), "a\n").unwrap();
        for args in [
            &["init", "-q"][..],
            &["add", "-A"],
            &["-c", "user.name=t", "-c", "user.email=t@localhost", "commit", "-qm", "first"],
        ] {
            let done = Command::new("git").args(args).current_dir(self.path("project")).output().unwrap();
            assert!(done.status.success(), "{done:?}");
        }
    }

    fn runs(&self) -> Vec<Value> {
        self.run(&["workflow", "list", "--json"]).json()["runs"].as_array().unwrap().clone()
    }

    /// Waits until the view of a run satisfies `wanted`.
    fn wait_for(&self, run: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            let answer = self.run(&["workflow", "show", run, "--json"]);
            if answer.status == 0 && wanted(&answer.json()) {
                return answer.json();
            }
            assert!(begun.elapsed() < PATIENCE, "{run} never got there: {}", answer.out);
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// What a command said.
#[derive(Debug)]
struct Answer {
    #[expect(dead_code, reason = "shown when an assertion fails")]
    args: Vec<String>,
    status: i32,
    out: String,
    err: String,
}

impl Answer {
    fn new(args: &[&str], output: Output) -> Self {
        Self {
            args: args.iter().map(|a| (*a).to_owned()).collect(),
            status: output.status.code().unwrap_or(-1),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// The one document on standard output.
    fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    #[track_caller]
    fn exits(self, status: i32) -> Self {
        assert_eq!(self.status, status, "{self:#?}");
        self
    }
}

/// A command under way; killed when the test is over.
struct Running {
    child: Option<Child>,
    args: Vec<String>,
}

impl Running {
    fn interrupt(&self) {
        let pid = i32::try_from(self.child.as_ref().unwrap().id()).unwrap();
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGINT).unwrap();
    }

    fn end(mut self) -> Answer {
        let args: Vec<&str> = self.args.iter().map(String::as_str).collect();
        Answer::new(&args, self.child.take().unwrap().wait_with_output().unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn routers(name: &str) -> Value {
    json!({ "name": name, "nodes": [{ "id": "one", "kind": "router", "routes": [] }] })
}

/// Scenario 1 of the surfaces: with `--json` every command, good or bad, answers with one document without colours.
#[test]
fn json_everywhere() {
    let world = World::new();
    let spec = world.write("spec.json", &routers("r"));
    let bad = world.write("bad.json", &json!({ "name": "", "nodes": [] }));
    let green = world.write("green.json", &json!({ "checks": [{ "type": "command", "cmd": "true" }] }));
    let red = world.write("red.json", &json!({ "checks": [{ "type": "command", "cmd": "false" }] }));
    let out = world.path("schemas").to_str().unwrap().to_owned();
    let full = world.path("home").parent().unwrap().to_str().unwrap().to_owned();
    let cases: &[(&[&str], i32, Option<&str>)] = &[
        (&["workflow", "validate", &spec], 0, None),
        (&["workflow", "validate", &bad], 2, Some("spec_invalid")),
        (&["workflow", "start", &spec, "--run-id", "r1", "--wait"], 0, None),
        (&["workflow", "start", &spec, "--run-id", "r1", "--wait"], 6, Some("run_exists")),
        (&["workflow", "start", &spec, "--run-id", "../r", "--wait"], 2, Some("invalid_argument")),
        (&["workflow", "start", &spec], 4, Some("no_server")),
        (&["workflow", "start", "missing.json", "--wait"], 2, Some("invalid_argument")),
        (&["workflow", "list"], 0, None),
        (&["workflow", "list", "--limit", "0"], 2, Some("invalid_argument")),
        (&["workflow", "show", "r1", "--events", "500"], 0, None),
        (&["workflow", "show", "nobody"], 3, Some("run_not_found")),
        (&["workflow", "resume", "r1"], 0, None),
        (&["workflow", "resume", "nobody"], 3, Some("run_not_found")),
        (&["workflow", "cancel", "r1"], 6, Some("run_terminal")),
        (&["workflow", "cancel", "nobody"], 3, Some("run_not_found")),
        (&["workflow", "steer", "nobody", "text"], 3, Some("run_not_found")),
        (&["workflow", "steer", "r1", "text"], 6, Some("run_terminal")),
        (&["workflow", "approve", "nobody"], 3, Some("run_not_found")),
        (&["workflow", "approve", "r1"], 6, Some("gate_not_waiting")),
        (&["workflow", "restore", "nobody", "--to", "b"], 3, Some("run_not_found")),
        (&["workflow", "delete", "r1"], 2, Some("invalid_argument")),
        (&["verify", "nobody"], 3, Some("run_not_found")),
        (&["verify", "r1"], 3, Some("no_evidence")),
        (&["verify"], 2, Some("invalid_argument")),
        (&["verify", "--contract", &green, "--label", "lab"], 0, None),
        (&["verify", "--contract", &red], 1, None),
        (&["verify", "--contract", &bad], 2, Some("contract_invalid")),
        (&["verify", "lab"], 0, None),
        (&["verify", "lab", "--check"], 0, None),
        (&["solve", "x"], 4, Some("no_server")),
        (&["solve", "x", "-e", "nothing", "--wait"], 2, Some("spec_invalid")),
        (&["fanout", "x"], 4, Some("no_server")),
        (&["fanout", "x", "--engines", ",", "--wait"], 2, Some("invalid_argument")),
        (&["gc", "--dry-run"], 0, None),
        (&["gc", "--older-than", "soon"], 2, Some("invalid_argument")),
        (&["workflow", "delete", "r1", "--yes"], 0, None),
        (&["engines"], 0, None),
        (&["schemas", "export", "--out", &out], 0, None),
        (&["schemas", "export", "--out", &out, "--check"], 0, None),
        (&["manifest"], 0, None),
        (&["demo", "--dir", &full], 2, Some("invalid_argument")),
        (&["no-such-command"], 2, Some("invalid_argument")),
        (&["--version"], 0, None),
        (&["workflow", "--help"], 0, None),
    ];
    let mut wrong = Vec::new();
    for (args, status, code) in cases {
        let args: Vec<&str> = args.iter().copied().chain(["--json"]).collect();
        let answer = world.run(&args);
        let document = answer.json();
        let expected = match code {
            Some(code) => document["ok"] == false && document["code"] == *code && document["error"].is_string(),
            // The manifest is a document of its own kind.
            None if args.first() == Some(&"manifest") => document["schemaVersion"].is_number(),
            None => document["ok"] == true,
        };
        if answer.status != *status || !expected || answer.out.contains('\x1b') {
            wrong.push((answer, *status, *code));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    // Its answer depends on the machine, its form does not.
    let doctor = world.run(&["doctor", "--json"]);
    assert!(doctor.json()["checks"].as_array().unwrap().len() > 8, "{doctor:?}");
}

/// Scenario 2 of the surfaces: the exit status tells the verdict, and the record agrees.
#[test]
fn the_exit_status_is_the_verdict() {
    let world = World::new();
    world.git();
    let solve = |check: &str, id: &str| {
        world.run(&[
            "solve",
            "nothing",
            "-e",
            "scripted",
            "-m",
            "noop",
            "-c",
            check,
            "--max-repairs",
            "0",
            "--run-id",
            id,
            "-w",
            "--json",
        ])
    };
    let red = solve("false", "red").exits(1).json();
    assert_eq!((&red["state"], &red["outcome"]), (&json!("failed"), &json!("refuted")));
    let green = solve("true", "green").exits(0).json();
    assert_eq!((&green["state"], &green["outcome"]), (&json!("completed"), &json!("verified")));

    let shown = world.run(&["workflow", "list"]).exits(0).out;
    assert!(shown.contains("REFUTED") && shown.contains("verified"), "{shown}");
    let bundle = world.run(&["verify", "red"]).exits(1).out;
    assert!(bundle.contains("FAIL  check-1 (command)"), "{bundle}");
    let bundle = world.run(&["verify", "green"]).exits(0).out;
    assert!(bundle.contains("PASS  check-1 (command)"), "{bundle}");
    assert_eq!(world.run(&["workflow", "resume", "green", "--json"]).exits(0).json()["state"], "completed");
}

/// Scenario 3 of the surfaces: a quote is refused with the way out, and nothing is started.
#[test]
fn a_quote_starts_nothing() {
    let world = World::new();
    let refused = world.run(&["solve", "x", "-e", "scripted", "-m", "noop", "-c", "sh -c \"exit 0\"", "-w"]).exits(2);
    assert!(refused.err.contains("--contract"), "{refused:?}");
    assert_eq!(world.runs(), Vec::<Value>::new());
}

/// Scenario 7 of the surfaces: a piped table is whole, plain and in UTC.
#[test]
fn a_piped_table_is_whole() {
    let world = World::new();
    let name = "w".repeat(90);
    let spec = world.write("spec.json", &routers(&name));
    world.run(&["workflow", "start", &spec, "--wait"]).exits(0);
    let table = world.run(&["workflow", "list"]).exits(0).out;
    let (header, row) = table.split_once('\n').unwrap();
    assert_eq!(header.split_whitespace().collect::<Vec<_>>(), ["RUN", "WORKFLOW", "STATE", "OUTCOME", "CREATED"]);
    assert!(row.contains(&name), "{table}");
    assert!(row.trim_end().ends_with('Z') && !table.contains('\x1b'), "{table}");
    let empty = World::new().run(&["workflow", "list"]).exits(0).out;
    assert_eq!(empty.lines().count(), 1, "{empty}");
}

/// A run parked at a gate is answered from another terminal, and the waiting command goes on to the end.
#[test]
fn a_gate_is_answered_from_elsewhere() {
    let world = World::new();
    let spec = world.write(
        "spec.json",
        &json!({ "name": "gated", "nodes": [
            { "id": "ask", "kind": "human_gate", "prompt": "Go on?" },
            { "id": "one", "kind": "router", "routes": [] },
        ]}),
    );
    for (id, answer, status) in [("yes", None, 0), ("no", Some("reject"), 1)] {
        let waiting = world.background(&["workflow", "start", &spec, "--run-id", id, "--wait"]);
        let parked = world.wait_for(id, |view| view["state"] == "awaiting_human");
        assert_eq!(parked["gate"]["prompt"], "Go on?");
        let args: Vec<&str> = ["workflow", "approve", id].into_iter().chain(answer).collect();
        world.run(&args).exits(0);
        let ended = waiting.end().exits(status);
        assert!(ended.out.contains("Go on?") && ended.out.contains("clawo workflow approve"), "{ended:?}");
        world.run(&["workflow", "approve", id]).exits(6);
    }
}

/// Scenarios 2 and 5 of the surfaces: a run owned elsewhere is refused, can be cancelled from anywhere, and an
/// interrupted wait leaves it resumable.
#[test]
fn an_interrupted_wait_leaves_the_run_resumable() {
    let world = World::new();
    let scenario = world.write("slow.json", &json!({ "turns": [{ "times": 0, "steps": [{ "hang": true }] }] }));
    let agent = json!({ "id": "slow", "kind": "agent", "prompt": "wait", "engine": "scripted", "model": scenario });
    let spec = world.write("spec.json", &json!({ "name": "slow", "nodes": [agent] }));

    let waiting = world.background(&["workflow", "start", &spec, "--run-id", "slow", "--wait"]);
    world.wait_for("slow", |view| view["live"] == true && view["nodes"][0]["state"] == "running");
    let refused = world.run(&["workflow", "resume", "slow", "--wait", "--json"]).exits(6).json();
    assert_eq!(refused["code"], "run_owned");
    waiting.interrupt();
    let left = waiting.end().exits(130);
    assert!(left.out.contains("clawo workflow resume slow --wait"), "{left:?}");
    let view = world.wait_for("slow", |view| view["interrupted"] == true);
    assert_eq!(view["live"], false);

    let again = world.background(&["workflow", "resume", "slow", "--wait", "--json"]);
    world.wait_for("slow", |view| view["live"] == true);
    world.run(&["workflow", "cancel", "slow", "--reason", "enough"]).exits(0);
    let ended = again.end().exits(1).json();
    assert_eq!((&ended["state"], &ended["outcome"]), (&json!("cancelled"), &json!("unverified")));
}

/// Scenario 37 of the surfaces: an unknown key stops the start with its line and name.
#[test]
fn an_unknown_setting_is_an_error() {
    let world = World::new();
    std::fs::write(world.path("home/config.toml"), "# mine\n[server]\nprot = 1\n").unwrap();
    for command in [&["workflow", "list"][..], &["mcp"], &["doctor"]] {
        let refused = world.run(command).exits(2);
        assert!(refused.err.contains("prot") && refused.err.contains('3'), "{refused:?}");
    }
}

/// Scenario 41 of the surfaces: what is missing is named with what to install, and the status says so.
#[test]
fn doctor_names_what_is_missing() {
    let world = World::new();
    let bin = world.path("bin");
    std::fs::create_dir(&bin).unwrap();
    let git = std::env::split_paths(&std::env::var_os("PATH").unwrap()).map(|d| d.join("git")).find(|p| p.is_file());
    std::os::unix::fs::symlink(git.expect("the tests need git"), bin.join("git")).unwrap();
    let report = |path: &Path| {
        let output = world.command(&["doctor", "--json"]).env("PATH", path).output().unwrap();
        Answer::new(&["doctor", "--json"], output)
    };
    let answer = report(&bin).exits(1).json();
    let row = |name: &str| {
        let rows = answer["checks"].as_array().unwrap();
        rows.iter().find(|r| r["name"] == name).unwrap_or_else(|| panic!("no row {name}: {answer}")).clone()
    };
    for name in ["home", "locking", "git", "engine scripted", "state"] {
        assert_eq!(row(name)["status"], "ok", "{}", row(name));
    }
    for name in ["engine claude", "browser", "docker", "node", "npm"] {
        assert_eq!(row(name)["status"], "warning", "{}", row(name));
        assert!(row(name)["fix"].as_str().is_some_and(|f| f.contains("install")), "{}", row(name));
    }
    assert_eq!(row("coding agent")["status"], "missing");

    std::fs::remove_file(bin.join("git")).unwrap();
    let without = report(&bin).exits(1).json();
    let git = without["checks"].as_array().unwrap().iter().find(|r| r["name"] == "git").unwrap().clone();
    assert_eq!(git["status"], "missing", "{git}");
    assert!(git["fix"].as_str().unwrap().contains("2.31"), "{git}");
}

/// Scenario 42 of the surfaces: the schemas are the same each time, and a change is noticed.
#[test]
fn schemas_are_stable() {
    let world = World::new();
    let out = world.path("schemas");
    let args = ["schemas", "export", "--out", out.to_str().unwrap()];
    let check: Vec<&str> = args.into_iter().chain(["--check"]).collect();
    world.run(&check).exits(1);
    world.run(&args).exits(0);
    let first = tree(&out);
    assert!(first.len() > 20, "{} files", first.len());
    world.run(&args).exits(0);
    assert_eq!(first, tree(&out));
    world.run(&check).exits(0);
    std::fs::write(out.join("stray.json"), "{}").unwrap();
    assert!(world.run(&check).exits(1).out.contains("stray.json"));
    std::fs::remove_file(out.join("stray.json")).unwrap();
    let (name, text) = first.first().unwrap();
    std::fs::write(out.join(name), format!("{text} ")).unwrap();
    assert!(world.run(&check).exits(1).out.contains("differs"));
}

/// Names and contents of the files below `dir`.
fn tree(dir: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut open = vec![dir.to_path_buf()];
    while let Some(at) = open.pop() {
        for entry in std::fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                let text = std::fs::read_to_string(&path).unwrap();
                found.push((path.strip_prefix(dir).unwrap().to_path_buf(), text));
            }
        }
    }
    found.sort();
    found
}

/// Scenario 18 of the verification: one flipped byte of the evidence is found; so is a tree that moved.
#[test]
fn kept_evidence_is_compared() {
    let world = World::new();
    world.git();
    let contract = json!({ "checks": [{ "id": "said", "type": "command", "cmd": "echo", "args": ["hello"] }] });
    let made = world.run_with_input(&["verify", "--contract", "-", "--label", "mine", "--json"], &contract.to_string());
    let path = PathBuf::from(made.exits(0).json()["path"].as_str().unwrap());
    let intact = world.run(&["verify", "mine", "--check", "--json"]).exits(0).json();
    assert_eq!((&intact["intact"], &intact["tree"]), (&json!(true), &json!("same")));

    std::fs::write(world.path("project/new.txt"), "new\n").unwrap();
    let moved = world.run(&["verify", "mine", "--check", "--json"]).exits(1).json();
    assert_eq!((&moved["intact"], &moved["tree"]), (&json!(true), &json!("moved")));
    std::fs::remove_file(world.path("project/new.txt")).unwrap();

    let log = path.join("checks/said.log");
    let mut bytes = std::fs::read(&log).unwrap();
    bytes[0] ^= 1;
    std::fs::write(&log, bytes).unwrap();
    let damaged = world.run(&["verify", "mine", "--check"]).exits(1);
    assert!(damaged.out.contains("checks/said.log"), "{damaged:?}");
}

/// Old runs go when asked to; a run that has not ended never does.
#[test]
fn only_ended_runs_are_collected() {
    let world = World::new();
    let spec = world.write("spec.json", &routers("r"));
    let gate = json!({ "name": "g", "nodes": [{ "id": "ask", "kind": "human_gate", "prompt": "?" }] });
    let gate = world.write("gate.json", &gate);
    world.run(&["workflow", "start", &spec, "--run-id", "done", "--wait"]).exits(0);
    let parked = world.background(&["workflow", "start", &gate, "--run-id", "parked", "--wait"]);
    world.wait_for("parked", |view| view["state"] == "awaiting_human");
    parked.interrupt();
    parked.end().exits(130);

    let fresh = world.run(&["gc", "--json"]).exits(0).json();
    assert_eq!(fresh["runs"], json!([]));
    let plan = world.run(&["gc", "--older-than", "0h", "--dry-run", "--json"]).exits(0).json();
    assert_eq!(plan["runs"][0]["runId"], "done");
    assert!(plan["bytes"].as_u64().unwrap() > 0);
    assert_eq!(world.runs().len(), 2);
    world.run(&["gc", "--older-than", "0h"]).exits(0);
    let left: Vec<Value> = world.runs().iter().map(|r| r["runId"].clone()).collect();
    assert_eq!(left, [json!("parked")]);
}

/// A reader that goes away is no error, and standard output alone carries the answer.
#[test]
fn a_closed_pipe_is_no_error() {
    let world = World::new();
    for args in [&["--help"][..], &["schemas", "export", "--check"], &["manifest"]] {
        let mut child = world.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let ended = child.wait_with_output().unwrap();
        assert!(matches!(ended.status.code(), Some(0 | 1)), "{args:?}: {ended:?}");
        assert!(!String::from_utf8_lossy(&ended.stderr).contains("panicked"), "{ended:?}");
    }
}

/// Both demonstrations prove what they say, with a home of their own.
#[test]
fn the_demo_proves_what_it_says() {
    let world = World::new();
    for kind in ["solve", "crash"] {
        let dir = world.path(&format!("demo-{kind}"));
        let proof = world.run(&["demo", kind, "--dir", dir.to_str().unwrap(), "--json"]).exits(0).json();
        assert_eq!(
            (&proof["proved"], &proof["outcome"], &proof["refutedPasses"], &proof["verifiedPasses"]),
            (&json!(true), &json!("verified"), &json!(1), &json!(1)),
            "{proof}"
        );
        let home = dir.join("home");
        let id = proof["runId"].as_str().unwrap();
        world.run(&["--home", home.to_str().unwrap(), "verify", id]).exits(0);
    }
    assert_eq!(world.runs(), Vec::<Value>::new(), "the caller's own home is not used");
}

/// MC-10: a host that passes no environment at all still gets the state directory of the account.
#[test]
fn a_bare_environment_still_has_a_home() {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_clawo"))
        .args(["config", "show", "--json"])
        .env_clear()
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stdout).contains("/.claw-orchestrator\""));
}
