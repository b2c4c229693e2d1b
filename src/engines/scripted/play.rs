//! One turn of a scripted agent, step by step.

use std::{
    future::Future,
    io::{self, Write},
    time::Duration,
};

use serde_json::{Value, json};

use super::{
    agent::{Agent, Incoming},
    goal::{self, Round},
    scenario::{Class, Step, Stream, retry_at, signal},
    wire::{End, provider},
    world::{Spawned, run_in},
};
use crate::sys::{Clock, SystemClock, ids, tasks};

/// Tokens of a turn whose scenario states none.
const DEFAULT_TOKENS: (u64, u64) = (100, 20);
/// Bytes printed at once by `printBytes`.
const BLOCK: usize = 64 << 10;
/// Pause between the bytes of a split character, long enough to arrive alone.
const SPLIT_PAUSE: Duration = Duration::from_millis(2);

/// What comes after a turn.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Flow {
    /// The next message.
    Next,
    /// The end of the program.
    Exit(u8),
}

/// Why the steps of a turn stop before their end.
enum Stop {
    End(End),
    Exit(u8),
    Io(io::Error),
}

impl From<io::Error> for Stop {
    fn from(e: io::Error) -> Self {
        Self::Io(e)
    }
}

impl Agent<'_> {
    /// Plays the turn that answers `prompt`; with an open goal as many rounds of it as its judge asks for.
    pub(super) async fn play(&mut self, prompt: &str) -> io::Result<Flow> {
        self.account.turn = (0, 0);
        self.account.denials.clear();
        self.account.replies = 0;
        self.print(&self.account.init(&self.world.root().to_string_lossy()))?;
        let mut message = prompt.to_owned();
        match goal::command(prompt) {
            Some("") => return self.command(&self.goal_stands()),
            Some("clear") => {
                let text = self.clear_goal()?;
                return self.command(&text);
            }
            Some(condition) => self.set_goal(condition)?,
            None => {}
        }
        let mut misses = 0;
        let end = loop {
            self.progress.prompts += 1;
            self.record(&message).map_err(io::Error::other)?;
            let mut reply = String::new();
            let mut tokens = None;
            let end = match self.choose(&message) {
                None => End::Failed("the scenario has no turn for this message".to_owned()),
                Some(steps) => match self.steps(steps, &message, &mut reply, &mut tokens).await {
                    Ok(()) => End::Done(reply),
                    Err(Stop::End(end)) => end,
                    Err(Stop::Exit(status)) => return Ok(Flow::Exit(status)),
                    Err(Stop::Io(e)) => return Err(e),
                },
            };
            let tokens = tokens.unwrap_or(DEFAULT_TOKENS);
            self.account.turn.0 += tokens.0;
            self.account.turn.1 += tokens.1;
            let End::Done(_) = &end else { break end };
            match self.judged(&mut misses)? {
                Round::Over => break end,
                Round::Capped => break End::Done(String::new()),
                Round::Again(feedback) => message = feedback,
            }
            match self.heard().await {
                Ok(more) => more.iter().for_each(|text| message.push_str(&format!("\n\n{text}"))),
                Err(Stop::End(end)) => break end,
                Err(Stop::Exit(status)) => return Ok(Flow::Exit(status)),
                Err(Stop::Io(e)) => return Err(e),
            }
        };
        self.account.total.0 += self.account.turn.0;
        self.account.total.1 += self.account.turn.1;
        match &end {
            End::Aborted => self.print(&self.account.interrupted())?,
            End::Provider { class, text, .. } => self.print(&self.account.synthetic(*class, text))?,
            End::Done(_) | End::Denied | End::Failed(_) | End::TooMany(_) | End::Command(_) => {}
        }
        self.failed = !matches!(end, End::Done(_));
        self.print(&self.account.result(&end))?;
        Ok(Flow::Next)
    }

    /// Answers a command that needs no model.
    fn command(&self, text: &str) -> io::Result<Flow> {
        self.print(&self.account.own_text(text))?;
        self.print(&self.account.result(&End::Command(text.to_owned())))?;
        Ok(Flow::Next)
    }

    /// Messages that came in meanwhile; they join the round that follows.
    async fn heard(&mut self) -> Result<Vec<String>, Stop> {
        self.listen(tokio::time::sleep(SPLIT_PAUSE)).await?;
        Ok(self.queue.drain(..).collect())
    }

    /// The first turn that fits and is not used up.
    fn choose(&mut self, prompt: &str) -> Option<Vec<Step>> {
        let turns = self.scenario.turns.iter().zip(&mut self.progress.used);
        for (turn, used) in turns {
            let fits = turn.any.is_empty() || turn.any.iter().any(|m| prompt.contains(m));
            let barred = turn.unless.as_ref().is_some_and(|u| prompt.contains(u));
            if fits && !barred && (turn.times == 0 || *used < turn.times) {
                *used += 1;
                return Some(turn.steps.clone());
            }
        }
        None
    }

    async fn steps(
        &mut self,
        steps: Vec<Step>,
        prompt: &str,
        reply: &mut String,
        tokens: &mut Option<(u64, u64)>,
    ) -> Result<(), Stop> {
        for step in steps {
            if step.replies() && self.max_turns().is_some_and(|max| self.account.replies >= max) {
                return Err(Stop::End(End::TooMany(self.account.replies)));
            }
            if let Step::Usage { input_tokens, output_tokens } = step {
                *tokens = Some((input_tokens, output_tokens));
            } else if let Step::Say(text) = step {
                *reply = text.replace("{{prompt}}", prompt);
                self.account.replies += 1;
                self.print(&self.account.text(reply))?;
            } else if let Step::SplitUtf8(text) = step {
                *reply = text;
                self.account.replies += 1;
                let line = self.account.text(reply);
                self.split(&format!("{line}\n")).await?;
            } else {
                self.act(step).await?;
            }
        }
        Ok(())
    }

    /// The steps that leave the reply alone.
    async fn act(&mut self, step: Step) -> Result<(), Stop> {
        match step {
            Step::Say(_) | Step::SplitUtf8(_) | Step::Usage { .. } => {}
            Step::Write { path, content } => {
                let id = self.call("Write", &json!({ "file_path": path, "content": content }))?;
                let result = self.world.write(&path, &content);
                self.called(&id, &result)?;
            }
            Step::Append { path, content } => {
                let id = self.call("Edit", &json!({ "file_path": path, "content": content }))?;
                let result = self.world.append(&path, &content);
                self.called(&id, &result)?;
            }
            Step::Delete(path) => {
                let id = self.call("Bash", &json!({ "command": format!("rm -r {path}") }))?;
                let result = self.world.delete(&path);
                self.called(&id, &result)?;
            }
            Step::Run(argv) => {
                let id = self.call("Bash", &json!({ "command": argv.join(" ") }))?;
                // Apart from `self`, which keeps listening meanwhile.
                let root = self.world.root().to_path_buf();
                let result = self.listen(run_in(&root, &argv)).await?;
                self.called(&id, &result)?;
            }
            Step::Spawn { argv, detach, new_session } => {
                let id = self.call("Bash", &json!({ "command": format!("{} &", argv.join(" ")) }))?;
                let result = self.world.spawn(&argv, Spawned { detach, new_session });
                self.called(&id, &result)?;
            }
            Step::Sleep(ms) => self.listen(tokio::time::sleep(Duration::from_millis(ms))).await?,
            Step::Hang => self.listen(std::future::pending::<()>()).await?,
            Step::Cost(usd) => self.account.cost += usd,
            Step::AskPermission { tool, input, parent_tool_use_id } => {
                self.ask(&tool, input, parent_tool_use_id).await?;
            }
            Step::IgnoreSigterm => {
                let mut signals = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
                tasks::spawn("ignore TERM", async move { while signals.recv().await.is_some() {} });
            }
            Step::IgnoreInterrupt => self.ignore_interrupt = true,
            Step::PrintBytes { stream, n, json } => self.noise(stream, n, json)?,
            Step::RawLine(line) => self.print_bytes(format!("{line}\n").as_bytes())?,
            Step::Exit(status) => return Err(Stop::Exit(status)),
            Step::KillSelf(name) => {
                if let Some(signal) = signal(&name) {
                    nix::sys::signal::kill(nix::unistd::Pid::this(), signal).map_err(io::Error::from)?;
                }
                // Delivery may take a moment, and a stopped process goes on from here.
                self.listen(tokio::time::sleep(Duration::from_millis(50))).await?;
            }
            Step::Error { class, retry_at: at, message } => {
                let at = at.and_then(|at| retry_at(&at, SystemClock.wall()));
                if class == Class::PermissionDenied {
                    let denial = json!({ "tool_name": "Bash", "tool_use_id": ids::short(), "tool_input": {} });
                    self.account.denials.push(denial);
                }
                return Err(Stop::End(provider(class, message.as_deref(), at)));
            }
            Step::ReadStdinToEof => {
                while !self.input_ended {
                    self.listen_once().await?;
                }
            }
            Step::Fail(text) => return Err(Stop::End(End::Failed(text))),
        }
        Ok(())
    }

    fn call(&mut self, tool: &str, input: &Value) -> io::Result<String> {
        let id = format!("toolu_{}", ids::short());
        self.account.replies += 1;
        self.print(&self.account.tool_use(&id, tool, input))?;
        Ok(id)
    }

    fn called(&self, id: &str, result: &Result<String, String>) -> io::Result<()> {
        self.print(&self.account.tool_result(id, result))
    }

    /// Waits for `future` and meanwhile answers whoever asks.
    async fn listen<T>(&mut self, future: impl Future<Output = T>) -> Result<T, Stop> {
        tokio::pin!(future);
        loop {
            tokio::select! {
                biased;
                value = &mut future => return Ok(value),
                heard = self.listen_once(), if !self.input_ended => heard?,
            }
        }
    }

    async fn listen_once(&mut self) -> Result<(), Stop> {
        match self.inbox.recv().await {
            None => self.input_ended = true,
            Some(Incoming::User(message)) => self.queue.push_back(message),
            Some(Incoming::Control(id, kind)) => {
                self.control(&id, &kind)?;
                if kind == "interrupt" && !self.ignore_interrupt {
                    return Err(Stop::End(End::Aborted));
                }
            }
            Some(Incoming::Response(_)) => {}
            Some(Incoming::Bad(text)) => {
                let _ = io::stderr().write_all(format!("{text}\n").as_bytes());
                return Err(Stop::Exit(1));
            }
        }
        Ok(())
    }

    /// Asks the host and goes on with its answer.
    async fn ask(&mut self, tool: &str, input: Value, parent: Option<String>) -> Result<(), Stop> {
        let id = self.call(tool, &input)?;
        let request_id = ids::uuid();
        let mut request = json!({ "subtype": "can_use_tool", "tool_name": tool, "input": input, "tool_use_id": id });
        if let (Some(parent), Some(map)) = (parent, request.as_object_mut()) {
            map.insert("parent_tool_use_id".into(), parent.into());
        }
        self.print(&json!({ "type": "control_request", "request_id": request_id, "request": request }))?;
        let response = loop {
            match self.inbox.recv().await {
                Some(Incoming::Response(response)) if response.get("request_id") == Some(&json!(request_id)) => {
                    break response;
                }
                Some(Incoming::Response(_)) => {}
                Some(Incoming::User(message)) => self.queue.push_back(message),
                Some(Incoming::Control(id, kind)) => {
                    if kind == "interrupt" && !self.ignore_interrupt {
                        self.print(&json!({ "type": "control_cancel_request", "request_id": request_id }))?;
                        self.control(&id, &kind)?;
                        return Err(Stop::End(End::Aborted));
                    }
                    self.control(&id, &kind)?;
                }
                Some(Incoming::Bad(_)) => return Err(Stop::Exit(1)),
                None => {
                    self.input_ended = true;
                    break json!({ "response": { "behavior": "deny", "message": "the host is gone" } });
                }
            }
        };
        let answer = response.get("response").cloned().unwrap_or_default();
        let word = |key: &str| answer.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        if word("behavior") == "allow" {
            self.called(&id, &Ok("permitted".to_owned()))?;
            return Ok(());
        }
        let denial = json!({ "tool_name": tool, "tool_use_id": id, "tool_input": request.get("input") });
        self.account.denials.push(denial);
        self.called(&id, &Err(word("message")))?;
        let ends = answer.get("interrupt").and_then(Value::as_bool).unwrap_or(false);
        if ends { Err(Stop::End(End::Denied)) } else { Ok(()) }
    }

    /// Many bytes on one line, in blocks.
    fn noise(&self, stream: Stream, n: u64, json: bool) -> io::Result<()> {
        let mut out: Box<dyn Write> = match stream {
            Stream::Stdout => Box::new(io::stdout().lock()),
            Stream::Stderr => Box::new(io::stderr().lock()),
        };
        let (before, after) =
            if json { ("{\"type\":\"system\",\"subtype\":\"noise\",\"data\":\"", "\"}\n") } else { ("", "\n") };
        out.write_all(before.as_bytes())?;
        let block = vec![b'x'; BLOCK];
        let mut left = usize::try_from(n).unwrap_or(usize::MAX);
        while left > 0 {
            let part = block.get(..left.min(BLOCK)).unwrap_or_default();
            out.write_all(part)?;
            left -= part.len();
        }
        out.write_all(after.as_bytes())?;
        out.flush()
    }

    /// Byte by byte, with a pause inside every character of several bytes.
    async fn split(&mut self, text: &str) -> Result<(), Stop> {
        for byte in text.as_bytes() {
            self.print_bytes(&[*byte])?;
            if !byte.is_ascii() {
                tokio::time::sleep(SPLIT_PAUSE).await;
            }
        }
        Ok(())
    }
}
