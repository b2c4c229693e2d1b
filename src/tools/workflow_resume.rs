//! `workflow_resume`: continues a run whose process is gone.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::{
    CallContext, Hints, KernelHandle, Outcome, Tool, ToolResult, Toolset,
    args::{invalid, run_id, shown},
    registry::{About, Length},
    shapes::Free,
    summary,
};
use crate::{engines::custom::variable, kernel::Error, model::Code};

/// Longest reference to a custom engine.
const REF_MAX: usize = 128;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Args {
    /// Id of the run.
    run_id: String,
    /// Custom engines of the run's agents by reference, as { agent: REF }; the server reads `CLAWO_CUSTOM_ENGINE_<REF>`. Not available yet: leave it out.
    #[schemars(with = "Option<Free>")]
    agent_custom_engine_refs: Option<Value>,
}

/// The tool.
pub fn tool() -> Tool {
    let about = About {
        name: "workflow_resume",
        title: "Resume a run",
        description: "Continues a workflow run whose process ended; use it when workflow_status shows interrupted. Nodes \
that succeeded are not run again, the one that was cut off is. A run that has ended or waits for a person is returned \
as it is; one that a live process executes is refused with that process named. Next: workflow_status with waitMs.",
        toolset: Toolset::Workflow,
        hints: Hints { idempotent: true, ..Hints::WORK },
        length: Length::Short,
        pairs: &["workflow_status"],
    };
    Tool::new::<Args, summary::RunBrief, _, _>(about, run)
}

async fn run(kernel: KernelHandle, args: Args, _context: CallContext) -> Outcome {
    let id = run_id("runId", &args.run_id)?;
    if let Some(refs) = &args.agent_custom_engine_refs {
        custom_engines(refs)?;
    }
    let view = kernel.get().await?.resume(id.as_str()).await?;
    let mut result = ToolResult::new(&view, summary::run(&view))?;
    summary::fit_run(&mut result.structured);
    Ok(result)
}

/// Refuses references to custom engines, each by the variable it would be read from.
fn custom_engines(refs: &Value) -> Result<(), Error> {
    const FIELD: &str = "agentCustomEngineRefs";
    let Some(refs) = refs.as_object() else { return Err(invalid(FIELD, "must be an object of agent names and refs")) };
    // Every reference is refused, so the first one stands for all.
    let Some((agent, reference)) = refs.iter().next() else { return Ok(()) };
    let at = format!("{FIELD}.{}", shown(agent));
    let Some(reference) = reference.as_str().filter(|r| !r.is_empty() && r.len() <= REF_MAX) else {
        return Err(invalid(&at, format!("must be a reference of 1 to {REF_MAX} characters")));
    };
    let text = format!("{at}: custom engines, which would be read from {}, are not available yet", variable(reference));
    Err(Error::new(Code::NotAvailableYet, text))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A reference is refused by the variable it stands for, and what is none by its place.
    #[test]
    fn custom_engines_are_refused_by_name() {
        assert!(custom_engines(&json!({})).is_ok());
        let error = custom_engines(&json!({ "a": "my-eng.1" })).unwrap_err();
        assert_eq!(error.code, Code::NotAvailableYet);
        assert!(error.message.contains("CLAWO_CUSTOM_ENGINE_MY_ENG_1"), "{error}");
        for (bad, at) in
            [(json!(["x"]), "agentCustomEngineRefs: "), (json!({ "a": { "bin": "sh" } }), "agentCustomEngineRefs.a: ")]
        {
            let error = custom_engines(&bad).unwrap_err();
            assert!(error.code == Code::InvalidArgument && error.message.starts_with(at), "{error}");
        }
    }
}
