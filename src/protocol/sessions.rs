//! How many legacy sessions are kept: of clients that vanish without ending theirs, the one used longest ago goes.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use axum::{
    extract::{Request, State},
    http::HeaderMap,
    middleware::Next,
    response::Response,
};
use rmcp::transport::streamable_http_server::{SessionId, SessionManager, session::local::LocalSessionManager};

/// Sessions kept. A client whose session was forgotten is told that it does not exist and begins another one.
const SESSIONS_MAX: usize = 128;

/// The header that names a session.
const HEADER: &str = "mcp-session-id";

/// The sessions of one server and when each was used last.
#[derive(Debug)]
pub(super) struct Sessions {
    manager: Arc<LocalSessionManager>,
    used: Mutex<Used>,
}

/// Uses, in their order.
#[derive(Debug, Default)]
struct Used {
    last: HashMap<SessionId, u64>,
    count: u64,
}

impl Used {
    fn touch(&mut self, id: &SessionId) {
        self.count += 1;
        self.last.insert(Arc::clone(id), self.count);
    }

    /// Takes out whatever is used longest ago while there are more than `max`.
    fn surplus(&mut self, max: usize) -> Vec<SessionId> {
        let mut by_use: Vec<(u64, SessionId)> = self.last.iter().map(|(id, at)| (*at, Arc::clone(id))).collect();
        by_use.sort_unstable();
        by_use.truncate(by_use.len().saturating_sub(max));
        let surplus: Vec<SessionId> = by_use.into_iter().map(|(_, id)| id).collect();
        self.last.retain(|id, _| !surplus.contains(id));
        surplus
    }
}

impl Sessions {
    /// The sessions of `manager`, none so far.
    pub(super) fn new(manager: Arc<LocalSessionManager>) -> Self {
        Self { manager, used: Mutex::default() }
    }

    fn used(&self) -> MutexGuard<'_, Used> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A client uses its session. What names none is not remembered.
    fn touched(&self, id: &SessionId) {
        let mut used = self.used();
        if used.last.contains_key(id) {
            used.touch(id);
        }
    }

    /// A session was made; whatever is too much by now is ended.
    async fn made(&self, id: &SessionId) {
        let there: Vec<SessionId> = self.manager.sessions.read().await.keys().cloned().collect();
        let surplus = {
            let mut used = self.used();
            used.last.retain(|known, _| there.contains(known));
            used.touch(id);
            used.surplus(SESSIONS_MAX)
        };
        for id in surplus {
            tracing::info!("a session that was used longest ago is forgotten; more than {SESSIONS_MAX} are open");
            if let Err(e) = self.manager.close_session(&id).await {
                tracing::warn!(error = %e, "a session could not be ended");
            }
        }
    }
}

/// The middleware that follows the sessions.
pub(super) async fn follow(State(sessions): State<Arc<Sessions>>, request: Request, next: Next) -> Response {
    let asked = named(request.headers());
    if let Some(id) = &asked {
        sessions.touched(id);
    }
    let response = next.run(request).await;
    if asked.is_none()
        && let Some(id) = named(response.headers())
    {
        sessions.made(&id).await;
    }
    response
}

fn named(headers: &HeaderMap) -> Option<SessionId> {
    headers.get(HEADER).and_then(|value| value.to_str().ok()).map(SessionId::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_used_longest_ago_goes_first() {
        let mut used = Used::default();
        let ids: Vec<SessionId> = ["a", "b", "c", "d"].into_iter().map(SessionId::from).collect();
        for id in &ids {
            used.touch(id);
        }
        used.touch(&ids[0]);
        assert_eq!(used.surplus(4), [] as [SessionId; 0]);
        assert_eq!(used.surplus(2), [ids[1].clone(), ids[2].clone()]);
        assert_eq!(used.surplus(2), [] as [SessionId; 0]);
        assert_eq!(used.last.len(), 2);
    }
}
