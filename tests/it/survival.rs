//! Real processes and whatever ends, stops, starves or floods them: kills, sleeps, full disks, races, clocks.
//!
//! How long some of it goes on is said by variables: `CLAWO_TEST_ROUNDS` (kills), `CLAWO_TEST_RACES`,
//! `CLAWO_TEST_CLIENTS`. Each prints what it counted. A test that needs a program of the system and does not
//! find it says so as `skipped: ...`, or fails when `CLAWO_TEST_ALL` is set.

mod clients;
mod clocks;
mod disk_full;
mod disk_full_servers;
mod kills;
mod late_lines;
mod races;
mod sleepers;
mod stores;
mod syscalls;
mod trees;

use std::{
    io::Write,
    process::{Command, Stdio},
};

use crate::support::World;

/// Numbers that look random and are the same for the same seed.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// How often something is done: what the variable says, else `usual`.
fn rounds(variable: &str, usual: u32) -> u32 {
    match std::env::var(variable) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{variable}={text} is not a number")),
        Err(_) => usual,
    }
}

/// Says something past the test harness, which keeps the output of tests that pass.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Whether `works`; a test that cannot run says why, and fails where everything has to run.
fn possible(test: &str, works: bool, why: &str) -> bool {
    if !works {
        assert!(std::env::var_os("CLAWO_TEST_ALL").is_none(), "{test} cannot run here: {why}");
        say(&format!("skipped: {test}: {why}"));
    }
    works
}

/// Whether this command ends well.
fn succeeds(program: &str, args: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// A number of seconds by which a test knows its processes, here and nowhere else: not even another run of the same
/// test sleeps for as long.
fn mark(number: u32) -> String {
    format!("{number}{:07}", std::process::id())
}

/// Processes with `needle` in their command line or environment: ids and command lines.
fn living(needle: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Ok(pid) = entry.file_name().into_string().unwrap_or_default().parse::<u32>() else { continue };
        let read = |name: &str| {
            let bytes = std::fs::read(entry.path().join(name)).unwrap_or_default();
            String::from_utf8_lossy(&bytes).replace('\0', " ")
        };
        let line = read("cmdline");
        if pid != std::process::id() && (line.contains(needle) || read("environ").contains(needle)) {
            found.push(format!("{pid} {line}"));
        }
    }
    found
}

/// Processes that sleep for as long as `mark` says, which no others of the machine do.
fn sleeping(mark: &str) -> Vec<String> {
    let asleep = |line: &String| line.split_once(' ').is_some_and(|(_, command)| command.starts_with("sleep "));
    living(mark).into_iter().filter(asleep).collect()
}

/// What stands in a log, its events with their line's number and epoch.
fn log_of(world: &World, run: &str) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(world.run_dir(run).join("events.jsonl")).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Takes an owner's lock away as a file system would that forgets locks: the name leads to another file.
fn lose_lock(world: &World, run: &str) {
    let path = world.run_dir(run).join("owner.lock");
    let other = world.root().join("another.lock");
    std::fs::write(&other, "").unwrap();
    std::fs::rename(other, path).unwrap();
}
