//! `clawo schemas` and `clawo manifest`: what is generated from the types, written out or compared.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use clap::Subcommand;
use serde_json::json;

use super::{
    context::{Context, absolute},
    failure::{EXIT_RED, Failure, Outcome},
};
use crate::sys::{
    Fs, Kind, RealFs,
    fs::{create_dir_all, write_atomic},
};

/// The commands of this family.
#[derive(Debug, Subcommand)]
pub(crate) enum SchemasCommand {
    /// Write every schema, or compare with what is there
    Export {
        /// Directory
        #[arg(long, value_name = "DIR", default_value = "schemas")]
        out: PathBuf,
        /// Write nothing; fail when the directory differs
        #[arg(long)]
        check: bool,
    },
}

/// Runs one of them.
pub(crate) fn run(context: &Context, command: &SchemasCommand) -> Outcome {
    match command {
        SchemasCommand::Export { out, check } => {
            let dir = absolute(out)?;
            let files = crate::tools::export::export();
            if *check { compare(context, &dir, &files) } else { write(context, &dir, &files) }
        }
    }
}

/// Prints the manifest of the MCP server.
pub(crate) fn manifest(context: &Context) -> Outcome {
    // It is one JSON document in either form.
    context.out.raw(&crate::protocol::manifest::manifest());
    Ok(0)
}

fn write(context: &Context, dir: &Path, files: &BTreeMap<String, String>) -> Outcome {
    let failed = |e| Failure::io("write the schemas", e);
    for (name, text) in files {
        let path = dir.join(name);
        create_dir_all(&RealFs, path.parent().unwrap_or(dir)).map_err(failed)?;
        write_atomic(&RealFs, &path, text.as_bytes()).map_err(failed)?;
    }
    let stale: Vec<String> = present(dir, dir)?.into_iter().filter(|n| !files.contains_key(n)).collect();
    for name in &stale {
        RealFs.remove_file(&dir.join(name)).map_err(failed)?;
    }
    context.out.document(&json!({ "directory": dir, "written": files.len(), "removed": stale }));
    context.out.line(format!("{} schemas in {}", files.len(), dir.display()));
    Ok(0)
}

fn compare(context: &Context, dir: &Path, files: &BTreeMap<String, String>) -> Outcome {
    let mut differences = Vec::new();
    for (name, text) in files {
        match RealFs.read(&dir.join(name)) {
            Ok(bytes) if bytes == text.as_bytes() => {}
            Ok(_) => differences.push(format!("{name} differs")),
            Err(e) if e.is_not_found() => differences.push(format!("{name} is missing")),
            Err(e) => return Err(Failure::io("read the schemas", e)),
        }
    }
    for name in present(dir, dir)? {
        if !files.contains_key(&name) {
            differences.push(format!("{name} belongs to nothing any more"));
        }
    }
    context.out.document(&json!({ "directory": dir, "same": differences.is_empty(), "differences": differences }));
    for difference in &differences {
        context.out.line(difference);
    }
    if differences.is_empty() {
        context.out.line(format!("{} schemas are as generated", files.len()));
        return Ok(0);
    }
    context.out.line("write them again with: clawo schemas export");
    Ok(EXIT_RED)
}

/// Names of the JSON files below `dir`, relative to `root`; none when it does not exist.
fn present(root: &Path, dir: &Path) -> Result<Vec<String>, Failure> {
    let failed = |e| Failure::io("read the schemas", e);
    let names = match RealFs.list(dir) {
        Ok(names) => names,
        Err(e) if e.is_not_found() => return Ok(Vec::new()),
        Err(e) => return Err(failed(e)),
    };
    let mut found = Vec::new();
    for name in names {
        let path = dir.join(&name);
        match RealFs.metadata(&path).map_err(failed)?.kind {
            Kind::Dir => found.extend(present(root, &path)?),
            Kind::File if path.extension().is_some_and(|e| e == "json") => {
                found.extend(path.strip_prefix(root).ok().and_then(Path::to_str).map(str::to_owned));
            }
            Kind::File | Kind::Symlink | Kind::Other => {}
        }
    }
    Ok(found)
}
