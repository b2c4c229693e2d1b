//! The lines a scripted agent prints: the same shapes as the real program's.

use serde_json::{Value, json};

use super::scenario::Class;
use crate::{model::Time, sys::ids};

/// What is said about every turn.
#[derive(Debug, Default, Clone)]
pub(super) struct Account {
    /// The conversation.
    pub(super) session_id: String,
    /// US dollars of the process.
    pub(super) cost: f64,
    /// Tokens of the process.
    pub(super) total: (u64, u64),
    /// Tokens of the turn.
    pub(super) turn: (u64, u64),
    /// Refused calls of the turn.
    pub(super) denials: Vec<Value>,
    /// Replies of the turn.
    pub(super) replies: u64,
}

/// How a turn ended.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum End {
    /// With this reply.
    Done(String),
    /// Cut off.
    Aborted,
    /// On a refused call.
    Denied,
    /// As failed.
    Failed(String),
    /// A command that needs no model was answered.
    Command(String),
    /// At the most replies it may have.
    TooMany(u64),
    /// On an error of the provider.
    Provider {
        /// What kind.
        class: Class,
        /// What is said.
        text: String,
        /// HTTP status.
        status: Option<u16>,
    },
}

impl Account {
    fn line(&self, mut value: Value) -> Value {
        if let Some(map) = value.as_object_mut() {
            map.insert("session_id".into(), self.session_id.clone().into());
            map.insert("uuid".into(), ids::uuid().into());
        }
        value
    }

    /// The start of a turn.
    pub(super) fn init(&self, cwd: &str) -> Value {
        self.line(json!({ "type": "system", "subtype": "init", "cwd": cwd, "model": "scripted", "tools": [],
            "mcp_servers": [], "permissionMode": "bypassPermissions", "claude_code_version": env!("CARGO_PKG_VERSION") }))
    }

    fn assistant(&self, block: &Value, model: &str) -> Value {
        let usage = json!({ "input_tokens": 0, "output_tokens": 0 });
        let message = json!({ "id": ids::short(), "type": "message", "role": "assistant", "model": model,
            "content": [block], "stop_reason": null, "usage": usage });
        self.line(json!({ "type": "assistant", "message": message, "parent_tool_use_id": null }))
    }

    /// A text.
    pub(super) fn text(&self, text: &str) -> Value {
        self.assistant(&json!({ "type": "text", "text": text }), "scripted")
    }

    /// The beginning of a tool call.
    pub(super) fn tool_use(&self, id: &str, name: &str, input: &Value) -> Value {
        self.assistant(&json!({ "type": "tool_use", "id": id, "name": name, "input": input }), "scripted")
    }

    /// The end of a tool call.
    pub(super) fn tool_result(&self, id: &str, result: &Result<String, String>) -> Value {
        let (Ok(text) | Err(text)) = result;
        let block = json!({ "type": "tool_result", "tool_use_id": id, "is_error": result.is_err(), "content": text });
        self.line(
            json!({ "type": "user", "message": { "role": "user", "content": [block] }, "parent_tool_use_id": null }),
        )
    }

    /// What follows an interrupt.
    pub(super) fn interrupted(&self) -> Value {
        let block = json!({ "type": "text", "text": "[Request interrupted by user]" });
        self.line(
            json!({ "type": "user", "message": { "role": "user", "content": [block] }, "parent_tool_use_id": null }),
        )
    }

    /// What the program itself says.
    pub(super) fn own_text(&self, text: &str) -> Value {
        self.assistant(&json!({ "type": "text", "text": text }), "<synthetic>")
    }

    /// What the judge of a goal says to the agent.
    pub(super) fn feedback(&self, text: &str) -> Value {
        let content = json!([{ "type": "text", "text": text }]);
        self.line(json!({ "type": "user", "message": { "role": "user", "content": content }, "isSynthetic": true,
            "parent_tool_use_id": null }))
    }

    /// The judge of a goal gave no usable word.
    pub(super) fn judge_failed(&self) -> Value {
        self.line(json!({ "type": "system", "subtype": "notification", "key": "stop-hook-error",
            "text": "Stop hook error occurred" }))
    }

    /// The reply that stands for an error of the provider.
    pub(super) fn synthetic(&self, class: Class, text: &str) -> Value {
        let mut line = self.assistant(&json!({ "type": "text", "text": text }), "<synthetic>");
        if let Some(map) = line.as_object_mut() {
            map.insert("error".into(), error_word(class).into());
        }
        line
    }

    /// The end of a turn.
    pub(super) fn result(&self, end: &End) -> Value {
        let (subtype, is_error, terminal, stop) = match end {
            End::Done(_) => ("success", false, "completed", Some("end_turn")),
            End::Command(_) => ("success", false, "", None),
            End::Aborted => ("error_during_execution", true, "aborted_streaming", None),
            End::Denied => ("error_during_execution", true, "aborted_tools", Some("tool_use")),
            End::Failed(_) => ("error_during_execution", true, "completed", None),
            End::TooMany(_) => ("error_max_turns", true, "max_turns", Some("tool_use")),
            End::Provider { class: Class::ContextOverflow, .. } => {
                ("success", true, "prompt_too_long", Some("stop_sequence"))
            }
            End::Provider { class: Class::Refused, .. } => ("success", true, "completed", Some("refusal")),
            End::Provider { .. } => ("success", true, "completed", Some("stop_sequence")),
        };
        let tokens =
            |(input, output): (u64, u64)| json!({ "inputTokens": input, "outputTokens": output, "costUSD": self.cost });
        let mut line = self.line(json!({ "type": "result", "subtype": subtype, "is_error": is_error,
            "terminal_reason": terminal, "stop_reason": stop, "api_error_status": null,
            "num_turns": self.replies.max(1), "total_cost_usd": self.cost,
            "usage": { "input_tokens": self.turn.0, "output_tokens": self.turn.1 },
            "modelUsage": { "scripted": tokens(self.total) }, "permission_denials": self.denials }));
        let Some(map) = line.as_object_mut() else { return line };
        let (key, told) = match end {
            End::Done(text) => ("result", json!(text)),
            End::Command(text) => {
                map.remove("terminal_reason");
                map.insert("num_turns".into(), 0.into());
                ("result", json!(text))
            }
            End::Failed(text) => ("errors", json!([text])),
            End::TooMany(n) => ("errors", json!([format!("Reached maximum number of turns ({n})")])),
            End::Aborted | End::Denied => ("errors", json!(["the turn was cut off"])),
            End::Provider { text, status, .. } => {
                map.insert("api_error_status".into(), json!(status));
                ("result", json!(text))
            }
        };
        map.insert(key.into(), told);
        line
    }
}

/// The end of a turn on an error of the provider.
pub(super) fn provider(class: Class, message: Option<&str>, retry_at: Option<Time>) -> End {
    let (status, text) = match class {
        Class::Auth => (Some(401), "Invalid API key · Fix external API key"),
        Class::Quota => (Some(429), "You've hit your usage limit"),
        Class::Overloaded => (Some(529), "API Error: 529 Overloaded. This is a server-side issue, usually temporary"),
        Class::ContextOverflow => (None, "Prompt is too long"),
        Class::Refused => (None, "API Error: unable to respond to this request"),
        Class::Other => (Some(400), "API Error: 400 scripted error"),
        Class::PermissionDenied => return End::Denied,
        Class::Interrupted => return End::Aborted,
    };
    let mut text = message.unwrap_or(text).to_owned();
    if let Some(at) = retry_at {
        text.push_str(&format!(" · resets at {at}"));
    }
    End::Provider { class, text, status }
}

fn error_word(class: Class) -> &'static str {
    match class {
        Class::Auth => "authentication_failed",
        Class::Quota => "rate_limit",
        Class::Overloaded => "server_error",
        Class::ContextOverflow | Class::Refused => "invalid_request",
        Class::PermissionDenied | Class::Interrupted | Class::Other => "unknown",
    }
}

/// An answer to a control request.
pub(super) fn answer(request_id: &str, response: Result<Value, String>) -> Value {
    let response = match response {
        Ok(value) => json!({ "subtype": "success", "request_id": request_id, "response": value }),
        Err(error) => json!({ "subtype": "error", "request_id": request_id, "error": error }),
    };
    json!({ "type": "control_response", "response": response })
}
