//! Plays recorded runs of the real programs into their adapters.

use std::path::Path;

use serde_json::Value;

use super::{Program, Tally};
use crate::{
    engines::{EngineError, ErrorClass, TurnEvent, TurnOutcome, process::Gone},
    model::Time,
    sys::{Fs, RealFs},
};

/// One run of a program.
#[derive(Debug)]
pub(crate) struct Run {
    /// What it was started with.
    pub(crate) start: Value,
    lines: Vec<String>,
    exit: Gone,
    stderr: String,
}

/// The runs in a recording below `tests/fixtures/engines`.
pub(crate) fn runs(engine: &str, name: &str) -> Vec<Run> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/engines").join(engine);
    let text = String::from_utf8(RealFs.read(&dir.join(format!("transcripts/{name}.jsonl"))).unwrap()).unwrap();
    let mut runs: Vec<Run> = Vec::new();
    for entry in text.lines().map(|l| serde_json::from_str::<Value>(l).unwrap()) {
        let line = &entry["line"];
        match entry["dir"].as_str().unwrap() {
            "in" if line["argv"].is_array() => {
                runs.push(Run { start: line.clone(), lines: Vec::new(), exit: Gone::Unknown, stderr: String::new() })
            }
            "in" => {}
            "out" => runs.last_mut().unwrap().lines.push(line.to_string()),
            "exit" => {
                let run = runs.last_mut().unwrap();
                run.exit = match line["code"].as_i64() {
                    Some(0) => Gone::Clean,
                    Some(code) if code < 0 => Gone::Failed(format!("signal {}", -code)),
                    Some(code) => Gone::Failed(format!("exit status {code}")),
                    None => Gone::Unknown,
                };
                let told = line["stderr"].as_array().cloned().unwrap_or_default();
                run.stderr = told.iter().map(|l| l.as_str().unwrap()).collect::<Vec<_>>().join("\n");
            }
            other => panic!("{other}"),
        }
    }
    runs
}

/// Whether it had to be killed because it never ends: then our clocks decide.
fn endless(run: &Run) -> bool {
    run.exit == Gone::Unknown
}

/// The turn that `run` was, with its events.
pub(crate) fn play(program: &mut dyn Program, run: &Run) -> (TurnOutcome, Vec<TurnEvent>) {
    program.command(&"go".into()).unwrap();
    let now = Time::from_millis(0);
    let (mut tally, mut events) = (Tally::default(), Vec::new());
    let mut error = None;
    for line in &run.lines {
        tally.hear();
        match program.line(line.as_bytes(), &mut tally, now) {
            Ok(told) => events.extend(told),
            // The turn is cut here.
            Err(e) => {
                error = Some(e);
                break;
            }
        }
    }
    if endless(run) {
        error = error.or(Some(EngineError::new(ErrorClass::Timeout, "our clock")));
    } else if error.is_none() {
        program.finish(&run.exit, &run.stderr, &mut tally, now);
        error = tally.judge(&run.exit, &run.stderr).err();
    }
    (tally.outcome(program.native_id(), error), events)
}

/// Class, tool calls, tool errors, refusals, input and output tokens.
pub(crate) fn brief(outcome: &TurnOutcome) -> String {
    let class = outcome.error.as_ref().map_or("ok", |e| e.class.as_str());
    assert_eq!(outcome.ok, outcome.error.is_none());
    assert!(!outcome.ok || !outcome.text.trim().is_empty(), "{outcome:?}");
    assert!(outcome.error.as_ref().is_none_or(|e| !e.message.trim().is_empty()), "{outcome:?}");
    let (refused, spend) = (outcome.permission_denials.len(), &outcome.spend);
    format!("{class} {} {} {refused} {} {}", outcome.tool_calls, outcome.tool_errors, spend.tokens_in, spend.tokens_out)
}
