//! Evidence bundles of runs and labels, node outputs, and checks without a run.

use std::sync::Arc;

use super::{Error, Evidence, Inner, Result, VerifyRequest, query, verdict};
use crate::{
    config::paths::check_dir,
    model::{Code, EvidenceBundle, RunId, run::Baseline},
    sys::tasks,
    verify::{self, contract},
};

/// Largest bundle.json or manifest read.
const DOCUMENT_MAX: usize = 16 << 20;
/// Largest file of a bundle handed out.
const FILE_MAX: usize = 64 << 20;

/// A bundle of a run or label; by default the one behind the verdict in force, else the newest.
pub(super) async fn bundle(kernel: &Arc<Inner>, run: &RunId, evidence_id: Option<&str>) -> Result<Evidence> {
    let default = match evidence_id {
        Some(_) => None,
        None => match query::load(kernel, run).await {
            Ok(found) => verdict::shown(&found.record)
                .and_then(|v| Some((v.evidence_run.clone().unwrap_or_else(|| run.clone()), v.evidence_id.clone()?))),
            Err(e) if e.code == Code::RunNotFound => None,
            Err(e) => return Err(e),
        },
    };
    let (run, wanted) = match default {
        Some((run, id)) => (run, Some(id)),
        None => (run.clone(), evidence_id.map(str::to_owned)),
    };
    let inner = kernel.clone();
    tasks::blocking("evidence", move || read(&inner, &run, wanted)).await.map_err(|e| super::internal(&e))?
}

fn read(kernel: &Inner, run: &RunId, wanted: Option<String>) -> Result<Evidence> {
    let none = |what: String| Error::new(Code::NoEvidence, what);
    let store = kernel.store.as_ref();
    let id = match wanted {
        Some(id) => checked(&id)?,
        None => {
            let mut ids = store.list_artifacts(run, "evidence").map_err(|e| missing(run, &e))?;
            ids.retain(|id| !id.starts_with('.'));
            // Ids hold two-digit counters, but runs may pass 99 visits: the newest is the one written last.
            newest(kernel, run, &ids).ok_or_else(|| none(format!("'{run}' has no evidence yet")))?
        }
    };
    let dir = format!("evidence/{id}");
    let bytes = store.read_artifact(run, &format!("{dir}/bundle.json"), 0, DOCUMENT_MAX).map_err(|e| {
        let absent = matches!(&e, crate::store::Error::Io(io) if io.is_not_found());
        if absent { none(format!("'{run}' has no evidence '{id}'")) } else { missing(run, &e) }
    })?;
    let bundle: EvidenceBundle = serde_json::from_slice(&bytes)
        .map_err(|e| Error::new(Code::RunCorrupt, format!("the bundle '{id}' of '{run}' does not parse: {e}")))?;
    let files = listed(kernel, run, &dir).map_err(|e| missing(run, &e))?;
    let path = kernel.services.config.wf_dir.join(run.as_str()).join(&dir);
    Ok(Evidence { bundle, path: Some(path), files, warnings: Vec::new() })
}

/// Names below a bundle's directory, `checks/` included.
fn listed(kernel: &Inner, run: &RunId, dir: &str) -> crate::store::Result<Vec<String>> {
    let mut files = Vec::new();
    for name in kernel.store.list_artifacts(run, dir)? {
        if name == "checks" {
            let inner = kernel.store.list_artifacts(run, &format!("{dir}/checks"))?;
            files.extend(inner.into_iter().map(|n| format!("checks/{n}")));
        } else {
            files.push(name);
        }
    }
    files.sort();
    Ok(files)
}

/// The bundle written last.
fn newest(kernel: &Inner, run: &RunId, ids: &[String]) -> Option<String> {
    let created = |id: &String| {
        let bytes = kernel.store.read_artifact(run, &format!("evidence/{id}/bundle.json"), 0, DOCUMENT_MAX).ok()?;
        serde_json::from_slice::<EvidenceBundle>(&bytes).ok().map(|b| b.created_at)
    };
    ids.iter().filter_map(|id| Some((created(id)?, id))).max().map(|(_, id)| id.clone())
}

fn missing(run: &RunId, error: &crate::store::Error) -> Error {
    if matches!(error, crate::store::Error::NotFound(_)) {
        return Error::new(Code::RunNotFound, format!("there is no run and no label '{run}'"));
    }
    super::store_error(error)
}

/// An evidence id is a plain name; anything else is refused before a path is built.
fn checked(id: &str) -> Result<String> {
    let plain = !id.is_empty()
        && id.len() <= 128
        && !id.starts_with('.')
        && id.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
    if plain { Ok(id.to_owned()) } else { Err(Error::new(Code::InvalidArgument, "evidenceId: not the id of a bundle")) }
}

/// A file of a bundle that its manifest names; nothing else.
pub(super) async fn file(kernel: &Arc<Inner>, run: &RunId, evidence_id: &str, name: &str) -> Result<Vec<u8>> {
    let id = checked(evidence_id)?;
    let (inner, run, name) = (kernel.clone(), run.clone(), name.to_owned());
    let read = move || {
        let store = inner.store.as_ref();
        let gone =
            |e: crate::store::Error| Error::new(Code::NoEvidence, format!("'{run}' has no evidence '{id}': {e}"));
        let manifest =
            store.read_artifact(&run, &format!("evidence/{id}/manifest.json"), 0, DOCUMENT_MAX).map_err(gone)?;
        let known = name == "manifest.json" || verify::relabel::names(&manifest).contains(&name);
        if !known {
            return Err(Error::new(Code::NoEvidence, "the bundle's manifest names no such file"));
        }
        store.read_artifact(&run, &format!("evidence/{id}/{name}"), 0, FILE_MAX).map_err(gone)
    };
    tasks::blocking("evidence file", read).await.map_err(|e| super::internal(&e))?
}

/// Full text of a node's latest output.
pub(super) async fn output(kernel: &Arc<Inner>, run: &RunId, node: &str, offset: u64, limit: usize) -> Result<String> {
    let found = query::load(kernel, run).await?;
    let output = found.record.node(node).and_then(|n| n.output.clone()).ok_or_else(|| query::no_node(run, node))?;
    let bytes = match output.file {
        None => {
            let skip = usize::try_from(offset).unwrap_or(usize::MAX).min(output.text.len());
            output.text.into_bytes().split_off(skip).into_iter().take(limit).collect()
        }
        Some(file) => {
            let (store, id) = (kernel.store.clone(), run.clone());
            let read = tasks::blocking("output", move || store.read_artifact(&id, &file.path, offset, limit)).await;
            read.map_err(|e| super::internal(&e))?.map_err(|e| super::store_error(&e))?
        }
    };
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Runs a contract once in a directory.
pub(super) async fn verify(kernel: &Arc<Inner>, request: VerifyRequest) -> Result<Evidence> {
    let services = &kernel.services;
    let (contract, warnings) = contract::normalise(&request.contract, "contract")
        .map_err(|problems| Error::problems(Code::ContractInvalid, "the contract is not valid", &problems))?;
    let label = match &request.label {
        None => None,
        Some(text) => Some(RunId::parse(text).map_err(|e| Error::new(Code::InvalidArgument, format!("label: {e}")))?),
    };
    let cwd = check_dir(services.fs.as_ref(), &services.config, &request.cwd)
        .map_err(|(code, why)| Error::new(code, format!("cwd: {why}")))?;
    if let Some(label) = &label {
        let (store, id) = (kernel.store.clone(), label.clone());
        let taken = tasks::blocking("label", move || store.exists(&id)).await.map_err(|e| super::internal(&e))?;
        if taken.map_err(|e| super::store_error(&e))? {
            let text = format!("label: '{label}' is the id of a run; choose another label");
            return Err(Error::new(Code::InvalidArgument, text));
        }
    }
    let base_sha = match &request.base_sha {
        None => None,
        Some(sha) if sha.is_empty() || sha.starts_with('-') || sha.len() > 256 || sha.contains('\0') => {
            return Err(Error::new(Code::InvalidArgument, "baseSha: not a commit"));
        }
        Some(sha) => Some(sha.clone()),
    };
    let in_git = matches!(services.git.open(&cwd).await, Ok(Some(_)));
    let verified = services
        .verifier
        .run(verify::Request {
            contract,
            cwd,
            baseline: Baseline { base_sha, in_git, ..Baseline::default() },
            protected: None,
            run_env: Vec::new(),
            evidence_id: "verify-01".to_owned(),
            run_id: label.as_ref().map(ToString::to_string),
            node: None,
            cancel: request.cancel,
            progress: request.progress,
            fixer: None,
        })
        .await
        .map_err(|e| match e {
            verify::Error::Cancelled => Error::new(Code::Cancelled, "the verification was cancelled"),
            other @ (verify::Error::Process(_)
            | verify::Error::Fs(_)
            | verify::Error::Encode(_)
            | verify::Error::Thread(_)) => Error::new(Code::Internal, other.to_string()),
        })?;
    let label = label.or_else(|| request.late_label.and_then(|late| late.get().cloned()));
    let Some(label) = label else {
        return Ok(Evidence { bundle: verified.bundle, path: None, files: Vec::new(), warnings });
    };
    let (store, id) = (kernel.store.clone(), label.clone());
    let stored = tasks::blocking("label", move || {
        let mut bundle = verified.bundle;
        let evidence_id = store.put_labelled(&id, &mut |evidence_id| {
            bundle.evidence_id = evidence_id.to_owned();
            bundle.run_id = Some(id.to_string());
            verify::relabel::renamed(&bundle, &verified.files)
        })?;
        bundle.evidence_id = evidence_id;
        Ok::<_, crate::store::Error>(bundle)
    })
    .await
    .map_err(|e| super::internal(&e))?;
    let bundle = stored.map_err(|e| super::store_error(&e))?;
    let dir = format!("evidence/{}", bundle.evidence_id);
    let files = listed(kernel, &label, &dir).map_err(|e| super::store_error(&e))?;
    let path = Some(services.config.wf_dir.join(label.as_str()).join(&dir));
    Ok(Evidence { bundle, path, files, warnings })
}

/// Brings a snapshot back.
pub(super) async fn restore(
    kernel: &Arc<Inner>,
    run: &RunId,
    at: Option<&str>,
    to: &crate::git::RestoreTo,
) -> Result<String> {
    let found = query::load(kernel, run).await?;
    let git_error = |e: crate::git::Error| Error::new(Code::InvalidArgument, e.to_string());
    let repo = kernel.services.git.open(std::path::Path::new(&found.record.cwd)).await.map_err(git_error)?;
    let repo = repo.ok_or_else(|| Error::new(Code::NoEvidence, "the run did not work in a git repository"))?;
    let prefix = super::workspace::snapshot_prefix(run);
    let refname = match at {
        Some(label) => format!("{prefix}{label}"),
        None => {
            let newest = found.record.nodes.iter().filter(|n| n.snapshot_ref.is_some());
            let newest = newest.max_by_key(|n| n.ended_at.or(n.started_at));
            newest
                .and_then(|n| n.snapshot_ref.clone())
                .ok_or_else(|| Error::new(Code::NoEvidence, "the run has no snapshot of its workspace"))?
        }
    };
    let refs = repo.refs(&prefix).await.map_err(git_error)?;
    if !refs.iter().any(|(name, _)| *name == refname) {
        let names: Vec<&str> = refs.iter().filter_map(|(name, _)| name.strip_prefix(&prefix)).collect();
        return Err(Error::new(Code::NoEvidence, format!("no such snapshot; there are: {}", names.join(", "))));
    }
    repo.restore(&refname, to).await.map_err(git_error)?;
    Ok(refname)
}
