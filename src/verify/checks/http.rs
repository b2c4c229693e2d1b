//! A GET that must be answered as expected within a deadline.
//!
//! Redirects are not followed and nothing is reused between tries: the answer is that of the address
//! asked. There is no TLS stack in this build, and a check that needs one says so instead of passing.

use std::time::Duration;

use http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Empty};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use regex::bytes::Regex;

use super::{Context, Outcome, or_cancelled};
use crate::verify::{Error, pattern};

/// Most bytes of an answer that are read and matched.
const BODY_MAX: usize = 10 << 20;
/// Characters shown of something the server said.
const SHOWN_MAX: usize = 200;

/// The fields of the check.
pub(super) struct Asked<'a> {
    /// Address.
    pub url: &'a str,
    /// Status that passes.
    pub expect_status: u16,
    /// Deadline in milliseconds.
    pub timeout_ms: u64,
    /// Pause between tries in milliseconds.
    pub interval_ms: u64,
    /// Expression for the body.
    pub expect_body: Option<&'a str>,
}

/// What the last try saw, kept outside of it because the deadline cuts tries off.
#[derive(Debug, Default)]
struct Seen {
    tries: u64,
    last: Option<String>,
    now: Option<String>,
}

pub(super) async fn run(asked: &Asked<'_>, context: &mut Context<'_>) -> Result<Outcome, Error> {
    let uri: Uri = match asked.url.parse() {
        Ok(uri) => uri,
        Err(reason) => return Ok(Outcome::failed(format!("'{}' is not an address: {reason}", asked.url))),
    };
    if uri.scheme_str() == Some("https") {
        return Ok(Outcome::not_run(
            "https checks need a build with TLS, which this one is not; check the service over http, or with a command",
        ));
    }
    let expect = match asked.expect_body.map(pattern::compile).transpose() {
        Ok(expect) => expect,
        Err(reason) => return Ok(Outcome::failed(format!("expectBody does not compile: {reason}"))),
    };
    let mut seen = Seen::default();
    let tries = try_until_good(&uri, asked, expect.as_ref(), &mut seen);
    let limited = tokio::time::timeout(Duration::from_millis(asked.timeout_ms), tries);
    match or_cancelled(context.cancel, limited).await? {
        Ok(detail) => Ok(Outcome::passed(detail)),
        Err(_) => {
            // A try that the deadline cut off says less than one that was answered.
            let last = seen.last.or(seen.now).unwrap_or_else(|| "no answer".to_owned());
            let wanted = match asked.expect_body {
                Some(body) => format!("status {} with a body matching /{body}/", asked.expect_status),
                None => format!("status {}", asked.expect_status),
            };
            let detail = format!("no {wanted} within {} ms; last of {} tries: {last}", asked.timeout_ms, seen.tries);
            Ok(Outcome { timed_out: true, ..Outcome::failed(detail) })
        }
    }
}

/// Tries until the answer is the expected one; the caller's deadline ends it.
async fn try_until_good(uri: &Uri, asked: &Asked<'_>, expect: Option<&Regex>, seen: &mut Seen) -> String {
    loop {
        seen.tries = seen.tries.saturating_add(1);
        seen.now = Some("connected or connecting, no answer yet".to_owned());
        let answer = get(uri).await;
        match judge(answer, asked.expect_status, expect, seen).await {
            Ok(detail) => return format!("{detail} (try {})", seen.tries),
            Err(reason) => seen.last = Some(reason),
        }
        seen.now = None;
        tokio::time::sleep(Duration::from_millis(asked.interval_ms)).await;
    }
}

/// Whether an answer is the expected one, or what it was instead.
async fn judge(
    answer: Result<Answer, String>,
    expect_status: u16,
    expect: Option<&Regex>,
    seen: &mut Seen,
) -> Result<String, String> {
    let answer = answer?;
    let status = answer.status.as_u16();
    if status != expect_status {
        let to = answer.location.map(|to| format!(" (a redirect to {to}, not followed)")).unwrap_or_default();
        return Err(format!("status {status}{to}"));
    }
    let Some(expect) = expect else { return Ok(format!("status {status}")) };
    let mut body = answer.body;
    let mut read: Vec<u8> = Vec::new();
    let mut cut = false;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|e| format!("status {status}, then the body broke off: {}", cause(&e)))?;
        let Ok(data) = frame.into_data() else { continue };
        let room = BODY_MAX.saturating_sub(read.len());
        cut = data.len() > room;
        read.extend_from_slice(data.get(..room.min(data.len())).unwrap_or_default());
        if cut {
            break;
        }
        seen.now = Some(format!("status {status}, body not complete after {} bytes", read.len()));
    }
    let cut = if cut { " (only its first 10 MiB were read)" } else { "" };
    let bytes = read.len();
    let expect = expect.clone();
    let matched = super::blocking(move || expect.is_match(&read)).await;
    match matched {
        Some(true) => Ok(format!("status {status}, body of {bytes} bytes matches{cut}")),
        Some(false) => Err(format!("status {status}, body of {bytes} bytes does not match{cut}")),
        None => Err(format!("status {status}, body could not be matched")),
    }
}

/// An answer whose body is still to be read.
pub(super) struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// Where it points, for a redirect.
    pub location: Option<String>,
    body: hyper::body::Incoming,
}

/// One GET on a connection of its own, or why there was no answer.
pub(super) async fn get(uri: &Uri) -> Result<Answer, String> {
    let client: Client<HttpConnector, Empty<&'static [u8]>> =
        Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build_http();
    let request = Request::get(uri.clone())
        .header(header::USER_AGENT, concat!("clawo/", env!("CARGO_PKG_VERSION")))
        .header(header::ACCEPT, "*/*")
        .header(header::CONNECTION, "close")
        .body(Empty::new())
        .map_err(|e| e.to_string())?;
    let response = client.request(request).await.map_err(|e| cause(&e))?;
    let (parts, body) = response.into_parts();
    let location = parts.headers.get(header::LOCATION).map(|value| {
        let text = String::from_utf8_lossy(value.as_bytes());
        text.chars().filter(|c| !c.is_control()).take(SHOWN_MAX).collect()
    });
    Ok(Answer { status: parts.status, location, body })
}

/// The deepest reason of an error, which is the one a person can act on.
fn cause(error: &dyn std::error::Error) -> String {
    let mut deepest = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    let text = deepest.to_string();
    text.split(" (os error").next().unwrap_or_default().chars().filter(|c| !c.is_control()).take(SHOWN_MAX).collect()
}
