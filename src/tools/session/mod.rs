//! The tools of named sessions, one file each.

mod claude_goal_clear;
mod claude_goal_set;
mod claude_goal_status;
mod compact;
mod deliver_inbox;
mod goal;
mod grep;
mod handoff;
mod inbox;
mod list;
mod overview;
mod send;
mod send_to;
mod start;
mod status;
mod stop;
mod switch_model;
mod update_tools;

use serde::Serialize;

use super::{CallContext, KernelHandle, Outcome, Tool, ToolResult, outcome};
use crate::{
    kernel::Error,
    nodes::sessions::{Caller, Sessions, TurnView},
};

/// Every tool of the set.
pub(super) fn tools() -> Vec<Tool> {
    vec![
        claude_goal_clear::tool(),
        claude_goal_set::tool(),
        claude_goal_status::tool(),
        compact::tool(),
        deliver_inbox::tool(),
        grep::tool(),
        handoff::tool(),
        inbox::tool(),
        list::tool(),
        overview::tool(),
        send::tool(),
        send_to::tool(),
        start::tool(),
        status::tool(),
        status::alias(),
        stop::tool(),
        switch_model::tool(),
        update_tools::tool(),
    ]
}

/// The sessions of this process.
async fn sessions(kernel: &KernelHandle) -> Result<Sessions, Error> {
    Ok(kernel.get().await?.services().sessions.clone())
}

/// Whether the caller may name programs.
fn caller(context: &CallContext) -> Caller {
    if context.local { Caller::Local } else { Caller::Remote }
}

/// Longest reply of an agent in an answer, in bytes; with all else it stays below the cap of a result.
const OUTPUT_MAX: usize = 40_000;

/// A turn as it is answered: a reply that is too long is cut, and the answer says so.
fn fitting(mut turn: TurnView) -> (TurnView, bool) {
    let long = turn.output.len() > OUTPUT_MAX;
    if long {
        turn.output = outcome::head(&turn.output, OUTPUT_MAX);
        turn.chunks = None;
    }
    (turn, long)
}

/// A view of something with a turn in it.
fn answer(view: &impl Serialize, text: String, cut: bool) -> Outcome {
    let result = ToolResult::new(view, text)?;
    let note = "output: too long; session_grep finds the rest, or ask the agent to write it to a file";
    Ok(if cut { result.with("truncated", vec![note]) } else { result })
}
