//! Coding agents as subprocesses, driven over their own structured protocols, never by reading a screen.
//!
//! Owns the adapters and the pool of sessions. Nothing outside an adapter asks which engine it is; what
//! differs is declared as capabilities. Knows runs only as labels and variables.
//!
//! An adapter is one of two shapes. One long process that is spoken to: its [`dialect`] says what lines mean, and
//! `conversation` owns pipes, clocks and the end of the tree. Or a process for every turn.

pub mod account;
pub mod breaker;
pub mod capabilities;
pub mod claude;
mod cleaning;
mod conversation;
pub mod custom;
mod dialect;
mod environment;
mod installed;
mod isolation;
pub mod jsonrpc;
pub mod lines;
mod outcome;
pub mod pool;
pub mod prices;
mod process;
pub mod registry;
pub mod scripted;
mod session;
pub mod slots;
mod spending;
pub mod stream_json;

use std::{future::Future, pin::Pin};

pub use account::Usage;
pub use capabilities::{Capabilities, Examined, Opt, Support, examine};
pub use isolation::{Isolated, Isolation};
pub use outcome::{EngineError, ErrorClass, OverBudget, PermissionDenial, Scope, Sink, TurnEvent, TurnOutcome};
pub use pool::{Pool, PoolError, PooledSession, WaitKind};
pub use process::Limits;
pub use registry::{Refusal, Registry};
pub use session::{
    Answer, Ask, Engine, GoalEnd, GoalNews, GoalPass, GoalRequest, GoalSet, GoalStatus, GoalView, Idle, Listener,
    Message, Order, Orders, Session, SessionOptions, SessionSpec, TurnLabels, TurnRequest, not_supported,
};

/// A boxed future.
pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
