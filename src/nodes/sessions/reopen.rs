//! How a session gets a program again: after it ended, was unloaded, or is to run with other choices.

use tokio::time::Instant;

use super::{
    SessionError,
    actor::Actor,
    options::{self, StartOptions},
    records::Record,
    shared::{locked, lost_conversation},
    start::{continued, left_of},
    view::SessionState,
};
use crate::{
    engines::{Engine, PoolError, PooledSession, SessionSpec, examine},
    model::{Code, spec::EngineChoice},
};

/// What becomes of a session whose conversation the program does not go on with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lost {
    /// A new conversation is told what was said.
    Retold,
    /// It is not opened.
    Fails,
}

impl Actor {
    /// Makes sure that the program runs, until `deadline`.
    pub(super) async fn opened(&mut self, deadline: Instant) -> Result<(), SessionError> {
        if self.session.as_ref().is_some_and(PooledSession::alive) {
            return Ok(());
        }
        self.close().await;
        match self.reopen(deadline, Lost::Retold).await {
            Ok(()) => Ok(()),
            Err(e) => {
                // A full house says nothing about the session.
                if e.code() != Code::SessionCapReached && e.code() != Code::SessionStopped {
                    self.shared.set_state(SessionState::Failed);
                }
                self.note(&format!("the session could not be opened: {}", e.message));
                Err(e)
            }
        }
    }

    /// Starts the program anew, with what the session is told to be.
    pub(super) async fn reopen(&mut self, deadline: Instant, lost: Lost) -> Result<(), SessionError> {
        let (options, record, waiting) = {
            let live = locked(&self.shared.live);
            (live.options.clone(), live.record.clone(), live.block.is_some())
        };
        let choice = EngineChoice {
            engine: Some(record.engine.clone()),
            model: options.model.clone(),
            acp_agent: options.acp_agent.clone(),
            ..EngineChoice::default()
        };
        let engine = self.hub.pool.registry().resolve(&choice).map_err(PoolError::from)?;
        let resume = record.native_id.clone().filter(|_| engine.capabilities().resume && !options.transient());
        let mut spec = self.spec_of(engine.as_ref(), &options, &record)?;
        spec.resume.clone_from(&resume);
        if resume.is_none() {
            spec.options.counted = None;
            if !waiting && record.stats.turns > 0 {
                self.retell("the engine keeps no conversation");
            }
        }
        match self.wait_open(spec.clone(), deadline).await {
            Err(e) if lost == Lost::Retold && resume.is_some() && lost_conversation(e.class) => {
                self.retell(&e.message);
                {
                    let mut live = locked(&self.shared.live);
                    (live.record.native_id, live.record.counted) = (None, None);
                }
                (spec.resume, spec.options.counted) = (None, None);
                self.wait_open(spec, deadline).await
            }
            opened => opened,
        }
    }

    /// The spec of a session that was open before.
    pub(super) fn spec_of(
        &self,
        engine: &dyn Engine,
        options: &StartOptions,
        record: &Record,
    ) -> Result<SessionSpec, SessionError> {
        let (mut spec, _) = options::spec(&self.shared.name, engine, record.cwd.clone(), options, &self.hub.config)?;
        spec.options.fork = false;
        spec.options.counted = record.counted;
        spec.max_budget_usd = left_of(spec.max_budget_usd, record.spent_usd);
        let examined = examine(engine, &spec);
        if examined.problems.is_empty() {
            return Ok(spec);
        }
        Err(SessionError::new(Code::BadOption, examined.problems.join("; ")))
    }

    /// Opens it, waiting for a slot.
    pub(super) async fn wait_open(&mut self, spec: SessionSpec, deadline: Instant) -> Result<(), SessionError> {
        let stop = self.shared.stop.child_token();
        let open = self.hub.pool.open(spec, stop.clone(), |_| {});
        let opened = match tokio::time::timeout_at(deadline, open).await {
            Ok(opened) => opened,
            Err(_) => {
                let text = format!("no session became free in time; all {} are in use", self.hub.pool.max());
                return Err(SessionError::new(Code::SessionCapReached, text));
            }
        };
        if self.shared.stop.is_cancelled() {
            return Err(SessionError::stopped(&self.shared.name));
        }
        self.session = Some(opened?);
        locked(&self.shared.live).opened = Some(self.hub.clock.boot());
        Ok(())
    }

    /// A new conversation is to be told what the old one said.
    fn retell(&self, why: &str) {
        let (block, warning) = continued(&self.shared.name, locked(&self.shared.transcript).history(), why);
        let mut live = locked(&self.shared.live);
        live.block = block.or(live.block.take());
        live.warnings.push(warning.clone());
        drop(live);
        self.note(&warning);
    }
}
