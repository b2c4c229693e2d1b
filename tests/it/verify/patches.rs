//! The patch of a bundle brings the base to exactly what was judged (VF-12).

use super::*;

/// Content of a place as the runtime sees it.
async fn digest(at: &Path) -> String {
    let git = Git { fs: Arc::new(RealFs), program: "git".into() };
    git.open(at).await.unwrap().unwrap().digest().await.unwrap()
}

/// Every kind of change, judged from a directory below the top of a linked worktree, with and without line
/// endings being converted: the digest stays while nothing changes, and base plus patch has it too.
#[tokio::test(flavor = "multi_thread")]
async fn base_and_patch_give_the_judged_tree() {
    for autocrlf in ["false", "true"] {
        let (dir, _) = repo();
        let main = dir.path();
        git(main, &["config", "core.autocrlf", autocrlf]);
        fs::write(main.join("crlf.txt"), "one\r\ntwo\r\n").unwrap();
        fs::write(main.join("script"), "#!/bin/sh\n".replace('\n', if autocrlf == "true" { "\r\n" } else { "\n" }))
            .unwrap();
        fs::write(main.join("data"), [0_u8, 1, 2, 255]).unwrap();
        fs::write(main.join("old name"), "kept as it is\r\n".repeat(9)).unwrap();
        symlink("README", main.join("link")).unwrap();
        git(main, &["add", "-A"]);
        git(main, &["commit", "-qm", "all kinds"]);
        let base = git(main, &["rev-parse", "HEAD"]);
        let side = main.join("../side (2)");
        git(main, &["worktree", "add", "-q", "--detach", side.to_str().unwrap()]);

        fs::write(side.join("crlf.txt"), "one\r\n2\r\n").unwrap();
        fs::set_permissions(side.join("script"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(side.join("data"), [9_u8, 0, 2, 255, 254]).unwrap();
        fs::rename(side.join("old name"), side.join("src/new näme\t1")).unwrap();
        fs::remove_file(side.join("link")).unwrap();
        symlink("crlf.txt", side.join("link")).unwrap();
        fs::remove_file(side.join("README")).unwrap();
        fs::write(side.join("src/empty"), "").unwrap();
        fs::write(side.join("-dash \"q\""), "no line end").unwrap();
        git(&side, &["add", "crlf.txt"]);

        let mut asked = request(&side.join("src"), &json!([{ "type": "diff_policy", "requirePaths": ["empty"] }]));
        asked.baseline = Baseline { base_sha: Some(base.clone()), in_git: true, ..Baseline::default() };
        let verified = verifier().run(asked).await.unwrap();
        let bundle = &verified.bundle;
        assert!(bundle.passed && bundle.notes.is_empty(), "{bundle:#?}");
        let judged = bundle.tree_digest.clone().unwrap();
        assert_eq!(digest(&side).await, judged, "nothing changed since");

        let clone = main.join("../clone");
        git(main, &["clone", "-q", "-c", &format!("core.autocrlf={autocrlf}"), ".", clone.to_str().unwrap()]);
        git(&clone, &["checkout", "-q", "--detach", &base]);
        fs::write(clone.join("../patch"), file(&verified, "diff.patch")).unwrap();
        git(&clone, &["apply", "../patch"]);
        let diff = Command::new("diff")
            .args(["-r", "--no-dereference", "-x", ".git"])
            .arg(&side)
            .arg(&clone)
            .output()
            .unwrap();
        assert!(diff.status.success(), "autocrlf {autocrlf}: {}", String::from_utf8_lossy(&diff.stdout));
        assert_eq!(digest(&clone).await, judged, "autocrlf {autocrlf}");
    }
}

/// What is too large for a patch is judged all the same, and the bundle says that the patch lacks it.
#[tokio::test(flavor = "multi_thread")]
async fn a_patch_that_lacks_something_says_so() {
    let (dir, baseline) = repo();
    let large = fs::File::create(dir.path().join("large")).unwrap();
    large.set_len(51 << 20).unwrap();
    fs::write(dir.path().join("small"), "s\n").unwrap();
    let mut asked = request(dir.path(), &json!([{ "type": "diff_policy", "forbidPaths": ["large"] }]));
    asked.baseline = baseline;
    let verified = verifier().run(asked).await.unwrap();
    let bundle = &verified.bundle;
    assert!(!bundle.passed && bundle.results[0].detail.contains("1 forbidden paths changed: large"), "{bundle:#?}");
    assert_eq!(bundle.changed_files, ["large", "small"]);
    assert!(bundle.notes.iter().any(|n| n.ends_with("1 left out: large")), "{:?}", bundle.notes);
    assert!(text(&verified, "diff.patch").contains("b/small"));
}

/// A secret is taken out of the patch before the manifest is made, and the bundle says so.
#[tokio::test(flavor = "multi_thread")]
async fn a_redacted_patch_keeps_its_manifest() {
    let (dir, baseline) = repo();
    fs::write(dir.path().join("leak"), "k = token-canary-77b1\n").unwrap();
    let mut asked = request(dir.path(), &json!([sh("echo token-canary-77b1")]));
    asked.baseline = baseline;
    let verified = verifier().run(asked).await.unwrap();
    assert!(!text(&verified, "diff.patch").contains("canary") && text(&verified, "diff.patch").contains("[redacted]"));
    assert_eq!(evidence::check_manifest(&verified.files), Vec::<String>::new());
    assert!(verified.bundle.notes.iter().any(|n| n.contains("does not apply")), "{:?}", verified.bundle.notes);
}
