//! What two commits disagree on, as text for whoever has to bring them together.

use std::path::PathBuf;

use super::{
    Repo, Result, cli, scan,
    scratch::{Objects, Scratch},
};

const WHAT: &str = "show conflicts";
/// Most bytes of a file that is shown.
const MAX_FILE: usize = 4 << 20;
/// Lines shown around a conflict.
const AROUND: usize = 3;
/// Start of the lines git marks conflicts with.
const OPENS: &str = "<<<<<<< ";
const CLOSES: &str = ">>>>>>> ";

impl Repo {
    /// The conflicts between two commits in these files, each with a few lines around it. At most `max` bytes, cut
    /// at the end of a character.
    pub async fn hunks(&self, ours: &str, theirs: &str, paths: &[String], max: usize) -> Result<String> {
        let base = self.merge_base(ours, theirs).await?;
        let scratch = Scratch::new(self, Objects::Drop).await?;
        let mut text = String::new();
        for path in paths {
            if text.len() >= max {
                break;
            }
            let one = self.hunks_of(&scratch, base.as_deref(), ours, theirs, path).await?;
            text.push_str(&format!("--- {path}\n{one}"));
        }
        let end = (0..=max.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
        Ok(text)
    }

    async fn hunks_of(
        &self,
        scratch: &Scratch,
        base: Option<&str>,
        ours: &str,
        theirs: &str,
        path: &str,
    ) -> Result<String> {
        let mut sides = Vec::new();
        for commit in [Some(ours), base, Some(theirs)] {
            let bytes = match commit {
                Some(commit) => match self.show(commit, path, MAX_FILE).await {
                    Err(super::Error::Program(crate::sys::command::Error::TooLong { .. })) => {
                        return Ok("(too large to show)\n".to_owned());
                    }
                    other => other?,
                },
                None => None,
            };
            sides.push(bytes);
        }
        match sides.as_slice() {
            [None, _, Some(_)] if base.is_some() => return Ok("(deleted on our side, changed on theirs)\n".to_owned()),
            [Some(_), _, None] => return Ok("(changed on our side, deleted on theirs)\n".to_owned()),
            _ => {}
        }
        let (fs, dir) = (self.git.fs.clone(), scratch.dir().to_path_buf());
        let files = scan::blocking(WHAT, move || {
            let mut files: Vec<PathBuf> = Vec::new();
            for (name, bytes) in ["ours", "base", "theirs"].into_iter().zip(sides) {
                let file = dir.join(name);
                match fs.remove_file(&file) {
                    Err(e) if !e.is_not_found() => return Err(e.into()),
                    Ok(()) | Err(_) => {}
                }
                fs.create_new(&file)?.write_at(0, &bytes.unwrap_or_default())?;
                files.push(file);
            }
            Ok(files)
        });
        let call = self.git.call(&self.top, WHAT).limit(cli::QUICK).args(["-c", "merge.conflictStyle=merge"]);
        let call = call.args(["merge-file", "-p", "-q", "-L", "ours", "-L", "base", "-L", "theirs"]);
        let output = call.args(files.await?).output().await?;
        // The status is the number of conflicts; what cannot be merged as text has one above all those.
        match output.status {
            0..=127 => Ok(conflicts(&String::from_utf8_lossy(&output.stdout))),
            _ => Ok("(not text; both sides changed it)\n".to_owned()),
        }
    }
}

/// The marked parts of a merged file with a few lines around each.
fn conflicts(merged: &str) -> String {
    let lines: Vec<&str> = merged.lines().collect();
    let mut shown = vec![false; lines.len()];
    let mut start = None;
    for (at, line) in lines.iter().enumerate() {
        if line.starts_with(OPENS) {
            start = Some(at);
        }
        if let (true, Some(from)) = (line.starts_with(CLOSES), start) {
            start = None;
            let range = from.saturating_sub(AROUND)..lines.len().min(at + AROUND + 1);
            shown.iter_mut().take(range.end).skip(range.start).for_each(|shown| *shown = true);
        }
    }
    if !shown.contains(&true) {
        return "(the text goes together; look at names, modes and renames)\n".to_owned();
    }
    let (mut text, mut before) = (String::new(), false);
    for (at, (line, shown)) in lines.iter().zip(&shown).enumerate() {
        if *shown {
            if !before {
                text.push_str(&format!("@@ line {} @@\n", at + 1));
            }
            text.push_str(line);
            text.push('\n');
        }
        before = *shown;
    }
    text
}
