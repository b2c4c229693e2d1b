//! The members of a council nobody chose, and the role of a member nobody described. Texts only.

/// Role of a member that was given none.
pub const PLAIN_ROLE: &str = include_str!("../../../prompts/council/plain_role.md").trim_ascii_end();

const PLANNER: &str = include_str!("../../../prompts/council/planner.md").trim_ascii_end();
const GENERATOR: &str = include_str!("../../../prompts/council/generator.md").trim_ascii_end();
const EVALUATOR: &str = include_str!("../../../prompts/council/evaluator.md").trim_ascii_end();

/// The default team in its order: name, emoji, role.
pub fn default_team() -> Vec<(&'static str, &'static str, &'static str)> {
    vec![("Planner", "🔵", PLANNER), ("Generator", "🟠", GENERATOR), ("Evaluator", "🟢", EVALUATOR)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_members_with_roles_of_their_own() {
        let team = default_team();
        assert_eq!(team.iter().map(|seat| seat.0).collect::<Vec<_>>(), ["Planner", "Generator", "Evaluator"]);
        assert_eq!(team.iter().map(|seat| seat.1).collect::<Vec<_>>(), ["🔵", "🟠", "🟢"]);
        for ((_, _, role), needs) in team.iter().zip([
            ["phases", "constraints", "leave details"],
            ["what the plan says", "smallest solution", "invent no requirements"],
            ["nobody's word", "real user", "approval"],
        ]) {
            for need in needs {
                assert!(role.contains(need), "{need}: {role}");
            }
        }
        assert!(!PLAIN_ROLE.is_empty() && !PLAIN_ROLE.ends_with('\n'));
    }
}
