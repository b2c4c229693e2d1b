//! Everything that is checked before anything is written: shape, directories, engines, runs, reachability.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use serde_json::Value;

use super::{
    Error, Inner, Source, StartRequest, forecast,
    spec::{self, NOT_YET, Origin, SUBFLOW_DEPTH_MAX},
    templates,
    view::Validation,
};
use crate::{
    config::paths::check_dir,
    engines::{Opt, Support, custom},
    model::{
        CheckSpec, Code, Contract, NodeKind, Problem, RunId, WorkflowSpec,
        spec::{Condition, ContractSource, EngineChoice, GoalNode, SandboxMode, SubflowSource, VERIFY_NODE, Workspace},
    },
    nodes::Customs,
};

/// A request that passed.
#[derive(Debug)]
pub(super) struct Valid {
    /// Normalised, with a resolved directory.
    pub(super) spec: WorkflowSpec,
    /// What was dropped or looks odd.
    pub(super) warnings: Vec<Problem>,
}

/// Checks a request. Blocking: it looks at directories and stored runs.
pub(super) fn request(kernel: &Inner, request: &StartRequest) -> Result<Valid, Vec<Problem>> {
    let mut errors = Vec::new();
    let document = match &request.source {
        Source::Spec(value) | Source::Tool(_, value) => value.clone(),
        Source::Template { name, task, args } => {
            match templates::build(name, task, args, request.contract.as_ref().filter(|c| !c.is_null())) {
                Ok(value) => value,
                Err(problems) => {
                    errors = problems;
                    Value::Null
                }
            }
        }
    };
    if !errors.is_empty() {
        return Err(errors);
    }
    let cwd = request.cwd.as_ref().map(|p| p.to_string_lossy().into_owned());
    let contract = request.contract.as_ref().filter(|c| !c.is_null());
    let origin = match &request.source {
        Source::Spec(_) | Source::Template { .. } => Origin::Caller,
        Source::Tool(..) => Origin::Tool,
    };
    let read = spec::read(&document, "", origin, cwd.as_deref(), contract);
    let mut errors = read.errors;
    let mut warnings = read.warnings;
    if let Some(id) = &request.run_id
        && let Err(e) = RunId::parse(id)
    {
        errors.push(Problem::new("runId", e.to_string()));
    }
    let Some(mut spec) = read.spec else { return Err(errors) };
    match check_dir(kernel.services.fs.as_ref(), &kernel.services.config, Path::new(&spec.cwd)) {
        Ok(dir) => spec.cwd = dir.to_string_lossy().into_owned(),
        Err((code, why)) => {
            errors.push(Problem::new("cwd", format!("{why} ({code})")));
            // Nothing of it can be found from a directory that is none.
            spec.contract = None;
        }
    }
    // Callers of our own tools are told everything at once.
    if errors.is_empty() || origin == Origin::Tool {
        let own = request.run_id.as_deref();
        let mut seen = BTreeSet::new();
        references(kernel, &spec, "", own, &request.customs, 1, &mut seen, &mut errors, &mut warnings);
    }
    if errors.is_empty() { Ok(Valid { spec, warnings }) } else { Err(errors) }
}

/// The error of a refused start: its code says whether a later version would take it.
pub(super) fn refusal(problems: &[Problem]) -> Error {
    let later =
        problems.iter().any(|p| p.message.contains(NOT_YET) || p.message.contains("not available in this version"));
    let path = problems.iter().find(|p| p.path == "cwd").filter(|_| problems.len() == 1);
    let code = if later {
        Code::NotAvailableYet
    } else if let Some(problem) = path {
        [Code::PathNotFound, Code::PathNotDirectory, Code::PathRefused]
            .into_iter()
            .find(|code| problem.message.ends_with(&format!("({code})")))
            .unwrap_or(Code::SpecInvalid)
    } else {
        Code::SpecInvalid
    };
    // The code stands beside the sentence; nobody needs it twice.
    let told = problems.iter().map(|p| {
        let message = p.message.strip_suffix(&format!(" ({code})")).unwrap_or(&p.message);
        Problem::new(p.path.clone(), message)
    });
    Error::problems(code, "the workflow is not valid", &told.collect::<Vec<_>>())
}

/// Checks what a spec refers to, subflows included.
#[expect(clippy::too_many_arguments, reason = "one recursive walk that carries its findings")]
fn references(
    kernel: &Inner,
    spec: &WorkflowSpec,
    base: &str,
    own: Option<&str>,
    customs: &Customs,
    depth: u32,
    seen: &mut BTreeSet<String>,
    errors: &mut Vec<Problem>,
    warnings: &mut Vec<Problem>,
) {
    let root = PathBuf::from(&spec.cwd);
    own_checkout(spec, base, errors);
    let contract_path = join(base, "contract");
    if let Some(contract) = &spec.contract {
        contract_dirs(kernel, contract, &root, &contract_path, errors);
    }
    for (index, node) in spec.nodes.iter().enumerate() {
        let at = join(base, &format!("nodes[{index}]"));
        match &node.kind {
            NodeKind::Agent(agent) => {
                directory(kernel, &root, agent.cwd.as_deref(), "cwd", &at, errors);
                engine(kernel, &agent.choice, &join(&at, "engine"), errors);
            }
            NodeKind::Fanout(fanout) => {
                directory(kernel, &root, fanout.cwd.as_deref(), "cwd", &at, errors);
                for (i, agent) in fanout.agents.iter().enumerate() {
                    let place = format!("{at}.agents[{i}].engine");
                    member(kernel, &agent.name, &agent.choice, customs, &place, errors);
                    if agent.sandbox == Some(SandboxMode::ReadOnly) {
                        read_only(kernel, &agent.choice, &format!("{at}.agents[{i}].sandboxMode"), errors);
                    }
                }
                if fanout.synthesize {
                    engine(kernel, &fanout.synthesis, &join(&at, "synthesisEngine"), errors);
                }
            }
            NodeKind::Council(council) => {
                directory(kernel, &root, council.project_dir.as_deref(), "projectDir", &at, errors);
                for (i, agent) in council.agents.iter().enumerate() {
                    let place = format!("{at}.agents[{i}].engine");
                    member(kernel, &agent.name, &agent.choice, customs, &place, errors);
                }
            }
            NodeKind::Goal(goal) => {
                directory(kernel, &root, goal.cwd.as_deref(), "cwd", &at, errors);
                follower(kernel, goal, &at, errors);
            }
            NodeKind::Verifier(verifier) => {
                let dir = directory(kernel, &root, verifier.cwd.as_deref(), "cwd", &at, errors);
                let contract = match &verifier.contract {
                    ContractSource::Inline(contract) => {
                        contract_dirs(kernel, contract, &dir, &join(&at, "contract"), errors);
                        Some(contract)
                    }
                    ContractSource::Run => spec.contract.as_ref(),
                };
                if contract.is_none() {
                    warnings.push(Problem::new(at.clone(), "checks nothing: the run has no contract"));
                }
                if contract.is_some_and(|c| c.fix_on_failure_rounds > 0) {
                    engine(kernel, &verifier.choice, &join(&at, "engine"), errors);
                }
            }
            NodeKind::Subflow(subflow) => {
                let path = join(&at, "workflow");
                if depth >= SUBFLOW_DEPTH_MAX {
                    errors.push(Problem::new(path, format!("subflows are nested more than {SUBFLOW_DEPTH_MAX} deep")));
                    continue;
                }
                match &subflow.workflow {
                    SubflowSource::Inline(value) => {
                        let read =
                            spec::read(value, &path, Origin::Caller, inline_cwd(value, &spec.cwd).as_deref(), None);
                        errors.extend(read.errors);
                        warnings.extend(read.warnings);
                        if let Some(child) = read.spec {
                            references(
                                kernel,
                                &child,
                                &path,
                                own,
                                &Customs::default(),
                                depth + 1,
                                seen,
                                errors,
                                warnings,
                            );
                        }
                    }
                    SubflowSource::RunId(id) => stored(kernel, id, &path, own, depth, seen, errors, warnings),
                }
            }
            NodeKind::HumanGate(_) | NodeKind::Router(_) => {}
        }
    }
    for id in unreachable(spec) {
        if id != VERIFY_NODE {
            warnings.push(Problem::new(join(base, "nodes"), format!("nothing leads to node '{id}'")));
        }
    }
}

/// A run with its own worktree leaves the caller's checkout alone, so its nodes may not name that one outright.
fn own_checkout(spec: &WorkflowSpec, base: &str, errors: &mut Vec<Problem>) {
    if spec.workspace != Workspace::Worktree {
        return;
    }
    for (index, node) in spec.nodes.iter().enumerate() {
        let cwd = match &node.kind {
            NodeKind::Agent(n) => n.cwd.as_deref(),
            NodeKind::Fanout(n) => n.cwd.as_deref(),
            NodeKind::Verifier(n) => n.cwd.as_deref(),
            NodeKind::Goal(n) => n.cwd.as_deref(),
            NodeKind::Council(n) => n.project_dir.as_deref(),
            NodeKind::HumanGate(_) | NodeKind::Router(_) | NodeKind::Subflow(_) => None,
        };
        if cwd.is_some_and(|dir| Path::new(dir).is_absolute() && Path::new(dir).starts_with(&spec.cwd)) {
            let why =
                "lies in the checkout that workspace \"worktree\" leaves alone; give it relative to the run's cwd";
            errors.push(Problem::new(join(base, &format!("nodes[{index}].cwd")), why));
        }
    }
}

/// The directory of an inline child: its own, else its parent's.
pub(super) fn inline_cwd(value: &Value, parent: &str) -> Option<String> {
    match value.get("cwd").and_then(Value::as_str) {
        Some(own) => Some(Path::new(parent).join(own).to_string_lossy().into_owned()),
        None => Some(parent.to_owned()),
    }
}

/// Follows a subflow that names an existing run.
#[expect(clippy::too_many_arguments, reason = "one recursive walk that carries its findings")]
fn stored(
    kernel: &Inner,
    id: &str,
    path: &str,
    own: Option<&str>,
    depth: u32,
    seen: &mut BTreeSet<String>,
    errors: &mut Vec<Problem>,
    warnings: &mut Vec<Problem>,
) {
    if own == Some(id) {
        errors.push(Problem::new(path, format!("the run '{id}' would contain itself")));
        return;
    }
    if !seen.insert(id.to_owned()) {
        return;
    }
    let Ok(run) = RunId::parse(id) else { return };
    match kernel.store.load(&run) {
        Ok(loaded) => {
            let read = spec::read(&loaded.spec, "", Origin::Stored, None, None);
            if let Some(child) = read.spec {
                let before = errors.len();
                references(kernel, &child, "", own, &Customs::default(), depth + 1, seen, errors, warnings);
                // What is wrong inside a stored spec is told at the reference, where the caller can act.
                for problem in errors.iter_mut().skip(before) {
                    problem.message = format!("in run '{id}' at {}: {}", problem.path, problem.message);
                    path.clone_into(&mut problem.path);
                }
            }
        }
        Err(e) => errors.push(Problem::new(path, e.to_string())),
    }
}

fn join(base: &str, key: &str) -> String {
    if base.is_empty() { key.to_owned() } else { format!("{base}.{key}") }
}

/// A node's own directory, which must exist below the rule; the run's where it has none.
fn directory(
    kernel: &Inner,
    root: &Path,
    own: Option<&str>,
    field: &str,
    at: &str,
    errors: &mut Vec<Problem>,
) -> PathBuf {
    let Some(own) = own else { return root.to_path_buf() };
    let dir = root.join(own);
    match check_dir(kernel.services.fs.as_ref(), &kernel.services.config, &dir) {
        Ok(_) => {}
        Err((code, why)) => errors.push(Problem::new(join(at, field), format!("{why} ({code})"))),
    }
    dir
}

/// Directories of command checks, which must exist at start.
fn contract_dirs(kernel: &Inner, contract: &Contract, root: &Path, at: &str, errors: &mut Vec<Problem>) {
    for (i, check) in contract.checks.iter().enumerate() {
        if let CheckSpec::Command { cwd: Some(cwd), .. } = &check.spec
            && let Err((code, why)) = check_dir(kernel.services.fs.as_ref(), &kernel.services.config, &root.join(cwd))
        {
            errors.push(Problem::new(format!("{at}.checks[{i}].cwd"), format!("{why} ({code})")));
        }
    }
}

/// Whether somebody answers to a choice.
fn engine(kernel: &Inner, choice: &EngineChoice, at: &str, errors: &mut Vec<Problem>) {
    match kernel.services.registry.resolve(choice) {
        // Its config may hold credentials, and a spec is written to disk.
        Ok(engine) if engine.program_in_options() => {
            let text =
                format!("engine `{}` runs a program that no spec can describe; use it in a session", engine.name());
            errors.push(Problem::new(at, text));
        }
        Ok(engine) => errors.extend(engine.check(choice).into_iter().map(|why| Problem::new(at, why))),
        Err(e) => errors.push(Problem::new(at, e.to_string())),
    }
}

/// Whether somebody answers to the choice of a named agent, whose program may have been described with the request.
fn member(kernel: &Inner, name: &str, choice: &EngineChoice, customs: &Customs, at: &str, errors: &mut Vec<Problem>) {
    let described = choice.engine.as_deref() == Some(custom::NAME) && customs.contains_key(name);
    if !described {
        engine(kernel, choice, at, errors);
    }
}

/// Whether somebody follows a goal.
fn follower(kernel: &Inner, goal: &GoalNode, at: &str, errors: &mut Vec<Problem>) {
    engine(kernel, &goal.choice, &join(at, "engine"), errors);
    let resolved = kernel.services.registry.resolve(&goal.choice);
    if let Some(engine) = resolved.ok().filter(|e| !e.capabilities().goals) {
        errors.push(Problem::new(join(at, "engine"), format!("{} follows no goals", engine.name())));
    }
}

/// Whether whoever answers to a choice can be kept from writing.
fn read_only(kernel: &Inner, choice: &EngineChoice, at: &str, errors: &mut Vec<Problem>) {
    let found = kernel.services.registry.resolve(choice);
    if let Some(engine) = found.ok().filter(|engine| engine.support(Opt::ReadOnly) == Support::Refused) {
        let text = format!("engine `{}` cannot be kept from writing; use another one", engine.name());
        errors.push(Problem::new(at, text));
    }
}

/// Nodes that control can never reach.
fn unreachable(spec: &WorkflowSpec) -> Vec<String> {
    let mut reached = BTreeSet::new();
    let mut open = vec![0];
    while let Some(index) = open.pop() {
        let Some(node) = spec.nodes.get(index) else { continue };
        if !reached.insert(index) {
            continue;
        }
        let position = |id: &crate::model::NodeId| spec.node(id.as_str()).map(|(i, _)| i);
        match &node.kind {
            NodeKind::Router(router) => {
                open.extend(router.routes.iter().filter_map(|r| position(&r.to)));
                // A route that always holds leaves nothing for what stands behind it.
                if !router.routes.iter().any(|r| r.when == Condition::Always) {
                    open.push(router.default.as_ref().and_then(position).unwrap_or(index + 1));
                }
            }
            NodeKind::Agent(_)
            | NodeKind::Fanout(_)
            | NodeKind::Verifier(_)
            | NodeKind::HumanGate(_)
            | NodeKind::Subflow(_)
            | NodeKind::Goal(_)
            | NodeKind::Council(_) => open.push(node.next.as_ref().and_then(position).unwrap_or(index + 1)),
        }
    }
    let all = spec.nodes.iter().enumerate();
    all.filter(|(i, _)| !reached.contains(i)).map(|(_, n)| n.id.to_string()).collect()
}

/// The answer of a validation.
pub(super) fn answer(kernel: &Inner, start: &StartRequest) -> Validation {
    match request(kernel, start) {
        Ok(valid) => Validation {
            ok: true,
            errors: Vec::new(),
            forecast: Some(forecast::of(&valid.spec)),
            spec: Some(spec::write(&valid.spec)),
            warnings: valid.warnings,
        },
        Err(errors) => Validation { ok: false, errors, warnings: Vec::new(), spec: None, forecast: None },
    }
}
