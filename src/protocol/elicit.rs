//! Puts an open gate before the person at the host, in both eras of the protocol.
//!
//! Legacy hosts are sent a request while the call waits. Modern hosts get the question as the call's result
//! and answer with the next call, under a sealed state that binds the answer to run, node and visit. Only an
//! explicit approve or reject decides; anything else leaves the gate parked.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rmcp::{
    Peer, RoleServer,
    model::{
        ClientCapabilities, ElicitRequest, ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationSchema,
        InputRequest, InputRequests, InputRequiredResult, InputResponses, RequestStateCodec, SealOptions,
    },
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    kernel::view::GateView,
    tools::{Answer, Boxed, Elicit, outcome::head},
};

/// Gates a host said no answer to that are remembered, so that it is not asked again on every wait.
const DECLINED_MAX: usize = 64;
/// How long a sealed question can be answered.
const STATE_TTL: Duration = Duration::from_secs(24 * 60 * 60);
/// Longest wait for a person in a legacy call; the call's own wait is shorter.
const ASK_MAX: Duration = Duration::from_secs(60);
/// Name of the question in a modern result.
const QUESTION: &str = "gate";
/// Longest comment taken over, in bytes.
const COMMENT_MAX: usize = 16 * 1024;

/// Which gate a question is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateKey {
    run: String,
    node: String,
    visit: u32,
}

impl GateKey {
    /// The key of an open gate.
    pub fn new(run: &str, gate: &GateView) -> Self {
        Self { run: run.to_owned(), node: gate.node.clone(), visit: gate.visit }
    }
}

/// Gates a connection declined to answer.
#[derive(Debug, Default)]
pub struct Declined(Mutex<VecDeque<GateKey>>);

impl Declined {
    fn contains(&self, key: &GateKey) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(key)
    }

    fn add(&self, key: GateKey) {
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if list.len() >= DECLINED_MAX {
            list.pop_front();
        }
        list.push_back(key);
    }
}

/// Whether the request's client can show a form.
pub fn can_ask(capabilities: Option<&ClientCapabilities>) -> bool {
    capabilities.and_then(|c| c.elicitation.as_ref()).is_some_and(|e| e.form.is_some() || e.url.is_none())
}

/// The form for a gate.
pub fn form(run: &str, gate: &GateView) -> Option<ElicitRequestParams> {
    let schema = json!({
        "type": "object",
        "properties": {
            "decision": {
                "type": "string", "title": "Decision", "enum": ["approve", "reject"],
                "description": "approve lets the run go on, reject fails this gate",
            },
            "comment": { "type": "string", "title": "Comment", "description": "Optional; agents see it" },
        },
        "required": ["decision"],
    });
    let Value::Object(schema) = schema else { return None };
    let requested_schema = ElicitationSchema::from_json_schema(schema).ok()?;
    let message = format!(
        "Run {run} asks at '{}': {}\n\nChanges: {}\nChecks: {}\nSpent: {}\nOn approve: {}\nOn reject: {}",
        gate.node,
        head(&gate.prompt, 4000),
        head(&gate.changes, 1000),
        head(&gate.checks, 1000),
        head(&gate.spent, 200),
        head(&gate.on_approve, 500),
        head(&gate.on_reject, 500),
    );
    Some(ElicitRequestParams::FormElicitationParams { meta: None, message, requested_schema })
}

/// What the person's form says. Everything but an explicit decision is no answer.
pub fn read(result: &ElicitResult) -> Answer {
    if result.action != ElicitationAction::Accept {
        return Answer::None;
    }
    let content = result.content.as_ref();
    let comment = content
        .and_then(|c| c.get("comment"))
        .and_then(Value::as_str)
        .filter(|c| !c.trim().is_empty())
        .map(|c| head(c, COMMENT_MAX));
    match content.and_then(|c| c.get("decision")).and_then(Value::as_str) {
        Some("approve") => Answer::Approve(comment),
        Some("reject") => Answer::Reject(comment),
        _ => Answer::None,
    }
}

/// Asks over an open legacy connection.
pub struct Legacy {
    /// The connection.
    pub peer: Peer<RoleServer>,
    /// What it declined before.
    pub declined: Arc<Declined>,
}

impl Elicit for Legacy {
    fn ask<'a>(&'a self, run: &'a str, gate: &'a GateView) -> Boxed<'a, Answer> {
        Box::pin(async move {
            let key = GateKey::new(run, gate);
            if self.declined.contains(&key) {
                return Answer::None;
            }
            let Some(form) = form(run, gate) else { return Answer::None };
            match self.peer.create_elicitation_with_timeout(form, Some(ASK_MAX)).await {
                Ok(result) => {
                    let answer = read(&result);
                    if answer == Answer::None {
                        self.declined.add(key);
                    }
                    answer
                }
                Err(error) => {
                    tracing::debug!(%error, "the host did not answer a question");
                    self.declined.add(key);
                    Answer::None
                }
            }
        })
    }
}

/// Asks with the result of a modern call.
pub struct Modern {
    answered: Option<(GateKey, Answer)>,
    question: Mutex<Option<(GateKey, ElicitRequestParams)>>,
}

impl Modern {
    /// For a call that brings the answer to an earlier question, or none. A state that does not open is an error.
    pub fn new(
        codec: &RequestStateCodec,
        tool: &str,
        state: Option<&str>,
        responses: Option<&InputResponses>,
    ) -> Result<Self, rmcp::ErrorData> {
        let mut answered = None;
        if let Some(state) = state {
            let key: GateKey = codec.open_json_with(state, tool.as_bytes()).map_err(|error| {
                tracing::debug!(%error, "a request state did not open");
                rmcp::ErrorData::invalid_params(
                    "requestState is not valid or has expired; call the tool again without it",
                    None,
                )
            })?;
            let result = responses
                .and_then(|r| r.get(QUESTION))
                .and_then(|v| serde_json::from_value::<ElicitResult>(v.clone()).ok());
            answered = Some((key, result.as_ref().map_or(Answer::None, read)));
        }
        Ok(Self { answered, question: Mutex::new(None) })
    }

    /// The question that goes out instead of the call's result, when one was asked.
    pub fn question(&self, codec: &RequestStateCodec, tool: &str) -> Option<InputRequiredResult> {
        let (key, form) = self.question.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        let options = SealOptions::new().associated_data(tool.as_bytes()).ttl(STATE_TTL);
        let state = codec.seal_json_with(&key, &options).ok()?;
        let mut requests = InputRequests::new();
        requests.insert(QUESTION.to_owned(), InputRequest::Elicitation(ElicitRequest::new(form)));
        Some(InputRequiredResult::new(Some(requests), Some(state)))
    }
}

impl Elicit for Modern {
    fn ask<'a>(&'a self, run: &'a str, gate: &'a GateView) -> Boxed<'a, Answer> {
        let key = GateKey::new(run, gate);
        let answer = match &self.answered {
            // The answer is for this very gate: it was asked under the seal.
            Some((asked, answer)) if *asked == key => answer.clone(),
            _ => match form(run, gate) {
                Some(form) => {
                    *self.question.lock().unwrap_or_else(PoisonError::into_inner) = Some((key, form));
                    Answer::Deferred
                }
                None => Answer::None,
            },
        };
        Box::pin(std::future::ready(answer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(visit: u32) -> GateView {
        GateView {
            node: "approve".into(),
            visit,
            prompt: "Go on?".into(),
            since: crate::model::Time::from_millis(0),
            changes: "2 files".into(),
            checks: "none yet".into(),
            spent: "$0.10".into(),
            on_approve: "implement".into(),
            on_reject: "the run fails".into(),
            answer_with: json!({}),
        }
    }

    /// Case HG-1: whoever cannot or will not answer approves nothing.
    #[test]
    fn only_an_explicit_decision_decides() {
        for (action, content, answer) in [
            (
                ElicitationAction::Accept,
                json!({"decision": "approve", "comment": "ok"}),
                Answer::Approve(Some("ok".into())),
            ),
            (ElicitationAction::Accept, json!({"decision": "reject", "comment": " "}), Answer::Reject(None)),
            (ElicitationAction::Accept, json!({"decision": true}), Answer::None),
            (ElicitationAction::Accept, json!({}), Answer::None),
            (ElicitationAction::Decline, json!({"decision": "approve"}), Answer::None),
            (ElicitationAction::Cancel, json!({"decision": "approve"}), Answer::None),
        ] {
            assert_eq!(read(&ElicitResult::new(action).with_content(content)), answer);
        }
    }

    /// Acceptance scenario 7 of the surface: the answer counts for the gate that was asked, and for no other.
    #[tokio::test]
    async fn a_sealed_answer_is_bound_to_its_gate() {
        let codec = RequestStateCodec::try_new([7_u8; 32]).unwrap();
        let first = Modern::new(&codec, "workflow_status", None, None).unwrap();
        assert_eq!(first.ask("r1", &gate(1)).await, Answer::Deferred);
        let question = first.question(&codec, "workflow_status").unwrap();
        let state = question.request_state.unwrap();
        let mut responses = InputResponses::new();
        responses.insert("gate".into(), json!({"action": "accept", "content": {"decision": "approve"}}));
        let second = Modern::new(&codec, "workflow_status", Some(&state), Some(&responses)).unwrap();
        assert_eq!(second.ask("r1", &gate(1)).await, Answer::Approve(None));
        assert_eq!(second.ask("r1", &gate(2)).await, Answer::Deferred, "another visit is another question");
        assert_eq!(second.ask("r2", &gate(1)).await, Answer::Deferred, "another run is another question");
        assert!(Modern::new(&codec, "verify_run", Some(&state), None).is_err(), "bound to the tool");
        assert!(
            Modern::new(&RequestStateCodec::try_new([8_u8; 32]).unwrap(), "workflow_status", Some(&state), None)
                .is_err()
        );
    }
}
