//! What each member is told in a round, put together from what is kept and what the repository says.

use super::{
    charter::{self, Charter},
    data::{INTEGRATION, Layout, RoundStart},
    fault::Fault,
    kept::Kept,
    place,
    prompt::{self, ConflictReport, HUNKS_MAX, Partner, PastReply, Restart, Round},
    shared::Shared,
    team::PLAIN_ROLE,
};
use crate::{
    model::run::Steer,
    nodes::prompt::{Parts, compose},
    sys::ids,
};

/// What all members of a round are told.
#[derive(Debug)]
pub(super) struct Common {
    steers: Vec<Steer>,
    injections: Vec<String>,
    history: Vec<PastReply>,
    /// The council before: its plan and whose work is missing.
    former: Option<(Option<String>, Vec<String>)>,
    partners: Vec<Partner>,
}

/// Gathers it.
pub(super) async fn common(shared: &Shared, kept: &Kept, start: &RoundStart) -> Result<Common, Fault> {
    let earlier = kept.replies.range(..start.round).flat_map(|(_, replies)| {
        let seats = shared.layout.seats.iter();
        seats.filter_map(|seat| replies.get(&seat.name))
    });
    let history: Vec<PastReply> = earlier
        .map(|reply| PastReply {
            round: reply.round,
            name: reply.agent.clone(),
            yes: reply.consensus,
            text: reply.tail.clone(),
        })
        .collect();
    let former = match shared.former.as_ref().filter(|_| start.round == 1) {
        Some(former) => Some(told_of(shared, former, &start.integration).await?),
        None => None,
    };
    let seats = shared.layout.seats.iter();
    Ok(Common {
        steers: shared.ctx.steers.borrow().clone(),
        injections: start.injections.iter().map(|i| i.text.clone()).collect(),
        history,
        former,
        partners: seats.map(|seat| Partner { name: seat.name.clone(), emoji: seat.emoji.clone() }).collect(),
    })
}

/// The plan of the council before, and whose work `integration` does not hold.
async fn told_of(shared: &Shared, former: &Layout, integration: &str) -> Result<(Option<String>, Vec<String>), Fault> {
    let plan = shared.repo.show(&shared.layout.start_commit, &former.plan_file, place::PLAN_MAX).await?;
    let plan = plan.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let missing = place::unmerged(shared, former, integration).await?;
    Ok((plan, missing.into_iter().map(|(name, _)| name).collect()))
}

impl Common {
    /// Ids of the corrections in it.
    pub(super) fn steers(&self) -> impl Iterator<Item = &str> {
        self.steers.iter().map(|steer| steer.id.as_str())
    }

    /// The prompt of the member at `index`.
    pub(super) async fn prompt(&self, shared: &Shared, kept: &Kept, start: &RoundStart, index: usize) -> String {
        let (layout, attempt) = (&shared.layout, &shared.ctx.attempt);
        let mut partners = self.partners.clone();
        let me = if index < partners.len() { partners.remove(index) } else { Partner::default() };
        let (branch, integration) = (layout.branch(&me.name), layout.branch(INTEGRATION));
        let last = start.round.checked_sub(1).and_then(|round| kept.ends.get(&round));
        let conflict = conflict(shared, kept, start, &me.name).await;
        let mut notes = Vec::new();
        if let Some(last) = last {
            let reply = kept.replies.get(&last.round).and_then(|replies| replies.get(&me.name));
            notes.extend(reply.into_iter().flat_map(|reply| reply.notes.iter().cloned()));
            notes.extend(last.lost_plans.get(&me.name).map(|plan| lost_plan(plan)));
        }
        let seed = ids::short();
        // A repair brief goes in front of it all, and corrections before that.
        let brief = !attempt.red.is_empty();
        let (plan, missing) = self.former.as_ref().map(|(plan, missing)| (plan.as_deref(), missing)).unzip();
        let text = prompt::round(&Round {
            round: start.round,
            max_rounds: shared.node.max_rounds,
            task: &shared.node.task,
            me: &me,
            place: index,
            partners: &partners,
            history: &self.history,
            restart: plan.zip(missing).map(|(former_plan, unmerged)| Restart { feedback: &[], former_plan, unmerged }),
            conflict: conflict.as_ref(),
            notes: &notes,
            disagreement: last.map(|end| &end.disagreement),
            plan_file: shared.plan_in_project(),
            branch: &branch,
            integration_branch: &integration,
            injections: &self.injections,
            steers: if brief { &[] } else { &self.steers },
            seed: &seed,
        });
        if !brief {
            return text;
        }
        let parts =
            Parts { steers: &self.steers, red: &attempt.red, red_repeats: attempt.red_repeats, ..Parts::default() };
        compose(&text, &parts, &seed)
    }

    /// The charter of the member at `index`.
    pub(super) fn charter(&self, shared: &Shared, index: usize) -> String {
        let layout = &shared.layout;
        let Some(agent) = shared.node.agents.get(index) else { return String::new() };
        let persona = agent.persona.as_deref().or(agent.prompt.as_deref()).unwrap_or(PLAIN_ROLE);
        let others: Vec<String> = self
            .partners
            .iter()
            .map(|p| &p.name)
            .filter(|name| **name != agent.name)
            .map(|name| layout.branch(name))
            .collect();
        let (text, unknown) = charter::build(
            shared.charter.as_deref(),
            &Charter {
                emoji: &agent.emoji,
                name: &agent.name,
                persona,
                work_dir: &layout.project(&agent.name).to_string_lossy(),
                project_dir: &layout.user_dir().to_string_lossy(),
                branch: &layout.branch(&agent.name),
                integration_branch: &layout.branch(INTEGRATION),
                other_branches: &others.join(", "),
                plan_file: shared.plan_in_project(),
                short_id: &layout.short_id,
            },
        );
        if index == 0 && !unknown.is_empty() {
            shared.log("warn", format!("the charter has placeholders that mean nothing: {}", unknown.join(", ")));
        }
        text
    }
}

/// The report for a member whose work did not fit and still does not.
async fn conflict(shared: &Shared, kept: &Kept, start: &RoundStart, member: &str) -> Option<ConflictReport> {
    let last = kept.ends.get(&start.round.checked_sub(1)?)?;
    let conflict = last.conflicts.iter().find(|c| c.member == member)?;
    let paths: Vec<String> = conflict.files.iter().map(|file| file.path.clone()).collect();
    let hunks = shared.repo.hunks(&start.integration, &conflict.member_commit, &paths, HUNKS_MAX).await;
    let hunks = hunks.unwrap_or_else(|e| {
        shared.log("warn", format!("the conflict of {member} cannot be shown: {e}"));
        String::new()
    });
    Some(ConflictReport {
        files: conflict.files.iter().map(|file| (file.path.clone(), file.kind.clone())).collect(),
        others: conflict.other_members.clone(),
        hunks,
        integration_branch: shared.layout.branch(INTEGRATION),
    })
}

/// What is said of a plan whose sections cannot be told apart any more.
fn lost_plan(plan: &str) -> String {
    if plan.trim().is_empty() {
        return "The plan file was missing on your branch, so that of the integration branch stays.".to_owned();
    }
    format!(
        "The marker lines of your section are missing or damaged in your plan file, so that of the integration branch \
         stays. Write what is missing into your section again. This was your version:\n{plan}"
    )
}
