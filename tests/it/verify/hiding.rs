//! Work that was put out of git's sight is judged and told all the same (VT-8).

use super::*;

/// Index flags on a test, new ignore rules, a nested repository, a commit that was taken back.
#[tokio::test(flavor = "multi_thread")]
async fn hidden_work_is_refuted_and_told() {
    let (dir, mut baseline) = repo();
    let at = dir.path();
    fs::create_dir(at.join("tests")).unwrap();
    for name in ["one.sh", "two.sh"] {
        fs::write(at.join("tests").join(name), "test -f fixed\n").unwrap();
    }
    git(at, &["add", "-A"]);
    git(at, &["commit", "-qm", "tests"]);
    baseline.base_sha = Some(git(at, &["rev-parse", "HEAD"]));
    let found = Git { fs: Arc::new(RealFs), program: "git".into() }.open(at).await.unwrap().unwrap();
    baseline.snapshot = Some(found.snapshot("refs/clawo/runs/r/start", "start").await.unwrap().commit);
    let command = json!({ "type": "command", "cmd": "true" });
    let mut asked = request(
        at,
        &json!([command, { "type": "diff_policy", "forbidPaths": ["secret"] }, { "type": "diff_policy", "forbidPaths": ["inner"] }]),
    );
    asked.baseline = baseline;
    asked.protected = Some(protected::take(&RealFs, at, &asked.contract).unwrap());

    git(at, &["update-index", "--assume-unchanged", "tests/one.sh"]);
    git(at, &["update-index", "--skip-worktree", "tests/two.sh"]);
    for name in ["one.sh", "two.sh"] {
        fs::write(at.join("tests").join(name), "true\n").unwrap();
    }
    fs::create_dir(at.join("secret")).unwrap();
    fs::write(at.join("secret/é"), "hidden").unwrap();
    fs::write(at.join(".git/info/exclude"), "secret/\n").unwrap();
    fs::create_dir(at.join("inner")).unwrap();
    git(&at.join("inner"), &["init", "-q"]);
    fs::write(at.join("inner/file"), "hidden").unwrap();
    git(&at.join("inner"), &["add", "-A"]);
    git(&at.join("inner"), &["commit", "-qm", "inner"]);
    fs::write(at.join("README"), "leaked\n").unwrap();
    git(at, &["commit", "-qm", "leak", "README"]);
    git(at, &["revert", "--no-edit", "HEAD"]);

    let bundle = verifier().run(asked).await.unwrap().bundle;
    let [tests, command, secret, inner] = bundle.results.as_slice() else { panic!("{:#?}", bundle.results) };
    assert!(command.passed && !bundle.passed, "{bundle:#?}");
    assert!(tests.required && !tests.passed, "{tests:#?}");
    let told = format!("{} {:?}", tests.detail, tests.tail);
    assert!(told.contains("tests/one.sh") && told.contains("tests/two.sh"), "{tests:#?}");
    assert!(!secret.passed && secret.detail.contains("secret/é"), "{secret:#?}");
    assert!(!inner.passed && inner.detail.contains("inner"), "{inner:#?}");
    for path in ["secret/é", "tests/one.sh", "tests/two.sh"] {
        assert!(bundle.changed_files.iter().any(|f| f == path), "{path}: {:?}", bundle.changed_files);
    }
    assert!(bundle.changed_files.iter().any(|f| f.starts_with("inner")), "{:?}", bundle.changed_files);
    assert!(!bundle.changed_files.iter().any(|f| f == "README"));
    let note = bundle.notes.iter().find(|n| n.contains("now as before")).unwrap_or_else(|| panic!("{bundle:#?}"));
    assert!(note.ends_with("now as before: README"), "{note}");
}

/// VF-4: without a git that answers nothing is judged by guesswork: the bounds and the tests are red.
#[tokio::test(flavor = "multi_thread")]
async fn a_git_that_cannot_be_asked_passes_nothing() {
    let (dir, baseline) = repo();
    let at = dir.path();
    fs::create_dir(at.join("tests")).unwrap();
    fs::write(at.join("tests/a.sh"), "true\n").unwrap();
    let broken = at.join("../broken git");
    fs::write(&broken, "#!/bin/sh\necho 'fatal: unable to read tree' >&2\nexit 128\n").unwrap();
    fs::set_permissions(&broken, fs::Permissions::from_mode(0o755)).unwrap();
    for program in [at.join("../no git"), broken] {
        let checks = json!([{ "type": "command", "cmd": "true" }, { "type": "diff_policy", "maxFiles": 100 }]);
        let mut asked = request(at, &checks);
        asked.baseline = baseline.clone();
        asked.protected = Some(protected::take(&RealFs, at, &asked.contract).unwrap());
        let mut verifier = verifier();
        verifier.git.program = program.clone();
        let bundle = verifier.run(asked).await.unwrap().bundle;
        let policy = bundle.results.iter().find(|r| r.kind == "diff_policy").unwrap();
        assert!(!policy.passed && policy.required, "{}: {bundle:#?}", program.display());
        assert!(!bundle.passed);
    }
    // The same where there never was a repository.
    let plain = tempfile::tempdir().unwrap();
    let result = one(plain.path(), json!({ "type": "diff_policy", "maxFiles": 100 })).await;
    assert!(!result.passed && result.detail.contains("not a git repository"), "{result:#?}");
}
