//! Agents that speak the Agent Client Protocol: how they are started, and what they can be told.
//!
//! The messages are read and written as plain JSON. The crate of the protocol's types would change how every
//! document of this program is written, since it turns on the order of insertion in `serde_json` for all of it.

mod agents;
mod classify;
mod machine;
mod permit;
#[cfg(test)]
mod replay;
mod setup;
mod turn;

use std::{path::PathBuf, sync::Arc};

use tokio_util::sync::CancellationToken;

use super::{
    Boxed, Capabilities, Engine, EngineError, ErrorClass, Opt, Session, SessionSpec, Support,
    account::Counting,
    conversation::Conversation,
    environment::{self, Rules},
    registry::Context,
};
use crate::{
    model::spec::EngineChoice,
    sys::{command, supervise::Stdin},
};
use agents::Agent;
use machine::{Machine, Wishes};
use permit::Policy;

/// Its name in specs.
pub const NAME: &str = "acp";

/// The adapter.
#[derive(Debug)]
pub struct Acp {
    context: Arc<Context>,
}

impl Acp {
    /// An adapter; nothing is looked up yet.
    pub(crate) fn new(context: Arc<Context>) -> Self {
        Self { context }
    }

    /// Where an agent's program is: as set under the agent's name, else on PATH.
    fn find(&self, agent: &Agent) -> Option<PathBuf> {
        match self.context.config.engine_bins.get(agent.name) {
            Some(path) => command::find(&path.to_string_lossy()),
            None => command::find(agent.program),
        }
    }

    fn env(&self, agent: &Agent, spec: &SessionSpec) -> environment::ChildEnv {
        let config = &self.context.config;
        let mut added: Vec<String> = agents::SHARED.iter().map(|n| (*n).to_owned()).collect();
        for name in [NAME, agent.name] {
            added.extend(config.engine_env.get(name).cloned().unwrap_or_default());
        }
        let mut fixed = agent.fixed.to_vec();
        if agent.name == "claude-code-acp" && rustix::process::geteuid().is_root() {
            // As root it refuses to bypass permissions unless told that the machine is there for it.
            fixed.push(("IS_SANDBOX", "1"));
        }
        environment::build(config, Rules { needed: agent.needed }, &added, &spec.run_env, &fixed)
    }
}

/// The agent that a choice names.
fn chosen(choice: &EngineChoice) -> Result<&'static Agent, String> {
    let Some(name) = choice.acp_agent.as_deref() else {
        return Err(format!("engine acp needs `acpAgent`, the agent it runs: one of {}", agents::names()));
    };
    agents::find(name).ok_or_else(|| format!("no acp agent is called `{name}`; use one of {}", agents::names()))
}

impl Engine for Acp {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            resume: true,
            append_system_prompt: false,
            read_only: false,
            interrupt: true,
            steer: false,
            compact: false,
            goals: false,
            own_cost: true,
            counting: Counting::PerTurn,
            efforts: setup::EFFORTS,
            permission_modes: permit::MODES,
            verified: true,
        }
    }

    fn program(&self) -> Option<PathBuf> {
        agents::AGENTS.iter().find_map(|agent| self.find(agent))
    }

    fn how_to_install(&self) -> String {
        format!(
            "install one of its agents ({}), or name its program, for example with CLAWO_GEMINI_BIN",
            agents::names()
        )
    }

    fn program_of(&self, choice: &EngineChoice) -> Option<PathBuf> {
        chosen(choice).ok().and_then(|agent| self.find(agent))
    }

    fn version(&self) -> Boxed<'_, Option<String>> {
        // There is no program of the engine's own whose version that would be.
        Box::pin(std::future::ready(None))
    }

    fn support(&self, option: Opt) -> Support {
        match option {
            // Followed as far as the agent offers it; what it does not offer is told in the session.
            Opt::Effort | Opt::PermissionMode | Opt::DangerFullAccess | Opt::Resume | Opt::Fork => Support::Native,
            // Agents have no means that would hold, so that the session works in a copy.
            Opt::ReadOnly => Support::Native,
            Opt::ExtraArgs => Support::Native,
            Opt::SystemPrompt | Opt::AppendSystemPrompt => Support::InMessage,
            Opt::FallbackModel | Opt::WorkspaceWrite | Opt::MaxTurns | Opt::NoPersistence => Support::Ignored,
            Opt::AddDir
            | Opt::AllowedTools
            | Opt::DisallowedTools
            | Opt::JsonSchema
            | Opt::McpConfig
            | Opt::BaseUrl => Support::Refused,
        }
    }

    fn check(&self, choice: &EngineChoice) -> Vec<String> {
        let mut problems = Vec::new();
        match chosen(choice) {
            Err(problem) => problems.push(problem),
            Ok(agent) if self.find(agent).is_none() => {
                let (name, program, install) = (agent.name, agent.program, agent.install);
                let variable = name.to_ascii_uppercase().replace('-', "_");
                problems.push(format!(
                    "the program {program} of acp agent `{name}` was not found; install it ({install}) or name it in \
                     CLAWO_{variable}_BIN"
                ));
            }
            Ok(_) => {}
        }
        if let Some(effort) = choice.effort.as_deref()
            && effort != "auto"
            && !setup::EFFORTS.contains(&effort)
        {
            problems.push(format!("acp has no effort `{effort}`; use one of {} or auto", setup::EFFORTS.join(", ")));
        }
        if let Some(mode) = choice.permission_mode.as_deref()
            && !permit::MODES.contains(&mode)
        {
            problems.push(format!("acp has no permission mode `{mode}`; use one of {}", permit::MODES.join(", ")));
        }
        if choice.model.as_deref().is_some_and(|m| m.trim().is_empty()) {
            problems.push("the model of an acp agent must be a model name".to_owned());
        }
        problems
    }

    fn open(&self, spec: SessionSpec, cancel: CancellationToken) -> Boxed<'_, Result<Box<dyn Session>, EngineError>> {
        Box::pin(async move {
            if let Some(problem) = self.check(&spec.choice).into_iter().next() {
                return Err(EngineError::new(ErrorClass::Other, problem));
            }
            let failed = |text: String| EngineError::new(ErrorClass::StartFailed, text);
            let agent = chosen(&spec.choice).map_err(failed)?;
            let program = self.find(agent).ok_or_else(|| failed(format!("the program of {} is gone", agent.name)))?;
            let args =
                agent.args.iter().map(Into::into).chain(spec.options.extra_args.iter().map(Into::into)).collect();
            let machine = Machine::new(
                wishes(&spec),
                Policy::of(&spec.choice, spec.options.sandbox),
                agent.tokens,
                agent.remarks,
            );
            let launch = self.context.launch(NAME, program, args, self.env(agent, &spec), &spec, Stdin::Pipe);
            let session = Conversation::start(launch, Box::new(machine), &cancel).await?;
            Ok(Box::new(session) as Box<dyn Session>)
        })
    }
}

/// What the session is to be; a resumed one does not remember, so that everything is said again.
fn wishes(spec: &SessionSpec) -> Wishes {
    Wishes {
        cwd: spec.cwd.clone(),
        resume: spec.resume.clone(),
        fork: spec.options.fork,
        model: spec.choice.model.clone(),
        effort: spec.choice.effort.clone(),
        modes: permit::wanted_modes(&spec.choice, spec.options.sandbox),
    }
}
