//! The words between a server and its supervisors: JSON behind a four-byte length. Sends nothing itself.
//!
//! Both ends are the same program, normally the same build; the version in the greeting catches an
//! upgrade that replaced the program under a running server.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::DeserializeOwned};

/// Raised when a message changes.
pub(super) const VERSION: u32 = 2;

/// Longest message: the kernel takes at most a few MiB of arguments and environment, written larger in JSON.
pub(super) const MAX_FRAME: usize = 16 << 20;

/// Most bytes of arguments and environment; the kernel refuses far less.
const MAX_LAUNCH: usize = 6 << 20;

/// From the server.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Request {
    /// Start a program. Its pipe ends travel with the first byte: stdout, stderr, then stdin if any.
    Spawn { id: u64, launch: Launch },
    /// Send a signal to the process group of a program.
    Signal { id: u64, pid: i32, signal: i32 },
    /// End everything.
    KillAll { id: u64, grace_ms: u64 },
}

/// What to start.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Launch {
    pub(super) program: Text,
    pub(super) args: Vec<Text>,
    pub(super) env: Vec<(Text, Text)>,
    pub(super) cwd: Text,
    pub(super) stdin: Input,
    /// Where it may write; everywhere when absent.
    pub(super) writable: Option<Vec<Text>>,
}

impl Launch {
    /// Refuses what the system cannot express, with a reason.
    pub(super) fn check(&self) -> Result<(), String> {
        if !Path::new(&self.cwd.0).is_absolute() {
            return Err(format!("directory {} is not absolute", self.cwd.0.display()));
        }
        if self.env.iter().any(|(name, _)| name.0.is_empty() || name.0.as_bytes().contains(&b'=')) {
            return Err("a variable has no name or '=' in its name".to_owned());
        }
        let texts = || {
            let variables = self.env.iter().flat_map(|(name, value)| [name, value]);
            [&self.program, &self.cwd]
                .into_iter()
                .chain(&self.args)
                .chain(variables)
                .chain(self.writable.iter().flatten())
        };
        if texts().any(|text| text.0.as_bytes().contains(&0)) {
            return Err("a NUL byte in an argument, a variable or the directory".to_owned());
        }
        if texts().map(|text| text.0.len() + 1).sum::<usize>() > MAX_LAUNCH {
            return Err(format!("arguments and variables longer than {MAX_LAUNCH} bytes"));
        }
        Ok(())
    }
}

/// Whether a third descriptor comes along.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Input {
    Null,
    Pipe,
}

/// From the supervisor.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Event {
    /// Ready.
    Hello { version: u32 },
    /// Answer to `Spawn`.
    Started { id: u64, pid: i32 },
    /// Answer to `Spawn`.
    Failed { id: u64, reason: String, not_found: bool },
    /// A started program ended; `id` is that of its `Spawn`. Comes after `Started`. `alone` says that then nothing
    /// was left below the supervisor.
    Exited { id: u64, code: Option<i32>, signal: Option<i32>, alone: bool },
    /// Answer to `Signal`.
    Signalled { id: u64, error: Option<String> },
    /// Answer to `KillAll`: what is left.
    Ended { id: u64, left: Vec<String> },
}

/// Text of the system, which need not be UTF-8. It holds no NUL, so that a leading NUL can mark base64.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Text(pub(super) OsString);

impl From<&OsStr> for Text {
    fn from(text: &OsStr) -> Self {
        Self(text.to_owned())
    }
}

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0.to_str() {
            Some(text) => to.serialize_str(text),
            None => to.serialize_str(&format!("\0{}", STANDARD.encode(self.0.as_bytes()))),
        }
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        match text.strip_prefix('\0') {
            None => Ok(Self(text.into())),
            Some(coded) => {
                STANDARD.decode(coded).map(|bytes| Self(OsString::from_vec(bytes))).map_err(serde::de::Error::custom)
            }
        }
    }
}

/// A whole frame.
pub(super) fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, String> {
    let mut frame = vec![0; 4];
    serde_json::to_writer(&mut frame, message).map_err(|e| e.to_string())?;
    let len = frame.len() - 4;
    match (u32::try_from(len), frame.first_chunk_mut::<4>()) {
        (Ok(short), Some(head)) if len <= MAX_FRAME => *head = short.to_le_bytes(),
        _ => return Err(format!("a request of {len} bytes is longer than {MAX_FRAME}")),
    }
    Ok(frame)
}

/// Puts frames together from what arrives.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    buffer: Vec<u8>,
}

impl Decoder {
    /// Adds what arrived.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole message, if it is there.
    pub(super) fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, String> {
        let Some((head, rest)) = self.buffer.split_first_chunk::<4>() else { return Ok(None) };
        let len = u32::from_le_bytes(*head) as usize;
        if len > MAX_FRAME {
            return Err(format!("a message of {len} bytes is longer than {MAX_FRAME}"));
        }
        let Some(body) = rest.get(..len) else { return Ok(None) };
        let message = serde_json::from_slice(body).map_err(|e| e.to_string())?;
        self.buffer.drain(..len + 4);
        Ok(Some(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_survive_any_cut_and_any_bytes() {
        let odd = Text(OsString::from_vec(vec![b'a', 0xff, 0xfe, b'"', b'\n']));
        let plain = Text("größe $x 'y'".into());
        let launch = Launch {
            program: odd.clone(),
            args: vec![plain.clone()],
            env: vec![],
            cwd: odd.clone(),
            stdin: Input::Pipe,
            writable: Some(vec![odd.clone()]),
        };
        let mut bytes = encode(&Request::Spawn { id: 7, launch }).unwrap();
        bytes.extend(encode(&Request::Signal { id: 8, pid: 1, signal: 2 }).unwrap());
        let mut decoder = Decoder::default();
        let mut seen = Vec::new();
        for byte in bytes {
            decoder.push(&[byte]);
            while let Some(request) = decoder.next::<Request>().unwrap() {
                seen.push(request);
            }
        }
        assert!(
            matches!(&seen[0], Request::Spawn { id: 7, launch } if launch.program == odd && launch.args == [plain])
        );
        assert!(matches!(seen[1], Request::Signal { id: 8, pid: 1, signal: 2 }));
        decoder.push(&u32::MAX.to_le_bytes());
        assert!(decoder.next::<Request>().is_err());
    }
}
