//! Processes that want the same run of one state directory at the same moment, on the store itself.

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::Arc,
    time::Instant,
};

use claw_orchestrator::{
    model::RunId,
    store::{Claim, Error, FileStore, NewRun, Options, Store},
    sys::{RealFs, SystemClock},
};
use serde_json::json;

use super::{rounds, say};

/// Processes that race.
const RACERS: usize = 6;
/// Before every answer of a racer, because the test harness prints around it.
const ANSWER: &str = "=> ";

/// One process of those that race. Does what its standard input says, line by line.
#[test]
#[ignore = "a process of its own that other tests start"]
fn racer() {
    let home = std::env::var_os("CLAWO_TEST_RACER").expect("only another test starts a racer");
    let store = open(Path::new(&home));
    let mut held: Option<Box<dyn Claim>> = None;
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let (verb, id) = line.split_once(' ').unwrap_or((&line, ""));
        let run = || RunId::parse(id).unwrap();
        let done = match (verb, held.take()) {
            ("create", _) => store
                .create(NewRun {
                    run_id: run(),
                    spec: json!({ "name": "race" }),
                    events: vec![json!({ "type": "run_created", "pid": std::process::id() })],
                    artifacts: vec![],
                })
                .map(|claim| took(&mut held, claim)),
            ("claim", _) => store.claim(&run()).map(|claim| took(&mut held, claim)),
            ("delete", claim) => {
                held = claim;
                store.delete(&run()).map(|()| "ok".to_owned())
            }
            ("commit", Some(mut claim)) => {
                let done = claim.commit(&[json!({ "type": "log", "pid": std::process::id() })]);
                let shown = done.map(|(seq, _)| format!("ok {seq}"));
                held = Some(claim);
                shown
            }
            ("release", Some(claim)) => claim.release().map(|()| "ok".to_owned()),
            (verb, claim) => panic!("{verb} with {claim:?}"),
        };
        println!("{ANSWER}{}", done.unwrap_or_else(|e| refusal(&e)));
    }
}

fn took(held: &mut Option<Box<dyn Claim>>, claim: Box<dyn Claim>) -> String {
    let epoch = claim.epoch();
    *held = Some(claim);
    format!("ok {epoch}")
}

fn refusal(error: &Error) -> String {
    match error {
        Error::Exists(_) => "exists".to_owned(),
        Error::NotFound(_) => "not_found".to_owned(),
        Error::Owned { pid, .. } => format!("owned {pid}"),
        Error::Superseded { .. } => "superseded".to_owned(),
        other @ (Error::Damaged { .. }
        | Error::Poisoned(_)
        | Error::Newer { .. }
        | Error::TooLarge { .. }
        | Error::LowSpace { .. }
        | Error::Io(_)
        | Error::Malformed { .. }) => format!("error {other}"),
    }
}

/// The store of a home, for a process of its own.
fn open(home: &Path) -> FileStore {
    FileStore::open(Options {
        home: home.to_owned(),
        wf_dir: home.join("wf"),
        fs: Arc::new(RealFs),
        clock: Arc::new(SystemClock),
        instance: format!("racer-{}", std::process::id()),
        host: "here".to_owned(),
        pid: std::process::id(),
        min_free: 0,
    })
    .unwrap()
}

/// A racer and the pipes to it.
struct Racer {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Racer {
    fn start(home: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "survival::stores::racer", "--ignored", "--nocapture"])
            .env("CLAWO_TEST_RACER", home)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, stdin, stdout }
    }

    fn send(&mut self, line: &str) {
        self.stdin.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert!(self.stdout.read_line(&mut line).unwrap() > 0, "a racer ended");
            if let Some((_, answer)) = line.split_once(ANSWER) {
                return answer.trim_end().to_owned();
            }
        }
    }

    fn ask(&mut self, line: &str) -> String {
        self.send(line);
        self.answer()
    }
}

impl Drop for Racer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The same request to all of these at once.
fn all(racers: &mut [Racer], line: &str) -> Vec<String> {
    for racer in racers.iter_mut() {
        racer.send(line);
    }
    racers.iter_mut().map(Racer::answer).collect()
}

/// The one that got it; all others were refused with these words.
fn winner(answers: &[String], got: &str, refused: &dyn Fn(usize) -> Vec<String>, what: &str) -> usize {
    let won: Vec<usize> = (0..answers.len()).filter(|n| answers[*n] == got).collect();
    assert_eq!(won.len(), 1, "{what}: {answers:?}");
    let words = refused(won[0]);
    let right = answers.iter().enumerate().all(|(n, a)| n == won[0] || words.contains(a));
    assert!(right, "{what}: {answers:?}, allowed for the others: {words:?}");
    won[0]
}

/// OF-2, OF-6, P5, P7, P9: for an id, for a run let go of, for a run whose owner was killed, for a run that is being
/// deleted: exactly one of six processes gets it, and the others are told who did.
#[test]
fn one_of_many_processes_gets_a_run() {
    let begun = Instant::now();
    let wanted = rounds("CLAWO_TEST_RACES", 300);
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("home");
    let mut racers: Vec<Racer> = (0..RACERS).map(|_| Racer::start(&home)).collect();
    let (mut races, mut killed, mut superseded, mut round) = (0, 0, 0, 0_usize);
    while races < wanted {
        round += 1;
        let id = format!("race-{round}");
        let owner = |racers: &[Racer], n: usize| vec![format!("owned {}", racers[n].child.id())];

        let answers = all(&mut racers, &format!("create {id}"));
        let creator = winner(&answers, "ok 1", &|_| vec!["exists".to_owned()], &format!("create {id}"));
        assert_eq!(racers[creator].ask("commit"), "ok 2");
        let claim = format!("claim {id}");
        for n in (0..RACERS).filter(|n| *n != creator) {
            assert_eq!(vec![racers[n].ask(&claim)], owner(&racers, creator), "{id} is held");
        }
        match round % 3 {
            0 => {
                racers[creator] = Racer::start(&home);
                killed += 1;
            }
            _ => assert_eq!(racers[creator].ask("release"), "ok"),
        }
        let answers = all(&mut racers, &claim);
        let holder = winner(&answers, "ok 2", &|n| owner(&racers, n), &claim);
        assert_eq!(racers[holder].ask("commit"), "ok 4");
        races += 2;

        if round % 4 == 0 {
            // The holder sleeps, its lock is lost, the id becomes another run: the holder is a stranger there.
            let lock = home.join("wf").join(&id).join("owner.lock");
            std::fs::write(home.join("another"), "").unwrap();
            std::fs::rename(home.join("another"), lock).unwrap();
            let other = (holder + 1) % RACERS;
            assert_eq!(racers[other].ask(&format!("delete {id}")), "ok");
            assert_eq!(racers[other].ask(&format!("create {id}")), "ok 1");
            assert_eq!(racers[holder].ask("commit"), "superseded");
            assert_eq!(racers[holder].ask("commit"), "superseded");
            assert_eq!(racers[other].ask("commit"), "ok 2");
            assert_eq!(lines(&home, &id), 2);
            assert_eq!(racers[holder].ask("release"), "superseded");
            assert_eq!(racers[other].ask("release"), "ok");
            superseded += 1;
        } else {
            assert_eq!(lines(&home, &id), 4);
            assert_eq!(racers[holder].ask("release"), "ok");
        }

        // Half of them want it, half want it gone.
        for (n, racer) in racers.iter_mut().enumerate() {
            racer.send(&format!("{} {id}", ["claim", "delete"][n % 2]));
        }
        let answers: Vec<String> = racers.iter_mut().map(Racer::answer).collect();
        let won: Vec<usize> = (0..RACERS).filter(|n| answers[*n].starts_with("ok")).collect();
        assert_eq!(won.len(), 1, "{id}: {answers:?}");
        let loser = |a: &String| a == "not_found" || a.starts_with("owned ");
        assert!(answers.iter().enumerate().all(|(n, a)| n == won[0] || loser(a)), "{id}: {answers:?}");
        races += 1;
        let there = home.join("wf").join(&id).exists();
        assert_eq!(there, won[0].is_multiple_of(2), "{id}: {answers:?}");
        if there {
            assert_eq!(racers[won[0]].ask("release"), "ok");
        }
    }
    say(&format!(
        "races of {RACERS} processes: {races} with one winner each, {killed} owners killed, {superseded} superseded; {:.0?}",
        begun.elapsed()
    ));
}

/// Lines of a log.
fn lines(home: &Path, id: &str) -> usize {
    std::fs::read_to_string(home.join("wf").join(id).join("events.jsonl")).unwrap().lines().count()
}
