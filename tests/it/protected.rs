//! Protected tests on real trees: every move of an agent with the verdict it must meet.

mod moves;

use std::{
    fs,
    os::unix::{ffi::OsStrExt, fs::symlink},
    path::Path,
};

use claw_orchestrator::{
    model::{Check, CheckResult, CheckSpec, Contract},
    sys::RealFs,
    verify::protected::{self, Entry, Snapshot},
};
use moves::{CHEATS, HONEST};

/// A contract of command checks, one a line.
fn contract(commands: &[&str]) -> Contract {
    let checks = commands.iter().enumerate().map(|(n, line)| {
        let mut words = line.split(' ').map(str::to_owned);
        Check {
            id: format!("command-{n}"),
            required: true,
            spec: CheckSpec::Command {
                cmd: words.next().unwrap(),
                args: words.collect(),
                cwd: None,
                expect_exit: 0,
                timeout_ms: 1_000,
                env: Default::default(),
                env_from: Vec::new(),
            },
        }
    });
    Contract { id: None, checks: checks.collect(), fix_on_failure_rounds: 0, protect_tests: true }
}

fn put(top: &Path, path: &str, text: &str) {
    let path = top.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn swap(top: &Path, path: &str, from: &str, to: &str) {
    let text = fs::read_to_string(top.join(path)).unwrap();
    assert!(text.contains(from), "{path} has no {from:?}");
    fs::write(top.join(path), text.replace(from, to)).unwrap();
}

fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    files.iter().for_each(|(path, text)| put(dir.path(), path, text));
    dir
}

/// What the record says after `act`, through its stored form.
fn after(files: &[(&str, &str)], commands: &[&str], act: &dyn Fn(&Path)) -> CheckResult {
    let dir = tree(files);
    let contract = contract(commands);
    let start = protected::take(&RealFs, dir.path(), &contract).unwrap();
    let start: Snapshot = serde_json::from_str(&serde_json::to_string(&start).unwrap()).unwrap();
    let before = protected::compare(&RealFs, dir.path(), &contract, &start).unwrap();
    assert!(before.passed, "nothing was done: {}", before.detail);
    act(dir.path());
    protected::compare(&RealFs, dir.path(), &contract, &start).unwrap()
}

#[test]
fn every_move_meets_its_verdict() {
    let mut wrong = Vec::new();
    let (mut caught, mut refuted) = (0, 0);
    for (project, what, act, expected) in CHEATS.iter().chain(HONEST) {
        let result = after(project.files, project.commands, act);
        assert_eq!(
            (result.id.as_str(), result.kind.as_str(), result.required),
            ("protected-tests", "protected_tests", true)
        );
        let told = format!("{}: {what}: {}", project.name, result.detail);
        match expected {
            Some((path, how)) => {
                let named = |text: &str| text.lines().any(|l| l.contains(path) && l.contains(how));
                let ok = !result.passed && named(&result.detail) && result.tail.as_deref().is_some_and(named);
                caught += usize::from(ok);
                (!ok).then(|| wrong.push(told));
            }
            None => {
                refuted += usize::from(!result.passed);
                (!result.passed || result.tail.is_some()).then(|| wrong.push(told));
            }
        }
    }
    let rates =
        format!("{caught} of {} cheats caught, {refuted} of {} honest changes refuted", CHEATS.len(), HONEST.len());
    println!("{rates}");
    assert!(wrong.is_empty(), "{rates}\n{}", wrong.join("\n"));
}

/// Scenario 12: links are recorded by their target, and nothing but regular files is ever opened.
#[test]
fn links_loops_and_pipes_are_harmless() {
    let dir = tree(&[("real/one.py", "1"), ("real/two.py", "2"), ("tests/test_a.py", "a")]);
    let top = dir.path();
    symlink("real/one.py", top.join("test_link.py")).unwrap();
    symlink("real", top.join("test")).unwrap();
    symlink("..", top.join("tests/loop")).unwrap();
    symlink("self_test.go", top.join("self_test.go")).unwrap();
    let pipe = top.join("tests/pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    put(top, std::str::from_utf8(b"tests/\xd1\x82 %41\n\"q\".py").unwrap(), "x");
    let odd = top.join(std::ffi::OsStr::from_bytes(b"tests/bad\xff.py"));
    fs::write(&odd, "x").unwrap();
    let contract = contract(&["pytest"]);
    let start = protected::take(&RealFs, top, &contract).unwrap();
    let check = || protected::compare(&RealFs, top, &contract, &start).unwrap();
    assert!(check().passed);
    put(top, "real/one.py", "changed behind the link");
    assert!(check().passed);

    fs::remove_file(top.join("test_link.py")).unwrap();
    symlink("real/two.py", top.join("test_link.py")).unwrap();
    fs::remove_file(top.join("test")).unwrap();
    symlink("tests", top.join("test")).unwrap();
    fs::write(&odd, "y").unwrap();
    fs::remove_file(top.join("tests/test_a.py")).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(top.join("tests/test_a.py")).status().unwrap().success());
    let tail = check().tail.unwrap();
    assert_eq!(
        tail.lines().collect::<Vec<_>>(),
        [
            "test (modified: target of the link)",
            "test_link.py (modified: target of the link)",
            "tests/bad%FF.py (modified: contents)",
            "tests/test_a.py (modified: it is no regular file)",
        ]
    );
}

/// Scenario 12: git rewriting line endings on checkout is a change of the bytes the tests are read from.
#[test]
fn line_endings_through_git_are_seen() {
    let dir = tree(&[("a_test.go", "package a\n"), ("a.go", "package a\n")]);
    let git = |args: &[&str]| {
        let output = std::process::Command::new("git").arg("-C").arg(dir.path()).args(args).output().unwrap();
        assert!(output.status.success(), "{args:?}: {output:?}");
    };
    git(&["init", "-q"]);
    let contract = contract(&["go test"]);
    // A repository without commits is recorded as it stands.
    let start = protected::take(&RealFs, dir.path(), &contract).unwrap();
    git(&["add", "."]);
    git(&["-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-q", "-m", "a"]);
    git(&["config", "core.autocrlf", "true"]);
    assert!(protected::compare(&RealFs, dir.path(), &contract, &start).unwrap().passed);
    fs::remove_file(dir.path().join("a_test.go")).unwrap();
    git(&["checkout", "-q", "--", "a_test.go"]);
    let tail = protected::compare(&RealFs, dir.path(), &contract, &start).unwrap().tail;
    assert_eq!(tail.as_deref(), Some("a_test.go (modified: contents)"));
}

/// Real sources: every inline test module of this crate is found.
#[test]
fn inline_tests_of_this_crate_are_found() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    let start = protected::take(&RealFs, top, &contract(&["cargo test"])).unwrap();
    let mut sources = vec![top.join("src")];
    let mut seen = 0;
    while let Some(path) = sources.pop() {
        if path.is_dir() {
            sources.extend(fs::read_dir(path).unwrap().map(|e| e.unwrap().path()));
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let rel = path.strip_prefix(top).unwrap().to_str().unwrap();
        let inline = text.matches("\n#[cfg(test)]\nmod ").count();
        let parts = match start.files.get(rel) {
            Some(Entry::Parts { parts, .. }) => parts.keys().filter(|k| k.starts_with("mod ")).count(),
            // A test module in a file of its own counts whole.
            Some(_) => continue,
            None => 0,
        };
        assert!(parts >= inline, "{rel}: {parts} of {inline}");
        seen += inline;
    }
    assert!(seen > 10);
}

/// The checks of a run may stand below the repository's top: a bare `make` is that directory's.
#[test]
fn make_is_read_where_the_checks_run() {
    let dir = tree(&[("app/Makefile", "test:\n\t./run\n"), ("Makefile", "test:\n\t./other\n")]);
    let contract = contract(&["make test"]);
    let start = protected::take_in(&RealFs, dir.path(), &dir.path().join("app"), &contract).unwrap();
    put(dir.path(), "Makefile", "test:\n\ttrue\n");
    assert!(protected::compare(&RealFs, dir.path(), &contract, &start).unwrap().passed);
    put(dir.path(), "app/Makefile", "test:\n\ttrue\n");
    assert!(!protected::compare(&RealFs, dir.path(), &contract, &start).unwrap().passed);
}

/// A record that this version cannot read never verifies.
#[test]
fn a_record_of_another_form_refutes() {
    let dir = tree(&[("a_test.go", "x")]);
    let contract = contract(&["go test"]);
    let mut start = protected::take(&RealFs, dir.path(), &contract).unwrap();
    start.v += 1;
    assert!(!protected::compare(&RealFs, dir.path(), &contract, &start).unwrap().passed);
}

#[test]
fn a_large_tree_is_recorded_quickly() {
    let dir = tempfile::tempdir().unwrap();
    let source = "pub fn a() {}\n".repeat(40) + "#[cfg(test)]\nmod tests { #[test] fn a() { super::a(); } }\n";
    for n in 0..20_000 {
        let name = match n % 4 {
            0 => format!("d{}/src/f{n}.rs", n % 200),
            1 => format!("d{}/src/f{n}.test.ts", n % 200),
            _ => format!("d{}/src/f{n}.txt", n % 200),
        };
        put(dir.path(), &name, &source);
    }
    let contract = contract(&["npm test", "make test"]);
    let begun = std::time::Instant::now();
    let start = protected::take(&RealFs, dir.path(), &contract).unwrap();
    let result = protected::compare(&RealFs, dir.path(), &contract, &start).unwrap();
    println!("20 000 files recorded and compared in {:?}", begun.elapsed());
    assert!(result.passed && start.files.len() == 10_000, "{}", result.detail);
    assert!(begun.elapsed().as_secs() < 20);
}
