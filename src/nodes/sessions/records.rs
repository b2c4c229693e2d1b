//! `sessions.json`: what is known of sessions by name, shared by every process of the home.
//!
//! Each process adds what changed in it to what the file says, under a lock, so that none loses another's entries.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use super::{SessionError, options::StartOptions};
use crate::{
    engines::Usage,
    model::{Code, Time, spec::SandboxMode},
    sys::{
        Fs, FsError, FsLock,
        fs::{create_dir_all, remove_tree, write_atomic},
        ids,
    },
};

/// Name of the file in the state directory.
pub const FILE: &str = "sessions.json";
/// Lock beside it, because the file itself is replaced.
const LOCK: &str = "sessions.lock";
/// Form of the file that is written and read.
const VERSION: u32 = 1;
/// Longest wait for the lock, which is held for one read and one write.
const LOCK_LIMIT: u32 = 500;
/// Pause between attempts at a lock.
const LOCK_RETRY: Duration = Duration::from_millis(10);
/// Name of the lock of one session, in its directory.
pub(super) const SESSION_LOCK: &str = "lock";

/// Counts over the whole life of a session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Stats {
    /// Turns that ended.
    pub(super) turns: u64,
    /// Those that went well.
    pub(super) turns_succeeded: u64,
    /// Tool calls.
    pub(super) tool_calls: u64,
    /// Failed ones.
    pub(super) tool_errors: u64,
    /// Retries of the engine.
    pub(super) retries: u64,
    /// Tokens by kind.
    pub(super) usage: Usage,
}

/// A session as it is written down.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Record {
    /// Engine.
    pub(super) engine: String,
    /// Model, as chosen or as the engine reported it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) model: Option<String>,
    /// Directory, links resolved.
    pub(super) cwd: PathBuf,
    /// What the agent may do to files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) sandbox_mode: Option<SandboxMode>,
    /// The engine's id of the conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) native_id: Option<String>,
    /// Total of the conversation that was counted, from engines that count per conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) counted: Option<Usage>,
    /// US dollars.
    #[serde(default)]
    pub(super) spent_usd: f64,
    /// When the conversation began.
    pub(super) created: Time,
    /// When something was last asked of it.
    pub(super) last_activity: Time,
    /// Stopped on purpose; only a start brings it back.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) stopped: bool,
    /// Options it was started with, without what may be secret.
    #[serde(default)]
    pub(super) options: StartOptions,
    /// Options that were not written down.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) left_out: Vec<String>,
    /// Counts.
    #[serde(default)]
    pub(super) stats: Stats,
}

#[derive(Debug, Serialize, Deserialize)]
struct File {
    version: u32,
    #[serde(default)]
    sessions: BTreeMap<String, serde_json::Value>,
}

impl Default for File {
    fn default() -> Self {
        Self { version: VERSION, sessions: BTreeMap::new() }
    }
}

/// The records of the home as this process sees them.
#[derive(Debug)]
pub(super) struct Records {
    fs: Arc<dyn Fs>,
    home: PathBuf,
    /// How long a record lives after its last activity, in milliseconds.
    keep_ms: i64,
    /// Changed here and not yet written.
    pending: Mutex<BTreeMap<String, Record>>,
}

impl Records {
    pub(super) fn new(fs: Arc<dyn Fs>, home: &Path, keep: Duration) -> Self {
        let keep_ms = i64::try_from(keep.as_millis()).unwrap_or(i64::MAX);
        Self { fs, home: home.to_owned(), keep_ms, pending: Mutex::default() }
    }

    /// Directory of a session's files.
    pub(super) fn dir(&self, name: &str) -> PathBuf {
        self.home.join("sessions").join(name)
    }

    /// Notes a change; [`save`](Self::save) writes it.
    pub(super) fn put(&self, name: &str, record: Record) {
        self.pending().insert(name.to_owned(), record);
    }

    /// The record of a name, unless it is too old. Blocking.
    pub(super) fn get(&self, name: &str, now: Time) -> Result<Option<Record>, SessionError> {
        if let Some(record) = self.pending().get(name) {
            return Ok(Some(record.clone()));
        }
        Ok(self.read()?.sessions.remove(name).and_then(parsed).filter(|r| !self.expired(r, now)))
    }

    /// Every record that is not too old. Blocking.
    pub(super) fn all(&self, now: Time) -> Result<BTreeMap<String, Record>, SessionError> {
        let kept = self.read()?.sessions.into_iter().filter_map(|(name, value)| Some((name, parsed(value)?)));
        let mut all: BTreeMap<String, Record> = kept.filter(|(_, r)| !self.expired(r, now)).collect();
        all.extend(self.pending().clone());
        Ok(all)
    }

    /// Whether something waits to be written.
    pub(super) fn changed(&self) -> bool {
        !self.pending().is_empty()
    }

    /// Writes what changed; old records go, with their files. Blocking.
    pub(super) fn save(&self, now: Time) -> Result<(), SessionError> {
        let changed = std::mem::take(&mut *self.pending());
        if changed.is_empty() {
            return Ok(());
        }
        let written = self.merge(&changed, now);
        if written.is_err() {
            let mut pending = self.pending();
            for (name, record) in changed {
                // What was noted meanwhile is newer.
                pending.entry(name).or_insert(record);
            }
        }
        written
    }

    fn merge(&self, changed: &BTreeMap<String, Record>, now: Time) -> Result<(), SessionError> {
        create_dir_all(self.fs.as_ref(), &self.home)?;
        let _lock = self.lock()?;
        let mut file = self.read()?;
        for (name, record) in changed {
            if let Ok(value) = serde_json::to_value(record) {
                file.sessions.insert(name.clone(), value);
            }
        }
        let mut old = Vec::new();
        file.sessions.retain(|name, value| {
            let expired = parsed(value.clone()).is_some_and(|r| self.expired(&r, now)) && !changed.contains_key(name);
            if expired {
                old.push(name.clone());
            }
            !expired
        });
        let bytes = serde_json::to_vec_pretty(&file).unwrap_or_default();
        write_atomic(self.fs.as_ref(), &self.home.join(FILE), &bytes)?;
        for name in old {
            self.forget(&name);
        }
        Ok(())
    }

    /// Removes the files of a session that nobody has.
    fn forget(&self, name: &str) {
        let dir = self.dir(name);
        if let Ok(Some(_lock)) = self.fs.try_lock(&dir.join(SESSION_LOCK))
            && let Err(e) = remove_tree(self.fs.as_ref(), &dir)
        {
            tracing::warn!(error = %e, "the files of an old session stay");
        }
    }

    fn expired(&self, record: &Record, now: Time) -> bool {
        now.millis().saturating_sub(record.last_activity.millis()) > self.keep_ms
    }

    fn read(&self) -> Result<File, SessionError> {
        let path = self.home.join(FILE);
        let bytes = match self.fs.read(&path) {
            Ok(bytes) => bytes,
            Err(e) if e.is_not_found() => return Ok(File::default()),
            Err(e) => return Err(e.into()),
        };
        match serde_json::from_slice::<File>(&bytes) {
            Ok(file) if file.version <= VERSION => Ok(file),
            Ok(file) => {
                let text = format!("{FILE} has form {} of a newer version; update this one", file.version);
                Err(SessionError::new(Code::StoreUnavailable, text))
            }
            Err(e) => {
                // Kept for whoever wants to repair it; sessions that are live here are written again.
                let aside = self.home.join(format!("{FILE}.damaged-{}", ids::short()));
                tracing::warn!(error = %e, kept = %aside.display(), "{FILE} is damaged and was put aside");
                self.fs.rename(&path, &aside)?;
                Ok(File::default())
            }
        }
    }

    fn lock(&self) -> Result<Box<dyn FsLock>, SessionError> {
        let path = self.home.join(LOCK);
        wait_lock(self.fs.as_ref(), &path, LOCK_LIMIT)?.ok_or_else(|| {
            let busy = std::io::ErrorKind::WouldBlock.into();
            FsError::new("lock", path, busy).into()
        })
    }

    fn pending(&self) -> MutexGuard<'_, BTreeMap<String, Record>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes a lock, asking again `rounds` times. Blocking, 10 ms a round.
pub(super) fn wait_lock(fs: &dyn Fs, path: &Path, rounds: u32) -> Result<Option<Box<dyn FsLock>>, FsError> {
    for _ in 0..rounds {
        if let Some(lock) = fs.try_lock(path)? {
            return Ok(Some(lock));
        }
        std::thread::sleep(LOCK_RETRY);
    }
    fs.try_lock(path)
}

/// An entry of another version may have another form; it is left alone.
fn parsed(value: serde_json::Value) -> Option<Record> {
    serde_json::from_value(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::RealFs;

    const DAY: i64 = 24 * 60 * 60 * 1000;

    fn record(at: i64) -> Record {
        Record {
            engine: "scripted".into(),
            model: None,
            cwd: "/x".into(),
            sandbox_mode: None,
            native_id: Some("id".into()),
            counted: None,
            spent_usd: 0.5,
            created: Time::from_millis(0),
            last_activity: Time::from_millis(at),
            stopped: false,
            options: StartOptions::default(),
            left_out: Vec::new(),
            stats: Stats::default(),
        }
    }

    fn records(home: &Path) -> Records {
        Records::new(Arc::new(RealFs), home, Duration::from_secs(7 * 24 * 60 * 60))
    }

    /// Two processes that write at the same time keep each other's entries.
    #[test]
    fn no_process_loses_anothers_entries() {
        let home = tempfile::tempdir().unwrap();
        let threads: Vec<_> = (0..8)
            .map(|n| {
                let mine = records(home.path());
                #[expect(clippy::disallowed_methods, reason = "stands for another process")]
                std::thread::spawn(move || {
                    for round in 0..20 {
                        mine.put(&format!("s{n}-{round}"), record(1));
                        mine.save(Time::from_millis(2)).unwrap();
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
        assert_eq!(records(home.path()).all(Time::from_millis(2)).unwrap().len(), 160);
        assert_eq!(RealFs.metadata(&home.path().join(FILE)).unwrap().mode & 0o777, 0o600);
    }

    #[test]
    fn a_record_lives_seven_days() {
        let home = tempfile::tempdir().unwrap();
        let mine = records(home.path());
        mine.put("a", record(0));
        mine.save(Time::from_millis(0)).unwrap();
        create_dir_all(&RealFs, &mine.dir("a")).unwrap();
        assert!(records(home.path()).get("a", Time::from_millis(7 * DAY)).unwrap().is_some());
        let later = Time::from_millis(7 * DAY + 1);
        assert_eq!(records(home.path()).get("a", later).unwrap(), None);
        mine.put("b", record(7 * DAY));
        mine.save(later).unwrap();
        assert!(RealFs.metadata(&mine.dir("a")).is_err(), "its files are gone");
        assert_eq!(mine.all(later).unwrap().len(), 1);
    }

    #[test]
    fn a_damaged_file_is_put_aside() {
        let home = tempfile::tempdir().unwrap();
        write_atomic(&RealFs, &home.path().join(FILE), b"{ not json").unwrap();
        let mine = records(home.path());
        assert!(mine.all(Time::from_millis(0)).unwrap().is_empty());
        mine.put("a", record(0));
        mine.save(Time::from_millis(0)).unwrap();
        let names: Vec<String> =
            RealFs.list(home.path()).unwrap().into_iter().map(|n| n.into_string().unwrap()).collect();
        assert!(names.iter().any(|n| n.starts_with("sessions.json.damaged-")), "{names:?}");
        write_atomic(&RealFs, &home.path().join(FILE), br#"{"version": 2, "sessions": {}}"#).unwrap();
        mine.put("a", record(0));
        assert_eq!(mine.save(Time::from_millis(0)).unwrap_err().code(), Code::StoreUnavailable);
        assert!(mine.changed(), "it is still to be written");
    }
}
