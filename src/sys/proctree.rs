//! Which processes exist, read from `/proc`: descendants, and those that carry a marker.
//!
//! A process is its id together with its start time, so that a recycled id is never mistaken for it.
//! Elsewhere than on Linux nothing can be listed, and callers get an error to act on.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    time::Duration,
};

use rustix::process::{Pid, Signal, WaitOptions};

use super::Clock;

/// How long processes get between TERM and KILL in a sweep.
const SWEEP_GRACE: Duration = Duration::from_secs(3);

/// How long KILL is repeated before what is left counts as unkillable.
pub const KILL_LIMIT: Duration = Duration::from_secs(5);

/// Pause between looks at processes that are ending.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Scans in which newly forked processes are stopped before killing anyway.
const STOP_SCANS: usize = 16;

/// Ids looked at from the newest one back: more than are given out between two such looks on most machines.
const NEWEST: i32 = 16;

/// Looks at the newest processes in a row, while there are ever newer ones; then everything is looked at again.
const NEWEST_LOOKS: usize = 64;

/// Looks in a row that find nothing before it is believed. A look is no picture of one moment: what starts
/// another process and ends can be missed.
const EMPTY_LOOKS: usize = 3;

/// A process as it was when looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its id.
    pub pid: i32,
    /// Its parent.
    pub parent: i32,
    /// Its session.
    pub session: i32,
    /// Its process group.
    pub group: i32,
    /// The system's letter for its state.
    pub state: char,
    /// Threads, the first one included.
    pub threads: u32,
    /// Start in clock ticks since boot.
    pub start: u64,
    /// Name of its program, at most 15 bytes.
    pub name: String,
}

impl Process {
    /// Whether it has ended and only waits to be collected.
    pub fn is_dead(&self) -> bool {
        // A first thread that ended before the others shows as a zombie too, but the process runs on.
        matches!(self.state, 'Z' | 'X') && self.threads <= 1
    }

    /// `pid name (state)`, for people.
    pub fn label(&self) -> String {
        format!("{} {} ({})", self.pid, self.name, self.state)
    }

    /// What tells it from every other process since boot.
    fn key(&self) -> (i32, u64) {
        (self.pid, self.start)
    }

    fn parse(text: &str) -> Option<Self> {
        // The name may hold spaces and brackets, so the fields start after the last bracket.
        let (head, tail) = text.rsplit_once(')')?;
        let (pid, name) = head.split_once('(')?;
        let fields: Vec<&str> = tail.split_ascii_whitespace().collect();
        let number = |at: usize| fields.get(at)?.parse::<i64>().ok();
        Some(Self {
            pid: pid.trim().parse().ok()?,
            name: name.to_owned(),
            state: fields.first()?.chars().next()?,
            parent: i32::try_from(number(1)?).ok()?,
            group: i32::try_from(number(2)?).ok()?,
            session: i32::try_from(number(3)?).ok()?,
            threads: u32::try_from(number(17)?).ok()?,
            start: fields.get(19)?.parse().ok()?,
        })
    }
}

/// One process, if it exists.
#[cfg(target_os = "linux")]
#[expect(clippy::disallowed_methods, reason = "the process table is not part of the file layer")]
pub fn get(pid: i32) -> Option<Process> {
    Process::parse(&String::from_utf8_lossy(&std::fs::read(format!("/proc/{pid}/stat")).ok()?))
}

/// The id of the process or thread started last.
#[cfg(target_os = "linux")]
#[expect(clippy::disallowed_methods, reason = "the process table is not part of the file layer")]
fn newest() -> Option<i32> {
    std::fs::read_to_string("/proc/loadavg").ok()?.split_ascii_whitespace().last()?.parse().ok()
}

/// Every process.
#[cfg(target_os = "linux")]
#[expect(clippy::disallowed_methods, reason = "the process table is not part of the file layer")]
pub fn list() -> io::Result<Vec<Process>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        // It may have ended since it was listed.
        found.extend(get(pid));
    }
    Ok(found)
}

/// Whether the environment a process was started with has `entry` (`NAME=value`). Others' are unreadable.
#[cfg(target_os = "linux")]
#[expect(clippy::disallowed_methods, reason = "the process table is not part of the file layer")]
pub fn carries(pid: i32, entry: &str) -> bool {
    std::fs::read(format!("/proc/{pid}/environ"))
        .is_ok_and(|environ| environ.split(|byte| *byte == 0).any(|line| line == entry.as_bytes()))
}

/// One process, if it exists.
#[cfg(not(target_os = "linux"))]
pub fn get(_pid: i32) -> Option<Process> {
    None
}

/// The id of the process or thread started last.
#[cfg(not(target_os = "linux"))]
fn newest() -> Option<i32> {
    None
}

/// Every process.
#[cfg(not(target_os = "linux"))]
pub fn list() -> io::Result<Vec<Process>> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "processes can be listed on Linux only"))
}

/// Whether the environment of a process has `entry`.
#[cfg(not(target_os = "linux"))]
pub fn carries(_pid: i32, _entry: &str) -> bool {
    false
}

/// Those of `all` below one of `roots`; the roots themselves are not included unless below another.
pub fn below(all: &[Process], roots: &BTreeSet<i32>) -> Vec<Process> {
    let mut children: BTreeMap<i32, Vec<&Process>> = BTreeMap::new();
    let starts: BTreeMap<i32, u64> = all.iter().map(|process| (process.pid, process.start)).collect();
    for process in all {
        // A parent younger than its child is another process with a recycled id.
        if starts.get(&process.parent).is_none_or(|start| *start <= process.start) {
            children.entry(process.parent).or_default().push(process);
        }
    }
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    let mut next: Vec<i32> = roots.iter().copied().collect();
    while let Some(pid) = next.pop() {
        for child in children.get(&pid).into_iter().flatten() {
            if seen.insert(child.pid) {
                next.push(child.pid);
                found.push((*child).clone());
            }
        }
    }
    found
}

/// Everything below `root`.
pub fn descendants(root: i32) -> io::Result<Vec<Process>> {
    Ok(below(&list()?, &BTreeSet::from([root])))
}

/// Processes with `entry` in their environment, members of `session`, and everything below them.
/// Never this process; never a session whose first process still lives.
pub fn marked(entry: &str, session: Option<i32>) -> io::Result<Vec<Process>> {
    let all = list()?;
    let own = own_pid();
    let session = session.filter(|leader| all.iter().all(|process| process.pid != *leader));
    let roots: BTreeSet<i32> = all
        .iter()
        .filter(|process| process.pid != own)
        .filter(|process| Some(process.session) == session || carries(process.pid, entry))
        .map(|process| process.pid)
        .collect();
    let mut found = below(&all, &roots);
    let inner: BTreeSet<i32> = found.iter().map(|process| process.pid).collect();
    found.extend(all.into_iter().filter(|process| roots.contains(&process.pid) && !inner.contains(&process.pid)));
    found.retain(|process| process.pid != own && !process.is_dead());
    Ok(found)
}

/// Sends a signal to exactly this process; whether it was there to get it.
pub fn signal(process: &Process, signal: Signal) -> bool {
    let Some(pid) = Pid::from_raw(process.pid) else { return false };
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{PidfdFlags, pidfd_open, pidfd_send_signal};
        match pidfd_open(pid, PidfdFlags::empty()) {
            // The handle stays with one process, so that the look afterwards proves which one it is.
            Ok(handle) => {
                return get(process.pid).is_some_and(|now| now.start == process.start)
                    && pidfd_send_signal(&handle, signal).is_ok();
            }
            Err(rustix::io::Errno::NOSYS) if get(process.pid).is_none_or(|now| now.start != process.start) => {
                return false;
            }
            Err(rustix::io::Errno::NOSYS) => {}
            Err(_) => return false,
        }
    }
    rustix::process::kill_process(pid, signal).is_ok()
}

/// Asks processes to end; stopped ones are woken so that they can.
pub fn ask_to_end(processes: &[Process]) {
    for process in processes {
        signal(process, Signal::TERM);
        if process.state == 'T' {
            signal(process, Signal::CONT);
        }
    }
}

/// Shows `take` the newest processes as long as newer ones come.
///
/// A whole look takes long enough for a process to start the next one and end, again and again, so that it never
/// sees a living one of them. One that looks only where new ones are is faster than they are.
fn newest_first(take: &mut dyn FnMut(Process)) {
    let mut before = None;
    for _ in 0..NEWEST_LOOKS {
        let last = newest();
        let Some(id) = last.filter(|_| last != before) else { return };
        before = last;
        // Upwards, so that a parent is known when its child's turn comes.
        (id.saturating_sub(NEWEST)..=id).filter_map(get).filter(|process| !process.is_dead()).for_each(&mut *take);
    }
}

/// One round of killing: stops what `find` finds, and new processes that are `ours`, until nothing new turns up
/// (a stopped process cannot fork), then kills all of it.
pub fn kill_round(
    ours: &dyn Fn(&Process) -> bool,
    find: &mut dyn FnMut() -> io::Result<Vec<Process>>,
) -> io::Result<()> {
    let mut all: BTreeMap<(i32, u64), Process> = BTreeMap::new();
    let mut failed = None;
    for _ in 0..STOP_SCANS {
        let before = all.len();
        newest_first(&mut |process| {
            let parent = (process.parent, 0)..=(process.parent, process.start);
            if !all.contains_key(&process.key())
                && (ours(&process) || all.range(parent).next().is_some())
                && signal(&process, Signal::STOP)
            {
                all.insert(process.key(), process);
            }
        });
        // What was stopped must not stay like that, whatever happens.
        let found = find().unwrap_or_else(|e| {
            failed = Some(e);
            Vec::new()
        });
        for process in found {
            // The dead would make every round longer than the one before.
            if !process.is_dead() && !all.contains_key(&process.key()) {
                signal(&process, Signal::STOP);
                all.insert(process.key(), process);
            }
        }
        if all.len() == before {
            break;
        }
    }
    for process in all.values() {
        signal(process, Signal::KILL);
    }
    failed.map_or(Ok(()), Err)
}

/// What a sweep did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Swept {
    /// Processes that were there.
    pub found: usize,
    /// Those that could not be ended, as `pid name (state)`.
    pub left: Vec<String>,
}

/// Ends what [`marked`] finds: TERM, `grace`, then rounds of killing. Blocks until done or `KILL_LIMIT` is over.
///
/// What was found once stays wanted: when its parent ends first, nothing else may tie it to the tree any more.
pub fn end_marked(clock: &dyn Clock, grace: Duration, entry: &str, session: Option<i32>) -> io::Result<Swept> {
    let own = own_pid();
    let ours = |process: &Process| process.pid != own && carries(process.pid, entry);
    let mut seen: BTreeSet<(i32, u64)> = BTreeSet::new();
    let mut look = || {
        let mut alive = marked(entry, session)?;
        newest_first(&mut |process| {
            if alive.iter().all(|known| known.key() != process.key()) && ours(&process) {
                alive.push(process);
            }
        });
        let now: BTreeSet<(i32, u64)> = alive.iter().map(Process::key).collect();
        for (pid, start) in seen.difference(&now) {
            collect(*pid);
            alive.extend(get(*pid).filter(|process| process.start == *start && !process.is_dead()));
        }
        seen.extend(now);
        Ok::<_, io::Error>(alive)
    };
    let mut alive = sure(&mut look)?;
    if !grace.is_zero() {
        ask_to_end(&alive);
    }
    let until = clock.boot() + grace;
    while !alive.is_empty() && clock.boot() < until {
        std::thread::sleep(LOOK_EVERY);
        alive = sure(&mut look)?;
    }
    let until = clock.boot() + KILL_LIMIT;
    while !alive.is_empty() && clock.boot() < until {
        kill_round(&ours, &mut look)?;
        std::thread::sleep(LOOK_EVERY);
        alive = sure(&mut look)?;
    }
    Ok(Swept { found: seen.len(), left: alive.iter().map(Process::label).collect() })
}

/// What `look` finds; nothing only when it found nothing several times.
fn sure(look: &mut dyn FnMut() -> io::Result<Vec<Process>>) -> io::Result<Vec<Process>> {
    let mut alive = look()?;
    for _ in 1..EMPTY_LOOKS {
        if !alive.is_empty() {
            break;
        }
        std::thread::sleep(LOOK_EVERY);
        alive = look()?;
    }
    Ok(alive)
}

/// Ends every process started for the server process `owner`, which is dead. Blocks up to 8 s.
pub fn sweep(clock: &dyn Clock, owner: &str) -> io::Result<Swept> {
    let entry = format!("{}={owner}", super::supervise::OWNER_VARIABLE);
    end_marked(clock, SWEEP_GRACE, &entry, None)
}

/// Takes the exit status of one that was re-parented to us; otherwise it stays a zombie.
fn collect(pid: i32) {
    if let Some(pid) = Pid::from_raw(pid) {
        let _ = rustix::process::waitpid(Some(pid), WaitOptions::NOHANG);
    }
}

/// This process.
pub fn own_pid() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_confuse_the_parser() {
        let line = "42 (a) b (c) S 7 8 9 0 -1 4194304 1 0 0 0 1 2 3 4 20 0 5 0 12345 1 2";
        let process = Process::parse(line).unwrap();
        assert_eq!((process.pid, process.parent, process.group, process.session), (42, 7, 8, 9));
        assert_eq!((process.name.as_str(), process.state, process.threads, process.start), ("a) b (c", 'S', 5, 12345));
        assert_eq!(Process::parse("junk"), None);
    }

    #[test]
    fn a_recycled_id_is_not_a_parent_and_not_a_target() {
        let own = get(own_pid()).unwrap();
        let child = Process { pid: 2, parent: own.pid, start: own.start - 1, ..own.clone() };
        assert_eq!(below(&[own.clone(), child], &BTreeSet::from([own.pid])), []);
        // The same id at another start time is somebody else: SIGKILL to it would end this test.
        assert!(!signal(&Process { start: own.start + 1, ..own }, Signal::KILL));
    }
}
