//! The tasks extension: a start or check answered as a task whose id is the run id or label.
//!
//! Nothing is kept here. A task is a view of a run or a stored check, so it resolves after a restart and in
//! another process, and the plain tools see the same thing under the same id.

use rmcp::{
    ErrorData,
    model::{
        CallToolResult, CreateTaskResult, DetailedTask, ElicitRequest, ElicitResult, InputRequest, InputRequests,
        InputResponses, JsonObject, Task, TaskPayload, TaskStatus,
    },
};
use serde_json::Value;

use super::{convert, elicit, errors};
use crate::{
    kernel::{Error, Kernel, RunView, StatusQuery},
    model::{Code, RunId, RunOutcome, RunState},
    tools::{Answer, KernelHandle, Outcome, ToolResult, summary, verify_run::Checks, workflow_evidence},
};

/// How often a client should ask, in milliseconds.
const POLL_MS: u64 = 2000;

/// Whether the client can be asked questions inside a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asking {
    /// It declared forms.
    Possible,
    /// It did not.
    Impossible,
}

/// The task for a call that answered with a handle; `None` when its result should be sent as it is.
pub async fn create(kernel: &KernelHandle, checks: &Checks, outcome: &Outcome) -> Option<CreateTaskResult> {
    let structured = &outcome.as_ref().ok()?.structured;
    let word = |name: &str| structured.get(name).and_then(Value::as_str);
    let task = if structured.get("running").is_some() {
        let entry = checks.get(word("label")?)?;
        task(
            &entry.label,
            TaskStatus::Working,
            &entry.created.to_string(),
            &entry.created.to_string(),
            "the checks run",
        )
    } else {
        let view = kernel.get().await.ok()?.status(word("runId").or(word("id"))?, StatusQuery::default()).await.ok()?;
        of_run(&view, TaskStatus::Working)
    };
    Some(CreateTaskResult::new(task))
}

fn task(id: &str, status: TaskStatus, created: &str, updated: &str, message: &str) -> Task {
    Task::new(id, status, created, updated).with_status_message(message).with_poll_interval_ms(POLL_MS)
}

fn of_run(view: &RunView, status: TaskStatus) -> Task {
    let (created, updated) = (view.created_at.to_string(), view.updated_at.to_string());
    task(view.run_id.as_str(), status, &created, &updated, &summary::run(view))
}

fn parse(id: &str) -> Result<RunId, ErrorData> {
    RunId::parse(id).map_err(|_| unknown(id))
}

fn unknown(id: &str) -> ErrorData {
    ErrorData::invalid_params(format!("there is no task '{}'", crate::tools::args::shown(id)), None)
}

/// `tasks/get`.
pub async fn get(kernel: &KernelHandle, checks: &Checks, id: &str, asking: Asking) -> Result<DetailedTask, ErrorData> {
    let run = parse(id)?;
    if let Some(entry) = checks.get(run.as_str()) {
        let created = entry.created.to_string();
        let base = task(run.as_str(), TaskStatus::Working, &created, &created, "the checks run");
        return Ok(match entry.outcome() {
            None => DetailedTask::new(base, TaskPayload::Working),
            Some(outcome) => DetailedTask::new(base, completed(outcome)?),
        });
    }
    let kernel = kernel.get().await.map_err(|e| errors::protocol(&e))?;
    match kernel.status(run.as_str(), StatusQuery::default()).await {
        Ok(view) => run_task(&view, asking),
        Err(e) if e.code == Code::RunNotFound => stored_check(&kernel, &run).await,
        Err(e) => Err(errors::protocol(&e)),
    }
}

async fn stored_check(kernel: &Kernel, label: &RunId) -> Result<DetailedTask, ErrorData> {
    let evidence = kernel.evidence(label.as_str(), None).await.map_err(|_| unknown(label.as_str()))?;
    let at = evidence.bundle.created_at.to_string();
    let outcome = workflow_evidence::answer(evidence, label.as_str(), None);
    let base = task(label.as_str(), TaskStatus::Completed, &at, &at, "the checks ended");
    Ok(DetailedTask::new(base, completed(outcome)?))
}

fn run_task(view: &RunView, asking: Asking) -> Result<DetailedTask, ErrorData> {
    let payload = if view.state.is_terminal() {
        completed(run_result(view))?
    } else if let (Some(gate), Asking::Possible) = (&view.gate, asking) {
        match elicit::form(view.run_id.as_str(), gate) {
            Some(form) => {
                let mut input_requests = InputRequests::new();
                input_requests
                    .insert(question(&gate.node, gate.visit), InputRequest::Elicitation(ElicitRequest::new(form)));
                TaskPayload::InputRequired { input_requests }
            }
            None => TaskPayload::Working,
        }
    } else {
        TaskPayload::Working
    };
    Ok(DetailedTask::new(of_run(view, payload.status()), payload))
}

/// The result of a start whose run has ended: what the tool answers, and how it ended.
fn run_result(view: &RunView) -> Outcome {
    let ended = Ended {
        run_id: &view.run_id,
        workflow: &view.workflow,
        state: view.state,
        nodes: view.nodes.iter().map(|node| node.id.as_str()).collect(),
        warnings: [],
        outcome: view.outcome,
        outcome_reason: view.outcome_reason.as_deref(),
        evidence_id: view.evidence_id.as_deref(),
        cost_usd: view.cost_usd,
    };
    ToolResult::new(&ended, summary::run(view))
}

/// Fits the output schema of the tool that started the run.
#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct Ended<'v> {
    run_id: &'v RunId,
    workflow: &'v str,
    state: RunState,
    nodes: Vec<&'v str>,
    warnings: [&'v str; 0],
    outcome: Option<RunOutcome>,
    outcome_reason: Option<&'v str>,
    evidence_id: Option<&'v str>,
    cost_usd: f64,
}

fn completed(outcome: Outcome) -> Result<TaskPayload, ErrorData> {
    let result: CallToolResult = convert::result(outcome, None);
    match serde_json::to_value(result) {
        Ok(Value::Object(result)) => Ok(TaskPayload::Completed { result: JsonObject::from(result) }),
        Ok(_) | Err(_) => Err(ErrorData::internal_error("the result could not be written", None)),
    }
}

/// Name of the question about a gate, unique over the life of a run.
fn question(node: &str, visit: u32) -> String {
    format!("gate-{node}-{visit}")
}

/// `tasks/update`: answers to the open gate; answers to anything else are ignored.
pub async fn update(kernel: &KernelHandle, id: &str, responses: &InputResponses) -> Result<(), ErrorData> {
    let run = parse(id)?;
    let kernel = kernel.get().await.map_err(|e| errors::protocol(&e))?;
    let view = kernel.status(run.as_str(), StatusQuery::default()).await.map_err(|e| errors::protocol(&e))?;
    let Some(gate) = &view.gate else { return Ok(()) };
    let Some(response) = responses.get(&question(&gate.node, gate.visit)) else { return Ok(()) };
    let result: ElicitResult = serde_json::from_value(response.clone())
        .map_err(|e| ErrorData::invalid_params(format!("the answer is not an elicitation result: {e}"), None))?;
    let (approved, comment) = match elicit::read(&result) {
        Answer::Approve(comment) => (true, comment),
        Answer::Reject(comment) => (false, comment),
        Answer::None | Answer::Deferred => return Ok(()),
    };
    match kernel.approve(run.as_str(), approved, comment).await {
        Ok(_) => Ok(()),
        // Somebody else was faster; theirs stands.
        Err(Error { code: Code::GateNotWaiting, .. }) => Ok(()),
        Err(e) => Err(errors::protocol(&e)),
    }
}

/// `tasks/cancel`: ends the run or kills the check.
pub async fn cancel(kernel: &KernelHandle, checks: &Checks, id: &str) -> Result<(), ErrorData> {
    let run = parse(id)?;
    if let Some(entry) = checks.get(run.as_str()) {
        entry.cancel.cancel();
        return Ok(());
    }
    let kernel = kernel.get().await.map_err(|e| errors::protocol(&e))?;
    match kernel.cancel(run.as_str(), Some("the host cancelled the task".to_owned())).await {
        Ok(_) => Ok(()),
        Err(Error { code: Code::RunTerminal, .. }) => Ok(()),
        Err(e) => Err(errors::protocol(&e)),
    }
}
