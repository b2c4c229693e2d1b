//! The record of protected files: its form, and how its size is bounded. Reads no tree.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{Parts, digest, patterns::parent, shell::Reach};

/// Version of the snapshot's JSON form.
pub const SNAPSHOT_VERSION: u32 = 1;
/// Tests recorded by name, at most, to keep the artifact in the low megabytes. Those after the first ones in
/// path order are recorded by a mark of 16 digits each: a change is still seen, but not which file it was.
pub(super) const MAX_NAMED: usize = 50_000;
/// Protected files of one repository at one moment. Stored as an artifact of the run.
///
/// Paths are relative to the repository's top with `/`; bytes that are no UTF-8, and `%`, stand as `%XX`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Form of this document.
    pub v: u32,
    /// Directory the checks run in, relative to the top; empty for the top.
    #[serde(default)]
    pub base: String,
    /// What was recorded, by path.
    #[serde(default)]
    pub files: BTreeMap<String, Entry>,
    /// What the contract's commands run.
    #[serde(default)]
    pub reach: Reach,
    /// Tests beyond the first 50 000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub more: Option<More>,
    /// Directories that could not be listed; what is in them is not protected.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub unreadable: BTreeSet<String>,
    /// What the record does not cover, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// One protected file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "as", rename_all = "snake_case")]
pub enum Entry {
    /// A regular file, whole.
    File {
        /// Why it is protected.
        role: Role,
        /// SHA-256 of its bytes, hex; `ends:` before it when only both ends of a huge file were read.
        sha256: String,
    },
    /// A symbolic link.
    Link {
        /// Why it is protected.
        role: Role,
        /// Where it points, as written in it.
        target: String,
    },
    /// Pieces of a file.
    Parts {
        /// What the pieces are.
        kind: PartKind,
        /// Their hashes by name.
        parts: Parts,
    },
    /// There, but not to be read: a pipe, no permission, or a syntax error.
    Unread {
        /// Why, in words.
        why: String,
    },
}

/// Why a whole file is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// It is a test.
    Test,
    /// It configures tests.
    Config,
    /// It runs tests.
    Script,
}

/// What the pieces of a file are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PartKind {
    /// Inline tests of a Rust source.
    RustTests,
    /// Keys and scripts of `package.json`.
    Package,
    /// Sections of `pyproject.toml` or `setup.cfg`.
    Python,
    /// Switches of `Cargo.toml`.
    Cargo,
    /// Reached targets and variables of a makefile.
    Make,
}

/// Tests beyond those recorded by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct More {
    /// One mark for each file, or piece of a file: the start of a hash over path and contents.
    pub marks: BTreeSet<String>,
    /// Directories these tests stand in.
    pub dirs: BTreeSet<String>,
}

impl Entry {
    /// Whether this is a test, for which configuration may not be added.
    pub(super) fn is_test(&self) -> bool {
        match self {
            Self::File { role, .. } | Self::Link { role, .. } => *role == Role::Test,
            Self::Parts { kind, .. } => *kind == PartKind::RustTests,
            Self::Unread { .. } => false,
        }
    }

    /// The marks that stand for this entry when it is not recorded by name.
    pub(super) fn marks(&self, path: &str) -> Vec<String> {
        let mark = |what: &str| {
            let hash = digest(format!("{path}\0{what}").as_bytes());
            hash.get(..16).unwrap_or(&hash).to_owned()
        };
        match self {
            Self::File { sha256, .. } => vec![mark(sha256)],
            Self::Link { target, .. } => vec![mark(&format!("link\0{target}"))],
            Self::Parts { parts, .. } => parts.iter().map(|(k, v)| mark(&format!("{k}\0{v}"))).collect(),
            Self::Unread { .. } => Vec::new(),
        }
    }
}

/// Moves the tests after the first `limit` into marks.
pub(super) fn fold(snapshot: &mut Snapshot, limit: usize) {
    let over: Vec<String> =
        snapshot.files.iter().filter(|(_, e)| e.is_test()).skip(limit).map(|(path, _)| path.clone()).collect();
    if over.is_empty() {
        return;
    }
    let mut more = More::default();
    for path in over {
        if let Some(entry) = snapshot.files.remove(&path) {
            more.marks.extend(entry.marks(&path));
            more.dirs.insert(parent(&path).to_owned());
        }
    }
    snapshot.more = Some(more);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_beyond_the_bound_are_marked_and_configuration_keeps_its_name() {
        let file = |role| Entry::File { role, sha256: "00".into() };
        let mut snapshot = Snapshot {
            v: SNAPSHOT_VERSION,
            base: String::new(),
            files: (0..5).map(|n| (format!("t/{n}_test.go"), file(Role::Test))).collect(),
            reach: Reach::default(),
            more: None,
            unreadable: BTreeSet::new(),
            notes: Vec::new(),
        };
        snapshot.files.insert("z.config".into(), file(Role::Config));
        fold(&mut snapshot, 2);
        assert_eq!(snapshot.files.keys().collect::<Vec<_>>(), ["t/0_test.go", "t/1_test.go", "z.config"]);
        let more = snapshot.more.clone().unwrap();
        assert_eq!((more.marks.len(), more.dirs.len()), (3, 1));
        let text = serde_json::to_string(&snapshot).unwrap();
        assert_eq!(serde_json::from_str::<Snapshot>(&text).unwrap(), snapshot);
    }
}
