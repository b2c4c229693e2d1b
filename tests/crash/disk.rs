//! A disk in memory and what a power cut may leave of it. For tests.
//!
//! Each file keeps what is durable and the writes since; each directory the durable names and the changes
//! since. A cut leaves any number of a directory's changes from the first on, and any number of a file's
//! writes with the next one absent, half there, or there in length but zero. A rename is atomic over its two
//! directories, as on every file system with a journal; nothing else is ordered between two of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

/// Combinations of directory prefixes looked at for one moment; the workloads stay far below.
const DISKS_MAX: usize = 20_000;

/// One change of a file since its last sync.
#[derive(Debug, Clone, Hash)]
pub(super) enum Write {
    Bytes(usize, Vec<u8>),
    Len(usize),
}

/// One change of a directory since its last sync. Both halves of a rename share their number.
#[derive(Debug, Clone, Hash)]
pub(super) struct NameOp {
    pub(super) number: u64,
    pub(super) remove: Option<OsString>,
    pub(super) add: Option<(OsString, usize)>,
}

#[derive(Debug, Clone)]
pub(super) enum Inode {
    File { live: Vec<u8>, durable: Vec<u8>, pending: Vec<Write>, changed: u64 },
    Dir { live: BTreeMap<OsString, usize>, durable: BTreeMap<OsString, usize>, pending: Vec<NameOp> },
}

/// A disk and its cache.
#[derive(Debug, Clone)]
pub(super) struct Disk {
    pub(super) inodes: Vec<Arc<Inode>>,
}

impl Write {
    pub(super) fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Bytes(at, new) => {
                let end = at + new.len();
                if bytes.len() < end {
                    bytes.resize(end, 0);
                }
                bytes[*at..end].copy_from_slice(new);
            }
            Self::Len(len) => bytes.resize(*len, 0),
        }
    }

    /// What may be left of it: half of the bytes, or its length without its bytes. Blocks that were there
    /// keep what they held; only new ones read as zeros.
    pub(super) fn partly(&self, there: usize) -> Vec<Write> {
        match self {
            Self::Bytes(at, new) => {
                let zeros = (at + new.len()).saturating_sub(there.max(*at));
                vec![Self::Bytes(*at, new[..new.len() / 2].to_vec()), Self::Bytes(there.max(*at), vec![0; zeros])]
            }
            Self::Len(_) => vec![],
        }
    }
}

impl NameOp {
    /// The names it changes.
    fn names(&self) -> impl Iterator<Item = &OsString> {
        self.remove.iter().chain(self.add.iter().map(|(name, _)| name))
    }

    pub(super) fn apply(&self, names: &mut BTreeMap<OsString, usize>) {
        if let Some(name) = &self.remove {
            names.remove(name);
        }
        if let Some((name, inode)) = &self.add {
            names.insert(name.clone(), *inode);
        }
    }
}

impl Inode {
    pub(super) fn file() -> Arc<Self> {
        Arc::new(Self::File { live: vec![], durable: vec![], pending: vec![], changed: 0 })
    }

    pub(super) fn dir() -> Arc<Self> {
        Arc::new(Self::Dir { live: BTreeMap::new(), durable: BTreeMap::new(), pending: vec![] })
    }

    /// Whether a cut leaves it as it is.
    fn is_settled(&self) -> bool {
        match self {
            Self::File { live, durable, pending, .. } => pending.is_empty() && live == durable,
            Self::Dir { live, durable, pending } => pending.is_empty() && live == durable,
        }
    }
}

impl Disk {
    /// A disk with an empty root.
    pub(super) fn empty() -> Self {
        Self { inodes: vec![Inode::dir()] }
    }

    pub(super) fn names(&self, dir: usize) -> Option<&BTreeMap<OsString, usize>> {
        match self.inodes[dir].as_ref() {
            Inode::Dir { live, .. } => Some(live),
            Inode::File { .. } => None,
        }
    }

    /// The disk after everything pending has reached it.
    pub(super) fn settled(&self) -> Self {
        let mut disk = self.clone();
        for inode in disk.inodes.iter_mut().filter(|i| !i.is_settled()) {
            match Arc::make_mut(inode) {
                Inode::File { live, durable, pending, .. } => {
                    *durable = live.clone();
                    pending.clear();
                }
                Inode::Dir { live, durable, pending } => {
                    *durable = live.clone();
                    pending.clear();
                }
            }
        }
        disk
    }

    /// Every disk a cut at this moment may leave. Directories and files of the names in `ignored` come in one
    /// variant only: nothing of what is pending there is left, but for renames to elsewhere.
    pub(super) fn after_cut(&self, ignored: &[&str]) -> Vec<Disk> {
        let dull = self.below(ignored);
        let mut dirs = Vec::new();
        let mut choices: Vec<Vec<usize>> = vec![vec![]];
        for (i, inode) in self.inodes.iter().enumerate().filter(|(i, _)| !dull.contains(i)) {
            if let Inode::Dir { pending, .. } = inode.as_ref() {
                // A change of ignored names alone makes no difference worth a disk of its own.
                let matters =
                    |n: &usize| *n == 0 || pending[*n - 1].names().any(|name| !ignored.iter().any(|i| name == i));
                let most: Vec<usize> = (0..=pending.len()).filter(matters).collect();
                if !pending.is_empty() {
                    dirs.push(i);
                    choices =
                        choices.iter().flat_map(|c| most.iter().map(move |n| [c.as_slice(), &[*n]].concat())).collect();
                    assert!(choices.len() <= DISKS_MAX, "too many pending directory changes");
                }
            }
        }
        choices.iter().flat_map(|c| self.with_names(&dirs, c, &dull)).collect()
    }

    /// Everything below these names, wherever they stand.
    fn below(&self, ignored: &[&str]) -> BTreeSet<usize> {
        let named = self.inodes.iter().filter_map(|n| match n.as_ref() {
            Inode::Dir { live, .. } => Some(live),
            Inode::File { .. } => None,
        });
        let mut todo: Vec<usize> =
            named.flatten().filter(|(name, _)| ignored.iter().any(|i| name == i)).map(|(_, i)| *i).collect();
        let mut found = BTreeSet::new();
        while let Some(at) = todo.pop() {
            if found.insert(at) {
                todo.extend(self.names(at).into_iter().flat_map(BTreeMap::values));
            }
        }
        found
    }

    /// The disks with the first so many changes of each directory; none when that would halve a rename.
    fn with_names(&self, dirs: &[usize], taken: &[usize], dull: &BTreeSet<usize>) -> Vec<Disk> {
        let (mut inside, mut outside) = (BTreeSet::new(), BTreeSet::new());
        for (dir, n) in dirs.iter().zip(taken) {
            if let Inode::Dir { pending, .. } = self.inodes[*dir].as_ref() {
                inside.extend(pending[..*n].iter().map(|o| o.number));
                outside.extend(pending[*n..].iter().map(|o| o.number));
            }
        }
        if !inside.is_disjoint(&outside) {
            return vec![];
        }
        let mut base = self.clone();
        for inode in base.inodes.iter_mut().filter(|i| !i.is_settled()) {
            if let Inode::Dir { live, durable, pending } = Arc::make_mut(inode) {
                pending.iter().filter(|op| inside.contains(&op.number)).for_each(|op| op.apply(durable));
                pending.clear();
                *live = durable.clone();
            }
        }
        let reachable = base.reachable();
        // Files vary one at a time, the others having lost either all of their writes or none.
        let mut disks = vec![base.with_files(&reachable, None, false), base.with_files(&reachable, None, true)];
        let unsettled = |file: &usize| match base.inodes[*file].as_ref() {
            Inode::File { pending, .. } => !pending.is_empty(),
            Inode::Dir { .. } => false,
        };
        let several = reachable.iter().filter(|f| unsettled(f)).count() > 1;
        for file in reachable.difference(dull) {
            let Inode::File { durable, pending, .. } = base.inodes[*file].as_ref() else { continue };
            let mut bytes = durable.clone();
            for write in pending {
                let mut variants = vec![bytes.clone()];
                variants.extend(write.partly(bytes.len()).iter().map(|part| {
                    let mut torn = bytes.clone();
                    part.apply(&mut torn);
                    torn
                }));
                write.apply(&mut bytes);
                variants.push(bytes.clone());
                for variant in variants {
                    disks.push(base.with_files(&reachable, Some((*file, &variant)), false));
                    if several {
                        disks.push(base.with_files(&reachable, Some((*file, &variant)), true));
                    }
                }
            }
        }
        disks
    }

    fn reachable(&self) -> BTreeSet<usize> {
        let (mut seen, mut todo) = (BTreeSet::new(), vec![0]);
        while let Some(at) = todo.pop() {
            if seen.insert(at) {
                todo.extend(self.names(at).into_iter().flat_map(BTreeMap::values));
            }
        }
        seen
    }

    fn with_files(&self, reachable: &BTreeSet<usize>, one: Option<(usize, &[u8])>, all_written: bool) -> Disk {
        let mut disk = self.clone();
        for (i, inode) in disk.inodes.iter_mut().enumerate().filter(|(_, i)| !i.is_settled()) {
            if let Inode::File { live, durable, pending, .. } = Arc::make_mut(inode) {
                if let Some((_, bytes)) = one.filter(|(file, _)| *file == i) {
                    *durable = bytes.to_vec();
                } else if all_written && reachable.contains(&i) {
                    pending.iter().for_each(|w| w.apply(durable));
                }
                pending.clear();
                *live = durable.clone();
            }
        }
        disk
    }

    /// Stands for the contents, some names left out, so that equal disks are looked at once.
    pub(super) fn fingerprint(&self, ignored: &[&str]) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash_tree(0, ignored, &mut hasher);
        hasher.finish()
    }

    fn hash_tree(&self, at: usize, ignored: &[&str], hasher: &mut DefaultHasher) {
        match self.inodes[at].as_ref() {
            Inode::File { live, .. } => (live.len(), crc32c::crc32c(live)).hash(hasher),
            Inode::Dir { live, .. } => {
                for (name, inode) in live.iter().filter(|(name, _)| !ignored.iter().any(|i| name == i)) {
                    name.hash(hasher);
                    self.hash_tree(*inode, ignored, hasher);
                }
                0xff_u8.hash(hasher);
            }
        }
    }
}
