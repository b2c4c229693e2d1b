//! `clawo mcp` and `clawo serve`: the transports of the MCP server.

use std::{sync::Arc, time::Duration};

use clap::Args;
use serde_json::json;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::{
    context::Context,
    failure::{Failure, Outcome},
    wait,
};
use crate::{
    app::{App, Mode},
    config::Config,
    engines::Registry,
    kernel,
    model::Code,
    protocol::{Options, Server, http, stdio, token},
    sys::{RealFs, SystemClock, tasks},
    tools::{KernelHandle, Selection, select::Access},
};

/// How long runs have to let go after standard input ended: the three seconds an agent has after a TERM, and some for
/// the rest. With what the transport takes it stays under the five seconds that hosts wait.
const STDIO_SHUTDOWN: Duration = Duration::from_millis(3_500);
/// The same under `clawo serve`, where supervisors wait ten seconds.
const SERVE_SHUTDOWN: Duration = Duration::from_secs(6);

/// Which tools are offered. The list never changes after the start.
#[derive(Debug, Clone, Args)]
pub(crate) struct OfferArgs {
    /// Toolsets, as a,b or 'all' or 'default'
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    toolsets: Option<Vec<String>>,
    /// Tools by name, as a,b
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    tools: Option<Vec<String>>,
    /// Tools that are not offered, as a,b
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    exclude_tools: Vec<String>,
    /// Only tools that change nothing; beats every other choice
    #[arg(long)]
    read_only: bool,
}

/// Arguments of `clawo mcp`.
#[derive(Debug, Clone, Args)]
pub(crate) struct McpArgs {
    #[command(flatten)]
    offer: OfferArgs,
}

/// Arguments of `clawo serve`.
#[derive(Debug, Clone, Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    offer: OfferArgs,
    /// Port; 0 is any free one [default: 18796]
    #[arg(short, long)]
    port: Option<u16>,
    /// Address to bind [default: 127.0.0.1]; any but a loopback one needs --allowed-host
    #[arg(short = 'H', long)]
    host: Option<String>,
    /// A further Host value that is accepted; repeatable
    #[arg(long, value_name = "HOST")]
    allowed_host: Vec<String>,
    /// A further Origin value that is accepted; repeatable
    #[arg(long, value_name = "ORIGIN")]
    allowed_origin: Vec<String>,
    /// Most live agent sessions [default: 32]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    max_sessions: Option<u16>,
}

impl OfferArgs {
    fn selection(&self, configured: Option<Vec<String>>) -> Selection {
        Selection {
            toolsets: self.toolsets.clone(),
            tools: self.tools.clone(),
            exclude: self.exclude_tools.clone(),
            access: if self.read_only { Access::ReadOnly } else { Access::Full },
            configured,
        }
    }
}

/// The application behind a server: opened with the first call that needs it, or in the background after the start,
/// so that the first answer does not wait for the disk.
#[derive(Debug, Clone)]
struct Behind {
    handle: KernelHandle,
    app: Arc<Mutex<Option<App>>>,
}

impl Behind {
    fn new(config: &Config, mode: Mode) -> Self {
        let app = Arc::new(Mutex::new(None));
        let (slot, config) = (Arc::clone(&app), config.clone());
        let handle = KernelHandle::lazy(Arc::new(move || {
            let (slot, config) = (Arc::clone(&slot), config.clone());
            Box::pin(async move {
                let app = App::open(config, mode).await.map_err(refusal)?;
                let kernel = app.kernel.clone();
                *slot.lock().await = Some(app);
                Ok(kernel)
            })
        }));
        Self { handle, app }
    }

    /// Opens in the background; orphaned runs that may go on by themselves are continued then.
    fn open(&self) {
        let handle = self.handle.clone();
        tasks::spawn("open the state directory", async move {
            match handle.get().await {
                Ok(kernel) => kernel.auto_resume().await,
                Err(e) => tracing::error!("the state directory cannot be used: {e}"),
            }
        });
    }

    /// Ends what runs, within `limit`.
    async fn shutdown(self, limit: Duration) {
        let app = self.app.lock().await.take();
        if let Some(app) = app
            && tokio::time::timeout(limit, app.shutdown()).await.is_err()
        {
            tracing::warn!("some work did not end in time; its runs are resumable");
        }
    }
}

/// Why the application did not open, for the caller of a tool.
fn refusal(e: anyhow::Error) -> kernel::Error {
    e.downcast::<kernel::Error>().unwrap_or_else(|e| {
        kernel::Error::new(Code::StoreUnavailable, format!("the state directory cannot be used: {e:#}"))
    })
}

/// Chooses the tools, warns about names that are none, and builds the server.
fn server(context: &Context, config: &Config, offer: &OfferArgs, behind: &Behind) -> Result<Server, Failure> {
    let selected = offer.selection(config.tools.clone()).apply()?;
    for warning in &selected.warnings {
        context.out.note(format!("warning: {warning}"));
    }
    let options = Options {
        parent: config.env.get("CLAWO_RUN_ID").cloned(),
        engines: Registry::names().iter().map(|name| (*name).to_owned()).collect(),
    };
    Server::new(behind.handle.clone(), selected.registry, options).map_err(|e| Failure::new(Code::Internal, e))
}

/// Serves standard input and output until the input ends.
pub(crate) fn mcp(context: &Context, args: &McpArgs) -> Outcome {
    let config = context.config()?;
    let behind = Behind::new(&config, Mode::Stdio);
    let server = server(context, &config, &args.offer, &behind)?;
    context.block_on(async {
        let stop = stop_on_signal();
        behind.open();
        let served = stdio::serve(server, stop).await;
        behind.shutdown(STDIO_SHUTDOWN).await;
        served.map(|()| 0).map_err(|e| Failure::new(Code::Internal, e.to_string()))
    })
}

/// Serves HTTP until a signal ends it.
pub(crate) fn http(context: &Context, args: &ServeArgs) -> Outcome {
    let mut config = context.config()?;
    args.apply(&mut config);
    let behind = Behind::new(&config, Mode::Serve);
    let server = server(context, &config, &args.offer, &behind)?;
    context.block_on(async {
        let stop = stop_on_signal();
        let bound = http::Bound::new(&config.server, &config.home, Arc::new(RealFs), Arc::new(SystemClock)).await?;
        let address = format!("http://{}/mcp", bound.addr());
        context.out.document(&json!({ "url": address, "port": bound.addr().port(), "home": config.home }));
        if !context.out.json() {
            context.out.line(format!("serving {address}"));
            context.out.line(format!("bearer token: in {}", config.home.join(token::FILE).display()));
        }
        behind.open();
        let served = bound.run(server, stop).await;
        behind.shutdown(SERVE_SHUTDOWN).await;
        served.map(|()| 0).map_err(Failure::from)
    })
}

impl ServeArgs {
    /// Flags win over environment and file.
    fn apply(&self, config: &mut Config) {
        if let Some(port) = self.port {
            config.server.port = port;
        }
        if let Some(host) = &self.host {
            config.server.host.clone_from(host);
        }
        config.server.allowed_hosts.extend(self.allowed_host.iter().cloned());
        config.server.allowed_origins.extend(self.allowed_origin.iter().cloned());
        if let Some(sessions) = self.max_sessions {
            config.max_sessions = Some(usize::from(sessions));
        }
    }
}

impl From<http::Error> for Failure {
    fn from(e: http::Error) -> Self {
        use crate::protocol::{http::Error, listener};
        let code = match &e {
            Error::Listen(listener::Error::TakenByUs { .. }) => Code::Busy,
            Error::Listen(listener::Error::Taken(_) | listener::Error::Bind { .. }) | Error::Serve(_) => Code::Internal,
            Error::Exposed(_) | Error::Token(token::Error::Exposed(_) | token::Error::NotAFile(_)) => {
                Code::InvalidArgument
            }
            Error::Token(token::Error::Io(_) | token::Error::Random(_)) | Error::Fs(_) => Code::StoreUnavailable,
        };
        Self {
            hint: Some("nothing was started; correct that and start again".to_owned()),
            ..Self::new(code, e.to_string())
        }
    }
}

/// Cancelled by SIGINT or SIGTERM.
fn stop_on_signal() -> CancellationToken {
    let stop = CancellationToken::new();
    let signalled = stop.clone();
    tasks::spawn("wait for a signal", async move {
        wait::interruption().await;
        signalled.cancel();
    });
    stop
}
