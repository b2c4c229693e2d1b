//! A page captured at one or more window sizes.
//!
//! The picture is evidence for a person and is not compared with anything. Every capture has a profile
//! directory of its own that is gone afterwards.

use std::{
    io::Cursor,
    path::{Path, PathBuf},
    time::Duration,
};

use ::http::Uri;

use super::{
    Context, Outcome, blocking, http, or_cancelled,
    process::{Ending, Ran},
};
use crate::{
    model::contract::Viewport,
    sys::{
        self, Fs,
        supervise::{ChildSpec, Stdin},
    },
    verify::{Error, contract::unique_id},
};

/// Names of browsers looked up on PATH, in order.
const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];
/// Where browsers are installed on macOS.
const APPS: [&str; 3] = [
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "/Applications/Microsoft Edge.app/Contents/MacOS/Microsoft Edge",
];
/// Largest picture file read back; a compressed 4096 x 4096 page stays well below.
const PICTURE_MAX: u64 = 128 << 20;
/// Switches of every capture: no state from elsewhere, nothing sent anywhere but to the page.
const SWITCHES: [&str; 18] = [
    "--headless",
    "--hide-scrollbars",
    "--force-device-scale-factor=1",
    "--no-first-run",
    "--no-default-browser-check",
    "--no-pings",
    "--disable-background-networking",
    "--disable-breakpad",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-dev-shm-usage",
    "--disable-domain-reliability",
    "--disable-extensions",
    "--disable-gpu",
    "--disable-sync",
    "--metrics-recording-only",
    "--mute-audio",
    "--password-store=basic",
];

/// The fields of the check.
pub(super) struct Asked<'a> {
    /// Page.
    pub url: &'a str,
    /// Window sizes.
    pub viewports: &'a [Viewport],
    /// Browser program.
    pub browser_bin: Option<&'a str>,
    /// Limit of each capture in milliseconds.
    pub timeout_ms: u64,
}

pub(super) async fn run(asked: &Asked<'_>, context: &mut Context<'_>) -> Result<Outcome, Error> {
    let browser = match find_browser(asked.browser_bin, context).await {
        Ok(browser) => browser,
        Err(reason) => return Ok(Outcome::not_run(reason)),
    };
    let mut done = Vec::new();
    let mut files = Vec::new();
    // Asking the page counts against the limit of the first capture.
    let begun = context.verifier.clock.boot();
    let answered = page_answers(asked, context).await?;
    if let Err(outcome) = answered {
        return Ok(outcome);
    }
    let mut spent = context.verifier.clock.boot().saturating_sub(begun);
    for viewport in asked.viewports {
        let limit = Duration::from_millis(asked.timeout_ms).saturating_sub(std::mem::take(&mut spent));
        let size = format!("{}x{}", viewport.width, viewport.height);
        let given = viewport.label.as_deref().unwrap_or(&size);
        let label = unique_id(given, &size, context.shots);
        match capture(&browser, viewport, limit, asked, context).await? {
            Ok(picture) => {
                files.push((format!("shot-{label}.png"), picture.bytes));
                let plain = if picture.one_colour { ", one single colour" } else { "" };
                done.push(format!("{label} ({size}{plain})"));
            }
            Err(mut outcome) => {
                outcome.detail = format!("{label} ({size}): {}", outcome.detail);
                outcome.files = files;
                return Ok(outcome);
            }
        }
    }
    Ok(Outcome { files, ..Outcome::passed(format!("captured {}", done.join(", "))) })
}

/// The browser to use, or how to set one.
async fn find_browser(asked: Option<&str>, context: &Context<'_>) -> Result<PathBuf, String> {
    let asked = asked.map(|name| {
        // A relative path is meant from the checks' directory.
        if name.contains('/') { context.root.join(name).to_string_lossy().into_owned() } else { name.to_owned() }
    });
    let set = context.verifier.chrome.clone();
    let found = blocking(move || match (asked, set) {
        (Some(name), _) => sys::command::find(&name).ok_or_else(|| format!("browserBin '{name}' is not a program")),
        (None, Some(path)) => sys::command::find(&path.to_string_lossy())
            .ok_or_else(|| format!("CLAWO_CHROME_BIN is '{}', which is not a program", path.display())),
        (None, None) => APPS.iter().chain(&NAMES).find_map(|name| sys::command::find(name)).ok_or_else(|| {
            format!("no browser found; install one of {}, or set CLAWO_CHROME_BIN or browserBin", NAMES.join(", "))
        }),
    })
    .await;
    found.unwrap_or_else(|| Err("the browser could not be looked up".to_owned()))
}

/// Whether the page answers at all and without an error, so that no picture of an error page passes.
/// Only for plain http; the browser itself refuses what it cannot load.
async fn page_answers(asked: &Asked<'_>, context: &Context<'_>) -> Result<Result<(), Outcome>, Error> {
    let uri: Uri = match asked.url.parse() {
        Ok(uri) => uri,
        Err(reason) => return Ok(Err(Outcome::failed(format!("'{}' is not an address: {reason}", asked.url)))),
    };
    if uri.scheme_str() == Some("https") {
        return Ok(Ok(()));
    }
    let answer = tokio::time::timeout(Duration::from_millis(asked.timeout_ms), http::get(&uri));
    Ok(match or_cancelled(context.cancel, answer).await? {
        Ok(Ok(answer)) if answer.status.is_client_error() || answer.status.is_server_error() => {
            Err(Outcome::failed(format!("the page answered with status {}", answer.status.as_u16())))
        }
        Ok(Ok(_)) => Ok(()),
        Ok(Err(reason)) => Err(Outcome::failed(format!("the page did not answer: {reason}"))),
        Err(_) => Err(Outcome {
            timed_out: true,
            ..Outcome::failed(format!("the page did not answer within {} ms", asked.timeout_ms))
        }),
    })
}

/// A picture that was checked.
struct Picture {
    bytes: Vec<u8>,
    one_colour: bool,
}

/// One capture in a fresh directory, which is removed whatever happens.
async fn capture(
    browser: &Path,
    viewport: &Viewport,
    limit: Duration,
    asked: &Asked<'_>,
    context: &mut Context<'_>,
) -> Result<Result<Picture, Outcome>, Error> {
    let fs = context.verifier.fs.clone();
    let base = context.verifier.full_env.get("TMPDIR").filter(|d| d.starts_with('/')).map_or("/tmp", String::as_str);
    let dir = Path::new(base).join(format!("clawo-shot-{}", sys::ids::short()));
    let made = {
        let (fs, dir) = (fs.clone(), dir.clone());
        blocking(move || fs.create_dir(&dir)).await
    };
    match made {
        Some(Ok(())) => {}
        Some(Err(error)) => return Ok(Err(Outcome::failed(error.to_string()))),
        None => return Ok(Err(Outcome::failed("the profile directory could not be made"))),
    }
    let shot = capture_in(&dir, browser, viewport, limit, asked, context).await;
    let removed = blocking(move || sys::fs::remove_tree(fs.as_ref(), &dir)).await;
    if let Some(Err(error)) = removed {
        tracing::warn!(%error, "the profile directory of a capture stays behind");
    }
    shot
}

async fn capture_in(
    dir: &Path,
    browser: &Path,
    viewport: &Viewport,
    limit: Duration,
    asked: &Asked<'_>,
    context: &mut Context<'_>,
) -> Result<Result<Picture, Outcome>, Error> {
    let picture = dir.join("shot.png");
    let mut args: Vec<String> = SWITCHES.map(str::to_owned).to_vec();
    if rustix::process::geteuid().is_root() {
        // The browser refuses to start as root with its sandbox.
        args.push("--no-sandbox".to_owned());
    }
    args.push(format!("--user-data-dir={}", dir.join("profile").display()));
    args.push(format!("--window-size={},{}", viewport.width, viewport.height));
    args.push(format!("--screenshot={}", picture.display()));
    args.push(asked.url.to_owned());
    let mut env = context.environment(dir);
    // What the browser leaves beside its profile goes away with it.
    env.insert("TMPDIR".to_owned(), dir.to_string_lossy().into_owned());
    let spec = ChildSpec {
        program: browser.to_path_buf(),
        args: args.into_iter().map(Into::into).collect(),
        env: env.into_iter().map(|(k, v)| (k.into(), v.into())).collect(),
        cwd: dir.to_path_buf(),
        stdin: Stdin::Null,
        writable: None,
    };
    let mut ran = context.processes.run(spec, limit, context.cancel).await?;
    let text = ran.text(&context.verifier.redactor, String::new(), String::new()).await;
    if let Some(outcome) = bad_ending(&ran, &text.tail, asked.timeout_ms) {
        return Ok(Err(outcome));
    }
    let (fs, width, height) = (context.verifier.fs.clone(), viewport.width, viewport.height);
    let read = blocking(move || read_picture(fs.as_ref(), &picture, width, height)).await;
    Ok(match read {
        Some(Ok(picture)) => Ok(picture),
        Some(Err(reason)) => {
            // The browser says on its error output why it could not show a page.
            let said = text.log.lines().find_map(|l| l.split_once("Page load failed: ")).map(|(_, why)| why.trim());
            let detail = said.map_or(reason, |why| format!("the page could not be loaded: {why}"));
            Err(Outcome { tail: Some(text.tail).filter(|t| !t.is_empty()), ..Outcome::failed(detail) })
        }
        None => Err(Outcome::failed("the picture could not be decoded")),
    })
}

/// Why a browser's end means that there is no picture.
fn bad_ending(ran: &Ran, tail: &str, timeout_ms: u64) -> Option<Outcome> {
    let outcome = match &ran.ending {
        Ending::Exited(exit) if exit.code == Some(0) => return None,
        Ending::Exited(exit) => match (exit.code, exit.signal) {
            (Some(code), _) => Outcome::failed(format!("the browser ended with exit code {code}")),
            (None, Some(signal)) => Outcome::failed(format!("the browser was ended by signal {signal}")),
            (None, None) => Outcome::failed("the browser ended without an exit code"),
        },
        Ending::TimedOut => Outcome {
            timed_out: true,
            ..Outcome::failed(format!("the page was not captured within {timeout_ms} ms; the browser was killed"))
        },
        Ending::NotStarted { reason, .. } => Outcome::not_run(format!("the browser could not be started: {reason}")),
        Ending::Lost(reason) => Outcome::failed(format!("the browser ended in an unknown way: {reason}")),
    };
    Some(Outcome { tail: Some(tail.to_owned()).filter(|t| !t.is_empty()), ..outcome })
}

/// Reads a picture back and checks that it is one, and of the size asked for. Blocking.
fn read_picture(fs: &dyn Fs, path: &Path, width: u32, height: u32) -> Result<Picture, String> {
    let meta = fs.metadata(path).map_err(|_| "the browser wrote no picture".to_owned())?;
    if meta.kind != sys::Kind::File || meta.len == 0 || meta.len > PICTURE_MAX {
        return Err(format!("the browser wrote an unusable picture of {} bytes", meta.len));
    }
    let bytes = fs.read(path).map_err(|e| e.to_string())?;
    let one_colour = decode(&bytes, width, height)?;
    Ok(Picture { bytes, one_colour })
}

/// Decodes a whole picture; whether it shows one colour only.
fn decode(bytes: &[u8], width: u32, height: u32) -> Result<bool, String> {
    let bad = |e: png::DecodingError| format!("the picture cannot be decoded: {e}");
    let mut decoder = png::Decoder::new(Cursor::new(bytes));
    decoder.set_transformations(png::Transformations::EXPAND | png::Transformations::STRIP_16);
    let mut reader = decoder.read_info().map_err(bad)?;
    let (got_width, got_height) = (reader.info().width, reader.info().height);
    if (got_width, got_height) != (width, height) {
        return Err(format!("the picture is {got_width}x{got_height}, not {width}x{height}"));
    }
    let size = reader.output_buffer_size().ok_or("the picture is too large")?;
    let mut pixels = vec![0; size];
    let frame = reader.next_frame(&mut pixels).map_err(bad)?;
    let pixels = pixels.get(..frame.buffer_size()).unwrap_or_default();
    let mut each = pixels.chunks_exact(frame.color_type.samples().max(1));
    let first = each.next();
    Ok(each.all(|pixel| Some(pixel) == first))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn png_of(width: u32, height: u32, paint: impl Fn(usize) -> u8) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, width, height);
        encoder.set_color(png::ColorType::Rgb);
        let pixels: Vec<u8> = (0..(width * height * 3) as usize).map(paint).collect();
        encoder.write_header().unwrap().write_image_data(&pixels).unwrap();
        bytes
    }

    #[test]
    fn only_whole_pictures_of_the_right_size_count() {
        let good = png_of(120, 100, |n| (n % 251) as u8);
        assert_eq!(decode(&good, 120, 100), Ok(false));
        assert_eq!(decode(&png_of(120, 100, |_| 255), 120, 100), Ok(true));
        assert!(decode(&good, 100, 120).unwrap_err().contains("is 120x100"));
        assert!(decode(&good[..good.len() / 2], 120, 100).is_err(), "half a file");
        assert!(decode(b"", 120, 100).is_err());
        assert!(decode(b"<html>", 120, 100).is_err());
    }
}
