//! What is known of a turn while it goes on, and what becomes of it at its end.

use std::collections::BTreeSet;

use super::super::{
    EngineError, ErrorClass, PermissionDenial, TurnEvent, TurnOutcome, Usage, process::Gone, stream_json::cut,
};
use crate::model::run::Spend;

/// Most tool calls tracked as open; a turn with more is no turn of a sane agent.
const MAX_OPEN: usize = 1024;
/// Most refusals kept of one turn.
const MAX_DENIALS: usize = 100;
/// Longest one-line summary of a tool call, in characters.
const MAX_SUMMARY: usize = 200;

/// A turn so far.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// The latest words that can be the reply.
    pub(crate) text: String,
    /// How the program said that its turn ended.
    pub(crate) said: Option<Result<(), EngineError>>,
    /// Its own word for that.
    pub(crate) stop_reason: Option<String>,
    /// Model as it named it.
    pub(crate) model: Option<String>,
    /// Tokens of this turn.
    pub(crate) usage: Option<Usage>,
    /// Total of the conversation, where it counts so.
    pub(crate) counted: Option<Usage>,
    /// US dollars of this turn as it stated them.
    pub(crate) cost: Option<f64>,
    priced: Option<f64>,
    calls: u32,
    errors: u32,
    open: BTreeSet<String>,
    denials: Vec<PermissionDenial>,
    heard: bool,
}

impl Tally {
    /// Something was heard of the program.
    pub(crate) fn hear(&mut self) {
        self.heard = true;
    }

    /// Whether anything was.
    pub(crate) fn heard(&self) -> bool {
        self.heard
    }

    /// A tool call begins.
    pub(crate) fn call(&mut self, id: &str, name: &str, summary: &str) -> TurnEvent {
        self.calls = self.calls.saturating_add(1);
        self.open(id);
        TurnEvent::ToolCall { name: cut(name, MAX_SUMMARY), summary: cut(summary, MAX_SUMMARY) }
    }

    /// Something begins during which silence is no stall.
    pub(crate) fn open(&mut self, id: &str) {
        if self.open.len() < MAX_OPEN {
            self.open.insert(id.to_owned());
        }
    }

    /// It is over.
    pub(crate) fn close(&mut self, id: &str) {
        self.open.remove(id);
    }

    /// Whether a call with this id began and did not end.
    pub(crate) fn is_open(&self, id: &str) -> bool {
        self.open.contains(id)
    }

    /// A tool call ended.
    pub(crate) fn result(&mut self, id: &str, is_error: bool) -> TurnEvent {
        self.close(id);
        self.errors = self.errors.saturating_add(u32::from(is_error));
        TurnEvent::ToolResult { is_error }
    }

    /// No call is open any more, as far as anybody can tell.
    pub(crate) fn close_all(&mut self) {
        self.open.clear();
    }

    /// Whether silence is no stall.
    pub(crate) fn tool_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// A tool call was refused.
    pub(crate) fn deny(&mut self, denial: PermissionDenial) {
        if self.denials.len() < MAX_DENIALS {
            self.denials.push(denial);
        }
    }

    /// Tokens on top of those of this turn so far.
    pub(crate) fn add_usage(&mut self, more: Usage) {
        self.usage = Some(self.usage.unwrap_or_default().plus(more));
    }

    /// A cost on top. What is no amount of money is none.
    pub(crate) fn add_cost(&mut self, usd: f64) {
        if usd.is_finite() && usd > 0.0 {
            self.cost = Some(self.cost.unwrap_or_default() + usd);
        }
    }

    /// Takes over a whole outcome, from a protocol that counts by itself.
    pub(crate) fn adopt(&mut self, outcome: TurnOutcome) {
        self.said = Some(outcome.error.map_or(Ok(()), Err));
        self.text = outcome.text;
        self.stop_reason = outcome.stop_reason;
        self.model = outcome.model;
        self.usage = outcome.usage;
        self.cost = outcome.cost_source.map(|_| outcome.spend.cost_usd);
        self.calls = outcome.tool_calls;
        self.errors = outcome.tool_errors;
        self.denials = outcome.permission_denials;
    }

    /// What the tokens cost by a table of prices, where the program stated nothing.
    pub(crate) fn price(&mut self, usd: Option<f64>) {
        self.priced = usd.filter(|usd| usd.is_finite() && *usd >= 0.0);
    }

    /// Whether the turn went well: the program said so, left with status 0 and gave a reply.
    pub(crate) fn judge(&self, exit: &Gone, last_words: &str) -> Result<(), EngineError> {
        let told = |text: String| if last_words.is_empty() { text } else { format!("{text}; it said: {last_words}") };
        let fail = |class, text: String| Err(EngineError::new(class, told(text)));
        match (&self.said, exit) {
            (Some(Err(e)), _) => Err(e.clone()),
            (Some(Ok(())), Gone::Clean) => self.has_reply(),
            (Some(Ok(())), Gone::Failed(how)) => {
                fail(ErrorClass::Crashed, format!("said that its turn was complete and then failed ({how})"))
            }
            (Some(Ok(())), Gone::Running | Gone::Unknown) => {
                fail(ErrorClass::Protocol, "said that its turn was complete and did not leave".to_owned())
            }
            (None, Gone::Clean) => fail(ErrorClass::Protocol, "left without finishing its turn".to_owned()),
            (None, Gone::Running) => {
                fail(ErrorClass::Protocol, "closed its output without finishing its turn".to_owned())
            }
            (None, Gone::Failed(how)) if !self.heard => {
                fail(ErrorClass::StartFailed, format!("ended before it said anything ({how})"))
            }
            (None, Gone::Failed(_) | Gone::Unknown) => {
                fail(ErrorClass::Crashed, format!("ended in the middle of its turn ({exit})"))
            }
        }
    }

    fn has_reply(&self) -> Result<(), EngineError> {
        if !self.text.trim().is_empty() {
            return Ok(());
        }
        Err(match self.denied() {
            None => EngineError::no_reply(),
            Some(names) => {
                EngineError::new(ErrorClass::PermissionDenied, format!("no reply after refused tool calls: {names}"))
            }
        })
    }

    /// Names of the refused tools; `None` when none was.
    pub(crate) fn denied(&self) -> Option<String> {
        let mut names: Vec<&str> = self.denials.iter().map(|d| d.tool_name.as_str()).collect();
        names.dedup();
        (!names.is_empty()).then(|| names.join(", "))
    }

    /// The turn, ended.
    pub(crate) fn outcome(self, native_id: Option<&str>, error: Option<EngineError>) -> TurnOutcome {
        let used = self.usage.unwrap_or_default();
        let spend = Spend {
            cost_usd: self.cost.or(self.priced).unwrap_or_default(),
            turns: 1,
            tokens_in: used.read(),
            tokens_out: used.output,
            // What was used and not billed is known only in part.
            estimated: self.cost.or(self.priced).is_none() && used != Usage::default(),
        };
        TurnOutcome {
            ok: error.is_none(),
            text: self.text,
            stop_reason: self.stop_reason,
            spend,
            usage: self.usage,
            counted: self.counted,
            cost_source: match (self.cost, self.priced) {
                (Some(_), _) => Some("engine".to_owned()),
                (None, Some(_)) => Some("registry".to_owned()),
                (None, None) => None,
            },
            model: self.model,
            permission_denials: self.denials,
            tool_calls: self.calls,
            tool_errors: self.errors,
            native_id: native_id.map(str::to_owned),
            error,
            ..TurnOutcome::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// EN-1, EN-2, acceptance 1 of the engines: what was said, how it ended and what was replied all have to be good.
    #[test]
    fn only_success_with_status_0_and_a_reply_is_good() {
        let failed = || Gone::Failed("exit status 3".to_owned());
        let broken = || Some(Err(EngineError::new(ErrorClass::Auth, "bad key")));
        let table = [
            (Some(Ok(())), Gone::Clean, "hi", None),
            (Some(Ok(())), Gone::Clean, " \n", Some(ErrorClass::Other)),
            (Some(Ok(())), failed(), "hi", Some(ErrorClass::Crashed)),
            (Some(Ok(())), failed(), "", Some(ErrorClass::Crashed)),
            (Some(Ok(())), Gone::Running, "hi", Some(ErrorClass::Protocol)),
            (Some(Ok(())), Gone::Unknown, "hi", Some(ErrorClass::Protocol)),
            (broken(), Gone::Clean, "hi", Some(ErrorClass::Auth)),
            (broken(), failed(), "", Some(ErrorClass::Auth)),
            (broken(), Gone::Running, "hi", Some(ErrorClass::Auth)),
            (None, Gone::Clean, "hi", Some(ErrorClass::Protocol)),
            (None, Gone::Clean, "", Some(ErrorClass::Protocol)),
            (None, failed(), "hi", Some(ErrorClass::Crashed)),
            (None, Gone::Unknown, "hi", Some(ErrorClass::Crashed)),
            (None, Gone::Running, "hi", Some(ErrorClass::Protocol)),
        ];
        for (said, exit, text, want) in table {
            let case = format!("{said:?} {exit:?} {text:?}");
            let tally = Tally { said, text: text.to_owned(), heard: true, ..Tally::default() };
            assert_eq!(tally.judge(&exit, "").err().map(|e| e.class), want, "{case}");
        }
        let mute = Tally::default();
        let error = mute.judge(&failed(), "no such flag").unwrap_err();
        assert!(error.class == ErrorClass::StartFailed && error.message.ends_with("it said: no such flag"), "{error}");
    }

    #[test]
    fn absurd_costs_are_none() {
        let mut tally = Tally::default();
        for usd in [f64::NAN, f64::INFINITY, -1.0, 0.0] {
            tally.add_cost(usd);
        }
        assert_eq!(tally.cost, None);
        tally.add_cost(0.25);
        tally.add_cost(0.5);
        assert_eq!(tally.outcome(None, None).spend.cost_usd, 0.75);
    }
}
