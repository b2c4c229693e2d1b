//! File systems for tests and benches that are the real one but for a few operations.

use std::path::Path;

use claw_orchestrator::sys::{
    Fs, FsFile, RealFs,
    fs::{FileId, FsAppend, Result},
};

/// The operations of these names, as those of the real file system.
macro_rules! as_real {
    (@ $name:ident($($arg:ident: $kind:ty),*) -> $out:ty) => {
        fn $name(&self, $($arg: $kind),*) -> claw_orchestrator::sys::fs::Result<$out> {
            claw_orchestrator::sys::RealFs.$name($($arg),*)
        }
    };
    (# read) => { as_real!(@ read(path: &std::path::Path) -> Vec<u8>); };
    (# read_range) => { as_real!(@ read_range(path: &std::path::Path, from: u64, len: usize) -> Vec<u8>); };
    (# metadata) => { as_real!(@ metadata(path: &std::path::Path) -> claw_orchestrator::sys::Meta); };
    (# list) => { as_real!(@ list(path: &std::path::Path) -> Vec<std::ffi::OsString>); };
    (# read_link) => { as_real!(@ read_link(path: &std::path::Path) -> std::path::PathBuf); };
    (# canonicalize) => { as_real!(@ canonicalize(path: &std::path::Path) -> std::path::PathBuf); };
    (# create_dir) => { as_real!(@ create_dir(path: &std::path::Path) -> ()); };
    (# create_new) => { as_real!(@ create_new(path: &std::path::Path) -> Box<dyn claw_orchestrator::sys::FsFile>); };
    (# open_write) => { as_real!(@ open_write(path: &std::path::Path) -> Box<dyn claw_orchestrator::sys::FsFile>); };
    (# open_append) => { as_real!(@ open_append(path: &std::path::Path) -> Box<dyn claw_orchestrator::sys::FsAppend>); };
    (# rename) => { as_real!(@ rename(from: &std::path::Path, to: &std::path::Path) -> ()); };
    (# rename_new) => { as_real!(@ rename_new(from: &std::path::Path, to: &std::path::Path) -> ()); };
    (# sync_dir) => { as_real!(@ sync_dir(path: &std::path::Path) -> ()); };
    (# make_executable) => { as_real!(@ make_executable(path: &std::path::Path) -> ()); };
    (# remove_file) => { as_real!(@ remove_file(path: &std::path::Path) -> ()); };
    (# remove_dir) => { as_real!(@ remove_dir(path: &std::path::Path) -> ()); };
    (# try_lock) => {
        as_real!(@ try_lock(path: &std::path::Path) -> Option<Box<dyn claw_orchestrator::sys::FsLock>>);
    };
    (# free_space) => { as_real!(@ free_space(path: &std::path::Path) -> u64); };
    ($($name:ident)+) => { $(as_real!(# $name);)+ };
}

/// The real file system without syncs, for what is made quickly or for the work beside them.
#[derive(Debug)]
pub struct NoSync;

#[derive(Debug)]
struct File(Box<dyn FsFile>);

impl FsFile for File {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.0.write_at(offset, bytes)
    }
    fn set_len(&mut self, len: u64) -> Result<()> {
        self.0.set_len(len)
    }
    fn sync(&mut self) -> Result<()> {
        Ok(())
    }
    fn len(&self) -> Result<u64> {
        self.0.len()
    }
}

#[derive(Debug)]
struct Tail(Box<dyn FsAppend>);

impl FsAppend for Tail {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.0.append(bytes)
    }
    fn sync(&mut self) -> Result<()> {
        Ok(())
    }
    fn stat(&self) -> Result<(FileId, u64)> {
        self.0.stat()
    }
}

impl Fs for NoSync {
    fn create_new(&self, path: &Path) -> Result<Box<dyn FsFile>> {
        Ok(Box::new(File(RealFs.create_new(path)?)))
    }
    fn open_write(&self, path: &Path) -> Result<Box<dyn FsFile>> {
        Ok(Box::new(File(RealFs.open_write(path)?)))
    }
    fn open_append(&self, path: &Path) -> Result<Box<dyn FsAppend>> {
        Ok(Box::new(Tail(RealFs.open_append(path)?)))
    }
    fn sync_dir(&self, _: &Path) -> Result<()> {
        Ok(())
    }
    as_real!(read read_range metadata list read_link canonicalize create_dir rename rename_new remove_file remove_dir);
    as_real!(make_executable try_lock free_space);
}
