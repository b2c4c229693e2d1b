//! Deliberate defects. Each must be caught by the very runs that find nothing without it; otherwise those prove
//! nothing.

use super::{
    explore::{Example, Explorer},
    workloads::{self, Workload},
};

/// Something that is wrong with the store on purpose. The model does most of it, as a file system that lies to the
/// store would; the others are one line each in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Defect {
    /// Syncs of files are left out.
    NoFsync,
    /// Syncs of directories are left out.
    NoDirFsync,
    /// Half-made files are synced after they were renamed into place.
    RenameBeforeSync,
    /// Recovery believes the last line it sees and does not write it again.
    TrustedTail,
    /// A checkpoint is believed without asking the log.
    TrustedCheckpoint,
    /// Recovery cuts the last line off and adds it anew.
    TruncateAndAppend,
    /// A sync that failed is tried again and then believed.
    RetryFailedSync,
    /// A writer does not look whether a newer epoch has begun.
    NoEpochInWriter,
    /// A reader counts what an older epoch added after a fence.
    NoEpochInReader,
}

/// A way through a workload.
#[derive(Debug, Clone, Copy)]
enum Way {
    Cut,
    SecondCut,
    Fault,
}

/// Every defect, and where it is looked for first: the shortest way that can show it.
const TABLE: [(Defect, &str, Way); 9] = [
    (Defect::NoFsync, "create", Way::Cut),
    (Defect::NoDirFsync, "create", Way::Cut),
    (Defect::RenameBeforeSync, "artifacts", Way::Cut),
    (Defect::TrustedTail, "commits", Way::Fault),
    (Defect::TrustedCheckpoint, "commits", Way::Cut),
    (Defect::TruncateAndAppend, "commits", Way::Cut),
    (Defect::RetryFailedSync, "commits", Way::Fault),
    (Defect::NoEpochInWriter, "second owner", Way::Cut),
    (Defect::NoEpochInReader, "late line", Way::Cut),
];

/// Each defect with the way in which it was caught, if it was.
pub(super) fn hunt() -> Vec<(Defect, Option<Example>)> {
    TABLE.iter().map(|(defect, workload, way)| (*defect, find(*defect, workloads::named(workload), *way))).collect()
}

/// The first failure, beginning where it is expected and going on through everything else.
fn find(defect: Defect, first: &Workload, way: Way) -> Option<Example> {
    let rest =
        [Way::Cut, Way::SecondCut, Way::Fault].into_iter().flat_map(|way| workloads::ALL.iter().map(move |w| (w, way)));
    std::iter::once((first, way)).chain(rest).find_map(|(workload, way)| {
        let explorer = Explorer::new(workload, Some(defect));
        let outcome = match way {
            Way::Cut => explorer.cuts(false),
            Way::SecondCut => explorer.cuts(true),
            Way::Fault => explorer.faults(),
        };
        outcome.err()
    })
}
