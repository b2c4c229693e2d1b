//! Landings that were cut off: telling how far one came, and completing it or taking it back.
//!
//! A file is only ever touched when its content is the one before or the one after, both of which commits hold.

use std::{collections::BTreeSet, ffi::OsString};

use super::{LOG, Landing};
use crate::git::{
    Error, Repo, Result, cli,
    differences::Row,
    edit::Edit,
    refs::HEADS,
    scan::{self, Bytes},
    scratch::{Objects, Scratch, Untracked},
    snapshot::LARGE,
};
use crate::sys::Kind;

const FINISH: &str = "finish a move of a branch";

/// How far a tree is on the way between two commits.
struct Halfway {
    /// Paths that differ between the two, with whether the file is at the later one.
    rows: Vec<(Row, bool)>,
    /// Whether any file or index entry is at the later one.
    begun: bool,
    /// Whether every index entry is.
    indexed: bool,
    /// Paths whose file or index entry is neither.
    strange: Vec<Bytes>,
}

impl Repo {
    /// After a crash in [`land_publish`](Self::land_publish): whether the branch has moved. A checkout of it that
    /// was cut off is completed first, as long as every file concerned is either as before or as after; when
    /// one is neither, this fails and names it. False means that nothing was moved.
    pub async fn land_finish(&self, landing: &Landing) -> Result<bool> {
        let Some(tip) = self.branch_tip(&landing.branch).await? else { return Ok(false) };
        let landed = self.is_ancestor(&landing.after, &tip).await?;
        if tip != landing.before && tip != landing.after {
            // Either the user has gone on from there, or went elsewhere.
            return Ok(landed);
        }
        let Some(tree) = self.checked_out(&landing.branch).await? else { return Ok(landed) };
        if landing.before == landing.after || tree.operation().await?.is_some() {
            return Ok(landed);
        }
        let halfway = tree.halfway(landing).await?;
        if landed {
            // The ref moves last. What differs is the user's, unless the machine went down and lost the index.
            if halfway.strange.is_empty() && !halfway.indexed {
                tree.complete(landing, &halfway).await?;
            }
            return Ok(true);
        }
        if !halfway.begun {
            return Ok(false);
        }
        if !halfway.strange.is_empty() {
            let paths: Vec<_> = halfway.strange.iter().map(|path| String::from_utf8_lossy(path)).collect();
            let why = format!(
                "it stopped halfway and these files are neither as before nor as after: {}; restore them from {} and try again",
                paths.join(", "),
                landing.before
            );
            return Err(tree.refuse(FINISH, why));
        }
        tree.complete(landing, &halfway).await?;
        match tree.swap(&format!("{HEADS}{}", landing.branch), &landing.after, Some(&landing.before), LOG).await {
            Ok(()) => Ok(true),
            Err(Error::Moved { found: Some(found), .. }) => {
                tree.move_files(&landing.after, &found).await?;
                Ok(false)
            }
            Err(e) => Err(e),
        }
    }

    /// After files could not be written: files that are at the later commit go back, the others stay.
    pub(super) async fn put_back(&self, landing: &Landing) -> Result<()> {
        let halfway = self.halfway(landing).await?;
        let (known, new): (Vec<_>, Vec<_>) =
            halfway.rows.into_iter().filter(|(_, after)| *after).map(|(row, _)| row).partition(|row| row.old.is_some());
        let (fs, top) = (self.git.fs.clone(), self.top.clone());
        let new: Vec<Bytes> = new.into_iter().map(|row| row.path).collect();
        scan::blocking(FINISH, move || crate::git::merge::remove_files(&*fs, &top, &new)).await?;
        if known.is_empty() {
            return Ok(());
        }
        let paths = known.iter().flat_map(|row| row.path.iter().copied().chain([0])).collect();
        let call = self.git.users_call(&self.top, FINISH).limit(cli::FILES).stdin(paths);
        call.args(["checkout-index", "--force", "--index", "-z", "--stdin"]).run().await.map(drop)
    }

    /// Index and files to the later commit, given that each file is at one of the two.
    async fn complete(&self, landing: &Landing, halfway: &Halfway) -> Result<()> {
        // The index first says of each file which of the two it is; then git does the rest.
        let says = |(row, after): &(Row, bool)| -> Edit {
            (row.path.clone(), if *after { row.new.clone() } else { row.old.clone() })
        };
        let edits: Vec<Edit> = halfway.rows.iter().map(says).collect();
        self.edit(&[], &edits, landing.before.len()).await?;
        self.move_files(&landing.before, &landing.after).await
    }

    async fn halfway(&self, landing: &Landing) -> Result<Halfway> {
        let rows = self.plain_rows(&landing.before, &landing.after, &[]).await?;
        let scratch = Scratch::new(self, Objects::Drop).await?;
        let mut built = self.build(&scratch, Untracked::UpTo(LARGE)).await?;
        // Also those that are ignored, as new files of the landing may be.
        let (fs, top) = (self.git.fs.clone(), self.top.clone());
        let paths: Vec<Bytes> = rows.iter().map(|row| row.path.clone()).collect();
        let there = scan::blocking(FINISH, move || {
            let (mut there, mut parents) = (Vec::new(), scan::Parents::default());
            for path in paths {
                let kind = match parents.are_real(&*fs, &top, &path)? {
                    true => scan::kind(&*fs, &top.join(scan::as_path(&path)))?,
                    false => None,
                };
                match kind {
                    Some(Kind::File | Kind::Symlink) => there.push(path),
                    Some(Kind::Dir | Kind::Other) | None => {}
                }
            }
            Ok(there)
        });
        self.add(&scratch, &mut built, &there.await?).await?;
        let (mut files, mut entries) = (Vec::new(), Vec::new());
        for commit in [&landing.before, &landing.after] {
            let rows = self.plain_rows(commit, &built.tree, scratch.env()).await?;
            files.push(rows.into_iter().map(|row| row.path).collect::<BTreeSet<_>>());
            entries.push(self.index_against(commit).await?);
        }
        let [not_before, not_after] = files.as_slice() else { return Err(self.refuse(FINISH, "no answer".into())) };
        let [index_not_before, index_not_after] = entries.as_slice() else {
            return Err(self.refuse(FINISH, "no answer".into()));
        };
        let mut halfway = Halfway { rows: Vec::new(), begun: false, indexed: true, strange: Vec::new() };
        for row in rows {
            let path = &row.path;
            let (after, indexed) = (!not_after.contains(path), !index_not_after.contains(path));
            if (!after && not_before.contains(path)) || (!indexed && index_not_before.contains(path)) {
                halfway.strange.push(path.clone());
            }
            halfway.begun |= after || indexed;
            halfway.indexed &= indexed;
            halfway.rows.push((row, after));
        }
        Ok(halfway)
    }

    /// Paths whose entry in this tree's own index differs from a commit.
    async fn index_against(&self, commit: &str) -> Result<BTreeSet<Bytes>> {
        let call = self.git.call(&self.top, FINISH).limit(cli::QUICK).max_stdout(scan::MAX_LISTING);
        let call =
            call.args(["diff-index", "--cached", "--name-only", "--no-renames", "--ignore-submodules=none", "-z"]);
        let listed = call.args([OsString::from(commit)]).run().await?;
        Ok(cli::records(&listed).map(<[u8]>::to_vec).collect())
    }
}
