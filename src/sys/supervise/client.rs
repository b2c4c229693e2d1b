//! The server's side of a supervisor: starting it, asking it, and cleaning up after it when it dies.
//!
//! A task reads its answers for as long as it lives; another writes, so that a caller that goes away in the
//! middle of a request cannot tear it. Never reads or writes what programs say.

use std::{
    collections::HashMap,
    io::{self, IoSlice},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::process::CommandExt as _,
    },
    process::Stdio,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use tokio::{
    io::Interest,
    net::{UnixStream, unix::pipe},
    sync::{mpsc, oneshot, watch},
    time::timeout,
};

use super::{
    super::{clock::SystemClock, ids, proctree, proctree::KILL_LIMIT, tasks},
    ChildSpec, Ended, Error, Exit, OWNER_VARIABLE, Options, Stdin, TREE_VARIABLE,
    protocol::{self, Decoder, Event, Input, Launch, Request, Text},
};

/// Longest wait for a supervisor's greeting; it takes milliseconds unless the machine is on its knees.
const START_LIMIT: Duration = Duration::from_secs(10);

/// Longest wait for an answer that involves no waiting. After it the supervisor counts as stuck and is killed.
const ANSWER_LIMIT: Duration = Duration::from_secs(20);

/// Added to the time that killing may take before a supervisor counts as stuck.
const SLACK: Duration = Duration::from_secs(3);

/// Requests on their way; each holds at most three descriptors.
const QUEUE: usize = 16;

/// A running supervisor. Dropping it closes the lifeline, which ends everything below it.
#[derive(Debug)]
pub struct Supervisor {
    shared: Arc<Shared>,
    owner: String,
}

/// A running program.
#[derive(Debug)]
pub struct Child {
    /// Its process id.
    pub pid: u32,
    /// Standard input, when asked for.
    pub stdin: Option<pipe::Sender>,
    /// Standard output; taken by whoever reads it.
    pub stdout: Option<pipe::Receiver>,
    /// Standard error; taken by whoever reads it.
    pub stderr: Option<pipe::Receiver>,
    exit: watch::Receiver<Option<Exit>>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    stream: Arc<UnixStream>,
    queue: mpsc::Sender<Parcel>,
    state: Mutex<State>,
    /// Random value in the environment of everything below.
    tree: String,
    /// Process id of the supervisor.
    pid: i32,
    /// Its identity, so that killing it can never hit another.
    process: Option<proctree::Process>,
    /// What was left when the supervisor had gone.
    gone: watch::Receiver<Option<Ended>>,
}

#[derive(Debug, Default)]
struct State {
    last: u64,
    calls: HashMap<u64, oneshot::Sender<Event>>,
    exits: HashMap<u64, watch::Sender<Option<Exit>>>,
    /// No answer will come any more.
    closed: bool,
    /// Nothing was left below the supervisor when its last program ended.
    empty: bool,
}

/// A request and the descriptors that travel with it.
#[derive(Debug)]
struct Parcel {
    bytes: Vec<u8>,
    fds: Vec<OwnedFd>,
}

impl Supervisor {
    /// Starts a supervisor.
    pub async fn start(options: &Options) -> Result<Self, Error> {
        let failed = |e: io::Error| Error::Supervisor { op: "start", reason: e.to_string() };
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().map_err(failed)?;
        ours.set_nonblocking(true).map_err(failed)?;
        let stream = Arc::new(UnixStream::from_std(ours).map_err(failed)?);
        let process = start_process(options, theirs.into())
            .map_err(|e| Error::Supervisor { op: "start", reason: format!("{}: {e}", options.program.display()) })?;
        let pid = process.id().and_then(|pid| i32::try_from(pid).ok()).unwrap_or_default();
        let (queue, parcels) = mpsc::channel(QUEUE);
        let (said_gone, gone) = watch::channel(None);
        let (said_hello, hello) = oneshot::channel();
        // More than a hundred random bits: nobody outside the tree can guess it.
        let tree = format!("{}{}", ids::sortable(), ids::short());
        let shared = Arc::new(Shared {
            stream: Arc::clone(&stream),
            queue,
            state: Mutex::default(),
            tree,
            pid,
            process: proctree::get(pid),
            gone,
        });
        // Made before the first wait, so that a caller that gives up closes the lifeline.
        let this = Self { shared: Arc::clone(&shared), owner: options.owner.clone() };
        tasks::spawn("supervisor-writer", write_all(stream, parcels));
        tasks::spawn("supervisor-reader", watch_over(shared, process, said_hello, said_gone));
        match timeout(START_LIMIT, hello).await {
            Ok(Ok(Ok(()))) => Ok(this),
            Ok(Ok(Err(reason))) => Err(Error::Supervisor { op: "start", reason }),
            Ok(Err(_)) => {
                Err(Error::Supervisor { op: "start", reason: format!("{} ended at once", options.program.display()) })
            }
            Err(_) => {
                this.shared.kill_supervisor();
                Err(Error::Supervisor { op: "start", reason: format!("no sign of life within {START_LIMIT:?}") })
            }
        }
    }

    /// Starts a program below it, in a process group of its own.
    pub async fn spawn(&self, spec: ChildSpec) -> Result<Child, Error> {
        let ChildSpec { program, args, mut env, cwd, stdin, writable } = spec;
        env.retain(|(name, _)| name != OWNER_VARIABLE && name != TREE_VARIABLE);
        env.push((OWNER_VARIABLE.into(), self.owner.clone().into()));
        env.push((TREE_VARIABLE.into(), self.shared.tree.clone().into()));
        let refused = |reason: String| Error::Start { program: program.clone(), reason, not_found: false };

        let launch = Launch {
            program: Text(program.clone().into_os_string()),
            args: args.into_iter().map(Text).collect(),
            env: env.into_iter().map(|(name, value)| (Text(name), Text(value))).collect(),
            cwd: Text(cwd.into_os_string()),
            stdin: if stdin == Stdin::Pipe { Input::Pipe } else { Input::Null },
            writable: writable.map(|paths| paths.into_iter().map(|path| Text(path.into_os_string())).collect()),
        };
        launch.check().map_err(&refused)?;

        let no_pipe = |e: io::Error| refused(format!("no pipe: {e}"));
        let (stdout_end, stdout) = pipe::pipe().map_err(no_pipe)?;
        let (stderr_end, stderr) = pipe::pipe().map_err(no_pipe)?;
        let mut fds =
            vec![stdout_end.into_blocking_fd().map_err(no_pipe)?, stderr_end.into_blocking_fd().map_err(no_pipe)?];
        let stdin = match stdin {
            Stdin::Null => None,
            Stdin::Pipe => {
                let (stdin, stdin_end) = pipe::pipe().map_err(no_pipe)?;
                fds.push(stdin_end.into_blocking_fd().map_err(no_pipe)?);
                Some(stdin)
            }
        };
        let (said_exit, exit) = watch::channel(None);
        let call = self.shared.register(Some(said_exit))?;
        match self.shared.ask(call, |id| Request::Spawn { id, launch }, fds, ANSWER_LIMIT).await? {
            Event::Started { pid, .. } => Ok(Child {
                pid: u32::try_from(pid).unwrap_or_default(),
                stdin,
                stdout: Some(stdout),
                stderr: Some(stderr),
                exit,
                shared: Arc::clone(&self.shared),
            }),
            Event::Failed { reason, not_found, .. } => Err(Error::Start { program, reason, not_found }),
            other @ (Event::Hello { .. } | Event::Exited { .. } | Event::Signalled { .. } | Event::Ended { .. }) => {
                Err(unexpected(&other))
            }
        }
    }

    /// Ends everything below it: TERM, `grace`, then stop and KILL until nothing is left. The supervisor
    /// stays and can run further programs. When it is gone already, the answer is what it left.
    pub async fn kill_all(&self, grace: Duration) -> Result<Ended, Error> {
        let grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        let limit = grace + KILL_LIMIT + SLACK;
        let asked = match self.shared.register(None) {
            Ok(call) => self.shared.ask(call, |id| Request::KillAll { id, grace_ms }, Vec::new(), limit).await,
            Err(e) => Err(e),
        };
        match asked {
            Ok(Event::Ended { left, .. }) => Ok(Ended::from_left(left)),
            Ok(
                other @ (Event::Hello { .. }
                | Event::Started { .. }
                | Event::Failed { .. }
                | Event::Exited { .. }
                | Event::Signalled { .. }),
            ) => Err(unexpected(&other)),
            Err(_) => Ok(self.shared.left().await),
        }
    }

    /// Whether every program has ended and none of their descendants was left then, so that there is nothing to kill.
    pub fn is_empty(&self) -> bool {
        self.shared.state().empty
    }

    /// Ends everything and the supervisor itself.
    pub async fn end(self, grace: Duration) -> Ended {
        // Whatever this says, closing the lifeline has the supervisor look again, and its end is the answer.
        if !self.is_empty() {
            let _ = self.kill_all(grace).await;
        }
        self.shared.hang_up();
        self.shared.left().await
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.shared.hang_up();
    }
}

impl Child {
    /// Waits until the program itself has ended (its descendants may live on). Can be called again.
    pub async fn wait(&mut self) -> Result<Exit, Error> {
        let lost = || Error::Supervisor { op: "hear from", reason: "it ended, and everything below it".to_owned() };
        let exit = self.exit.wait_for(Option::is_some).await.map_err(|_| lost())?;
        exit.ok_or_else(lost)
    }

    /// Sends a signal to the program's process group.
    pub async fn signal(&self, signal: i32) -> Result<(), Error> {
        let pid = i32::try_from(self.pid).unwrap_or_default();
        let call = self.shared.register(None)?;
        match self.shared.ask(call, |id| Request::Signal { id, pid, signal }, Vec::new(), ANSWER_LIMIT).await? {
            Event::Signalled { error: None, .. } => Ok(()),
            Event::Signalled { error: Some(reason), .. } => Err(Error::Supervisor { op: "signal through", reason }),
            other @ (Event::Hello { .. }
            | Event::Started { .. }
            | Event::Failed { .. }
            | Event::Exited { .. }
            | Event::Ended { .. }) => Err(unexpected(&other)),
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Prepares for an answer, and for news of an exit.
    fn register(&self, exit: Option<watch::Sender<Option<Exit>>>) -> Result<(u64, oneshot::Receiver<Event>), Error> {
        let mut state = self.state();
        if state.closed {
            return Err(Error::Supervisor { op: "reach", reason: "it has ended".to_owned() });
        }
        state.last += 1;
        let id = state.last;
        let (sender, receiver) = oneshot::channel();
        state.calls.insert(id, sender);
        state.empty &= exit.is_none();
        state.exits.extend(exit.map(|exit| (id, exit)));
        Ok((id, receiver))
    }

    async fn ask(
        &self,
        (id, answer): (u64, oneshot::Receiver<Event>),
        request: impl FnOnce(u64) -> Request,
        fds: Vec<OwnedFd>,
        limit: Duration,
    ) -> Result<Event, Error> {
        let lost = |reason: String| Error::Supervisor { op: "reach", reason };
        let parcel = protocol::encode(&request(id)).map(|bytes| Parcel { bytes, fds });
        let parcel = parcel.inspect_err(|_| self.state().forget(id)).map_err(lost)?;
        let exchange = async {
            self.queue.send(parcel).await.map_err(|_| "it has ended".to_owned())?;
            answer.await.map_err(|_| "it ended without an answer".to_owned())
        };
        match timeout(limit, exchange).await {
            Ok(answer) => answer.inspect_err(|_| self.state().forget(id)).map_err(lost),
            Err(_) => {
                // Stopped or starved: nothing can be asked of it any more, and its tree must not stay.
                self.state().forget(id);
                self.kill_supervisor();
                Err(lost(format!("no answer within {limit:?}")))
            }
        }
    }

    /// Closes the lifeline.
    fn hang_up(&self) {
        let _ = rustix::net::shutdown(&*self.stream, rustix::net::Shutdown::Both);
    }

    /// Kills the supervisor itself; the reading task then looks after its tree.
    fn kill_supervisor(&self) {
        if let Some(process) = &self.process {
            proctree::signal(process, rustix::process::Signal::KILL);
        }
        self.hang_up();
    }

    /// Waits until the supervisor has gone; what was left then.
    async fn left(&self) -> Ended {
        let mut gone = self.gone.clone();
        let limit = KILL_LIMIT + KILL_LIMIT + SLACK + SLACK;
        match timeout(limit, gone.wait_for(Option::is_some)).await {
            Ok(Ok(ended)) => ended.clone().unwrap_or(Ended::Empty),
            Ok(Err(_)) | Err(_) => Ended::Left(vec![format!("{} supervisor (unknown)", self.pid)]),
        }
    }
}

impl State {
    fn forget(&mut self, id: u64) {
        self.calls.remove(&id);
        self.exits.remove(&id);
    }

    fn take(&mut self, event: Event) {
        let id = match &event {
            Event::Hello { .. } => return,
            Event::Exited { id, code, signal, alone } => {
                let exit = self.exits.remove(id);
                // A program that was asked for meanwhile may be there by now.
                self.empty = *alone && self.exits.is_empty();
                if let Some(exit) = exit {
                    exit.send_replace(Some(Exit { code: *code, signal: *signal }));
                }
                return;
            }
            Event::Failed { id, .. } => {
                self.exits.remove(id);
                *id
            }
            Event::Started { id, .. } | Event::Signalled { id, .. } | Event::Ended { id, .. } => *id,
        };
        if let Some(call) = self.calls.remove(&id) {
            // Whoever asked may have gone away; the program then runs on until everything is ended.
            let _ = call.send(event);
        }
    }
}

/// Starts the supervisor process with the socket as its standard input.
#[expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "one of the two places that start processes")]
fn start_process(options: &Options, socket: OwnedFd) -> io::Result<tokio::process::Child> {
    let mut command = std::process::Command::new(&options.program);
    command.arg("supervise").env_clear().env(OWNER_VARIABLE, &options.owner);
    // Nothing of the server's environment except what the program may need to load.
    if let Some(libraries) = std::env::var_os("LD_LIBRARY_PATH") {
        command.env("LD_LIBRARY_PATH", libraries);
    }
    command.current_dir("/").process_group(0).stdin(socket).stdout(Stdio::null()).stderr(Stdio::null());
    tokio::process::Command::from(command).spawn()
}

fn unexpected(event: &Event) -> Error {
    Error::Supervisor { op: "understand", reason: format!("unexpected answer {event:?}") }
}

/// Sends requests one after another; ends when nobody can ask any more or the supervisor is gone.
async fn write_all(stream: Arc<UnixStream>, mut parcels: mpsc::Receiver<Parcel>) {
    while let Some(Parcel { bytes, fds }) = parcels.recv().await {
        let mut rest = bytes.as_slice();
        let mut fds = Some(fds);
        while !rest.is_empty() {
            if stream.writable().await.is_err() {
                return;
            }
            let sent = stream.try_io(Interest::WRITABLE, || {
                let borrowed: Vec<BorrowedFd<'_>> = fds.iter().flatten().map(AsFd::as_fd).collect();
                send(&stream, rest, &borrowed)
            });
            match sent {
                // The descriptors left with the first byte.
                Ok(sent) => {
                    fds = None;
                    rest = rest.get(sent..).unwrap_or_default();
                }
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                // The reading task finds out by itself and answers everybody.
                Err(_) => return,
            }
        }
    }
}

fn send(stream: &UnixStream, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::Error::other("too many descriptors for a request"));
    }
    Ok(rustix::net::sendmsg(stream, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?)
}

/// Reads answers until the supervisor is gone, then makes sure that its tree is gone too.
async fn watch_over(
    shared: Arc<Shared>,
    mut process: tokio::process::Child,
    hello: oneshot::Sender<Result<(), String>>,
    gone: watch::Sender<Option<Ended>>,
) {
    let outcome = read_all(&shared, hello).await;
    if let Err(reason) = outcome {
        tracing::warn!(supervisor = shared.pid, reason, "gave up on a supervisor");
        shared.hang_up();
    }
    let status = match timeout(KILL_LIMIT + SLACK, process.wait()).await {
        Ok(status) => status.ok(),
        Err(_) => {
            let _ = process.start_kill();
            process.wait().await.ok()
        }
    };
    // Status 0 means that it saw its tree empty; anything else, that nobody did.
    let ended = if status.is_some_and(|status| status.success()) { Ended::Empty } else { sweep(&shared).await };
    let mut state = shared.state();
    state.closed = true;
    state.calls.clear();
    state.exits.clear();
    drop(state);
    gone.send_replace(Some(ended));
}

async fn read_all(shared: &Shared, hello: oneshot::Sender<Result<(), String>>) -> Result<(), String> {
    let mut hello = Some(hello);
    let mut decoder = Decoder::default();
    let mut buffer = vec![0; 16 << 10];
    loop {
        shared.stream.readable().await.map_err(|e| e.to_string())?;
        match shared.stream.try_read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(read) => decoder.push(buffer.get(..read).unwrap_or_default()),
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => continue,
            // The other end closed with something unread: as good as an end.
            Err(e) if e.kind() == io::ErrorKind::ConnectionReset => return Ok(()),
            Err(e) => return Err(e.to_string()),
        }
        while let Some(event) = decoder.next::<Event>()? {
            if let Event::Hello { version } = event
                && let Some(hello) = hello.take()
            {
                let same = version == protocol::VERSION;
                let _ = hello.send(if same {
                    Ok(())
                } else {
                    Err("the program was replaced; restart the server".to_owned())
                });
            }
            shared.state().take(event);
        }
    }
}

/// Ends what a supervisor that died left behind.
async fn sweep(shared: &Shared) -> Ended {
    let entry = format!("{TREE_VARIABLE}={}", shared.tree);
    let session = Some(shared.pid);
    let swept =
        tasks::blocking("sweep-tree", move || proctree::end_marked(&SystemClock, Duration::ZERO, &entry, session));
    match swept.await {
        Ok(Ok(swept)) => Ended::from_left(swept.left),
        Ok(Err(e)) => Ended::Left(vec![format!("unknown: {e}")]),
        Err(e) => Ended::Left(vec![format!("unknown: {e}")]),
    }
}
