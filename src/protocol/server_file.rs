//! `server.json`: where the running server is, for the command line. Written after the bind, removed by its writer only.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use super::SERVER_NAME;
use crate::{
    model::Time,
    sys::{Fs, FsError, fs::write_atomic, ids},
};

/// Name of the file in the state directory.
pub const FILE: &str = "server.json";

/// What the file says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerInfo {
    /// Names this start of the server.
    pub id: String,
    /// The program's name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// Bound address.
    pub host: String,
    /// Bound port.
    pub port: u16,
    /// Address of the MCP endpoint.
    pub url: String,
    /// When it began to serve.
    pub started_at: Time,
}

/// The file of a running server.
#[derive(Debug)]
pub struct ServerFile {
    fs: Arc<dyn Fs>,
    path: PathBuf,
    info: ServerInfo,
}

impl ServerFile {
    /// Writes it.
    pub fn write(fs: Arc<dyn Fs>, home: &Path, addr: SocketAddr, now: Time) -> Result<Self, FsError> {
        let info = ServerInfo {
            id: ids::short(),
            name: SERVER_NAME.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            host: addr.ip().to_string(),
            port: addr.port(),
            url: format!("http://{addr}/mcp"),
            started_at: now,
        };
        let path = home.join(FILE);
        let bytes = serde_json::to_vec_pretty(&info).unwrap_or_default();
        write_atomic(fs.as_ref(), &path, &bytes)?;
        Ok(Self { fs, path, info })
    }

    /// What it says.
    pub fn info(&self) -> &ServerInfo {
        &self.info
    }

    /// Removes it when it is still this server's.
    pub fn remove(&self) {
        let ours = self
            .fs
            .read(&self.path)
            .ok()
            .and_then(|bytes| serde_json::from_slice::<ServerInfo>(&bytes).ok())
            .is_some_and(|there| there.id == self.info.id);
        if ours && let Err(error) = self.fs.remove_file(&self.path) {
            tracing::warn!(%error, "server.json stays behind");
        }
    }
}
