//! The real file system.

/// The real file system.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealFs;
