//! Files hidden by ignore rules that were not there at the baseline.
//!
//! Whoever adds a rule could otherwise take a file out of every listing. When rules changed, the files
//! that are ignored now are judged again by the baseline's rules, laid out in a scratch folder. Files
//! that the baseline's rules ignore as well stay out, whatever they hold.

use std::collections::BTreeSet;

use super::{
    Repo, Result, cli,
    scan::{self, Bytes},
    scratch::Scratch,
};
use crate::sys::fs;

const WHAT: &str = "judge ignored files";
/// Most bytes of a list of ignored files: about two million.
const MAX_LIST: usize = 512 << 20;
/// Name of a file of rules.
const RULES: &[u8] = b".gitignore";

impl Repo {
    /// Untracked files that are ignored in the working tree and were not at the baseline.
    pub(super) async fn hidden(&self, scratch: &Scratch, from: &str, private: &[u8]) -> Result<Vec<Bytes>> {
        let call = self.git.call(&self.top, WHAT).envs(scratch.env()).max_stdout(MAX_LIST);
        let listed = call.args(["ls-files", "-z", "--others", "--ignored", "--exclude-standard"]).run().await?;
        let mut ignored = BTreeSet::new();
        for path in cli::records(&listed) {
            match path.strip_suffix(b"/") {
                Some(dir) => {
                    ignored.extend(scan::walk_async(self.git.fs.clone(), self.top.clone(), dir.to_vec()).await?);
                }
                None => drop(ignored.insert(path.to_vec())),
            }
        }
        if ignored.is_empty() {
            return Ok(Vec::new());
        }
        for path in self.ignored_by(scratch, from, private, &ignored).await? {
            ignored.remove(&path);
        }
        Ok(ignored.into_iter().collect())
    }

    /// Those of `paths` that the rules in the tree `from` and the private ones of the time ignore.
    async fn ignored_by(
        &self,
        scratch: &Scratch,
        from: &str,
        private: &[u8],
        paths: &BTreeSet<Bytes>,
    ) -> Result<Vec<Bytes>> {
        let dir = scratch.dir().join("rules");
        self.git.call(scratch.dir(), WHAT).args(["init", "--quiet", "--template=", "rules"]).run().await?;
        let call = self.git.call(&self.top, WHAT).envs(scratch.env()).max_stdout(MAX_LIST);
        let listed = call.args(["ls-tree", "-r", "-z", "--full-tree", from]).run().await?;
        let mut rules = vec![(b".git/info/exclude".to_vec(), private.to_vec())];
        for record in cli::records(&listed) {
            let Some(tab) = record.iter().position(|b| *b == b'\t') else { continue };
            let (head, path) = record.split_at(tab);
            let path = path.get(1..).unwrap_or_default();
            if !head.starts_with(b"100") || path.rsplit(|b| *b == b'/').next() != Some(RULES) {
                continue;
            }
            let id = String::from_utf8_lossy(head.rsplit(|b| *b == b' ').next().unwrap_or_default()).into_owned();
            let call = self.git.call(&self.top, WHAT).envs(scratch.env());
            rules.push((path.to_vec(), call.args(["cat-file", "blob", &id]).run().await?));
        }
        let (files, root) = (self.git.fs.clone(), dir.clone());
        scan::blocking(WHAT, move || {
            for (path, bytes) in rules {
                let path = root.join(scan::as_path(&path));
                if let Some(parent) = path.parent() {
                    fs::create_dir_all(&*files, parent)?;
                }
                files.create_new(&path)?.write_at(0, &bytes)?;
            }
            Ok(())
        })
        .await?;
        let stdin = paths.iter().flat_map(|path| path.iter().copied().chain([0])).collect();
        let call = self.git.call(&dir, WHAT).stdin(stdin).max_stdout(MAX_LIST);
        let call = call.args(["-c", "core.excludesFile=/dev/null", "check-ignore", "--no-index", "-z", "--stdin"]);
        let output = call.output().await?;
        match output.status {
            // 1 is "none of them".
            0 | 1 => Ok(cli::records(&output.stdout).map(<[u8]>::to_vec).collect()),
            _ => Err(cli::failed(WHAT, dir, &output)),
        }
    }

    /// Ignore rules that are no files of the tree: the repository's own and the configured file.
    pub(super) async fn private_rules(&self) -> Result<Vec<u8>> {
        let configured = self.library(|repo| match repo.config()?.snapshot()?.get_path("core.excludesFile") {
            Ok(path) => Ok(Some(path)),
            Err(e) if e.code() == git2::ErrorCode::NotFound => Ok(None),
            Err(e) => Err(e),
        });
        let configured = match configured.await {
            Some(path) => path,
            None => {
                let call = self.git.call(&self.top, "read core.excludesFile");
                let output = call.args(["config", "-z", "--type=path", "--get", "core.excludesFile"]).output().await?;
                cli::records(&output.stdout).next().map(super::open::path)
            }
        };
        let (fs, own) = (self.git.fs.clone(), self.common_dir.join("info/exclude"));
        let top = self.top.clone();
        scan::blocking("read ignore rules", move || {
            let mut rules = Vec::new();
            for path in configured.map(|path| top.join(path)).into_iter().chain([own]) {
                match fs.read(&path) {
                    Ok(bytes) => {
                        rules.extend(bytes);
                        rules.push(b'\n');
                    }
                    Err(e) if e.is_not_found() => {}
                    Err(e) => return Err(e.into()),
                }
            }
            Ok(rules)
        })
        .await
    }
}
