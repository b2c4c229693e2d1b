//! What changed since a baseline, as a list and as a patch.
//!
//! Both compare two trees: the baseline's (the snapshot of the state at start where there is one, else
//! its commit) and one built from the working tree. So commits made meanwhile, staged, unstaged and
//! untracked work count alike, and what differed at start does not. Never judges a change.

use std::{collections::BTreeMap, ffi::OsString};

use super::{
    Change, ChangeKind, ChangeSet, Error, Patch, Repo, Result, cli,
    scan::Bytes,
    scratch::{Built, Objects, Scratch, Untracked},
    snapshot::LARGE,
    state::State,
};
use crate::model::run::Baseline;

/// Most bytes of a patch: it is held in memory and stored with the evidence.
const MAX_PATCH: usize = 256 << 20;
/// Most bytes of a list of changes: about two million paths.
pub(super) const MAX_LIST: usize = 512 << 20;
/// Renames are looked for among this many candidates; beyond it they show as deleted and created.
const RENAME_LIMIT: &str = "-l2000";

const LISTING: &str = "list the changes";

/// Flags that keep a repository's settings out of a comparison.
pub(super) const PLAIN: &[&str] = &[
    "diff-tree",
    "-r",
    "-M",
    RENAME_LIMIT,
    "--full-index",
    "--no-ext-diff",
    "--no-textconv",
    "--no-color",
    "--ignore-submodules=none",
    "-O/dev/null",
];

/// The two sides of a comparison.
struct Sides {
    scratch: Scratch,
    from: String,
    built: Built,
    /// State of what trees cannot hold, then and now.
    then: Option<State>,
    now: State,
    /// Ignore rules outside the tree, then and now.
    private_then: Vec<u8>,
    private_now: Vec<u8>,
}

impl Repo {
    /// What differs from the baseline: diff from its commit to the working tree, commits made meanwhile
    /// included, plus untracked files, minus what differed in the same way when the baseline was taken.
    pub async fn changes(&self, base: &Baseline) -> Result<ChangeSet> {
        let mut sides = self.sides(base).await?;
        let mut found = self.list(&sides).await?;
        if (found.has_rules() || sides.private_then != sides.private_now) && self.unhide(&mut sides).await? {
            found = self.list(&sides).await?;
        }
        for (path, kind) in self.beyond(&sides).await? {
            found.add(path, kind);
        }
        Ok(found.finish())
    }

    /// What changed and no tree can hold: large untracked files and work inside submodules.
    async fn beyond(&self, sides: &Sides) -> Result<Vec<(Bytes, ChangeKind)>> {
        let Some(then) = &sides.then else {
            let work = self.dirty_submodules(&sides.built).await?.into_iter().map(|path| (path, ChangeKind::Modified));
            let large = sides.built.large.iter().map(|path| (path.clone(), ChangeKind::Created));
            return Ok(work.chain(large).collect());
        };
        let mut found: Vec<(Bytes, ChangeKind)> =
            then.submodules_changed(&sides.now)?.into_iter().map(|path| (path, ChangeKind::Modified)).collect();
        for (path, was, is) in then.large_changed(&sides.now)? {
            let kind = match (was, is) {
                (false, _) => ChangeKind::Created,
                (true, true) => ChangeKind::Modified,
                // Gone, or tracked by now, and then the comparison of the trees has it.
                (true, false) => ChangeKind::Deleted,
            };
            found.push((path, kind));
        }
        Ok(found)
    }

    /// The same difference as a patch git can apply to the baseline, created and binary files included.
    /// Untracked files over 50 MiB and uncommitted work inside submodules are not in it, and are named.
    pub async fn patch(&self, base: &Baseline) -> Result<Patch> {
        let mut sides = self.sides(base).await?;
        let call = self.compare(&sides).max_stdout(MAX_LIST).args(["--name-only", "-z"]);
        let rules = call.args([&sides.from, &sides.built.tree, "--", ":(top,glob)**/.gitignore"]).run().await?;
        if !rules.is_empty() || sides.private_then != sides.private_now {
            self.unhide(&mut sides).await?;
        }
        let call = self.compare(&sides).max_stdout(MAX_PATCH).args(["--patch", "--binary", "--unified=3"]);
        let call = call.args(["--submodule=short", "--src-prefix=a/", "--dst-prefix=b/"]);
        let bytes = call.args([&sides.from, &sides.built.tree]).run().await?;
        let beyond = self.beyond(&sides).await?;
        let shown = if beyond.is_empty() { Found::default() } else { self.list(&sides).await? };
        let missing = beyond.iter().filter(|(path, _)| !shown.changes.contains_key(path));
        let left_out = missing.map(|(path, _)| String::from_utf8_lossy(path).into_owned()).collect();
        Ok(Patch { bytes, left_out })
    }

    async fn sides(&self, base: &Baseline) -> Result<Sides> {
        let commit = match &base.base_sha {
            Some(sha) => Some(self.resolve(sha).await?),
            None => None,
        };
        let snapshot = match &base.snapshot {
            Some(sha) => Some(self.resolve(sha).await?),
            None => None,
        };
        let scratch = Scratch::new(self, Objects::Drop).await?;
        let built = match (&commit, &snapshot) {
            // Nothing to count from: what is untracked is all that can be known to be new.
            (None, None) => self.build_untracked(&scratch).await?,
            (_, Some(_)) | (Some(_), _) => self.build(&scratch, Untracked::UpTo(LARGE)).await?,
        };
        built.scan.must_be_whole(&self.top)?;
        let then = match &snapshot {
            Some(snapshot) => Some(State::of(&self.commit_object(snapshot).await?)?),
            None => None,
        };
        let now = match then {
            Some(_) => self.state(&built.scan, &built.large).await?,
            None => State::empty(),
        };
        let private_now = self.private_rules().await?;
        let private_then = match &then {
            Some(then) => then.exclude()?,
            None => private_now.clone(),
        };
        let from = snapshot.or(commit).unwrap_or_else(|| empty_tree(&built.tree).to_owned());
        Ok(Sides { scratch, from, built, then, now, private_then, private_now })
    }

    /// Adds files that only new ignore rules keep out of sight; whether there were any.
    async fn unhide(&self, sides: &mut Sides) -> Result<bool> {
        if sides.from == empty_tree(&sides.from) {
            // Nothing to count from, so no rules of the time either.
            return Ok(false);
        }
        let found = self.hidden(&sides.scratch, &sides.from, &sides.private_then).await?;
        if found.is_empty() {
            return Ok(false);
        }
        self.add(&sides.scratch, &mut sides.built, &found).await?;
        Ok(true)
    }

    async fn list(&self, sides: &Sides) -> Result<Found> {
        let call = self.compare(sides).max_stdout(MAX_LIST).args(["--raw", "--numstat", "-z"]);
        Found::parse(&call.args([&sides.from, &sides.built.tree]).run().await?)
    }

    fn compare(&self, sides: &Sides) -> cli::Call {
        // Attributes of the working tree could call a text file binary, to make its lines not count.
        let attributes = ("GIT_ATTR_SOURCE", OsString::from(empty_tree(&sides.built.tree)));
        self.git.call(&self.top, LISTING).envs(sides.scratch.env()).envs(&[attributes]).args(PLAIN)
    }

    /// Submodules with uncommitted work, for a baseline that does not say how they were.
    async fn dirty_submodules(&self, built: &Built) -> Result<Vec<Bytes>> {
        let mut dirty = Vec::new();
        for entry in built.scan.tracked.iter().filter(|entry| entry.mode == super::scan::GITLINK) {
            let Some(inner) = self.submodule(&entry.path).await? else {
                if self.submodule_digest(&entry.path).await?.is_some() {
                    dirty.push(entry.path.clone());
                }
                continue;
            };
            let call = self.git.call(&inner.top, "read a submodule's status");
            let call = call.args(["status", "--porcelain", "-z", "--untracked-files=all", "--ignore-submodules=none"]);
            if !call.run().await?.is_empty() {
                dirty.push(entry.path.clone());
            }
        }
        Ok(dirty)
    }
}

/// The tree without entries, in the repository's hash.
pub(super) fn empty_tree(id: &str) -> &'static str {
    match id.len() {
        64 => "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321",
        _ => "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
    }
}

/// Changes gathered so far.
#[derive(Debug, Default)]
struct Found {
    changes: BTreeMap<Bytes, (Option<Bytes>, ChangeKind)>,
    lines: u64,
}

impl Found {
    /// Reads `--raw --numstat -z`: records that start with `:` and then counts.
    fn parse(answer: &[u8]) -> Result<Self> {
        let odd = |record: &[u8]| Error::Answer { what: LISTING, reason: String::from_utf8_lossy(record).into_owned() };
        let mut found = Self::default();
        let mut fields = answer.split(|b| *b == 0);
        while let Some(record) = fields.next() {
            if record.is_empty() {
                continue;
            }
            if record.starts_with(b":") {
                let status = record.rsplit(|b| *b == b' ').next().and_then(|status| status.first());
                let path = fields.next().ok_or_else(|| odd(record))?.to_vec();
                let (path, old, kind) = match status {
                    Some(b'A' | b'C') => (path, None, ChangeKind::Created),
                    Some(b'D') => (path, None, ChangeKind::Deleted),
                    Some(b'M' | b'T') => (path, None, ChangeKind::Modified),
                    Some(b'R') => {
                        let new = fields.next().ok_or_else(|| odd(record))?.to_vec();
                        (new, Some(path), ChangeKind::Renamed)
                    }
                    _ => return Err(odd(record)),
                };
                found.changes.insert(path, (old, kind));
                continue;
            }
            let mut parts = record.splitn(3, |b| *b == b'\t');
            let (added, removed, path) = (parts.next(), parts.next(), parts.next());
            for count in [added, removed] {
                let count = count.and_then(|count| std::str::from_utf8(count).ok()).ok_or_else(|| odd(record))?;
                found.lines += match count {
                    // A binary file is `-` twice and counts once.
                    "-" => 0,
                    digits => digits.parse::<u64>().map_err(|_| odd(record))?,
                };
            }
            found.lines += u64::from(added == Some(b"-"));
            if path.is_none_or(<[u8]>::is_empty) {
                // A rename has both paths in fields of their own.
                fields.next();
                fields.next();
            }
        }
        Ok(found)
    }

    /// Whether ignore rules are among what changed.
    fn has_rules(&self) -> bool {
        let rules = |path: &Bytes| path == b".gitignore" || path.ends_with(b"/.gitignore");
        self.changes.iter().any(|(path, (old, _))| rules(path) || old.as_ref().is_some_and(rules))
    }

    /// Adds what the trees did not show; counts as a binary file.
    fn add(&mut self, path: Bytes, kind: ChangeKind) {
        if let std::collections::btree_map::Entry::Vacant(free) = self.changes.entry(path) {
            free.insert((None, kind));
            self.lines += 1;
        }
    }

    fn finish(self) -> ChangeSet {
        let show = |path: Bytes| String::from_utf8_lossy(&path).into_owned();
        let mut changes: Vec<Change> = self
            .changes
            .into_iter()
            .map(|(path, (old, kind))| Change { path: show(path), old_path: old.map(show), kind })
            .collect();
        changes.sort_by(|a, b| a.path.cmp(&b.path));
        ChangeSet { changes, lines: self.lines }
    }
}
