//! The bearer token of the HTTP server: made once, reused by every start, re-read when its file changes.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use super::secret;
use crate::sys::{
    Clock, Fs, FsError, Kind,
    fs::{create_dir_all, write_atomic},
    ids,
};

/// Name of the file in the state directory.
pub const FILE: &str = "server-token";
/// Permission bits that let others in.
const OTHERS: u32 = 0o077;
/// How often the file is looked at for a change.
const LOOK: Duration = Duration::from_secs(1);

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Others could read it.
    #[error("{} can be read by others; run: chmod 600 {}", .0.display(), .0.display())]
    Exposed(PathBuf),
    /// Something else stands there.
    #[error("{} is not a regular file; remove it", .0.display())]
    NotAFile(PathBuf),
    /// Reading or writing failed.
    #[error(transparent)]
    Io(#[from] FsError),
    /// No randomness.
    #[error("{0}")]
    Random(String),
}

/// The token a server accepts.
#[derive(Debug)]
pub struct Tokens {
    fs: Arc<dyn Fs>,
    clock: Arc<dyn Clock>,
    path: PathBuf,
    /// Given by the environment; the file does not count then.
    fixed: Option<String>,
    seen: Mutex<Seen>,
}

#[derive(Debug)]
struct Seen {
    token: String,
    mtime_ns: i128,
    looked: Duration,
}

impl Tokens {
    /// Reads the token of `home` or makes one. Call after the port is bound, so that a server that loses
    /// the race for it changes nothing.
    pub fn open(fs: Arc<dyn Fs>, clock: Arc<dyn Clock>, home: &Path, fixed: Option<String>) -> Result<Self, Error> {
        let path = home.join(FILE);
        let looked = clock.boot();
        let (token, mtime_ns) = match &fixed {
            Some(token) => (token.clone(), 0),
            None => load_or_make(fs.as_ref(), home, &path)?,
        };
        Ok(Self { fs, clock, path, fixed, seen: Mutex::new(Seen { token, mtime_ns, looked }) })
    }

    /// Whether `given` is the token as it was last seen.
    pub fn accepts(&self, given: &str) -> bool {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        secret::equal(given, &seen.token)
    }

    /// Where the token is, for people; absent when the environment gave it.
    pub fn path(&self) -> Option<&Path> {
        self.fixed.is_none().then_some(self.path.as_path())
    }

    /// Whether it is time to look at the file again: at most once a second, and never when the environment
    /// gave the token. Saying yes counts as having looked.
    pub fn is_due(&self) -> bool {
        let now = self.clock.boot();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if self.fixed.is_some() || now.saturating_sub(seen.looked) < LOOK {
            return false;
        }
        seen.looked = now;
        true
    }

    /// Reads the file again when it changed. Blocking.
    pub fn refresh(&self) {
        let before = self.seen.lock().unwrap_or_else(PoisonError::into_inner).mtime_ns;
        let changed = self.fs.metadata(&self.path).is_ok_and(|m| m.mtime_ns != before);
        if !changed {
            return;
        }
        match load(self.fs.as_ref(), &self.path) {
            Ok(Some((token, mtime_ns))) => {
                let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
                seen.token = token;
                seen.mtime_ns = mtime_ns;
                tracing::info!("the server token changed");
            }
            Ok(None) => tracing::warn!("the changed server token is not valid; the old one stays"),
            Err(error) => tracing::warn!(%error, "the changed server token is not used; the old one stays"),
        }
    }
}

fn load_or_make(fs: &dyn Fs, home: &Path, path: &Path) -> Result<(String, i128), Error> {
    match load(fs, path) {
        Ok(Some(found)) => return Ok(found),
        Ok(None) => {
            // Not a token of ours: replaced whole.
            write_atomic(fs, path, format!("{}\n", fresh()?).as_bytes())?;
        }
        Err(Error::Io(e)) if e.is_not_found() => {
            create_dir_all(fs, home)?;
            let temp = home.join(format!(".{FILE}.{}.tmp", ids::short()));
            write_new(fs, &temp, fresh()?.as_bytes())?;
            match fs.rename_new(&temp, path) {
                Ok(()) => fs.sync_dir(home)?,
                // Another server of this home was faster; its token counts.
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => fs.remove_file(&temp)?,
                Err(e) => {
                    let _ = fs.remove_file(&temp);
                    return Err(e.into());
                }
            }
        }
        Err(e) => return Err(e),
    }
    load(fs, path)?.ok_or_else(|| Error::NotAFile(path.to_owned()))
}

fn fresh() -> Result<String, Error> {
    Ok(secret::hex(&secret::random().map_err(Error::Random)?))
}

fn write_new(fs: &dyn Fs, path: &Path, bytes: &[u8]) -> Result<(), FsError> {
    let mut file = fs.create_new(path)?;
    file.write_at(0, bytes)?;
    file.sync()
}

/// The token in the file and its time; `None` when the text is no token.
fn load(fs: &dyn Fs, path: &Path) -> Result<Option<(String, i128)>, Error> {
    let meta = fs.metadata(path)?;
    if meta.kind != Kind::File {
        return Err(Error::NotAFile(path.to_owned()));
    }
    if meta.mode & OTHERS != 0 {
        return Err(Error::Exposed(path.to_owned()));
    }
    let bytes = fs.read_range(path, 0, 1024)?;
    let text = String::from_utf8_lossy(&bytes).trim().to_owned();
    let good = (32..=256).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit());
    Ok(good.then_some((text, meta.mtime_ns)))
}
