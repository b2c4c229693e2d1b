//! `workflow_resume`: continues a run whose process is gone.

use std::{collections::BTreeMap, sync::Arc};

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
use crate::{engines::custom::by_reference, kernel::Error, nodes::Customs};

/// Longest reference to a custom engine.
const REF_MAX: usize = 128;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Args {
    /// Id of the run.
    run_id: String,
    /// Custom engines of the run's agents by reference, as { agent: REF }; the server reads `CLAWO_CUSTOM_ENGINE_<REF>`.
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
    let kernel = kernel.get().await?;
    let customs = match &args.agent_custom_engine_refs {
        Some(refs) => custom_engines(refs, &kernel.services().config.env)?,
        None => Customs::default(),
    };
    let view = kernel.resume_with(id.as_str(), customs).await?;
    let mut result = ToolResult::new(&view, summary::run(&view))?;
    summary::fit_run(&mut result.structured);
    Ok(result)
}

/// The engines behind references, by the names of their agents.
pub(crate) fn custom_engines(refs: &Value, env: &BTreeMap<String, String>) -> Result<Customs, Error> {
    const FIELD: &str = "agentCustomEngineRefs";
    let Some(refs) = refs.as_object() else { return Err(invalid(FIELD, "must be an object of agent names and refs")) };
    let mut customs = BTreeMap::new();
    for (agent, reference) in refs {
        let at = format!("{FIELD}.{}", shown(agent));
        let Some(reference) = reference.as_str().filter(|r| !r.is_empty() && r.len() <= REF_MAX) else {
            return Err(invalid(&at, format!("must be a reference of 1 to {REF_MAX} characters")));
        };
        let engine = by_reference(env, reference).map_err(|e| Error::new(e.code(), format!("{at}: {e}")))?;
        customs.insert(agent.clone(), engine);
    }
    Ok(Arc::new(customs))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::Code;

    /// A reference is refused by the variable it stands for, and what is none by its place.
    #[test]
    fn custom_engines_come_from_the_environment() {
        let mut env = BTreeMap::new();
        assert!(custom_engines(&json!({}), &env).unwrap().is_empty());
        let error = custom_engines(&json!({ "a": "my-eng.1" }), &env).unwrap_err();
        assert_eq!(error.code, Code::CustomEngineRefUnknown);
        assert!(error.message.contains("CLAWO_CUSTOM_ENGINE_MY_ENG_1"), "{error}");
        env.insert("CLAWO_CUSTOM_ENGINE_BAD".to_owned(), "{".to_owned());
        let error = custom_engines(&json!({ "a": "bad" }), &env).unwrap_err();
        assert_eq!(error.code, Code::CustomEngineRefInvalid);
        let good = r#"{"name":"x","bin":"sh","output":"text"}"#;
        env.insert("CLAWO_CUSTOM_ENGINE_X".to_owned(), good.to_owned());
        assert_eq!(custom_engines(&json!({ "a": "x" }), &env).unwrap()["a"].name, "x");
        for (bad, at) in
            [(json!(["x"]), "agentCustomEngineRefs: "), (json!({ "a": { "bin": "sh" } }), "agentCustomEngineRefs.a: ")]
        {
            let error = custom_engines(&bad, &env).unwrap_err();
            assert!(error.code == Code::InvalidArgument && error.message.starts_with(at), "{error}");
        }
    }
}
