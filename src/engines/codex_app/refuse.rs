//! Answers to what the program asks us. Nobody can answer for certain, so it is no, at once: the sandbox is the
//! boundary.

use serde_json::{Value, json};

use super::turn::str_of;
use crate::engines::{PermissionDenial, jsonrpc::Peer};

/// JSON-RPC: no such method here.
const NO_SUCH_METHOD: i64 = -32601;

/// Our answer, and the tool call that it refuses.
pub(super) fn refusal<K>(
    peer: &Peer<K>,
    id: &Value,
    method: &str,
    params: &Value,
) -> (String, Option<PermissionDenial>) {
    let denied = |name: &str, input: Option<&Value>| {
        let call = [str_of(params, "itemId"), str_of(params, "callId")].into_iter().find(|c| !c.is_empty());
        Some(PermissionDenial {
            tool_name: name.to_owned(),
            tool_use_id: call.map(str::to_owned),
            input: input.cloned(),
        })
    };
    match method {
        "item/commandExecution/requestApproval" => {
            (peer.answer(id, &json!({ "decision": "decline" })), denied("command_execution", params.get("command")))
        }
        "item/fileChange/requestApproval" => {
            (peer.answer(id, &json!({ "decision": "decline" })), denied("file_change", params.get("reason")))
        }
        "execCommandApproval" => {
            (peer.answer(id, &json!({ "decision": "denied" })), denied("command_execution", params.get("command")))
        }
        "applyPatchApproval" => {
            (peer.answer(id, &json!({ "decision": "denied" })), denied("file_change", params.get("fileChanges")))
        }
        // Nothing of what was asked for is granted.
        "item/permissions/requestApproval" => {
            (peer.answer(id, &json!({ "permissions": {} })), denied("permissions", params.get("permissions")))
        }
        "mcpServer/elicitation/request" => (peer.answer(id, &json!({ "action": "decline" })), None),
        _ => (peer.refusal(id, NO_SUCH_METHOD, "nobody is here to answer; go on without"), None),
    }
}
