//! Commits made from commits, and what is read out of them (MG-9).

use super::*;
use claw_orchestrator::git::Difference;

/// A difference in a short form.
fn line(difference: &Difference) -> String {
    let kind = match difference.kind {
        ChangeKind::Created => "A",
        ChangeKind::Modified => "M",
        ChangeKind::Deleted => "D",
        ChangeKind::Renamed => "R",
    };
    let old = difference.old_path.as_deref().map(|old| format!("{old}>")).unwrap_or_default();
    let (blob, old_blob) = (difference.blob.is_some(), difference.old_blob.is_some());
    assert_eq!((blob, old_blob), (kind != "D", kind != "A"));
    let binary = if difference.binary { " bin" } else { "" };
    format!("{kind} {old}{} +{} -{}{binary}", difference.path, difference.insertions, difference.deletions)
}

#[tokio::test]
async fn every_kind_of_difference_is_counted() {
    let world = World::new();
    world.write("moved", "1\n2\n3\n4\n5\n6\n7\n8\n");
    world.write("script", "s\n");
    world.write("gone", "1\n2\n");
    world.write("pic", b"\0\x01\x02");
    let from = world.commit("before");
    world.run(["mv", "moved", "dir moved"]);
    std::fs::remove_file(world.file("gone")).unwrap();
    chmod(&world.file("script"), 0o755);
    world.write("pic", b"\0\x03");
    world.write("empty", "");
    world.write("a.txt", "one\n2\nthree\nfour\n");
    world.write("é \"q\"\t", "x\n");
    // Not even an attribute makes a text a binary.
    world.write(".gitattributes", "*.txt binary\n");
    std::os::unix::fs::symlink("a.txt", world.file("link")).unwrap();
    let to = world.commit("after");
    let differences = world.repo().await.differences(&from, &to).await.unwrap();
    let lines: Vec<_> = differences.iter().map(line).collect();
    assert_eq!(
        lines,
        [
            "A .gitattributes +1 -0",
            "M a.txt +2 -1",
            "R moved>dir moved +0 -0",
            "A empty +0 -0",
            "D gone +0 -2",
            "A link +1 -0",
            "M pic +1 -0 bin",
            "M script +0 -0",
            "A é \"q\"\t +1 -0"
        ]
    );
    assert_eq!(differences[1].blob.as_deref(), Some(world.run(["rev-parse", "HEAD:a.txt"]).as_str()));
    assert!(world.repo().await.differences(&to, &to).await.unwrap().is_empty());
}

#[tokio::test]
async fn files_of_a_commit_are_read_whole_or_not_at_all() {
    let world = World::new();
    world.write("dir/é \"q\"", b"\xff\r\n");
    let commit = world.commit("c");
    let repo = world.repo().await;
    assert_eq!(repo.show(&commit, "dir/é \"q\"", 100).await.unwrap(), Some(b"\xff\r\n".to_vec()));
    for none in ["dir", "none", "", "./a.txt", "../a.txt", "/a.txt", "src/b.txt/x"] {
        assert_eq!(repo.show(&commit, none, 100).await.unwrap(), None, "{none}");
    }
    assert!(repo.show(&commit, "a.txt", 13).await.is_err());
    assert_eq!(repo.show(&commit, "a.txt", 14).await.unwrap().map(|bytes| bytes.len()), Some(14));
    assert!(repo.show("none", "a.txt", 13).await.is_err());
}

#[tokio::test]
async fn files_are_written_and_removed_without_a_working_tree() {
    let world = World::lived_in();
    chmod(&world.file("src/b.txt"), 0o755);
    std::os::unix::fs::symlink("a.txt", world.file("link")).unwrap();
    let parent = commit_in(&world.path, &[]);
    world.write("a.txt", "the user's work");
    let before = world.kept();
    let repo = world.repo().await;
    let files = [
        ("src/b.txt".to_owned(), Some(b"new\r\n".to_vec())),
        ("text.txt".to_owned(), None),
        ("never.txt".to_owned(), None),
        ("link".to_owned(), Some(b"no link\n".to_vec())),
        ("new dir/\"n\"".to_owned(), Some(b"n".to_vec())),
        // A directory in the place of a file.
        ("a.txt".to_owned(), None),
        ("a.txt/below".to_owned(), Some(b"b".to_vec())),
    ];
    let commit = repo.commit_files(&parent, &files, "plan\n\n# kept\n").await.unwrap();
    assert_eq!(
        world.run(["ls-tree", "-r", "--format=%(objectmode) %(path)", &commit]),
        "100644 .gitignore\n100644 a.txt/below\n100644 link\n100644 \"new dir/\\\"n\\\"\"\n100755 src/b.txt"
    );
    assert_eq!(repo.show(&commit, "src/b.txt", 9).await.unwrap(), Some(b"new\r\n".to_vec()));
    assert_eq!(
        world.run(["log", "-1", "--format=%an <%ae> %cn|%P|%B", &commit]),
        format!("clawo runtime <runtime@clawo.invalid> clawo runtime|{parent}|plan\n\n# kept")
    );
    // Nothing to change makes no commit.
    let same = [("a.txt/below".to_owned(), Some(b"b".to_vec()))];
    assert_eq!(repo.commit_files(&commit, &same, "m").await.unwrap(), commit);
    for bad in ["../x", ".git/x", "a/.GIT/x", "", "/x", "x/", "a//b"] {
        let refused = repo.commit_files(&commit, &[(bad.to_owned(), Some(b"b".to_vec()))], "m").await;
        assert!(refused.is_err(), "{bad}");
    }

    let paths: Vec<String> =
        ["src/b.txt", "text.txt", "a.txt", "a.txt/below", "none"].iter().map(|path| (*path).to_owned()).collect();
    let restored = repo.restore_from(&commit, &parent, &paths, "back").await.unwrap();
    let left = repo.differences(&parent, &restored).await.unwrap();
    assert_eq!(left.iter().map(|d| d.path.as_str()).collect::<Vec<_>>(), ["link", "new dir/\"n\""]);
    assert_eq!(repo.restore_from(&restored, &parent, &["none".to_owned()], "m").await.unwrap(), restored);
    assert_eq!(world.kept(), before);
}

#[tokio::test]
async fn conflicts_are_shown_with_what_is_around_them() {
    let world = World::lived_in();
    let base = world.run(["rev-parse", "HEAD"]);
    let (a, b) = (world.member("A").await, world.member("B").await);
    let ours = commit_in(a.top(), &[("text.txt", "1\n2\n3\n4\nfünf\n6\n7\n8\n9\n"), ("both", "a\n"), ("pic", "\0a")]);
    std::fs::remove_file(b.top().join("a.txt")).unwrap();
    let theirs = commit_in(b.top(), &[("text.txt", "1\n2\n3\n4\ncinq\n6\n7\n8\n9\n"), ("both", "b\n"), ("pic", "\0b")]);
    let repo = world.repo().await;
    let paths: Vec<String> = ["text.txt", "both", "pic", "a.txt"].iter().map(|path| (*path).to_owned()).collect();
    let text = repo.hunks(&ours, &theirs, &paths, 8 << 10).await.unwrap();
    assert_eq!(
        text,
        "--- text.txt\n@@ line 2 @@\n2\n3\n4\n<<<<<<< ours\nfünf\n=======\ncinq\n>>>>>>> theirs\n6\n7\n8\n\
         --- both\n@@ line 1 @@\n<<<<<<< ours\na\n=======\nb\n>>>>>>> theirs\n\
         --- pic\n(not text; both sides changed it)\n\
         --- a.txt\n(changed on our side, deleted on theirs)\n"
    );
    // Cut between characters.
    let cut = text.find('ü').unwrap() + 1;
    assert_eq!(repo.hunks(&ours, &theirs, &paths, cut).await.unwrap(), text[..cut - 1]);
    let same = repo.hunks(&ours, &base, &["text.txt".to_owned()], 999).await.unwrap();
    assert!(same.contains("goes together"), "{same}");
}
