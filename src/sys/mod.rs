//! The operating system, all of it: files, clocks, ids, processes and their trees, background tasks.
//!
//! Nothing outside this module (and `config` for the environment) touches `std::fs`, spawns a process
//! or reads a clock, so that faults can be injected and the rules about children hold everywhere.
//! It has no project vocabulary: no runs, nodes, checks or engines.

pub mod client_process;
pub mod clock;
pub mod command;
pub mod executable;
pub mod fs;
pub mod fs_real;
pub mod ids;
pub mod instance;
pub mod memory;
pub mod proctree;
pub mod redact;
pub mod supervise;
pub mod tasks;
pub mod text;

pub use clock::{Clock, SystemClock};
pub use fs::{FileId, Fs, FsAppend, FsError, FsFile, FsLock, Kind, Meta};
pub use fs_real::RealFs;
pub use ids::host_name;
