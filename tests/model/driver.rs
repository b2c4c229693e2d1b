//! The user of one life: starts or continues the run, answers gates, does what the case says, and looks closely at
//! what is there once everything has ended.

use std::{
    collections::BTreeSet,
    path::PathBuf,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use claw_orchestrator::{
    kernel::{Kernel, Role, Source, StartRequest, spec, state},
    model::{Code, RunId, RunRecord, RunState},
    store::Store,
};

use crate::{
    case::{Answers, Deed, RUN, World},
    faulty::Life,
};

/// How often a driver looks.
const LOOK: Duration = Duration::from_millis(50);

/// One life's user: starts or continues the run, answers gates, does the deeds, waits for the end.
pub struct Driver<'a> {
    pub world: &'a World<'a>,
    pub kernel: Kernel,
    pub life: Arc<Life>,
    pub number: usize,
}

impl Driver<'_> {
    /// Brings the run to its end.
    pub async fn run(self) -> Result<RunRecord, String> {
        let run = RunId::parse(RUN).unwrap();
        self.begin().await?;
        self.deeds();
        let mut asked = BTreeSet::new();
        loop {
            self.world.agents.journal.rules()?;
            self.answer(&mut asked);
            let record = match self.kernel.record(RUN).await {
                Ok(record) => record,
                Err(e) => return Err(format!("the run cannot be read: {e}")),
            };
            if record.state == RunState::AwaitingHuman && record.gate.is_none() {
                return Err(format!("the run waits for a person and does not say what for: {record:?}"));
            }
            let idle = self.kernel.executing() == 0;
            if record.state.is_terminal() && idle {
                self.ended(&record)?;
                return Ok((*record).clone());
            }
            if idle && record.state != RunState::AwaitingHuman {
                // A store that failed at the wrong moment; a person would call it again.
                let _ = self.kernel.resume(run.as_str()).await;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn begin(&self) -> Result<(), String> {
        if self.kernel.record(RUN).await.is_ok() {
            self.kernel.auto_resume().await;
            return Ok(());
        }
        let request = StartRequest {
            source: Source::Spec(self.world.case.flow.json("n")),
            cwd: Some(PathBuf::from("/project")),
            run_id: Some(RUN.to_owned()),
            contract: None,
            auto_resume: false,
            idempotency_key: None,
            parent: None,
            customs: claw_orchestrator::nodes::Customs::default(),
        };
        match self.kernel.start(request).await {
            Ok(_) => Ok(()),
            // The process dies in this very call.
            Err(e) if e.code == Code::Superseded => std::future::pending().await,
            Err(e) => Err(format!("the run did not start: {e}")),
        }
    }

    /// Does what the case says at its moment; what a death prevented is done by the next life.
    fn deeds(&self) {
        for (place, (at, deed)) in self.world.case.deeds.iter().enumerate() {
            if self.world.done.lock().unwrap().contains(&place) {
                continue;
            }
            let (kernel, clock, done) = (self.kernel.clone(), self.world.clock.clone(), self.world.done.clone());
            let (faults, life, deed) = (self.world.faults.clone(), self.life.clone(), deed.clone());
            let left = at.saturating_sub(clock.ms());
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(left)).await;
                let is_done = match deed {
                    Deed::Jump(by) => {
                        clock.jump(by);
                        true
                    }
                    Deed::Kill => {
                        done.lock().unwrap().insert(place);
                        faults.deaths.fetch_add(1, Ordering::SeqCst);
                        life.die();
                        true
                    }
                    Deed::Cancel => over(kernel.cancel(RUN, None).await.map(|_| ())),
                    Deed::Steer => over(kernel.steer(RUN, &format!("correction {place}")).await.map(|_| ())),
                };
                if is_done {
                    done.lock().unwrap().insert(place);
                }
            });
        }
    }

    /// Answers every open gate as long after its question as the script says.
    fn answer(&self, asked: &mut BTreeSet<(RunId, String, u32)>) {
        let journal = &self.world.agents.journal;
        for run in journal.runs() {
            let open = journal.with(&run, |r| r.gate.clone().map(|gate| (gate, r.context))).flatten();
            let Some(((node, visit, since), context)) = open else { continue };
            if !asked.insert((run.clone(), node.clone(), visit)) {
                continue;
            }
            let (approved, after) = self.world.agents.script.answer(context, &node, visit);
            let left = (since + after).saturating_sub(self.world.clock.ms());
            let kernel = match self.world.case.answers {
                Answers::Here => self.kernel.clone(),
                Answers::Elsewhere => self.world.kernel(&self.life, self.number, Role::Recorder),
            };
            let journal = journal.clone();
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(left)).await;
                // A gate whose batch a failed write hides for a while cannot be answered yet.
                let open = || journal.with(&run, |r| r.gate.as_ref().is_some_and(|g| (&g.0, g.1) == (&node, visit)));
                while open() == Some(true) && kernel.approve(run.as_str(), approved, None).await.is_err() {
                    tokio::time::sleep(LOOK).await;
                }
            });
        }
    }

    /// What must hold once everything has ended.
    fn ended(&self, served: &RunRecord) -> Result<(), String> {
        self.world.agents.journal.rules()?;
        if self.world.case.forgery.is_some() {
            return Ok(());
        }
        let store = self.world.store(usize::MAX);
        for run in self.world.agents.journal.runs() {
            let lines = store.lines(&run, 0, usize::MAX).map_err(|e| e.to_string())?;
            self.world.agents.journal.compare(&run, &lines)?;
            let stored = store.load(&run).map_err(|e| e.to_string())?.spec;
            let spec = spec::read(&stored, "", spec::Origin::Stored, None, None).spec.unwrap();
            let mut folded = state::empty(&run, &spec);
            state::apply_stored(&mut folded, &spec, &lines);
            if run.as_str() == RUN && folded != *served {
                return Err(format!("the log says {folded:?}, the record says {served:?}"));
            }
            if !folded.state.is_terminal() {
                return Err(format!("{run} is {:?} although its parent has ended", folded.state));
            }
            let left = store.load(&run).map_err(|e| e.to_string())?;
            if left.live {
                return Err(format!("{run} has ended and is still executed by {:?}", left.owner));
            }
        }
        Ok(())
    }
}

/// Whether a request needs no repetition: it was done, or there is nothing to do any more.
fn over(result: claw_orchestrator::kernel::Result<()>) -> bool {
    result.map_or_else(|e| e.code == Code::RunTerminal, |()| true)
}
