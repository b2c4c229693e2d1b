//! The HTTP server: `/mcp` for both protocol eras and `/health`, on loopback, behind a bearer token.

use std::{net::SocketAddr, path::Path, sync::Arc, time::Duration};

use axum::{Json, Router, middleware, routing::get};
use rmcp::transport::streamable_http_server::{
    StreamableHttpServerConfig, StreamableHttpService,
    session::local::{LocalSessionManager, SessionConfig},
};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::{
    SERVER_NAME, Server,
    guard::{self, Guard, Rules},
    listener,
    server_file::{ServerFile, ServerInfo},
    sessions::{self, Sessions},
    token::{self, Tokens},
};
use crate::{
    config,
    engines::breaker::BreakerState,
    sys::{Clock, Fs, FsError, tasks},
    tools::KernelHandle,
};

/// Idle time after which a legacy session is dropped. A short one would cut silent calls; none would keep the
/// sessions of every client that ever vanished.
const SESSION_IDLE: Duration = Duration::from_secs(6 * 60 * 60);
/// Pause between comments on a silent stream.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How long open requests have after the stop was asked for.
const DRAIN: Duration = Duration::from_secs(3);

/// Why the server does not serve.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No listener.
    #[error(transparent)]
    Listen(#[from] listener::Error),
    /// No token.
    #[error(transparent)]
    Token(#[from] token::Error),
    /// `server.json` could not be written.
    #[error(transparent)]
    Fs(#[from] FsError),
    /// A listening address other than loopback without names to accept.
    #[error("binding {0} needs --allowed-host, so that only requests for that name are taken")]
    Exposed(String),
    /// The server broke.
    #[error("the HTTP server failed: {0}")]
    Serve(std::io::Error),
}

/// A server that holds its port and is about to serve.
#[derive(Debug)]
pub struct Bound {
    listener: TcpListener,
    addr: SocketAddr,
    guard: Arc<Guard>,
    file: ServerFile,
    max_body: usize,
}

impl Bound {
    /// Binds, then reads or makes the token, then writes `server.json`, in this order, so that whoever loses
    /// the race for the port changes nothing.
    pub async fn new(
        settings: &config::Server,
        home: &Path,
        fs: Arc<dyn Fs>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, Error> {
        let listener = listener::bind(&settings.host, settings.port).await?;
        let addr = listener.local_addr().map_err(Error::Serve)?;
        if !addr.ip().is_loopback() && settings.allowed_hosts.is_empty() {
            return Err(Error::Exposed(addr.to_string()));
        }
        let (home, fixed) = (home.to_owned(), settings.token.clone());
        let (files, times) = (Arc::clone(&fs), Arc::clone(&clock));
        let opened = tasks::blocking("server files", move || -> Result<(Tokens, ServerFile), Error> {
            let now = times.wall();
            let tokens = Tokens::open(Arc::clone(&files), times, &home, fixed)?;
            crate::sys::fs::create_dir_all(files.as_ref(), &home)?;
            Ok((tokens, ServerFile::write(files, &home, addr, now)?))
        });
        let (tokens, file) = opened.await.map_err(|e| Error::Serve(std::io::Error::other(e)))??;
        let rules = Rules {
            addr,
            allowed_hosts: settings.allowed_hosts.clone(),
            allowed_origins: settings.allowed_origins.clone(),
            rate: settings.rate_limit,
            max_body: settings.max_body_bytes,
        };
        let guard = Arc::new(Guard::new(rules, tokens, clock));
        Ok(Self { listener, addr, guard, file, max_body: settings.max_body_bytes })
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// What `server.json` says.
    pub fn info(&self) -> &ServerInfo {
        self.file.info()
    }

    /// Serves until `shutdown`, then ends streams, lets short requests finish and removes `server.json`.
    pub async fn run(self, server: Server, shutdown: CancellationToken) -> Result<(), Error> {
        let stop = shutdown.child_token();
        let router = router(&server, self.guard, self.max_body, stop.clone());
        let service = router.into_make_service_with_connect_info::<SocketAddr>();
        let serving = axum::serve(self.listener, service).with_graceful_shutdown(stop.clone().cancelled_owned());
        let ended = tokio::select! {
            ended = async { serving.await } => ended,
            () = async { shutdown.cancelled().await; tokio::time::sleep(DRAIN).await } => Ok(()),
        };
        stop.cancel();
        server.stop_checks();
        let file = self.file;
        let _ = tasks::blocking("server files", move || file.remove()).await;
        ended.map_err(Error::Serve)
    }
}

/// Binds and serves until `shutdown`.
pub async fn serve(
    server: Server,
    settings: &config::Server,
    home: &Path,
    fs: Arc<dyn Fs>,
    clock: Arc<dyn Clock>,
    shutdown: CancellationToken,
) -> Result<(), Error> {
    Bound::new(settings, home, fs, clock).await?.run(server, shutdown).await
}

fn router(server: &Server, rules: Arc<Guard>, max_body: usize, stop: CancellationToken) -> Router {
    let mut sessions = LocalSessionManager::default();
    sessions.session_config = session_config();
    let sessions = Arc::new(sessions);
    let server = server.clone();
    let kernel = server.kernel().clone();
    // Host, origin and body were checked by the guard, more strictly than the library does.
    let config = StreamableHttpServerConfig::default()
        .disable_allowed_hosts()
        .disable_allowed_origins()
        .with_sse_keep_alive(Some(KEEP_ALIVE))
        .with_max_request_body_bytes(max_body)
        .with_cancellation_token(stop);
    let mcp = StreamableHttpService::new(move || Ok(server.for_connection()), Arc::clone(&sessions), config);
    let followed = Arc::new(Sessions::new(sessions));
    Router::new()
        .route("/health", get(move || std::future::ready(health(&kernel))))
        .route_service("/mcp", mcp)
        .layer(middleware::from_fn_with_state(followed, sessions::follow))
        .layer(middleware::from_fn_with_state(rules, guard::guard))
}

fn session_config() -> SessionConfig {
    let mut config = SessionConfig::default();
    config.keep_alive = Some(SESSION_IDLE);
    config
}

/// Who this is, and which engines are left alone because they did not start. Open to all, so it says no more.
fn health(kernel: &KernelHandle) -> Json<Value> {
    let mut said = json!({ "ok": true, "name": SERVER_NAME, "version": env!("CARGO_PKG_VERSION") });
    let breakers = kernel.opened().map(|kernel| kernel.services().pool.breakers()).unwrap_or_default();
    let shown = |b: &BreakerState| {
        let seconds = u64::try_from(b.open_for.as_millis().div_ceil(1000)).unwrap_or(u64::MAX);
        json!({ "engine": b.engine, "failures": b.failures, "openForSeconds": seconds })
    };
    let shown: Vec<Value> = breakers.iter().map(shown).collect();
    if !shown.is_empty()
        && let Some(said) = said.as_object_mut()
    {
        said.insert("breakers".to_owned(), shown.into());
    }
    Json(said)
}
