//! `council_start`: several agents in rounds on one repository.

use serde_json::Value;

use super::shapes::{CouncilBrief, StartShape};
use crate::{
    kernel::councils::CouncilDraft,
    model::Problem,
    nodes::council::view::fit,
    tools::{
        CallContext, Hints, KernelHandle, Outcome, Tool, ToolResult, Toolset,
        outcome::RESULT_MAX,
        registry::{About, Length},
        schema::Object,
        start_args::absolute,
    },
};

/// The tool.
pub(super) fn tool() -> Tool {
    let about = About {
        name: "council_start",
        title: "Start a council",
        description: "Starts several coding agents on one git repository that plan, build in rounds, review each other and \
vote; use it for work that gains from more than one view. Each member has its own worktree and branch, the server \
merges after every round, and your checkout is not touched before council_accept. Votes end the talk; a contract \
decides whether the work is good. Returns at once. Next: council_status with the id and waitMs.",
        toolset: Toolset::Council,
        hints: Hints::WORK,
        length: Length::Works,
        pairs: &["council_status", "council_abort"],
    };
    Tool::gathering::<StartShape, CouncilBrief, _, _>(about, run)
}

async fn run(kernel: KernelHandle, args: Object, problems: Vec<Problem>, context: CallContext) -> Outcome {
    let draft = draft(args, problems, context);
    let mut started = kernel.get().await?.council_start(draft).await?;
    fit(&mut started.council, RESULT_MAX);
    let id = &started.council.id;
    let how = if started.existing { "was started before with this idempotency key" } else { "is started" };
    let mut text = format!("Council {id} {how}. ");
    for warning in &started.council.warnings {
        text.push_str(&format!("Warning: {}. ", warning.trim_end_matches('.')));
    }
    text.push_str(&format!("Next: council_status {{\"id\": \"{id}\", \"waitMs\": 50000}}."));
    let uri = format!("clawo://run/{}", started.council.run_id);
    Ok(ToolResult::new(&started, text)?.link(uri, "run record", "application/json"))
}

/// What the caller described, as far as it can be read.
fn draft(mut args: Object, mut problems: Vec<Problem>, context: CallContext) -> CouncilDraft {
    let text = |value: Option<Value>| value.and_then(|value| value.as_str().map(str::to_owned));
    let dir = text(args.remove("projectDir")).and_then(|dir| match absolute("projectDir", &dir) {
        Ok(path) => Some(path),
        Err(_) => {
            problems.push(Problem::new("projectDir", "must be an absolute directory"));
            None
        }
    });
    CouncilDraft {
        project_dir: dir,
        contract: args.remove("contract"),
        idempotency_key: text(args.remove("idempotencyKey")),
        parent: context.parent,
        local: context.local,
        fields: args,
        problems,
    }
}
