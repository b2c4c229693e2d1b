//! The durable store on a real file system: artifacts, labels, leftovers, long logs, retention.

use std::{fs, os::unix::fs::symlink};

use claw_orchestrator::store::{Error, GcOptions, NewRun, Standing, Store};
use claw_orchestrator::{model::Time, store::Claim};
use serde_json::json;

use crate::store::{Home, commit, finished, fold, id, new_run, upto};

#[test]
fn artifacts_are_hashed_whole_and_stay_inside_the_run() {
    let home = Home::new();
    let store = home.open();
    let with = NewRun { artifacts: vec![("nodes/base.json".to_owned(), b"{}".to_vec())], ..new_run("a") };
    let mut claim = store.create(with).unwrap();
    assert_eq!(store.read_artifact(&id("a"), "nodes/base.json", 0, 9).unwrap(), b"{}");
    let named = claim.put_artifact("nodes/n/v1a1/out.txt", b"hello").unwrap();
    assert_eq!((named.path.as_str(), named.bytes), ("nodes/n/v1a1/out.txt", 5));
    assert_eq!(named.sha256, "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824");
    assert_eq!(store.read_artifact(&id("a"), &named.path, 1, 3).unwrap(), b"ell");
    claim.put_artifact("nodes/n/v1a1/out.txt", b"again").unwrap();
    assert_eq!(store.read_artifact(&id("a"), &named.path, 0, 99).unwrap(), b"again");

    let many: Vec<(String, Vec<u8>)> = (0..200).map(|i| (format!("d{}/f{i:03}.log", i % 7), vec![b'x'; i])).collect();
    for _ in 0..2 {
        claim.put_directory("evidence/verify-v01-01", &many).unwrap();
        assert_eq!(store.list_artifacts(&id("a"), "evidence/verify-v01-01").unwrap().len(), 7);
        assert_eq!(store.list_artifacts(&id("a"), "evidence/verify-v01-01/d0").unwrap()[1], "f007.log");
    }
    assert_eq!(store.list_artifacts(&id("a"), "evidence").unwrap(), ["verify-v01-01"]);
    assert_eq!(store.list_artifacts(&id("a"), "evidence/none").unwrap(), [""; 0]);
    // A file that cannot be named leaves no half of the directory.
    let bad = vec![("ok".to_owned(), vec![]), ("../../b".to_owned(), vec![])];
    assert!(matches!(claim.put_directory("evidence/half", &bad), Err(Error::Malformed { .. })));
    assert_eq!(store.list_artifacts(&id("a"), "evidence").unwrap(), ["verify-v01-01"]);

    let secret = home.run("a").parent().unwrap().join("secret");
    fs::write(&secret, "s").unwrap();
    symlink(&secret, home.run("a").join("nodes/link")).unwrap();
    symlink(home.wf(), home.run("a").join("nodes/up")).unwrap();
    for path in
        ["../secret", "/etc/passwd", "nodes/../../secret", "nodes/link", "nodes/up/secret", "a\0b", "", "spec.json"]
    {
        assert!(store.read_artifact(&id("a"), path, 0, 9).is_err(), "{path:?}");
        assert!(store.list_artifacts(&id("a"), path).is_err(), "{path:?}");
    }
    for path in ["../x", "/x", "nodes/up/x", "events.jsonl", "owner.lock", "inbox/x", ".tmp/x"] {
        assert!(claim.put_artifact(path, b"x").is_err(), "{path:?}");
        assert!(claim.put_directory(path, &many).is_err(), "{path:?}");
    }
    commit_still_works(claim.as_mut());
    assert!(matches!(store.read_artifact(&id("b"), "x", 0, 1), Err(Error::NotFound(_))));
}

/// A refused path is the caller's mistake and does not cost the handle, except where a link had to be met.
fn commit_still_works(claim: &mut dyn Claim) {
    match commit(claim, 1) {
        Ok(_) | Err(Error::Poisoned(_)) => {}
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn labelled_evidence_is_numbered_and_never_mixed_up_with_runs() {
    let home = Home::new();
    let store = home.open();
    let bundle = |id: &str| vec![("bundle.json".to_owned(), format!("\"{id}\"").into_bytes())];
    let names: Vec<String> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..6)
            .map(|_| scope.spawn(|| home.open().put_labelled(&id("nightly"), &mut |n| bundle(n)).unwrap()))
            .collect();
        all.into_iter().map(|t| t.join().unwrap()).collect()
    });
    let mut sorted = names;
    sorted.sort();
    assert_eq!(sorted, ["verify-01", "verify-02", "verify-03", "verify-04", "verify-05", "verify-06"]);
    assert_eq!(store.list_artifacts(&id("nightly"), "evidence").unwrap(), sorted);
    assert_eq!(store.read_artifact(&id("nightly"), "evidence/verify-04/bundle.json", 0, 99).unwrap(), b"\"verify-04\"");
    assert!(store.list().unwrap().is_empty());
    assert!(matches!(store.load(&id("nightly")), Err(Error::NotFound(_))));
    assert!(matches!(store.claim(&id("nightly")), Err(Error::NotFound(_))));
    assert!(matches!(store.create(new_run("nightly")), Err(Error::Exists(_))));
    finished(&store, "real", 1);
    assert!(matches!(store.put_labelled(&id("real"), &mut |n| bundle(n)), Err(Error::Exists(_))));
}

/// Half-made and half-removed runs of dead processes go at the next start, those of live ones stay.
#[test]
fn leftovers_of_dead_processes_are_cleared() {
    let home = Home::new();
    let alive = home.open();
    let staging = home.wf().join(".staging");
    let lock = fs::read_dir(&staging).unwrap().next().unwrap().unwrap().file_name().into_string().unwrap();
    let token = lock.strip_suffix(".lock").unwrap().to_owned();
    for name in [format!("{token}.1"), "dead-1.2".to_owned(), "dead-2.3".to_owned()] {
        fs::create_dir_all(staging.join(&name).join("nodes")).unwrap();
        fs::write(staging.join(&name).join("nodes/x"), "x").unwrap();
        fs::create_dir_all(home.wf().join(".trash").join(&name).join("deep/er")).unwrap();
    }
    fs::write(staging.join("dead-1.lock"), "").unwrap();
    let other = home.open();
    let left = |dir: &str| -> Vec<String> {
        let names = fs::read_dir(home.wf().join(dir)).unwrap();
        names.map(|e| e.unwrap().file_name().into_string().unwrap()).filter(|n| !n.ends_with(".lock")).collect()
    };
    assert_eq!((left(".staging"), left(".trash")), (vec![format!("{token}.1")], vec![format!("{token}.1")]));
    drop((alive, other));
    let _last = home.open();
    assert!(left(".staging").is_empty() && left(".trash").is_empty());
    assert_eq!(fs::read_dir(&staging).unwrap().count(), 1, "locks of the dead are gone as well");
}

/// With a good checkpoint a reader parses the tail alone, and the log can be followed from any place.
#[test]
fn a_long_log_is_read_from_its_end() {
    let home = Home::new();
    let store = home.open();
    let mut claim = store.create(new_run("a")).unwrap();
    let pad = "x".repeat(400);
    for n in 1..=500 {
        claim.commit(&[json!({ "type": "log", "n": n, "pad": pad })]).unwrap();
        claim.checkpoint(&json!(upto(n)).to_string());
    }
    let loaded = home.open().load(&id("a")).unwrap();
    assert_eq!((loaded.checkpoint.unwrap().0, loaded.lines.len()), (501, 0));
    drop(claim);
    let mut claim = store.claim(&id("a")).unwrap();
    for store in [&store, &home.open()] {
        let loaded = store.load(&id("a")).unwrap();
        assert_eq!((loaded.checkpoint.unwrap().0, loaded.lines.len()), (501, 1), "the fence follows the checkpoint");
    }
    commit(claim.as_mut(), 501).unwrap();
    for store in [&store, &home.open()] {
        for _ in 0..2 {
            assert_eq!(fold(store, "a").unwrap(), upto(501));
            let seqs =
                |after, limit| store.lines(&id("a"), after, limit).unwrap().iter().map(|l| l.seq).collect::<Vec<_>>();
            assert_eq!(seqs(500, 1000), [501, 502, 503]);
            assert_eq!(seqs(0, 3), [501, 502, 503]);
            assert_eq!(seqs(503, 3), [0; 0]);
            assert_eq!(seqs(100, 1000), (101..=503).collect::<Vec<_>>());
            assert_eq!(seqs(0, 10_000), (1..=503).collect::<Vec<_>>());
        }
    }
    let huge = json!({ "type": "log", "text": "x".repeat(300_000) });
    assert!(matches!(claim.commit(&[huge]), Err(Error::TooLarge { .. })));
    commit(claim.as_mut(), 502).unwrap();
    assert_eq!(fold(&store, "a").unwrap(), upto(502), "a batch that is too large changes nothing");
}

#[test]
fn listing_is_newest_first_and_stamps_follow_changes() {
    let home = Home::new();
    let store = home.open();
    for run in ["z", "m", "a"] {
        finished(&store, run, 0);
        std::thread::sleep(std::time::Duration::from_millis(3));
    }
    fs::write(home.wf().join("stray"), "x").unwrap();
    let names = || {
        let stamp = |run| store.stamp(run).unwrap().unwrap();
        store.list().unwrap().iter().map(|l| (l.run_id.to_string(), stamp(&l.run_id))).collect::<Vec<_>>()
    };
    let before = names();
    assert_eq!(before.iter().map(|(n, _)| n.as_str()).collect::<Vec<_>>(), ["a", "m", "z"]);
    assert_eq!(names(), before);
    let other = home.open();
    let mut claim = other.claim(&id("m")).unwrap();
    let claimed = names();
    commit(claim.as_mut(), 1).unwrap();
    let committed = names();
    assert_eq!((&before[0], &before[2]), (&committed[0], &committed[2]));
    assert!(before[1].1 != claimed[1].1 && claimed[1].1 != committed[1].1);
    store.delete(&id("z")).unwrap();
    finished(&store, "z", 0);
    let again = names();
    assert_eq!(again[0].0, "z", "made anew, so it is the newest");
    assert_ne!(again[0].1, before[2].1);
}

/// Retention names ended runs only, and deletes nothing by itself.
#[test]
fn a_plan_to_clear_spares_what_is_live_or_parked() {
    let home = Home::new();
    let store = home.open();
    for run in ["a", "b", "c", "d", "parked", "live"] {
        finished(&store, run, 1);
        std::thread::sleep(std::time::Duration::from_millis(3));
    }
    let _live = home.open().claim(&id("live")).unwrap();
    let now = Time::new(jiff::Timestamp::now());
    let mut standing = |run: &claw_orchestrator::model::RunId| match run.as_str() {
        "parked" => Standing::Kept,
        "live" => panic!("a live run is not asked about"),
        "b" => Standing::Ended { state: "failed".to_owned(), at: now.plus_millis(-1000) },
        _ => Standing::Ended { state: "completed".to_owned(), at: now.plus_millis(-100_000) },
    };
    let mut plan = |older_than_ms, keep, states: &[&str]| {
        let states = states.iter().map(|s| (*s).to_owned()).collect();
        let options = GcOptions { older_than_ms, keep, states };
        store.plan_gc(&options, &mut standing).unwrap().into_iter().map(|i| i.run_id.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(plan(None, None, &[]), [""; 0]);
    assert_eq!(plan(Some(50_000), None, &[]), ["a", "c", "d"]);
    assert_eq!(plan(Some(0), None, &["failed"]), ["b"]);
    assert_eq!(plan(None, Some(1), &[]), ["a", "b", "c"]);
    assert_eq!(plan(Some(50_000), Some(2), &[]), ["a"]);
    assert_eq!(store.list().unwrap().len(), 6);
}

/// DS-2: nothing new is begun when space is short, and what is there goes on.
#[test]
fn short_space_refuses_new_runs_only() {
    let home = Home::new();
    finished(&home.open(), "a", 1);
    let mut options = home.options();
    options.min_free = u64::MAX / 2;
    let full = claw_orchestrator::store::FileStore::open(options).unwrap();
    assert!(matches!(full.create(new_run("b")), Err(Error::LowSpace { .. })));
    assert!(!full.exists(&id("b")).unwrap());
    let mut claim = full.claim(&id("a")).unwrap();
    commit(claim.as_mut(), 2).unwrap();
    assert_eq!(fs::metadata(home.run("a").parent().unwrap().parent().unwrap().join("reserve")).unwrap().len(), 1 << 20);
}
