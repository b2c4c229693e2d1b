//! What could be deleted by age and number. Only plans; the caller deletes, and only what is still true then.

use super::{Result, Store, file::FileStore};
use crate::{
    model::{RunId, Time},
    sys::{Fs, Kind},
};

/// How a run stands, as the one who interprets events sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// It ended then, in this state.
    Ended {
        /// The state's word.
        state: String,
        /// When.
        at: Time,
    },
    /// It can still go on, waits for somebody, or cannot be read. Never deleted.
    Kept,
}

/// What may go. Conditions add up: a run goes only when all that are given hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GcOptions {
    /// Ended at least so many milliseconds ago.
    pub older_than_ms: Option<i64>,
    /// Not among the newest so many that ended in one of these states.
    pub keep: Option<usize>,
    /// Ended in one of these states; any when empty.
    pub states: Vec<String>,
}

/// A run that would go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GcItem {
    /// The run.
    pub run_id: RunId,
    /// State it ended in.
    pub state: String,
    /// When it ended.
    pub ended_at: Time,
    /// Bytes of its files.
    pub bytes: u64,
}

impl FileStore {
    /// Names what would go, oldest first. Without an age and a number to keep, nothing does.
    ///
    /// `standing` reads the state of a run; a run that a live process holds is not even asked about.
    pub fn plan_gc(&self, options: &GcOptions, standing: &mut dyn FnMut(&RunId) -> Standing) -> Result<Vec<GcItem>> {
        if options.older_than_ms.is_none() && options.keep.is_none() {
            return Ok(Vec::new());
        }
        let shared = &self.shared;
        let now = shared.clock.wall().millis();
        let mut plan = Vec::new();
        let mut ended = 0;
        for listed in self.list()? {
            let run_id = &listed.run_id;
            // A run of which this cannot be told stays, and must not keep the others.
            if !matches!(self.is_live(run_id), Ok(false)) {
                continue;
            }
            let Standing::Ended { state, at } = standing(run_id) else { continue };
            if !options.states.is_empty() && !options.states.contains(&state) {
                continue;
            }
            ended += 1;
            let old = options.older_than_ms.is_none_or(|age| now.saturating_sub(at.millis()) >= age);
            let surplus = options.keep.is_none_or(|keep| ended > keep);
            if old && surplus {
                let Ok(bytes) = size(shared.fs.as_ref(), &shared.layout.run(run_id)) else { continue };
                plan.push(GcItem { run_id: run_id.clone(), state, ended_at: at, bytes });
            }
        }
        plan.reverse();
        Ok(plan)
    }
}

/// Bytes of all files below a directory, links not followed. What vanishes meanwhile counts nothing.
fn size(fs: &dyn Fs, path: &std::path::Path) -> Result<u64> {
    let meta = match fs.metadata(path) {
        Ok(meta) => meta,
        Err(e) if e.is_not_found() => return Ok(0),
        Err(e) => return Err(e.into()),
    };
    match meta.kind {
        Kind::File => Ok(meta.len),
        Kind::Symlink | Kind::Other => Ok(0),
        Kind::Dir => {
            let mut sum = 0_u64;
            for name in fs.list(path).unwrap_or_default() {
                sum = sum.saturating_add(size(fs, &path.join(name))?);
            }
            Ok(sum)
        }
    }
}
