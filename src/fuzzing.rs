//! What must hold for any bytes from outside: the entry points of `fuzz/`.
//!
//! Only there for fuzzing and for the tests, which play every corpus and mutations of it through the same
//! functions. Each takes bytes and panics when a property is broken.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a broken property must be loud"
)]

use std::{
    collections::BTreeSet,
    pin::pin,
    task::{Context, Poll, Waker},
};

use serde_json::{Value, json};

use crate::{
    engines::{
        EngineError, ErrorClass, TurnEvent, TurnOutcome,
        lines::{HEAD, Line, LineReader},
        stream_json::{self, Step, StreamJson},
    },
    kernel::spec::{self, Origin},
    model::{Contract, Problem, Time},
    store::properties,
    verify::contract as contracts,
};

/// A field that no document has.
const NOBODYS: &str = "no such field";
/// Longest problem in bytes: what is wrong is shown, not repeated.
const PROBLEM_MAX: usize = 2000;

/// One line of a run's log.
pub fn log_line(data: &[u8]) {
    properties::log_line(data);
}

/// A whole log of a run.
pub fn log(data: &[u8]) {
    properties::log(data);
}

/// A checkpoint.
pub fn checkpoint(data: &[u8]) {
    properties::checkpoint(data);
}

/// A workflow spec: taken whole or refused with every place, and what is stored of it reads back as it was.
pub fn workflow_spec(data: &[u8]) {
    let Ok(value) = serde_json::from_slice::<Value>(data) else { return };
    let cwd = value.get("cwd").is_none().then_some("/project");
    let read = spec::read(&value, "spec", Origin::Caller, cwd, None);
    told(&read.errors, "spec");
    told(&read.warnings, "spec");
    assert_eq!(read.spec.is_some(), read.errors.is_empty(), "either a spec or reasons");
    let Some(first) = read.spec else { return };
    let listed = value["nodes"].as_array().expect("a spec has nodes");
    let ids: Vec<&str> = first.nodes.iter().map(|n| n.id.as_str()).collect();
    let wanted: Vec<&str> = listed.iter().map(|n| n["id"].as_str().unwrap()).collect();
    let (own, added) = ids.split_at(wanted.len());
    assert_eq!(own, wanted, "no node is lost or moved");
    assert!(added.is_empty() || (first.contract.is_some() && added == [crate::model::spec::VERIFY_NODE]));

    let text = spec::write(&first).to_string();
    let stored = spec::read(&serde_json::from_str(&text).unwrap(), "", Origin::Stored, None, None);
    assert_eq!((&stored.errors[..], &stored.warnings[..]), (&[][..], &[][..]), "what is stored is good: {text}");
    let second = stored.spec.unwrap();
    assert_eq!(second, first);
    assert_eq!(spec::write(&second).to_string(), text);

    let mut odd = value.clone();
    odd[NOBODYS] = json!(1);
    odd["nodes"][0][NOBODYS] = json!(1);
    let odd = spec::read(&odd, "spec", Origin::Caller, cwd, None);
    assert!(odd.spec.is_none() && odd.errors.len() == 2, "{:?}", odd.errors);
}

/// A contract: every check that is listed is there afterwards or the whole is refused, and nothing unknown stays.
pub fn contract(data: &[u8]) {
    let Ok(value) = serde_json::from_slice::<Value>(data) else { return };
    let (first, warnings) = match contracts::normalise(&value, "contract") {
        Ok(read) => read,
        Err(problems) => {
            assert!(!problems.is_empty(), "a refusal has a reason");
            return told(&problems, "contract");
        }
    };
    told(&warnings, "contract");
    let listed = value["checks"].as_array().expect("a contract has checks");
    assert_eq!(first.checks.len(), listed.len(), "no check is lost");
    let mut ids = BTreeSet::new();
    for (check, asked) in first.checks.iter().zip(listed) {
        let inner = asked.get("spec").unwrap_or(asked);
        assert_eq!(json!(check.spec.type_name()), inner["type"]);
        assert_eq!(check.required, asked["required"] != json!(false));
        assert!((1..=64).contains(&check.id.len()) && check.id != "protected-tests");
        assert!(check.id.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b)), "{}", check.id);
        assert!(ids.insert(check.id.to_ascii_lowercase()), "'{}' is there twice", check.id);
    }
    assert!(first.checks.iter().any(|c| c.required), "something decides");

    let text = serde_json::to_string(&first).unwrap();
    let again = contracts::normalise(&serde_json::from_str(&text).unwrap(), "contract");
    assert_eq!(again, Ok((first.clone(), Vec::new())), "what was normalised normalises to itself");
    assert_eq!(serde_json::from_str::<Contract>(&text).unwrap(), first);

    let mut odd = value.clone();
    odd[NOBODYS] = json!({ "checks": [] });
    odd["checks"][0][NOBODYS] = json!(1);
    let (same, more) = contracts::normalise(&odd, "contract").expect("unknown fields are no reason to refuse");
    assert_eq!((same, more.len()), (first, warnings.len() + 2), "unknown fields are dropped and told");
}

/// Problems say where and what, in few words.
fn told(problems: &[Problem], base: &str) {
    for problem in problems {
        assert!(problem.path.starts_with(base), "no place: {problem}");
        assert!(!problem.message.is_empty() && problem.to_string().len() <= PROBLEM_MAX, "{problem}");
    }
}

/// What Claude Code prints: each line is an event, an answer or nothing, and no number makes a bill negative.
pub fn claude_lines(data: &[u8]) {
    for max in [1 << 20, 100] {
        let lines = lines(data, max);
        talk(&lines, false);
        talk(&lines, true);
    }
    let text = String::from_utf8_lossy(data);
    let line = stream_json::user_line(&text, false);
    assert!(!line.contains('\n'), "a message is one line");
    let sent: Value = serde_json::from_str(&line).unwrap();
    let said = sent["message"]["content"][0]["text"].as_str().unwrap();
    assert!(!said.starts_with('/') && said.strip_prefix(' ').is_some_and(|s| *s == *text) || said == text);
}

/// Feeds a conversation in.
fn talk(lines: &[Line], interrupted: bool) {
    let mut machine = StreamJson::new();
    let begin = |machine: &mut StreamJson| {
        machine.begin_turn();
        if interrupted {
            machine.interrupting();
        }
    };
    begin(&mut machine);
    for line in lines {
        let steps = match line {
            Line::Text(bytes) => {
                let steps = machine.line(bytes, Time::from_millis(1_700_000_000_000));
                understood(bytes, &steps);
                steps
            }
            Line::Skipped { bytes, head } => {
                let steps = machine.skipped(*bytes, head);
                assert!(matches!(&steps[0], Step::Event(TurnEvent::Note(text)) if text.contains(&bytes.to_string())));
                assert_eq!(steps.len() == 2, head.starts_with(b"{\"type\":\"result\","));
                assert!(!machine.tool_open(), "a silent tool call is not waited for without end");
                steps
            }
        };
        for step in steps {
            if let Step::Ended(outcome) = step {
                ended(&outcome);
                begin(&mut machine);
            }
        }
    }
    let outcome = machine.cut_off(EngineError::new(ErrorClass::Crashed, "gone"));
    assert!(!outcome.ok && !machine.tool_open());
    ended(&outcome);
}

/// What a line leads to fits what it says.
fn understood(bytes: &[u8], steps: &[Step]) {
    let is = |wanted: fn(&Step) -> bool| steps.iter().filter(|s| wanted(s)).count();
    let replies = is(|s| matches!(s, Step::Reply(_)));
    let (ends, events) = (is(|s| matches!(s, Step::Ended(_))), is(|s| matches!(s, Step::Event(_))));
    for step in steps {
        match step {
            Step::Reply(line) => {
                assert!(!line.contains('\n'), "a reply is one line");
                assert!(serde_json::from_str::<Value>(line).unwrap().is_object());
            }
            Step::Event(TurnEvent::ToolCall { summary, .. }) => {
                assert!(summary.chars().count() <= 201 && !summary.contains('\n'), "{summary}");
            }
            Step::Event(_) | Step::Ended(_) => {}
            Step::Ready | Step::Failed(_) | Step::Answered(_) | Step::Goal(_) | Step::GoalEnded(..) => {
                panic!("nothing was asked that this would answer: {step:?}")
            }
        }
    }
    if bytes.iter().all(u8::is_ascii_whitespace) {
        assert!(steps.is_empty(), "an empty line says nothing");
        return;
    }
    let Some(value) = serde_json::from_slice::<Value>(bytes).ok().filter(Value::is_object) else {
        // Bytes that JSON does not allow may have been mended, so that it is a line after all.
        assert!(!steps.is_empty() || String::from_utf8_lossy(bytes).contains('{'), "a strange line is told");
        return;
    };
    match value["type"].as_str().unwrap_or_default() {
        "control_request" => assert_eq!((replies, ends), (1, 0), "a question is answered"),
        "control_response" => assert_eq!((replies, ends, events), (0, 0, 0), "we asked nothing"),
        "result" => assert_eq!((replies, ends + events), (0, 1), "a result ends a turn or is told"),
        _ => assert_eq!((replies, ends), (0, 0), "nothing else answers or ends"),
    }
}

/// An outcome that can be put on a record.
fn ended(outcome: &TurnOutcome) {
    let spend = &outcome.spend;
    assert_eq!(outcome.ok, outcome.error.is_none());
    assert!(!outcome.ok || !outcome.text.trim().is_empty(), "success without a reply");
    assert!(outcome.error.as_ref().is_none_or(|e| !e.message.is_empty()), "an error says something");
    assert!(spend.cost_usd >= 0.0 && spend.cost_usd.is_finite(), "{}", spend.cost_usd);
    assert_eq!(spend.turns, 1);
    assert!(outcome.permission_denials.len() <= 100);
}

/// The lines of `data`, compared with what plain splitting gives.
fn lines(data: &[u8], max: usize) -> Vec<Line> {
    let mut reader = LineReader::new(data, max);
    let mut lines = Vec::new();
    loop {
        let next = match pin!(reader.next()).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(next) => next.unwrap(),
            Poll::Pending => panic!("bytes in memory are there at once"),
        };
        match next {
            Some(line) => lines.push(line),
            None => break,
        }
    }
    let ended = data.strip_suffix(b"\n").unwrap_or(data);
    let plain = ended.split(|b| *b == b'\n').map(|line| match line {
        long if long.len() > max => {
            Line::Skipped { bytes: long.len() as u64, head: long[..long.len().min(HEAD)].to_vec() }
        }
        line => Line::Text(line.strip_suffix(b"\r").unwrap_or(line).to_vec()),
    });
    let plain: Vec<Line> = if data.is_empty() { Vec::new() } else { plain.collect() };
    assert_eq!(lines, plain);
    lines
}

#[cfg(test)]
mod tests {
    use std::{panic::catch_unwind, path::Path};

    use crate::sys::{Fs, RealFs};

    type Target = fn(&[u8]);

    const TARGETS: [(&str, Target); 6] = [
        ("log_line", super::log_line),
        ("log", super::log),
        ("checkpoint", super::checkpoint),
        ("workflow_spec", super::workflow_spec),
        ("contract", super::contract),
        ("claude_lines", super::claude_lines),
    ];
    /// Mutations of each target's corpus.
    const MUTATIONS: usize = 1500;

    /// What can be fuzzed is what is tested here.
    #[test]
    fn every_target_has_its_program() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz");
        let manifest: toml::Table =
            String::from_utf8(RealFs.read(&root.join("Cargo.toml")).unwrap()).unwrap().parse().unwrap();
        let mut bins: Vec<&str> =
            manifest["bin"].as_array().unwrap().iter().map(|b| b["name"].as_str().unwrap()).collect();
        let mut names = TARGETS.map(|(name, _)| name);
        bins.sort_unstable();
        names.sort_unstable();
        assert_eq!(bins, names);
        for name in names {
            let program = RealFs.read(&root.join(format!("fuzz_targets/{name}.rs"))).unwrap();
            assert!(String::from_utf8(program).unwrap().contains(&format!("claw_orchestrator::fuzzing::{name}(data)")));
            assert!(!RealFs.read(&root.join(format!("dictionaries/{name}.dict"))).unwrap().is_empty());
        }
    }

    fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
        let mut names = RealFs.list(&dir).unwrap();
        names.sort();
        let read = |name: std::ffi::OsString| {
            (format!("{target}/{}", name.to_string_lossy()), RealFs.read(&dir.join(name)).unwrap())
        };
        names.into_iter().map(read).collect()
    }

    /// Runs a target and names the input that breaks it.
    fn holds(target: Target, name: &str, input: &[u8]) {
        let done = catch_unwind(|| target(input));
        assert!(done.is_ok(), "{name} is broken by {:?}", input.escape_ascii().to_string());
    }

    #[test]
    fn every_corpus_holds() {
        for (name, target) in TARGETS {
            let files = corpus(name);
            assert!(files.len() >= 5, "{name} has {} seeds", files.len());
            for (file, input) in files {
                holds(target, &file, &input);
            }
        }
    }

    /// The same numbers every time.
    struct Dice(u64);

    impl Dice {
        fn roll(&mut self, below: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(self.0 >> 33).unwrap() % below.max(1)
        }
    }

    /// A neighbour of `input`: bits, bytes and pieces changed, lost, doubled or taken from another input.
    fn mutated(input: &[u8], other: &[u8], dice: &mut Dice) -> Vec<u8> {
        let mut out = input.to_vec();
        for _ in 0..=dice.roll(4) {
            let at = dice.roll(out.len() + 1);
            let to = (at + dice.roll(24)).min(out.len());
            match dice.roll(7) {
                0 if at < out.len() => out[at] ^= 1 << dice.roll(8),
                1 => {
                    let odd = b"\"{}[]:,\\\n0-9e\xff\0";
                    out.insert(at, odd[dice.roll(odd.len())]);
                }
                2 => drop(out.drain(at..to)),
                3 => drop(out.splice(at..at, out[at..to].to_vec())),
                4 => {
                    let from = dice.roll(other.len() + 1);
                    let piece = &other[from..(from + dice.roll(60)).min(other.len())];
                    drop(out.splice(at..at, piece.iter().copied()));
                }
                5 => {
                    let digits = 63 - dice.roll(63);
                    let number = dice.roll(usize::MAX >> (63 - digits)).to_string();
                    drop(out.splice(at..to, number.into_bytes()));
                }
                _ => out.truncate(at.max(out.len() / 2)),
            }
        }
        out
    }

    #[test]
    fn neighbours_of_every_corpus_hold() {
        for (name, target) in TARGETS {
            let (files, mut dice) = (corpus(name), Dice(0x5eed));
            for n in 0..MUTATIONS {
                let (input, other) = (&files[n % files.len()].1, &files[dice.roll(files.len())].1);
                holds(target, name, &mutated(input, other, &mut dice));
            }
        }
    }
}
