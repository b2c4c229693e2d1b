//! Which server processes of one home are alive.
