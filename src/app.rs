//! Builds everything and decides the order of shutdown.
