//! What goes from one session to another: a whole conversation, or a message.

use std::sync::Arc;

use super::{
    Caller, Delivered, HandedOff, SendRequest, SentTo, SessionError, Sessions, StartOptions, checked,
    handoff::{self, MAX_DEFAULT, MAX_LEAST, MAX_MOST},
    inbox::{Inbox, InboxMessage, MESSAGE_MAX, SUMMARY_MAX},
    shared::{Shared, locked},
    start::{How, blocking},
    transcript::Transcript,
};
use crate::model::Code;

/// A conversation to be handed on.
#[derive(Debug, Clone, Default)]
pub struct HandoffRequest {
    /// Engine that goes on.
    pub engine: String,
    /// Its model.
    pub model: Option<String>,
    /// Name of the new session; `<name>-<engine>` where nothing is said.
    pub new_name: Option<String>,
    /// First message to it.
    pub message: Option<String>,
    /// Most characters of history.
    pub max_chars: Option<usize>,
    /// With engine custom: preset, or the config itself.
    pub custom_engine: Option<String>,
}

impl Sessions {
    /// Starts a session on another engine that knows what was said in this one, which runs on.
    pub async fn handoff(
        &self,
        name: &str,
        request: HandoffRequest,
        caller: Caller,
    ) -> Result<HandedOff, SessionError> {
        let max = request.max_chars.unwrap_or(MAX_DEFAULT);
        if !(MAX_LEAST..=MAX_MOST).contains(&max) {
            let text = format!("maxChars: must be from {MAX_LEAST} to {MAX_MOST}, not {max}");
            return Err(SessionError::new(Code::InvalidArgument, text));
        }
        let new_name = request.new_name.unwrap_or_else(|| format!("{name}-{}", request.engine));
        checked(&new_name)?;
        if new_name == name {
            return Err(SessionError::new(
                Code::InvalidArgument,
                "newName: must be another name than the session's own",
            ));
        }
        let (inherited, history) = match self.known(name).await? {
            Some(shared) => (locked(&shared.live).options.inherited(), locked(&shared.transcript).history().clone()),
            None => {
                let record = self.hub.record(name).await?.ok_or_else(|| SessionError::not_found(name))?;
                let (fs, dir) = (Arc::clone(&self.hub.fs), self.hub.records.dir(name));
                let read = move || Ok(Transcript::load(fs.as_ref(), &dir).history().clone());
                let cwd = Some(record.cwd.display().to_string());
                (StartOptions { cwd, ..record.options.inherited() }, blocking("session transcript", read).await?)
            }
        };
        if history.is_empty() {
            return Err(SessionError::new(Code::NothingToHandOff, format!("nothing was said in session '{name}' yet")));
        }
        let (block, carried) = handoff::render(name, &history, max);
        let options = StartOptions {
            name: Some(new_name.clone()),
            engine: Some(request.engine),
            model: request.model,
            custom_engine: request.custom_engine,
            ..inherited
        };
        let how = How::Handoff { options: Box::new(options), caller, block };
        let started = self.hub.clone().ensure(&new_name, how).await?;
        let result = match request.message {
            Some(message) => Some(self.send(&new_name, SendRequest { message, ..SendRequest::default() }).await?),
            None => None,
        };
        Ok(HandedOff {
            name: new_name,
            engine: started.engine,
            from: name.to_owned(),
            carried,
            warnings: started.warnings,
            result,
        })
    }

    /// Gives a message to another session, or with `*` to all other live ones. An idle one gets it at once, a busy one
    /// keeps it in its inbox.
    pub async fn send_to(
        &self,
        from: &str,
        to: &str,
        message: &str,
        summary: Option<&str>,
    ) -> Result<SentTo, SessionError> {
        checked(from)?;
        if message.trim().is_empty() {
            return Err(SessionError::new(Code::InvalidArgument, "message: must not be empty"));
        }
        for (field, text, most) in
            [("message", message, MESSAGE_MAX), ("summary", summary.unwrap_or_default(), SUMMARY_MAX)]
        {
            if text.len() > most {
                let text = format!("{field}: is {} bytes long, at most {most} are taken", text.len());
                return Err(SessionError::new(Code::InvalidArgument, text));
            }
        }
        let mut sent = SentTo::default();
        if to == "*" {
            for shared in self.hub.all_live().into_iter().filter(|s| s.name != from) {
                let one = self.give(&shared.name, Some(shared.clone()), from, message, summary).await?;
                sent.delivered |= one.delivered;
                sent.queued |= one.queued;
            }
            return Ok(sent);
        }
        if to == from {
            return Err(SessionError::new(Code::InvalidArgument, "to: must be another session than from"));
        }
        let shared = self.known(to).await?;
        self.give(to, shared, from, message, summary).await
    }

    async fn give(
        &self,
        to: &str,
        shared: Option<Arc<Shared>>,
        from: &str,
        message: &str,
        summary: Option<&str>,
    ) -> Result<SentTo, SessionError> {
        let mut message = InboxMessage::new(from, summary, message, self.hub.clock.wall());
        let busy = shared.as_ref().is_some_and(|s| s.is_busy());
        if busy {
            self.store(to, shared, message).await?;
            return Ok(SentTo { delivered: false, queued: true });
        }
        self.begin(to, SendRequest { message: message.envelope(), ..SendRequest::default() }).await?;
        message.read = true;
        self.store(to, self.hub.live(to), message).await?;
        Ok(SentTo { delivered: true, queued: false })
    }

    /// Keeps a message in the inbox of a session, live or not.
    async fn store(
        &self,
        to: &str,
        shared: Option<Arc<Shared>>,
        mut message: InboxMessage,
    ) -> Result<(), SessionError> {
        // The file outlives this process's memory of what is secret.
        message.message = self.hub.redactor.text(&message.message);
        message.summary = message.summary.map(|s| self.hub.redactor.text(&s));
        self.with_inbox(to, shared, move |inbox| inbox.add(message)).await
    }

    async fn with_inbox<T: Send + 'static>(
        &self,
        name: &str,
        shared: Option<Arc<Shared>>,
        work: impl FnOnce(&mut Inbox) -> T + Send + 'static,
    ) -> Result<T, SessionError> {
        let (fs, dir) = (Arc::clone(&self.hub.fs), self.hub.records.dir(name));
        blocking("session inbox", move || match shared {
            Some(shared) => {
                let mut inbox = locked(&shared.inbox);
                let before = inbox.clone();
                let done = work(&mut inbox);
                if let Some(dir) = shared.dir.as_ref().filter(|_| *inbox != before) {
                    inbox.save(fs.as_ref(), dir)?;
                }
                Ok(done)
            }
            None => {
                let mut inbox = Inbox::load(fs.as_ref(), &dir);
                let before = inbox.clone();
                let done = work(&mut inbox);
                if inbox != before {
                    inbox.save(fs.as_ref(), &dir)?;
                }
                Ok(done)
            }
        })
        .await
    }

    /// Messages of a session, oldest first.
    pub async fn inbox(&self, name: &str, unread_only: bool) -> Result<Vec<InboxMessage>, SessionError> {
        let shared = self.known(name).await?;
        self.with_inbox(name, shared, move |inbox| inbox.list(unread_only)).await
    }

    /// Gives an idle session the messages it has not read, in one turn.
    pub async fn deliver(&self, name: &str) -> Result<Delivered, SessionError> {
        let shared = self.known(name).await?;
        if shared.as_ref().is_some_and(|s| s.is_busy()) {
            return Err(SessionError::busy(name, "a turn is under way"));
        }
        let unread = self.with_inbox(name, shared, |inbox| inbox.list(true)).await?;
        if unread.is_empty() {
            return Ok(Delivered::default());
        }
        // As many as fit into one message; the rest waits for the next delivery.
        let mut text = String::new();
        let mut ids = Vec::new();
        for message in &unread {
            let envelope = message.envelope();
            if !ids.is_empty() && text.len() + envelope.len() > super::TEXT_MAX / 2 {
                break;
            }
            text.push_str(&envelope);
            text.push('\n');
            ids.push(message.id.clone());
        }
        let turn = self.begin(name, SendRequest { message: text, ..SendRequest::default() }).await?;
        let delivered = ids.len();
        let live = self.hub.live(name);
        self.with_inbox(name, live, move |inbox| inbox.mark(&ids, true)).await?;
        Ok(Delivered { delivered, turn_id: Some(turn.id().to_owned()) })
    }
}
