//! The supervisor process: one thread, one loop, no runtime. Starts programs, collects what ends, kills on demand.
//!
//! It reads no program output and decides nothing about programs; it never exits while its server listens. That
//! nothing is left below it is never taken from a look at the process table, which is no picture of one moment, but
//! from the kernel's answer that there is no child: with adoption every descendant has an ancestor among them.

use std::{
    collections::{BTreeMap, VecDeque},
    io::{self, IoSliceMut, Write as _},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::process::CommandExt as _,
    },
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::signal::SigSet,
};
use rustix::{
    io::Errno,
    net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags},
    process::{Pid, Signal, WaitOptions},
};

use super::{
    super::{
        clock::{Clock, SystemClock},
        executable::{self, Missing},
        proctree::{self, KILL_LIMIT, Process},
    },
    protocol::{self, Decoder, Event, Input, Launch, Request},
};

/// Pause between rounds of killing: long enough for the killed to end, short against any time limit.
const ROUND: Duration = Duration::from_millis(2);

/// The same once it has taken longer than it may and nobody waits for an answer.
const LATE_ROUND: Duration = Duration::from_millis(500);

/// Descriptors taken with one read; a request brings three.
const FDS_PER_READ: usize = 16;

/// Unsent answers; a server that does not read this much is dead in all but name.
const MAX_OUTGOING: usize = 4 << 20;

/// Attempts at a program that somebody still writes (a fork elsewhere can hold it open for a moment).
const BUSY_RETRIES: u32 = 20;

/// Body of the hidden subcommand. Returns the exit status: 0 when nothing is left below.
pub fn supervisor_main() -> u8 {
    match Subreaper::start() {
        Ok(subreaper) => subreaper.run(),
        Err(reason) => {
            let _ = writeln!(io::stderr(), "failed to supervise: {reason} (this command is internal)");
            2
        }
    }
}

/// Whether somebody still listens at the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Server {
    Alive,
    Gone,
}

/// What the loop waits for while everything is being ended.
#[derive(Debug, Clone, Copy)]
enum Phase {
    /// TERM was sent; KILL follows at this time since boot.
    Asked(Duration),
    /// Rounds of killing until this time since boot.
    Killing(Duration),
}

/// A tree that is being ended.
#[derive(Debug)]
struct Ending {
    /// Requests that wait for it.
    waiting: Vec<u64>,
    phase: Phase,
}

#[derive(Debug)]
struct Subreaper {
    clock: SystemClock,
    socket: OwnedFd,
    server: Server,
    /// The server's process.
    parent: Option<Pid>,
    #[cfg(target_os = "linux")]
    signals: nix::sys::signalfd::SignalFd,
    incoming: Decoder,
    /// Descriptors that came before the rest of their request.
    fds: VecDeque<OwnedFd>,
    outgoing: Vec<u8>,
    /// Programs that have not ended: process id to the id of the request.
    programs: BTreeMap<i32, u64>,
    /// Whether the last look found no child at all, which with adoption means no descendant.
    empty: bool,
    ending: Option<Ending>,
}

impl Subreaper {
    fn start() -> Result<Self, String> {
        let step = |what: &'static str| move |e: io::Error| format!("{what}: {e}");
        let socket = io::stdin().as_fd().try_clone_to_owned().map_err(step("control socket"))?;
        rustix::net::sockopt::socket_type(&socket).map_err(|e| step("control socket")(e.into()))?;
        detach(&socket).map_err(step("descriptors"))?;
        // A new session: no terminal can signal us, and the server finds the tree by it.
        let _ = nix::unistd::setsid();
        super::become_subreaper().map_err(step("adoption"))?;
        // Nobody ends us with a plain kill, and children are heard of through a descriptor.
        let mask = SigSet::all();
        mask.thread_block().map_err(|e| step("signal mask")(e.into()))?;
        catch_signals();
        let mut this = Self {
            clock: SystemClock,
            socket,
            server: Server::Alive,
            parent: rustix::process::getppid(),
            #[cfg(target_os = "linux")]
            signals: {
                use nix::sys::signalfd::{SfdFlags, SignalFd};
                SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
                    .map_err(|e| step("signals")(e.into()))?
            },
            incoming: Decoder::default(),
            fds: VecDeque::new(),
            outgoing: Vec::new(),
            programs: BTreeMap::new(),
            empty: true,
            ending: None,
        };
        this.send(&Event::Hello { version: protocol::VERSION });
        Ok(this)
    }

    fn run(mut self) -> u8 {
        loop {
            self.reap();
            if let Some(status) = self.advance() {
                return status;
            }
            self.flush();
            let ready = self.wait();
            if ready && self.server == Server::Alive {
                self.receive();
            }
        }
    }

    /// Sleeps until a request, a signal or the next step; whether the socket is readable.
    fn wait(&self) -> bool {
        let sleep = match self.ending.as_ref().map(|ending| ending.phase) {
            None => self.idle(),
            Some(Phase::Asked(until)) => Some(until.saturating_sub(self.clock.boot()) + Duration::from_millis(1)),
            Some(Phase::Killing(until)) if self.clock.boot() < until => Some(ROUND),
            Some(Phase::Killing(_)) => Some(LATE_ROUND),
        };
        let timeout = sleep.map_or(PollTimeout::NONE, |sleep| PollTimeout::try_from(sleep).unwrap_or(PollTimeout::MAX));
        let mut wanted = PollFlags::POLLIN;
        wanted.set(PollFlags::POLLOUT, !self.outgoing.is_empty());
        let mut fds = Vec::with_capacity(2);
        if self.server == Server::Alive {
            fds.push(PollFd::new(self.socket.as_fd(), wanted));
        }
        #[cfg(target_os = "linux")]
        fds.push(PollFd::new(self.signals.as_fd(), PollFlags::POLLIN));
        let _ = poll(&mut fds, timeout);
        let readable = self.server == Server::Alive
            && fds.first().and_then(PollFd::revents).is_some_and(|seen| !(seen - PollFlags::POLLOUT).is_empty());
        // What arrived does not matter: children are looked at every time, and everything else is ignored.
        #[cfg(target_os = "linux")]
        while let Ok(Some(_)) = self.signals.read_signal() {}
        readable
    }

    /// How long to sleep when nothing is to be done.
    fn idle(&self) -> Option<Duration> {
        // Without a descriptor for signals children have to be looked at from time to time.
        if cfg!(target_os = "linux") || self.programs.is_empty() { None } else { Some(Duration::from_millis(20)) }
    }

    /// Collects everything that ended.
    fn reap(&mut self) {
        let mut ended = Vec::new();
        self.empty = loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => {
                    if let Some(id) = self.programs.remove(&pid.as_raw_nonzero().get()) {
                        let (code, signal) = (status.exit_status(), status.terminating_signal());
                        ended.push((id, code, signal));
                    }
                }
                Ok(None) => break false,
                Err(Errno::INTR) => {}
                Err(_) => break true,
            }
        };
        let alone = self.empty;
        for (id, code, signal) in ended {
            self.send(&Event::Exited { id, code, signal, alone });
        }
    }

    /// The next step of ending everything, if that is going on; the exit status when there is no more to do.
    fn advance(&mut self) -> Option<u8> {
        let now = self.clock.boot();
        if self.server == Server::Gone && !matches!(self.ending, Some(Ending { phase: Phase::Killing(_), .. })) {
            self.ending = Some(Ending { waiting: Vec::new(), phase: Phase::Killing(now + KILL_LIMIT) });
        }
        let orphan = self.is_orphan();
        let ending = self.ending.as_mut()?;
        if self.empty {
            return self.finish(&[]);
        }
        match ending.phase {
            Phase::Asked(until) if now < until => None,
            Phase::Asked(_) => {
                ending.phase = Phase::Killing(now + KILL_LIMIT);
                self.kill();
                None
            }
            // What a dead server left is left to nobody, however long it takes.
            Phase::Killing(until) if now < until || orphan => {
                self.kill();
                None
            }
            Phase::Killing(_) => match self.below() {
                // There is something; that a look missed it is no answer.
                Ok(left) if left.is_empty() => {
                    self.kill();
                    None
                }
                Ok(left) => self.finish(&left.iter().map(Process::label).collect::<Vec<_>>()),
                Err(e) => self.finish(&[format!("unknown: {e}")]),
            },
        }
    }

    /// Whether the server is dead, and not only done with us.
    fn is_orphan(&self) -> bool {
        self.server == Server::Gone && rustix::process::getppid() != self.parent
    }

    fn finish(&mut self, left: &[String]) -> Option<u8> {
        let status = u8::from(!left.is_empty());
        for id in self.ending.take().into_iter().flat_map(|ending| ending.waiting) {
            self.send(&Event::Ended { id, left: left.to_vec() });
        }
        (self.server == Server::Gone).then_some(status)
    }

    /// What lives below; may miss what ends while it looks.
    fn below(&self) -> io::Result<Vec<Process>> {
        let mut all = proctree::descendants(proctree::own_pid())?;
        all.retain(|process| !process.is_dead());
        Ok(all)
    }

    fn kill(&mut self) {
        let own = proctree::own_pid();
        let find = &mut || {
            // The dead between two looks would make each longer than the one before.
            self.reap();
            self.below()
        };
        if proctree::kill_round(&|process| process.parent == own, find).is_err() {
            self.signal_groups(Signal::KILL);
        }
    }

    /// The reduced form where processes cannot be listed: the groups of the programs that still run.
    fn signal_groups(&self, signal: Signal) {
        for group in self.programs.keys().filter_map(|pid| Pid::from_raw(*pid)) {
            let _ = rustix::process::kill_process_group(group, signal);
        }
    }

    fn receive(&mut self) {
        let mut data = [0; 64 << 10];
        loop {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_PER_READ))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let read = rustix::net::recvmsg(
                &self.socket,
                &mut [IoSliceMut::new(&mut data)],
                &mut control,
                RecvFlags::DONTWAIT | close_on_exec(),
            );
            for message in control.drain() {
                if let RecvAncillaryMessage::ScmRights(fds) = message {
                    self.fds.extend(fds);
                }
            }
            match read {
                Ok(read) if read.bytes > 0 => self.incoming.push(data.get(..read.bytes).unwrap_or_default()),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Ok(_) | Err(_) => {
                    self.server = Server::Gone;
                    return;
                }
            }
        }
        loop {
            match self.incoming.next() {
                Ok(Some(request)) => self.serve(&request),
                Ok(None) => return,
                // A server that talks nonsense cannot be served; the tree must not outlive it.
                Err(_) => {
                    self.server = Server::Gone;
                    return;
                }
            }
        }
    }

    fn serve(&mut self, request: &Request) {
        match *request {
            Request::Spawn { id, ref launch } => {
                let answer = match self.launch(launch) {
                    Ok(pid) => {
                        self.programs.insert(pid, id);
                        self.empty = false;
                        Event::Started { id, pid }
                    }
                    Err((reason, not_found)) => Event::Failed { id, reason, not_found },
                };
                self.send(&answer);
            }
            Request::Signal { id, pid, signal } => {
                let error = self.signal_program(pid, signal).err();
                self.send(&Event::Signalled { id, error });
            }
            Request::KillAll { id, grace_ms } => {
                self.reap();
                let until = self.clock.boot() + Duration::from_millis(grace_ms);
                match &mut self.ending {
                    Some(ending) => {
                        ending.waiting.push(id);
                        if let Phase::Asked(earlier) = &mut ending.phase {
                            *earlier = until.min(*earlier);
                        }
                    }
                    None => {
                        if !self.empty && grace_ms > 0 {
                            match self.below() {
                                Ok(all) => proctree::ask_to_end(&all),
                                Err(_) => self.signal_groups(Signal::TERM),
                            }
                        }
                        self.ending = Some(Ending { waiting: vec![id], phase: Phase::Asked(until) });
                    }
                }
            }
        }
    }

    fn launch(&mut self, launch: &Launch) -> Result<i32, (String, bool)> {
        let mut pipes = || self.fds.pop_front().ok_or(("a pipe got lost on the way".to_owned(), false));
        let (stdout, stderr) = (pipes()?, pipes()?);
        let stdin = match launch.stdin {
            Input::Null => Stdio::null(),
            Input::Pipe => Stdio::from(pipes()?),
        };
        if self.ending.is_some() {
            return Err(("everything here is being ended".to_owned(), false));
        }
        let cwd = Path::new(&launch.cwd.0);
        executable::check_dir(cwd).map_err(|e| (format!("directory {}: {e}", cwd.display()), false))?;
        let path = launch.env.iter().rev().find(|(name, _)| name.0 == "PATH").map(|(_, value)| value.0.as_os_str());
        let program = executable::resolve(&launch.program.0, path, cwd).map_err(|missing| match missing {
            Missing::NotFound => ("no such program".to_owned(), true),
            Missing::NotExecutable => ("it is not an executable file".to_owned(), false),
        })?;
        let mut command = Command::new(program);
        command.args(launch.args.iter().map(|arg| &arg.0));
        command.env_clear().envs(launch.env.iter().map(|(name, value)| (&name.0, &value.0)));
        command.current_dir(cwd).process_group(0).stdin(stdin).stdout(stdout).stderr(stderr);
        if let Some(writable) = &launch.writable {
            // This process writes nothing itself, so it is held as well, and what it starts inherits that.
            super::confine::confine(writable.iter().map(|path| Path::new(&path.0)))
                .map_err(|e| (format!("the kernel cannot keep it from writing: {e}"), false))?;
        }
        start_program(&mut command).map_err(|e| {
            // The file is there, so it is the program in its first line that is not.
            let interpreter = e.kind() == io::ErrorKind::NotFound;
            (if interpreter { "the interpreter it names does not exist".to_owned() } else { e.to_string() }, false)
        })
    }

    /// Signals the group of a program, or after its end whoever is left of the group.
    fn signal_program(&self, pid: i32, number: i32) -> Result<(), String> {
        let signal = Signal::from_named_raw(number).ok_or_else(|| format!("there is no signal {number}"))?;
        if self.programs.contains_key(&pid) {
            let group = Pid::from_raw(pid).ok_or("no process id")?;
            return match rustix::process::kill_process_group(group, signal) {
                Ok(()) | Err(Errno::SRCH) => Ok(()),
                Err(e) => Err(e.to_string()),
            };
        }
        // The number may belong to somebody else by now, so only what is below us counts.
        for process in self.below().unwrap_or_default().iter().filter(|process| process.group == pid) {
            proctree::signal(process, signal);
        }
        Ok(())
    }

    fn send(&mut self, event: &Event) {
        if self.server == Server::Gone {
            return;
        }
        match protocol::encode(event) {
            Ok(frame) if self.outgoing.len() + frame.len() <= MAX_OUTGOING => self.outgoing.extend(frame),
            _ => self.server = Server::Gone,
        }
    }

    fn flush(&mut self) {
        while self.server == Server::Alive && !self.outgoing.is_empty() {
            match rustix::net::send(&self.socket, &self.outgoing, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(sent) => drop(self.outgoing.drain(..sent.min(self.outgoing.len()))),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => self.server = Server::Gone,
            }
        }
    }
}

/// Starts `command` and leaves collecting it to the loop.
#[expect(clippy::disallowed_methods, reason = "the supervisor is where programs are started")]
fn start_program(command: &mut Command) -> io::Result<i32> {
    let mut tries = 0;
    loop {
        // A child inherits the mask. What arrives meanwhile meets a handler that does nothing, and ended
        // children are looked for before the next sleep anyway.
        SigSet::empty().thread_set_mask()?;
        let started = command.spawn();
        SigSet::all().thread_set_mask()?;
        match started {
            Ok(child) => return i32::try_from(child.id()).map_err(io::Error::other),
            Err(e) if e.kind() == io::ErrorKind::ExecutableFileBusy && tries < BUSY_RETRIES => {
                tries += 1;
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(e) => return Err(e),
        }
    }
}

/// Leaves nothing of the server's open here except the socket, which is closed in every child.
#[expect(clippy::disallowed_methods, reason = "the process's own table is not part of the file layer")]
fn detach(socket: &OwnedFd) -> io::Result<()> {
    use rustix::fs::{Mode, OFlags};
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    nix::unistd::dup2_stdin(&null)?;
    drop(null);
    let own = if cfg!(target_os = "linux") { "/proc/self/fd" } else { "/dev/fd" };
    let Ok(listing) = std::fs::read_dir(own) else { return Ok(()) };
    let open: Vec<i32> =
        listing.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).filter(|fd| *fd > 2).collect();
    for fd in open.into_iter().filter(|fd| *fd != socket.as_raw_fd()) {
        // The one that listed the directory is gone already; that it fails is expected.
        let _ = nix::unistd::close(fd);
    }
    Ok(())
}

/// Nothing of the signals that the server ignores or blocks (under `nohup`, say) may reach programs.
///
/// Everything is caught by a handler that does nothing, because a caught signal, unlike an ignored one, is
/// back at its default after exec.
#[expect(unsafe_code, reason = "there is no safe call to set a disposition")]
fn catch_signals() {
    use nix::sys::signal::{SigHandler, Signal as S, signal};
    extern "C" fn nothing(_: i32) {}
    // The first two cannot be caught; the standard library looks after the third.
    let untouched = [S::SIGKILL, S::SIGSTOP, S::SIGPIPE];
    // Our own faults must end us.
    let faults = [S::SIGSEGV, S::SIGBUS, S::SIGILL, S::SIGFPE, S::SIGTRAP, S::SIGSYS, S::SIGABRT];
    for number in S::iterator().filter(|number| !untouched.contains(number)) {
        let handler = if faults.contains(&number) { SigHandler::SigDfl } else { SigHandler::Handler(nothing) };
        // SAFETY: the handler touches nothing at all, so it may run anywhere.
        let _ = unsafe { signal(number, handler) };
    }
}

#[cfg(target_os = "linux")]
fn close_on_exec() -> RecvFlags {
    RecvFlags::CMSG_CLOEXEC
}

#[cfg(not(target_os = "linux"))]
fn close_on_exec() -> RecvFlags {
    RecvFlags::empty()
}
