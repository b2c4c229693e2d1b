//! Who an agent in a worktree of ours commits as, and that it does not push.
//!
//! A guard against habits, not a sandbox: an agent that wants to can set its variables otherwise.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::sys::{
    Fs,
    fs::{Result, create_dir_all},
    ids, tasks,
};

/// Where the hooks lie below the state directory.
const PLACE: &str = "hooks/council";
/// The one hook.
const NAME: &str = "pre-push";
/// What it does.
const PRE_PUSH: &str = "#!/bin/sh\necho 'council members never push; the work stays on its branch' >&2\nexit 1\n";
/// Any bit that lets somebody run a file.
const RUNNABLE: u32 = 0o111;

/// The directory of the hooks that agents in worktrees of ours have instead of the repository's: one that refuses
/// every push. Made when it is missing or not as it should be.
///
/// # Errors
/// The state directory cannot be written.
pub async fn hooks_dir(fs: Arc<dyn Fs>, home: &Path) -> std::result::Result<PathBuf, String> {
    let dir = folder(home);
    let place = dir.clone();
    let made = tasks::blocking("hooks", move || write(&*fs, &place)).await;
    made.map_err(|e| e.to_string())?.map_err(|e| e.to_string())?;
    Ok(dir)
}

/// Where they are.
pub fn folder(home: &Path) -> PathBuf {
    home.join(PLACE)
}

/// Writes what is missing of them. Blocking.
///
/// # Errors
/// The directory cannot be written.
pub fn write(fs: &dyn Fs, dir: &Path) -> Result<()> {
    let hook = dir.join(NAME);
    let good = match fs.metadata(&hook) {
        Ok(meta) => meta.mode & RUNNABLE != 0 && fs.read(&hook)? == PRE_PUSH.as_bytes(),
        Err(e) if e.is_not_found() => false,
        Err(e) => return Err(e),
    };
    if good {
        return Ok(());
    }
    create_dir_all(fs, dir)?;
    // Runnable before it has its name, so that git never finds one that it would pass over.
    let temp = dir.join(format!(".{NAME}.{}.tmp", ids::short()));
    let written = (|| {
        let mut file = fs.create_new(&temp)?;
        file.write_at(0, PRE_PUSH.as_bytes())?;
        file.sync()?;
        // Closed: a file that somebody writes cannot be run.
        drop(file);
        fs.make_executable(&temp)?;
        fs.rename(&temp, &hook)?;
        fs.sync_dir(dir)
    })();
    if written.is_err() {
        let _ = fs.remove_file(&temp);
    }
    written
}

/// Variables of the agent `name`: author and committer `<name> (<label>) <<name>@<label>.invalid>`, and hooks from
/// `hooks`. `label` is `council`, `fanout` or `agent`.
pub fn identity_env(name: &str, label: &str, hooks: &Path) -> Vec<(String, String)> {
    let (person, address) = (format!("{name} ({label})"), format!("{name}@{label}.invalid"));
    [
        ("GIT_AUTHOR_NAME", person.clone()),
        ("GIT_AUTHOR_EMAIL", address.clone()),
        ("GIT_COMMITTER_NAME", person),
        ("GIT_COMMITTER_EMAIL", address),
        ("GIT_CONFIG_COUNT", "1".to_owned()),
        ("GIT_CONFIG_KEY_0", "core.hooksPath".to_owned()),
        ("GIT_CONFIG_VALUE_0", hooks.to_string_lossy().into_owned()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::RealFs;

    /// Council scenario 16: the hook can be run, is mended when it is not right, and is left alone when it is.
    #[tokio::test]
    async fn the_hook_is_there_and_can_be_run() {
        let home = tempfile::tempdir().unwrap();
        let dir = hooks_dir(Arc::new(RealFs), home.path()).await.unwrap();
        let hook = dir.join(NAME);
        let first = RealFs.metadata(&hook).unwrap();
        assert_ne!(first.mode & RUNNABLE, 0);
        hooks_dir(Arc::new(RealFs), home.path()).await.unwrap();
        assert_eq!(RealFs.metadata(&hook).unwrap().id, first.id);
        RealFs.open_write(&hook).unwrap().set_len(0).unwrap();
        hooks_dir(Arc::new(RealFs), home.path()).await.unwrap();
        assert_eq!(RealFs.read(&hook).unwrap(), PRE_PUSH.as_bytes());
        assert_eq!(RealFs.list(&dir).unwrap().len(), 1);
    }

    #[test]
    fn an_agent_has_a_name_of_its_own() {
        let env = identity_env("Ada", "council", Path::new("/h"));
        let value = |key: &str| env.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str());
        assert_eq!(value("GIT_AUTHOR_NAME"), Some("Ada (council)"));
        assert_eq!(value("GIT_COMMITTER_EMAIL"), Some("Ada@council.invalid"));
        assert_eq!(value("GIT_CONFIG_VALUE_0"), Some("/h"));
    }
}
