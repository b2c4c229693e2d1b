//! Evidence of verifications that belong to no run, kept under a label in the same namespace as runs.

use std::io::ErrorKind;

use serde_json::json;

use super::{Error, MakeFiles, Result, artifacts, layout, shared::Shared};
use crate::{
    model::RunId,
    sys::{FsError, fs::remove_tree},
};

/// Bundles one label may collect; beyond it something calls in a loop and wants another label.
const BUNDLES_MAX: u32 = 9999;

/// Stores a bundle under the label's next free id and returns the id.
pub(super) fn put(shared: &Shared, label: &RunId, files: MakeFiles<'_>) -> Result<String> {
    shared.writable()?;
    open(shared, label)?;
    let fs = shared.fs.as_ref();
    let dir = shared.layout.run(label).join("evidence");
    let mut number = next(shared, label)?;
    while number <= BUNDLES_MAX {
        let id = format!("verify-{number:02}");
        let temp = shared.layout.staging().join(shared.fresh_name());
        let placed =
            artifacts::fill(shared, label, &temp, &files(&id)).and_then(|()| Ok(fs.rename_new(&temp, &dir.join(&id))?));
        match placed {
            Ok(()) => {
                fs.sync_dir(&dir)?;
                return Ok(id);
            }
            Err(e) => {
                let _ = remove_tree(fs, &temp);
                // Another process took the number; the bundle carries its id, so it is made again.
                if !is_there(&e) {
                    return Err(shared.noticing_full_disk(e));
                }
                number += 1;
            }
        }
    }
    let why = std::io::Error::new(ErrorKind::QuotaExceeded, "the label has too many bundles; use another label");
    Err(FsError::new("store evidence in", dir, why).into())
}

/// Makes the label's directory, whole and durable, unless it is there.
fn open(shared: &Shared, label: &RunId) -> Result<()> {
    let fs = shared.fs.as_ref();
    if !shared.is_taken(label)? {
        let stage = shared.layout.staging().join(shared.fresh_name());
        let built = (|| -> Result<()> {
            fs.create_dir(&stage)?;
            let mark = format!("{}\n", json!({ "label": label.as_str(), "createdAt": shared.clock.wall() }));
            shared.write_synced(&stage.join(layout::LABEL), mark.as_bytes())?;
            fs.create_dir(&stage.join("evidence"))?;
            fs.sync_dir(&stage)?;
            fs.rename_new(&stage, &shared.layout.run(label))?;
            Ok(fs.sync_dir(shared.layout.wf())?)
        })();
        match built {
            Ok(()) => return Ok(()),
            Err(e) => {
                let _ = remove_tree(fs, &stage);
                if !is_there(&e) {
                    return Err(shared.noticing_full_disk(e));
                }
            }
        }
    }
    if shared.is_label(label)? { Ok(()) } else { Err(Error::Exists(label.clone())) }
}

/// Whether something else took the name first.
fn is_there(e: &Error) -> bool {
    matches!(e, Error::Io(io) if io.kind() == ErrorKind::AlreadyExists)
}

/// The number after the highest one in use.
fn next(shared: &Shared, label: &RunId) -> Result<u32> {
    let names = artifacts::list(shared, label, "evidence")?;
    let numbers = names.iter().filter_map(|n| n.strip_prefix("verify-")?.parse::<u32>().ok());
    Ok(numbers.max().unwrap_or(0).saturating_add(1))
}
