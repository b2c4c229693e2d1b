//! What every HTTP request must pass before anything reads it: host, origin, rate, token, route, body.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{
    body::Body,
    extract::{ConnectInfo, Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use serde::de::IgnoredAny;

use super::{errors, token::Tokens};
use crate::sys::{Clock, tasks};

/// Window of the rate limits.
const WINDOW: Duration = Duration::from_secs(60);
/// Wrong tokens from one address in a window before it has to wait.
const FAILURES_MAX: usize = 10;
/// Addresses remembered; the one seen longest ago makes room.
const ADDRESSES_MAX: usize = 1024;
/// Deepest nesting of a JSON body.
const DEPTH_MAX: usize = 64;

/// Routes and their methods.
const ROUTES: [(&str, &str); 2] = [("/health", "GET"), ("/mcp", "GET, POST, DELETE")];

/// The rules of one server.
#[derive(Debug)]
pub struct Guard {
    hosts: BTreeSet<String>,
    origins: BTreeSet<String>,
    /// Origins that get CORS headers: those allowed beyond the server's own.
    foreign: BTreeSet<String>,
    tokens: Arc<Tokens>,
    rate: usize,
    max_body: usize,
    clock: Arc<dyn Clock>,
    seen: Mutex<HashMap<IpAddr, Seen>>,
}

#[derive(Debug, Default)]
struct Seen {
    requests: VecDeque<Duration>,
    failures: VecDeque<Duration>,
}

/// What a guard is made from.
#[derive(Debug)]
pub struct Rules {
    /// Where the server listens.
    pub addr: SocketAddr,
    /// Further `Host` values.
    pub allowed_hosts: Vec<String>,
    /// Further `Origin` values.
    pub allowed_origins: Vec<String>,
    /// Requests a minute and address.
    pub rate: u32,
    /// Longest body in bytes.
    pub max_body: usize,
}

/// A refused request.
struct Refusal {
    status: StatusCode,
    code: &'static str,
    message: String,
    header: Option<(HeaderName, String)>,
}

impl Refusal {
    fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), header: None }
    }

    fn with(mut self, name: HeaderName, value: impl Into<String>) -> Self {
        self.header = Some((name, value.into()));
        self
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = (self.status, axum::Json(errors::body(self.code, &self.message))).into_response();
        if let Some((name, value)) = self.header
            && let Ok(value) = HeaderValue::from_str(&value)
        {
            response.headers_mut().insert(name, value);
        }
        response
    }
}

impl Guard {
    /// The rules for a bound server.
    pub fn new(rules: Rules, tokens: Tokens, clock: Arc<dyn Clock>) -> Self {
        let port = rules.addr.port();
        let mut hosts = BTreeSet::new();
        for name in ["127.0.0.1", "localhost", "[::1]"] {
            hosts.insert(format!("{name}:{port}"));
            if port == 80 {
                hosts.insert(name.to_owned());
            }
        }
        let mut origins: BTreeSet<String> = hosts.iter().map(|h| format!("http://{h}")).collect();
        for host in rules.allowed_hosts {
            let host = host.to_ascii_lowercase();
            hosts.insert(format!("{host}:{port}"));
            hosts.insert(host);
        }
        let foreign: BTreeSet<String> =
            rules.allowed_origins.iter().map(|o| o.trim_end_matches('/').to_ascii_lowercase()).collect();
        origins.extend(foreign.iter().cloned());
        Self {
            hosts,
            origins,
            foreign,
            tokens: Arc::new(tokens),
            rate: rules.rate.max(1) as usize,
            max_body: rules.max_body,
            clock,
            seen: Mutex::default(),
        }
    }

    fn origin<'a>(&self, headers: &'a HeaderMap) -> Result<Option<&'a str>, Refusal> {
        let Some(value) = headers.get(header::ORIGIN) else { return Ok(None) };
        let refused = || {
            Refusal::new(
                StatusCode::FORBIDDEN,
                "forbidden_origin",
                "this origin is not allowed; allow it at start with --allowed-origin",
            )
        };
        let text = value.to_str().map_err(|_| refused())?;
        if self.origins.contains(&text.to_ascii_lowercase()) { Ok(Some(text)) } else { Err(refused()) }
    }

    fn host(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let mut values = headers.get_all(header::HOST).iter();
        let host = values.next().and_then(|h| h.to_str().ok()).map(str::to_ascii_lowercase);
        if values.next().is_none() && host.is_some_and(|h| self.hosts.contains(&h)) {
            return Ok(());
        }
        Err(Refusal::new(
            StatusCode::FORBIDDEN,
            "forbidden_host",
            "this host name is not allowed; use the loopback address, or allow it at start with --allowed-host",
        ))
    }

    /// Counts the request; refuses above the limits.
    fn rate(&self, address: IpAddr) -> Result<(), Refusal> {
        let now = self.clock.boot();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.len() >= ADDRESSES_MAX && !seen.contains_key(&address) {
            let oldest = seen.iter().min_by_key(|(_, s)| s.requests.back().copied()).map(|(a, _)| *a);
            if let Some(oldest) = oldest {
                seen.remove(&oldest);
            }
        }
        let entry = seen.entry(address).or_default();
        for times in [&mut entry.requests, &mut entry.failures] {
            while times.front().is_some_and(|t| now.saturating_sub(*t) >= WINDOW) {
                times.pop_front();
            }
        }
        let wait = |first: Option<&Duration>| {
            let left = first.map_or(WINDOW, |t| WINDOW.saturating_sub(now.saturating_sub(*t)));
            (left.as_secs() + 1).to_string()
        };
        if entry.failures.len() >= FAILURES_MAX {
            // A full minute after the last wrong token.
            return Err(Refusal::new(
                StatusCode::TOO_MANY_REQUESTS,
                "rate_limited",
                "too many wrong tokens; wait a minute",
            )
            .with(header::RETRY_AFTER, wait(entry.failures.back())));
        }
        if entry.requests.len() >= self.rate {
            return Err(Refusal::new(
                StatusCode::TOO_MANY_REQUESTS,
                "rate_limited",
                "too many requests; wait and try again",
            )
            .with(header::RETRY_AFTER, wait(entry.requests.front())));
        }
        entry.requests.push_back(now);
        Ok(())
    }

    fn authenticate(&self, headers: &HeaderMap, address: IpAddr) -> Result<(), Refusal> {
        let given = headers.get(header::AUTHORIZATION).and_then(|v| v.to_str().ok()).and_then(|v| {
            let (scheme, token) = v.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
        });
        if given.is_some_and(|g| self.tokens.accepts(g)) {
            return Ok(());
        }
        if given.is_some() {
            let now = self.clock.boot();
            let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            seen.entry(address).or_default().failures.push_back(now);
        }
        Err(Refusal::new(
            StatusCode::UNAUTHORIZED,
            "unauthorized",
            "send Authorization: Bearer with the token of the server",
        )
        .with(header::WWW_AUTHENTICATE, "Bearer"))
    }

    async fn check(&self, address: IpAddr, request: Request) -> Result<Request, Refusal> {
        let headers = request.headers();
        self.host(headers)?;
        self.origin(headers)?;
        let path = request.uri().path().to_owned();
        let open = path == "/health";
        if !open {
            self.rate(address)?;
            // A preflight carries no token; it is answered without doing anything.
            if request.method() != Method::OPTIONS {
                if self.tokens.is_due() {
                    let tokens = Arc::clone(&self.tokens);
                    let _ = tasks::blocking("token", move || tokens.refresh()).await;
                }
                self.authenticate(headers, address)?;
            }
        }
        let Some((_, methods)) = ROUTES.iter().find(|(route, _)| *route == path) else {
            return Err(Refusal::new(StatusCode::NOT_FOUND, "not_found", "there is no such route; MCP is at /mcp"));
        };
        let method = request.method().clone();
        let head_ok = method == Method::HEAD && methods.contains("GET") && open;
        if method != Method::OPTIONS && !head_ok && !methods.split(", ").any(|m| m == method.as_str()) {
            return Err(Refusal::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "method_not_allowed",
                format!("{path} takes {methods}"),
            )
            .with(header::ALLOW, *methods));
        }
        if method == Method::POST { self.body(request).await } else { Ok(request) }
    }

    async fn body(&self, request: Request) -> Result<Request, Refusal> {
        let kind = request.headers().get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
        if !kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json") {
            return Err(Refusal::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "unsupported_media_type",
                "send Content-Type: application/json",
            ));
        }
        let too_large = || {
            Refusal::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                "payload_too_large",
                format!("a body has at most {} bytes", self.max_body),
            )
            .with(header::CONNECTION, "close")
        };
        let announced =
            request.headers().get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<usize>().ok());
        if announced.is_some_and(|n| n > self.max_body) {
            return Err(too_large());
        }
        let (parts, body) = request.into_parts();
        let bytes = axum::body::to_bytes(body, self.max_body).await.map_err(|_| too_large())?;
        let bad = |what: &str| Refusal::new(StatusCode::BAD_REQUEST, "bad_json", format!("the body {what}"));
        let text = std::str::from_utf8(&bytes).map_err(|_| bad("is not UTF-8"))?;
        if depth(text) > DEPTH_MAX {
            return Err(bad("is nested too deeply, at most 64 levels"));
        }
        serde_json::from_str::<IgnoredAny>(text).map_err(|e| bad(&format!("is not JSON: {e}")))?;
        if !text.trim_start().starts_with('{') {
            return Err(bad("is not a JSON object"));
        }
        Ok(Request::from_parts(parts, Body::from(bytes)))
    }

    fn cors(&self, origin: Option<&str>, headers: &mut HeaderMap) {
        let Some(origin) = origin.filter(|o| self.foreign.contains(&o.to_ascii_lowercase())) else { return };
        if let Ok(value) = HeaderValue::from_str(origin) {
            headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, value);
            headers.insert(header::VARY, HeaderValue::from_static("Origin"));
            headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST, DELETE"));
            headers.insert(
                header::ACCESS_CONTROL_ALLOW_HEADERS,
                HeaderValue::from_static("authorization, content-type, mcp-protocol-version, mcp-session-id, mcp-method, mcp-name, last-event-id"),
            );
            headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("mcp-session-id"));
        }
    }
}

/// Deepest nesting of brackets outside strings.
fn depth(text: &str) -> usize {
    let (mut now, mut most, mut quoted, mut escaped) = (0_usize, 0, false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'{' | b'[' if !quoted => {
                now += 1;
                most = most.max(now);
            }
            b'}' | b']' if !quoted => now = now.saturating_sub(1),
            _ => {}
        }
    }
    most
}

/// The middleware in front of every route.
pub async fn guard(
    State(guard): State<Arc<Guard>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: Request,
    next: Next,
) -> Response {
    let origin = guard.origin(request.headers()).ok().flatten().map(str::to_owned);
    let mut response = match guard.check(peer.ip(), request).await {
        Ok(request) if request.method() == Method::OPTIONS => StatusCode::NO_CONTENT.into_response(),
        Ok(request) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    };
    let headers = response.headers_mut();
    guard.cors(origin.as_deref(), headers);
    for (name, value) in [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("x-accel-buffering"), "no"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use super::depth;

    #[test]
    fn depth_ignores_what_is_quoted() {
        assert_eq!(depth(r#"{"a": "[[[[", "b": [1, {"c": "\"{"}]}"#), 3);
        assert_eq!(depth(&"[".repeat(100)), 100);
    }
}
