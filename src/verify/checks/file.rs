//! A file that must exist (or not) and match.
//!
//! Only regular files are opened, links are followed as long as they stay inside.

use std::{path::Path, time::Duration};

use super::{Context, Outcome, blocking, or_cancelled};
use crate::{
    sys::{Fs, FsError, Kind},
    verify::{
        Error,
        paths::{self, Place},
        pattern,
    },
};

/// Bytes of a file that are matched.
const MATCHED_MAX: usize = 10 << 20;
/// Limit of one look at a file; a file system that hangs must not hang the verification.
const LIMIT: Duration = Duration::from_secs(60);

pub(super) async fn run(
    path: &str,
    exists: bool,
    matches: Option<&str>,
    context: &mut Context<'_>,
) -> Result<Outcome, Error> {
    let (fs, root) = (context.verifier.fs.clone(), context.root.clone());
    let (path, matches) = (path.to_owned(), matches.map(str::to_owned));
    let work = blocking(move || look(fs.as_ref(), &root, &path, exists, matches.as_deref()));
    Ok(match or_cancelled(context.cancel, tokio::time::timeout(LIMIT, work)).await? {
        Ok(Some(Ok(outcome))) => outcome,
        Ok(Some(Err(error))) => Outcome::failed(error.to_string()),
        Ok(None) => Outcome::failed("the file could not be looked at"),
        Err(_) => {
            let detail = format!("the file could not be read within {} s", LIMIT.as_secs());
            Outcome { timed_out: true, ..Outcome::failed(detail) }
        }
    })
}

/// Blocking.
fn look(fs: &dyn Fs, root: &Path, path: &str, exists: bool, matches: Option<&str>) -> Result<Outcome, FsError> {
    let real = match paths::resolve(fs, root, path)? {
        Place::Inside(real) => real,
        Place::Missing if exists => return Ok(Outcome::failed(format!("'{path}' does not exist"))),
        Place::Missing => return Ok(Outcome::passed(format!("'{path}' does not exist"))),
        Place::Outside => {
            return Ok(Outcome::failed(format!("'{path}' leads outside of where the checks run and was not read")));
        }
    };
    let meta = fs.metadata(&real)?;
    if !exists {
        return Ok(Outcome::failed(format!("'{path}' exists")));
    }
    let other = match meta.kind {
        Kind::File => None,
        Kind::Dir => Some("a directory"),
        Kind::Symlink => Some("a link that moved meanwhile"),
        Kind::Other => Some("a pipe, socket or device"),
    };
    if let Some(other) = other {
        return Ok(Outcome::failed(format!("'{path}' is {other}, not a regular file")));
    }
    let Some(matches) = matches else { return Ok(Outcome::passed(format!("'{path}' exists"))) };
    let pattern = match pattern::compile(matches) {
        Ok(pattern) => pattern,
        Err(reason) => return Ok(Outcome::failed(format!("'matches' does not compile: {reason}"))),
    };
    let bytes = fs.read_range(&real, 0, MATCHED_MAX)?;
    let part = if meta.len > MATCHED_MAX as u64 { " (only its first 10 MiB were looked at)" } else { "" };
    Ok(if pattern.is_match(&bytes) {
        Outcome::passed(format!("'{path}' matches{part}"))
    } else {
        Outcome::failed(format!("'{path}' does not match /{matches}/{part}"))
    })
}
