//! One file a tool family: argument types, result types, one call down into the kernel.
