//! What the commits of a run touched, also where a later commit took it back.
//!
//! Only commits that HEAD reaches are seen. What a commit means is not judged.

use std::collections::BTreeSet;

use super::{Repo, Result, cli};
use crate::model::run::Baseline;

const WHAT: &str = "list what commits touched";
/// Most bytes of the list: about half a million paths.
const MAX_LIST: usize = 128 << 20;

impl Repo {
    /// Paths that commits between the baseline's commit and HEAD touched, sorted. Empty without a baseline.
    pub async fn touched(&self, base: &Baseline) -> Result<Vec<String>> {
        let (Some(sha), Some(head)) = (&base.base_sha, self.head().await?) else { return Ok(Vec::new()) };
        let base = self.resolve(sha).await?;
        if base == head {
            return Ok(Vec::new());
        }
        let call = self.git.call(&self.top, WHAT).max_stdout(MAX_LIST);
        // Both sides of a rename, and what each parent of a merge brought in.
        let call = call.args(["log", "--format=", "--name-only", "-z", "-m", "--no-renames", "--no-show-signature"]);
        let call = call.args(["--no-ext-diff", "--ignore-submodules=none", "-O/dev/null"]);
        let listed = call.arg(format!("{base}..{head}")).arg("--").run().await?;
        let paths: BTreeSet<&[u8]> = cli::records(&listed).collect();
        Ok(paths.into_iter().map(|path| String::from_utf8_lossy(path).into_owned()).collect())
    }
}
