//! The real file system without syncs: what is left is the work around them.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use claw_orchestrator::sys::{
    Fs, FsFile, FsLock, Meta, RealFs,
    fs::{FileId, FsAppend, Result},
};

/// A file system that forgets everything in a power cut.
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
    fn read(&self, path: &Path) -> Result<Vec<u8>> {
        RealFs.read(path)
    }
    fn read_range(&self, path: &Path, offset: u64, len: usize) -> Result<Vec<u8>> {
        RealFs.read_range(path, offset, len)
    }
    fn metadata(&self, path: &Path) -> Result<Meta> {
        RealFs.metadata(path)
    }
    fn list(&self, dir: &Path) -> Result<Vec<OsString>> {
        RealFs.list(dir)
    }
    fn read_link(&self, path: &Path) -> Result<PathBuf> {
        RealFs.read_link(path)
    }
    fn canonicalize(&self, path: &Path) -> Result<PathBuf> {
        RealFs.canonicalize(path)
    }
    fn create_dir(&self, path: &Path) -> Result<()> {
        RealFs.create_dir(path)
    }
    fn create_new(&self, path: &Path) -> Result<Box<dyn FsFile>> {
        Ok(Box::new(File(RealFs.create_new(path)?)))
    }
    fn open_write(&self, path: &Path) -> Result<Box<dyn FsFile>> {
        Ok(Box::new(File(RealFs.open_write(path)?)))
    }
    fn open_append(&self, path: &Path) -> Result<Box<dyn FsAppend>> {
        Ok(Box::new(Tail(RealFs.open_append(path)?)))
    }
    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        RealFs.rename(from, to)
    }
    fn rename_new(&self, from: &Path, to: &Path) -> Result<()> {
        RealFs.rename_new(from, to)
    }
    fn sync_dir(&self, _: &Path) -> Result<()> {
        Ok(())
    }
    fn remove_file(&self, path: &Path) -> Result<()> {
        RealFs.remove_file(path)
    }
    fn remove_dir(&self, path: &Path) -> Result<()> {
        RealFs.remove_dir(path)
    }
    fn try_lock(&self, path: &Path) -> Result<Option<Box<dyn FsLock>>> {
        RealFs.try_lock(path)
    }
    fn free_space(&self, path: &Path) -> Result<u64> {
        RealFs.free_space(path)
    }
}
