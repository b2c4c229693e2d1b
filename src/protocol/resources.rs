//! Resources: runs, events, outputs, evidence, schemas and documentation under `clawo://`.
//!
//! Bonus only: everything here is reachable by tools too.

use base64::Engine;
use rmcp::{
    ErrorData,
    model::{ListResourcesResult, ReadResourceResult, Resource, ResourceContents, ResourceTemplate},
};
use serde::Serialize;

use super::{docs, errors};
use crate::{
    kernel::{Kernel, ListQuery, StatusQuery},
    model::RunId,
    tools::{
        KernelHandle,
        args::{run_id, shown, word},
        export,
        outcome::head,
    },
};

/// Runs on one page of the list.
const PAGE: usize = 50;
/// Most bytes of a text in one answer.
const TEXT_MAX: usize = 1 << 20;
/// Most bytes of a file in one answer.
const FILE_MAX: usize = 8 << 20;
/// Mark in front of the kernel's own cursor.
const CURSOR: &str = "runs:";
const SCHEME: &str = "clawo://";
const JSON: &str = "application/json";

/// Address forms.
pub fn templates() -> Vec<ResourceTemplate> {
    [
        ("clawo://docs/{page}", "documentation", "Documentation page", "text/markdown"),
        ("clawo://evidence/{runId}/{evidenceId}", "evidence", "Evidence bundle of a run or label", JSON),
        (
            "clawo://evidence/{runId}/{evidenceId}/{file}",
            "evidence-file",
            "File of an evidence bundle",
            "application/octet-stream",
        ),
        ("clawo://run/{id}", "run", "A run as it stands", JSON),
        ("clawo://run/{id}/events", "run-events", "Last events of a run", JSON),
        ("clawo://run/{id}/node/{node}/output", "node-output", "Latest output of a node", "text/plain"),
        ("clawo://schema/{name}", "schema", "JSON Schema of a document", "application/schema+json"),
    ]
    .into_iter()
    .map(|(uri, name, title, mime)| ResourceTemplate::new(uri, name).with_title(title).with_mime_type(mime))
    .collect()
}

/// One page: what is always there first, then runs, newest first.
pub async fn list(kernel: &KernelHandle, cursor: Option<&str>) -> Result<ListResourcesResult, ErrorData> {
    let mut resources = Vec::new();
    let inner = match cursor {
        None => {
            resources.push(Resource::new("clawo://runs", "runs").with_title("All runs").with_mime_type(JSON));
            for page in docs::PAGES {
                let uri = format!("{SCHEME}docs/{}", page.name);
                resources.push(Resource::new(uri, page.name).with_title(page.title).with_mime_type("text/markdown"));
            }
            for name in export::shared_names() {
                let uri = format!("{SCHEME}schema/{name}");
                resources.push(Resource::new(uri, name).with_mime_type("application/schema+json"));
            }
            None
        }
        Some(text) => match text.strip_prefix(CURSOR) {
            Some(inner) => Some(inner.to_owned()),
            None => return Err(ErrorData::invalid_params("cursor: is not one of this list", None)),
        },
    };
    let first = inner.is_none();
    let query = ListQuery { limit: PAGE, cursor: inner, ..ListQuery::default() };
    let page = match kernel.get().await {
        Ok(kernel) => kernel.list(query).await,
        Err(e) => Err(e),
    };
    let mut next = None;
    match page {
        Ok(page) => {
            for run in page.runs {
                let state = run.state.map_or("damaged", |s| s.as_str());
                resources.push(
                    Resource::new(format!("{SCHEME}run/{}", run.run_id), run.run_id.as_str())
                        .with_title(format!("{} ({state})", run.workflow))
                        .with_mime_type(JSON),
                );
            }
            next = page.next_cursor.map(|c| format!("{CURSOR}{c}"));
        }
        // The fixed part is useful without a store; a host that lists at its start must not be turned away.
        Err(error) if first => tracing::warn!(%error, "runs could not be listed"),
        Err(error) => return Err(errors::protocol(&error)),
    }
    let mut result = ListResourcesResult::with_all_items(resources);
    result.next_cursor = next;
    Ok(result)
}

/// The run that an address below `clawo://run/` belongs to.
pub fn run_of(uri: &str) -> Option<RunId> {
    let rest = uri.strip_prefix(SCHEME)?.strip_prefix("run/")?;
    RunId::parse(rest.split('/').next()?).ok()
}

/// Contents of a resource.
pub async fn read(handle: &KernelHandle, uri: &str) -> Result<ReadResourceResult, ErrorData> {
    let not_found = || ErrorData::resource_not_found(format!("there is no resource '{}'", shown(uri)), None);
    let rest = uri.strip_prefix(SCHEME).ok_or_else(not_found)?;
    let parts: Vec<&str> = rest.split('/').collect();
    let contents = match parts.as_slice() {
        ["docs", name] => {
            let page = docs::PAGES.iter().find(|p| p.name == *name).ok_or_else(not_found)?;
            ResourceContents::text(page.text, uri).with_mime_type("text/markdown")
        }
        ["schema", name] => {
            let text = export::shared(name).ok_or_else(not_found)?;
            ResourceContents::text(text, uri).with_mime_type("application/schema+json")
        }
        _ => dynamic(handle, uri, &parts).await?.ok_or_else(not_found)?,
    };
    Ok(ReadResourceResult::new(vec![contents]))
}

/// What the store holds; `None` for an address of no known form.
async fn dynamic(handle: &KernelHandle, uri: &str, parts: &[&str]) -> Result<Option<ResourceContents>, ErrorData> {
    let fail = |e: crate::kernel::Error| errors::protocol(&e);
    // Ids are checked before the store is opened.
    if let ["run" | "evidence", id, ..] = parts {
        run_id("runId", id).map_err(fail)?;
    }
    if !matches!(
        parts,
        ["runs"] | ["run", _] | ["run", _, "events"] | ["run", _, "node", _, "output"] | ["evidence", _, _, ..]
    ) {
        return Ok(None);
    }
    let kernel: Kernel = handle.get().await.map_err(fail)?;
    let contents = match parts {
        ["runs"] => json(uri, &kernel.list(ListQuery { limit: PAGE, ..ListQuery::default() }).await.map_err(fail)?)?,
        ["run", id] => json(uri, &kernel.status(id, StatusQuery::default()).await.map_err(fail)?)?,
        ["run", id, "events"] => {
            let view = kernel.status(id, StatusQuery { events: 500, wait_ms: 0 }).await.map_err(fail)?;
            json(uri, &view.events)?
        }
        ["run", id, "node", node, "output"] => {
            word("node", node).map_err(fail)?;
            let text = kernel.node_output(id, node, 0, TEXT_MAX).await.map_err(fail)?;
            ResourceContents::text(text, uri).with_mime_type("text/plain")
        }
        ["evidence", id, evidence] => {
            word("evidenceId", evidence).map_err(fail)?;
            json(uri, &kernel.evidence(id, Some(evidence)).await.map_err(fail)?.bundle)?
        }
        ["evidence", id, evidence, file @ ..] => {
            word("evidenceId", evidence).map_err(fail)?;
            let name = file.join("/");
            let bytes = kernel.evidence_file(id, evidence, &name).await.map_err(fail)?;
            file_contents(uri, &name, &bytes)
        }
        _ => return Ok(None),
    };
    Ok(Some(contents))
}

fn json(uri: &str, value: &impl Serialize) -> Result<ResourceContents, ErrorData> {
    let text = serde_json::to_string(value)
        .map_err(|e| ErrorData::internal_error(format!("the resource could not be written: {e}"), None))?;
    Ok(ResourceContents::text(text, uri).with_mime_type(JSON))
}

/// Pictures as blobs, everything else that is text as text.
fn file_contents(uri: &str, name: &str, bytes: &[u8]) -> ResourceContents {
    let mime = match name.rsplit('.').next() {
        Some("png") => "image/png",
        Some("json") => JSON,
        Some("patch") => "text/x-diff",
        _ => "text/plain",
    };
    match std::str::from_utf8(bytes) {
        Ok(text) if mime != "image/png" => ResourceContents::text(head(text, FILE_MAX), uri).with_mime_type(mime),
        _ => {
            let cut = bytes.get(..bytes.len().min(FILE_MAX)).unwrap_or_default();
            let mime = if mime == "image/png" { mime } else { "application/octet-stream" };
            ResourceContents::blob(base64::engine::general_purpose::STANDARD.encode(cut), uri).with_mime_type(mime)
        }
    }
}
