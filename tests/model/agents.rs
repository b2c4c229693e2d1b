//! An engine without processes: its agents do what the script says, and see to it that nobody is asked who must not be.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use claw_orchestrator::{
    engines::{
        Boxed, Capabilities, Engine, EngineError, ErrorClass, Opt, Session, SessionSpec, Support, TurnOutcome,
        TurnRequest, account::Counting,
    },
    model::{NodeState, RunId, run::Spend, spec::EngineChoice},
    sys::Clock,
};
use tokio_util::sync::CancellationToken;

use crate::{
    clock::ModelClock,
    flow::Flow,
    journal::Journal,
    memory::MemoryFs,
    script::{How, Place, QUOTA_MS, Script, Temper},
};

/// Name of the engine.
pub const NAME: &str = "model";

/// Agents that are alive, by run, node and who of it, with their attempt.
type Alive = Arc<Mutex<BTreeMap<(String, String, String), String>>>;

/// The engine of a case, the same over all lives.
#[derive(Debug, Clone)]
pub struct Agents {
    pub script: Script,
    pub flow: Arc<Flow>,
    pub journal: Journal,
    pub fs: MemoryFs,
    pub clock: Arc<ModelClock>,
    /// Where agents write.
    pub project: PathBuf,
    pub alive: Alive,
}

impl Engine for Agents {
    fn name(&self) -> &'static str {
        NAME
    }
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            resume: false,
            append_system_prompt: true,
            read_only: false,
            interrupt: true,
            steer: false,
            compact: false,
            goals: false,
            own_cost: true,
            counting: Counting::PerTurn,
            efforts: &[],
            permission_modes: &[],
            verified: true,
        }
    }
    fn support(&self, _: Opt) -> Support {
        Support::Native
    }
    fn program(&self) -> Option<PathBuf> {
        Some(PathBuf::from("/bin/model"))
    }
    fn version(&self) -> Boxed<'_, Option<String>> {
        Box::pin(async { None })
    }
    fn check(&self, _: &EngineChoice) -> Vec<String> {
        Vec::new()
    }
    fn open(&self, spec: SessionSpec, _: CancellationToken) -> Boxed<'_, Result<Box<dyn Session>, EngineError>> {
        Box::pin(async move { Ok(Box::new(self.begin(&spec)) as Box<dyn Session>) })
    }
}

/// One agent.
#[derive(Debug)]
pub struct Agent {
    agents: Agents,
    run: RunId,
    node: String,
    who: String,
    attempt: u32,
}

impl Agents {
    /// Starts an agent, and notes when the log does not allow it.
    pub fn begin(&self, spec: &SessionSpec) -> Agent {
        let var = |name: &str| spec.run_env.iter().find(|(n, _)| n == name).map(|(_, v)| v.clone()).unwrap();
        let run = RunId::parse(&var("CLAWO_RUN_ID")).unwrap();
        let (node, visit, attempt) = (var("CLAWO_NODE_ID"), var("CLAWO_VISIT"), var("CLAWO_ATTEMPT"));
        let prefix = format!("{run}-{node}-a{attempt}");
        let who = spec.name.strip_prefix(&prefix).unwrap().trim_start_matches('-').to_owned();
        let place = format!("{run}: {node} v{visit}a{attempt} {who}");
        self.journal.started(place.clone());
        let wrong = self.journal.with(&run, |known| {
            let standing = known.nodes.get(&node).cloned().unwrap_or_default();
            let current = standing.visit.to_string() == visit && standing.attempt.to_string() == attempt;
            if known.state.is_terminal() || standing.state != NodeState::Running || !current {
                Some(format!("{place} was asked while the log says {standing:?}"))
            } else if standing.done.contains(&who) {
                Some(format!("{place} was asked again although its success is on the log"))
            } else {
                None
            }
        });
        if let Some(wrong) = wrong.flatten() {
            self.journal.wrong(wrong);
        }
        let mut alive = self.alive.lock().unwrap();
        for ((other_run, other_node, other_who), other) in alive.iter() {
            if *other_run == run.as_str() && (*other_node != node || *other_who == who || *other != attempt) {
                self.journal.wrong(format!("{place} was asked while {other_node} a{other} {other_who} lives"));
            }
        }
        alive.insert((run.to_string(), node.clone(), who.clone()), attempt.clone());
        Agent { agents: self.clone(), run, node, who, attempt: attempt.parse().unwrap() }
    }

    /// Agents that live now.
    pub fn living(&self) -> usize {
        self.alive.lock().unwrap().len()
    }
}

impl Agent {
    async fn answer(&self, message: &str, cancel: &CancellationToken) -> TurnOutcome {
        let Agents { script, flow, journal, fs, project, clock, .. } = &self.agents;
        let known = journal.with(&self.run, |run| {
            let standing = run.nodes.get(&self.node).cloned().unwrap_or_default();
            // What was on the log when the attempt began must be in its prompt.
            let missed = run.steers.values().find(|s| {
                !s.applied && s.seq < standing.begun && standing.attempt == self.attempt && !message.contains(&s.text)
            });
            let waited = standing.waited.contains(&self.who);
            (run.context, standing.visit, standing.failures, missed.map(|s| s.text.clone()), waited)
        });
        let (context, visit, failures, missed, waited) = known.unwrap_or_default();
        if let Some(text) = missed.filter(|_| self.who != "synthesis") {
            journal.wrong(format!("{}: {} was not told '{text}'", self.run, self.node));
        }
        let temper = flow.temper("n", &self.node).unwrap_or(Temper::Steady);
        let temper = if self.who == "synthesis" { merging(temper) } else { temper };
        let place = Place { context, node: &self.node, visit, failures, who: &self.who };
        let rationed = temper == Temper::Rationed && failures == 0 && !waited;
        let act = if rationed { script.rationed(&place) } else { script.act(temper, &place) };
        let ends = async {
            match act.how {
                How::Hangs => std::future::pending().await,
                How::Good | How::Bad | How::Denied | How::Rationed => {
                    tokio::time::sleep(Duration::from_millis(act.after_ms)).await;
                }
            }
        };
        let stopped = tokio::select! {
            biased;
            () = ends => false,
            () = cancel.cancelled() => true,
        };
        if stopped {
            tokio::time::sleep(Duration::from_millis(act.deaf_ms)).await;
            return self.outcome(act.cents, Some(EngineError::new(ErrorClass::Interrupted, "stopped")));
        }
        if let Some(word) = act.word {
            let (first, second) = word.holds();
            fs.put(&project.join("a"), first);
            fs.put(&project.join("b"), second);
        }
        let error = match act.how {
            How::Good | How::Hangs => None,
            How::Bad => Some(EngineError::new(ErrorClass::Other, "it did not work")),
            How::Denied => Some(EngineError::new(ErrorClass::Auth, "who are you")),
            How::Rationed => Some(EngineError {
                retry_at: Some(clock.wall().plus_millis(i64::try_from(QUOTA_MS).unwrap())),
                ..EngineError::new(ErrorClass::Quota, "used up")
            }),
        };
        self.outcome(act.cents, error)
    }

    fn outcome(&self, cents: u64, error: Option<EngineError>) -> TurnOutcome {
        TurnOutcome {
            ok: error.is_none(),
            text: format!("{} has worked", self.node),
            stop_reason: None,
            spend: Spend { cost_usd: cents as f64 / 100.0, turns: 1, ..Spend::default() },
            cost_source: Some("engine".to_owned()),
            permission_denials: Vec::new(),
            tool_calls: 0,
            tool_errors: 0,
            duration_ms: 0,
            native_id: None,
            error,
            ..TurnOutcome::default()
        }
    }
}

/// How the merge of a fan-out behaves: it may fail, which costs nothing else, and it never hangs.
pub fn merging(temper: Temper) -> Temper {
    match temper {
        Temper::Hanging | Temper::Rationed => Temper::Steady,
        Temper::Steady | Temper::Flaky | Temper::Broken | Temper::Denied | Temper::Long => temper,
    }
}

impl Session for Agent {
    fn turn<'a>(&'a mut self, request: TurnRequest<'a>) -> Boxed<'a, TurnOutcome> {
        Box::pin(async move { self.answer(request.message.text, &request.cancel).await })
    }
    fn native_id(&self) -> Option<String> {
        None
    }
    fn stop(self: Box<Self>) -> Boxed<'static, Vec<String>> {
        Box::pin(async { Vec::new() })
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let key = (self.run.to_string(), self.node.clone(), self.who.clone());
        self.agents.alive.lock().unwrap().remove(&key);
    }
}
