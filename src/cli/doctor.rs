//! `clawo doctor`: what this machine has and what is missing, without a network and without starting a run.

use std::{fmt, net::TcpListener, path::Path, time::Duration};

use serde::Serialize;
use serde_json::{Value, json};

use super::{
    context::Context,
    engines,
    failure::{EXIT_RED, Outcome},
    out::Tone,
    table::Table,
};
use crate::{
    app::{App, Mode},
    config::Config,
    engines::prices::Prices,
    kernel::ListQuery,
    protocol::listener,
    sys::{
        Fs, RealFs,
        command::{self, Command},
        fs::create_dir_all,
        ids,
    },
};

/// A program that does not tell its version within this is reported without one.
const VERSION_LIMIT: Duration = Duration::from_secs(10);
/// Oldest git that has what is used (`worktree add --orphan` aside): `GIT_OPTIONAL_LOCKS`, `merge-tree`, `-z` everywhere.
const GIT_OLDEST: (u32, u32) = (2, 31);
/// Below this much free space nothing new is begun.
const DISK_NEEDED: u64 = 64 << 20;
/// Below this much free space a warning is due.
const DISK_COMFORT: u64 = 1 << 30;
/// Names a browser may have on PATH, in the order captures try them.
const BROWSERS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];
/// Interrupted runs named; more are counted.
const RUNS_NAMED: usize = 5;

/// How a requirement stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Status {
    /// There and good.
    Ok,
    /// Required and not there.
    Missing,
    /// Something works less well, or only part of the product needs it.
    Warning,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ok => "ok",
            Self::Missing => "missing",
            Self::Warning => "warning",
        })
    }
}

/// One requirement.
#[derive(Debug, Clone, Serialize)]
struct Row {
    name: String,
    status: Status,
    detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<String>,
}

impl Row {
    fn ok(name: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { name: name.into(), status: Status::Ok, detail: detail.into(), fix: None }
    }

    fn bad(status: Status, name: impl Into<String>, detail: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { name: name.into(), status, detail: detail.into(), fix: Some(fix.into()) }
    }
}

/// Looks at everything and reports.
pub(crate) fn run(context: &Context) -> Outcome {
    let config = context.config()?;
    let rows = context.block_on(async {
        let mut rows = home(&config);
        let usable = rows.iter().all(|row| row.status != Status::Missing);
        rows.push(git(&config).await);
        rows.extend(agents(&config).await);
        rows.push(browser(&config));
        rows.push(program(&config, "node", "runs JavaScript checks and the engines that come from npm").await);
        rows.push(program(&config, "npm", "installs the engines that come from npm").await);
        rows.push(program(&config, "docker", "optional: nothing in this version uses it").await);
        rows.extend(port(&config).await);
        rows.push(prices(&config));
        if usable {
            rows.push(stale(config).await);
        }
        Ok(rows)
    })?;
    report(context, &rows);
    Ok(if rows.iter().any(|row| row.status == Status::Missing) { EXIT_RED } else { 0 })
}

fn report(context: &Context, rows: &[Row]) {
    let healthy = rows.iter().all(|row| row.status != Status::Missing);
    context.out.document(&json!({ "healthy": healthy, "checks": rows }));
    if context.out.json() {
        return;
    }
    let mut table = Table::new(["CHECK", "STATUS", "DETAIL"]);
    for row in rows {
        table.row([row.name.clone(), row.status.to_string(), row.detail.clone()]);
    }
    context.out.table(&table, "Nothing was checked.");
    for row in rows {
        if let Some(fix) = &row.fix {
            context.out.line(format!("{}: {fix}", row.name));
        }
    }
    let word = if healthy {
        context.out.paint(Tone::Good, "ready")
    } else {
        context.out.paint(Tone::Bad, "something required is missing")
    };
    context.out.line(word);
}

/// The state directory: there, private, writable, lockable, with space.
fn home(config: &Config) -> Vec<Row> {
    let fs = RealFs;
    let path = config.home.as_path();
    let shown = path.display();
    let fix = "make the directory writable for this user, or choose another with --home or CLAWO_HOME";
    if let Err(e) = create_dir_all(&fs, path) {
        return vec![Row::bad(Status::Missing, "home", e.to_string(), fix)];
    }
    if let Err(e) = probe(&fs, path) {
        return vec![Row::bad(Status::Missing, "home", e.to_string(), fix)];
    }
    let mode = fs.canonicalize(path).and_then(|real| fs.metadata(&real)).map(|meta| meta.mode & 0o777);
    let mut rows = vec![match mode {
        Ok(0o700) => Row::ok("home", format!("{shown} is writable and private")),
        Ok(mode) => Row::bad(
            Status::Warning,
            "home",
            format!("{shown} has mode {mode:03o}; others may read what agents wrote"),
            format!("chmod 700 {shown}"),
        ),
        Err(e) => Row::bad(Status::Missing, "home", e.to_string(), fix),
    }];
    rows.push(locking(&fs, path));
    rows.push(match fs.free_space(path) {
        Ok(free) if free < DISK_NEEDED => {
            Row::bad(Status::Missing, "disk", format!("{} MiB free", free >> 20), "free some space")
        }
        Ok(free) if free < DISK_COMFORT => {
            Row::bad(Status::Warning, "disk", format!("{} MiB free", free >> 20), "free some space, or run clawo gc")
        }
        Ok(free) => Row::ok("disk", format!("{} GiB free", free >> 30)),
        Err(e) => Row::bad(Status::Warning, "disk", e.to_string(), "check the file system"),
    });
    rows
}

/// Writes a file and takes it away again.
fn probe(fs: &dyn Fs, home: &Path) -> crate::sys::fs::Result<()> {
    let path = home.join(format!(".doctor-{}", ids::short()));
    let mut file = fs.create_new(&path)?;
    let written = file.write_at(0, b"probe").and_then(|()| file.sync());
    fs.remove_file(&path)?;
    written
}

/// Two takers of one lock: the second must be refused.
fn locking(fs: &dyn Fs, home: &Path) -> Row {
    let path = home.join(format!(".doctor-{}.lock", ids::short()));
    let fix = "put the state directory on a local file system";
    let row = match (fs.try_lock(&path), fs.try_lock(&path)) {
        (Ok(Some(_held)), Ok(None)) => Row::ok("locking", "file locks exclude each other"),
        (Ok(_), Ok(_)) => Row::bad(Status::Missing, "locking", "file locks do not exclude each other there", fix),
        (Err(e), _) | (_, Err(e)) => Row::bad(Status::Missing, "locking", e.to_string(), fix),
    };
    // The name is fresh, so a file left behind harms nothing.
    let _ = fs.remove_file(&path);
    row
}

async fn git(config: &Config) -> Row {
    let fix = format!("install git {}.{} or newer (for example: apt-get install git)", GIT_OLDEST.0, GIT_OLDEST.1);
    let Some(said) = version(config, "git").await else {
        return Row::bad(Status::Missing, "git", "not found on PATH", fix);
    };
    match number(&said) {
        Some(found) if found >= GIT_OLDEST => Row::ok("git", said),
        Some(_) => Row::bad(Status::Missing, "git", format!("{said} is too old"), fix),
        None => Row::bad(Status::Warning, "git", format!("the version cannot be read from '{said}'"), fix),
    }
}

/// One row an engine, and one for having any that is a real agent.
async fn agents(config: &Config) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut real = Vec::new();
    for engine in engines::installed(config).await {
        let name = format!("engine {}", engine.name);
        if engine.built_in {
            let detail = "built in; plays scripts for demos and dry runs";
            rows.push(Row::ok(name, detail));
        } else if engine.described {
            rows.push(Row::ok(name, "each session describes its program"));
        } else if let Some(program) = engine.program {
            let version = engine.version.unwrap_or_else(|| "version unknown".to_owned());
            rows.push(Row::ok(name, format!("{} {version}", program.display())));
            real.push(engine.name);
        } else {
            rows.push(Row::bad(Status::Warning, name, "program not found", engine.fix));
        }
    }
    rows.push(if real.is_empty() {
        let fix = "install one of the engines above (for example: npm install -g @anthropic-ai/claude-code); 'clawo demo' works without";
        Row::bad(Status::Missing, "coding agent", "no engine that can do real work is installed", fix)
    } else {
        Row::ok("coding agent", real.join(", "))
    });
    rows
}

fn browser(config: &Config) -> Row {
    let set = config.chrome.as_deref().and_then(Path::to_str);
    let found = match set {
        Some(path) => command::find(path),
        None => BROWSERS.iter().find_map(|name| command::find(name)),
    };
    let fix = "install chromium (for example: apt-get install chromium), or set CLAWO_CHROME_BIN";
    match (found, set) {
        (Some(path), _) => Row::ok("browser", path.display().to_string()),
        (None, Some(path)) => Row::bad(Status::Warning, "browser", format!("{path} is not an executable file"), fix),
        (None, None) => Row::bad(Status::Warning, "browser", "not found; screenshot checks will fail", fix),
    }
}

async fn program(config: &Config, name: &str, what_for: &str) -> Row {
    match version(config, name).await {
        Some(version) => Row::ok(name, version),
        None => {
            Row::bad(Status::Warning, name, format!("not found; {what_for}"), format!("install {name} if you need it"))
        }
    }
}

/// Whether `clawo serve` could bind; a busy port is normal while it runs.
async fn port(config: &Config) -> Vec<Row> {
    let at = format!("{}:{}", config.server.host, config.server.port);
    let Err(e) = TcpListener::bind(&at) else { return vec![Row::ok("port", format!("{at} is free"))] };
    let Some(health) = listener::health(&config.server.host, config.server.port).await else {
        let fix = "'clawo serve' may run already; else choose a port with --port";
        return vec![Row::bad(Status::Warning, "port", format!("{at}: {e}"), fix)];
    };
    let version = health.get("version").and_then(Value::as_str).unwrap_or("?");
    let mut rows = vec![Row::ok("port", format!("{at}: claw-orchestrator {version} serves there"))];
    for breaker in health.get("breakers").and_then(Value::as_array).into_iter().flatten() {
        let text = |key: &str| breaker.get(key).and_then(Value::as_str).unwrap_or_default();
        let number = |key: &str| breaker.get(key).and_then(Value::as_u64).unwrap_or_default();
        let detail =
            format!("{} starts in a row failed, left alone for {} s", number("failures"), number("openForSeconds"));
        let fix = "the server's log says why it did not start; the next good start clears this";
        rows.push(Row::bad(Status::Warning, format!("breaker {}", text("engine")), detail, fix));
    }
    rows
}

/// Prices that disarm caps, because the user set them to nothing.
fn prices(config: &Config) -> Row {
    let free = Prices::new(&config.prices).free();
    if free.is_empty() {
        return Row::ok("prices", format!("built in, looked up until {}", Prices::checked()));
    }
    Row::bad(
        Status::Warning,
        "prices",
        format!("{} cost nothing, so no cap in money holds them", free.join(", ")),
        "set their prices under [pricing] in config.toml, or bound turns and time instead",
    )
}

/// Runs whose process is gone.
async fn stale(config: Config) -> Row {
    let app = match App::open(config, Mode::Record).await {
        Ok(app) => app,
        Err(e) => return Row::bad(Status::Missing, "state", format!("{e:#}"), "repair or move the state directory"),
    };
    let listed = app.kernel.list(ListQuery { limit: 500, ..ListQuery::default() }).await;
    app.shutdown().await;
    match listed {
        Err(e) => Row::bad(Status::Missing, "state", e.message, "repair or move the state directory"),
        Ok(page) => {
            let cut: Vec<&str> = page.runs.iter().filter(|r| r.interrupted).map(|r| r.run_id.as_str()).collect();
            let damaged = page.runs.iter().filter(|r| r.damaged.is_some()).count();
            if cut.is_empty() && damaged == 0 {
                return Row::ok("state", format!("{} runs, none left by a dead process", page.runs.len()));
            }
            let named: Vec<&str> = cut.iter().take(RUNS_NAMED).copied().collect();
            let detail = format!("{} interrupted ({}), {damaged} damaged", cut.len(), named.join(", "));
            Row::bad(
                Status::Warning,
                "state",
                detail,
                "go on with 'clawo workflow resume <id> --wait', or end them with 'clawo workflow cancel <id>'",
            )
        }
    }
}

/// What a program says about its version; `None` when there is no such program.
async fn version(config: &Config, name: &str) -> Option<String> {
    let program = command::find(name)?;
    let directory = config.user_home.clone().unwrap_or_else(|| Path::new("/").to_path_buf());
    let mut command = Command::new(&program, directory).args(["--version"]);
    command.timeout = VERSION_LIMIT;
    let said = match command.run().await {
        Ok(output) => String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().trim().to_owned(),
        Err(e) => e.to_string(),
    };
    Some(if said.is_empty() { program.display().to_string() } else { said })
}

/// The first `major.minor` in a text.
fn number(text: &str) -> Option<(u32, u32)> {
    text.split_whitespace().find_map(|word| {
        let mut parts = word.split('.');
        Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        assert_eq!(number("git version 2.47.3"), Some((2, 47)));
        assert!(number("git version 2.4.11").unwrap() < GIT_OLDEST);
        assert!(number("git version 2.31.0 (Apple Git-1)").unwrap() >= GIT_OLDEST);
        assert_eq!(number("git"), None);
    }
}
