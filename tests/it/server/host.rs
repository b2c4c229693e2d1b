//! A host: it starts `clawo mcp`, writes JSON lines and reads JSON lines. Every line read must be JSON-RPC.

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};

use crate::support::{World, clawo};

/// Longest wait for something that usually takes milliseconds.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The program with the environment of this world and nothing of the caller's but PATH.
pub(crate) fn command(world: &World, args: &[&str]) -> Command {
    let mut command = Command::new(clawo());
    command
        .args(args)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("HOME", world.root())
        .env("CLAWO_HOME", world.home())
        .env("CLAWO_DEFAULT_ENGINE", "scripted")
        .envs(&world.env)
        .current_dir(world.project())
        .stdin(Stdio::null());
    command
}

/// What a command said.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) status: i32,
    pub(crate) out: String,
    #[expect(dead_code, reason = "shown when an assertion fails")]
    pub(crate) err: String,
}

impl Said {
    pub(crate) fn new(output: std::process::Output) -> Self {
        Self {
            status: output.status.code().unwrap_or(-1),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }
}

/// Runs a command to its end.
#[track_caller]
pub(crate) fn run(world: &World, args: &[&str], status: i32) -> Said {
    let said = Said::new(command(world, args).output().unwrap());
    assert_eq!(said.status, status, "{args:?}: {said:#?}");
    said
}

/// `clawo workflow show --json`.
#[track_caller]
pub(crate) fn show(world: &World, id: &str) -> Value {
    run(world, &["workflow", "show", id, "--json"], 0).json()
}

/// Polls the command line until a run looks like this.
#[track_caller]
pub(crate) fn shown(world: &World, id: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let begun = Instant::now();
    loop {
        let view = show(world, id);
        if wanted(&view) {
            return view;
        }
        assert!(begun.elapsed() < PATIENCE, "{id} never got there: {view:#}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Waits until `test` holds, at most `limit`.
#[track_caller]
pub(crate) fn within(limit: Duration, what: &str, test: impl Fn() -> bool) {
    let begun = Instant::now();
    while !test() {
        assert!(begun.elapsed() < limit, "not within {limit:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Sends a signal to one process.
pub(crate) fn signal(pid: u32, signal: Signal) {
    kill(Pid::from_raw(i32::try_from(pid).unwrap()), signal).unwrap();
}

/// Waits until a child ended by itself; `None` after `limit`.
pub(crate) fn ended(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status);
        }
        if begun.elapsed() > limit {
            return None;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A host and its server.
pub(crate) struct Host {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Option<ChildStdout>,
    lines: Option<Receiver<String>>,
    next: u64,
    /// Messages that came while another answer was waited for.
    passed: Vec<Value>,
}

impl Host {
    /// Starts a server, without a handshake and without reading.
    pub(crate) fn silent(mut command: Command, errors: &Path) -> Self {
        let errors = std::fs::OpenOptions::new().create(true).append(true).open(errors).unwrap();
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors).spawn().unwrap();
        Self { stdin: child.stdin.take(), stdout: child.stdout.take(), child, lines: None, next: 0, passed: Vec::new() }
    }

    /// Starts a server of this world, without a handshake.
    pub(crate) fn raw(world: &World) -> Self {
        let mut host = Self::silent(command(world, &["mcp"]), &world.root().join("server.log"));
        host.read();
        host
    }

    /// Starts a server of this world and shakes hands.
    pub(crate) fn open(world: &World) -> Self {
        let mut host = Self::raw(world);
        host.initialize("2025-11-25");
        host
    }

    /// Begins to read.
    pub(crate) fn read(&mut self) {
        let stdout = BufReader::new(self.stdout.take().unwrap());
        let (lines, received) = mpsc::channel();
        self.lines = Some(received);
        std::thread::spawn(move || {
            for line in stdout.lines() {
                let Ok(line) = line else { return };
                if lines.send(line).is_err() {
                    return;
                }
            }
        });
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    pub(crate) fn initialize(&mut self, version: &str) -> Value {
        let params = json!({
            "protocolVersion": version, "capabilities": {}, "clientInfo": { "name": "test", "version": "1" }
        });
        let answer = self.request("initialize", params);
        self.line(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#.as_bytes());
        answer["result"].clone()
    }

    /// Writes one line.
    pub(crate) fn line(&mut self, bytes: &[u8]) {
        let stdin = self.stdin.as_mut().unwrap();
        stdin.write_all(bytes).unwrap();
        stdin.write_all(b"\n").unwrap();
        stdin.flush().unwrap();
    }

    /// Sends a request and gives its id.
    pub(crate) fn send(&mut self, method: &str, params: impl Into<Value>) -> u64 {
        self.next += 1;
        let params: Value = params.into();
        let message = json!({ "jsonrpc": "2.0", "id": self.next, "method": method, "params": params });
        self.line(message.to_string().as_bytes());
        self.next
    }

    /// Sends a call and gives its id.
    pub(crate) fn send_call(&mut self, tool: &str, arguments: impl Into<Value>) -> u64 {
        let arguments: Value = arguments.into();
        self.send("tools/call", json!({ "name": tool, "arguments": arguments }))
    }

    /// The next message, `None` at the end of the output.
    pub(crate) fn receive(&mut self, limit: Duration) -> Result<Value, RecvTimeoutError> {
        let line = self.lines.as_ref().unwrap().recv_timeout(limit)?;
        let message: Value =
            serde_json::from_str(&line).unwrap_or_else(|e| panic!("not a message: {e}: {:?}", head(&line)));
        assert_eq!(message["jsonrpc"], "2.0", "{}", head(&line));
        let kinds = ["method", "result", "error"].iter().filter(|k| message.get(**k).is_some()).count();
        assert_eq!(kinds, 1, "{}", head(&line));
        Ok(message)
    }

    /// The answer to a request.
    #[track_caller]
    pub(crate) fn answer(&mut self, id: u64) -> Value {
        self.answer_to(&json!(id))
    }

    /// The answer to a request with any kind of id.
    #[track_caller]
    pub(crate) fn answer_to(&mut self, id: &Value) -> Value {
        if let Some(at) = self.passed.iter().position(|m| m["id"] == *id) {
            return self.passed.remove(at);
        }
        loop {
            match self.receive(PATIENCE) {
                Ok(message) if message["id"] == *id => return message,
                Ok(message) => self.passed.push(message),
                Err(e) => panic!("no answer to request {id}: {e}"),
            }
        }
    }

    #[track_caller]
    pub(crate) fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params);
        self.answer(id)
    }

    /// The structured result of a good call.
    #[track_caller]
    pub(crate) fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let id = self.send_call(tool, arguments);
        let answer = self.answer(id);
        assert_eq!(answer["result"]["isError"], false, "{tool}: {answer:#}");
        answer["result"]["structuredContent"].clone()
    }

    /// The code of a refused call.
    #[track_caller]
    pub(crate) fn refused(&mut self, tool: &str, arguments: Value) -> String {
        let id = self.send_call(tool, arguments);
        let answer = self.answer(id);
        assert_eq!(answer["result"]["isError"], true, "{tool}: {answer:#}");
        answer["result"]["structuredContent"]["code"].as_str().unwrap().to_owned()
    }

    /// Starts a spec in the world's project.
    #[track_caller]
    pub(crate) fn start(&mut self, world: &World, id: &str, spec: impl Into<Value>) {
        let spec: Value = spec.into();
        let started = self.call("workflow_start", json!({ "spec": spec, "cwd": world.project(), "runId": id }));
        assert_eq!(started["runId"], id);
    }

    /// Follows a run until it looks like this.
    #[track_caller]
    pub(crate) fn until(&mut self, id: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        self.until_in(PATIENCE, id, wanted)
    }

    /// Follows a run that may take long until it looks like this.
    #[track_caller]
    pub(super) fn until_in(&mut self, limit: Duration, id: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            let view = self.call("workflow_status", json!({ "runId": id, "waitMs": 1000 }));
            if wanted(&view) {
                return view;
            }
            assert!(begun.elapsed() < limit, "{id} never got there: {view:#}");
        }
    }

    /// Resident memory of the server in KiB: now, and the most there ever was.
    pub(super) fn memory(&self) -> (u64, u64) {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let of = |name: &str| {
            let line = status.lines().find(|l| l.starts_with(name)).unwrap();
            line.split_whitespace().nth(1).unwrap().parse().unwrap()
        };
        (of("VmRSS:"), of("VmHWM:"))
    }

    /// SIGKILL, as a crash would.
    pub(crate) fn crash(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Closes its input. Gives its exit status and how long it took to end; fails after ten seconds.
    #[track_caller]
    pub(crate) fn close(&mut self) -> (i32, Duration) {
        drop(self.stdin.take());
        let begun = Instant::now();
        let status = ended(&mut self.child, Duration::from_secs(10)).expect("the server ends by itself");
        (status.code().unwrap_or(-1), begun.elapsed())
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The beginning of a line, for messages.
fn head(line: &str) -> String {
    line.chars().take(300).collect()
}
