//! A client of `clawo mcp` as a host program would be one: a child process, a handshake, tool calls.

use std::time::Duration;

use rmcp::{
    RoleClient, ServiceExt,
    model::CallToolRequestParams,
    service::{RunningService, ServiceError},
};
use serde_json::Value;

use super::{super::failure::Failure, project::Project};
use crate::{model::Code, sys::client_process::ServerProcess};

/// A handshake or one call takes at most this long; a call may wait for a change up to 55 s.
const CALL_LIMIT: Duration = Duration::from_secs(70);
/// A server whose input was closed ends within this.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);

/// A connected client and its server process.
#[derive(Debug)]
pub(super) struct Client {
    service: RunningService<RoleClient, ()>,
    process: ServerProcess,
    /// What the server calls itself.
    pub(super) server: String,
}

impl Client {
    /// Starts a server on the project's state and shakes hands.
    pub(super) async fn start(project: &Project) -> Result<Self, Failure> {
        let args = ["mcp".into()];
        let errors = project.dir.join("server.log");
        let mut process = ServerProcess::start(&project.program, &args, &project.server_env, &project.dir, &errors)
            .map_err(|e| Failure::io("start the server", e))?;
        let (Some(stdin), Some(stdout)) = (process.stdin.take(), process.stdout.take()) else {
            return Err(Failure::new(Code::Internal, "the server was started without pipes"));
        };
        let service = tokio::time::timeout(CALL_LIMIT, ().serve((stdout, stdin)))
            .await
            .map_err(|_| Failure::new(Code::Internal, format!("the server did not answer; see {}", errors.display())))?
            .map_err(|e| {
                Failure::new(Code::Internal, format!("the handshake failed: {e}; see {}", errors.display()))
            })?;
        let server = service
            .peer_info()
            .and_then(|info| info.server_info.as_ref().map(|server| format!("{} {}", server.name, server.version)))
            .unwrap_or_else(|| "a server without a name".to_owned());
        Ok(Self { service, process, server })
    }

    /// Calls a tool and returns its structured result; a tool error is a failure with the same code.
    pub(super) async fn call(&self, tool: &'static str, arguments: Value) -> Result<Value, Failure> {
        let mut params = CallToolRequestParams::new(tool);
        if let Value::Object(arguments) = arguments {
            params = params.with_arguments(arguments);
        }
        let result = tokio::time::timeout(CALL_LIMIT, self.service.call_tool(params))
            .await
            .map_err(|_| Failure::new(Code::Internal, format!("{tool} did not answer within {CALL_LIMIT:?}")))?
            .map_err(|e: ServiceError| Failure::new(Code::Internal, format!("{tool} failed: {e}")))?;
        let structured = result.structured_content.unwrap_or(Value::Null);
        if result.is_error == Some(true) {
            let said = structured.get("error").and_then(Value::as_str).map(str::to_owned);
            let said = said.unwrap_or_else(|| format!("{:?}", result.content));
            return Err(Failure::new(Code::Internal, format!("{tool} was refused: {said}")));
        }
        Ok(structured)
    }

    /// Kills the server as a crash would; returns its process id.
    pub(super) async fn kill(mut self) -> Result<u32, Failure> {
        let pid = self.process.pid().unwrap_or_default();
        self.process.kill().await.map_err(|e| Failure::io("kill the server", e))?;
        // The transport is gone; what the client says about that does not matter.
        let _ = self.service.cancel().await;
        Ok(pid)
    }

    /// Closes the connection and waits for the server to end.
    pub(super) async fn close(mut self) -> Result<(), Failure> {
        let _ = self.service.cancel().await;
        match self.process.wait(CLOSE_LIMIT).await {
            Ok(Some(_)) => Ok(()),
            Ok(None) => Err(Failure::new(Code::Internal, format!("the server did not end within {CLOSE_LIMIT:?}"))),
            Err(e) => Err(Failure::io("wait for the server", e)),
        }
    }
}
