//! The three ways through a workload: cut at every operation, cut again at every operation of each recovery,
//! and every operation made to fail, with a cut at every later one.

use std::{
    collections::HashSet,
    fmt,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use super::{
    check,
    defects::Defect,
    disk::Disk,
    drive,
    fs::{Fault, ModelFs, Moment},
    ledger::Ledger,
    record::{Broken, Checked, Unread, broken},
    workloads::Workload,
};

/// Ends of names nobody reads after a cut: half-made and half-removed things, which are only removed, whatever is left of
/// them, and lock files, which are empty. So all disks that differ below them alone are one disk to every reader.
pub(super) const UNREAD: [&str; 5] = [".tmp", ".staging", ".trash", "owner.lock", "format.lock"];
/// Caches and what is for people.
const CACHES: [&str; 2] = ["run.json", "lease.json"];

/// Threads that look at disks.
const THREADS: usize = 2;
/// Disks looked at together.
const CHUNK: usize = 128;

/// What was looked at.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts {
    /// Changing operations of the history.
    pub(super) operations: usize,
    /// Distinct disks a cut of it leaves.
    pub(super) images: usize,
    /// Distinct disks a second cut leaves, in the recovery of one of those.
    pub(super) second: usize,
    /// Operations made to fail, in the history and in recoveries.
    pub(super) faults: usize,
    /// Distinct disks a cut leaves after one of those.
    pub(super) after_faults: usize,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.operations += other.operations;
        self.images += other.images;
        self.second += other.second;
        self.faults += other.faults;
        self.after_faults += other.after_faults;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operations, images, second, faults, after_faults } = self;
        write!(
            f,
            "{operations} operations, {images} images, {second} second cuts, {faults} faults, \
             {after_faults} images after faults"
        )
    }
}

/// A way in which an invariant breaks.
#[derive(Debug, Clone)]
pub(super) struct Example {
    workload: &'static str,
    way: String,
    broken: Broken,
}

impl fmt::Display for Example {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}; {}", self.workload, self.way, self.broken)
    }
}

/// Something to look at, and how it came to be.
struct Item<T> {
    way: String,
    what: T,
}

/// Looks at items in order until one fails; gives the failure of the first that does.
fn each<T: Sync>(
    name: &'static str,
    items: &[Item<T>],
    look: impl Fn(&Item<T>) -> Result<(), Example> + Sync,
) -> Result<(), Example> {
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(None::<(usize, Example)>));
    let work = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(at) else { return };
            if failed.lock().unwrap().as_ref().is_some_and(|(first, _)| *first < at) {
                return;
            }
            let outcome = catch_unwind(AssertUnwindSafe(|| look(item))).unwrap_or_else(|_| {
                Err(Example { workload: name, way: item.way.clone(), broken: broken("I11", "it panicked") })
            });
            if let Err(example) = outcome {
                let mut failed = failed.lock().unwrap();
                if failed.as_ref().is_none_or(|(first, _)| at < *first) {
                    *failed = Some((at, example));
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..THREADS.min(items.len()) {
            scope.spawn(work);
        }
        work();
    });
    failed.into_inner().unwrap().map_or(Ok(()), |(_, example)| Err(example))
}

/// Disks looked at already, with what was promised of them.
#[derive(Default)]
struct Seen(Mutex<HashSet<(u64, u64)>>);

impl Seen {
    /// The disks a cut at this moment may leave that were not seen yet.
    fn new_ones(&self, moment: &Moment, unread: &[&str]) -> Vec<Disk> {
        let mut hasher = DefaultHasher::new();
        moment.ledger.hash(&mut hasher);
        let promised = hasher.finish();
        moment.disk.after_cut(unread, |print| self.0.lock().unwrap().insert((print, promised)))
    }
}

/// The exploration of one workload.
pub(super) struct Explorer<'a> {
    workload: &'a Workload,
    defect: Option<Defect>,
    counts: Mutex<Counts>,
}

impl<'a> Explorer<'a> {
    pub(super) fn new(workload: &'a Workload, defect: Option<Defect>) -> Self {
        Self { workload, defect, counts: Mutex::default() }
    }

    pub(super) fn counts(&self) -> Counts {
        *self.counts.lock().unwrap()
    }

    fn count(&self, add: impl FnOnce(&mut Counts)) {
        add(&mut self.counts.lock().unwrap());
    }

    fn example(&self, way: impl Into<String>, outcome: Checked) -> Result<(), Example> {
        outcome.map_err(|broken| Example { workload: self.workload.name, way: way.into(), broken })
    }

    /// Runs the history without anything happening to it.
    fn history(&self) -> Result<(ModelFs, Vec<Moment>), Example> {
        let fs = self.workload.machine(self.defect);
        fs.keep_from(0);
        self.example("nothing happens", drive::must((self.workload.run)(&fs)))?;
        let moments = fs.kept();
        self.count(|c| c.operations = moments.len() - 1);
        Ok((fs, moments))
    }

    /// A cut at every operation; with `twice`, another one at every operation of each recovery.
    pub(super) fn cuts(&self, twice: bool) -> Result<(), Example> {
        let (fs, moments) = self.history()?;
        let seen = Seen::default();
        self.all(moments, &seen, &UNREAD, |item| {
            self.count(|c| c.images += 1);
            let machine = self.start(&fs, &item.what);
            if twice {
                machine.keep_from(0);
            }
            self.example(&item.way, check::check(&machine, self.workload))?;
            let moments = if twice { machine.kept() } else { vec![] };
            self.example(&item.way, check::again(&machine, self.workload))?;
            for moment in moments {
                let way = || format!("{}, then cut before operation {} ({})", item.way, moment.operation, moment.about);
                for disk in seen.new_ones(&moment, &UNREAD) {
                    self.count(|c| c.second += 1);
                    self.whole(&machine, &way(), &(disk, moment.ledger.clone()))?;
                }
            }
            Ok(())
        })
    }

    /// Every operation of the history made to fail in every way, and a cut at every operation after it.
    pub(super) fn faults(&self) -> Result<(), Example> {
        let (_, moments) = self.history()?;
        let seen = Seen::default();
        let items = self.faults_at(&moments[..moments.len() - 1], "");
        each(self.workload.name, &items, |item| {
            let fs = self.workload.machine(self.defect);
            self.fail_and_go_on(&fs, item, (&seen, &UNREAD), |fs| (self.workload.run)(fs))
        })
    }

    /// Every operation of every recovery made to fail, and a cut at every operation after it.
    /// What lies in caches decides nothing that a recovery writes, so disks that differ there alone count once;
    /// they are told apart where the power is cut twice.
    pub(super) fn faults_in_recovery(&self) -> Result<(), Example> {
        let (fs, moments) = self.history()?;
        let (first, seen) = (Seen::default(), Seen::default());
        let unread = [&UNREAD[..], &CACHES].concat();
        self.all(moments, &first, &unread, |image| {
            let machine = self.start(&fs, &image.what);
            machine.keep_from(0);
            self.example(&image.way, check::check(&machine, self.workload))?;
            let moments = machine.kept();
            for item in self.faults_at(&moments[..moments.len() - 1], &image.way) {
                let machine = self.start(&fs, &image.what);
                let unread = (&seen, unread.as_slice());
                self.fail_and_go_on(&machine, &item, unread, |fs| check::survive(fs, self.workload))?;
            }
            Ok(())
        })
    }

    fn faults_at(&self, moments: &[Moment], before: &str) -> Vec<Item<(u64, Fault)>> {
        let faults = [Fault::Io, Fault::Full, Fault::Short];
        let all = moments.iter().flat_map(|m| faults.map(|fault| (m, fault)));
        all.filter(|(moment, fault)| *fault != Fault::Short || moment.about.starts_with("write"))
            .map(|(moment, fault)| {
                let comma = if before.is_empty() { "" } else { ", then " };
                let way = format!("{before}{comma}{fault:?} at operation {} ({})", moment.operation, moment.about);
                Item { way, what: (moment.operation, fault) }
            })
            .collect()
    }

    /// One operation fails; the product opens again; the power is cut at every operation from the failed one on.
    fn fail_and_go_on(
        &self,
        fs: &ModelFs,
        item: &Item<(u64, Fault)>,
        (seen, unread): (&Seen, &[&str]),
        run: impl FnOnce(&ModelFs) -> Result<(), drive::Stop>,
    ) -> Result<(), Example> {
        let (at, fault) = item.what;
        fs.fail_at(at, fault);
        fs.keep_from(at + 1);
        let outcome = match run(fs) {
            Err(Unread::Store(_)) if fs.was_hit() => check::check(fs, self.workload),
            other => drive::must(other),
        };
        self.example(&item.way, outcome)?;
        self.count(|c| c.faults += 1);
        for moment in fs.kept() {
            for disk in seen.new_ones(&moment, unread) {
                self.count(|c| c.after_faults += 1);
                let way = format!("{}, then cut before operation {} ({})", item.way, moment.operation, moment.about);
                self.whole(fs, &way, &(disk, moment.ledger.clone()))?;
            }
        }
        Ok(())
    }

    fn start(&self, fs: &ModelFs, image: &(Disk, Ledger)) -> ModelFs {
        fs.after_cut(image.0.clone(), image.1.clone())
    }

    /// Everything that is asked of one disk.
    fn whole(&self, fs: &ModelFs, way: &str, image: &(Disk, Ledger)) -> Result<(), Example> {
        let machine = self.start(fs, image);
        self.example(way, check::check(&machine, self.workload))?;
        self.example(way, check::again(&machine, self.workload))
    }

    /// Looks at every new disk of these moments, in their order. A deliberate defect lets what is pending grow, and
    /// so do the disks it may leave: then it is done moment by moment, and ends with the first that shows it.
    fn all(
        &self,
        moments: Vec<Moment>,
        seen: &Seen,
        unread: &[&str],
        look: impl Fn(&Item<(Disk, Ledger)>) -> Result<(), Example> + Sync,
    ) -> Result<(), Example> {
        let chunk = if self.defect.is_some() { 1 } else { CHUNK };
        let mut items = Vec::new();
        let mut moments = moments.into_iter().peekable();
        while let Some(moment) = moments.next() {
            let way = format!("cut before operation {} ({})", moment.operation, moment.about);
            let disks = seen.new_ones(&moment, unread);
            items.extend(disks.into_iter().map(|disk| Item { way: way.clone(), what: (disk, moment.ledger.clone()) }));
            if items.len() >= chunk || moments.peek().is_none() {
                each(self.workload.name, &std::mem::take(&mut items), &look)?;
            }
        }
        Ok(())
    }
}
