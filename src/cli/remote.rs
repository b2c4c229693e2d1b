//! A running server, asked over its own MCP endpoint: one request a call, no handshake.

use std::time::Duration;

use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde_json::{Map, Value, json};

use super::failure::Failure;
use crate::{
    config::Config,
    model::Code,
    protocol::{server_file, token},
    sys::{Fs, RealFs},
};

/// Revision of the protocol in which a call needs no handshake.
const REVISION: &str = "2026-07-28";
/// Address of a server that nobody said anything about.
const DEFAULT: &str = "http://127.0.0.1:18796";
/// Longest wait for one answer: a call answers within a minute by itself.
const CALL_LIMIT: Duration = Duration::from_secs(90);
/// Longest answer in bytes; results are far below.
const ANSWER_MAX: usize = 8 << 20;

/// Where the server is and what lets us in.
#[derive(Debug)]
pub(crate) struct Remote {
    url: String,
    token: String,
    client: Client<HttpConnector, Full<Bytes>>,
}

impl Remote {
    /// The server of the flag, the environment or the state directory. Whether it answers shows with the first call.
    pub(crate) fn find(config: &Config, api: Option<&str>) -> Result<Self, Failure> {
        let set = |name: &str| config.env.get(name).map(String::as_str).filter(|v| !v.is_empty());
        let file = || {
            let bytes = RealFs.read(&config.home.join(server_file::FILE)).ok()?;
            let info: server_file::ServerInfo = serde_json::from_slice(&bytes).ok()?;
            Some(info.url.trim_end_matches("/mcp").to_owned())
        };
        let base = api.or(set("CLAWO_API_URL")).map(str::to_owned).or_else(file).unwrap_or_else(|| DEFAULT.to_owned());
        let token = match set("CLAWO_AUTH_TOKEN").or(config.server.token.as_deref()) {
            Some(token) => token.to_owned(),
            None => match RealFs.read(&config.home.join(token::FILE)) {
                Ok(bytes) => String::from_utf8_lossy(&bytes).trim().to_owned(),
                Err(_) => String::new(),
            },
        };
        let client = Client::builder(TokioExecutor::new()).build_http();
        Ok(Self { url: format!("{}/mcp", base.trim_end_matches('/')), token, client })
    }

    /// The structured result of a tool; an error of it is a failure with the same code.
    pub(crate) async fn call(&self, tool: &str, arguments: Map<String, Value>) -> Result<Value, Failure> {
        let answer = tokio::time::timeout(CALL_LIMIT, self.post(tool, arguments));
        let answer =
            answer.await.map_err(|_| Failure::new(Code::Internal, format!("{tool} was not answered in time")))??;
        if let Some(error) = answer.get("error") {
            let text = error.get("message").and_then(Value::as_str).unwrap_or("refused");
            let unknown = error.pointer("/data/code").and_then(Value::as_str) == Some(Code::UnknownTool.as_str());
            let code = if unknown { Code::UnknownTool } else { Code::InvalidArgument };
            let hint = unknown.then(|| "start the server with '--toolsets default,session'".to_owned());
            return Err(Failure { hint, ..Failure::new(code, text) });
        }
        let result = answer.pointer("/result/structuredContent").cloned().unwrap_or_default();
        if answer.pointer("/result/isError") != Some(&Value::Bool(true)) {
            return Ok(result);
        }
        let word = result.get("code").and_then(Value::as_str).unwrap_or_default();
        let code = Code::ALL.iter().find(|code| code.as_str() == word).copied().unwrap_or(Code::Internal);
        let text = result.get("error").and_then(Value::as_str).unwrap_or("the call failed").to_owned();
        let details = result.get("details").cloned().map(Box::new);
        Err(Failure { details, ..Failure::new(code, text) })
    }

    async fn post(&self, tool: &str, arguments: Map<String, Value>) -> Result<Value, Failure> {
        let params = json!({
            "name": tool, "arguments": arguments,
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": REVISION,
                "io.modelcontextprotocol/clientCapabilities": {},
                "io.modelcontextprotocol/clientInfo": { "name": "clawo", "version": env!("CARGO_PKG_VERSION") },
            },
        });
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }).to_string();
        let request = Request::post(&self.url)
            .header(header::AUTHORIZATION, format!("Bearer {}", self.token))
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json, text/event-stream")
            .header("MCP-Protocol-Version", REVISION)
            .header("Mcp-Method", "tools/call")
            .header("Mcp-Name", tool)
            .body(Full::new(Bytes::from(body)))
            .map_err(|e| {
                Failure::usage(format!("'{}' is not an address: {e}", self.url), "correct --api or CLAWO_API_URL")
            })?;
        let answer = self.client.request(request).await.map_err(|_| {
            let hint = "start one with 'clawo serve --toolsets default,session'".to_owned();
            Failure { hint: Some(hint), ..Failure::new(Code::NoServer, format!("no server answers at {}", self.url)) }
        })?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_MAX).collect().await;
        let body = body.map_err(|e| Failure::io("read the server's answer", e))?.to_bytes();
        let text = String::from_utf8_lossy(&body);
        match status {
            StatusCode::OK => {}
            StatusCode::UNAUTHORIZED => return Err(Failure::new(Code::Unauthorized, "the server refuses the token")),
            other => return Err(Failure::new(Code::Internal, format!("the server answers {other}: {}", text.trim()))),
        }
        // One document, or a stream whose last event is the answer.
        let found = text.lines().map(|l| l.strip_prefix("data: ").unwrap_or(l)).rfind(|l| l.starts_with('{'));
        found
            .and_then(|line| serde_json::from_str(line).ok())
            .ok_or_else(|| Failure::new(Code::Internal, "the server's answer cannot be read"))
    }
}
