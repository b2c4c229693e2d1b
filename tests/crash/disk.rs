//! A disk in memory and what a power cut may leave of it. For tests.
//!
//! Each file keeps what is durable and the writes since; each directory the durable names and the changes
//! since. A cut leaves any number of a directory's changes from the first on, and any number of a file's
//! writes with the next one absent, half there, or there in length but zero. A rename is atomic over its two
//! directories, as on every file system with a journal; nothing else is ordered between two of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    sync::Arc,
};

/// Combinations of directory prefixes looked at for one moment; the workloads stay far below.
const DISKS_MAX: usize = 20_000;

/// One change of a file since its last sync.
#[derive(Debug, Clone)]
pub(super) enum Write {
    Bytes(usize, Vec<u8>),
    Len(usize),
}

/// One change of a directory since its last sync. Both halves of a rename share their number.
#[derive(Debug, Clone)]
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

    /// Every disk a cut at this moment may leave and whose fingerprint is `wanted`. What can only
    /// ever be below the names in `ignored` comes in one variant: nothing of what is pending there is left, but for
    /// renames to elsewhere. The fingerprint leaves these names out, and equal disks have the same.
    pub(super) fn after_cut(&self, ignored: &[&str], mut wanted: impl FnMut(u64) -> bool) -> Vec<Disk> {
        let shown = self.shown(ignored);
        let mut dirs = Vec::new();
        let mut choices: Vec<Vec<usize>> = vec![vec![]];
        for (i, inode) in self.inodes.iter().enumerate().filter(|(i, _)| shown.contains(i)) {
            if let Inode::Dir { pending, .. } = inode.as_ref() {
                // A change of ignored names alone makes no difference worth a disk of its own.
                let matters = |n: &usize| *n == 0 || pending[*n - 1].names().any(|name| !hides(ignored, name));
                let most: Vec<usize> = (0..=pending.len()).filter(matters).collect();
                if !pending.is_empty() {
                    dirs.push(i);
                    choices =
                        choices.iter().flat_map(|c| most.iter().map(move |n| [c.as_slice(), &[*n]].concat())).collect();
                    assert!(choices.len() <= DISKS_MAX, "too many pending directory changes");
                }
            }
        }
        let mut disks = Vec::new();
        for choice in choices {
            if let Some(base) = self.with_names(&dirs, &choice) {
                base.with_writes(ignored, &mut wanted, &mut disks);
            }
        }
        disks
    }

    /// Everything that some disk may show at a place without an ignored name. The rest comes in one variant.
    fn shown(&self, ignored: &[&str]) -> BTreeSet<usize> {
        let (mut found, mut todo) = (BTreeSet::new(), vec![0]);
        while let Some(at) = todo.pop() {
            if !found.insert(at) {
                continue;
            }
            if let Inode::Dir { live, durable, pending } = self.inodes[at].as_ref() {
                let added = pending.iter().filter_map(|op| op.add.as_ref()).map(|(name, inode)| (name, inode));
                let all = live.iter().chain(durable).chain(added);
                todo.extend(all.filter(|(name, _)| !hides(ignored, name)).map(|(_, inode)| *inode));
            }
        }
        found
    }

    /// The disk with the first so many changes of each directory; none when that would halve a rename.
    fn with_names(&self, dirs: &[usize], taken: &[usize]) -> Option<Disk> {
        let (mut inside, mut outside) = (BTreeSet::new(), BTreeSet::new());
        for (dir, n) in dirs.iter().zip(taken) {
            if let Inode::Dir { pending, .. } = self.inodes[*dir].as_ref() {
                inside.extend(pending[..*n].iter().map(|o| o.number));
                outside.extend(pending[*n..].iter().map(|o| o.number));
            }
        }
        if !inside.is_disjoint(&outside) {
            return None;
        }
        let mut base = self.clone();
        for inode in &mut base.inodes {
            let changed = matches!(inode.as_ref(), Inode::Dir { pending, .. } if !pending.is_empty());
            if changed && let Inode::Dir { live, durable, pending } = Arc::make_mut(inode) {
                pending.iter().filter(|op| inside.contains(&op.number)).for_each(|op| op.apply(durable));
                pending.clear();
                *live = durable.clone();
            }
        }
        Some(base)
    }

    /// The wanted disks with these names. Files vary one at a time, the others having lost either all of their
    /// writes or none.
    fn with_writes(&self, ignored: &[&str], wanted: &mut impl FnMut(u64) -> bool, disks: &mut Vec<Disk>) {
        let reachable = self.reachable();
        let places = self.places(ignored);
        let print_of = |all_written: bool| {
            places.iter().fold(0_u64, |sum, (inode, place)| match self.inodes[*inode].as_ref() {
                Inode::Dir { .. } => sum.wrapping_add(mix(*place, 1)),
                Inode::File { durable, pending, .. } if all_written && !pending.is_empty() => {
                    let mut bytes = durable.clone();
                    pending.iter().for_each(|w| w.apply(&mut bytes));
                    sum.wrapping_add(print(*place, &bytes))
                }
                Inode::File { durable, .. } => sum.wrapping_add(print(*place, durable)),
            })
        };
        let (none, all) = (print_of(false), print_of(true));
        if wanted(none) {
            disks.push(self.with_files(&reachable, None, false));
        }
        if wanted(all) {
            disks.push(self.with_files(&reachable, None, true));
        }
        for (file, place) in &places {
            let Inode::File { durable, pending, .. } = self.inodes[*file].as_ref() else { continue };
            let variants = variants(durable, pending);
            let Some(last) = variants.last() else { continue };
            let (lost, written) = (print(*place, durable), print(*place, last));
            for variant in &variants {
                let own = print(*place, variant);
                if wanted(none.wrapping_sub(lost).wrapping_add(own)) {
                    disks.push(self.with_files(&reachable, Some((*file, variant)), false));
                }
                if wanted(all.wrapping_sub(written).wrapping_add(own)) {
                    disks.push(self.with_files(&reachable, Some((*file, variant)), true));
                }
            }
        }
    }

    /// Every inode that can be reached without an ignored name, with what stands for its path.
    fn places(&self, ignored: &[&str]) -> BTreeMap<usize, u64> {
        let (mut found, mut todo) = (BTreeMap::new(), vec![(0, 0)]);
        while let Some((at, place)) = todo.pop() {
            found.insert(at, place);
            if let Inode::Dir { durable, .. } = self.inodes[at].as_ref() {
                let shown = durable.iter().filter(|(name, _)| !hides(ignored, name));
                todo.extend(shown.map(|(name, inode)| (*inode, print(place, name.as_encoded_bytes()))));
            }
        }
        found
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
}

/// What a file may hold after a cut: any number of its pending writes, with the next one absent or partly there.
/// The last one is the file with all of them; none without a pending write.
fn variants(durable: &[u8], pending: &[Write]) -> Vec<Vec<u8>> {
    let mut bytes = durable.to_vec();
    let mut found = Vec::new();
    for write in pending {
        found.push(bytes.clone());
        found.extend(write.partly(bytes.len()).iter().map(|part| {
            let mut torn = bytes.clone();
            part.apply(&mut torn);
            torn
        }));
        write.apply(&mut bytes);
        found.push(bytes.clone());
    }
    found
}

/// Whether a name ends with one of these.
fn hides(ignored: &[&str], name: &OsString) -> bool {
    ignored.iter().any(|end| name.as_encoded_bytes().ends_with(end.as_bytes()))
}

/// Stands for bytes at a place.
fn print(place: u64, bytes: &[u8]) -> u64 {
    mix(mix(place, bytes.len() as u64 + 2), u64::from(crc32c::crc32c(bytes)))
}

/// Mixes two numbers so that sums of the results tell sets of pairs apart.
fn mix(a: u64, b: u64) -> u64 {
    let mut x = a.rotate_left(25) ^ b.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
