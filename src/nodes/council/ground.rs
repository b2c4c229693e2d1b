//! What a council left in its repository: its branches, the plan and the reviews in them. Only looks.

use std::path::Path;

use super::{
    case::Case,
    data::{INTEGRATION, Layout},
    refusal::Refusal,
};
use crate::git::{ChangeKind, Difference, Git, Repo};

/// Folder of the reviews that members write about each other, in the project's folder.
const REVIEWS: &str = "reviews";

/// A council's place in its repository.
#[derive(Debug)]
pub struct Ground<'a> {
    /// The work tree that holds the project.
    pub repo: Repo,
    /// Where the council lies in it.
    pub layout: &'a Layout,
    /// Tip of the integration branch.
    pub tip: String,
}

/// Files of the council's own talk, which are no part of its work.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Talk {
    /// Plans.
    pub plans: Vec<String>,
    /// Reviews.
    pub reviews: Vec<String>,
}

impl Talk {
    /// All of them.
    pub fn paths(&self) -> Vec<String> {
        self.plans.iter().chain(&self.reviews).cloned().collect()
    }
}

impl<'a> Ground<'a> {
    /// Opens it. What is gone is named.
    pub async fn open(git: &Git, case: &'a Case) -> Result<Self, Refusal> {
        let lost = |what: &str| Refusal::lost(&case.id, what);
        let layout = case.layout.as_ref().ok_or_else(|| lost("everything"))?;
        let repo = open(git, layout).await?.ok_or_else(|| lost(&format!("the checkout {}", layout.top)))?;
        let branch = layout.branch(INTEGRATION);
        let tip = repo.branch_tip(&branch).await?.ok_or_else(|| lost(&format!("the branch {branch}")))?;
        for commit in [Some(layout.base_commit.clone()), case.integration_commit()].into_iter().flatten() {
            if !repo.has_commit(&commit).await? {
                return Err(lost(&format!("the commit {commit}")));
            }
        }
        Ok(Self { repo, layout, tip })
    }

    /// Members whose branch has something that integration has not, in their order.
    pub async fn unmerged(&self) -> Result<Vec<String>, Refusal> {
        let mut found = Vec::new();
        for seat in &self.layout.seats {
            if let Some(tip) = self.repo.branch_tip(&self.layout.branch(&seat.name)).await?
                && !self.repo.is_ancestor(&tip, &self.tip).await?
            {
                found.push(seat.name.clone());
            }
        }
        Ok(found)
    }

    /// The council's talk in a commit: its plan, those of `chain`, and what was added to the reviews.
    pub async fn talk(&self, chain: &[Layout], commit: &str) -> Result<Talk, Refusal> {
        let changes = self.repo.differences(&self.layout.base_commit, commit).await?;
        Ok(self.talk_among(chain, &changes))
    }

    /// The same among changes since the base.
    pub fn talk_among(&self, chain: &[Layout], changes: &[Difference]) -> Talk {
        let plans: Vec<&str> =
            std::iter::once(self.layout).chain(chain).map(|layout| layout.plan_file.as_str()).collect();
        let below = if self.layout.prefix.is_empty() {
            format!("{REVIEWS}/")
        } else {
            format!("{}/{REVIEWS}/", self.layout.prefix)
        };
        let mut talk = Talk::default();
        for change in changes {
            let path = change.path.as_str();
            if plans.contains(&path) {
                talk.plans.push(path.to_owned());
            } else if let Some(name) = path.strip_prefix(&below)
                && (change.kind == ChangeKind::Created || change.kind == ChangeKind::Renamed || self.is_review(name))
            {
                talk.reviews.push(path.to_owned());
            }
        }
        talk
    }

    /// Whether a file is called as the reviews of members are.
    fn is_review(&self, name: &str) -> bool {
        self.layout.seats.iter().any(|seat| name.starts_with(&format!("{}-on-", seat.name)))
    }
}

/// The work tree a council lies in; `None` when it is gone.
pub async fn open(git: &Git, layout: &Layout) -> Result<Option<Repo>, Refusal> {
    let top = Path::new(&layout.top);
    match git.open(top).await {
        Ok(repo) => Ok(repo.filter(|repo| repo.top() == top)),
        Err(crate::git::Error::Fs(e)) if e.is_not_found() => Ok(None),
        Err(e) => Err(e.into()),
    }
}
