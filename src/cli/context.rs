//! What every command has: the global flags, the output, and on demand the settings and the application.

use std::{future::Future, path::PathBuf};

use super::{
    Global,
    failure::{Failure, Outcome},
    logging,
    out::{Out, Style},
};
use crate::{
    app::{App, Mode},
    config::{self, Config},
    model::Code,
};

/// Threads of the async runtime. Work is waiting for children and disks; two keep timers alive beside a busy task.
const WORKERS: usize = 2;

/// Longest text read from standard input, in bytes: a spec may hold strings of 1 MiB each.
const STDIN_MAX: u64 = 64 << 20;

/// What a command works with.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) global: Global,
    pub(crate) out: Out,
}

impl Context {
    pub(crate) fn new(global: Global) -> Self {
        let style = Style {
            json: global.json,
            quiet: global.quiet,
            plain: global.no_color || no_color(),
            whole: global.no_truncate,
        };
        Self { out: Out::new(style), global }
    }

    /// Reads the settings and starts logging as they say.
    pub(crate) fn config(&self) -> Result<Config, Failure> {
        let flags = config::Flags { home: self.global.home.clone(), config: self.global.config.clone() };
        let config = config::load(&flags).map_err(|e| {
            let file = self.global.config.as_deref().map_or("config.toml".to_owned(), |p| p.display().to_string());
            Failure::usage(e.to_string(), format!("correct the named key in {file} or the named variable"))
        })?;
        logging::start(&self.global, &config);
        Ok(config)
    }

    /// Runs `future` on a runtime made for it.
    pub(crate) fn block_on<T>(&self, future: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(WORKERS)
            .thread_name("clawo")
            .enable_all()
            .build()
            .map_err(|e| Failure::new(Code::Internal, format!("failed to start the async runtime: {e}")))?;
        let result = runtime.block_on(Box::pin(future));
        // A blocked reader of standard input must not hold the process.
        runtime.shutdown_background();
        result
    }

    /// Opens the application, runs `body` with it and shuts it down whatever `body` says. With [`Mode::Record`]
    /// this process executes no run.
    pub(crate) fn with_app<F>(&self, mode: Mode, body: F) -> Outcome
    where
        F: AsyncFnOnce(&App) -> Outcome,
    {
        let config = self.config()?;
        self.block_on(async {
            let app = App::open(config, mode).await?;
            let outcome = body(&app).await;
            app.shutdown().await;
            outcome
        })
    }
}

/// Whether the environment asks for no colours; needed before the settings are read, so that errors in them obey it.
#[expect(clippy::disallowed_methods, reason = "decides how an error in the settings itself is printed")]
fn no_color() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty())
}

/// A text argument: itself, or standard input for `-`.
pub(crate) fn text_or_stdin(text: &str, what: &str) -> Result<String, Failure> {
    use std::io::Read;
    if text != "-" {
        return Ok(text.to_owned());
    }
    let mut bytes = Vec::new();
    std::io::stdin()
        .lock()
        .take(STDIN_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(|e| Failure::usage(format!("failed to read the {what} from standard input: {e}"), "try again"))?;
    if bytes.len() as u64 > STDIN_MAX {
        return Err(Failure::usage(
            format!("the {what} on standard input is longer than {STDIN_MAX} bytes"),
            "shorten it",
        ));
    }
    let text = String::from_utf8(bytes)
        .map_err(|_| Failure::usage(format!("the {what} on standard input is not UTF-8"), "convert it to UTF-8"))?;
    Ok(text.trim_end_matches(['\n', '\r']).to_owned())
}

/// A JSON document from a file, or from standard input for `-`.
pub(crate) fn json_file(path: &str, what: &str) -> Result<serde_json::Value, Failure> {
    use crate::sys::Fs;
    let text = if path == "-" {
        text_or_stdin(path, what)?
    } else {
        let bytes = crate::sys::RealFs.read(&absolute(path.as_ref())?).map_err(|e| {
            Failure::usage(e.to_string(), format!("give a readable JSON file as {what}, or '-' for standard input"))
        })?;
        String::from_utf8(bytes).map_err(|_| Failure::usage(format!("{path} is not UTF-8"), "convert it to UTF-8"))?
    };
    serde_json::from_str(&text).map_err(|e| {
        Failure::usage(format!("{path} is not JSON: {e}"), format!("correct the {what}; nothing was started"))
    })
}

/// `path` without reference to the current directory; links are left to whoever checks the directory.
pub(crate) fn absolute(path: &std::path::Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path)
        .map_err(|e| Failure::usage(format!("'{}' is not a path: {e}", path.display()), "give a path"))
}

/// The directory of `--cwd`, else the current one.
pub(crate) fn directory(cwd: Option<&PathBuf>) -> Result<PathBuf, Failure> {
    match cwd {
        Some(dir) => absolute(dir),
        None => std::env::current_dir()
            .map_err(|e| Failure::usage(format!("the current directory cannot be read: {e}"), "give --cwd")),
    }
}
