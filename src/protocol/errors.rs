//! How refusals look in the protocol and over HTTP. Nothing internal leaks: texts are the kernel's own sentences.

use rmcp::{ErrorData, model::ErrorCode};
use serde_json::{Value, json};

use crate::{
    kernel::Error,
    model::Code,
    tools::outcome::{error_object, error_text},
};

/// A failed resource, prompt or task request.
pub fn protocol(error: &Error) -> ErrorData {
    let data = Some(Value::Object(error_object(error)));
    match error.code {
        Code::RunNotFound | Code::NoEvidence | Code::SessionNotFound | Code::TurnNotFound => {
            ErrorData::resource_not_found(error_text(error), data)
        }
        Code::InvalidArgument
        | Code::SpecInvalid
        | Code::ContractInvalid
        | Code::PathNotFound
        | Code::PathNotDirectory
        | Code::PathRefused
        | Code::NotAvailableYet
        | Code::UnknownTool
        | Code::RunExists
        | Code::RunTerminal
        | Code::RunOwned
        | Code::RunLive
        | Code::GateNotWaiting
        | Code::NotExecutingHere
        | Code::Busy
        | Code::Superseded
        | Code::CustomEngineRefUnknown
        | Code::CustomEngineRefInvalid
        | Code::CircuitOpen
        | Code::BudgetExceeded
        | Code::SessionStopped
        | Code::SessionBusy
        | Code::SessionCapReached
        | Code::TurnTimeout
        | Code::NothingToResume
        | Code::NothingToHandOff
        | Code::WrongEngine
        | Code::NotSupported
        | Code::BadOption
        | Code::BadPattern
        | Code::CustomEngineRemote
        | Code::DailyBudgetExceeded
        | Code::Unauthorized
        | Code::ForbiddenHost
        | Code::ForbiddenOrigin
        | Code::PayloadTooLarge
        | Code::Cancelled
        | Code::CustomEngineRequired
        | Code::EngineNotReadOnly
        | Code::RunWrongKind
        | Code::AmbiguousCouncil
        | Code::GitNotARepository
        | Code::GitBareRepository
        | Code::CouncilWorktree
        | Code::GitNoCommits
        | Code::GitDetachedHead
        | Code::GitOperationInProgress
        | Code::TreeDirty
        | Code::RepoBusy
        | Code::LastRoundRunning
        | Code::CouncilRunning
        | Code::CouncilAccepted
        | Code::CouncilContinued
        | Code::AcceptNeedsForce
        | Code::BaseBranchMissing
        | Code::WorkspaceBusy
        | Code::NotFastForward
        | Code::MergeConflict
        | Code::WouldOverwrite
        | Code::BaseBranchMoved
        | Code::MergeNotVerified
        | Code::NoServer => ErrorData::invalid_params(error_text(error), data),
        Code::RunCorrupt
        | Code::StoreUnavailable
        | Code::EngineUnavailable
        | Code::EngineFailed
        | Code::GitUnavailable
        | Code::WorktreeFailed
        | Code::CouncilStateLost
        | Code::Internal => ErrorData::internal_error(error_text(error), data),
    }
}

/// A tool that is not offered.
pub fn unknown_tool(name: &str) -> ErrorData {
    let shown = crate::tools::args::shown(name);
    ErrorData::invalid_params(
        format!("there is no tool '{shown}'; call one that tools/list names"),
        Some(json!({ "code": Code::UnknownTool.as_str() })),
    )
}

/// Methods this server answers. One of these that arrives as unknown has parameters of another form than the
/// protocol's.
const SERVED: &[&str] = &[
    "completion/complete",
    "initialize",
    "ping",
    "prompts/get",
    "prompts/list",
    "resources/list",
    "resources/read",
    "resources/subscribe",
    "resources/templates/list",
    "resources/unsubscribe",
    "server/discover",
    "tasks/cancel",
    "tasks/get",
    "tasks/update",
    "tools/call",
    "tools/list",
];

/// A request that is none of the protocol's: its method is unknown, or its parameters cannot be read.
pub fn not_understood(method: &str) -> ErrorData {
    let shown = crate::tools::args::shown(method);
    if SERVED.contains(&method) {
        let more = if method == "tools/call" { ": a name and, as an object, arguments" } else { "" };
        return ErrorData::invalid_params(
            format!("the params of {shown} cannot be read; give what the protocol asks for{more}"),
            None,
        );
    }
    ErrorData::new(ErrorCode::METHOD_NOT_FOUND, format!("this server has no method '{shown}'"), None)
}

/// Body of a refused HTTP request.
pub fn body(code: &str, message: &str) -> Value {
    json!({ "ok": false, "code": code, "error": message })
}
