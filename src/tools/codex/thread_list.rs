//! `codex_thread_list`: the threads Codex keeps.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    engines::Ask,
    tools::{
        CallContext, Hints, KernelHandle, Outcome, Tool, ToolResult, Toolset, outcome,
        registry::{About, Length},
    },
};

/// Threads on a page where nothing is said.
const PAGE: u32 = 20;
/// Longest preview in an answer, in bytes, so that a full page stays below the cap of a result.
const PREVIEW_MAX: usize = 200;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Args {
    /// Name of the session to ask through.
    name: String,
    /// Where the page begins: nextCursor of the answer before. Default: the newest.
    cursor: Option<String>,
    /// Most threads of the page. Default 20.
    #[schemars(range(min = 1, max = 100))]
    limit: Option<u32>,
}

/// A stored thread.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Thread {
    /// What codex_resume takes.
    thread_id: String,
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// How it begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    preview: Option<String>,
    /// Directory it worked in.
    #[serde(skip_serializing_if = "Option::is_none")]
    cwd: Option<String>,
    /// Model it was last with, where that is told.
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    /// Seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    created_at: Option<i64>,
    /// Seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    updated_at: Option<i64>,
}

/// A page of threads.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Output {
    /// Newest first.
    threads: Vec<Thread>,
    /// Give this as cursor for the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

/// The tool.
pub(super) fn tool() -> Tool {
    let about = About {
        name: "codex_thread_list",
        title: "Threads of codex",
        description: "Lists the threads that Codex keeps on this machine, newest first and page by page, asked through a \
session on codex-app; use it to find a conversation. Next: codex_resume with a threadId, or codex_thread_list with cursor.",
        toolset: Toolset::Codex,
        hints: Hints::LOOK,
        length: Length::Short,
        pairs: &["codex_resume"],
    };
    Tool::new::<Args, Output, _, _>(about, run)
}

async fn run(kernel: KernelHandle, args: Args, _context: CallContext) -> Outcome {
    let page = Ask::Threads { cursor: args.cursor, limit: args.limit.unwrap_or(PAGE) };
    let (mut output, _) = super::ask::<Output>(&kernel, &args.name, page).await?;
    for thread in &mut output.threads {
        thread.preview = thread.preview.take().map(|text| outcome::head(&text, PREVIEW_MAX));
    }
    let threads = outcome::counted(output.threads.len(), "thread");
    let more = if output.next_cursor.is_some() { "codex_thread_list with nextCursor, or " } else { "" };
    ToolResult::new(&output, format!("{threads}. Next: {more}codex_resume."))
}
