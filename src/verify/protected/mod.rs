//! Test files and test configuration as a run found them, and whether they still are.
//!
//! Owns which files count as tests or as their configuration, the record made at the start, and the required
//! check `protected-tests` that compares a later tree with it. Reads regular files only, follows no link,
//! starts no process and writes nothing.
//!
//! Whole files are compared by their bytes on disk, links by their target. Files that mix tests with other
//! things are compared in parts: inline test modules of Rust sources, keys and reachable scripts of
//! `package.json`, tool sections of `pyproject.toml` and `setup.cfg`, test switches of `Cargo.toml`, and the
//! make targets a command check runs. What is not such a part may change freely.

mod cargo_toml;
mod compare;
mod makefile;
mod package_json;
mod patterns;
mod pyproject;
mod record;
mod rust_lex;
mod rust_tests;
mod shell;
mod snapshot;
mod walk;

use std::{collections::BTreeMap, path::Path};

pub use compare::compare;
pub use shell::{MakeRun, Reach};
pub use snapshot::{Entry, More, PartKind, Role, SNAPSHOT_VERSION, Snapshot};

use crate::{
    model::Contract,
    sys::{Fs, fs::Result},
};

/// Named pieces of a file and the hash of each.
pub(crate) type Parts = BTreeMap<String, String>;

/// Records the protected files of the repository at `top` for `contract`, whose checks run in `top` itself.
/// Whether a contract asks for protection (`protect_tests`, a command check) is for the caller to look at.
///
/// # Errors
/// As [`take_in`].
pub fn take(fs: &dyn Fs, top: &Path, contract: &Contract) -> Result<Snapshot> {
    take_in(fs, top, top, contract)
}

/// Records the protected files of the repository at `top` for checks that run in `cwd`, a directory of it.
///
/// The directory decides which makefile a bare `make test` reads; it is kept in the snapshot, so that
/// [`compare()`] needs only the repository. A `cwd` outside `top` counts as `top`.
///
/// # Errors
/// The top cannot be listed, or the tree is beyond the bounds named in the message.
pub fn take_in(fs: &dyn Fs, top: &Path, cwd: &Path, contract: &Contract) -> Result<Snapshot> {
    let base = record::relative_dir(fs, top, cwd);
    record::record(fs, top, &base, contract, None)
}

/// SHA-256 of `bytes`, hex.
fn digest(bytes: &[u8]) -> String {
    use sha2::{Digest, Sha256};
    hex(&Sha256::digest(bytes))
}

/// Lower-case hex of `bytes`.
fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut out, b| {
        let _ = write!(out, "{b:02x}");
        out
    })
}

/// JSON text with object keys sorted, so that the order in which they are written does not matter.
fn canonical(value: &serde_json::Value) -> String {
    use serde_json::Value;
    match value {
        Value::Object(map) => {
            let sorted: BTreeMap<&String, &Value> = map.iter().collect();
            let fields: Vec<String> =
                sorted.into_iter().map(|(k, v)| format!("{}:{}", Value::from(k.as_str()), canonical(v))).collect();
            format!("{{{}}}", fields.join(","))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(canonical).collect::<Vec<_>>().join(",")),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
    }
}
