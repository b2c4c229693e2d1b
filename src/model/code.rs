//! Stable error codes: the words a program can match on, each with what to do about it.

use serde::{Deserialize, Serialize};

macro_rules! codes {
    ($($name:ident $text:literal $exit:literal $hint:literal),+ $(,)?) => {
        /// Every error code a caller can meet. The words never change once released.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
        pub enum Code { $(#[doc = $hint] #[serde(rename = $text)] $name),+ }
        impl Code {
            /// All codes, in table order.
            pub const ALL: &'static [Code] = &[$(Code::$name),+];
            /// The word on the wire.
            pub fn as_str(self) -> &'static str { match self { $(Code::$name => $text),+ } }
            /// Exit status of the command line for this code.
            pub fn exit(self) -> u8 { match self { $(Code::$name => $exit),+ } }
            /// One sentence for a person: what to do next.
            pub fn hint(self) -> &'static str { match self { $(Code::$name => $hint),+ } }
        }
    };
}

codes! {
    InvalidArgument "invalid_argument" 2 "correct the named field and call again",
    SpecInvalid "spec_invalid" 2 "correct every listed path and start again",
    ContractInvalid "contract_invalid" 2 "correct every listed path of the contract and call again",
    PathNotFound "path_not_found" 2 "give an existing directory",
    PathNotDirectory "path_not_directory" 2 "give a directory, not a file",
    PathRefused "path_refused" 2 "choose a project directory; system and secret directories are refused",
    NotAvailableYet "not_available_yet" 2 "this version does not have it; use what is named instead, or leave it out",
    UnknownTool "unknown_tool" 2 "call a tool that tools/list names",
    RunNotFound "run_not_found" 3 "list the runs to find the id",
    NoEvidence "no_evidence" 3 "check the id; the status of a run names its evidence",
    RunExists "run_exists" 6 "choose another run id, or look at the existing run",
    RunTerminal "run_terminal" 6 "start a new run",
    RunOwned "run_owned" 6 "another live process executes the run; ask it, or wait until it ends",
    RunLive "run_live" 6 "cancel it first, or wait until it ends",
    RunCorrupt "run_corrupt" 70 "the log is damaged; nothing was changed, the bad bytes are kept beside it",
    GateNotWaiting "gate_not_waiting" 6 "look at the status of the run for what it waits for",
    NotExecutingHere "not_executing_here" 6 "the owner did not answer; ask it directly or end it and resume the run",
    Busy "busy" 6 "try again in a moment",
    StoreUnavailable "store_unavailable" 70 "make the state directory writable with free space, then try again",
    Superseded "superseded" 6 "another process took over this run; ask that one",
    CustomEngineRefUnknown "custom_engine_ref_unknown" 2 "set the named variable for the server to the engine's description",
    CustomEngineRefInvalid "custom_engine_ref_invalid" 2 "correct the description in the named variable",
    CustomEngineRequired "custom_engine_required" 2 "name a variable with the engine's description for each of these agents",
    EngineNotReadOnly "engine_not_read_only" 2 "name engines that can be kept from writing",
    RunWrongKind "run_wrong_kind" 2 "use the tools of what the id is",
    AmbiguousCouncil "ambiguous_council" 2 "name one of the listed councils",
    GitUnavailable "git_unavailable" 70 "install git 2.31 or newer",
    GitNotARepository "git_not_a_repository" 2 "make a git repository with a first commit, or name another directory",
    GitBareRepository "git_bare_repository" 2 "name a checkout of the repository",
    CouncilWorktree "council_worktree" 2 "name the main checkout",
    GitNoCommits "git_no_commits" 2 "make a first commit",
    GitDetachedHead "git_detached_head" 2 "check out the branch that should receive the work",
    GitOperationInProgress "git_operation_in_progress" 6 "finish or abort the operation git has open there",
    TreeDirty "tree_dirty" 6 "commit or stash what has changed",
    WorktreeFailed "worktree_failed" 70 "read git's message; nothing was left behind",
    RepoBusy "repo_busy" 6 "another process changes this repository; try again in a minute",
    LastRoundRunning "last_round_running" 6 "wait for the end, then reject with feedback and go on with a new council",
    CouncilRunning "council_running" 6 "wait until the run has ended, or abort it",
    CouncilAccepted "council_accepted" 6 "its work is merged; start a new council",
    CouncilContinued "council_continued" 6 "go on with the council that followed it",
    CouncilStateLost "council_state_lost" 70 "its branch or a commit of it is gone from the repository",
    AcceptNeedsForce "accept_needs_force" 6 "look at the reasons; force takes them all",
    BaseBranchMissing "base_branch_missing" 6 "make the branch again",
    WorkspaceBusy "workspace_busy" 6 "wait until the other work in this checkout has ended",
    NotFastForward "not_fast_forward" 6 "the branch has moved on; use strategy auto",
    MergeConflict "merge_conflict" 6 "merge the named branch by hand, or reject with feedback",
    WouldOverwrite "would_overwrite" 6 "move the named ignored files out of the way",
    BaseBranchMoved "base_branch_moved" 6 "the branch keeps moving; try again",
    MergeNotVerified "merge_not_verified" 1 "the contract fails on the merge; look at the evidence",
    EngineUnavailable "engine_unavailable" 70 "install the engine or name its program, or use the scripted engine",
    CircuitOpen "circuit_open" 6 "the engine failed to start several times; wait the named seconds",
    BudgetExceeded "budget_exceeded" 6 "raise the cap or start a new run",
    SessionNotFound "session_not_found" 3 "list the sessions to find the name, or start one",
    SessionStopped "session_stopped" 6 "start the session again by its name; its conversation goes on",
    SessionBusy "session_busy" 6 "wait until its turn has ended, or interrupt it",
    SessionCapReached "session_cap_reached" 6 "stop a session you no longer need, or raise sessions.max",
    TurnTimeout "turn_timeout" 1 "the turn was interrupted; send again with a longer timeout, or in the background",
    TurnNotFound "turn_not_found" 3 "leave turnId out to see the latest turn",
    NothingToResume "nothing_to_resume" 3 "start without resume: require, or name the conversation in resumeSessionId",
    NothingToHandOff "nothing_to_hand_off" 6 "send the session a message first",
    WrongEngine "wrong_engine" 6 "use a session of the named engine",
    NotSupported "not_supported" 6 "use an engine that can do it",
    BadOption "bad_option" 2 "correct or leave out the named option",
    BadPattern "bad_pattern" 2 "correct the regular expression",
    CustomEngineRemote "custom_engine_remote" 2 "name a preset, or start the session from this machine over standard input",
    EngineFailed "engine_failed" 1 "read the engine's message; the session is still there",
    DailyBudgetExceeded "daily_budget_exceeded" 6 "raise budget.daily_usd, or wait for the next UTC day",
    Unauthorized "unauthorized" 5 "send the bearer token of the server",
    ForbiddenHost "forbidden_host" 5 "use the loopback address, or allow this host at start",
    ForbiddenOrigin "forbidden_origin" 5 "call from an allowed origin",
    PayloadTooLarge "payload_too_large" 2 "send less at once",
    Cancelled "cancelled" 1 "the call was cancelled before it finished",
    NoServer "no_server" 4 "start one with 'clawo serve', or add --wait to run here",
    Internal "internal" 70 "this is a defect; the server's log has the details",
}

impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::Code;

    #[test]
    fn codes_are_distinct_snake_case_words() {
        let mut seen = std::collections::BTreeSet::new();
        for code in Code::ALL {
            assert!(seen.insert(code.as_str()), "{code} twice");
            assert!(code.as_str().bytes().all(|b| b.is_ascii_lowercase() || b == b'_'));
            assert_eq!(serde_json::to_value(code).unwrap(), code.as_str());
        }
    }
}
