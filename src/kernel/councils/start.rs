//! Starting a council: everything that can be wrong is told at once, before anything exists.

mod draft;

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{CouncilQuery, dispositions, find, invalid};
use crate::{
    kernel::{Error, Kernel, Result, Source, StartRequest, naming, spec, validate},
    model::{Code, Problem, RunId},
    nodes::council::{
        case::Case,
        data::{INTEGRATION, Status},
        disposition::Held,
        preflight,
        refusal::Refusal,
        view::CouncilView,
        warnings,
    },
    sys::{ids, tasks},
    verify::evidence::sha256,
};

/// Name of the workflow of a council that is a run of its own.
pub(super) const WORKFLOW: &str = "council";
/// Begins the ids of those runs.
const KIND: &str = "council";
/// Its node.
const NODE: &str = "main";
/// Longest message of an acceptance, in characters.
pub const MERGE_MESSAGE_MAX: usize = 5_000;
/// Ids tried for one idempotency key; each is used for a day.
const KEY_ROUNDS: u32 = 1000;

/// A council that is to be started, as its caller described it.
#[derive(Debug, Clone, Default)]
pub struct CouncilDraft {
    /// Fields of the node that could be read: `task`, `agents`, `maxRounds`, ...
    pub fields: Map<String, Value>,
    /// The project; absolute.
    pub project_dir: Option<PathBuf>,
    /// Acceptance contract as the caller wrote it.
    pub contract: Option<Value>,
    /// The same key within a day returns the same council.
    pub idempotency_key: Option<String>,
    /// Run the caller itself belongs to.
    pub parent: Option<String>,
    /// Whether the caller may describe programs.
    pub local: bool,
    /// What was found wrong already.
    pub problems: Vec<Problem>,
}

/// A council that was started.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CouncilStarted {
    /// The council.
    #[serde(flatten)]
    pub council: CouncilView,
    /// The idempotency key belonged to a council that was started before.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub existing: bool,
}

/// The council that a new one goes on with, locked until it is marked.
struct Former {
    case: Case,
    held: Held,
}

/// Starts a council.
pub(super) async fn start(kernel: &Kernel, mut draft: CouncilDraft) -> Result<CouncilStarted> {
    let id = match &draft.idempotency_key {
        Some(key) => match keyed(kernel, key).await? {
            (id, true) => return answer(kernel, &id, Vec::new(), true).await,
            (id, false) => id,
        },
        None => ids::handle(KIND, kernel.services().clock.wall()),
    };
    let former = match former(kernel, &draft).await {
        Ok(former) => former,
        Err(e) if draft.problems.is_empty() => return Err(e),
        Err(e) => {
            draft.problems.push(Problem::new("continueFrom", e.message));
            None
        }
    };
    if let Some(former) = &former {
        draft::inherit(&mut draft.fields, &draft.problems, former_node(kernel, &former.case).await?.as_ref());
    }
    let read = draft::read(draft, &kernel.services().config.env)?;
    let (mut notes, request) = (read.notes, request(read.spec, read.rest, &id));
    check(kernel, &request, read.problems).await?;
    let standing = preflight(&kernel.services().git, &cwd(&request), read.allow_dirty).await;
    let standing = standing.map_err(|(code, text)| Error::new(code, text))?;
    if let Some(former) = &former {
        same_repository(&standing.repo, &former.case).await?;
    }
    notes.extend(warnings(&standing));
    let started = kernel.start(request).await?;
    if let Some(former) = former {
        let mut disposition = former.held.load().await?;
        disposition.continued_by = Some(started.run_id.to_string());
        former.held.save(&disposition).await?;
    }
    notes.extend(started.warnings.iter().map(ToString::to_string));
    answer(kernel, started.run_id.as_str(), notes, started.existing).await
}

async fn answer(kernel: &Kernel, id: &str, notes: Vec<String>, existing: bool) -> Result<CouncilStarted> {
    let mut council = kernel.council_status(id, CouncilQuery::default()).await?;
    for note in notes {
        if !council.warnings.contains(&note) {
            council.warnings.push(note);
        }
    }
    Ok(CouncilStarted { council, existing })
}

fn request(document: Value, rest: draft::Rest, id: &str) -> StartRequest {
    StartRequest {
        source: Source::Spec(document),
        cwd: rest.project_dir,
        run_id: Some(id.to_owned()),
        contract: rest.contract,
        auto_resume: false,
        idempotency_key: rest.idempotency_key,
        parent: rest.parent,
        customs: rest.customs,
    }
}

fn cwd(request: &StartRequest) -> PathBuf {
    request.cwd.clone().unwrap_or_else(|| Path::new("/").to_path_buf())
}

/// Everything wrong with a request, in the caller's own words for its fields.
async fn check(kernel: &Kernel, request: &StartRequest, mut problems: Vec<(Code, Problem)>) -> Result<()> {
    let (inner, asked) = (kernel.inner.clone(), request.clone());
    let checked = tasks::blocking("validate", move || validate::request(&inner, &asked)).await;
    let found = checked.map_err(|e| crate::kernel::internal(&e))?.err().unwrap_or_default();
    for problem in found {
        let (code, problem) = draft::own_words(problem);
        // What could not be read is told already and missing now.
        let follows = |known: &Problem| {
            let member = problem.path.strip_suffix(".engine").unwrap_or("?");
            known.path == problem.path || known.path.starts_with(&format!("{member}.customEngine"))
        };
        if !problems.iter().any(|(_, known)| follows(known)) {
            problems.push((code, problem));
        }
    }
    let Some((first, _)) = problems.first() else { return Ok(()) };
    let code = if problems.iter().all(|(code, _)| code == first) { *first } else { Code::InvalidArgument };
    let list: Vec<String> = problems.iter().map(|(_, problem)| problem.to_string()).collect();
    let fields: Vec<Value> = problems.iter().map(|(_, p)| json!({ "path": p.path, "problem": p.message })).collect();
    Err(Error { code, message: list.join("; "), details: Some(json!({ "fields": fields })) })
}

/// The id that belongs to a key now, and whether its council is there already.
async fn keyed(kernel: &Kernel, key: &str) -> Result<(String, bool)> {
    naming::check_key(key)?;
    for round in 0..KEY_ROUNDS {
        let id = ids::handle_of(KIND, &sha256(format!("{KIND} {round} {key}").as_bytes()));
        let run = RunId::parse(&id).map_err(|e| crate::kernel::internal(&e))?;
        match crate::kernel::query::load(&kernel.inner, &run).await {
            Err(e) if e.code == Code::RunNotFound => return Ok((id, false)),
            Err(e) => return Err(e),
            Ok(found) if naming::fresh(&kernel.inner, &found.record) => return Ok((id, true)),
            Ok(_) => {}
        }
    }
    Err(Error::new(Code::Busy, "the idempotency key was used too often; choose another"))
}

/// The council to go on with, when one is named and it can be gone on with.
async fn former(kernel: &Kernel, draft: &CouncilDraft) -> Result<Option<Former>> {
    let Some(id) = draft.fields.get("continueFrom").and_then(Value::as_str) else { return Ok(None) };
    let case = find::find(&kernel.inner, id).await?.case;
    if !case.run_ended() {
        let text = format!("continueFrom: council '{id}' goes on; wait until it has ended, or abort it");
        return Err(Error::new(Code::CouncilRunning, text));
    }
    let held = dispositions(&kernel.inner).lock(&case.id).await?;
    let disposition = held.load().await?;
    if disposition.over(case.status()) == Status::Accepted {
        return Err(Error::new(Code::CouncilAccepted, format!("continueFrom: the work of council '{id}' is accepted")));
    }
    if let Some(next) = &disposition.continued_by
        && stands(kernel, next).await?
    {
        let text = format!("continueFrom: council '{id}' is gone on with by '{next}'");
        return Err(Error {
            details: Some(json!({ "continuedBy": next })),
            ..Error::new(Code::CouncilContinued, text)
        });
    }
    Ok(Some(Former { case, held }))
}

/// Whether a council goes on or has something to show; one that failed before it was set up has not.
async fn stands(kernel: &Kernel, id: &str) -> Result<bool> {
    match find::find(&kernel.inner, id).await {
        Ok(found) => Ok(!found.case.run_ended() || !found.case.starts.is_empty()),
        Err(e) if e.code == Code::RunNotFound => Ok(false),
        Err(e) => Err(e),
    }
}

/// The former council's node as its spec has it.
async fn former_node(kernel: &Kernel, case: &Case) -> Result<Option<Value>> {
    let found = crate::kernel::query::load(&kernel.inner, &case.run_id).await?;
    let document = spec::write(&found.spec);
    let nodes = document.get("nodes").and_then(Value::as_array);
    let own = |node: &&Value| node.get("id").and_then(Value::as_str) == Some(case.node.as_str());
    Ok(nodes.and_then(|nodes| nodes.iter().find(own)).cloned())
}

/// Refuses to go on in another repository than the former council's.
async fn same_repository(repo: &crate::git::Repo, former: &Case) -> Result<()> {
    let lost = || Refusal::lost(&former.id, "the integration branch");
    let layout = former.layout.as_ref().ok_or_else(lost)?;
    let refused = |e: crate::git::Error| Error::from(Refusal::from(e));
    let tip = repo.branch_tip(&layout.branch(INTEGRATION)).await.map_err(refused)?;
    if tip.is_some() {
        return Ok(());
    }
    if repo.top() == Path::new(&layout.top) {
        return Err(lost().into());
    }
    Err(invalid("continueFrom", &format!("council '{}' lies in another repository, {}", former.id, layout.top)))
}
