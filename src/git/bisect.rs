//! Ending a bisection by hand: `git bisect` runs the user's hooks whatever it is told.

use super::{Repo, Result, cli, scan};

const WHAT: &str = "end a bisection";
/// What git keeps of one beside its refs.
const FILES: [&str; 9] = [
    "BISECT_EXPECTED_REV",
    "BISECT_ANCESTORS_OK",
    "BISECT_LOG",
    "BISECT_NAMES",
    "BISECT_RUN",
    "BISECT_TERMS",
    "BISECT_FIRST_PARENT",
    "BISECT_HEAD",
    // Last, as git does it: it is what says that there is one.
    "BISECT_START",
];

impl Repo {
    /// Goes back to where the bisection was started from and ends it.
    pub(super) async fn abort_bisection(&self) -> Result<()> {
        let (fs, start) = (self.git.fs.clone(), self.git_dir.join("BISECT_START"));
        let start = scan::blocking(WHAT, move || match fs.read(&start) {
            Ok(start) => Ok(Some(start)),
            Err(e) if e.is_not_found() => Ok(None),
            Err(e) => Err(e.into()),
        });
        if let Some(start) = start.await? {
            let start = cli::text(WHAT, start)?;
            let call = self.git.users_call(&self.top, WHAT).limit(cli::FILES);
            call.args(["checkout", "--quiet", "--no-guess", start.trim(), "--"]).run().await?;
        }
        self.forget_bisection().await
    }

    /// Ends the bisection; HEAD, index and files stay.
    pub(super) async fn forget_bisection(&self) -> Result<()> {
        let call = self.git.call(&self.top, WHAT).limit(cli::QUICK);
        let listed = call.args(["for-each-ref", "--format=%(refname) %(objectname)", "refs/bisect/"]).run().await?;
        let orders: String = cli::text(WHAT, listed)?.lines().map(|line| format!("delete {line}\n")).collect();
        if !orders.is_empty() {
            let call = self.git.call(&self.top, WHAT).limit(cli::QUICK).stdin(orders.into_bytes());
            call.args(["update-ref", "--no-deref", "--stdin"]).run().await?;
        }
        let (fs, git_dir) = (self.git.fs.clone(), self.git_dir.clone());
        scan::blocking(WHAT, move || {
            for name in FILES {
                match fs.remove_file(&git_dir.join(name)) {
                    Err(e) if !e.is_not_found() => return Err(e.into()),
                    Ok(()) | Err(_) => {}
                }
            }
            Ok(())
        })
        .await
    }
}
