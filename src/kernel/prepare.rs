//! What an attempt may know when it starts, gathered from the record and its artifacts.

use std::{collections::BTreeMap, path::PathBuf};

use serde_json::Value;

use super::{
    actor::Actor,
    verdict::{InForce, in_force},
};
use crate::{
    model::{
        EvidenceBundle, NodeKind, RunRecord,
        run::NodeRecord,
        spec::{ContractSource, Isolation, Node},
    },
    nodes::{self, Attempt, council::data},
    sys::tasks,
};

/// Most stored text of a part given back to a node after a restart, in bytes.
const PART_MAX: usize = 8 << 20;
/// Largest bundle.json read for a repair brief, in bytes.
const BUNDLE_MAX: usize = 8 << 20;

impl Actor {
    /// Gathers what the attempt may know.
    pub(super) async fn prepare(
        &mut self,
        record: &RunRecord,
        node: &Node,
        entry: &NodeRecord,
    ) -> Result<Attempt, String> {
        super::workspace::proven(&self.kernel, record).await?;
        let spec = self.writer.spec.clone();
        let contract = match &node.kind {
            NodeKind::Verifier(v) => match &v.contract {
                ContractSource::Run => spec.contract.clone(),
                ContractSource::Inline(contract) => Some(contract.clone()),
            },
            NodeKind::Fanout(n) if n.isolation == Isolation::Worktree => spec.contract.clone(),
            NodeKind::Agent(_)
            | NodeKind::Fanout(_)
            | NodeKind::HumanGate(_)
            | NodeKind::Router(_)
            | NodeKind::Subflow(_)
            | NodeKind::Goal(_)
            | NodeKind::Council(_) => None,
        };
        let baseline = record.baseline.clone().unwrap_or_default();
        let mut protected = None;
        if let (Some(contract), Some(file)) = (&contract, &baseline.protected)
            && contract.protect_tests
            && contract.has_command()
        {
            let bytes = self.read(&file.path, usize::try_from(file.bytes).unwrap_or(usize::MAX)).await?;
            let snapshot =
                serde_json::from_slice(&bytes).map_err(|e| format!("the protected tests do not parse: {e}"))?;
            protected = Some(snapshot);
        }
        let wanted = match &node.kind {
            NodeKind::Agent(n) => n.inputs.clone(),
            NodeKind::Fanout(n) => n.inputs.clone(),
            NodeKind::Verifier(_)
            | NodeKind::HumanGate(_)
            | NodeKind::Router(_)
            | NodeKind::Subflow(_)
            | NodeKind::Goal(_)
            | NodeKind::Council(_) => Vec::new(),
        };
        let mut inputs = Vec::new();
        for id in wanted {
            if let Some(output) = record.node(id.as_str()).and_then(|n| n.output.clone()) {
                let text = match &output.file {
                    Some(file) => {
                        let bytes = self.read(&file.path, nodes::prompt::INPUT_MAX + 1).await?;
                        String::from_utf8_lossy(&bytes).into_owned()
                    }
                    None => output.text,
                };
                inputs.push((id, text));
            }
        }
        let mut red = Vec::new();
        if matches!(node.kind, NodeKind::Agent(_) | NodeKind::Fanout(_) | NodeKind::Goal(_) | NodeKind::Council(_)) {
            red = self.red_bundles(record).await;
        }
        Ok(Attempt {
            run_id: record.run_id.clone(),
            node: node.clone(),
            visit: entry.visits,
            attempt: entry.attempts,
            failures: entry.failures,
            work_dir: PathBuf::from(&record.work_dir),
            home_dir: super::council::home_dir(record),
            baseline,
            contract,
            protected,
            run_env: run_env(&self.writer.incarnation(), record, entry),
            inputs,
            red,
            red_marks: red_marks(record),
            red_repeats: record.red.values().map(|streak| streak.count).max().unwrap_or(0),
            steers: record.steers.iter().filter(|s| s.applied.is_empty()).cloned().collect(),
            parts: self.parts(record, entry).await?,
            child: entry.child_run_id.clone(),
            council: super::council::facts(&self.kernel, &spec, record, node).await,
        })
    }

    /// Bundles of the red verdict in force. One that cannot be read is left out: the brief is help, not truth.
    async fn red_bundles(&mut self, record: &RunRecord) -> Vec<EvidenceBundle> {
        let InForce::Red(list) = in_force(record) else { return Vec::new() };
        let ids: Vec<_> = list.iter().filter_map(|v| Some((v.evidence_run.clone(), v.evidence_id.clone()?))).collect();
        let mut bundles = Vec::new();
        for (run, id) in ids {
            let run = run.unwrap_or_else(|| record.run_id.clone());
            let (store, path) = (self.kernel.store.clone(), format!("evidence/{id}/bundle.json"));
            let read = tasks::blocking("bundle", move || store.read_artifact(&run, &path, 0, BUNDLE_MAX)).await;
            match read {
                Ok(Ok(bytes)) => match serde_json::from_slice(&bytes) {
                    Ok(bundle) => bundles.push(bundle),
                    Err(e) => tracing::warn!(id, error = %e, "an evidence bundle does not parse"),
                },
                Ok(Err(e)) => tracing::warn!(id, error = %e, "an evidence bundle cannot be read"),
                Err(_) => {}
            }
        }
        bundles
    }

    /// What earlier attempts left behind for this node, and the conversations other nodes share with it.
    async fn parts(
        &mut self,
        record: &RunRecord,
        entry: &NodeRecord,
    ) -> Result<BTreeMap<String, (Value, Option<String>)>, String> {
        let mut parts = BTreeMap::new();
        for node in &record.nodes {
            let Some(kept) = node.data.as_ref().and_then(Value::as_object) else { continue };
            for (key, value) in kept {
                if node.id != entry.id && !key.starts_with("session:") {
                    continue;
                }
                // What an earlier visit of a council said is not needed again.
                let old =
                    key.starts_with(data::PREFIX) && !key.starts_with(&format!("{}{}:", data::PREFIX, entry.visits));
                let kept = value.get("text").filter(|_| !old).cloned().and_then(|t| serde_json::from_value(t).ok());
                let text = match kept {
                    Some(crate::model::run::OutputText { file: Some(file), .. }) => {
                        let bytes = self.read(&file.path, PART_MAX).await?;
                        Some(String::from_utf8_lossy(&bytes).into_owned())
                    }
                    Some(kept) => Some(kept.text),
                    None => None,
                };
                parts.insert(key.clone(), (value.clone(), text));
            }
        }
        Ok(parts)
    }

    /// Reads an artifact of this run.
    async fn read(&mut self, path: &str, limit: usize) -> Result<Vec<u8>, String> {
        let (store, run, name) = (self.kernel.store.clone(), self.writer.record.run_id.clone(), path.to_owned());
        match tasks::blocking("artifact", move || store.read_artifact(&run, &name, 0, limit)).await {
            Ok(Ok(bytes)) => Ok(bytes),
            Ok(Err(e)) => Err(format!("'{path}' of the run cannot be read: {e}")),
            Err(_) => Err(format!("'{path}' of the run cannot be read")),
        }
    }
}

/// Names of the red words in force, each different for every time one was given.
fn red_marks(record: &RunRecord) -> Vec<String> {
    let InForce::Red(list) = in_force(record) else { return Vec::new() };
    let mark = |v: &&crate::model::run::Verdict| {
        let visit = record.node(v.node.as_str()).map_or(0, |n| n.visits);
        format!("{}-v{visit}-{}", v.node, v.evidence_id.as_deref().unwrap_or_default())
    };
    list.iter().map(mark).collect()
}

/// Variables every process of an attempt gets.
fn run_env(incarnation: &str, record: &RunRecord, entry: &NodeRecord) -> Vec<(String, String)> {
    [
        ("CLAWO_RUN_ID", record.run_id.to_string()),
        ("CLAWO_NODE_ID", entry.id.clone()),
        ("CLAWO_VISIT", entry.visits.to_string()),
        ("CLAWO_ATTEMPT", entry.attempts.to_string()),
        ("CLAWO_IDEMPOTENCY_KEY", format!("{incarnation}:{}:{}", entry.id, entry.visits)),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}
