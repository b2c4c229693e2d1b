//! Programs of agents with engine `custom`: described by the caller, kept in memory, asked for again on a resume.

use super::{Error, Result};
use crate::{
    engines::custom,
    model::{Code, Node, NodeKind, WorkflowSpec, spec::EngineChoice},
    nodes::Customs,
};

/// Agents of a spec that run a program only their caller can describe.
fn custom_agents(spec: &WorkflowSpec) -> Vec<&str> {
    fn of(node: &Node) -> Vec<&str> {
        let custom = |choice: &EngineChoice| choice.engine.as_deref() == Some(custom::NAME);
        match &node.kind {
            NodeKind::Council(c) => c.agents.iter().filter(|a| custom(&a.choice)).map(|a| a.name.as_str()).collect(),
            NodeKind::Fanout(f) => f.agents.iter().filter(|a| custom(&a.choice)).map(|a| a.name.as_str()).collect(),
            NodeKind::Agent(_)
            | NodeKind::Verifier(_)
            | NodeKind::HumanGate(_)
            | NodeKind::Router(_)
            | NodeKind::Subflow(_)
            | NodeKind::Goal(_) => Vec::new(),
        }
    }
    spec.nodes.iter().flat_map(of).collect()
}

/// Refuses to go on with a run whose agents' programs nobody described; a description is never on disk.
pub(super) fn given(spec: &WorkflowSpec, customs: &Customs) -> Result<()> {
    let wanted = custom_agents(spec);
    if let Some(odd) = customs.keys().find(|name| !wanted.contains(&name.as_str())) {
        let text = format!("agentCustomEngineRefs.{odd}: the run has no such agent of engine 'custom'");
        return Err(Error::new(Code::InvalidArgument, text));
    }
    let missing: Vec<&str> = wanted.into_iter().filter(|name| !customs.contains_key(*name)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let text = format!(
        "describe the engines of {} again: workflow_resume with agentCustomEngineRefs, each naming a variable \
         CLAWO_CUSTOM_ENGINE_<REF> of the server",
        missing.join(", ")
    );
    Err(Error::new(Code::CustomEngineRequired, text))
}
