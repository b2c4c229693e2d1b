//! The tools of councils, one file each.

mod abort;
mod accept;
mod inject;
mod reject;
mod review;
mod shapes;
mod start;
mod status;

use super::{Tool, args::invalid, outcome};
use crate::{
    kernel::Error,
    nodes::council::{data::Status, disposition::Dispositions, view::CouncilView},
};

/// Every tool of the set.
pub(super) fn tools() -> Vec<Tool> {
    vec![abort::tool(), accept::tool(), inject::tool(), reject::tool(), review::tool(), start::tool(), status::tool()]
}

/// The id of a council as it is written; anything else is refused before a store is opened.
fn checked(id: &str) -> Result<&str, Error> {
    let id = id.trim();
    if Dispositions::is_id(id) { Ok(id) } else { Err(invalid("id", "not the id of a council")) }
}

/// Where a council stands and what to call next.
fn summary(view: &CouncilView) -> String {
    let id = &view.id;
    let mut text = format!("Council {id} is {}", view.status.as_str());
    if view.round > 0 {
        text.push_str(&format!(" (round {} of at most {})", view.round, view.config.max_rounds));
    }
    if let Some(outcome) = view.outcome {
        text.push_str(&format!(", its run is {}", outcome.as_str()));
    }
    if let Some(error) = &view.error {
        text.push_str(&format!(": {}", outcome::head(error, 300)));
    }
    text.push_str(". ");
    if !view.unmerged_members.is_empty() {
        text.push_str(&format!("Not merged: {}. ", view.unmerged_members.join(", ")));
    }
    if view.cost_usd > 0.0 {
        text.push_str(&format!("Cost so far ${:.2}. ", view.cost_usd));
    }
    text.push_str(&match view.status {
        Status::Running if view.resumable => {
            format!("Nothing executes it. Next: workflow_resume {{\"runId\": \"{}\"}}.", view.run_id)
        }
        Status::Running => format!("Next: council_status {{\"id\": \"{id}\", \"waitMs\": 50000}}."),
        Status::Consensus | Status::MaxRounds | Status::Error | Status::Aborted => {
            format!("Next: council_review {{\"id\": \"{id}\"}}.")
        }
        Status::Rejected => match &view.continued_by {
            Some(next) => format!("Next: council_status {{\"id\": \"{next}\"}}."),
            None => format!("Next: council_start with continueFrom \"{id}\" and projectDir."),
        },
        Status::Accepted => "Nothing is left to do.".to_owned(),
    });
    text
}
