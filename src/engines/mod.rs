//! Coding agents as subprocesses, driven over their own structured protocols, never by reading a screen.
//!
//! Owns the adapters and the pool of sessions. Nothing outside an adapter asks which engine it is; what
//! differs is declared as capabilities. Knows runs only as labels and variables.
//!
//! An adapter is one of two shapes. One long process that is spoken to: its `dialect` says what lines mean, and
//! `conversation` owns pipes, clocks and the end of the tree. Or a process for every turn: its `Program` says how one is
//! started and what its lines mean, and `turnwise` owns the rest.

pub mod account;
pub mod acp;
pub mod agy;
pub mod breaker;
mod busy;
pub mod capabilities;
pub mod claude;
mod cleaning;
pub mod codex;
pub mod codex_app;
mod conversation;
pub mod custom;
mod dialect;
mod documented;
mod environment;
pub mod grok;
mod installed;
mod isolation;
pub mod jsonrpc;
pub mod lines;
pub mod opencode;
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
mod turnwise;

use std::{future::Future, pin::Pin};

pub use account::Usage;
pub use capabilities::{Capabilities, Examined, Opt, Support, examine};
pub use isolation::{Isolated, Isolation};
pub use outcome::{EngineError, ErrorClass, OverBudget, PermissionDenial, Scope, Sink, TurnEvent, TurnOutcome};
pub use pool::{Pool, PoolError, PooledSession, WaitKind};
pub use process::Limits;
pub use registry::{Refusal, Registry};
pub use session::{
    Answer, Ask, Engine, GoalEnd, GoalNews, GoalPass, GoalRequest, GoalSet, GoalStatus, GoalView, Idle, KnownGoal,
    Listener, Message, Order, Orders, Session, SessionOptions, SessionSpec, TurnLabels, TurnRequest, not_supported,
};

/// A boxed future.
pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
