//! Other tools or another model for a running session.

use std::sync::Arc;

use tokio::time::Instant;

use super::{
    Changed, SessionError,
    actor::Actor,
    options::StartOptions,
    reopen::Lost,
    shared::{Change, locked},
};
use crate::{
    engines::{Ask, Engine, Opt, PoolError, PooledSession, Support},
    model::{Code, spec::EngineChoice},
};

impl Actor {
    /// Makes the change. When it fails, the session is as it was.
    pub(super) async fn change(&mut self, change: Change) -> Result<Changed, SessionError> {
        let old = locked(&self.shared.live).options.clone();
        let engine = self.engine(&old)?;
        let new = match change {
            Change::Tools(tools) => {
                let asked = |list: &Option<Vec<String>>| list.as_ref().is_some_and(|l| !l.is_empty());
                for (set, option) in [
                    (asked(&tools.allowed_tools), Opt::AllowedTools),
                    (asked(&tools.disallowed_tools), Opt::DisallowedTools),
                ] {
                    if set && engine.support(option) != Support::Native {
                        let text = format!("engine {} has no {}", engine.name(), option.name());
                        return Err(SessionError::new(Code::NotSupported, text));
                    }
                }
                StartOptions {
                    allowed_tools: tools.allowed_tools,
                    disallowed_tools: tools.disallowed_tools,
                    ..old.clone()
                }
            }
            Change::Model(model) => {
                let runs = self.session.as_ref().is_some_and(PooledSession::alive);
                let asked = match runs {
                    true => self.ask(Ask::SwitchModel(model.clone()), None).await,
                    false => Err(SessionError::new(Code::NotSupported, "no program runs")),
                };
                match asked {
                    Ok(_) => {
                        locked(&self.shared.live).options.model = Some(model);
                        return Ok(self.changed(false));
                    }
                    Err(e) if e.code() == Code::NotSupported => {}
                    Err(e) => return Err(e),
                }
                StartOptions { model: Some(model), ..old.clone() }
            }
        };
        self.restart(engine.as_ref(), old, new).await?;
        Ok(self.changed(true))
    }

    /// Starts the program anew with the same conversation and other options.
    async fn restart(&mut self, engine: &dyn Engine, old: StartOptions, new: StartOptions) -> Result<(), SessionError> {
        let record = locked(&self.shared.live).record.clone();
        if record.stats.turns > 0 && !(engine.capabilities().resume && record.native_id.is_some()) {
            let text = format!("engine {} cannot go on with its conversation in a new program", engine.name());
            return Err(SessionError::new(Code::NotSupported, text));
        }
        // Looked at before anything is ended.
        self.spec_of(engine, &new, &record)?;
        let ran = self.session.is_some();
        self.close().await;
        locked(&self.shared.live).options = new;
        if !ran {
            return Ok(());
        }
        let limit = self.hub.settings.open_wait;
        // A program that does not take the conversation with the new options may still do so with the old ones, so
        // nothing is told anew before these were tried.
        let Err(error) = self.reopen(Instant::now() + limit, Lost::Fails).await else { return Ok(()) };
        self.note(&format!("the session could not be opened as it was to be: {}", error.message));
        locked(&self.shared.live).options = old;
        let again = self.opened(Instant::now() + limit).await;
        let now = match again {
            Ok(()) => "the session goes on as it was".to_owned(),
            Err(e) => format!("the session as it was could not be started either: {}", e.message),
        };
        Err(SessionError { message: format!("{}; {now}", error.message), ..error })
    }

    fn changed(&self, restarted: bool) -> Changed {
        let mut live = locked(&self.shared.live);
        live.record.model = live.options.model.clone().or(live.record.model.take());
        let changed = Changed {
            name: self.shared.name.clone(),
            model: live.record.model.clone(),
            allowed_tools: live.options.allowed_tools.clone().unwrap_or_default(),
            disallowed_tools: live.options.disallowed_tools.clone().unwrap_or_default(),
            restarted,
        };
        drop(live);
        self.record();
        changed
    }

    fn engine(&self, options: &StartOptions) -> Result<Arc<dyn Engine>, SessionError> {
        let choice = EngineChoice {
            engine: Some(locked(&self.shared.live).record.engine.clone()),
            acp_agent: options.acp_agent.clone(),
            ..EngineChoice::default()
        };
        Ok(self.hub.pool.registry().resolve(&choice).map_err(PoolError::from)?)
    }
}
