//! The moves: small projects, what an agent does to them, and the verdict each must meet.

use std::{fs, os::unix::fs::symlink, path::Path};

use super::{put, swap};

/// A project with the commands of its contract.
pub(super) struct Project {
    pub(super) name: &'static str,
    pub(super) commands: &'static [&'static str],
    pub(super) files: &'static [(&'static str, &'static str)],
}

const JS: Project = Project {
    name: "js",
    commands: &["npm test", "npm run check"],
    files: &[
        (
            "package.json",
            r#"{"name":"a","scripts":{"build":"tsc","test":"run-s unit:*","unit:a":"npm run deep","deep":"jest --ci","check":"pnpm lint:all","lint:all":"eslint .","start":"node ."},"jest":{"bail":true,"testMatch":["**/*.test.js"]},"dependencies":{"x":"1"}}"#,
        ),
        ("src/a.js", "export const a = 1;\n"),
        ("src/a.test.js", "test('a', () => expect(a).toBe(1));\n"),
        ("__tests__/b.js", "test('b', () => {});\n"),
        ("src/__snapshots__/a.test.js.snap", "exports[`a`] = `1`;\n"),
        ("vitest.config.ts", "export default {};\n"),
        ("packages/lib/package.json", r#"{"scripts":{"test":"vitest","deep":"x"}}"#),
        ("packages/lib/index.js", "1\n"),
        ("node_modules/dep/test/x.js", "1\n"),
    ],
};

const PYTHON: Project = Project {
    name: "python",
    commands: &["python -m pytest"],
    files: &[
        (
            "pyproject.toml",
            "[project]\nname = \"a\"\n[tool.pytest.ini_options]\naddopts = \"-q\"\n[tool.ruff]\nx = 1\n",
        ),
        ("setup.cfg", "[metadata]\nname = a\n[tool:pytest]\naddopts = -q\n"),
        ("a.py", "A = 1\n"),
        ("tests/test_a.py", "def test_a():\n    assert A == 1\n"),
        ("unit/b_test.py", "def test_b(): pass\n"),
        ("tests/conftest.py", "import pytest\n"),
    ],
};

const RUST: Project = Project {
    name: "rust",
    commands: &["cargo test"],
    files: &[
        ("Cargo.toml", "[package]\nname = \"a\"\nversion = \"0.1.0\"\n[dependencies]\nx = \"1\"\n"),
        (
            "src/lib.rs",
            "mod m;\npub fn two() -> i32 { 2 }\n\n#[cfg(test)]\nmod tests {\n    use super::*;\n\n    #[test]\n    fn two_is_two() {\n        assert_eq!(two(), 2, \"two // not\");\n    }\n}\n",
        ),
        ("src/m.rs", "pub fn m() {}\n#[cfg(test)]\nmod checks;\n"),
        ("src/m/checks.rs", "#[test]\nfn m() { super::m(); }\n"),
        ("tests/it.rs", "#[test]\nfn it() { assert_eq!(a::two(), 2); }\n"),
        (".config/nextest.toml", "[profile.default]\nretries = 0\n"),
    ],
};

const GO: Project = Project {
    name: "go",
    commands: &["go test ./...", "./scripts/run_tests.sh"],
    files: &[
        ("go.mod", "module a\n"),
        ("a.go", "package a\n"),
        ("a_test.go", "package a\n\nfunc TestA(t *testing.T) {}\n"),
        ("scripts/run_tests.sh", "#!/bin/sh\ngo test ./...\n"),
        ("e2e/login.go", "package e2e\n"),
    ],
};

const MAKE: Project = Project {
    name: "make",
    commands: &["make test", "make -C sub"],
    files: &[
        (
            "Makefile",
            "include rules.mk\nRUN = ./run $(FLAGS)\nFLAGS = -x\nVERSION = 1\n\n.PHONY: test lint\nall: lint\ntest: build suite\n\t$(RUN) all\nbuild:\n\tcc a.c\nlint:\n\techo lint\n",
        ),
        ("rules.mk", "suite:\n\t./suite\nother:\n\techo\n"),
        ("sub/Makefile", "first:\n\t./first\nsecond:\n\t./second\n"),
        ("a.c", "int main() {}\n"),
        ("a_test.c", "int main() {}\n"),
    ],
};

pub(super) type Act = fn(&Path);
/// Project, what is done, the doing, and a path with its reason when it must be refuted.
pub(super) type Row = (&'static Project, &'static str, Act, Option<(&'static str, &'static str)>);

const MODIFIED: &str = "modified";
const DELETED: &str = "deleted";
const ADDED: &str = "added-config";

const fn cheat(p: &'static Project, what: &'static str, path: &'static str, how: &'static str, act: Act) -> Row {
    (p, what, act, Some((path, how)))
}

const fn honest(p: &'static Project, what: &'static str, act: Act) -> Row {
    (p, what, act, None)
}

/// Scenario 12 and case VT-1; the same moves in a fix round (VT-10) meet the same comparison.
pub(super) const CHEATS: &[Row] = &[
    cheat(&JS, "edit a test", "src/a.test.js", MODIFIED, |t| swap(t, "src/a.test.js", "toBe(1)", "toBeDefined()")),
    cheat(&JS, "line endings", "src/a.test.js", MODIFIED, |t| swap(t, "src/a.test.js", "\n", "\r\n")),
    cheat(&JS, "delete a test", "__tests__/b.js", DELETED, |t| fs::remove_file(t.join("__tests__/b.js")).unwrap()),
    cheat(&JS, "rename a test", "src/a.test.js", DELETED, |t| {
        fs::rename(t.join("src/a.test.js"), t.join("src/a.js.txt")).unwrap();
    }),
    cheat(&JS, "edit a snapshot", "src/__snapshots__/a.test.js.snap", MODIFIED, |t| {
        swap(t, "src/__snapshots__/a.test.js.snap", "1", "2");
    }),
    cheat(&JS, "edit configuration", "vitest.config.ts", MODIFIED, |t| put(t, "vitest.config.ts", "exclude all")),
    cheat(&JS, "configuration at the root", "jest.config.json", ADDED, |t| put(t, "jest.config.json", "{}")),
    cheat(&JS, "configuration beside a test", "src/.mocharc.yml", ADDED, |t| put(t, "src/.mocharc.yml", "spec: no")),
    cheat(&JS, "new package.json beside a test", "src/package.json", ADDED, |t| {
        put(t, "src/package.json", r#"{"jest":{"testMatch":[]}}"#);
    }),
    cheat(&JS, "key of a runner", "package.json (modified: jest)", "", |t| {
        swap(t, "package.json", "*.test.js", "*.no.js");
    }),
    cheat(&JS, "new key of a runner", "package.json", MODIFIED, |t| {
        swap(t, "package.json", "\"jest\"", "\"vitest\":{},\"jest\"");
    }),
    cheat(&JS, "test script", "scripts.test", MODIFIED, |t| swap(t, "package.json", "run-s unit:*", "true")),
    cheat(&JS, "script behind a script", "scripts.deep", MODIFIED, |t| swap(t, "package.json", "jest --ci", "true")),
    cheat(&JS, "script of a check", "scripts.lint:all", MODIFIED, |t| swap(t, "package.json", "eslint .", "true")),
    cheat(&JS, "hook before a script", "scripts.predeep", MODIFIED, |t| {
        swap(t, "package.json", "\"deep\"", "\"predeep\":\"rm -r src\",\"deep\"");
    }),
    cheat(&JS, "script that joins a pattern", "scripts.unit:b", MODIFIED, |t| {
        swap(t, "package.json", "\"deep\"", "\"unit:b\":\"kill 0\",\"deep\"");
    }),
    cheat(&JS, "script of another package", "packages/lib/package.json", MODIFIED, |t| {
        swap(t, "packages/lib/package.json", "vitest", "true");
    }),
    cheat(&JS, "broken package.json", "package.json", MODIFIED, |t| put(t, "package.json", "{")),
    cheat(&JS, "package.json removed", "package.json", DELETED, |t| fs::remove_file(t.join("package.json")).unwrap()),
    cheat(&JS, "link in place of a test", "src/a.test.js", MODIFIED, |t| {
        fs::rename(t.join("src/a.test.js"), t.join("kept.js")).unwrap();
        symlink("../kept.js", t.join("src/a.test.js")).unwrap();
    }),
    cheat(&JS, "link in place of a directory", "__tests__/b.js", DELETED, |t| {
        fs::rename(t.join("__tests__"), t.join("kept")).unwrap();
        symlink("kept", t.join("__tests__")).unwrap();
    }),
    cheat(&JS, "directory in place of a test", "src/a.test.js", MODIFIED, |t| {
        fs::remove_file(t.join("src/a.test.js")).unwrap();
        fs::create_dir(t.join("src/a.test.js")).unwrap();
    }),
    cheat(&PYTHON, "deselect", "pyproject.toml (modified: tool.pytest)", "", |t| {
        swap(t, "pyproject.toml", "-q", "-q --deselect tests/test_a.py::test_a");
    }),
    cheat(&PYTHON, "setup.cfg", "setup.cfg (modified: tool:pytest)", "", |t| swap(t, "setup.cfg", "-q", "-k nothing")),
    cheat(&PYTHON, "broken pyproject", "pyproject.toml", MODIFIED, |t| put(t, "pyproject.toml", "[")),
    cheat(&PYTHON, "coverage section", "tool.coverage", MODIFIED, |t| {
        swap(t, "pyproject.toml", "[tool.ruff]", "[tool.coverage.run]\nomit=['*']\n[tool.ruff]");
    }),
    cheat(&PYTHON, "conftest at the root", "conftest.py", ADDED, |t| {
        put(t, "conftest.py", "collect_ignore = ['tests']");
    }),
    cheat(&PYTHON, "conftest edited", "tests/conftest.py", MODIFIED, |t| put(t, "tests/conftest.py", "skip()")),
    cheat(&PYTHON, "pytest.ini at the root", "pytest.ini", ADDED, |t| put(t, "pytest.ini", "[pytest]\n")),
    cheat(&PYTHON, "tox.ini beside", "unit/tox.ini", ADDED, |t| put(t, "unit/tox.ini", "[pytest]\n")),
    cheat(&PYTHON, "loosened", "tests/test_a.py", MODIFIED, |t| swap(t, "tests/test_a.py", "== 1", "")),
    cheat(&RUST, "ignore inline", "src/lib.rs (modified: mod tests)", "", |t| {
        swap(t, "src/lib.rs", "#[test]", "#[test]\n    #[ignore]");
    }),
    cheat(&RUST, "loosen inline", "src/lib.rs", MODIFIED, |t| swap(t, "src/lib.rs", "two(), 2,", "two(), two(),")),
    cheat(&RUST, "remove inline", "src/lib.rs", MODIFIED, |t| put(t, "src/lib.rs", "pub fn two() -> i32 { 2 }\n")),
    cheat(&RUST, "comment out inline", "src/lib.rs", MODIFIED, |t| {
        swap(t, "src/lib.rs", "    #[test]", "    // #[test]");
    }),
    cheat(&RUST, "text in a string", "src/lib.rs", MODIFIED, |t| swap(t, "src/lib.rs", "two // not", "two // no")),
    cheat(&RUST, "switch off the file", "src/lib.rs", MODIFIED, |t| {
        swap(t, "src/lib.rs", "mod m;", "#![cfg(no)] mod m;");
    }),
    cheat(&RUST, "delete a source with tests", "src/lib.rs", DELETED, |t| {
        fs::remove_file(t.join("src/lib.rs")).unwrap();
    }),
    cheat(&RUST, "test module elsewhere", "src/m/checks.rs", MODIFIED, |t| {
        swap(t, "src/m/checks.rs", "super::m();", "");
    }),
    cheat(&RUST, "its declaration", "src/m.rs", MODIFIED, |t| swap(t, "src/m.rs", "mod checks;", "")),
    cheat(&RUST, "ignore in tests/", "tests/it.rs", MODIFIED, |t| {
        swap(t, "tests/it.rs", "#[test]", "#[test] #[ignore]");
    }),
    cheat(&RUST, "lib without tests", "Cargo.toml (modified: lib.test)", "", |t| {
        swap(t, "Cargo.toml", "[dependencies]", "[lib]\ntest = false\n[dependencies]");
    }),
    cheat(&RUST, "cargo runner", ".cargo/config.toml", ADDED, |t| {
        put(t, ".cargo/config.toml", "[target.'cfg(all())']\nrunner = 'true'");
    }),
    cheat(&RUST, "nextest", ".config/nextest.toml", MODIFIED, |t| swap(t, ".config/nextest.toml", "0", "9")),
    cheat(&GO, "build tag", "a_test.go", MODIFIED, |t| swap(t, "a_test.go", "package a", "//go:build no\n\npackage a")),
    cheat(&GO, "test script replaced", "scripts/run_tests.sh", MODIFIED, |t| put(t, "scripts/run_tests.sh", "true\n")),
    cheat(&GO, "end-to-end test", "e2e/login.go", MODIFIED, |t| put(t, "e2e/login.go", "package none\n")),
    cheat(&GO, "delete", "a_test.go", DELETED, |t| fs::remove_file(t.join("a_test.go")).unwrap()),
    cheat(&MAKE, "target becomes true", "Makefile (modified: target test", "", |t| {
        swap(t, "Makefile", "$(RUN) all", "true");
    }),
    cheat(&MAKE, "prerequisite dropped", "Makefile", MODIFIED, |t| swap(t, "Makefile", "build suite", "build")),
    cheat(&MAKE, "prerequisite's recipe", "rules.mk", MODIFIED, |t| swap(t, "rules.mk", "./suite", "true")),
    cheat(&MAKE, "variable behind a variable", "Makefile", MODIFIED, |t| swap(t, "Makefile", "-x", "--list")),
    cheat(&MAKE, "shell", "Makefile", MODIFIED, |t| swap(t, "Makefile", "VERSION", "SHELL = true\nVERSION")),
    cheat(&MAKE, "default goal of a directory", "sub/Makefile", MODIFIED, |t| {
        swap(t, "sub/Makefile", "first:", "none:\n\ttrue\nfirst:");
    }),
    cheat(&MAKE, "makefile before the makefile", "GNUmakefile", ADDED, |t| put(t, "GNUmakefile", "test:\n\ttrue\n")),
    cheat(&MAKE, "makefile that governs no test", "sub/makefile", ADDED, |t| {
        put(t, "sub/makefile", "first:\n\ttrue\n");
    }),
];

pub(super) const HONEST: &[Row] = &[
    honest(&JS, "code and new tests", |t| {
        put(t, "src/a.js", "export const a = 2;\n");
        put(t, "src/new.test.js", "test()");
        put(t, "__tests__/deep/new.js", "test()");
    }),
    honest(&JS, "new package with its own configuration", |t| {
        put(t, "packages/new/package.json", r#"{"jest":{},"scripts":{"test":"jest"}}"#);
        put(t, "packages/new/jest.config.js", "");
        put(t, "packages/new/a.test.js", "");
    }),
    honest(&JS, "configuration where no test was", |t| put(t, "packages/lib/vitest.config.ts", "")),
    honest(&JS, "other scripts, dependencies, order", |t| {
        put(
            t,
            "package.json",
            r#"{"dependencies":{"x":"2","y":"1"},"jest":{"testMatch":["**/*.test.js"],"bail":true},
                "scripts":{"start":"x","new":"y","build":"vite","prebuild":"z","test:later":"w","deep":"jest --ci","unit:a":"npm run deep","lint:all":"eslint .","check":"pnpm lint:all","test":"run-s unit:*"},"version":"2"}"#,
        );
    }),
    honest(&JS, "key of a runner in a package without tests", |t| {
        put(t, "packages/lib/package.json", r#"{"vitest":{},"scripts":{"test":"vitest","deep":"x"}}"#);
    }),
    honest(&JS, "dependencies", |t| put(t, "node_modules/dep/test/x.js", "2")),
    honest(&PYTHON, "code, tests, other sections", |t| {
        put(t, "a.py", "A = 2\n");
        put(t, "tests/test_new.py", "def test(): pass\n");
        put(t, "tests/deep/conftest.py", "");
        put(t, "tests/__pycache__/test_a.cpython-312.pyc", "cache");
        swap(t, "pyproject.toml", "[project]\nname = \"a\"", "[project]\nname = \"b\"\ndependencies = [\"x\"]");
        swap(t, "pyproject.toml", "x = 1", "x = 2");
        swap(t, "setup.cfg", "name = a", "name = b");
    }),
    honest(&PYTHON, "layout of sections", |t| {
        put(t, "pyproject.toml", "[tool.pytest]\nini_options = { addopts = '-q' } # same\n[project]\nname='a'\n");
    }),
    honest(&RUST, "code around inline tests", |t| {
        swap(
            t,
            "src/lib.rs",
            "pub fn two() -> i32 { 2 }",
            "pub fn two() -> i32 { one() + one() }\nfn one() -> i32 { 1 }",
        );
    }),
    honest(&RUST, "layout of inline tests", |t| {
        swap(
            t,
            "src/lib.rs",
            "assert_eq!(two(), 2, \"two // not\")",
            "assert_eq!(\n two(),\n 2, // two\n /* x */ \"two // not\",\n)",
        );
        swap(t, "src/lib.rs", "\n", "\r\n");
    }),
    honest(&RUST, "more tests", |t| {
        swap(t, "src/lib.rs", "mod m;", "mod m;\n#[cfg(test)]\nmod more { #[test] fn a() {} }");
        put(t, "tests/new.rs", "#[test] fn a() {}");
        put(t, "src/n.rs", "#[cfg(test)] mod tests { #[test] fn a() {} }");
    }),
    honest(&RUST, "manifest", |t| {
        swap(t, "Cargo.toml", "x = \"1\"", "x = \"2\"\ny = \"1\"\n[[bin]]\nname = \"b\"\n[[test]]\nname = \"new\"\n");
    }),
    honest(&RUST, "crate with its own cargo configuration", |t| {
        put(t, "new/Cargo.toml", "[package]\nname='n'\n[lib]\ntest=false\n");
        put(t, "new/.cargo/config.toml", "");
        put(t, "target/debug/tests/x", "");
    }),
    honest(&GO, "code and tests", |t| {
        put(t, "a.go", "package a // new\n");
        put(t, "b/b_test.go", "package b\n");
        put(t, "e2e/new.go", "package e2e\n");
        put(t, "scripts/deploy.sh", "true\n");
    }),
    honest(&MAKE, "targets and variables that no check reaches", |t| {
        swap(t, "Makefile", "echo lint", "echo more");
        swap(t, "Makefile", "VERSION = 1", "# words\nVERSION = 2\nNEW = 3");
        swap(t, "Makefile", ".PHONY: test lint", ".PHONY: test lint new\nnew:\n\techo new");
        swap(t, "rules.mk", "\techo", "\techo other");
        swap(t, "sub/Makefile", "./second", "./third");
        put(t, "a.c", "int main() { return 0; }\n");
        put(t, "docs/Makefile", "test:\n\ttrue\n");
    }),
];
