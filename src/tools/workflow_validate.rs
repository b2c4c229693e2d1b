//! `workflow_validate`: everything a start would check, without starting.

use super::{
    CallContext, Hints, KernelHandle, Outcome, Tool, ToolResult, Toolset,
    outcome::{RESULT_MAX, counted, wire_len},
    registry::{About, Length},
    schema,
    start_args::StartArgs,
};
use crate::kernel::Validation;

/// The tool.
pub fn tool() -> Tool {
    let about = About {
        name: "workflow_validate",
        title: "Validate a workflow",
        description: "Checks a workflow request without starting it; use it before workflow_start to see every problem \
with its path, what would be dropped, the normalised spec a template builds and the most it can use: agent turns, \
parallel agents, repair passes, wall time and, where prices are known, money. Takes the same arguments as \
workflow_start and changes nothing. Next: workflow_start with the same arguments when ok is true.",
        toolset: Toolset::Workflow,
        hints: Hints::LOOK,
        length: Length::Short,
        pairs: &["workflow_start"],
    };
    // workflow_start spells the nested arguments out; twice would only make every host's list longer.
    Tool::with_input::<StartArgs, Validation, _, _>(about, schema::input_brief::<StartArgs>(), run)
}

async fn run(kernel: KernelHandle, args: StartArgs, context: CallContext) -> Outcome {
    let request = args.request(context.parent)?;
    let validation = kernel.get().await?.validate(request).await;
    let list: Vec<String> = validation.errors.iter().take(10).map(ToString::to_string).collect();
    let text = if validation.ok {
        let forecast = validation.forecast.as_ref().map(|f| {
            format!(
                " At most {}, {} at once, {}.",
                counted(f.max_agent_turns, "agent turn"),
                counted(f.fanout_width, "agent"),
                counted(f.repair_passes, "repair pass")
            )
        });
        format!(
            "Valid, {}.{} Next: workflow_start with the same arguments.",
            counted(validation.warnings.len(), "warning"),
            forecast.unwrap_or_default()
        )
    } else {
        format!(
            "Not valid, {}: {}. Next: correct what is named and validate again.",
            counted(validation.errors.len(), "problem"),
            list.join("; ")
        )
    };
    let mut result = ToolResult::new(&validation, text)?;
    if wire_len(&result.structured) > RESULT_MAX {
        result.structured.remove("spec");
        result = result.with("truncated", vec!["spec: too long to repeat; it is the one you gave, normalised"]);
    }
    Ok(result)
}
