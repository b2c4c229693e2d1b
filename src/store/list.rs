//! Listing: every run, newest first, reading only runs that changed since the last time.

use std::collections::HashMap;

use super::{
    Listed, Result, layout, load,
    shared::{Remembered, Shared},
};
use crate::{
    model::{RunId, Time},
    sys::Kind,
};

/// Every run, newest first. A damaged run is listed like any other; loading it tells.
pub(super) fn list(shared: &Shared) -> Result<Vec<Listed>> {
    let names = match shared.fs.list(shared.layout.wf()) {
        Ok(names) => names,
        Err(e) if e.is_not_found() => return Ok(Vec::new()),
        Err(e) => return Err(e.into()),
    };
    let mut before = shared.take_listed();
    let mut after = HashMap::with_capacity(names.len());
    let mut listed = Vec::with_capacity(names.len());
    for name in names {
        let Some(run) = name.to_str().and_then(|n| RunId::parse(n).ok()) else { continue };
        let Some(stamp) = stamp(shared, &run)? else { continue };
        let known = before.remove(&run).filter(|r| r.stamp == stamp);
        let created_at = match known {
            Some(known) => known.created_at,
            None => load::incarnation(shared, &run).map_or_else(|_| Time::from_millis(0), |i| i.created_at),
        };
        after.insert(run.clone(), Remembered { stamp, created_at });
        listed.push(Listed { run_id: run, created_at, stamp });
    }
    shared.put_listed(after);
    listed.sort_by(|a, b| (b.created_at, &b.run_id).cmp(&(a.created_at, &a.run_id)));
    Ok(listed)
}

/// Changes whenever the run does: every commit makes the log longer. `None` when it is no run.
fn stamp(shared: &Shared, run: &RunId) -> Result<Option<u128>> {
    let dir = shared.layout.run(run);
    let meta = match shared.fs.metadata(&dir.join(layout::LOG)) {
        Ok(meta) => meta,
        Err(e) if e.is_not_found() => match shared.fs.metadata(&dir) {
            // A run whose log is gone is damaged; labelled evidence and stray files are no runs.
            Ok(meta) if meta.kind == Kind::Dir && !shared.is_label(run)? => meta,
            Ok(_) => return Ok(None),
            Err(e) if e.is_not_found() => return Ok(None),
            Err(e) => return Err(e.into()),
        },
        Err(e) => return Err(e.into()),
    };
    let changed = meta.mtime_ns.unsigned_abs() & u128::from(u64::MAX);
    let len = u128::from(meta.len & 0xffff_ffff_ffff);
    let again = u128::from(shared.deletions(run) & 0xffff);
    Ok(Some((again << 112) | (len << 64) | changed))
}
