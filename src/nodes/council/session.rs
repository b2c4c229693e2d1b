//! A member's session: opened when there is a slot, asked, accounted for, ended.

use std::{
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use super::{kept, shared::Shared};
use crate::{
    engines::{ErrorClass, Opt, PoolError, PooledSession, SessionOptions, SessionSpec, Support, TurnOutcome},
    model::{
        Code, Time,
        run::Waiting,
        spec::{CouncilAgent, CouncilNode, EngineChoice},
    },
    nodes::{Report, isolated::guard, turn},
};

/// The engine that has more than one model at once.
const ULTRACODE_ENGINE: &str = "claude";
/// Its switch for that.
const ULTRACODE: &str = "ultracode";
/// The word for a turn that money forbids.
const OVER: &str = "budget_exceeded";

/// What came of a send.
#[derive(Debug)]
pub(super) enum Said {
    /// The engine answered; the text may be empty.
    Text(String),
    /// It failed, for this reason.
    Failed(String),
    /// Stopped from outside.
    Stopped,
}

/// A member's session.
#[derive(Debug)]
pub(super) struct Talk<'a> {
    shared: &'a Shared,
    agent: &'a CouncilAgent,
    name: &'a str,
    charter: &'a str,
    /// Where it must be able to write to commit, for engines that have to be told.
    writable: Vec<PathBuf>,
    session: Option<PooledSession>,
    /// US dollars before.
    spent: f64,
    /// US dollars since.
    pub(super) cost: f64,
    /// Whether a session was ever there.
    pub(super) opened: bool,
    /// Processes that could not be ended.
    pub(super) unkillable: Vec<String>,
}

impl<'a> Talk<'a> {
    /// A session called `name` that is not open yet, of a member that has spent so much.
    pub(super) fn new(
        shared: &'a Shared,
        agent: &'a CouncilAgent,
        name: &'a str,
        charter: &'a str,
        spent: f64,
    ) -> Self {
        let (writable, unkillable) = (Vec::new(), Vec::new());
        Self { shared, agent, name, charter, writable, session: None, spent, cost: 0.0, opened: false, unkillable }
    }

    /// Looks up where a commit of the member writes to, when its engine keeps git's folder from being written.
    pub(super) async fn let_it_commit(&mut self) {
        let engine = self.shared.ctx.services.pool.registry().resolve(&self.agent.choice);
        if !engine.is_ok_and(|engine| engine.guards_git()) {
            return;
        }
        let path = self.shared.layout.worktree(&self.agent.name);
        let found = async {
            match self.shared.repo.worktree_open(&path).await? {
                Some(repo) => repo.writable_for_commits().await,
                None => Ok(Vec::new()),
            }
        };
        match found.await {
            Ok(dirs) => self.writable = dirs,
            // Its work is committed for it after its turn.
            Err(e) => self.shared.log("warn", format!("{} cannot commit by itself: {e}", self.agent.name)),
        }
    }

    /// Whether the next message goes to a conversation that knows what was said before.
    pub(super) fn alive(&self) -> bool {
        self.session.as_ref().is_some_and(PooledSession::alive)
    }

    /// Says something and waits for the answer, in a new session when there is none. What opens a conversation waits
    /// for a quota to be over, without a slot: it costs neither the member nor the round.
    pub(super) async fn say(&mut self, message: &str, limit: Duration) -> Said {
        let (ctx, opens) = (&self.shared.ctx, !self.alive());
        let mut waits = 0;
        loop {
            let (said, quota) = self.once(message, limit).await;
            let Some(retry_at) = quota.filter(|_| opens && waits < turn::QUOTA_WAITS_MAX) else { return said };
            self.close().await;
            let now = ctx.now();
            let due = turn::quota_due(now, waits, retry_at);
            waits += 1;
            let asked = u64::try_from(due.millis().saturating_sub(now.millis())).ok();
            let waited = turn::wait_until(ctx, due, asked, self.name, ("quota", "the engine's quota is used up"));
            tokio::select! {
                over = waited => if !over { return Said::Stopped },
                () = self.shared.cancel.cancelled() => return Said::Stopped,
            }
        }
    }

    /// One send; with it, when a quota forbade it, until when if the engine said so.
    async fn once(&mut self, message: &str, limit: Duration) -> (Said, Option<Option<Time>>) {
        let ctx = &self.shared.ctx;
        if !self.alive() {
            self.close().await;
            match self.open(limit).await {
                Ok(session) => self.session = Some(session),
                Err(said) => return (said, None),
            }
        }
        let Some(session) = &mut self.session else { return (Said::Stopped, None) };
        let reserved = match ctx.budget.begin().await {
            Ok(reserved) => reserved,
            Err(reason) => return (Said::Failed(format!("{OVER}: {reason}")), None),
        };
        let cancel = self.shared.cancel.child_token();
        let sink = turn::sink(ctx, Some(self.agent.name.clone()));
        let (outcome, late) = {
            let mut call = std::pin::pin!(session.turn(message, sink, cancel.clone()));
            tokio::select! {
                outcome = &mut call => (Some(outcome), false),
                () = tokio::time::sleep(limit) => {
                    cancel.cancel();
                    (Some(call.await), true)
                }
                () = turn::superseded(ctx) => (None, false),
            }
        };
        let Some(outcome) = outcome else {
            // Another process works on the run, in the same worktrees: there is no time for an orderly end.
            if let Some(session) = self.session.take() {
                session.abandon();
            }
            return (Said::Stopped, None);
        };
        self.account(&outcome, reserved).await;
        if self.shared.cancel.is_cancelled() {
            return (Said::Stopped, None);
        }
        if late {
            return (Said::Failed(format!("timeout: no answer within {} ms", limit.as_millis())), None);
        }
        let quota = outcome.error.as_ref().filter(|e| e.class == ErrorClass::Quota).map(|e| e.retry_at);
        let said = match &outcome.error {
            Some(e) if e.is_no_reply() => Said::Text(String::new()),
            Some(e) => Said::Failed(e.to_string()),
            None if outcome.ok => Said::Text(outcome.text),
            None => Said::Failed(turn::failure(&outcome)),
        };
        (said, quota)
    }

    /// Puts what a turn used on the accounts of the run and of the member.
    async fn account(&mut self, outcome: &TurnOutcome, reserved: crate::nodes::budget::Reserved) {
        let mut spend = outcome.spend.clone();
        let quota = outcome.error.as_ref().is_some_and(|e| e.class == ErrorClass::Quota);
        spend.turns = if quota { 0 } else { spend.turns.max(1) };
        self.cost += spend.cost_usd;
        reserved.settle(&spend);
        let ctx = &self.shared.ctx;
        ctx.report.send(Report::Cost(spend)).await;
        kept::write_spent(ctx, &self.agent.name, self.spent + self.cost).await;
    }

    /// Ends the session and its process tree.
    pub(super) async fn close(&mut self) {
        if let Some(session) = self.session.take() {
            self.unkillable.extend(session.close().await);
        }
    }

    async fn open(&mut self, limit: Duration) -> Result<PooledSession, Said> {
        let ctx = &self.shared.ctx;
        if let Some(reason) = ctx.budget.reached() {
            return Err(Said::Failed(format!("{OVER}: {reason}")));
        }
        let cap = self.shared.node.max_budget_usd;
        let left = cap.map(|cap| cap - self.spent - self.cost);
        if left.is_some_and(|left| left <= crate::nodes::budget::ROUNDING) {
            return Err(Said::Failed(over(self.spent + self.cost, cap.unwrap_or_default())));
        }
        let cancel = self.shared.cancel.child_token();
        let waits = AtomicBool::new(false);
        let on_wait = |_| {
            waits.store(true, Ordering::Relaxed);
            let detail = "every agent session of this machine's limit is in use".to_owned();
            let wait = Waiting { kind: "slot".to_owned(), since: ctx.now(), until: None, detail };
            ctx.report.offer(Report::Wait { who: self.name.to_owned(), waiting: Some(wait) });
        };
        let (opened, late) = {
            let mut call = std::pin::pin!(ctx.services.pool.open(self.spec(left), cancel.clone(), on_wait));
            tokio::select! {
                opened = &mut call => (opened, false),
                () = tokio::time::sleep(limit) => {
                    cancel.cancel();
                    (call.await, true)
                }
            }
        };
        let waited = waits.load(Ordering::Relaxed);
        if waited {
            ctx.report.send(Report::Wait { who: self.name.to_owned(), waiting: None }).await;
        }
        match opened {
            Ok(session) => {
                self.opened = true;
                for warning in session.warnings() {
                    self.shared.log("warn", format!("{}: {warning}", self.agent.name));
                }
                Ok(session)
            }
            Err(_) if self.shared.cancel.is_cancelled() => Err(Said::Stopped),
            Err(PoolError::Cancelled) if late => Err(Said::Failed(format!(
                "{}: no session was free within {} ms; all {} are in use",
                Code::SessionCapReached,
                limit.as_millis(),
                ctx.services.pool.max()
            ))),
            Err(e) if late => {
                Err(Said::Failed(format!("timeout: the session did not start within {} ms: {e}", limit.as_millis())))
            }
            Err(e) => Err(Said::Failed(format!("the session did not start: {e}"))),
        }
    }

    fn spec(&self, left: Option<f64>) -> SessionSpec {
        let (ctx, agent) = (&self.shared.ctx, self.agent);
        let own = guard::identity_env(&agent.name, "council", &self.shared.hooks);
        SessionSpec {
            name: self.name.to_owned(),
            choice: self.choice(),
            cwd: self.shared.layout.project(&agent.name),
            append_system_prompt: Some(self.charter.to_owned()),
            max_turns: Some(self.shared.node.max_turns_per_agent),
            max_budget_usd: left,
            resume: None,
            run_env: ctx.attempt.run_env.iter().cloned().chain(own).collect(),
            options: self.options(),
            labels: Some(turn::labels(ctx)),
        }
    }

    /// Who answers, with the permission mode: its own, else that of all members where the engine knows it.
    fn choice(&self) -> EngineChoice {
        let mut choice = self.agent.choice.clone();
        if choice.permission_mode.is_some() {
            return choice;
        }
        let mode = &self.shared.node.default_permission_mode;
        let Ok(engine) = self.shared.ctx.services.pool.registry().resolve(&choice) else { return choice };
        let known = engine.capabilities().permission_modes.contains(&mode.as_str());
        if engine.support(Opt::PermissionMode) == Support::Native && known {
            choice.permission_mode = Some(mode.clone());
        } else if mode != CouncilNode::MODE_DEFAULT {
            let text = format!("{}: {} has no permission mode {mode}; its own is used", self.agent.name, engine.name());
            self.shared.log("warn", text);
        }
        choice
    }

    fn options(&self) -> SessionOptions {
        let ctx = &self.shared.ctx;
        let mut options = SessionOptions {
            base_url: self.agent.base_url.clone(),
            custom: ctx.customs.get(&self.agent.name).cloned(),
            add_dirs: self.writable.clone(),
            ..SessionOptions::default()
        };
        if self.agent.ultracode {
            let engine = ctx.services.pool.registry().resolve(&self.agent.choice);
            if engine.is_ok_and(|engine| engine.name() == ULTRACODE_ENGINE) {
                options.native.insert(ULTRACODE.to_owned(), true.into());
            } else {
                let text = format!("{}: ultracode is for {ULTRACODE_ENGINE} alone and is ignored", self.agent.name);
                self.shared.log("warn", text);
            }
        }
        options
    }
}

/// What is said of a member that has nothing left.
pub(super) fn over(spent: f64, cap: f64) -> String {
    format!("{OVER}: {spent:.4} of {cap:.4} US dollars are spent")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_amounts_are_named() {
        assert_eq!(over(0.12, 0.1), "budget_exceeded: 0.1200 of 0.1000 US dollars are spent");
    }
}
