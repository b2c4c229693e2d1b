//! Which paths are tests or test configuration, by name alone. Opens nothing.

/// What a path is to the record of tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Class {
    /// The whole file is a test.
    pub(super) test: bool,
    /// The file configures how tests run, wholly or in parts.
    pub(super) config: Option<Config>,
    /// A Rust source that may hold inline tests.
    pub(super) rust: bool,
}

/// How a configuration file is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Config {
    /// Compared whole.
    Whole,
    /// Some keys and scripts of `package.json`.
    Package,
    /// Some sections of `pyproject.toml`.
    Pyproject,
    /// Some sections of `setup.cfg`.
    SetupCfg,
    /// Test switches of `Cargo.toml`.
    Cargo,
    /// A makefile, of which only what a check runs counts.
    Make,
}

/// Directories never entered: dependencies, build output and repositories' own data, then caches that test
/// runners rewrite by themselves, which would make every honest run look tampered with.
const SKIPPED: &[&str] = &[
    "node_modules",
    "vendor",
    "site-packages",
    ".venv",
    "target",
    ".git",
    "__pycache__",
    ".pytest_cache",
    ".mypy_cache",
    ".ruff_cache",
    ".hypothesis",
    ".tox",
    ".nox",
    ".nyc_output",
];

/// Directories whose every file is a test.
const TEST_DIRS: &[&str] = &["__tests__", "__snapshots__", "test", "tests", "e2e"];

const JS: &[&str] = &["js", "jsx", "ts", "tsx", "mjs", "cjs", "mts", "cts", "vue", "svelte"];

/// Names that are test configuration as they stand.
const CONFIG_NAMES: &[&str] = &[
    ".rspec",
    "pytest.ini",
    ".pytest.ini",
    "pytest.toml",
    ".pytest.toml",
    "conftest.py",
    "tox.ini",
    "phpunit.xml",
    "phpunit.xml.dist",
    "phpunit.dist.xml",
    "nextest.toml",
    "cypress.json",
];

/// Beginnings of names that are test configuration with any ending.
const CONFIG_STEMS: &[&str] = &[
    "vitest.config.",
    "vitest.workspace.",
    "vitest.projects.",
    "vitest.setup.",
    "vite.config.",
    "jest.config.",
    "jest.setup.",
    "jest-setup.",
    "setupTests.",
    "playwright.config.",
    "playwright-ct.config.",
    "cypress.config.",
    "karma.conf.",
    "ava.config.",
    ".mocharc.",
];

/// Whether a directory of this name is passed over. `siblings` are the names beside it.
pub(super) fn skipped_dir(name: &str, dotnet: bool) -> bool {
    SKIPPED.contains(&name) || (dotnet && (name == "bin" || name == "obj"))
}

/// Whether this file makes `bin` and `obj` beside it build output.
pub(super) fn is_dotnet_project(name: &[u8]) -> bool {
    [b".csproj".as_slice(), b".fsproj", b".vbproj"].iter().any(|end| name.ends_with(end))
}

/// Classifies a path relative to the top, with `/`.
pub(super) fn classify(path: &str) -> Class {
    let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
    let test = in_test_dir(dir) || (name != "conftest.py" && is_test_name(dir, name));
    Class { test, config: config(dir, name), rust: name.ends_with(".rs") }
}

/// Whether a link at `path` stands for a whole directory of tests.
pub(super) fn names_test_dir(path: &str) -> bool {
    TEST_DIRS.contains(&path.rsplit('/').next().unwrap_or(path))
}

/// The directory whose tests a configuration file at `path` governs.
pub(super) fn governed(path: &str) -> &str {
    let dir = parent(path);
    match dir.rsplit('/').next() {
        Some(".cargo" | ".config") => parent(dir),
        _ => dir,
    }
}

/// The directory part of a path, empty at the top.
pub(super) fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(dir, _)| dir)
}

/// Whether `path` lies in `dir` or below; the empty directory is the top.
pub(super) fn is_below(path: &str, dir: &str) -> bool {
    dir.is_empty() || path.strip_prefix(dir).is_some_and(|rest| rest.starts_with('/'))
}

fn in_test_dir(dir: &str) -> bool {
    let mut before = "";
    dir.split('/').any(|part| {
        let hit = TEST_DIRS.contains(&part) || (before == "spec" && part == "support");
        before = part;
        hit
    })
}

fn is_test_name(dir: &str, name: &str) -> bool {
    let Some((stem, ext)) = name.rsplit_once('.') else { return false };
    match ext {
        "py" => stem.starts_with("test_") || stem.ends_with("_test"),
        "go" => stem.ends_with("_test"),
        "rb" => {
            stem.ends_with("_spec")
                || ((stem == "spec_helper" || stem == "rails_helper") && (dir == "spec" || dir.ends_with("/spec")))
        }
        "java" | "kt" | "cs" => stem.ends_with("Test") || stem.ends_with("Tests"),
        "exs" => stem.ends_with("_test"),
        "php" => stem.ends_with("Test"),
        "swift" => stem.ends_with("Tests"),
        "c" | "cc" | "cpp" | "cxx" | "c++" => stem.ends_with("_test") || stem.starts_with("test_"),
        "snap" => stem.contains(".test.") || stem.contains(".spec."),
        _ if JS.contains(&ext) => stem.split('.').skip(1).any(|part| part == "test" || part == "spec"),
        _ => false,
    }
}

fn config(dir: &str, name: &str) -> Option<Config> {
    match name {
        "package.json" => return Some(Config::Package),
        "pyproject.toml" => return Some(Config::Pyproject),
        "setup.cfg" => return Some(Config::SetupCfg),
        "Cargo.toml" => return Some(Config::Cargo),
        "GNUmakefile" | "makefile" | "Makefile" => return Some(Config::Make),
        "config.toml" | "config" if dir == ".cargo" || dir.ends_with("/.cargo") => return Some(Config::Whole),
        _ => {}
    }
    let whole = CONFIG_NAMES.contains(&name)
        || name == ".mocharc"
        || CONFIG_STEMS.iter().any(|stem| name.len() > stem.len() && name.starts_with(stem));
    whole.then_some(Config::Whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_language_named_is_recognised() {
        for path in [
            "a/__tests__/x.txt",
            "__snapshots__/x.snap",
            "test/x",
            "a/tests/b/c.dat",
            "src/a.test.ts",
            "a.spec.jsx",
            "a.test.mjs",
            "a.unit.test.js",
            "test_a.py",
            "a/b_test.py",
            "a_test.go",
            "a_spec.rb",
            "spec/spec_helper.rb",
            "x/spec/rails_helper.rb",
            "spec/support/deep/h.rb",
            "ATest.java",
            "BTests.kt",
            "CTests.cs",
            "tests/it.rs",
            "a_test.exs",
            "ATest.php",
            "ATests.swift",
            "a_test.c",
            "a_test.cpp",
            "test_a.cc",
            "e2e/login.js",
        ] {
            assert!(classify(path).test, "{path}");
        }
        for path in [
            "src/a.ts",
            "latest.py",
            "contest.go",
            "attest/x",
            "Latest.java",
            "testing.py",
            "spec/a.rb",
            "openapi.spec.json",
            "support/h.rb",
            "src/test_util.rs",
            "a.test",
            "Tested.kt",
            "greatest.js",
            "conftest.py",
            "test.js",
        ] {
            assert!(!classify(path).test, "{path}");
        }
    }

    #[test]
    fn configuration_is_recognised_with_its_reader() {
        for path in [
            "vitest.config.ts",
            "a/jest.config.json",
            "playwright.config.ts",
            "cypress.config.js",
            "cypress.json",
            "vitest.workspace.ts",
            "karma.conf.js",
            "vitest.setup.ts",
            "jest.setup.js",
            "src/setupTests.ts",
            ".mocharc",
            ".mocharc.yml",
            ".rspec",
            "pytest.ini",
            "tests/conftest.py",
            "tox.ini",
            "phpunit.xml",
            "phpunit.xml.dist",
            "vite.config.mts",
            ".cargo/config.toml",
            "a/.cargo/config",
            ".config/nextest.toml",
        ] {
            assert_eq!(classify(path).config, Some(Config::Whole), "{path}");
        }
        assert_eq!(classify("a/package.json").config, Some(Config::Package));
        assert_eq!(classify("GNUmakefile").config, Some(Config::Make));
        for path in ["config.toml", "vite.ts", "jest.ts", "tsconfig.json", "package-lock.json", "Makefile.am"] {
            assert_eq!(classify(path).config, None, "{path}");
        }
    }

    #[test]
    fn configuration_governs_its_directory_and_below() {
        assert_eq!(governed("a/.cargo/config.toml"), "a");
        assert_eq!(governed(".config/nextest.toml"), "");
        assert_eq!(governed("a/b/jest.config.js"), "a/b");
        assert!(is_below("a/b/c", "a/b") && is_below("x", "") && !is_below("a/bc/d", "a/b"));
    }
}
