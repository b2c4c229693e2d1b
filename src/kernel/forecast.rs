//! The most a spec can use: turns, agents at once, repairs, time, money. Pure.

use super::view::Forecast;
use crate::{
    model::{
        Contract, NodeKind, WorkflowSpec,
        spec::{Condition, ContractSource},
    },
    nodes::fanout,
};

/// How often control can go back to an earlier node at most.
fn repeats(spec: &WorkflowSpec) -> u64 {
    let most = u64::from(spec.max_node_visits).saturating_sub(1);
    let back = |index: usize, to: &crate::model::NodeId| spec.node(to.as_str()).is_some_and(|(i, _)| i <= index);
    let mut sum: u64 = 0;
    for (index, node) in spec.nodes.iter().enumerate() {
        match &node.kind {
            NodeKind::Router(router) => {
                for route in router.routes.iter().filter(|r| back(index, &r.to)) {
                    // Each time the route is taken its target is visited once more, so a bound on those visits holds.
                    let bound = visits_bound(&route.when, route.to.as_str()).map(|n| n.saturating_sub(1));
                    sum = sum.saturating_add(bound.unwrap_or(most));
                }
                if router.default.as_ref().is_some_and(|to| back(index, to)) {
                    sum = sum.saturating_add(most);
                }
            }
            NodeKind::Agent(_)
            | NodeKind::Fanout(_)
            | NodeKind::Verifier(_)
            | NodeKind::HumanGate(_)
            | NodeKind::Subflow(_)
            | NodeKind::Goal(_)
            | NodeKind::Council(_) => {
                if node.next.as_ref().is_some_and(|to| back(index, to)) {
                    sum = sum.saturating_add(most);
                }
            }
        }
    }
    sum.min(most)
}

/// The visits of `node` up to which a condition can hold, when it says so.
fn visits_bound(when: &Condition, node: &str) -> Option<u64> {
    match when {
        Condition::VisitsLt(counted, n) => (counted.as_str() == node).then_some(u64::from(*n)),
        Condition::And(all) => all.iter().filter_map(|c| visits_bound(c, node)).min(),
        Condition::Always | Condition::NodeFailed(_) | Condition::NodeSucceeded(_) | Condition::Verified(_) => None,
    }
}

/// The most a spec can use.
pub(super) fn of(spec: &WorkflowSpec) -> Forecast {
    let repeats = repeats(spec);
    let passes = repeats + 1;
    let checked = spec.nodes.iter().any(|n| matches!(n.kind, NodeKind::Verifier(_)));
    let mut turns: u64 = 0;
    let mut width: u64 = 1;
    let mut wall: u64 = 0;
    let mut bounded = true;
    for node in &spec.nodes {
        let attempts = u64::from(node.retry.max) + 1;
        let limit = node.timeout_ms.unwrap_or(1_800_000);
        let (each, ms) = match &node.kind {
            NodeKind::Agent(_) => (1, limit),
            NodeKind::Fanout(f) => {
                width = width.max(f.agents.len() as u64);
                let worst = || fanout::worst_case_ms(f, spec.contract.as_ref());
                (f.agents.len() as u64 + u64::from(f.synthesize), node.timeout_ms.unwrap_or_else(worst))
            }
            NodeKind::Verifier(v) => {
                let contract = match &v.contract {
                    ContractSource::Inline(c) => Some(c),
                    ContractSource::Run => spec.contract.as_ref(),
                };
                let rounds = contract.map_or(0, |c| u64::from(c.fix_on_failure_rounds));
                (rounds, contract.map_or(0, Contract::worst_case_ms).saturating_mul(rounds + 1).max(limit))
            }
            NodeKind::Council(c) => {
                let members = c.agents.len() as u64;
                width = width.max(members);
                // Each round asks each member once, and again when it says nothing or too little.
                let sends = members.saturating_mul(u64::from(c.max_rounds)).saturating_mul(5);
                (sends, node.timeout_ms.unwrap_or_else(|| c.worst_case_ms()))
            }
            // A person takes as long as a person takes, and a child has its own forecast.
            NodeKind::HumanGate(_) | NodeKind::Subflow(_) => {
                bounded = false;
                (0, 0)
            }
            NodeKind::Router(_) => (0, 0),
            // How many turns a goal takes is its engine's affair; known is how often it is begun or gone on with.
            NodeKind::Goal(goal) => {
                bounded &= node.timeout_ms.is_some();
                (u64::from(goal.capacity_retry.max) + 1, node.timeout_ms.unwrap_or(0))
            }
        };
        turns = turns.saturating_add(each.saturating_mul(attempts).saturating_mul(passes));
        wall = wall.saturating_add(ms.saturating_mul(attempts).saturating_mul(passes));
    }
    let budget = &spec.budget;
    Forecast {
        max_agent_turns: budget.max_agent_turns.map_or(turns, |max| max.min(turns)),
        fanout_width: width,
        repair_passes: if checked { repeats } else { 0 },
        max_wall_ms: if bounded { Some(budget.max_wall_ms.map_or(wall, |m| m.min(wall))) } else { budget.max_wall_ms },
        max_cost_usd: budget.max_cost_usd,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::kernel::spec::{self, Origin};

    fn most(document: &Value) -> Forecast {
        let read = spec::read(document, "", Origin::Caller, Some("/p"), None);
        of(&read.spec.unwrap_or_else(|| panic!("{:?}", read.errors)))
    }

    /// A router is not a repair, and a bound on visits is a bound on repairs.
    #[test]
    fn repairs_are_counted_where_control_can_go_back() {
        let agent = json!({ "id": "a", "kind": "agent", "prompt": "p" });
        let check = json!({ "id": "v", "kind": "verifier", "contract": "run", "onFailure": "continue" });
        let back = |when: Value| json!({ "id": "r", "kind": "router", "routes": [{ "when": when, "to": "a" }] });
        let failed = json!({ "type": "node_failed", "node": "v" });
        let thrice = json!({ "type": "and", "all": [failed, { "type": "visits_lt", "node": "a", "n": 4 }] });
        let cases = [
            (json!([agent, { "id": "r", "kind": "router", "routes": [] }]), (1, 0)),
            (json!([agent, check]), (1, 0)),
            (json!([agent, check, back(thrice)]), (4, 3)),
            (json!([agent, check, back(failed)]), (9, 8)),
            (json!([agent, back(json!({ "type": "always" }))]), (9, 0)),
            (json!([check, { "id": "a", "kind": "agent", "prompt": "p", "next": "v" }]), (9, 8)),
        ];
        for (nodes, wanted) in cases {
            let most = most(&json!({ "name": "n", "nodes": nodes, "maxNodeVisits": 9 }));
            assert_eq!((most.max_agent_turns, most.repair_passes), wanted, "{nodes}");
        }
    }
}
