//! The tools of Codex threads, one file each: what only codex-app has, on its named sessions.

mod fork;
mod goal;
mod goal_clear;
mod goal_get;
mod goal_pause;
mod goal_resume;
mod goal_set;
mod interrupt;
mod models;
mod resume;
mod review;
mod rollback;
mod steer;
mod thread_list;

use schemars::JsonSchema;
use serde::{Deserialize, de::DeserializeOwned};

use super::{KernelHandle, Tool};
use crate::{
    engines::{Ask, TurnOutcome, codex_app},
    kernel::Error,
    model::Code,
    nodes::sessions::{SessionError, Sessions},
};

/// Every tool of the set.
pub(super) fn tools() -> Vec<Tool> {
    vec![
        fork::tool(),
        goal_clear::tool(),
        goal_get::tool(),
        goal_pause::tool(),
        goal_resume::tool(),
        goal_set::tool(),
        interrupt::tool(),
        models::tool(),
        resume::tool(),
        review::tool(),
        rollback::tool(),
        steer::tool(),
        thread_list::tool(),
    ]
}

/// Arguments that are a name alone.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Named {
    /// Name of the session.
    name: String,
}

/// The sessions of this process.
async fn sessions(kernel: &KernelHandle) -> Result<Sessions, Error> {
    Ok(kernel.get().await?.services().sessions.clone())
}

/// Asks a codex-app session something: what it said, and the turn that it took.
async fn ask<T: DeserializeOwned>(
    kernel: &KernelHandle,
    name: &str,
    ask: Ask,
) -> Result<(T, Option<TurnOutcome>), Error> {
    let answer = sessions(kernel).await?.ask(name, ask, Some(codex_app::NAME)).await?;
    let data = serde_json::from_value(answer.data)
        .map_err(|e| Error::new(Code::EngineFailed, format!("codex answered in a form that is not known: {e}")))?;
    Ok((data, answer.turn))
}

/// The sessions, once it is certain that this one is codex-app's.
async fn of_codex(kernel: &KernelHandle, name: &str) -> Result<Sessions, Error> {
    let sessions = sessions(kernel).await?;
    let engine = sessions.engine_of(name).await?;
    if engine == codex_app::NAME {
        return Ok(sessions);
    }
    let text = format!("session '{name}' runs on {engine}, and only {} has this", codex_app::NAME);
    Err(SessionError::new(Code::WrongEngine, text).into())
}
