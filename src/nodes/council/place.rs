//! Where a council lies in the repository: its ids and names, then its branches, worktrees and the plan's skeleton.
//!
//! Doing it again does what is left of it.

use std::path::Path;

use super::{
    data::{INTEGRATION, Layout, Seat, WORKTREES},
    fault::Fault,
    plan_file,
    preflight::{preflight, warnings},
    shared::Shared,
};
use crate::{
    git::{MergedIn, Repo},
    model::{Code, spec::CouncilNode},
    nodes::NodeCtx,
    verify::evidence::sha256,
};

/// Largest plan that is read, in bytes.
pub(super) const PLAN_MAX: usize = 4 << 20;
/// Begins ids that carry their own short id.
const GENERATED: &str = "council-";
/// Digits of short ids, one after the other when one is taken.
const DIGITS: [usize; 3] = [8, 12, 16];

/// Chooses where a council begins and what everything is called. `former` is the council that this one goes on with.
pub(super) async fn choose(
    ctx: &NodeCtx,
    node: &CouncilNode,
    former: Option<&Layout>,
    again: bool,
) -> Result<(Layout, Repo), Fault> {
    let git = &ctx.services.git;
    let home = &ctx.attempt.home_dir;
    let dir = node.project_dir.as_deref().map_or_else(|| home.clone(), |dir| home.join(dir));
    let mut layout = Layout {
        council_id: council_id(ctx),
        seats: node.agents.iter().map(|a| Seat { name: a.name.clone(), emoji: a.emoji.clone() }).collect(),
        continue_from: node.continue_from.clone(),
        ..Layout::default()
    };
    let repo = match former.filter(|_| again) {
        // The user's checkout was judged when the first visit began, and is not what this one begins at.
        Some(former) => open(ctx, former).await?,
        None => {
            let standing = preflight(git, &dir, node.allow_dirty).await;
            let standing = standing.map_err(|(code, text)| Fault::failed(code.as_str(), text))?;
            layout.warnings = warnings(&standing);
            layout.base_branch = standing.branch;
            layout.base_commit.clone_from(&standing.head);
            layout.start_commit = standing.head;
            standing.repo
        }
    };
    let top = repo.top().to_str().map(str::to_owned);
    layout.top =
        top.ok_or_else(|| Fault::hopeless(Code::PathRefused.as_str(), "the path of the repository is not UTF-8"))?;
    repo.prefix().clone_into(&mut layout.prefix);
    if let Some(former) = former {
        layout.base_branch.clone_from(&former.base_branch);
        layout.base_commit.clone_from(&former.base_commit);
        let branch = former.branch(INTEGRATION);
        let gone = || Fault::lost(format!("branch {branch} of the council this one goes on with is gone"));
        layout.start_commit = repo.branch_tip(&branch).await?.ok_or_else(gone)?;
        if again {
            layout.top.clone_from(&former.top);
            layout.prefix.clone_from(&former.prefix);
        }
    }
    layout.short_id = short_id(ctx, &repo, &layout).await?;
    layout.plan_file = plan_name(&repo, &layout).await?;
    Ok((layout, repo))
}

/// The user's work tree of a council that lies somewhere already.
pub(super) async fn open(ctx: &NodeCtx, layout: &Layout) -> Result<Repo, Fault> {
    let gone = || Fault::lost(format!("{} is no repository any more", layout.top));
    ctx.services.git.open(Path::new(&layout.top)).await?.ok_or_else(gone)
}

/// What the council of this visit is called.
fn council_id(ctx: &NodeCtx) -> String {
    let attempt = &ctx.attempt;
    match (attempt.council.sole, attempt.visit) {
        (true, 1) => attempt.run_id.to_string(),
        (false, 1) => format!("{}-{}", attempt.run_id, attempt.node.id),
        (_, visit) => format!("{}-{}-v{visit}", attempt.run_id, attempt.node.id),
    }
}

/// The first part of names that nobody has.
async fn short_id(ctx: &NodeCtx, repo: &Repo, layout: &Layout) -> Result<String, Fault> {
    let digest = sha256(layout.council_id.as_bytes());
    let own = layout.council_id.strip_prefix(GENERATED).and_then(|rest| rest.rsplit_once('-')).map(|(_, word)| word);
    let own = own.filter(|word| word.len() == 8 && word.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')));
    let made = DIGITS.iter().filter_map(|digits| digest.get(..*digits));
    // A word of its own stands for the shortest one.
    let candidates: Vec<&str> = own.into_iter().chain(made.skip(usize::from(own.is_some()))).collect();
    for word in candidates {
        let branch = format!("refs/heads/council/{word}");
        let folder = Path::new(&layout.top).join(WORKTREES).join(word);
        let refs = repo.tip(&branch).await?.is_some() || !repo.refs(&format!("{branch}/")).await?.is_empty();
        if !refs && !is_there(ctx, &folder).await? {
            return Ok(word.to_owned());
        }
    }
    Err(Fault::failed(Code::WorktreeFailed.as_str(), "every short id of this council is taken in the repository"))
}

async fn is_there(ctx: &NodeCtx, path: &Path) -> Result<bool, Fault> {
    let (fs, path) = (ctx.services.fs.clone(), path.to_path_buf());
    let looked = crate::sys::tasks::blocking("look at a folder", move || match fs.metadata(&path) {
        Ok(_) => Ok(true),
        Err(e) if e.is_not_found() => Ok(false),
        Err(e) => Err(e),
    });
    match looked.await {
        Ok(Ok(there)) => Ok(there),
        Ok(Err(e)) => Err(Fault::failed(Code::WorktreeFailed.as_str(), e.to_string())),
        Err(e) => Err(Fault::failed(Code::Internal.as_str(), e.to_string())),
    }
}

/// Name of the plan below the top: the first that the base has no file of.
async fn plan_name(repo: &Repo, layout: &Layout) -> Result<String, Fault> {
    let below =
        |name: &str| if layout.prefix.is_empty() { name.to_owned() } else { format!("{}/{name}", layout.prefix) };
    let mut taken = Vec::new();
    for name in ["plan.md", "council-plan.md"] {
        // One that is too large to be read is there as well.
        if !matches!(repo.show(&layout.base_commit, &below(name), PLAN_MAX).await, Ok(None)) {
            taken.push(name);
        }
    }
    Ok(below(&plan_file::name_for(|name| taken.contains(&name), &layout.short_id)))
}

/// Makes what is missing of a council that has not begun its first round. When that fails, everything made by this
/// call is taken back.
pub(super) async fn make(shared: &Shared) -> Result<(), Fault> {
    let _lock = shared.repo.lock().await?;
    let layout = &shared.layout;
    let mut made: Vec<(String, String)> = Vec::new();
    let mut result = Ok(());
    let names: Vec<&str> = std::iter::once(INTEGRATION).chain(layout.seats.iter().map(|s| s.name.as_str())).collect();
    for name in names {
        match shared.worktree(name, &layout.start_commit).await {
            Ok((_, true)) => made.push((name.to_owned(), layout.start_commit.clone())),
            Ok((_, false)) => {}
            Err(Fault::Failed { text, .. }) => {
                result = Err(Fault::failed(Code::WorktreeFailed.as_str(), text));
                break;
            }
            Err(fault) => {
                result = Err(fault);
                break;
            }
        }
        if name == INTEGRATION {
            shared.repo.exclude(&format!("{WORKTREES}/")).await?;
        }
    }
    if result.is_err() {
        for (name, tip) in made {
            shared.take_back(&name, &tip).await;
        }
        return result;
    }
    let integration = shared.integration().await?;
    shared.settle_integration(&integration).await?;
    merge_former(shared, &integration).await?;
    skeleton(shared, &integration).await
}

/// Merges what the council before left unmerged. What does not fit is told in the first round.
async fn merge_former(shared: &Shared, integration: &Repo) -> Result<(), Fault> {
    let Some(former) = &shared.former else { return Ok(()) };
    for (name, tip) in unmerged(shared, former, &shared.layout.start_commit).await? {
        let head = shared.head(integration).await?;
        // Its plan is replaced in a moment.
        let plan = shared.repo.show(&head, &former.plan_file, PLAN_MAX).await?;
        let keep: Vec<(String, Vec<u8>)> = plan.map(|plan| (former.plan_file.clone(), plan)).into_iter().collect();
        match integration.merge_in(&tip, &format!("council: merge {name} of {}", former.council_id), &keep).await? {
            MergedIn::Merged(_) | MergedIn::Nothing => {}
            MergedIn::Conflict(files) => {
                let text = format!("{name} of {} does not fit in {} files", former.council_id, files.len());
                shared.log("warn", text);
            }
        }
    }
    Ok(())
}

/// Members of a council whose work `commit` does not hold, with their tips, in their order.
pub(super) async fn unmerged(shared: &Shared, former: &Layout, commit: &str) -> Result<Vec<(String, String)>, Fault> {
    let mut found = Vec::new();
    for seat in &former.seats {
        if let Some(tip) = shared.repo.branch_tip(&former.branch(&seat.name)).await?
            && !shared.repo.is_ancestor(&tip, commit).await?
        {
            found.push((seat.name.clone(), tip));
        }
    }
    Ok(found)
}

/// Puts an empty plan on the integration branch.
async fn skeleton(shared: &Shared, integration: &Repo) -> Result<(), Fault> {
    let layout = &shared.layout;
    let members: Vec<(&str, &str)> = layout.seats.iter().map(|s| (s.name.as_str(), s.emoji.as_str())).collect();
    let text = plan_file::skeleton(&shared.node.task, &members);
    let mut files = vec![(layout.plan_file.clone(), Some(text.into_bytes()))];
    // The plan of the council before has told all it had to.
    let old = shared.former.as_ref().map(|former| &former.plan_file).filter(|old| **old != layout.plan_file);
    let head = shared.head(integration).await?;
    if let Some(old) = old
        && shared.repo.show(&layout.base_commit, old, PLAN_MAX).await?.is_none()
        && shared.repo.show(&head, old, PLAN_MAX).await?.is_some()
    {
        files.push((old.clone(), None));
    }
    let commit = shared.repo.commit_files(&head, &files, "council: plan skeleton").await?;
    integration.fast_forward(&commit).await?;
    Ok(())
}
