//! How a tree is recorded: one walk, then what the contract's commands reach. Compares nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};

use super::{
    Parts, cargo_toml, digest, hex, makefile,
    package_json::{self, Manifest, Roots},
    patterns::{Class, Config, classify, names_test_dir, parent},
    pyproject, rust_tests,
    shell::{MakeRun, Reach, join},
    snapshot::{Entry, MAX_NAMED, PartKind, Role, SNAPSHOT_VERSION, Snapshot, fold},
    walk::{Found, escape, unescape, walk},
};
use crate::{
    model::{CheckSpec, Contract},
    sys::{Fs, FsError, Kind, fs::Result},
};

/// Marks kept, at most; a tree with more tests is refused at the start rather than half protected.
const MAX_MARKS: usize = 1_000_000;
/// Size up to which configuration is parsed; no hand-written file comes near.
const MAX_CONFIG: u64 = 4 << 20;
/// Size up to which a Rust source is searched for inline tests; larger ones are generated tables.
const MAX_SOURCE: u64 = 4 << 20;
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
        let mut done: BTreeSet<MakeRun> = BTreeSet::new();
        let mut made: BTreeMap<String, Parts> = BTreeMap::new();
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
            // What a goal reaches depends on its makefile alone: each is read once.
            for run in reach.make.clone() {
                if !done.insert(run.clone()) {
                    continue;
                }
                let Some(found) = makefile::reach(&run, &read) else { continue };
                for line in &found.recipes {
                    reach.add_text(line, &run.dir);
                }
                for (file, parts) in found.files {
                    made.entry(file).or_default().extend(parts);
                }
            }
            if reach.size() == before {
                break;
            }
        }
        for (file, parts) in made {
            // One below a test directory is recorded whole already.
            if !matches!(self.files.get(&file), Some(Entry::File { .. } | Entry::Link { .. })) {
                self.files.insert(file, Entry::Parts { kind: PartKind::Make, parts });
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
    fn test_modules_are_looked_for_where_rust_looks() {
        let module =
            |file: Option<&str>| rust_tests::OutOfLine { path: vec!["t".into()], file: file.map(str::to_owned) };
        assert_eq!(module_files("a/src/lib.rs", &module(None)), ["a/src/t.rs", "a/src/t/mod.rs"]);
        assert_eq!(module_files("src/x.rs", &module(None)).first().unwrap(), "src/x/t.rs");
        assert_eq!(module_files("src/x.rs", &module(Some("../o.rs"))), ["o.rs"]);
    }
}
