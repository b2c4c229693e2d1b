//! Evidence that gets its final id when it is stored, and the names a manifest vouches for.

use serde_json::Value;

use super::evidence::manifest;
use crate::model::EvidenceBundle;

/// The files of a bundle under another id: the bundle's document and the manifest are made anew.
pub fn renamed(bundle: &EvidenceBundle, files: &[(String, Vec<u8>)]) -> Vec<(String, Vec<u8>)> {
    let mut renamed: Vec<(String, Vec<u8>)> =
        files.iter().filter(|(name, _)| name != "bundle.json" && name != "manifest.json").cloned().collect();
    // Plain data with string keys always serialises; an empty document would fail the manifest's own check.
    let mut document = serde_json::to_vec_pretty(bundle).unwrap_or_default();
    document.push(b'\n');
    renamed.push(("bundle.json".to_owned(), document));
    let sums = manifest(&renamed).unwrap_or_default();
    renamed.push(("manifest.json".to_owned(), sums));
    renamed
}

/// The files a manifest names.
pub fn names(manifest: &[u8]) -> Vec<String> {
    let parsed: Value = serde_json::from_slice(manifest).unwrap_or_default();
    let files = parsed.get("files").and_then(Value::as_object);
    files.map(|map| map.keys().cloned().collect()).unwrap_or_default()
}
