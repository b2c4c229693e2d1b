//! The record of protected files, and how it is made from a tree. Compares nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{
    Parts, cargo_toml, digest, hex, makefile,
    package_json::{self, Manifest, Roots},
    patterns::{Class, Config, classify, names_test_dir, parent},
    pyproject, rust_tests,
    shell::{Reach, join},
    walk::{Found, escape, unescape, walk},
};
use crate::{
    model::{CheckSpec, Contract},
    sys::{Fs, FsError, Kind, fs::Result},
};

/// Version of the snapshot's JSON form.
pub const SNAPSHOT_VERSION: u32 = 1;
/// Tests recorded by name, at most, to keep the artifact in the low megabytes. Those after the first ones in
/// path order are recorded by a mark of 16 digits each: a change is still seen, but not which file it was.
pub(super) const MAX_NAMED: usize = 50_000;
/// Marks kept, at most; a tree with more tests is refused at the start rather than half protected.
const MAX_MARKS: usize = 1_000_000;
/// Size up to which configuration is parsed; no hand-written file comes near.
const MAX_CONFIG: u64 = 4 << 20;
/// Size up to which a Rust source is searched for inline tests; larger ones are generated tables.
const MAX_SOURCE: u64 = 16 << 20;
/// Size up to which a test file is hashed whole; of a larger one the length, the beginning and the end.
const MAX_WHOLE: u64 = 256 << 20;
/// Bytes hashed at each end of a file larger than [`MAX_WHOLE`].
const SAMPLE: u64 = 32 << 20;
/// Bytes read at once.
const CHUNK: usize = 4 << 20;
/// Rounds of following scripts into makefiles and back; each one must find something new to go on.
const MAX_ROUNDS: usize = 64;
/// Notes kept about what the record does not cover.
const MAX_NOTES: usize = 20;

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

/// `cwd` relative to `top`, in the form of [`Snapshot::base`]; empty when it is not inside.
pub(super) fn relative_dir(fs: &dyn Fs, top: &Path, cwd: &Path) -> String {
    let real = |path: &Path| fs.canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    let inside = cwd.strip_prefix(top).map(Path::to_path_buf).or_else(|_| {
        let (top, cwd) = (real(top), real(cwd));
        cwd.strip_prefix(top).map(Path::to_path_buf)
    });
    inside.map(|path| escape(path.as_os_str().as_bytes())).unwrap_or_default()
}

/// Records a tree. With `start`, as that record would see it now: its reach and its `test:*` scripts are roots
/// too, and nothing is folded into marks.
pub(super) fn record(
    fs: &dyn Fs,
    top: &Path,
    base: &str,
    contract: &Contract,
    start: Option<&Snapshot>,
) -> Result<Snapshot> {
    let mut recorder = Recorder {
        fs,
        top,
        start,
        files: BTreeMap::new(),
        packages: Vec::new(),
        modules: Vec::new(),
        notes: Vec::new(),
    };
    let unseen = walk(fs, top, &mut |found| {
        recorder.visit(&found);
        recorder.bound()
    })?;
    if unseen.too_deep > 0 {
        recorder.note(format!("{} directories nested too deep", unseen.too_deep));
    }
    if !unseen.dirs.is_empty() {
        recorder.note(format!("{} directories that cannot be listed", unseen.dirs.len()));
    }
    recorder.test_modules();
    let reach = recorder.follow(base, contract);
    let mut snapshot = Snapshot {
        v: SNAPSHOT_VERSION,
        base: base.to_owned(),
        files: recorder.files,
        reach,
        more: None,
        unreadable: unseen.dirs,
        notes: recorder.notes,
    };
    if start.is_none() {
        fold(&mut snapshot, MAX_NAMED);
    }
    Ok(snapshot)
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

struct Recorder<'a> {
    fs: &'a dyn Fs,
    top: &'a Path,
    start: Option<&'a Snapshot>,
    files: BTreeMap<String, Entry>,
    packages: Vec<(String, Manifest)>,
    /// Places where a test module declared elsewhere may stand, first come first served.
    modules: Vec<Vec<String>>,
    notes: Vec<String>,
}

impl Recorder<'_> {
    fn note(&mut self, note: String) {
        if self.notes.len() < MAX_NOTES {
            self.notes.push(note);
        }
    }

    fn bound(&self) -> Result<()> {
        if self.files.len() <= MAX_NAMED + MAX_MARKS {
            return Ok(());
        }
        let why = format!("more than {} test files; set protectTests to false", MAX_NAMED + MAX_MARKS);
        Err(FsError::new("record the tests of", self.top, io::Error::other(why)))
    }

    fn path(&self, rel: &str) -> PathBuf {
        self.top.join(unescape(rel))
    }

    fn visit(&mut self, found: &Found<'_>) {
        let Class { mut test, config, rust } = classify(found.rel);
        test |= found.meta.kind == Kind::Symlink && names_test_dir(found.rel);
        // Below a test directory a new manifest is read as configuration; one of the start counts whole.
        let new = self.start.is_some_and(|start| !start.files.contains_key(found.rel));
        let whole =
            (test && !(new && matches!(config, Some(c) if c != Config::Whole))) || config == Some(Config::Whole);
        if !(whole || rust || config.is_some_and(|c| c != Config::Make)) {
            return;
        }
        let role = if test { Role::Test } else { Role::Config };
        let entry = match found.meta.kind {
            Kind::File if whole => Some(self.whole(found.path, found.meta.len, role)),
            Kind::File => self.pieces(found, config),
            Kind::Symlink if whole || config.is_some() => Some(self.link(found.path, role)),
            Kind::Other if whole || config.is_some() => Some(Entry::Unread { why: "it is no regular file".into() }),
            Kind::Symlink | Kind::Other | Kind::Dir => None,
        };
        if let Some(entry) = entry {
            self.files.insert(found.rel.to_owned(), entry);
        }
    }

    fn link(&self, path: &Path, role: Role) -> Entry {
        match self.fs.read_link(path) {
            Ok(target) => Entry::Link { role, target: escape(target.as_os_str().as_bytes()) },
            Err(e) => Entry::Unread { why: e.source.to_string() },
        }
    }

    fn whole(&mut self, path: &Path, len: u64, role: Role) -> Entry {
        match hash_file(self.fs, path, len) {
            Ok(sha256) => {
                if sha256.starts_with("ends:") {
                    self.note(format!("the middle of {}", path.display()));
                }
                Entry::File { role, sha256 }
            }
            Err(e) => Entry::Unread { why: e.source.to_string() },
        }
    }

    /// The protected pieces of a file; none for a Rust source without tests.
    fn pieces(&mut self, found: &Found<'_>, config: Option<Config>) -> Option<Entry> {
        let limit = if config.is_some() { MAX_CONFIG } else { MAX_SOURCE };
        if found.meta.len > limit {
            self.note(format!("{}, which is too large to read", found.rel));
            return config.map(|_| Entry::Unread { why: format!("it is larger than {limit} bytes") });
        }
        let bytes = match self.fs.read(found.path) {
            Ok(bytes) => bytes,
            Err(e) => {
                self.note(format!("{}, which cannot be read", found.rel));
                return config.map(|_| Entry::Unread { why: e.source.to_string() });
            }
        };
        let (kind, parts) = match config {
            Some(Config::Pyproject) => (PartKind::Python, pyproject::pyproject(&bytes)),
            Some(Config::SetupCfg) => (PartKind::Python, pyproject::setup_cfg(&bytes)),
            Some(Config::Cargo) => (PartKind::Cargo, cargo_toml::parts(&bytes)),
            Some(Config::Package) => {
                let manifest = Manifest::parse(&bytes);
                let known = manifest.is_some();
                self.packages.extend(manifest.map(|m| (found.rel.to_owned(), m)));
                // Its parts follow when it is known what is reached.
                (PartKind::Package, known.then(Parts::new))
            }
            Some(Config::Whole | Config::Make) => return None,
            None => {
                let tests = rust_tests::scan(&bytes);
                self.modules.extend(tests.modules.iter().map(|module| module_files(found.rel, module)));
                (PartKind::RustTests, (!tests.parts.is_empty()).then_some(tests.parts))
            }
        };
        match parts {
            Some(parts) => Some(Entry::Parts { kind, parts }),
            None => config.map(|_| Entry::Unread { why: "it cannot be parsed".into() }),
        }
    }

    /// Records the files of test modules that are declared in one file and written in another.
    fn test_modules(&mut self) {
        for candidates in std::mem::take(&mut self.modules) {
            for rel in candidates {
                let path = self.path(&rel);
                let entry = match self.fs.metadata(&path) {
                    Ok(meta) if meta.kind == Kind::File => self.whole(&path, meta.len, Role::Test),
                    Ok(meta) if meta.kind == Kind::Symlink => self.link(&path, Role::Test),
                    _ => continue,
                };
                self.files.insert(rel, entry);
                break;
            }
        }
    }

    /// Follows the contract's commands through scripts and makefiles, and records what they reach.
    fn follow(&mut self, base: &str, contract: &Contract) -> Reach {
        let mut reach = self.start.map(|s| s.reach.clone()).unwrap_or_default();
        for check in &contract.checks {
            if let CheckSpec::Command { cmd, args, cwd, .. } = &check.spec {
                let dir = cwd.as_deref().map_or(Some(base.to_owned()), |cwd| join(base, cwd));
                let words: Vec<String> = std::iter::once(cmd).chain(args).cloned().collect();
                reach.add_command(&words, dir.as_deref().unwrap_or(base));
            }
        }
        let (fs, top) = (self.fs, self.top);
        let read = |rel: &str| read_config(fs, &top.join(unescape(rel)));
        let none = Parts::new();
        for _ in 0..MAX_ROUNDS {
            let before = reach.size();
            for (rel, manifest) in &self.packages {
                let roots = match self.start.map(|start| start.files.get(rel)) {
                    Some(Some(Entry::Parts { parts, .. })) => Roots::Of(parts),
                    Some(Some(_)) => Roots::Of(&none),
                    Some(None) | None => Roots::All,
                };
                let reached = manifest.reachable(&reach.scripts, &roots);
                for name in &reached {
                    let text = manifest.script(name);
                    let mut found = Reach::default();
                    found.add_text(text, parent(rel));
                    if package_json::reaches_out(text) {
                        reach.scripts.append(&mut found.scripts);
                    }
                    reach.make.append(&mut found.make);
                    reach.files.append(&mut found.files);
                }
                let parts = manifest.parts(&reached);
                self.files.insert(rel.clone(), Entry::Parts { kind: PartKind::Package, parts });
            }
            let mut made: BTreeMap<String, Parts> = BTreeMap::new();
            for run in reach.make.clone() {
                let Some(found) = makefile::reach(&run, &read) else { continue };
                for line in &found.recipes {
                    reach.add_text(line, &run.dir);
                }
                for (file, parts) in found.files {
                    made.entry(file).or_default().extend(parts);
                }
            }
            for (file, parts) in made {
                // One below a test directory is recorded whole already.
                if !matches!(self.files.get(&file), Some(Entry::File { .. } | Entry::Link { .. })) {
                    self.files.insert(file, Entry::Parts { kind: PartKind::Make, parts });
                }
            }
            if reach.size() == before {
                break;
            }
        }
        for rel in &reach.files {
            let path = self.path(rel);
            let entry = match self.fs.metadata(&path) {
                Ok(meta) if meta.kind == Kind::File => self.whole(&path, meta.len, Role::Script),
                Ok(meta) if meta.kind == Kind::Symlink => self.link(&path, Role::Script),
                _ => continue,
            };
            self.files.entry(rel.clone()).or_insert(entry);
        }
        reach
    }
}

/// A makefile's bytes, links followed; none unless it ends at a regular file of a sane size.
fn read_config(fs: &dyn Fs, path: &Path) -> Option<Vec<u8>> {
    let path = fs.canonicalize(path).ok()?;
    let meta = fs.metadata(&path).ok()?;
    (meta.kind == Kind::File && meta.len <= MAX_CONFIG).then(|| fs.read(&path).ok()).flatten()
}

/// Where `module`, declared in the source at `rel`, may be written.
fn module_files(rel: &str, module: &rust_tests::OutOfLine) -> Vec<String> {
    let dir = parent(rel);
    let stem = rel.rsplit('/').next().and_then(|name| name.strip_suffix(".rs")).unwrap_or_default();
    let below = module.path.join("/");
    if let (Some(file), [_]) = (&module.file, module.path.as_slice()) {
        return join(dir, file).into_iter().collect();
    }
    let own = if matches!(stem, "lib" | "main" | "mod") { None } else { Some(format!("{stem}/{below}")) };
    // A crate's root may have any name: its modules stand beside it.
    own.into_iter()
        .chain([below])
        .flat_map(|path| [join(dir, &format!("{path}.rs")), join(dir, &format!("{path}/mod.rs"))])
        .flatten()
        .collect()
}

fn hash_file(fs: &dyn Fs, path: &Path, len: u64) -> Result<String> {
    if len <= CHUNK as u64 {
        return Ok(digest(&fs.read(path)?));
    }
    let mut hasher = Sha256::new();
    let mut range = |from: u64, to: u64| -> Result<()> {
        let mut at = from;
        while at < to {
            let want = usize::try_from(to - at).unwrap_or(CHUNK).min(CHUNK);
            let bytes = fs.read_range(path, at, want)?;
            if bytes.is_empty() {
                break;
            }
            at += bytes.len() as u64;
            hasher.update(&bytes);
        }
        Ok(())
    };
    if len <= MAX_WHOLE {
        range(0, len)?;
        return Ok(hex(&hasher.finalize()));
    }
    range(0, SAMPLE)?;
    range(len - SAMPLE, len)?;
    hasher.update(len.to_le_bytes());
    Ok(format!("ends:{}", hex(&hasher.finalize())))
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

    #[test]
    fn test_modules_are_looked_for_where_rust_looks() {
        let module =
            |file: Option<&str>| rust_tests::OutOfLine { path: vec!["t".into()], file: file.map(str::to_owned) };
        assert_eq!(module_files("a/src/lib.rs", &module(None)), ["a/src/t.rs", "a/src/t/mod.rs"]);
        assert_eq!(module_files("src/x.rs", &module(None)).first().unwrap(), "src/x/t.rs");
        assert_eq!(module_files("src/x.rs", &module(Some("../o.rs"))), ["o.rs"]);
    }
}
