//! What a session offers to choose: models, efforts, modes, and which of them is wanted.
//!
//! Agents say it twice, as lists of their own and as options of a configuration; either is enough.

use serde_json::{Value, json};

use super::super::stream_json::str_of;

/// Efforts from low to high, as specs name them.
pub(super) const EFFORTS: &[&str] = &["low", "medium", "high", "xhigh", "max", "ultra"];
/// Most values shown of a list in a message.
const SHOWN: usize = 20;

/// A list to choose from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Choice {
    /// Id of the option; `None` when the list has a method of its own.
    option: Option<String>,
    /// What stands now.
    pub(super) current: String,
    /// What is offered.
    pub(super) values: Vec<String>,
}

impl Choice {
    /// Method and arguments that choose `value`; `own` is the list's own method with the name of its argument.
    pub(super) fn request(&self, session: &str, value: &str, own: (&'static str, &str)) -> (&'static str, Value) {
        match &self.option {
            Some(id) => ("session/set_config_option", json!({ "sessionId": session, "configId": id, "value": value })),
            None => (own.0, json!({ "sessionId": session, own.1: value })),
        }
    }

    /// What is offered, for a message.
    pub(super) fn listed(&self) -> String {
        let mut shown = self.values.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
        if self.values.len() > SHOWN {
            shown.push_str(", …");
        }
        shown
    }

    fn offers(&self, value: &str) -> bool {
        self.values.iter().any(|v| v == value)
    }
}

/// Everything a session offers.
#[derive(Debug, Clone, Default)]
pub(super) struct Offered {
    /// Models.
    pub(super) models: Option<Choice>,
    /// Efforts.
    pub(super) efforts: Option<Choice>,
    /// Modes.
    pub(super) modes: Option<Choice>,
}

impl Offered {
    /// Takes what an answer or an update says; what it does not mention stays.
    pub(super) fn learn(&mut self, said: &Value) {
        for option in said.get("configOptions").and_then(Value::as_array).into_iter().flatten() {
            let id = str_of(option, "id");
            let kind = if str_of(option, "category").is_empty() { id } else { str_of(option, "category") };
            let place = match kind {
                "model" => &mut self.models,
                "thought_level" => &mut self.efforts,
                "mode" => &mut self.modes,
                _ => continue,
            };
            let values = option.get("options").and_then(Value::as_array).into_iter().flatten();
            // Values can be grouped one level deep.
            let values = values.flat_map(|v| match v.get("options").and_then(Value::as_array) {
                Some(group) => group.iter().collect::<Vec<_>>(),
                None => vec![v],
            });
            let values = values.map(|v| str_of(v, "value").to_owned()).filter(|v| !v.is_empty()).collect();
            *place = Some(Choice {
                option: Some(id.to_owned()),
                current: str_of(option, "currentValue").to_owned(),
                values,
            });
        }
        let list = |of: &str, all: &str, id: &str, now: &str| {
            let list = said.get(of)?;
            let values = list.get(all)?.as_array()?.iter().map(|v| str_of(v, id).to_owned()).collect();
            Some(Choice { option: None, current: str_of(list, now).to_owned(), values })
        };
        if let Some(modes) = list("modes", "availableModes", "id", "currentModeId") {
            self.modes = Some(modes);
        }
        if self.models.is_none() {
            self.models = list("models", "availableModels", "modelId", "currentModelId");
        }
    }

    /// The effort to set for `wanted`: the highest offered that is not above it, else the lowest there is.
    pub(super) fn effort(&self, wanted: &str) -> Option<String> {
        let rank = |e: &str| EFFORTS.iter().position(|known| *known == e);
        let offered = self.efforts.as_ref()?;
        if offered.offers(wanted) {
            return Some(wanted.to_owned());
        }
        let wanted = rank(wanted)?;
        let mut ranked: Vec<(usize, &String)> = offered.values.iter().filter_map(|v| Some((rank(v)?, v))).collect();
        ranked.sort();
        let below = ranked.iter().rev().find(|(r, _)| *r <= wanted);
        below.or(ranked.first()).map(|(_, v)| (*v).clone())
    }

    /// The first of `wanted` that is offered.
    pub(super) fn mode(&self, wanted: &[&str]) -> Option<String> {
        let offered = self.modes.as_ref()?;
        wanted.iter().find(|m| offered.offers(m)).map(|m| (*m).to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn efforts_are_lowered_to_what_is_offered() {
        let mut offered = Offered::default();
        let values: Vec<Value> = ["low", "medium", "high"].iter().map(|v| json!({ "value": v })).collect();
        offered.learn(&json!({ "configOptions": [
            { "id": "reasoning_effort", "category": "thought_level", "currentValue": "low", "options": values },
            { "id": "m", "category": "model", "options": [{ "name": "group", "options": [{ "value": "a/b" }] }] },
        ] }));
        assert_eq!(offered.effort("max").as_deref(), Some("high"));
        assert_eq!(offered.effort("medium").as_deref(), Some("medium"));
        assert_eq!(offered.models.as_ref().map(Choice::listed).as_deref(), Some("a/b"));
        offered
            .learn(&json!({ "modes": { "currentModeId": "x", "availableModes": [{ "id": "x" }, { "id": "plan" }] } }));
        assert_eq!(offered.mode(&["read-only", "plan"]).as_deref(), Some("plan"));
        assert_eq!(offered.mode(&["yolo"]), None);
    }
}
