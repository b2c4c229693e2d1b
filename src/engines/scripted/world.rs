//! What a scripted agent does to its surroundings: files below its directory, and programs.

use std::{
    io,
    path::{Component, Path, PathBuf},
    time::Duration,
};

use crate::sys::{Fs, Kind, command::Command, fs, tasks};

/// Longest a program of a `run` step may take.
const RUN_LIMIT: Duration = Duration::from_secs(24 * 3600);
/// Most output of such a program.
const MAX_OUTPUT: usize = 16 << 20;

/// A directory that is not left.
#[derive(Debug)]
pub(super) struct World<'a> {
    fs: &'a dyn Fs,
    /// Resolved.
    root: PathBuf,
}

impl<'a> World<'a> {
    /// The world below `cwd`.
    pub(super) fn new(fs: &'a dyn Fs, cwd: &Path) -> fs::Result<Self> {
        Ok(Self { fs, root: fs.canonicalize(cwd)? })
    }

    /// The directory.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Where `path` really lies; refused when that is outside.
    fn inside(&self, path: &str) -> Result<PathBuf, String> {
        let outside = || format!("{path} lies outside the working directory");
        let mut plain = self.root.clone();
        for part in self.root.join(path).components() {
            match part {
                Component::RootDir => plain = PathBuf::from("/"),
                Component::ParentDir => drop(plain.pop()),
                Component::Normal(name) => plain.push(name),
                Component::CurDir | Component::Prefix(_) => {}
            }
        }
        // The part that exists decides; what does not exist cannot be a link.
        let mut below = Vec::new();
        let mut at = plain.as_path();
        let resolved = loop {
            match self.fs.canonicalize(at) {
                Ok(real) => break real,
                Err(e) if e.is_not_found() => {
                    if self.fs.metadata(at).is_ok_and(|m| m.kind == Kind::Symlink) {
                        return Err(format!("{path} is a link that leads nowhere"));
                    }
                    below.push(at.file_name().ok_or_else(outside)?);
                    at = at.parent().ok_or_else(outside)?;
                }
                Err(e) => return Err(e.to_string()),
            }
        };
        let real = below.into_iter().rev().fold(resolved, |dir, name| dir.join(name));
        if real.starts_with(&self.root) && real != self.root { Ok(real) } else { Err(outside()) }
    }

    /// Writes a file, its directories included; an existing one keeps its mode.
    pub(super) fn write(&self, path: &str, content: &str) -> Result<String, String> {
        let real = self.inside(path)?;
        self.put(&real, content, Place::Whole).map_err(|e| e.to_string())?;
        Ok(format!("wrote {path}"))
    }

    /// Adds to a file.
    pub(super) fn append(&self, path: &str, content: &str) -> Result<String, String> {
        let real = self.inside(path)?;
        self.put(&real, content, Place::End).map_err(|e| e.to_string())?;
        Ok(format!("added to {path}"))
    }

    /// Removes a file or directory.
    pub(super) fn delete(&self, path: &str) -> Result<String, String> {
        let real = self.inside(path)?;
        self.fs.metadata(&real).map_err(|e| e.to_string())?;
        fs::remove_tree(self.fs, &real).map_err(|e| e.to_string())?;
        Ok(format!("removed {path}"))
    }

    fn put(&self, path: &Path, content: &str, place: Place) -> fs::Result<()> {
        put(self.fs, path, content, place)
    }

    /// Starts a program and leaves it running: as a child of ours, or of nobody.
    pub(super) fn spawn(&self, argv: &[String], how: Spawned) -> Result<String, String> {
        // The shell of a detached program stays: what its group leaves behind at its end would be ended too.
        let detached = |start: &str| {
            ["sh", "-c", &format!("({start} </dev/null >/dev/null 2>&1 &); exec sleep 1000000"), "sh"]
                .map(str::to_owned)
                .to_vec()
        };
        let mut all = match how {
            Spawned { detach: true, new_session: true } => detached("setsid \"$@\""),
            Spawned { detach: true, new_session: false } => detached("\"$@\""),
            Spawned { detach: false, new_session: true } => vec!["setsid".to_owned(), "-w".to_owned()],
            Spawned { detach: false, new_session: false } => Vec::new(),
        };
        all.extend(argv.iter().cloned());
        let root = self.root.clone();
        tasks::spawn("left running", async move { run_in(&root, &all).await });
        Ok("started".to_owned())
    }
}

/// How a program is started and left.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spawned {
    /// As a child of nobody.
    pub(super) detach: bool,
    /// As the leader of its own session.
    pub(super) new_session: bool,
}

/// Where text goes in a file.
#[derive(Debug, Clone, Copy)]
pub(super) enum Place {
    /// Instead of everything.
    Whole,
    /// After everything.
    End,
}

/// Puts `content` into a file that may or may not be there.
pub(super) fn put(fs: &dyn Fs, path: &Path, content: &str, place: Place) -> fs::Result<()> {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(fs, dir)?;
    }
    let mut file = match fs.open_write(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => match fs.create_new(path) {
            // Another agent of the same scenario made it meanwhile.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => fs.open_write(path)?,
            made => made?,
        },
        Err(e) => return Err(e),
    };
    let at = match place {
        Place::Whole => {
            file.set_len(0)?;
            0
        }
        Place::End => file.len()?,
    };
    file.write_at(at, content.as_bytes())
}

/// Runs a program in `dir` to its end: what it said, as an error unless it ended well.
pub(super) async fn run_in(dir: &Path, argv: &[String]) -> Result<String, String> {
    let (program, args) = argv.split_first().ok_or_else(|| "no program".to_owned())?;
    let mut command = Command::new(program, dir).args(args);
    command.timeout = RUN_LIMIT;
    command.max_stdout = MAX_OUTPUT;
    let output = command.run().await.map_err(|e| e.to_string())?;
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), output.stderr);
    if output.status == 0 { Ok(text) } else { Err(format!("exit status {}\n{text}", output.status)) }
}
