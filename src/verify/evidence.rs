//! Evidence as files: their names, the manifest over them, and reading it all back.
//!
//! Pure; never reads a disk. Says what does not match, never repairs it.

use std::{collections::BTreeMap, fmt::Write as _};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::model::{Contract, EvidenceBundle, evidence::BUNDLE_VERSION};

/// The bundle itself.
pub const BUNDLE: &str = "bundle.json";
/// SHA-256 of every other file.
pub const MANIFEST: &str = "manifest.json";
/// The patch of the run.
pub const PATCH: &str = "diff.patch";
/// Form of the manifest.
const MANIFEST_VERSION: u32 = 1;

/// The manifest's form.
#[derive(Debug, Serialize, Deserialize)]
struct Manifest {
    v: u32,
    algorithm: String,
    files: BTreeMap<String, String>,
}

/// SHA-256 as lower-case hex.
pub fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len().saturating_mul(2)), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}

/// SHA-256 over a contract's canonical JSON: keys sorted, no spaces.
pub fn contract_hash(contract: &Contract) -> Result<String, serde_json::Error> {
    let value = sorted(serde_json::to_value(contract)?);
    Ok(sha256(serde_json::to_string(&value)?.as_bytes()))
}

fn sorted(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let by_key: BTreeMap<String, Value> = map.into_iter().collect();
            Value::Object(by_key.into_iter().map(|(key, value)| (key, sorted(value))).collect())
        }
        Value::Array(list) => Value::Array(list.into_iter().map(sorted).collect()),
        plain @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => plain,
    }
}

/// The manifest over `files`.
pub fn manifest(files: &[(String, Vec<u8>)]) -> Result<Vec<u8>, serde_json::Error> {
    let files = files.iter().map(|(name, bytes)| (name.clone(), sha256(bytes))).collect();
    let manifest = Manifest { v: MANIFEST_VERSION, algorithm: "sha256".to_owned(), files };
    let mut encoded = serde_json::to_vec_pretty(&manifest)?;
    encoded.push(b'\n');
    Ok(encoded)
}

/// Reads the bundle among `files`.
pub fn read_bundle(files: &[(String, Vec<u8>)]) -> Result<EvidenceBundle, String> {
    let bytes = find(files, BUNDLE).ok_or_else(|| format!("{BUNDLE} is missing"))?;
    let bundle: EvidenceBundle = serde_json::from_slice(bytes).map_err(|e| format!("{BUNDLE} cannot be read: {e}"))?;
    if bundle.v > BUNDLE_VERSION {
        return Err(format!("{BUNDLE} has form {}, this program knows up to {BUNDLE_VERSION}", bundle.v));
    }
    Ok(bundle)
}

/// Everything about a bundle's files that does not fit together; empty when it all does.
pub fn check_manifest(files: &[(String, Vec<u8>)]) -> Vec<String> {
    let Some(bytes) = find(files, MANIFEST) else { return vec![format!("{MANIFEST} is missing")] };
    let manifest: Manifest = match serde_json::from_slice(bytes) {
        Ok(manifest) => manifest,
        Err(error) => return vec![format!("{MANIFEST} cannot be read: {error}")],
    };
    if manifest.v != MANIFEST_VERSION || manifest.algorithm != "sha256" {
        return vec![format!("{MANIFEST} has form {} with {}, which is not known", manifest.v, manifest.algorithm)];
    }
    let mut problems = Vec::new();
    for (name, hash) in &manifest.files {
        match find(files, name) {
            None => problems.push(format!("{name} is missing")),
            Some(bytes) if sha256(bytes) != *hash => problems.push(format!("{name} was changed after it was written")),
            Some(_) => {}
        }
    }
    for (name, _) in files.iter().filter(|(name, _)| name != MANIFEST && !manifest.files.contains_key(name)) {
        problems.push(format!("{name} is not in the manifest"));
    }
    match read_bundle(files) {
        Err(reason) => problems.push(reason),
        Ok(bundle) => {
            if contract_hash(&bundle.contract).ok().as_ref() != Some(&bundle.contract_hash) {
                problems.push("the contract in the bundle is not the one its hash names".to_owned());
            }
            for name in bundle.results.iter().flat_map(|r| &r.artifacts) {
                if !manifest.files.contains_key(name) {
                    problems.push(format!("{name} is named by a result and not in the manifest"));
                }
            }
        }
    }
    problems.sort();
    problems.dedup();
    problems
}

fn find<'a>(files: &'a [(String, Vec<u8>)], name: &str) -> Option<&'a [u8]> {
    files.iter().find(|(n, _)| n == name).map(|(_, bytes)| bytes.as_slice())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::verify::contract::normalise;

    #[test]
    fn the_hash_of_a_contract_is_that_of_its_meaning() {
        let hash = |value: Value| contract_hash(&normalise(&value, "").unwrap().0).unwrap();
        let one = hash(json!({ "checks": [{ "type": "command", "cmd": "x", "env": { "B": "1", "A": "2" } }] }));
        let same =
            hash(json!({ "checks": [{ "spec": { "env": { "A": "2", "B": "1" }, "cmd": "x", "type": "command" } }] }));
        let other = hash(json!({ "checks": [{ "type": "command", "cmd": "x", "env": { "A": "2", "B": "2" } }] }));
        assert_eq!(one, same);
        assert_ne!(one, other);
        assert_eq!(one.len(), 64);
        assert_eq!(sha256(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
