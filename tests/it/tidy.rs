//! Rules of the source tree that no compiler holds.

use std::path::Path;

/// Every test file is declared in `main.rs`.
#[test]
fn no_test_file_is_forgotten() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it");
    let main = std::fs::read_to_string(dir.join("main.rs")).unwrap();
    for entry in std::fs::read_dir(&dir).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let stem = name.trim_end_matches(".rs");
        assert!(stem == "main" || main.contains(&format!("mod {stem};")), "{name} is not declared");
    }
}
