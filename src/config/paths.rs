//! The rule about directories that callers name.

use std::path::{Path, PathBuf};

use super::Config;
use crate::{model::Code, sys::Fs};

/// Placeholder until the sys branch lands.
pub fn check_dir(fs: &dyn Fs, config: &Config, path: &Path) -> Result<PathBuf, (Code, String)> {
    let _ = config;
    fs.canonicalize(path).map_err(|e| (Code::PathNotFound, e.to_string()))
}
