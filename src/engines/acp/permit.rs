//! Who decides what an agent asks for: nobody sits in front of a run, so the session's mode does, at once.

use serde_json::{Value, json};

use super::super::stream_json::str_of;
use crate::model::spec::{EngineChoice, SandboxMode};

/// Values of `permissionMode`.
pub(super) const MODES: &[&str] = &["acceptEdits", "auto", "bypassPermissions", "default", "dontAsk", "manual", "plan"];

/// What is permitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Policy {
    /// Everything.
    All,
    /// Looking and editing, but no commands, no deletions, no network.
    Edits,
    /// Nothing that has to be asked for.
    Nothing,
}

impl Policy {
    /// What a session's mode means.
    pub(super) fn of(choice: &EngineChoice, sandbox: Option<SandboxMode>) -> Self {
        match (choice.permission_mode.as_deref(), sandbox) {
            (_, Some(SandboxMode::ReadOnly)) => Self::Nothing,
            (None | Some("bypassPermissions" | "auto"), _) => Self::All,
            (Some("acceptEdits"), _) => Self::Edits,
            (Some(_), _) => Self::Nothing,
        }
    }

    /// Whether a tool of this kind may run. Kinds nobody knows are like commands.
    fn permits(self, kind: &str) -> bool {
        match self {
            Self::All => true,
            Self::Edits => matches!(kind, "edit" | "move" | "read" | "search" | "think"),
            Self::Nothing => false,
        }
    }

    /// The answer to a request, and whether it permits.
    pub(super) fn answer(self, kind: &str, options: &Value) -> (Value, bool) {
        let option = |kinds: [&str; 2]| {
            let options = options.as_array()?;
            let found = kinds.iter().find_map(|kind| options.iter().find(|o| str_of(o, "kind") == *kind))?;
            Some(json!({ "outcome": { "outcome": "selected", "optionId": found.get("optionId")? } }))
        };
        // Once before always: a lasting permission may cover more than was asked for.
        if self.permits(kind)
            && let Some(yes) = option(["allow_once", "allow_always"])
        {
            return (yes, true);
        }
        (option(["reject_once", "reject_always"]).unwrap_or_else(cancelled), false)
    }
}

/// The answer to a request in a turn that is being cut off.
pub(super) fn cancelled() -> Value {
    json!({ "outcome": { "outcome": "cancelled" } })
}

/// Modes of agents that fit, the best first; empty where the agent's own default is as good as any.
pub(super) fn wanted_modes(choice: &EngineChoice, sandbox: Option<SandboxMode>) -> &'static [&'static str] {
    match (choice.permission_mode.as_deref(), sandbox) {
        (_, Some(SandboxMode::ReadOnly)) => &["read-only", "plan"],
        (None | Some("bypassPermissions"), Some(SandboxMode::WorkspaceWrite)) => &["workspace-write", "auto"],
        // An agent whose sandbox stands in the way of what it may do would only fail at it.
        (None | Some("bypassPermissions"), _) => {
            &["bypassPermissions", "agent-full-access", "full-access", "yolo", "auto_edit", "autoEdit"]
        }
        (Some("plan"), _) => PLAN,
        (Some("acceptEdits"), _) => &["acceptEdits", "autoEdit", "auto_edit", "workspace-write"],
        (Some("dontAsk"), _) => &["dontAsk", "default"],
        (Some("manual" | "default"), _) => &["default"],
        (Some("auto"), _) => &["auto"],
        (Some(_), _) => &[],
    }
}

/// Modes in which an agent plans.
pub(super) const PLAN: &[&str] = &["plan", "read-only"];

#[cfg(test)]
mod tests {
    use super::*;

    /// The answer goes by the kind of an option, since every agent names its ids differently.
    #[test]
    fn options_are_chosen_by_kind() {
        let options = json!([
            { "optionId": "forever", "kind": "allow_always" }, { "optionId": "approved", "kind": "allow_once" },
            { "optionId": "abort", "kind": "reject_once" },
        ]);
        let chosen = |policy: Policy, kind: &str| {
            let (answer, permitted) = policy.answer(kind, &options);
            (answer["outcome"]["optionId"].as_str().unwrap_or_default().to_owned(), permitted)
        };
        assert_eq!(chosen(Policy::All, "execute"), ("approved".into(), true));
        assert_eq!(chosen(Policy::Edits, "edit"), ("approved".into(), true));
        for kind in ["execute", "delete", "fetch", "other", "", "switch_mode"] {
            assert_eq!(chosen(Policy::Edits, kind), ("abort".into(), false), "{kind}");
        }
        assert_eq!(chosen(Policy::Nothing, "read"), ("abort".into(), false));
        assert_eq!(Policy::Nothing.answer("read", &json!([])), (cancelled(), false));
        assert_eq!(Policy::All.answer("edit", &json!(null)), (cancelled(), false), "nothing to permit with");
    }

    #[test]
    fn a_read_only_sandbox_outweighs_every_mode() {
        for mode in MODES.iter().map(|m| Some((*m).to_owned())).chain([None]) {
            let choice = EngineChoice { permission_mode: mode, ..EngineChoice::default() };
            assert_eq!(Policy::of(&choice, Some(SandboxMode::ReadOnly)), Policy::Nothing);
            assert!(!wanted_modes(&choice, Some(SandboxMode::ReadOnly)).contains(&"yolo"));
        }
    }
}
