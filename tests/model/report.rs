//! What was tried, counted over all cases of a test, and said at its end past the capture of the test harness.

use std::{
    io::Write,
    sync::atomic::{AtomicU64, Ordering},
};

use crate::case::Lived;

/// Counts of one test.
#[derive(Debug, Default)]
pub struct Report {
    cases: AtomicU64,
    lives: AtomicU64,
    deaths: AtomicU64,
    batches: AtomicU64,
    failures: AtomicU64,
    jumps: AtomicU64,
    runs: AtomicU64,
    turns: AtomicU64,
}

impl Report {
    /// Counts a case.
    pub fn add(&self, lived: &Lived) {
        let add = |count: &AtomicU64, n: u64| count.fetch_add(n, Ordering::Relaxed);
        add(&self.cases, 1);
        add(&self.lives, lived.lives);
        add(&self.deaths, lived.deaths);
        add(&self.batches, lived.batches);
        add(&self.failures, lived.failures);
        add(&self.jumps, lived.jumps);
        add(&self.runs, lived.runs as u64);
        add(&self.turns, lived.starts.len() as u64);
    }

    /// Says it.
    pub fn say(&self, what: &str) {
        let of = |count: &AtomicU64| spaced(count.load(Ordering::Relaxed));
        let line = format!(
            "{what}: {} cases, {} runs, {} lives, {} crashes, {} commits, {} failed writes, {} clock jumps, {} turns, 0 differences",
            of(&self.cases),
            of(&self.runs),
            of(&self.lives),
            of(&self.deaths),
            of(&self.batches),
            of(&self.failures),
            of(&self.jumps),
            of(&self.turns),
        );
        let mut out = std::io::stderr().lock();
        writeln!(out, "{line}").unwrap();
    }
}

/// A number in groups of three.
fn spaced(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(' ');
        }
        out.push(digit);
    }
    out
}
