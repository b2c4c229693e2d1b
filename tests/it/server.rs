//! The built program as hosts use it: a child process on a home of its own, spoken to over its pipes or its port.

mod command;
mod ending;
mod endless;
mod host;
mod huge;
mod kill_loop;
mod load;
mod many;
mod opening;
mod purity;
mod race;
mod two;
mod web;
