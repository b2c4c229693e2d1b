//! Which tools a server offers, chosen once at its start.

use super::{Registry, Toolset, args::shown};
use crate::{kernel::Error, model::Code};

/// Toolsets that later versions have, so that asking for one says so instead of calling it a typo.
const LATER: [&str; 2] = ["autoloop", "ultraapp"];

/// What flags and environment asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// `--toolsets`: names, `all` or `default`.
    pub toolsets: Option<Vec<String>>,
    /// `--tools`: exactly these, or these in addition to `--toolsets`.
    pub tools: Option<Vec<String>>,
    /// `--exclude-tools`.
    pub exclude: Vec<String>,
    /// `--read-only`: beats everything.
    pub access: Access,
    /// `CLAWO_MCP_TOOLS` or `[mcp] tools`: only these, unless flags choose.
    pub configured: Option<Vec<String>>,
}

/// Whether tools that change something are offered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Access {
    /// All.
    #[default]
    Full,
    /// Only those that look.
    ReadOnly,
}

/// The tools to offer and what was odd about the choice, for standard error.
#[derive(Debug)]
pub struct Selected {
    /// The offered tools.
    pub registry: Registry,
    /// One line each.
    pub warnings: Vec<String>,
}

impl Selection {
    /// Applies the choice to every tool there is. An empty result is an error: a server without tools helps nobody.
    pub fn apply(&self) -> Result<Selected, Error> {
        let mut registry = Registry::of(&self.sets());
        let mut warnings = Vec::new();
        let known: Vec<&'static str> = registry.tools().iter().map(|t| t.about.name).collect();
        for (names, source) in [
            (self.tools.as_deref().unwrap_or_default(), "--tools"),
            (self.exclude.as_slice(), "--exclude-tools"),
            (self.configured.as_deref().unwrap_or_default(), "CLAWO_MCP_TOOLS or mcp.tools"),
        ] {
            let unknown: Vec<String> =
                names.iter().filter(|n| !known.contains(&n.as_str())).map(|n| shown(n)).collect();
            if !unknown.is_empty() {
                warnings.push(format!("{source}: unknown tools ignored: {}", unknown.join(", ")));
            }
        }
        for name in self.toolsets.as_deref().unwrap_or_default() {
            if LATER.contains(&name.as_str()) {
                warnings.push(format!("--toolsets: '{name}' is not available in this version"));
            } else if !matches!(name.as_str(), "all" | "default") && !Toolset::ALL.iter().any(|t| t.name() == name) {
                warnings.push(format!("--toolsets: unknown toolset ignored: {}", shown(name)));
            }
        }
        registry.retain(|tool| self.offers(tool.about.name, tool.about.toolset, tool.about.hints.read_only));
        if registry.tools().is_empty() {
            let mut message = "no tool is left to offer".to_owned();
            for warning in &warnings {
                message.push_str("; ");
                message.push_str(warning);
            }
            return Err(Error::new(Code::InvalidArgument, message));
        }
        Ok(Selected { registry, warnings })
    }

    /// Sets that may have an offered tool: all of them as soon as tools are named.
    fn sets(&self) -> Vec<Toolset> {
        let named = self.tools.is_some() || self.configured.is_some() || !self.exclude.is_empty();
        Toolset::ALL.into_iter().filter(|set| named || self.in_sets(*set)).collect()
    }

    /// Whether a whole set was asked for.
    fn in_sets(&self, set: Toolset) -> bool {
        let Some(asked) = &self.toolsets else { return set.is_default() };
        asked.iter().any(|s| match s.as_str() {
            "all" => true,
            "default" => set.is_default(),
            other => other == set.name(),
        })
    }

    fn offers(&self, name: &str, toolset: Toolset, read_only: bool) -> bool {
        let listed = |names: &[String]| names.iter().any(|n| n == name);
        let chosen = match (&self.toolsets, &self.tools, &self.configured) {
            (Some(_), Some(tools), _) => self.in_sets(toolset) || listed(tools),
            (Some(_), None, _) => self.in_sets(toolset),
            (None, Some(tools), _) => listed(tools),
            (None, None, Some(configured)) => listed(configured),
            (None, None, None) => toolset.is_default(),
        };
        chosen
            && !listed(&self.exclude)
            && match self.access {
                Access::Full => true,
                Access::ReadOnly => read_only,
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(selection: &Selection) -> Vec<&'static str> {
        selection.apply().unwrap().registry.tools().iter().map(|t| t.about.name).collect()
    }

    fn list(names: &[&str]) -> Vec<String> {
        names.iter().map(|n| (*n).to_owned()).collect()
    }

    #[test]
    fn flags_choose_and_read_only_beats_all() {
        assert_eq!(names(&Selection::default()).len(), 18);
        let verify = Selection { toolsets: Some(list(&["verify"])), ..Selection::default() };
        assert_eq!(names(&verify), ["verify_run"]);
        let both = Selection { tools: Some(list(&["workflow_list"])), ..verify };
        assert_eq!(names(&both), ["verify_run", "workflow_list"]);
        let looking = Selection { access: Access::ReadOnly, ..Selection::default() };
        assert_eq!(
            names(&looking),
            [
                "council_review",
                "council_status",
                "workflow_evidence",
                "workflow_list",
                "workflow_status",
                "workflow_validate",
            ]
        );
        let configured = Selection { configured: Some(list(&["workflow_status"])), ..Selection::default() };
        assert_eq!(names(&configured), ["workflow_status"]);
        let flags = Selection { tools: Some(list(&["verify_run"])), ..configured };
        assert_eq!(names(&flags), ["verify_run"], "flags win over the environment");
    }

    #[test]
    fn unknown_names_warn_and_nothing_left_is_an_error() {
        let typo = Selection { tools: Some(list(&["verify_run", "verfy"])), ..Selection::default() };
        assert_eq!(typo.apply().unwrap().warnings, ["--tools: unknown tools ignored: verfy"]);
        let later = Selection { toolsets: Some(list(&["autoloop"])), ..Selection::default() };
        let error = later.apply().unwrap_err();
        assert!(error.message.contains("no tool is left") && error.message.contains("not available"), "{error}");
        let writes =
            Selection { tools: Some(list(&["workflow_start"])), access: Access::ReadOnly, ..Selection::default() };
        assert!(writes.apply().is_err());
    }
}
