//! Which candidate is taken. Pure.

use serde::{Deserialize, Serialize};

use super::candidates::Candidate;

/// Who was chosen and why.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Selection {
    /// The agent whose work is taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) winner: Option<String>,
    /// All agents, best first.
    pub(super) ranking: Vec<String>,
    /// One sentence.
    pub(super) reason: String,
}

/// How good a candidate is; less is better. Equal ones stay in the order of the agents.
fn rank(candidate: &Candidate) -> (u8, u64) {
    match (candidate.eligible, candidate.verified) {
        (true, Some(true)) => (0, candidate.changed_lines),
        (true, Some(false)) => (1, u64::MAX.saturating_sub(candidate.green.map_or(0, |(green, _)| green))),
        (true, None) => (2, 0),
        (false, _) => (3, 0),
    }
}

/// Candidates, best first: those that pass by their size, then those that fail by what they pass.
pub(super) fn ranked(candidates: &[Candidate]) -> Vec<&Candidate> {
    let mut ranked: Vec<&Candidate> = candidates.iter().collect();
    ranked.sort_by_key(|candidate| rank(candidate));
    ranked
}

/// Chooses among judged candidates, in the order of the agents.
pub(super) fn choose(candidates: &[Candidate]) -> Selection {
    let ranked = ranked(candidates);
    let ranking = ranked.iter().map(|candidate| candidate.agent.clone()).collect();
    let passing = |candidate: &&&Candidate| candidate.eligible && candidate.verified == Some(true);
    let green = ranked.iter().filter(passing).count();
    let Some(best) = ranked.first().filter(passing) else {
        let reason = match ranked.first().and_then(|best| Some((best, best.green?))) {
            Some((best, (green, all))) => {
                format!("no candidate passes the contract; {} passes {green} of {all} required checks", best.agent)
            }
            None => "no candidate could be judged".to_owned(),
        };
        return Selection { winner: None, ranking, reason };
    };
    let equal = ranked.iter().filter(passing).filter(|c| c.changed_lines == best.changed_lines).count();
    let reason = match (green, equal) {
        (1, _) => format!("only {} passes every required check", best.agent),
        (_, 1) => {
            format!("{} passes every required check with the fewest changed lines ({})", best.agent, best.changed_lines)
        }
        (_, _) => format!(
            "{} passes every required check and is the first of {equal} with {} changed lines",
            best.agent, best.changed_lines
        ),
    };
    Selection { winner: Some(best.agent.clone()), ranking, reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(agent: &str, lines: u64, verified: Option<bool>, green: u64) -> Candidate {
        let green = verified.map(|_| (green, 3));
        Candidate {
            agent: agent.to_owned(),
            changed_lines: lines,
            verified,
            green,
            eligible: lines > 0,
            ..Candidate::default()
        }
    }

    /// Council scenario 27: fewest lines first, then agent order; red ones by what they pass; nothing done last.
    #[test]
    fn the_smallest_that_passes_wins() {
        let (yes, no) = (Some(true), Some(false));
        let case = |list: &[Candidate]| {
            let selection = choose(list);
            (selection.winner, selection.ranking.join(" "))
        };
        let won = |name: &str, ranking: &str| (Some(name.to_owned()), ranking.to_owned());
        let c = candidate;
        assert_eq!(case(&[c("A", 40, yes, 3), c("B", 12, yes, 3), c("C", 1, no, 2)]), won("B", "B A C"));
        assert_eq!(case(&[c("A", 7, yes, 3), c("B", 7, yes, 3)]), won("A", "A B"));
        assert_eq!(case(&[c("A", 0, None, 0), c("B", 9, no, 1), c("C", 9, no, 2)]), (None, "C B A".to_owned()));
        assert_eq!(case(&[c("A", 5, no, 2), c("B", 9, no, 2)]), (None, "A B".to_owned()));
        assert_eq!(case(&[c("A", 0, None, 0)]), (None, "A".to_owned()));
        // One whose checks could not run is not taken, and is before one that did nothing.
        assert_eq!(case(&[c("A", 0, None, 0), c("B", 3, None, 0), c("C", 3, no, 0)]), (None, "C B A".to_owned()));
        assert!(choose(&[c("A", 5, no, 2)]).reason.contains("2 of 3"));
    }
}
