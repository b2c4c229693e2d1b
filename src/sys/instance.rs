//! Which server processes of one home are alive, and the end of what dead ones left running.
//!
//! Each process holds the lock on `<home>/instances/<id>.lock` for as long as it lives; the system lets go of
//! it at any kind of death. A file whose lock can be taken therefore belongs to a dead process. Other homes
//! have other directories and are never looked at.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use super::{
    Clock, Fs, FsError, FsLock,
    fs::{Result, create_dir_all},
    ids,
    proctree::{self, Swept},
};

/// Directory of the lock files below a home.
const DIR: &str = "instances";

/// Ending of a lock file's name.
const ENDING: &str = ".lock";

/// Lock for looking at the directory: between making a file and locking it, it would look like a dead process's.
const DOOR: &str = ".door";

/// Longest wait for the door, which is held for a few file operations only.
const DOOR_LIMIT: Duration = Duration::from_secs(10);

/// Pause between attempts at the door.
const DOOR_RETRY: Duration = Duration::from_millis(10);

/// This process's place among the servers of a home. Dropping it gives the place up.
#[derive(Debug)]
pub struct Instance {
    id: String,
    path: PathBuf,
    fs: Arc<dyn Fs>,
    _lock: Box<dyn FsLock>,
}

impl Instance {
    /// Takes a place under a new id. Blocks up to 10 s.
    pub fn register(fs: Arc<dyn Fs>, clock: &dyn Clock, home: &Path) -> Result<Self> {
        let dir = home.join(DIR);
        create_dir_all(&*fs, &dir)?;
        let _door = door(&*fs, clock, &dir)?;
        let id = ids::sortable();
        let path = dir.join(format!("{id}{ENDING}"));
        match fs.try_lock(&path)? {
            Some(lock) => Ok(Self { id, path, fs, _lock: lock }),
            None => Err(FsError::new("lock", path, io::ErrorKind::WouldBlock.into())),
        }
    }

    /// The id; children carry it as `CLAWO_OWNER`.
    pub fn id(&self) -> &str {
        &self.id
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // Best effort: a file that stays is taken for a dead process's, which is right.
        let _ = self.fs.remove_file(&self.path);
    }
}

/// What the sweep after one dead process found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovered {
    /// Its id.
    pub id: String,
    /// What it had left running; an error when processes cannot be listed.
    pub swept: std::result::Result<Swept, String>,
}

/// Ends what dead servers of this home left running, and forgets them. Blocks up to 8 s for each that left something.
///
/// A file is kept for the next start when its processes could not be ended.
pub fn recover(fs: &dyn Fs, clock: &dyn Clock, home: &Path) -> Result<Vec<Recovered>> {
    let dir = home.join(DIR);
    create_dir_all(fs, &dir)?;
    let mut dead = Vec::new();
    {
        let _door = door(fs, clock, &dir)?;
        for name in fs.list(&dir)? {
            let Some(id) = name.to_str().and_then(|name| name.strip_suffix(ENDING)) else { continue };
            // Held by a living process, by us, or by a neighbour that sweeps it right now.
            if let Some(lock) = fs.try_lock(&dir.join(&name))? {
                dead.push((id.to_owned(), dir.join(&name), lock));
            }
        }
    }
    let mut recovered = Vec::new();
    for (id, path, lock) in dead {
        let swept = proctree::sweep(clock, &id).map_err(|e| e.to_string());
        match &swept {
            Ok(swept) if swept.left.is_empty() => match fs.remove_file(&path) {
                Err(e) if !e.is_not_found() => return Err(e),
                Ok(()) | Err(_) => {}
            },
            Ok(swept) => tracing::warn!(owner = id, left = ?swept.left, "could not end processes of a dead server"),
            Err(reason) => tracing::warn!(owner = id, reason, "could not look for processes of a dead server"),
        }
        drop(lock);
        recovered.push(Recovered { id, swept });
    }
    Ok(recovered)
}

fn door(fs: &dyn Fs, clock: &dyn Clock, dir: &Path) -> Result<Box<dyn FsLock>> {
    let path = dir.join(DOOR);
    let until = clock.boot() + DOOR_LIMIT;
    loop {
        if let Some(lock) = fs.try_lock(&path)? {
            return Ok(lock);
        }
        if clock.boot() >= until {
            return Err(FsError::new("lock", path, io::ErrorKind::WouldBlock.into()));
        }
        std::thread::sleep(DOOR_RETRY);
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;
    use crate::sys::{RealFs, SystemClock, proctree::carries};

    /// A process that must not outlive the test, whatever becomes of it.
    struct Left(std::process::Child);

    impl Left {
        fn is_alive(&self) -> bool {
            i32::try_from(self.0.id()).ok().and_then(proctree::get).is_some_and(|process| !process.is_dead())
        }
    }

    impl Drop for Left {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[expect(clippy::disallowed_methods, reason = "a real process for a test")]
    fn leave(owner: &str) -> Left {
        let child = std::process::Command::new("sh")
            .args(["-c", "trap '' TERM; while :; do sleep 0.1; done"])
            .env("CLAWO_OWNER", owner)
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let child = Left(child);
        let pid = i32::try_from(child.0.id()).unwrap();
        for _ in 0..500 {
            if carries(pid, &format!("CLAWO_OWNER={owner}")) {
                return child;
            }
            std::thread::sleep(DOOR_RETRY);
        }
        panic!("the process did not start");
    }

    /// Surface scenario 32: a process is known by the mark it carries and never by its number, so a forged record that
    /// names the first process, a living shell or a number used again has no effect.
    #[test]
    fn nobody_is_ended_for_a_number_in_a_file() {
        let home = tempfile::tempdir().unwrap();
        let fs: Arc<dyn Fs> = Arc::new(RealFs);
        let shell = leave("of nobody here");
        let pid = shell.0.id();
        let dir = home.path().join(DIR);
        create_dir_all(&*fs, &dir).unwrap();
        let forged =
            format!("{{\"child\":{{\"pid\":{pid},\"pgid\":{pid},\"owner\":\"1\"}},\"init\":{{\"pid\":1,\"pgid\":1}}}}");
        for name in [home.path().join("session-pids.json"), dir.join(format!("{pid}{ENDING}")), dir.join("1.lock")] {
            super::super::fs::write_atomic(&*fs, &name, forged.as_bytes()).unwrap();
        }
        let recovered = recover(&*fs, &SystemClock, home.path()).unwrap();
        assert_eq!(recovered.len(), 2);
        for dead in recovered {
            assert_eq!(dead.swept, Ok(Swept { found: 0, left: Vec::new() }), "{}", dead.id);
        }
        assert!(shell.is_alive() && proctree::get(1).is_some_and(|init| !init.is_dead()));
    }

    #[test]
    fn the_dead_are_swept_and_the_living_are_not() {
        // ZP-3: two living servers of one home, one of another, and a dead one.
        let (home, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let fs: Arc<dyn Fs> = Arc::new(RealFs);
        let start = |home: &Path| Instance::register(Arc::clone(&fs), &SystemClock, home).unwrap();
        let (ours, neighbour, abroad) = (start(home.path()), start(home.path()), start(other.path()));
        // Its process died: the file is there and nobody holds the lock.
        let dead = ids::sortable();
        drop(fs.try_lock(&home.path().join(DIR).join(format!("{dead}{ENDING}"))).unwrap());
        let abroad_dead = ids::sortable();
        drop(fs.try_lock(&other.path().join(DIR).join(format!("{abroad_dead}{ENDING}"))).unwrap());

        let left = [ours.id(), neighbour.id(), abroad.id(), &abroad_dead, &dead].map(leave);
        let recovered = recover(&*fs, &SystemClock, home.path()).unwrap();
        assert_eq!(recovered.len(), 1);
        assert_eq!(recovered[0].id, dead);
        let swept = recovered[0].swept.clone().unwrap();
        assert!(swept.found >= 1 && swept.left.is_empty(), "{swept:?}");
        assert_eq!(left.each_ref().map(Left::is_alive), [true, true, true, true, false]);
        assert_eq!(recover(&*fs, &SystemClock, home.path()).unwrap(), []);
        let path = ours.path.clone();
        drop(ours);
        assert!(!fs.list(path.parent().unwrap()).unwrap().contains(&path.file_name().unwrap().to_owned()));
    }
}
