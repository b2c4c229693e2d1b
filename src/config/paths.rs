//! The rule about directories that callers name: absolute, existing, and none where projects do not live.

use std::path::{Component, Path, PathBuf};

use super::Config;
use crate::{
    model::Code,
    sys::{Fs, Kind},
};

/// Directories of the system in which nobody's project is.
const SYSTEM: &[&str] = &["/etc", "/proc", "/sys", "/boot", "/sbin", "/var/run", "/var/log"];

/// Directories below the user's home that hold secrets.
const SECRET: &[&str] = &[".ssh", ".gnupg", ".aws", ".config/gcloud"];

/// The resolved directory of `path`, or why it may not be worked in.
pub fn check_dir(fs: &dyn Fs, config: &Config, path: &Path) -> Result<PathBuf, (Code, String)> {
    let shown = path.display();
    if !path.is_absolute() {
        return Err((Code::InvalidArgument, format!("directory {shown} is not absolute; give its whole path")));
    }
    // Before anything is looked up: a refused path must not tell whether it exists.
    refuse(fs, config, &tidy(path))
        .map_err(|why| (Code::PathRefused, format!("directory {shown} is refused: {why}")))?;
    let resolved = fs.canonicalize(path).map_err(|e| match e.is_not_found() {
        true => (Code::PathNotFound, format!("directory {shown} does not exist")),
        false => (Code::PathNotFound, format!("directory {shown} cannot be reached: {}", e.source)),
    })?;
    refuse(fs, config, &resolved).map_err(|why| {
        (Code::PathRefused, format!("directory {shown} leads to {} and is refused: {why}", resolved.display()))
    })?;
    match fs.metadata(&resolved).map(|meta| meta.kind) {
        Ok(Kind::Dir) => Ok(resolved),
        Ok(Kind::File | Kind::Symlink | Kind::Other) => {
            Err((Code::PathNotDirectory, format!("{shown} is not a directory")))
        }
        Err(e) => Err((Code::PathNotFound, format!("directory {shown} cannot be reached: {}", e.source))),
    }
}

fn refuse(fs: &dyn Fs, config: &Config, path: &Path) -> Result<(), String> {
    if path == Path::new("/") {
        return Err("it is the root of the file system".to_owned());
    }
    let secret = config.user_home.iter().flat_map(|home| SECRET.iter().map(|dir| home.join(dir)));
    let system = SYSTEM.iter().map(PathBuf::from);
    for (dir, why) in system
        .map(|dir| (dir, "it belongs to the system"))
        .chain(secret.map(|dir| (dir, "it holds secrets")))
        .chain([(config.home.clone(), "it is the state directory")])
    {
        // The refused directory may itself be reached through links (`/sbin`, `/var/run`, a linked home).
        let real = fs.canonicalize(&dir).ok();
        if path.starts_with(&dir) || real.is_some_and(|real| path.starts_with(real)) {
            return Err(why.to_owned());
        }
    }
    Ok(())
}

/// The path without `.` and `..`, by its text alone.
fn tidy(path: &Path) -> PathBuf {
    let mut tidied = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(tidied.pop()),
            Component::CurDir => {}
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => tidied.push(part),
        }
    }
    tidied
}
