//! The built program as hosts use it: a child process on a home of its own, spoken to over its pipes or its port.

mod command;
mod cut_starts;
mod ending;
mod endless;
pub(crate) mod host;
mod huge;
mod load;
mod many;
mod opening;
mod purity;
mod race;
mod two;
pub(crate) mod web;
