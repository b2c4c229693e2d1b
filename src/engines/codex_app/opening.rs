//! What a thread is opened with: begun, gone on with or branched off.

use serde_json::{Map, Value, json};

use super::{catalog::Catalog, turn::str_of};
use crate::{
    engines::{EngineError, ErrorClass, SessionSpec, Usage},
    model::spec::SandboxMode,
};

/// Where the thread comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Origin {
    /// A new one.
    New,
    /// This one.
    Resumed(String),
    /// A branch of this one.
    Forked(String),
}

/// Everything said at the beginning.
#[derive(Debug, Clone)]
pub(super) struct Opening {
    /// Where the thread comes from.
    pub(super) origin: Origin,
    /// Total of the thread that was counted before.
    pub(super) counted: Option<Usage>,
    /// Schema every reply must fit.
    pub(super) schema: Option<Value>,
    /// What tools may do.
    pub(super) sandbox: SandboxMode,
    model: Option<String>,
    effort: Option<String>,
    cwd: String,
    add_dirs: Vec<String>,
    system_prompt: Option<String>,
    append: Option<String>,
    ephemeral: bool,
}

/// What the tools of a session may do. A session that plans changes nothing, and one without permissions to ask for
/// has no sandbox; a sandbox chosen by name goes before the latter.
pub(super) fn sandbox(spec: &SessionSpec) -> SandboxMode {
    match spec.choice.permission_mode.as_deref() {
        Some("plan") => SandboxMode::ReadOnly,
        Some("bypassPermissions") => spec.options.sandbox.unwrap_or(SandboxMode::DangerFullAccess),
        Some(_) | None => spec.options.sandbox.unwrap_or(SandboxMode::WorkspaceWrite),
    }
}

impl Opening {
    /// What `spec` asks for.
    pub(super) fn new(spec: &SessionSpec) -> Self {
        let path = |p: &std::path::Path| p.to_string_lossy().into_owned();
        let origin = match (&spec.resume, spec.options.fork) {
            (None, _) => Origin::New,
            (Some(id), false) => Origin::Resumed(id.clone()),
            (Some(id), true) => Origin::Forked(id.clone()),
        };
        Self {
            origin,
            counted: spec.options.counted,
            schema: spec.options.json_schema.clone(),
            sandbox: sandbox(spec),
            model: spec.choice.model.clone(),
            effort: spec.choice.effort.clone().filter(|e| e != "auto"),
            cwd: path(&spec.cwd),
            add_dirs: spec.options.add_dirs.iter().map(|d| path(d)).collect(),
            system_prompt: spec.options.system_prompt.clone(),
            append: spec.append_system_prompt.clone(),
            ephemeral: spec.options.no_persistence,
        }
    }

    /// The request for the thread, and a word about an effort that had to be lowered. A thread gone on with remembers
    /// what it was begun with; it is restated all the same, because what is asked for now is what counts.
    pub(super) fn request(&self, catalog: &Catalog) -> (&'static str, Value, Option<String>) {
        let mut params = Map::new();
        let mut set = |key: &str, value: Value| params.insert(key.to_owned(), value);
        set("cwd", self.cwd.clone().into());
        set("sandbox", self.sandbox.as_str().into());
        // Nobody is there to approve anything; the sandbox is the boundary.
        set("approvalPolicy", "never".into());
        let texts = [
            ("model", &self.model),
            ("baseInstructions", &self.system_prompt),
            ("developerInstructions", &self.append),
        ];
        for (key, text) in texts {
            if let Some(text) = text {
                set(key, text.clone().into());
            }
        }
        let fitting = self.effort.as_deref().map(|e| catalog.fitting(self.model.as_deref(), e));
        let mut config = Map::new();
        if let Some(effort) = &fitting {
            config.insert("model_reasoning_effort".to_owned(), effort.clone().into());
        }
        if !self.add_dirs.is_empty() {
            config.insert("sandbox_workspace_write".to_owned(), json!({ "writable_roots": self.add_dirs }));
        }
        if !config.is_empty() {
            set("config", Value::Object(config));
        }
        let method = match &self.origin {
            Origin::New => "thread/start",
            Origin::Resumed(id) => {
                set("threadId", id.clone().into());
                set("excludeTurns", true.into());
                "thread/resume"
            }
            Origin::Forked(id) => {
                set("threadId", id.clone().into());
                set("excludeTurns", true.into());
                set("deferGoalContinuation", true.into());
                "thread/fork"
            }
        };
        if self.ephemeral && !matches!(self.origin, Origin::Resumed(_)) {
            set("ephemeral", true.into());
        }
        let lowered = self.effort.as_deref().zip(fitting.as_deref()).filter(|(asked, got)| asked != got);
        let note = lowered.map(|(asked, got)| format!("the model takes no effort {asked}; it was lowered to {got}"));
        (method, Value::Object(params), note)
    }

    /// The thread's id out of the answer, unless it is another thread than asked for or freer than allowed.
    pub(super) fn thread(&self, answer: &Value) -> Result<String, EngineError> {
        let wrong = |text: String| Err(EngineError::new(ErrorClass::Protocol, text));
        let thread = answer.get("thread").unwrap_or(&Value::Null);
        let id = str_of(thread, "id");
        if id.is_empty() {
            return wrong("codex opened a thread without an id".to_owned());
        }
        match &self.origin {
            Origin::New => {}
            Origin::Resumed(asked) if asked == id => {}
            Origin::Resumed(asked) => return wrong(format!("codex went on with thread {id} instead of {asked}")),
            Origin::Forked(asked) if asked != id && str_of(thread, "forkedFromId") == asked => {}
            Origin::Forked(asked) => return wrong(format!("codex did not branch off thread {asked} but gave {id}")),
        }
        let policy = answer.get("sandbox").map(|s| str_of(s, "type")).unwrap_or_default();
        if self.sandbox == SandboxMode::ReadOnly && policy != "readOnly" {
            return wrong(format!("codex would not hold the thread read-only; its sandbox is `{policy}`"));
        }
        Ok(id.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::spec::EngineChoice;

    #[test]
    fn what_is_asked_for_is_said_and_checked() {
        let mut spec = SessionSpec { cwd: "/repo".into(), resume: Some("t".into()), ..SessionSpec::default() };
        spec.choice = EngineChoice { model: Some("m".into()), effort: Some("ultra".into()), ..EngineChoice::default() };
        spec.append_system_prompt = Some("Be brief.".into());
        spec.options.add_dirs = vec!["/more".into()];
        let listed =
            json!({ "data": [{ "model": "m", "supportedReasoningEfforts": [{ "reasoningEffort": "high" }] }] });
        let (method, params, note) = Opening::new(&spec).request(&Catalog::read(&listed));
        let want = json!({
            "threadId": "t", "excludeTurns": true, "cwd": "/repo", "sandbox": "workspace-write", "approvalPolicy": "never",
            "model": "m", "developerInstructions": "Be brief.",
            "config": { "model_reasoning_effort": "high", "sandbox_workspace_write": { "writable_roots": ["/more"] } },
        });
        assert_eq!((method, params), ("thread/resume", want));
        assert!(note.unwrap().ends_with("no effort ultra; it was lowered to high"));
        let answer = |id: &str, from: &str, policy: &str| json!({ "thread": { "id": id, "forkedFromId": from }, "sandbox": { "type": policy } });
        let resumed = Opening::new(&spec);
        assert_eq!(resumed.thread(&answer("t", "", "workspaceWrite")).unwrap(), "t");
        assert!(resumed.thread(&answer("u", "", "workspaceWrite")).unwrap_err().message.contains("instead of t"));
        spec.options.fork = true;
        spec.choice.permission_mode = Some("plan".into());
        let forked = Opening::new(&spec);
        assert_eq!(forked.thread(&answer("u", "t", "readOnly")).unwrap(), "u");
        assert!(forked.thread(&answer("u", "v", "readOnly")).is_err(), "of another thread");
        assert!(forked.thread(&answer("u", "t", "workspaceWrite")).is_err(), "freer than allowed");
    }

    #[test]
    fn a_sandbox_by_name_goes_before_one_by_permissions() {
        let of = |mode: Option<&str>, named: Option<SandboxMode>| {
            let mut spec = SessionSpec::default();
            spec.choice.permission_mode = mode.map(str::to_owned);
            spec.options.sandbox = named;
            sandbox(&spec)
        };
        assert_eq!(of(None, None), SandboxMode::WorkspaceWrite);
        assert_eq!(of(Some("acceptEdits"), Some(SandboxMode::ReadOnly)), SandboxMode::ReadOnly);
        assert_eq!(of(Some("bypassPermissions"), None), SandboxMode::DangerFullAccess);
        assert_eq!(of(Some("bypassPermissions"), Some(SandboxMode::ReadOnly)), SandboxMode::ReadOnly);
        assert_eq!(of(Some("plan"), None), SandboxMode::ReadOnly);
    }
}
