//! A later tree against the record of the start: what was modified, deleted, or added to steer the tests.

use std::{collections::BTreeMap, path::Path};

use super::{
    cargo_toml, makefile, package_json,
    patterns::{self, Config, classify},
    record,
    snapshot::{self, Entry, PartKind, Role, SNAPSHOT_VERSION, Snapshot},
    walk::unescape,
};
use crate::{
    model::{CheckResult, Contract},
    sys::{Fs, Kind, fs::Result},
};

/// The check's id in a bundle.
const ID: &str = "protected-tests";
/// The check's type in a bundle.
const KIND: &str = "protected_tests";
/// Files named in the one-sentence detail.
const DETAIL_FILES: usize = 20;
/// Files named in the tail, one a line.
const TAIL_FILES: usize = 2_000;
/// Length of one path or reason in the report; longer ones end in `...`.
const MAX_TEXT: usize = 300;

/// What happened to a protected file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Modified,
    Deleted,
    AddedConfig,
}

impl Change {
    fn word(self) -> &'static str {
        match self {
            Self::Modified => "modified",
            Self::Deleted => "deleted",
            Self::AddedConfig => "added-config",
        }
    }
}

type Changes = BTreeMap<String, (Change, String)>;

/// Compares the repository at `top` with `start`, the record of the same repository and contract.
///
/// The result's duration is 0: time is measured by who runs the checks.
///
/// # Errors
/// The top cannot be listed, or the tree is beyond the bounds of a record.
pub fn compare(fs: &dyn Fs, top: &Path, contract: &Contract, start: &Snapshot) -> Result<CheckResult> {
    if start.v != SNAPSHOT_VERSION {
        let detail = format!(
            "the record of the start has form {}, this version reads form {SNAPSHOT_VERSION}; start the run again",
            start.v
        );
        return Ok(result(false, detail, None));
    }
    let now = record::record(fs, top, &start.base, contract, Some(start))?;
    let mut changes = Changes::new();
    for (path, entry) in &start.files {
        if let Some(change) = judge(fs, top, path, entry, start, &now) {
            changes.insert(path.clone(), change);
        }
    }
    for (path, entry) in now.files.iter().filter(|(path, _)| !start.files.contains_key(*path)) {
        if !below_unreadable(path, start) && steers(path, entry, start) {
            let dir = patterns::governed(path);
            let place = if dir.is_empty() { "the top" } else { dir };
            changes.insert(path.clone(), (Change::AddedConfig, format!("new, for the tests in {place}")));
        }
    }
    let lost = lost_marks(start, &now);
    Ok(report(start, &changes, lost))
}

/// What happened to one recorded file.
fn judge(
    fs: &dyn Fs,
    top: &Path,
    path: &str,
    was: &Entry,
    start: &Snapshot,
    now: &Snapshot,
) -> Option<(Change, String)> {
    let modified = |why: &str| Some((Change::Modified, why.to_owned()));
    let Some(is) = now.files.get(path) else {
        return match (was, stands(fs, top, path)) {
            // Nothing could be recorded of it, so nothing can be missed.
            (Entry::Unread { .. }, _) => None,
            (_, false) => Some((Change::Deleted, "gone".into())),
            (Entry::Parts { kind: PartKind::RustTests, .. }, true) => modified("its inline tests are gone"),
            (Entry::Parts { kind: PartKind::Make, .. }, true) => modified("make no longer reads it"),
            (_, true) => modified("no longer what it was"),
        };
    };
    match (was, is) {
        (Entry::Unread { .. }, _) => None,
        (_, Entry::Unread { why }) => modified(why),
        (Entry::File { sha256: was, .. }, Entry::File { sha256: is, .. }) => {
            (was != is).then(|| (Change::Modified, "contents".into()))
        }
        (Entry::Link { target: was, .. }, Entry::Link { target: is, .. }) => {
            (was != is).then(|| (Change::Modified, "target of the link".into()))
        }
        (Entry::Parts { kind, parts: was }, Entry::Parts { kind: same, parts: is }) if kind == same => {
            let changed = was.iter().filter(|(name, hash)| is.get(*name) != Some(hash)).map(|(name, _)| name);
            let added =
                is.keys().filter(|name| !was.contains_key(*name) && added_counts(path, *kind, name, was, start));
            let names: Vec<&str> =
                changed.chain(added).map(|name| plain_name(*kind, name)).take(DETAIL_FILES).collect();
            (!names.is_empty()).then(|| (Change::Modified, names.join(", ")))
        }
        (_, Entry::Link { .. }) => modified("it is a link now"),
        (_, Entry::File { .. } | Entry::Parts { .. }) => modified("no longer what it was"),
    }
}

/// Whether anything stands at `path` itself, not behind a link in place of one of its directories.
fn stands(fs: &dyn Fs, top: &Path, path: &str) -> bool {
    let mut dir = patterns::parent(path);
    while !dir.is_empty() {
        if !fs.metadata(&top.join(unescape(dir))).is_ok_and(|meta| meta.kind == Kind::Dir) {
            return false;
        }
        dir = patterns::parent(dir);
    }
    fs.metadata(&top.join(unescape(path))).is_ok()
}

/// The name of a part without the hash that tells pieces of one name apart.
fn plain_name(kind: PartKind, name: &str) -> &str {
    match kind {
        PartKind::RustTests => name.rsplit_once(' ').map_or(name, |(name, _)| name),
        PartKind::Package | PartKind::Python | PartKind::Cargo | PartKind::Make => name,
    }
}

/// Whether a part that the file did not have at the start counts as a change.
fn added_counts(path: &str, kind: PartKind, name: &str, was: &super::Parts, start: &Snapshot) -> bool {
    match kind {
        // More tests are welcome; a switch that turns the file's tests off is not.
        PartKind::RustTests => name.contains("#![cfg]"),
        PartKind::Package if name.starts_with(package_json::SCRIPT) => {
            was.keys().any(|k| k.starts_with(package_json::SCRIPT)) || governs(path, start)
        }
        PartKind::Package | PartKind::Python => governs(path, start),
        PartKind::Cargo => !cargo_toml::may_be_added(name),
        PartKind::Make => runs_make(start) || governs(path, start),
    }
}

/// Whether a check ran a known make goal at the start: then whatever joins it counts.
fn runs_make(start: &Snapshot) -> bool {
    start.files.values().any(|e| matches!(e, Entry::Parts { kind: PartKind::Make, parts } if !parts.is_empty()))
}

/// Whether a file that is new is configuration of tests of the start.
fn steers(path: &str, entry: &Entry, start: &Snapshot) -> bool {
    let config = classify(path).config;
    match entry {
        Entry::File { role: Role::Script, .. } | Entry::Link { role: Role::Script, .. } => false,
        Entry::File { .. } | Entry::Link { .. } | Entry::Unread { .. } => config.is_some() && governs(path, start),
        Entry::Parts { kind, parts } => match kind {
            PartKind::RustTests => false,
            PartKind::Package | PartKind::Python => !parts.is_empty() && governs(path, start),
            PartKind::Cargo => parts.keys().any(|name| !cargo_toml::may_be_added(name)) && governs(path, start),
            // Also where the goal was found in another makefile at the start, which this one hides.
            PartKind::Make => governs(path, start) || hides(path, start),
        },
    }
}

/// Whether the makefile at `path` stands before one of the start that a check runs.
fn hides(path: &str, start: &Snapshot) -> bool {
    start.reach.make.iter().any(|run| makefile::shadows(run, path))
        && start.files.iter().any(|(other, e)| {
            matches!(e, Entry::Parts { kind: PartKind::Make, .. }) && patterns::parent(other) == patterns::parent(path)
        })
}

/// Whether configuration at `path` stands at or above a directory that holds a test of the start.
fn governs(path: &str, start: &Snapshot) -> bool {
    let dir = patterns::governed(path);
    // Inline tests of Rust sources listen to no other language's configuration.
    let rust = match classify(path).config {
        Some(Config::Cargo | Config::Make) => true,
        Some(Config::Whole) => path.ends_with("nextest.toml") || path.contains(".cargo/"),
        Some(Config::Package | Config::Pyproject | Config::SetupCfg) | None => false,
    };
    let inline = |entry: &Entry| matches!(entry, Entry::Parts { .. });
    start.files.iter().any(|(test, entry)| entry.is_test() && (rust || !inline(entry)) && patterns::is_below(test, dir))
        || start.more.iter().flat_map(|more| &more.dirs).any(|d| d == dir || patterns::is_below(d, dir))
}

fn below_unreadable(path: &str, start: &Snapshot) -> bool {
    start.unreadable.iter().any(|dir| patterns::is_below(path, dir))
}

/// Tests recorded by mark that are not there any more as they were.
fn lost_marks(start: &Snapshot, now: &Snapshot) -> usize {
    let Some(more) = &start.more else { return 0 };
    let mut left = more.marks.clone();
    for (path, entry) in &now.files {
        for mark in entry.marks(path) {
            left.remove(&mark);
        }
    }
    left.len()
}

fn report(start: &Snapshot, changes: &Changes, lost: usize) -> CheckResult {
    let all = start.files.len() + start.more.as_ref().map_or(0, |more| more.marks.len());
    let passed = changes.is_empty() && lost == 0;
    let mut detail = if passed {
        format!("{all} protected files are as the run found them")
    } else {
        let mut named: Vec<String> = changes.iter().take(DETAIL_FILES).map(|(path, c)| line(path, c)).collect();
        if changes.len() > DETAIL_FILES {
            named.push(format!("{} more", changes.len() - DETAIL_FILES));
        }
        if lost > 0 {
            named.push(lost_line(lost));
        }
        format!("{} of {all} protected files are not as the run found them: {}", changes.len() + lost, named.join("; "))
    };
    if !start.notes.is_empty() {
        detail.push_str(&format!("; not covered: {}", start.notes.join(", ")));
    }
    let tail = (!passed).then(|| {
        let mut lines: Vec<String> = changes.iter().take(TAIL_FILES).map(|(path, c)| line(path, c)).collect();
        if changes.len() > TAIL_FILES {
            lines.push(format!("... and {} more", changes.len() - TAIL_FILES));
        }
        if lost > 0 {
            lines.push(lost_line(lost));
        }
        lines.join("\n")
    });
    result(passed, detail, tail)
}

fn lost_line(lost: usize) -> String {
    format!("{lost} tests after the first {} recorded by name (modified or deleted)", snapshot::MAX_NAMED)
}

fn line(path: &str, (change, why): &(Change, String)) -> String {
    format!("{} ({}: {})", shown(path), change.word(), shown(why))
}

/// Text fit for one line: control characters written out, bounded.
fn shown(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if out.len() > MAX_TEXT {
            out.push_str("...");
            break;
        }
        if c.is_control() { out.extend(c.escape_default()) } else { out.push(c) }
    }
    out
}

fn result(passed: bool, detail: String, tail: Option<String>) -> CheckResult {
    CheckResult {
        id: ID.to_owned(),
        kind: KIND.to_owned(),
        required: true,
        passed,
        duration_ms: 0,
        detail,
        tail,
        artifacts: Vec::new(),
        timed_out: false,
        exit_code: None,
        skipped: false,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::verify::protected::Reach;

    fn snapshot(tests: usize, hash: &str) -> Snapshot {
        let entry = Entry::File { role: Role::Test, sha256: hash.into() };
        Snapshot {
            v: SNAPSHOT_VERSION,
            base: String::new(),
            files: (0..tests).map(|n| (format!("a/{n:03}_test.go"), entry.clone())).collect(),
            reach: Reach::default(),
            more: None,
            unreadable: BTreeSet::new(),
            notes: Vec::new(),
        }
    }

    #[test]
    fn a_changed_test_beyond_the_bound_is_counted() {
        let now = snapshot(10, "aa");
        let mut start = now.clone();
        snapshot::fold(&mut start, 4);
        assert_eq!(lost_marks(&start, &now), 0);
        let mut changed = now;
        changed.files.remove("a/009_test.go");
        changed.files.extend(snapshot(6, "bb").files.split_off("a/005_test.go"));
        assert_eq!(lost_marks(&start, &changed), 2);
        assert!(governs("jest.config.js", &start) && !governs("b/jest.config.js", &start));
    }

    #[test]
    fn reports_are_bounded_and_fit_a_line() {
        let start = snapshot(1, "aa");
        let changes: Changes =
            (0..5_000).map(|n| (format!("t\n{n:05}{}", "x".repeat(500)), (Change::Deleted, "gone".into()))).collect();
        let result = report(&start, &changes, 3);
        assert!(!result.passed && result.detail.len() < 10_000 && !result.detail.contains('\n'));
        let tail = result.tail.unwrap();
        assert_eq!(tail.lines().count(), TAIL_FILES + 2);
        assert!(tail.contains("... and 3000 more"));
        assert!(report(&start, &Changes::new(), 0).passed);
    }
}
