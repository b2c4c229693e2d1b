//! The charter: what a member is and what it must keep to, for the whole of its session. Pure; whoever calls reads the
//! user's own charter, if there is one.

const BUILT_IN: &str = include_str!("../../../prompts/council/charter.md");
/// Longest name between braces that is taken for a placeholder.
const NAME_MAX: usize = 64;

/// What the placeholders stand for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Charter<'a> {
    /// `{{emoji}}`; may be empty.
    pub emoji: &'a str,
    /// `{{name}}`.
    pub name: &'a str,
    /// `{{persona}}`: the role.
    pub persona: &'a str,
    /// `{{workDir}}`: the project's folder in the member's worktree.
    pub work_dir: &'a str,
    /// `{{projectDir}}`: the user's.
    pub project_dir: &'a str,
    /// `{{branch}}`.
    pub branch: &'a str,
    /// `{{integrationBranch}}`.
    pub integration_branch: &'a str,
    /// `{{otherBranches}}`, ready to be shown; empty for a member that is alone.
    pub other_branches: &'a str,
    /// `{{planFile}}`.
    pub plan_file: &'a str,
    /// `{{shortId}}`.
    pub short_id: &'a str,
}

impl<'a> Charter<'a> {
    fn value(&self, name: &str) -> Option<&'a str> {
        Some(match name {
            "emoji" => self.emoji,
            "name" => self.name,
            "persona" => self.persona,
            "workDir" => self.work_dir,
            "projectDir" => self.project_dir,
            "branch" => self.branch,
            "integrationBranch" => self.integration_branch,
            "otherBranches" if self.other_branches.is_empty() => "none, you are the only member",
            "otherBranches" => self.other_branches,
            "planFile" => self.plan_file,
            "shortId" => self.short_id,
            _ => return None,
        })
    }
}

/// The charter of a member, and the placeholders in it that mean nothing, each once; they stay as they are.
/// `own` replaces the built-in text.
pub fn build(own: Option<&str>, charter: &Charter<'_>) -> (String, Vec<String>) {
    fill(own.unwrap_or(BUILT_IN), |name| charter.value(name))
}

/// `template` with a value for each `{{name}}`. Values are put in as they are: what looks like a placeholder in one
/// stays. An empty value takes the space after it along.
pub(super) fn fill<'a>(template: &str, value: impl Fn(&str) -> Option<&'a str>) -> (String, Vec<String>) {
    let mut text = String::with_capacity(template.len() * 2);
    let mut unknown: Vec<String> = Vec::new();
    let mut rest = template;
    while let Some((before, inside)) = rest.split_once("{{") {
        text.push_str(before);
        let name = inside.split_once("}}").map(|(name, after)| (name, name.trim(), after));
        rest = match name {
            Some((_, name, after)) if is_name(name) && value(name).is_some() => {
                let value = value(name).unwrap_or_default();
                text.push_str(value);
                if value.is_empty() { after.strip_prefix(' ').unwrap_or(after) } else { after }
            }
            Some((raw, name, after)) if is_name(name) => {
                if !unknown.iter().any(|known| known == name) {
                    unknown.push(name.to_owned());
                }
                text.push_str("{{");
                text.push_str(raw);
                text.push_str("}}");
                after
            }
            _ => {
                text.push_str("{{");
                inside
            }
        };
    }
    text.push_str(rest);
    (text, unknown)
}

fn is_name(name: &str) -> bool {
    (1..=NAME_MAX).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn charter() -> Charter<'static> {
        Charter {
            emoji: "🔵",
            name: "Planner",
            persona: "You plan.",
            work_dir: "/r/.worktrees/ab/Planner/app",
            project_dir: "/r/app",
            branch: "council/ab/Planner",
            integration_branch: "council/ab/integration",
            other_branches: "council/ab/B, council/ab/C",
            plan_file: "plan.md",
            short_id: "ab",
        }
    }

    /// Every section of the charter says what it has to.
    #[test]
    fn the_built_in_charter_is_complete() {
        let (text, unknown) = build(None, &charter());
        assert!(unknown.is_empty() && !text.contains("{{"), "{unknown:?}");
        for needed in "autonomous engineer|# You are 🔵 Planner\n|member of a council|You plan.|on this machine only|\
            `/r/.worktrees/ab/Planner/app`|`council/ab/Planner`|`council/ab/integration`|\
            council/ab/B, council/ab/C|`/r/app`|home directory|other projects|configuration of any tool|\
            installed dependencies|comes from a tool|Never invent|commit hash|just observed|`plan.md`|\
            source of truth|Round 1 is for the plan alone|From round 2|checklist|phases|depends on|\
            [Claimed: <name>]|[Done: <name>]|Edit only the text between yours|does not replace the work|\
            from the round after|is not yours|earlier in the order|git status|git log|stale|\
            only if `git remote` names a remote|Commit to `council/ab/Planner`|the runtime merges|\
            Never check out the user's branch|never merge into it|never commit to it|Never push|\
            own work is committed|ran green|plan is up to date|no conflict report is open|\
            reviews/Planner-on-<member>.md|[APPROVE]|[REQUEST_CHANGES]|2/3|Never stop because of one|\
            git merge council/ab/integration|by hand|both sides intended|Run the checks|Commit the merge|\
            Never ask for permission|your turn produces changes|say why and vote NO|\
            read a file before you change it|List a directory once|nothing to research|1. Look|2. Sync|\
            3. Execute: small steps|4. Verify|5. Report|council(<phase>): Planner - <short description>|\
            # Planner: report of round|Git: |Plan: |Checks: |Review: |Next: |last line|[CONSENSUS: YES]|\
            [CONSENSUS: NO]"
            .split('|')
        {
            assert!(text.contains(needed), "{needed}");
        }
    }

    /// A member that repeats the end of its charter has not voted yes.
    #[test]
    fn an_echo_of_the_charter_is_no_yes() {
        assert!(!crate::nodes::council::votes::read(BUILT_IN).yes);
    }

    #[test]
    fn a_member_without_emoji_or_others() {
        let (text, _) = build(None, &Charter { emoji: "", other_branches: "", ..charter() });
        assert!(text.starts_with("# You are Planner\n") && text.contains("branches: none, you are the only member\n"));
    }

    #[test]
    fn own_text_and_unknown_placeholders() {
        let own = "{{name}} {{ shortId }} {{nope}} {{nope}} {{ x_y }} {{not a name}} {{open {{planFile}}";
        let (text, unknown) = build(Some(own), &charter());
        assert_eq!(text, "Planner ab {{nope}} {{nope}} {{ x_y }} {{not a name}} {{open plan.md");
        assert_eq!(unknown, ["nope", "x_y"]);
    }

    /// Values are put in once: a role cannot reach for other values.
    #[test]
    fn values_are_not_expanded_again() {
        let (text, unknown) = build(Some("{{persona}}!"), &Charter { persona: "{{name}} {{x}}", ..charter() });
        assert_eq!((text.as_str(), unknown.len()), ("{{name}} {{x}}!", 0));
    }

    proptest! {
        #[test]
        fn any_template_is_taken(own in "(\\PC|\n|\\{\\{|\\}\\}|name|[{}]){0,60}") {
            let (text, _) = build(Some(&own), &charter());
            if !own.contains("{{") {
                prop_assert_eq!(text, own);
            }
        }
    }
}
