//! The kernel against a model of it: the real kernel and store, under a clock that only moves when nothing else does,
//! with agents that follow a script, a process that dies at any batch and a wall clock that anybody may set.
#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]
#![expect(unreachable_pub, reason = "one binary, its modules share helpers")]
#![expect(clippy::disallowed_methods, reason = "tests stand outside the product's layers")]

mod agents;
mod case;
mod clock;
mod clocks;
mod defects;
mod driver;
mod exhaustive;
mod faulty;
mod flow;
mod found;
mod journal;
mod memory;
mod oracle;
mod random;
mod report;
mod script;
