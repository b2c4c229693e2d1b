//! Binds the port and, when it is taken, says by whom.

use std::{io, net::SocketAddr, time::Duration};

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream, lookup_host},
};

use super::SERVER_NAME;

/// How long the server behind a taken port has to answer.
const PROBE: Duration = Duration::from_secs(1);
/// Most bytes read of its answer.
const ANSWER_MAX: u64 = 16 * 1024;

/// Why there is no listener.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another claw-orchestrator is there.
    #[error("port {port} is served by another claw-orchestrator (version {version}); stop it or choose --port")]
    TakenByUs {
        /// The port.
        port: u16,
        /// Its version.
        version: String,
    },
    /// Something else is there.
    #[error("port {0} is taken by another program; choose --port")]
    Taken(u16),
    /// The address does not exist or may not be bound.
    #[error("{host}:{port} cannot be bound: {source}")]
    Bind {
        /// The address.
        host: String,
        /// The port.
        port: u16,
        /// Why.
        source: io::Error,
    },
}

/// Binds `host:port`; port 0 takes any free one.
pub async fn bind(host: &str, port: u16) -> Result<TcpListener, Error> {
    let plain = host.trim_start_matches('[').trim_end_matches(']');
    match TcpListener::bind((plain, port)).await {
        Ok(listener) => Ok(listener),
        Err(e) if e.kind() == io::ErrorKind::AddrInUse => Err(match version_at(plain, port).await {
            Some(version) => Error::TakenByUs { port, version },
            None => Error::Taken(port),
        }),
        Err(source) => Err(Error::Bind { host: host.to_owned(), port, source }),
    }
}

/// Version of a claw-orchestrator that answers there.
async fn version_at(host: &str, port: u16) -> Option<String> {
    health(host, port).await?.get("version")?.as_str().map(str::to_owned)
}

/// What a claw-orchestrator that answers there says of itself.
pub async fn health(host: &str, port: u16) -> Option<Value> {
    let addr: SocketAddr = lookup_host((host, port)).await.ok()?.next()?;
    tokio::time::timeout(PROBE, probe(addr)).await.ok().flatten()
}

async fn probe(addr: SocketAddr) -> Option<Value> {
    let mut stream = TcpStream::connect(addr).await.ok()?;
    let request = format!("GET /health HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nConnection: close\r\n\r\n", addr.port());
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut answer = Vec::new();
    stream.take(ANSWER_MAX).read_to_end(&mut answer).await.ok()?;
    let text = String::from_utf8_lossy(&answer);
    let body: Value = serde_json::from_str(text.split_once("\r\n\r\n")?.1).ok()?;
    (body.get("name")? == SERVER_NAME).then_some(body)
}
