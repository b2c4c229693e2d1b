//! mcp: a server on an in-memory pipe, spoken to in plain JSON lines.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use claw_orchestrator::{
    kernel::{Error, Kernel},
    model::Code,
    protocol::{Options, Server, stdio},
    tools::{KernelHandle, Selection},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

use crate::support::schema::check_result;

/// What the opener of a test's kernel does.
#[derive(Clone, Copy)]
pub(crate) enum Opening {
    /// Refuses, as a store on a full disk would.
    Fails,
    /// Never comes back, as a store on a dead network mount would.
    Hangs,
}

/// A server whose kernel cannot be opened, and how often it was asked to.
pub(crate) fn server(opening: Opening) -> (Server, Arc<AtomicUsize>) {
    let opened = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&opened);
    let handle = KernelHandle::lazy(Arc::new(move || {
        counter.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            match opening {
                Opening::Fails => Err(Error::new(Code::StoreUnavailable, "the state directory cannot be written")),
                Opening::Hangs => std::future::pending().await,
            }
        })
    }));
    let registry = Selection::default().apply().unwrap().registry;
    (Server::new(handle, registry, Options { parent: None, engines: vec!["scripted".into()] }).unwrap(), opened)
}

/// The client's end.
pub(crate) struct Wire {
    lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    writer: Option<WriteHalf<DuplexStream>>,
    pub(crate) served: JoinHandle<Result<(), stdio::Error>>,
    pub(crate) opened: Arc<AtomicUsize>,
    next: u64,
    /// Tools of the calls that are not answered yet; every answer is checked against its tool's schema.
    called: HashMap<u64, String>,
}

impl Wire {
    pub(crate) fn new(opening: Opening) -> Self {
        let (server, opened) = server(opening);
        Self::of(server, opened)
    }

    /// A connection to a server over a real kernel.
    pub(crate) fn real(kernel: Kernel) -> Self {
        let registry = Selection::default().apply().unwrap().registry;
        let server = Server::new(KernelHandle::ready(kernel), registry, Options::default()).unwrap();
        Self::of(server, Arc::default())
    }

    /// The same with these toolsets.
    pub(crate) fn with(kernel: Kernel, toolsets: &[&str]) -> Self {
        let toolsets = Some(toolsets.iter().map(|t| (*t).to_owned()).collect());
        let registry = Selection { toolsets, ..Selection::default() }.apply().unwrap().registry;
        let server = Server::new(KernelHandle::ready(kernel), registry, Options::default()).unwrap();
        Self::of(server, Arc::default())
    }

    fn of(server: Server, opened: Arc<AtomicUsize>) -> Self {
        let (ours, theirs) = tokio::io::duplex(1 << 20);
        let (reader, writer) = tokio::io::split(theirs);
        let served = tokio::spawn(stdio::serve_on(server, reader, writer, CancellationToken::new()));
        let (reader, writer) = tokio::io::split(ours);
        Self {
            lines: BufReader::new(reader).lines(),
            writer: Some(writer),
            served,
            opened,
            next: 0,
            called: HashMap::new(),
        }
    }

    pub(crate) async fn open(opening: Opening, version: &str) -> Self {
        let mut wire = Self::new(opening);
        let result = wire.initialize(version).await;
        assert_eq!(result["protocolVersion"], version);
        wire
    }

    pub(crate) async fn initialize(&mut self, version: &str) -> Value {
        self.initialize_with(version, json!({})).await
    }

    pub(crate) async fn initialize_with(&mut self, version: &str, capabilities: Value) -> Value {
        let params = json!({
            "protocolVersion": version, "capabilities": capabilities, "clientInfo": { "name": "test", "version": "1" }
        });
        let answer = self.request("initialize", params).await;
        self.line(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }).to_string()).await;
        answer["result"].clone()
    }

    pub(crate) async fn line(&mut self, text: &str) {
        let writer = self.writer.as_mut().unwrap();
        writer.write_all(text.as_bytes()).await.unwrap();
        writer.write_all(b"\n").await.unwrap();
    }

    pub(crate) async fn send(&mut self, method: &str, params: Value) -> u64 {
        self.next += 1;
        let id = self.next;
        if let (true, Some(tool)) = (method == "tools/call", params["name"].as_str()) {
            self.called.insert(id, tool.to_owned());
        }
        self.line(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string()).await;
        id
    }

    /// The next message; every line must be JSON-RPC.
    pub(crate) async fn receive(&mut self) -> Value {
        let line = tokio::time::timeout(std::time::Duration::from_secs(30), self.lines.next_line())
            .await
            .expect("an answer in time")
            .unwrap()
            .expect("an open connection");
        let message: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(message["jsonrpc"], "2.0");
        // Questions of the server have ids of their own.
        if let (Some(result), Some(id)) = (message.get("result"), message["id"].as_u64())
            && let Some(tool) = self.called.remove(&id)
        {
            check_result(&tool, result);
        }
        message
    }

    /// Sends a request and returns its answer, notifications passed over.
    pub(crate) async fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params).await;
        loop {
            let message = self.receive().await;
            if message["id"] == id {
                return message;
            }
        }
    }

    pub(crate) async fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.request("tools/call", json!({ "name": tool, "arguments": arguments })).await
    }

    /// Ends the input.
    pub(crate) async fn close(&mut self) {
        if let Some(mut writer) = self.writer.take() {
            writer.shutdown().await.unwrap();
        }
    }
}

/// The `_meta` of a modern request.
pub(crate) fn modern(mut params: Value, capabilities: &Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": capabilities,
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
    });
    params
}
