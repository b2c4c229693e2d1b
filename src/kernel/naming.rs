//! Ids of new runs: chosen, made of a caller's key, or fresh.

use std::sync::Arc;

use super::{Error, Inner, Result, Source, start::answer, view::Started};
use crate::{
    model::{Code, RunId, RunRecord},
    sys::ids,
    verify::evidence::sha256,
};

/// How long an idempotency key means the same run, in milliseconds.
const KEY_LIFE_MS: i64 = 24 * 3600 * 1000;
/// Longest idempotency key, in bytes: it is kept in the first line of the log.
const KEY_MAX: usize = 256;
/// Bounds of a key: it is stored with the run.
pub(super) fn check_key(key: &str) -> Result<()> {
    if key.is_empty() || key.len() > KEY_MAX {
        return Err(Error::new(Code::InvalidArgument, format!("idempotencyKey: use 1 to {KEY_MAX} bytes")));
    }
    Ok(())
}

/// The run `id`, when the same key started it within a day.
pub(super) async fn repeated(kernel: &Arc<Inner>, id: &RunId, key: &str) -> Result<Option<Started>> {
    let found = match super::query::load(kernel, id).await {
        Ok(found) => found,
        Err(e) if e.code == Code::RunNotFound => return Ok(None),
        Err(e) => return Err(e),
    };
    let same = found.record.idempotency_key.as_deref() == Some(key) && fresh(kernel, &found.record);
    Ok(same.then(|| Started { existing: true, ..answer(&found.spec, &found.record, Vec::new()) }))
}

/// Whether a run is young enough for its key to mean it.
pub(super) fn fresh(kernel: &Inner, record: &RunRecord) -> bool {
    kernel.services.clock.wall().millis().saturating_sub(record.created_at.millis()) < KEY_LIFE_MS
}

/// A new id whose text sorts by time: moment, name, a random word.
pub(super) fn fresh_id(kernel: &Inner, name: &str) -> Result<RunId> {
    let stamp: String =
        kernel.services.clock.wall().to_string().chars().filter(char::is_ascii_digit).take(14).collect();
    let slug: String = name.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').take(24).collect();
    let word = ids::short();
    let (day, time) = stamp.split_at_checked(8).unwrap_or((&stamp, ""));
    let text = if slug.is_empty() { format!("{day}-{time}-{word}") } else { format!("{day}-{time}-{slug}-{word}") };
    named(&text)
}

/// The kind of the handle a run is known by, when one of our own tools starts it.
pub(super) fn handle(source: &Source) -> Option<&'static str> {
    match source {
        Source::Tool(kind, _) => Some(kind),
        Source::Spec(_) | Source::Template { .. } => None,
    }
}

/// An id we made.
pub(super) fn named(text: &str) -> Result<RunId> {
    RunId::parse(text).map_err(|e| super::internal(&e))
}

/// What an idempotency key means now.
pub(super) enum Keyed {
    /// A run of the last day.
    Existing(Box<Started>),
    /// Nothing; a run with this id is the key's.
    Free(RunId),
}

/// The id is made from the key, so that two processes starting with one key meet at the store. Each kind of handle
/// has its own keys.
pub(super) async fn keyed(kernel: &Arc<Inner>, kind: Option<&'static str>, key: &str) -> Result<Keyed> {
    check_key(key)?;
    for round in 0..1000_u32 {
        let id = named(&key_id(kind, key, round))?;
        let (spec, record) = match super::query::load(kernel, &id).await {
            Ok(found) => (found.spec, found.record),
            Err(e) if e.code == Code::RunNotFound => return Ok(Keyed::Free(id)),
            Err(e) => return Err(e),
        };
        if fresh(kernel, &record) {
            let started = Started { existing: true, ..answer(&spec, &record, Vec::new()) };
            return Ok(Keyed::Existing(Box::new(started)));
        }
    }
    Err(Error::new(Code::Busy, "the idempotency key was used too often; choose another"))
}

/// The id of the run that a key means when those of all rounds before are too old.
fn key_id(kind: Option<&str>, key: &str, round: u32) -> String {
    if let Some(kind) = kind {
        return ids::handle_of(kind, &sha256(format!("{kind}\n{round}\n{key}").as_bytes()));
    }
    let digest = sha256(key.as_bytes());
    let word: String = digest.chars().take(24).collect();
    if round == 0 { format!("key-{word}") } else { format!("key-{word}-{round}") }
}
