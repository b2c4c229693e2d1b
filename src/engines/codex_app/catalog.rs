//! Models and the efforts they take.

use serde_json::{Value, json};

use super::turn::str_of;

/// Efforts from low to high, as the program and we call them.
const LADDER: &[&str] = &["none", "minimal", "low", "medium", "high", "xhigh", "max", "ultra"];
/// Models kept of a list; far more than there are.
const MAX_MODELS: usize = 500;

/// One model.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Model {
    name: String,
    is_default: bool,
    default_effort: Option<String>,
    efforts: Vec<String>,
}

/// The models the program listed.
#[derive(Debug, Default)]
pub(super) struct Catalog(Vec<Model>);

impl Catalog {
    /// Takes a page of `model/list`.
    pub(super) fn read(page: &Value) -> Self {
        let models = page.get("data").and_then(Value::as_array).into_iter().flatten().take(MAX_MODELS);
        Self(
            models
                .map(|m| Model {
                    name: str_of(m, "model").to_owned(),
                    is_default: m.get("isDefault").and_then(Value::as_bool).unwrap_or(false),
                    default_effort: Some(str_of(m, "defaultReasoningEffort").to_owned()).filter(|e| !e.is_empty()),
                    efforts: efforts(m),
                })
                .collect(),
        )
    }

    fn of(&self, model: Option<&str>) -> Option<&Model> {
        self.0.iter().find(|m| model.map_or(m.is_default, |name| m.name == name))
    }

    /// The effort a model has when none is chosen.
    pub(super) fn default_effort(&self, model: Option<&str>) -> Option<String> {
        self.of(model)?.default_effort.clone()
    }

    /// The highest effort of `model` that is not above `asked`; the asked one where nothing is known.
    pub(super) fn fitting(&self, model: Option<&str>, asked: &str) -> String {
        let rank = |effort: &str| LADDER.iter().position(|known| *known == effort);
        let (Some(model), Some(wanted)) = (self.of(model), rank(asked)) else { return asked.to_owned() };
        if model.efforts.is_empty() || model.efforts.iter().any(|e| e == asked) {
            return asked.to_owned();
        }
        let below = model.efforts.iter().filter(|e| rank(e).is_some_and(|r| r < wanted));
        below.max_by_key(|e| rank(e)).cloned().unwrap_or_else(|| asked.to_owned())
    }
}

fn efforts(model: &Value) -> Vec<String> {
    let listed = model.get("supportedReasoningEfforts").and_then(Value::as_array).into_iter().flatten();
    listed.map(|e| str_of(e, "reasoningEffort").to_owned()).collect()
}

/// A model for a caller.
pub(super) fn for_caller(model: &Value) -> Value {
    json!({
        "id": str_of(model, "model"),
        "name": str_of(model, "displayName"),
        "description": str_of(model, "description"),
        "isDefault": model.get("isDefault").and_then(Value::as_bool).unwrap_or(false),
        "defaultEffort": model.get("defaultReasoningEffort").cloned().unwrap_or_default(),
        "efforts": efforts(model),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Efforts above what a model takes are lowered, others are left to the program.
    #[test]
    fn an_effort_is_lowered_to_what_the_model_takes() {
        let efforts = |names: &[&str]| names.iter().map(|e| json!({ "reasoningEffort": e })).collect::<Vec<_>>();
        let catalog = Catalog::read(&json!({ "data": [
            { "model": "a", "isDefault": true, "defaultReasoningEffort": "medium", "supportedReasoningEfforts": efforts(&["low", "high", "xhigh"]) },
            { "model": "b", "supportedReasoningEfforts": efforts(&["max"]) },
        ] }));
        assert_eq!(catalog.fitting(None, "ultra"), "xhigh");
        assert_eq!(catalog.fitting(Some("a"), "medium"), "low");
        assert_eq!(catalog.fitting(Some("b"), "low"), "low", "nothing lower is there");
        assert_eq!(catalog.fitting(Some("unknown"), "ultra"), "ultra");
        assert_eq!(catalog.default_effort(None).as_deref(), Some("medium"));
        assert_eq!(catalog.default_effort(Some("b")), None);
    }
}
