//! Gathers the evidence of a verification: the bundle, the patch, the manifest.
//!
//! Makes bytes; storing them is the caller's.

use std::collections::BTreeSet;

use super::{
    Error, Request, Verified, Verifier,
    checks::{Repository, blocking},
    evidence,
    runner::Rounds,
};
use crate::{
    git::{ChangeSet, Repo},
    model::{EvidenceBundle, evidence::BUNDLE_VERSION},
    sys::redact::Redactor,
};

/// Largest patch kept. Beyond it the digest and the list of files still say what was judged.
const PATCH_MAX: usize = 64 << 20;
/// Most paths named in one note.
const NAMED_MAX: usize = 20;
/// Most changed files listed.
const CHANGED_MAX: usize = 1_000;

/// Makes everything that belongs into the evidence directory.
pub(super) async fn assemble(
    verifier: &Verifier,
    request: Request,
    rounds: Rounds,
    unkillable: Vec<String>,
) -> Result<Verified, Error> {
    let Rounds { results, mut files, used, mut notes, digest, repo } = rounds;
    if !unkillable.is_empty() {
        notes.push(format!("processes that could not be ended: {}", unkillable.join(", ")));
    }
    let mut changed_files = Vec::new();
    let mut head_sha = None;
    if let Repository::Found(repo) = &repo {
        match repo.head().await {
            Ok(head) => head_sha = head,
            Err(error) => notes.push(format!("HEAD is not known: {error}")),
        }
        match repo.changes(&request.baseline).await {
            Ok(set) => {
                notes.extend(undone(repo, &request, &set).await);
                let over = set.changes.len().saturating_sub(CHANGED_MAX);
                if over > 0 {
                    notes.push(format!("{over} further changed files are not listed"));
                }
                let redactor = verifier.redactor.clone();
                let listed = blocking(move || listed(&set, &redactor)).await;
                changed_files = listed.ok_or(Error::Thread("list the changed files"))?;
            }
            Err(error) => notes.push(format!("what changed is not known: {error}")),
        }
        if let Some(patch) = patch(repo, verifier, &request, &mut notes).await? {
            files.push((evidence::PATCH.to_owned(), patch));
        }
    }
    let contract_hash = evidence::contract_hash(&request.contract)?;
    let passed = results.iter().any(|r| r.required) && results.iter().all(|r| r.passed || !r.required);
    let bundle = EvidenceBundle {
        v: BUNDLE_VERSION,
        evidence_id: request.evidence_id,
        run_id: request.run_id,
        node: request.node,
        contract_id: request.contract.id.clone(),
        contract_hash,
        created_at: verifier.clock.wall(),
        cwd: request.cwd.to_string_lossy().into_owned(),
        base_sha: request.baseline.base_sha,
        head_sha,
        passed,
        rounds: used,
        results,
        changed_files,
        tree_digest: digest,
        contract: request.contract,
        host: host(),
        tool: "clawo".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        notes: notes.iter().map(|n| verifier.redactor.text(n)).collect(),
    };
    let mut encoded = serde_json::to_vec_pretty(&bundle)?;
    encoded.push(b'\n');
    files.insert(0, (evidence::BUNDLE.to_owned(), encoded));
    let files = blocking(move || {
        let mut files = files;
        let manifest = evidence::manifest(&files)?;
        files.push((evidence::MANIFEST.to_owned(), manifest));
        Ok::<_, serde_json::Error>(files)
    })
    .await
    .ok_or(Error::Thread("hash the evidence"))??;
    Ok(Verified { bundle, files, unkillable })
}

/// A note on what commits of the run touched and the tree no longer shows (VT-8), when there is any.
async fn undone(repo: &Repo, request: &Request, set: &ChangeSet) -> Option<String> {
    let touched = match repo.touched(&request.baseline).await {
        Ok(touched) => touched,
        Err(error) => return Some(format!("what the commits of the run touched is not known: {error}")),
    };
    let shown: BTreeSet<&str> =
        set.changes.iter().flat_map(|c| [Some(c.path.as_str()), c.old_path.as_deref()]).flatten().collect();
    let undone: Vec<&str> = touched.iter().map(String::as_str).filter(|path| !shown.contains(path)).collect();
    let named: Vec<&str> = undone.iter().copied().take(NAMED_MAX).collect();
    let more = undone.len().saturating_sub(named.len());
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    (!named.is_empty()).then(|| {
        format!("commits made since the baseline changed files that are now as before: {}{rest}", named.join(", "))
    })
}

fn listed(set: &ChangeSet, redactor: &Redactor) -> Vec<String> {
    set.changes.iter().take(CHANGED_MAX).map(|change| redactor.text(&change.path)).collect()
}

/// The patch of the run with secrets taken out; absent when nothing changed or it cannot be kept.
async fn patch(
    repo: &Repo,
    verifier: &Verifier,
    request: &Request,
    notes: &mut Vec<String>,
) -> Result<Option<Vec<u8>>, Error> {
    let patch = match repo.patch(&request.baseline).await {
        Ok(patch) => patch,
        Err(error) => {
            notes.push(format!("the patch is not kept: {error}"));
            return Ok(None);
        }
    };
    if !patch.left_out.is_empty() {
        let named: Vec<&str> = patch.left_out.iter().map(String::as_str).take(NAMED_MAX).collect();
        let count = patch.left_out.len();
        let what = "untracked files over 50 MiB and work inside submodules are not in the patch";
        notes.push(format!("{what}; {count} left out: {}", named.join(", ")));
    }
    let patch = patch.bytes;
    if patch.len() > PATCH_MAX {
        notes.push(format!("the patch of {} bytes is not kept; the most is {PATCH_MAX}", patch.len()));
        return Ok(None);
    }
    if patch.is_empty() {
        return Ok(None);
    }
    let redactor = verifier.redactor.clone();
    let (patch, hidden) = blocking(move || {
        let shown = redactor.bytes(&patch);
        let hidden = shown != patch;
        (shown, hidden)
    })
    .await
    .ok_or(Error::Thread("redact the patch"))?;
    if hidden {
        notes.push("secrets were taken out of the patch, so it does not apply as it is".to_owned());
    }
    Ok(Some(patch))
}

fn host() -> String {
    nix::unistd::gethostname().map_or_else(|_| "unknown".to_owned(), |name| name.to_string_lossy().into_owned())
}
