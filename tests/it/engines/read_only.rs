//! Agents that must not write, and do: reported, undone, and the user's directory stays what it is.

use std::{
    collections::BTreeMap,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use claw_orchestrator::{
    engines::{ErrorClass, PooledSession, SessionSpec},
    model::spec::SandboxMode,
    sys::supervise::can_confine,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::support::{Bench, class, message, open, say};
use crate::support::git;

/// Everything below a directory: kinds, modes, contents, links.
fn bytes(dir: &Path) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
    let (mut found, mut pending) = (BTreeMap::new(), vec![dir.to_path_buf()]);
    while let Some(at) = pending.pop() {
        for entry in std::fs::read_dir(&at).unwrap().map(Result::unwrap) {
            let (path, meta) = (entry.path(), entry.metadata().unwrap());
            let content = if meta.is_dir() {
                pending.push(path.clone());
                Vec::new()
            } else if meta.is_symlink() {
                std::fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes()
            } else {
                std::fs::read(&path).unwrap()
            };
            found.insert(path.strip_prefix(dir).unwrap().to_path_buf(), (meta.permissions().mode(), content));
        }
    }
    found
}

/// A project with tracked, changed and untracked files, a program and a link that leads back to it by its full path.
fn project(bench: &Bench, repository: bool) {
    let repo = bench.repo();
    let put = |name: &str, text: &str| std::fs::write(repo.join(name), text).unwrap();
    std::fs::create_dir(repo.join("src")).unwrap();
    put("src/main", "first\n");
    put("tool", "#!/bin/sh\n");
    std::fs::set_permissions(repo.join("tool"), PermissionsExt::from_mode(0o755)).unwrap();
    std::os::unix::fs::symlink(repo.join("src"), repo.join("way-out")).unwrap();
    if repository {
        put(".gitignore", "ignored\n");
        git(&repo, &["init", "-q", "-b", "main"]);
        git(&repo, &["add", "-A"]);
        git(&repo, &["-c", "user.name=T", "-c", "user.email=t@example.invalid", "commit", "-q", "-m", "first"]);
        put("ignored", "private\n");
    }
    put("src/main", "changed\n");
    put("new file", "untracked\n");
}

fn spec(bench: &Bench, model: &str) -> SessionSpec {
    let mut spec = bench.spec(model);
    spec.options.sandbox = Some(SandboxMode::ReadOnly);
    spec
}

fn sh(script: &str) -> Value {
    json!({ "run": ["sh", "-c", script] })
}

/// A scenario without a record of its prompts, which a confined agent could not write.
fn scenario(bench: &Bench, turns: &[Value]) -> String {
    let path = bench.path("scenario.json");
    let turns: Vec<Value> = turns.iter().map(|steps| json!({ "steps": steps })).collect();
    std::fs::write(&path, json!({ "turns": turns }).to_string()).unwrap();
    path.to_string_lossy().into_owned()
}

async fn turns(session: &mut PooledSession, repo: &Path, violations: &[&[&str]]) {
    let before = bytes(repo);
    for (index, expected) in violations.iter().enumerate() {
        let outcome = say(session, "look around").await;
        assert_eq!(outcome.read_only_violations, *expected, "turn {index}: {outcome:?}");
        if expected.is_empty() {
            assert!(outcome.ok, "turn {index}: {outcome:?}");
        } else {
            assert_eq!(class(&outcome), Some(ErrorClass::PermissionDenied), "turn {index}");
            let text = message(&outcome);
            assert!(text.contains("read_only_violated") && text.contains(expected[0]), "{text}");
        }
        assert_eq!(bytes(repo), before, "turn {index}");
    }
}

/// EN-3, scenario 12: an agent that must not write does so itself, through a shell, a program that outlives its
/// parent in a session of its own, a commit, a deletion. Every time it is told on, its copy is put back, so that the
/// next turn begins clean, and not a byte of the user's directory changes. Reading sees everything.
#[tokio::test]
async fn writes_are_reported_and_undone() {
    for repository in [true, false] {
        let bench = Bench::new();
        project(&bench, repository);
        let look = sh("cat src/main 'new file' && test -x tool && test -L way-out && test ! -e direct");
        let spawned = json!({ "spawn": { "argv": ["sh", "-c", "echo x > spawned; touch done"], "detach": true, "newSession": true } });
        let commit = "git -c user.name=A -c user.email=a@b commit -qam mine";
        let mut acts = vec![
            json!([look, { "say": "seen" }]),
            json!([{ "write": { "path": "direct", "content": "x" } }, { "say": "done" }]),
            json!([look, sh("echo x >> src/main; mkdir -p deep/er; echo y > deep/er/file"), { "say": "done" }]),
            json!([look, spawned, sh("while ! test -e done; do sleep 0.05; done"), { "say": "done" }]),
            json!([look, sh("rm -r src tool; ln -s /etc src"), { "say": "done" }]),
        ];
        let gone: &[&str] = &["src", "src/main", "tool"];
        let mut expected: Vec<&[&str]> =
            vec![&[], &["direct"], &["deep/er/file", "src/main"], &["done", "spawned"], gone];
        if repository {
            acts.push(json!([look, sh(commit), { "say": "done" }]));
            expected.push(&[".git/HEAD"]);
        }
        acts.push(json!([look, { "say": "seen" }]));
        expected.push(&[]);
        let pool = bench.isolating_pool(1, true);
        let mut session = open(&pool, spec(&bench, &scenario(&bench, &acts))).await;
        turns(&mut session, &bench.repo(), &expected).await;
        assert_eq!(session.close().await, Vec::<String>::new());
        let left: Vec<_> =
            std::fs::read_dir(bench.path("home/read-only")).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert!(left.iter().all(|name| name.to_string_lossy().ends_with(".lock")), "{left:?}");
    }
}

/// EN-3, scenario 12: writes by absolute path and through a link that leads out of the copy. Where the kernel can, they
/// fail; where it cannot they are at least told, and left alone, since they cannot be told from the user's own.
#[tokio::test]
async fn writes_outside_the_copy() {
    let bench = Bench::new();
    project(&bench, true);
    let out = bench.repo().join("absolute").display().to_string();
    let acts = [
        json!([sh(&format!("echo x > '{out}' && exit 1; true")), { "say": "tried" }]),
        json!([sh("echo x > way-out/linked && exit 1; true"), { "say": "tried" }]),
        json!([{ "spawn": { "argv": ["sh", "-c", format!("echo x > '{out}'")], "detach": true, "newSession": true } }, { "sleep": 300 }, { "say": "tried" }]),
    ];
    if can_confine() {
        let mut session = open(&bench.isolating_pool(1, true), spec(&bench, &scenario(&bench, &acts))).await;
        assert_eq!(session.warnings(), Vec::<String>::new());
        turns(&mut session, &bench.repo(), &[&[], &[], &[]]).await;
        session.close().await;
    } else {
        println!("skipped: this kernel has no Landlock, so that only the half without it was tested");
    }
    let acts = [
        json!([sh(&format!("echo x > '{out}'")), { "say": "done" }]),
        json!([sh("echo x > way-out/linked"), { "say": "done" }]),
        json!([{ "say": "nothing" }]),
    ];
    let mut session = open(&bench.isolating_pool(1, false), spec(&bench, &scenario(&bench, &acts))).await;
    assert!(session.warnings()[0].contains("cannot keep programs from writing"), "{:?}", session.warnings());
    let linked = bench.repo().join("src/linked").display().to_string();
    for expected in [vec![out.clone()], vec![linked], Vec::new()] {
        let outcome = say(&mut session, "go").await;
        assert_eq!(outcome.read_only_violations, expected, "{outcome:?}");
        assert_eq!(outcome.ok, expected.is_empty());
    }
    session.close().await;
}

/// EN-3: a conversation that is gone on with is held as well, at the same place; two of one name never share it.
#[tokio::test]
async fn a_resumed_session_is_held_as_well() {
    let bench = Bench::new();
    project(&bench, true);
    let write = json!([sh("pwd > where"), { "say": "done" }]);
    let pool = bench.isolating_pool(2, true);
    let path = scenario(&bench, &[write.clone(), write]);
    let mut session = open(&pool, spec(&bench, &path)).await;
    turns(&mut session, &bench.repo(), &[&["where"]]).await;
    let twice = pool.open(spec(&bench, &path), CancellationToken::new(), |_| {}).await.unwrap_err().to_string();
    assert!(twice.contains("open already"), "{twice}");
    let id = session.native_id();
    session.close().await;
    let mut again = spec(&bench, &path);
    again.resume = id;
    let mut session = open(&pool, again).await;
    turns(&mut session, &bench.repo(), &[&["where"]]).await;
    session.close().await;
}

/// What cannot be copied within bounds is refused, and so is everything where there is no place at all.
#[tokio::test]
async fn what_cannot_be_held_is_refused() {
    let bench = Bench::new();
    let path = scenario(&bench, &[json!([{ "say": "hi" }])]);
    let refused = async |pool: claw_orchestrator::engines::Pool| {
        pool.open(spec(&bench, &path), CancellationToken::new(), |_| {}).await.unwrap_err().to_string()
    };
    assert!(refused(bench.pool(1)).await.contains("cannot be kept from writing"));
    std::fs::File::create(bench.repo().join("huge")).unwrap().set_len(600 << 20).unwrap();
    let text = refused(bench.isolating_pool(1, true)).await;
    assert!(text.contains("too big") && text.contains("git repository"), "{text}");
}
