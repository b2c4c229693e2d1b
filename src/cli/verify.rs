//! `clawo verify`: what a run's checks said, whether the evidence is still whole, or a check of a directory now.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{
    context::{Context, directory, json_file},
    failure::{EXIT_INTERRUPTED, EXIT_RED, Failure, Outcome},
    out::Tone,
    wait,
};
use crate::{
    app::{App, Mode},
    git::Git,
    kernel::{Evidence, VerifyRequest},
    model::{Code, evidence::CheckResult},
    sys::{Fs, Kind, fs},
    verify::evidence::check_manifest,
};

/// Changed files shown to people; `--json` has all.
const FILES_SHOWN: usize = 40;

/// Arguments of `clawo verify`.
#[derive(Debug, Clone, Args)]
#[command(group = clap::ArgGroup::new("what").required(true).args(["id", "contract"]))]
pub(crate) struct VerifyArgs {
    /// The run, or the label of an earlier verification
    id: Option<String>,
    /// Which bundle [default: the one behind the verdict in force, else the newest]
    #[arg(long, value_name = "ID", requires = "id")]
    evidence: Option<String>,
    /// Recompute the checksums of the bundle's files and say whether they still match
    #[arg(long, requires = "id")]
    check: bool,
    /// Run this contract (JSON file, '-' for standard input) once, without a run
    #[arg(long, value_name = "FILE")]
    contract: Option<String>,
    /// Directory to check [default: the current one]
    #[arg(long, value_name = "DIR", requires = "contract")]
    cwd: Option<PathBuf>,
    /// Commit that changes are counted from
    #[arg(long, value_name = "SHA", requires = "contract")]
    base_sha: Option<String>,
    /// Keep the evidence under this label
    #[arg(long, requires = "contract")]
    label: Option<String>,
}

/// Shows a bundle or makes one.
pub(crate) fn run(context: &Context, args: &VerifyArgs) -> Outcome {
    match (&args.id, &args.contract) {
        (_, Some(contract)) => now(context, args, contract),
        (Some(id), None) => context.with_app(Mode::Record, async |app| stored(context, app, id, args).await),
        (None, None) => Err(Failure::usage("neither a run nor a contract was named", "give a run id, or --contract")),
    }
}

async fn stored(context: &Context, app: &App, id: &str, args: &VerifyArgs) -> Outcome {
    let evidence = app.kernel.evidence(id, args.evidence.as_deref()).await?;
    if args.check {
        return check(context, app, &evidence).await;
    }
    Ok(shown(context, &evidence))
}

fn now(context: &Context, args: &VerifyArgs, contract: &str) -> Outcome {
    let request = VerifyRequest {
        cwd: directory(args.cwd.as_ref())?,
        contract: json_file(contract, "contract")?,
        base_sha: args.base_sha.clone(),
        label: args.label.clone(),
        late_label: None,
        cancel: CancellationToken::new(),
        progress: None,
    };
    context.with_app(Mode::Record, async |app| {
        let cancel = request.cancel.clone();
        let mut interrupted = std::pin::pin!(wait::interruption());
        let mut verification = std::pin::pin!(app.kernel.verify(request));
        let evidence = tokio::select! {
            done = verification.as_mut() => done?,
            () = interrupted.as_mut() => {
                cancel.cancel();
                // The checks are ended, and waited for, before this process goes away.
                let _ = verification.await;
                context.out.failure(&Failure::new(Code::Cancelled, "interrupted; the running check was ended"));
                return Ok(EXIT_INTERRUPTED);
            }
        };
        Ok(shown(context, &evidence))
    })
}

/// Prints a bundle; the status is that of its verdict.
fn shown(context: &Context, evidence: &Evidence) -> u8 {
    let bundle = &evidence.bundle;
    context.out.document(&json!({
        "evidence": bundle, "path": evidence.path, "files": evidence.files, "warnings": evidence.warnings,
    }));
    if !context.out.json() {
        for warning in &evidence.warnings {
            context.out.line(format!("warning: {warning}"));
        }
        for result in &bundle.results {
            check_lines(context, result);
        }
        for note in &bundle.notes {
            context.out.line(format!("note: {note}"));
        }
        let none = "none";
        context.out.line(format!(
            "base {}  head {}",
            bundle.base_sha.as_deref().unwrap_or(none),
            bundle.head_sha.as_deref().unwrap_or(none)
        ));
        context.out.line(format!("{} changed files", bundle.changed_files.len()));
        for file in bundle.changed_files.iter().take(FILES_SHOWN) {
            context.out.line(format!("  {file}"));
        }
        if bundle.changed_files.len() > FILES_SHOWN {
            context.out.line(format!("  ... {} more, see --json", bundle.changed_files.len() - FILES_SHOWN));
        }
        if let Some(path) = &evidence.path {
            context.out.line(format!("kept in {}", path.display()));
        }
        let word =
            if bundle.passed { context.out.paint(Tone::Good, "green") } else { context.out.paint(Tone::Bad, "RED") };
        context.out.line(format!("{} {word}, {} fix rounds", bundle.evidence_id, bundle.rounds));
    }
    if bundle.passed { 0 } else { EXIT_RED }
}

fn check_lines(context: &Context, result: &CheckResult) {
    let word = match (result.passed, result.required) {
        (true, _) => context.out.paint(Tone::Good, "PASS"),
        (false, true) => context.out.paint(Tone::Bad, "FAIL"),
        (false, false) => "warn".to_owned(),
    };
    context.out.line(format!(
        "{word}  {} ({})  {}  {}",
        result.id,
        result.kind,
        wait::duration(result.duration_ms),
        result.detail
    ));
    if let Some(tail) = result.tail.as_ref().filter(|_| !result.passed) {
        for line in tail.lines() {
            context.out.line(format!("      {line}"));
        }
    }
}

/// Recomputes the checksums of a stored bundle and the digest of the tree it judged.
async fn check(context: &Context, app: &App, evidence: &Evidence) -> Outcome {
    let Some(dir) = evidence.path.clone() else {
        return Err(Failure::new(Code::NoEvidence, "the bundle is not stored on this machine"));
    };
    let fs = app.fs.clone();
    let files = tokio::task::spawn_blocking(move || files(fs.as_ref(), &dir, ""))
        .await
        .map_err(|e| Failure::new(Code::Internal, format!("reading the bundle did not finish: {e}")))?
        .map_err(|e| Failure::io("read the bundle", e))?;
    let problems = check_manifest(&files);
    let tree = tree(app, evidence).await;
    context.out.document(&json!({
        "evidenceId": evidence.bundle.evidence_id,
        "intact": problems.is_empty(),
        "problems": problems,
        "tree": tree.word(),
    }));
    for problem in &problems {
        context.out.line(format!("{}  {problem}", context.out.paint(Tone::Bad, "FAIL")));
    }
    let word = match problems.len() {
        0 => context.out.paint(Tone::Good, "intact: every file matches its checksum"),
        n => context.out.paint(Tone::Bad, &format!("{n} problems")),
    };
    context.out.line(format!("evidence {} {word}", evidence.bundle.evidence_id));
    context.out.line(format!("tree in {}: {}", evidence.bundle.cwd, tree.words()));
    Ok(if problems.is_empty() && tree != Tree::Moved { 0 } else { EXIT_RED })
}

/// Whether the directory still holds what the checks saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tree {
    Same,
    Moved,
    Unknown,
}

impl Tree {
    fn word(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Moved => "moved",
            Self::Unknown => "unknown",
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Same => "as the checks saw it",
            Self::Moved => "has changed since the checks",
            Self::Unknown => "cannot be compared; it is gone, or not in git",
        }
    }
}

async fn tree(app: &App, evidence: &Evidence) -> Tree {
    let Some(seen) = &evidence.bundle.tree_digest else { return Tree::Unknown };
    let git = Git { fs: app.fs.clone(), program: "git".into() };
    match git.open(evidence.bundle.cwd.as_ref()).await {
        Ok(Some(repo)) => match repo.digest().await {
            Ok(now) if now == *seen => Tree::Same,
            Ok(_) => Tree::Moved,
            Err(_) => Tree::Unknown,
        },
        Ok(None) | Err(_) => Tree::Unknown,
    }
}

/// Every file below `dir` with its name relative to the bundle.
fn files(fs: &dyn Fs, dir: &Path, prefix: &str) -> fs::Result<Vec<(String, Vec<u8>)>> {
    let mut found = Vec::new();
    for name in fs.list(dir)? {
        let path = dir.join(&name);
        let name = format!("{prefix}{}", name.to_string_lossy());
        match fs.metadata(&path)?.kind {
            Kind::Dir => found.extend(files(fs, &path, &format!("{name}/"))?),
            Kind::File => found.push((name, fs.read(&path)?)),
            // Nothing else belongs there; without contents it is reported as not in the manifest.
            Kind::Symlink | Kind::Other => found.push((name, Vec::new())),
        }
    }
    Ok(found)
}
