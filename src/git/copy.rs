//! A working tree shown somewhere else: a repository of its own that reads the objects of the one it shows.
//!
//! Nothing is registered with the user's repository, and no setting of the copy leads back to it.

use std::{collections::BTreeMap, path::Path};

use super::{
    Repo, Result,
    digest::Listed,
    scan::Bytes,
    scratch::{Objects, Scratch, Untracked},
    snapshot::LARGE,
};

const WHAT: &str = "copy the working tree";
/// Path under which HEAD stands in a listing; no file can be called that.
pub const HEAD: &str = ".git/HEAD";

impl Repo {
    /// Makes `dir`, which must not exist, a repository at the same commit with the same files: tracked, changed and
    /// untracked ones up to 50 MiB each; ignored ones are left out. Returns it.
    pub async fn copy_to(&self, dir: &Path) -> Result<Repo> {
        if !dir.is_absolute() {
            return Err(self.refuse(WHAT, format!("{} is not an absolute path", dir.display())));
        }
        let scratch = Scratch::new(self, Objects::Drop).await?;
        let built = self.build(&scratch, Untracked::UpTo(LARGE)).await?;
        // Objects are read from where they are; hooks and templates of the user's stay out.
        let call =
            self.git.call(&self.top, WHAT).args(["clone", "--quiet", "--shared", "--no-checkout", "--template="]);
        call.arg(&self.top).arg(dir).run().await?;
        let call = self.git.call(dir, WHAT).args(["config", "--remove-section", "remote.origin"]);
        call.run().await?;
        // The files of the tree come from objects that go away with the scratch folder.
        let objects = scratch.dir().join("objects").into_os_string();
        let call = self.git.call(dir, WHAT).env("GIT_ALTERNATE_OBJECT_DIRECTORIES", objects);
        call.args(["read-tree", "--reset", "-u", &built.tree]).run().await?;
        let head = self.head().await?;
        let copy = match self.git.open(dir).await? {
            Some(copy) => copy,
            None => return Err(self.refuse(WHAT, format!("{} came out as no working tree", dir.display()))),
        };
        copy.point_at(head.as_deref()).await?;
        Ok(copy)
    }

    /// Puts HEAD of a copy at `commit` and its index with it; files stay as they are.
    pub async fn point_at(&self, commit: Option<&str>) -> Result<()> {
        let call = self.git.call(&self.top, WHAT);
        match commit {
            Some(commit) => {
                call.args(["update-ref", "--no-deref", "HEAD", commit]).run().await?;
                self.git.call(&self.top, WHAT).args(["read-tree", commit]).run().await.map(drop)
            }
            None => call.args(["read-tree", "--empty"]).run().await.map(drop),
        }
    }

    /// Every file that counts in [`digest`](Self::digest) with what it holds, and HEAD as [`HEAD`].
    pub async fn listing(&self) -> Result<BTreeMap<Bytes, Listed>> {
        let mut listing = self.entries().await?;
        let head = self.head().await?.unwrap_or_default();
        listing.insert(HEAD.into(), Listed::head(head));
        Ok(listing)
    }
}
