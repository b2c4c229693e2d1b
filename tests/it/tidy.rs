//! Rules of the source tree that no compiler holds.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

/// Longest source file in lines; the aim is far below.
const LINES_MAX: usize = 800;

/// Layers from the bottom. A module imports from lower numbers only; equal ones do not know each other.
const LAYERS: [(&str, u32); 12] = [
    ("model", 0),
    ("sys", 1),
    ("config", 2),
    ("store", 2),
    ("git", 3),
    ("engines", 3),
    ("verify", 4),
    ("nodes", 5),
    ("kernel", 6),
    ("tools", 7),
    ("protocol", 8),
    ("app", 9),
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn text(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// Files below `dir` with this ending.
fn files(dir: &Path, ending: &str, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, ending, found);
        } else if path.extension().is_some_and(|e| e == ending) {
            found.push(path);
        }
    }
}

fn sources(dirs: &[&str]) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for dir in dirs {
        files(&root().join(dir), "rs", &mut found);
    }
    found.sort();
    let name = |path: &Path| path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
    found.into_iter().map(|path| (name(&path), std::fs::read_to_string(&path).unwrap())).collect()
}

/// Every test file is declared in the root of its suite, and each root is compiled.
#[test]
fn no_test_file_is_forgotten() {
    for (dir, root_file) in [("tests/it", "main.rs"), ("tests/crash", "mod.rs")] {
        let declared = text(&format!("{dir}/{root_file}"));
        for entry in std::fs::read_dir(root().join(dir)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let stem = name.trim_end_matches(".rs");
            assert!(name == root_file || declared.contains(&format!("mod {stem};")), "{dir}/{name} is not declared");
        }
    }
    // It reaches into the store, so it is compiled as one of the store's own test modules.
    let included = "#[cfg(test)]\n#[path = \"../../tests/crash/mod.rs\"]\nmod crash;\n";
    assert!(text("src/store/mod.rs").contains(included), "the disk model is not compiled");
}

/// Top-level modules of this crate that `source` names, its unit tests aside.
fn imports(source: &str) -> BTreeSet<String> {
    let code: String = source.lines().filter(|l| !l.trim_start().starts_with("//")).flat_map(|l| [l, "\n"]).collect();
    let code = code.split("#[cfg(test)]\nmod tests {").next().unwrap();
    let mut found = BTreeSet::new();
    for (at, _) in code.match_indices("crate::") {
        let rest = &code[at + "crate::".len()..];
        match rest.strip_prefix('{') {
            Some(list) => found.extend(names_in_braces(list)),
            None => {
                found.insert(word(rest));
            }
        }
    }
    found
}

/// First words of the entries of a `use` list, which starts after its brace.
fn names_in_braces(list: &str) -> Vec<String> {
    let (mut depth, mut start, mut names) = (0, true, Vec::new());
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => start = true,
            c if start && c.is_alphanumeric() => {
                names.push(word(&list[at..]));
                start = false;
            }
            _ => {}
        }
    }
    names
}

fn word(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

#[test]
fn imports_are_read_from_both_forms() {
    let source = "use crate::{\n    app::{App, x::Mode},\n    kernel, sys as s,\n};\nfn f() { crate::git::g(); }\n\
                  // crate::cli\n#[cfg(test)]\nmod tests {\n use crate::tools;\n}\n";
    assert_eq!(imports(source), ["app", "git", "kernel", "sys"].map(str::to_owned).into());
}

/// Data flows one way: a module imports only from layers below it.
#[test]
fn layers_have_one_direction() {
    let rank = |module: &str| LAYERS.iter().find(|(name, _)| *name == module).map(|(_, rank)| *rank);
    let mut wrong = Vec::new();
    for (name, source) in sources(&["src"]) {
        let module = word(name.trim_start_matches("src/"));
        if matches!(module.as_str(), "lib" | "main" | "cli" | "fuzzing") {
            continue;
        }
        let own = rank(&module).unwrap_or_else(|| panic!("{name}: module '{module}' has no layer"));
        for import in imports(&source) {
            let allowed = import == module || rank(&import).is_some_and(|other| other < own);
            // Macros and types of the crate's root have no layer; there are none.
            if !allowed {
                wrong.push(format!("{name} imports crate::{import}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_file_is_short_and_says_what_it_is() {
    let mut wrong = Vec::new();
    for (name, source) in sources(&["src", "tests", "benches", "fuzz/fuzz_targets"]) {
        if source.lines().count() > LINES_MAX {
            wrong.push(format!("{name} has {} lines", source.lines().count()));
        }
        if !source.starts_with("//!") {
            wrong.push(format!("{name} does not start with what it is"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// What a newcomer is told to type is what CI runs.
#[test]
fn the_commands_of_the_readme_are_run_by_ci() {
    let (readme, ci) = (text("README.md"), text(".ci/run"));
    let block = readme.split("```sh\n").nth(1).unwrap().split("```").next().unwrap();
    let commands: Vec<&str> = block.lines().filter(|l| !l.trim().is_empty()).collect();
    assert_eq!(commands.len(), 2, "{commands:?}");
    for command in commands {
        assert!(ci.contains(command), "'{command}' is not in .ci/run");
    }
}

/// The README names the tools and commands there are, and no others.
#[test]
fn the_readme_names_what_there_is() {
    let readme = text("README.md");
    let table = readme.split("## Tools").nth(1).unwrap().split("##").next().unwrap();
    let named: BTreeSet<String> =
        table.lines().filter_map(|l| l.strip_prefix("| `")).map(|l| word(l.split('`').next().unwrap())).collect();
    let registry = claw_orchestrator::tools::Registry::full();
    let there: BTreeSet<String> = registry.tools().iter().map(|t| t.about.name.to_owned()).collect();
    assert_eq!(named, there);
}

#[test]
fn the_changelog_is_kept() {
    let changelog = text("CHANGELOG.md");
    let unreleased = changelog.split("## [Unreleased]").nth(1).expect("there is no Unreleased section");
    assert!(unreleased.split("\n## ").next().unwrap().contains("\n- "), "the Unreleased section says nothing");
}

/// The map names every module.
#[test]
fn the_architecture_is_described() {
    let page = text("ARCHITECTURE.md");
    assert!(page.lines().count() <= 150, "it is one page");
    for entry in std::fs::read_dir(root().join("src")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let module = name.trim_end_matches(".rs");
        assert!(page.contains(&format!("`{module}`")), "module {module} is not in ARCHITECTURE.md");
    }
}

/// Every direct dependency has a line that says why it is there and what it costs, and no line is left over.
#[test]
fn every_dependency_has_its_reason() {
    let page = text("ARCHITECTURE.md");
    let table = page.split("## Dependencies").nth(1).unwrap();
    let mut explained = BTreeSet::new();
    for row in table.lines().filter(|l| l.starts_with("| `")) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        assert!(cells.len() == 3 && cells.iter().all(|c| c.len() > 2), "name, reason and cost, not: {row}");
        assert!(explained.insert(cells[0].trim_matches('`').to_owned()), "{} has two lines", cells[0]);
    }
    let manifest: toml::Table = text("Cargo.toml").parse().unwrap();
    let direct = ["dependencies", "dev-dependencies"].map(|kind| manifest[kind].as_table().unwrap().keys().cloned());
    assert_eq!(explained, direct.into_iter().flatten().collect::<BTreeSet<_>>());
}

/// The product's files speak of the product alone.
#[test]
fn no_word_of_a_workplace() {
    let words =
        [concat!("/wo", "rk/wt"), concat!("/wo", "rk/shared"), concat!("/wo", "rk/main"), concat!("hel", "per:")];
    let mut texts = sources(&["src", "tests", "benches", "fuzz/fuzz_targets"]);
    for name in ["README.md", "CHANGELOG.md", "ARCHITECTURE.md", ".ci/run", "scripts/measure", "scripts/inspector"] {
        texts.push((name.to_owned(), text(name)));
    }
    for (name, text) in texts {
        for word in words {
            assert!(!text.contains(word), "{name} says '{word}'");
        }
    }
}
