//! Completions for run ids, engines, templates, pages and schemas.

use rmcp::model::{ArgumentInfo, CompleteResult, CompletionInfo, Reference};

use super::docs;
use crate::{
    kernel::ListQuery,
    tools::{KernelHandle, export},
};

/// Templates of this version.
pub const TEMPLATES: [&str; 2] = ["fanout", "solve"];
/// Runs looked through for a completion.
const RUNS_LOOKED: usize = 200;

/// Values for one argument of a prompt or resource template, those that begin with what is typed.
pub async fn complete(
    kernel: &KernelHandle,
    engines: &[String],
    reference: &Reference,
    argument: &ArgumentInfo,
) -> CompleteResult {
    let all: Vec<String> = match (reference, argument.name.as_str()) {
        (_, "runId" | "id") => runs(kernel).await,
        (_, "engine") => engines.to_vec(),
        (_, "template") => TEMPLATES.iter().map(|t| (*t).to_owned()).collect(),
        (Reference::Resource(_), "page") => docs::PAGES.iter().map(|p| p.name.to_owned()).collect(),
        (Reference::Resource(_), "name") => export::shared_names(),
        _ => Vec::new(),
    };
    let fitting: Vec<String> = all.into_iter().filter(|v| v.starts_with(argument.value.as_str())).collect();
    let total = u32::try_from(fitting.len()).unwrap_or(u32::MAX);
    let more = fitting.len() > CompletionInfo::MAX_VALUES;
    let values: Vec<String> = fitting.into_iter().take(CompletionInfo::MAX_VALUES).collect();
    CompleteResult::new(CompletionInfo::with_pagination(values, Some(total), more).unwrap_or_default())
}

/// Newest run ids; none when the store cannot be read, because a completion is no place for errors.
async fn runs(kernel: &KernelHandle) -> Vec<String> {
    let query = ListQuery { limit: RUNS_LOOKED, ..ListQuery::default() };
    match kernel.get().await {
        Ok(kernel) => match kernel.list(query).await {
            Ok(page) => page.runs.into_iter().map(|r| r.run_id.to_string()).collect(),
            Err(_) => Vec::new(),
        },
        Err(_) => Vec::new(),
    }
}
