//! The tools of Claude Code outside of sessions, one file each: what its program or its files say.

mod agents_list;
mod coding_agents_list;
mod plugin_details;
mod project_purge;

use std::path::{Path, PathBuf};

use super::{KernelHandle, Tool, outcome};
use crate::{
    config::check_dir,
    engines::claude::cli::{self, Said},
    kernel::Error,
    model::Code,
    nodes::{Services, sessions::SessionError},
    sys::tasks,
};

/// Longest text of the program in an answer, in bytes; with all else it stays below the cap of a result.
const TEXT_MAX: usize = 30_000;

/// Every tool of the set.
pub(super) fn tools() -> Vec<Tool> {
    vec![agents_list::tool(), coding_agents_list::tool(), plugin_details::tool(), project_purge::tool()]
}

/// A directory that a caller named, links resolved; the server's own when none is.
async fn directory(services: &Services, given: Option<String>) -> Result<PathBuf, Error> {
    let (fs, config) = (services.fs.clone(), services.config.clone());
    let look = move || {
        let path = match given {
            Some(path) => PathBuf::from(path),
            None => fs.canonicalize(Path::new(".")).map_err(SessionError::from)?,
        };
        check_dir(fs.as_ref(), &config, &path).map_err(|(code, text)| SessionError::new(code, format!("cwd: {text}")))
    };
    let looked = tasks::blocking("directory of a tool", look).await;
    Ok(looked.map_err(|e| Error::new(Code::Internal, e.to_string()))??)
}

/// Runs a subcommand of the program. What it says is freed of secrets.
async fn ask(services: &Services, args: &[&str], cwd: &Path) -> Result<Said, Error> {
    let said = cli::ask(&services.registry, &services.config, args, cwd).await;
    let said = said.map_err(|e| Error::new(Code::EngineUnavailable, e.message))?;
    let clean = |text: &str| services.redactor.text(text).trim().to_owned();
    Ok(Said { status: said.status, text: clean(&said.text), errors: clean(&said.errors) })
}

/// A text of the program as it is shown.
fn shown(text: &str) -> String {
    outcome::head(text, TEXT_MAX)
}

/// What the program refused, in its words.
fn refused(code: Code, what: &str, said: &Said) -> Error {
    let words = [said.text.as_str(), said.errors.as_str()].into_iter().filter(|text| !text.is_empty());
    Error::new(code, format!("{what}: {}", shown(&words.collect::<Vec<_>>().join("; "))))
}

/// The services, for one call.
async fn services(kernel: &KernelHandle) -> Result<crate::kernel::Kernel, Error> {
    kernel.get().await
}
