//! MCP over standard input and output.
//!
//! Serves before anything is opened. Odd first messages and over-long lines are survived. At the end of
//! the input what is short is finished, and it returns within five seconds.

use std::{borrow::Cow, time::Duration};

use rmcp::{
    RoleServer, ServiceExt,
    model::JsonRpcMessage,
    service::{RxJsonRpcMessage, ServerInitializeError, TxJsonRpcMessage},
    transport::{Transport, async_rw::AsyncRwTransport, stdio_pipes},
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use super::Server;

/// Longest line in bytes. A longer one is skipped and the server lives on.
const LINE_MAX: usize = 16 * 1024 * 1024;
/// How long calls may still run after the end of the input. Ending stubborn agents takes up to three seconds more,
/// and the whole must stay below five.
const DRAIN: Duration = Duration::from_secs(1);

/// Why serving ended badly.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The connection could not be opened.
    #[error("the connection failed: {0}")]
    Connection(String),
}

/// Serves on the process's own standard streams until the end of the input or `shutdown`.
pub async fn serve(server: Server, shutdown: CancellationToken) -> Result<(), Error> {
    let (reader, writer) = stdio_pipes();
    serve_on(server, reader, writer, shutdown).await
}

/// Serves on any pair of streams.
pub async fn serve_on<R, W>(server: Server, reader: R, writer: W, shutdown: CancellationToken) -> Result<(), Error>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let over = CancellationToken::new();
    let transport = Opening {
        inner: AsyncRwTransport::<RoleServer, R, W>::new_server(reader, writer).with_max_line_length(LINE_MAX),
        stage: Stage::Opening,
        over: over.clone(),
    };
    let stop = CancellationToken::new();
    let checks = server.clone();
    let running = tokio::select! {
        running = server.serve_with_ct(transport, stop.clone()) => running,
        () = shutdown.cancelled() => return Ok(()),
    };
    let running = match running {
        Ok(running) => running,
        // The host went away before it said anything.
        Err(ServerInitializeError::ConnectionClosed(_) | ServerInitializeError::Cancelled) => return Ok(()),
        Err(error) => return Err(Error::Connection(error.to_string())),
    };
    let waiting = running.waiting();
    tokio::pin!(waiting);
    tokio::select! {
        _ = &mut waiting => {}
        () = async { over.cancelled().await; tokio::time::sleep(DRAIN).await } => {}
        () = shutdown.cancelled() => {}
    }
    checks.stop_checks();
    stop.cancel();
    Ok(())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Opening,
    Open,
}

/// Drops what comes before the first request (stray notifications, answers) instead of ending the connection,
/// and notices the end of the input.
struct Opening<T> {
    inner: T,
    stage: Stage,
    over: CancellationToken,
}

impl<T: Transport<RoleServer>> Transport<RoleServer> for Opening<T> {
    type Error = T::Error;

    fn name() -> Cow<'static, str> {
        T::name()
    }

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.inner.send(item)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            let Some(message) = self.inner.receive().await else {
                self.over.cancel();
                return None;
            };
            match (&message, self.stage) {
                (JsonRpcMessage::Request(_), _) => {
                    self.stage = Stage::Open;
                    return Some(message);
                }
                (_, Stage::Open) => return Some(message),
                (_, Stage::Opening) => tracing::debug!("a message before the first request was skipped"),
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.inner.close().await
    }
}
