//! Requests that other processes leave for the owner of a run. Never state: nothing here is synced.
//!
//! A request lies in one file whose name sorts by time. The owner takes it by renaming, the sender withdraws
//! it by removing it under its first name, so exactly one of the two happens.

use serde_json::{Value, json};

use super::{Error, InboxItem, Result, layout, shared::Shared};
use crate::{model::RunId, sys::ids};

/// Longest request, in bytes: a steering text and some room.
const BODY_MAX: usize = 128 * 1024;
/// Requests that may wait; an owner takes them within a second, so more means that nobody listens.
const WAITING_MAX: usize = 1000;
/// Longest id of a request, in bytes.
const ID_MAX: usize = 100;
/// Ends the name of a request that waits.
const WAITING: &str = ".json";
/// Ends the name of a request the owner has taken.
const TAKEN: &str = ".taken";

/// Leaves a request.
pub(super) fn put(shared: &Shared, run: &RunId, item: &InboxItem) -> Result<()> {
    shared.writable()?;
    check_id(run, &item.id)?;
    shared.must_be_run(run)?;
    let bytes = json!({ "id": item.id, "body": item.body }).to_string().into_bytes();
    if bytes.len() > BODY_MAX {
        return Err(Error::TooLarge { bytes: bytes.len(), limit: BODY_MAX });
    }
    let dir = shared.layout.run(run).join(layout::INBOX);
    let names = names(shared, run)?;
    if names.len() >= WAITING_MAX {
        return Err(malformed(run, format!("{WAITING_MAX} requests wait already; the owner does not answer")));
    }
    if names.iter().any(|n| id_of(n) == Some(&item.id)) {
        return Err(malformed(run, format!("a request '{}' waits already", item.id)));
    }
    let name = format!("{}.{}{WAITING}", ids::sortable(), item.id);
    // Half-made files lie outside the run's own directory of them, which a new owner empties.
    shared.replace(&shared.layout.staging().join(shared.fresh_name()), &dir.join(name), &bytes)
}

/// Takes back a request that the owner has not taken.
pub(super) fn withdraw(shared: &Shared, run: &RunId, id: &str) -> Result<bool> {
    shared.writable()?;
    check_id(run, id)?;
    shared.must_be_run(run)?;
    for name in names(shared, run)?.iter().filter(|n| n.ends_with(WAITING) && id_of(n) == Some(id)) {
        match shared.fs.remove_file(&shared.layout.run(run).join(layout::INBOX).join(name)) {
            Ok(()) => return Ok(true),
            Err(e) if e.is_not_found() => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(false)
}

/// Takes every waiting request and gives all taken ones, oldest first.
pub(super) fn take(shared: &Shared, run: &RunId) -> Result<Vec<InboxItem>> {
    let dir = shared.layout.run(run).join(layout::INBOX);
    let mut items = Vec::new();
    for name in names(shared, run)? {
        let Some(id) = id_of(&name) else { continue };
        let taken = match name.strip_suffix(WAITING) {
            Some(stem) => {
                let to = dir.join(format!("{stem}{TAKEN}"));
                match shared.fs.rename(&dir.join(&name), &to) {
                    Ok(()) => to,
                    Err(e) if e.is_not_found() => continue,
                    Err(e) => return Err(e.into()),
                }
            }
            None => dir.join(&name),
        };
        let parsed: Option<Value> = serde_json::from_slice(&shared.fs.read(&taken)?).ok();
        match parsed.and_then(|mut v| v.get_mut("body").map(Value::take)) {
            Some(body) => items.push(InboxItem { id: id.to_owned(), body }),
            None => {
                // A power cut can leave an empty file; its sender is gone or has given up waiting.
                tracing::warn!(run = %run, name, "a request that does not parse is dropped");
                shared.fs.remove_file(&taken)?;
            }
        }
    }
    Ok(items)
}

/// Removes a request whose event was committed.
pub(super) fn done(shared: &Shared, run: &RunId, id: &str) -> Result<()> {
    let dir = shared.layout.run(run).join(layout::INBOX);
    for name in names(shared, run)?.iter().filter(|n| id_of(n) == Some(id)) {
        match shared.fs.remove_file(&dir.join(name)) {
            Ok(()) => {}
            Err(e) if e.is_not_found() => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// Names of all requests, oldest first.
fn names(shared: &Shared, run: &RunId) -> Result<Vec<String>> {
    match shared.fs.list(&shared.layout.run(run).join(layout::INBOX)) {
        Ok(names) => Ok(names.into_iter().filter_map(|n| n.into_string().ok()).collect()),
        Err(e) if e.is_not_found() => Ok(Vec::new()),
        Err(e) => Err(e.into()),
    }
}

/// The id in the name of a request.
fn id_of(name: &str) -> Option<&str> {
    let stem = name.strip_suffix(WAITING).or_else(|| name.strip_suffix(TAKEN))?;
    stem.split_once('.').map(|(_, id)| id)
}

/// An id becomes part of a file name.
fn check_id(run: &RunId, id: &str) -> Result<()> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
    if (1..=ID_MAX).contains(&id.len()) && id.bytes().all(plain) {
        Ok(())
    } else {
        Err(malformed(run, format!("its id must be 1 to {ID_MAX} letters, digits, '-' or '_'")))
    }
}

fn malformed(run: &RunId, reason: String) -> Error {
    Error::Malformed { run: run.clone(), what: "request", reason }
}
