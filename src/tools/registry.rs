//! The tool table: what exists, what it promises, and how it is called.

use std::fmt;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use super::{
    Boxed, CallContext, KernelHandle, Outcome, args,
    schema::{self, Object},
};
use crate::model::Problem;

/// A group of tools that is offered or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Toolset {
    /// Workflow runs.
    Workflow,
    /// Checks without a run.
    Verify,
    /// Several agents in rounds on one repository.
    Council,
    /// Named conversations with agents.
    Session,
    /// The ledger of turns.
    Runs,
    /// What only sessions on codex-app have.
    Codex,
    /// What Claude Code says outside of sessions.
    Claude,
    /// Several agents on one task.
    Fanout,
    /// A long plan, a review from many sides.
    Ultra,
}

impl Toolset {
    /// Every toolset.
    pub const ALL: [Self; 9] = [
        Self::Workflow,
        Self::Verify,
        Self::Council,
        Self::Session,
        Self::Runs,
        Self::Codex,
        Self::Claude,
        Self::Fanout,
        Self::Ultra,
    ];

    /// The word in flags and the manifest.
    pub fn name(self) -> &'static str {
        match self {
            Self::Workflow => "workflow",
            Self::Verify => "verify",
            Self::Council => "council",
            Self::Session => "session",
            Self::Runs => "runs",
            Self::Codex => "codex",
            Self::Claude => "claude",
            Self::Fanout => "fanout",
            Self::Ultra => "ultra",
        }
    }

    /// Whether it is offered when nothing is chosen.
    pub fn is_default(self) -> bool {
        match self {
            Self::Workflow | Self::Verify | Self::Council => true,
            Self::Session | Self::Runs | Self::Codex | Self::Claude | Self::Fanout | Self::Ultra => false,
        }
    }
}

/// What a host may assume about a call, each set on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hints {
    /// Changes nothing.
    pub read_only: bool,
    /// May end or remove something.
    pub destructive: bool,
    /// A second equal call changes nothing more.
    pub idempotent: bool,
    /// Reaches agents, programs or networks.
    pub open_world: bool,
}

impl Hints {
    /// Looks only.
    pub const LOOK: Self = Self { read_only: true, destructive: false, idempotent: true, open_world: false };
    /// Starts agents or programs.
    pub const WORK: Self = Self { read_only: false, destructive: false, idempotent: false, open_world: true };
    /// Adds something to a run.
    pub const ADD: Self = Self { read_only: false, destructive: false, idempotent: false, open_world: false };
    /// Ends or removes something; a second call finds it done.
    pub const END: Self = Self { read_only: false, destructive: true, idempotent: true, open_world: false };
}

/// How long a call may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// Answers at once.
    Short,
    /// Waits when asked to, at most 55 s.
    Waits,
    /// Starts or does long work; can be answered as a task.
    Works,
}

/// What a tool says about itself.
#[derive(Debug, Clone, Copy)]
pub struct About {
    /// `^[a-z][a-z0-9_]{0,39}$`, never renamed.
    pub name: &'static str,
    /// For people.
    pub title: &'static str,
    /// First sentence: what it does and when; the end: what to call next.
    pub description: &'static str,
    /// Its group.
    pub toolset: Toolset,
    /// What a host may assume.
    pub hints: Hints,
    /// How long it takes.
    pub length: Length,
    /// Tools that go with it.
    pub pairs: &'static [&'static str],
}

type Handler = Box<dyn Fn(KernelHandle, Object, CallContext) -> Boxed<'static, Outcome> + Send + Sync>;

/// A tool.
pub struct Tool {
    /// What it says about itself.
    pub about: About,
    /// Schema of its arguments.
    pub input: Object,
    /// Schema of its result.
    pub output: Object,
    handler: Handler,
}

impl Tool {
    /// A tool with arguments `A`, results `R` and a body that gets checked arguments.
    pub fn new<A, R, F, Fut>(about: About, body: F) -> Self
    where
        A: DeserializeOwned + JsonSchema + Send + 'static,
        R: JsonSchema,
        F: Fn(KernelHandle, A, CallContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Outcome> + Send + 'static,
    {
        Self::with_input::<A, R, F, Fut>(about, schema::input::<A>(), body)
    }

    /// The same with its own form of the arguments' schema.
    pub fn with_input<A, R, F, Fut>(about: About, input: Object, body: F) -> Self
    where
        A: DeserializeOwned + JsonSchema + Send + 'static,
        R: JsonSchema,
        F: Fn(KernelHandle, A, CallContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Outcome> + Send + 'static,
    {
        let output = schema::output::<R>();
        let rules = input.clone();
        let handler: Handler = Box::new(move |kernel, raw, context| match args::read::<A>(&rules, raw) {
            Ok(args) => Box::pin(body(kernel, args, context)),
            Err(e) => Box::pin(std::future::ready(Err(e))),
        });
        Self { about, input, output, handler }
    }

    /// A tool that looks deeper into its arguments than their schema does: its body gets those that can be read, and
    /// what is wrong with the others, and tells everything at once.
    pub fn gathering<A, R, F, Fut>(about: About, body: F) -> Self
    where
        A: JsonSchema,
        R: JsonSchema,
        F: Fn(KernelHandle, Object, Vec<Problem>, CallContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Outcome> + Send + 'static,
    {
        let (input, output) = (schema::input::<A>(), schema::output::<R>());
        let rules = input.clone();
        let handler: Handler = Box::new(move |kernel, raw, context| {
            let (args, problems) = args::gather(&rules, raw);
            Box::pin(body(kernel, args, problems, context))
        });
        Self { about, input, output, handler }
    }

    /// Calls it.
    pub fn call(&self, kernel: KernelHandle, args: Object, context: CallContext) -> Boxed<'static, Outcome> {
        if !context.local
            && let Err(e) = super::remote::check(&args)
        {
            return Box::pin(std::future::ready(Err(e)));
        }
        (self.handler)(kernel, args, context)
    }
}

impl fmt::Debug for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tool").field("name", &self.about.name).finish_non_exhaustive()
    }
}

/// Tools in order of their names.
#[derive(Debug)]
pub struct Registry {
    tools: Vec<Tool>,
    checks: super::verify_run::Checks,
}

impl Registry {
    /// Every tool of this version.
    pub fn full() -> Self {
        Self::of(&Toolset::ALL)
    }

    /// The tools of these sets. What is not offered costs nothing: schemas take memory and time at every start.
    pub(super) fn of(sets: &[Toolset]) -> Self {
        let checks = super::verify_run::Checks::default();
        let mut tools = vec![
            super::verify_run::tool(checks.clone()),
            super::workflow_approve::tool(),
            super::workflow_cancel::tool(),
            super::workflow_delete::tool(),
            super::workflow_evidence::tool(),
            super::workflow_list::tool(),
            super::workflow_resume::tool(),
            super::workflow_start::tool(),
            super::workflow_status::tool(),
            super::workflow_steer::tool(),
            super::workflow_validate::tool(),
        ];
        tools.retain(|tool| sets.contains(&tool.about.toolset));
        for set in sets {
            match set {
                Toolset::Workflow | Toolset::Verify => {}
                Toolset::Council => tools.extend(super::council::tools()),
                Toolset::Session => tools.extend(super::session::tools()),
                Toolset::Codex => tools.extend(super::codex::tools()),
                Toolset::Claude => tools.extend(super::claude::tools()),
                Toolset::Runs => tools.push(super::ledger_query::tool()),
                Toolset::Fanout => tools.extend(super::fanout::tools()),
                Toolset::Ultra => tools.extend(super::ultra::tools()),
            }
        }
        tools.sort_by_key(|t| t.about.name);
        Self { tools, checks }
    }

    /// Keeps only the tools that `wanted` says yes to.
    pub(super) fn retain(&mut self, wanted: impl Fn(&Tool) -> bool) {
        self.tools.retain(wanted);
    }

    /// The tools in order.
    pub fn tools(&self) -> &[Tool] {
        &self.tools
    }

    /// The tool called `name`.
    pub fn get(&self, name: &str) -> Option<&Tool> {
        self.tools.binary_search_by(|t| t.about.name.cmp(name)).ok().and_then(|i| self.tools.get(i))
    }

    /// Checks of `verify_run` that still run or ended lately.
    pub fn checks(&self) -> &super::verify_run::Checks {
        &self.checks
    }
}
