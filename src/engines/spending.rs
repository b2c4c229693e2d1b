//! What a session's turns cost, what it may cost, and the row each turn leaves in the ledger.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use tokio::task::JoinHandle;

use super::{
    EngineError, ErrorClass, OverBudget, Scope, SessionSpec, TurnLabels, TurnOutcome, Usage,
    prices::{Prices, Source},
    registry::Context,
};
use crate::{
    store::ledger::{Ledger, Row},
    sys::{Clock, Fs, ids, redact::Redactor, tasks},
};

/// US dollars within which an amount has reached a cap: sums of decimal fractions come out a little less than they are.
const ROUNDING: f64 = 1e-9;
/// Characters that are taken for a token where an engine counts none.
const CHARS_PER_TOKEN: u64 = 4;
/// Files that say what a project is written in.
const MANIFESTS: &[(&str, &str)] = &[
    ("Cargo.toml", "rust"),
    ("go.mod", "go"),
    ("pyproject.toml", "python"),
    ("setup.py", "python"),
    ("requirements.txt", "python"),
    ("pom.xml", "java"),
    ("build.gradle", "java"),
    ("build.gradle.kts", "kotlin"),
    ("Gemfile", "ruby"),
    ("composer.json", "php"),
    ("mix.exs", "elixir"),
    ("Package.swift", "swift"),
    ("CMakeLists.txt", "cpp"),
    ("tsconfig.json", "typescript"),
    ("package.json", "javascript"),
];

/// What the accounts of a pool share.
#[derive(Debug)]
pub(super) struct Accounting {
    prices: Prices,
    ledger: Ledger,
    daily_usd: Option<f64>,
    redactor: Redactor,
    clock: Arc<dyn Clock>,
    fs: Arc<dyn Fs>,
}

impl Accounting {
    pub(super) fn new(context: &Context) -> Self {
        let (config, clock, fs) = (&context.config, &context.clock, &context.fs);
        Self {
            prices: Prices::new(&config.prices),
            ledger: Ledger::new(Arc::clone(fs), Arc::clone(clock), config.runs_dir.clone()),
            daily_usd: config.daily_usd,
            redactor: Redactor::new(config.clean_env().dropped_values),
            clock: Arc::clone(clock),
            fs: Arc::clone(fs),
        }
    }
}

/// One session's account.
#[derive(Debug)]
pub(super) struct Account {
    shared: Arc<Accounting>,
    title: String,
    engine: &'static str,
    model: Option<String>,
    cwd: PathBuf,
    /// The endpoint is not the vendor's, so what the engine states as cost is a guess at somebody else's prices.
    foreign: bool,
    cap: Option<f64>,
    spent: f64,
    turns: u64,
    labels: TurnLabels,
}

impl Account {
    /// The account of a session that is about to be opened.
    pub(super) fn new(shared: Arc<Accounting>, engine: &'static str, spec: &SessionSpec) -> Self {
        Self {
            shared,
            title: spec.name.clone(),
            engine,
            model: spec.choice.model.clone(),
            cwd: spec.cwd.clone(),
            foreign: spec.options.base_url.is_some(),
            cap: spec.max_budget_usd.filter(|usd| usd.is_finite() && *usd > 0.0),
            spent: 0.0,
            turns: 0,
            labels: spec.labels.clone().unwrap_or_default(),
        }
    }

    /// US dollars of all turns so far.
    pub(super) fn spent(&self) -> f64 {
        self.spent
    }

    /// The cap in US dollars.
    pub(super) fn cap(&self) -> Option<f64> {
        self.cap
    }

    /// Whether another turn may begin: the session's own cap first, then the day's.
    pub(super) async fn admit(&self) -> Result<(), EngineError> {
        let over = |scope, spent_usd, cap_usd| OverBudget {
            scope,
            session: self.title.clone(),
            engine: self.engine.to_owned(),
            spent_usd,
            cap_usd,
        };
        if let Some(cap) = self.cap.filter(|cap| self.spent >= *cap - ROUNDING) {
            return Err(over(Scope::Session, self.spent, cap).into());
        }
        let Some(daily) = self.shared.daily_usd else { return Ok(()) };
        let shared = Arc::clone(&self.shared);
        let spent = tasks::blocking("ledger", move || shared.ledger.spent_today()).await;
        // A sum that could not be taken is a defect of ours and not the turn's.
        let spent = spent.unwrap_or(0.0);
        if spent >= daily - ROUNDING { Err(over(Scope::Day, spent, daily).into()) } else { Ok(()) }
    }

    /// Prices a turn, counts it, and hands its row to the ledger. The row is written even when the handle is dropped;
    /// `asked` is how many characters the turn was asked with.
    pub(super) fn settle(&mut self, outcome: &mut TurnOutcome, asked: usize) -> JoinHandle<()> {
        let estimated = self.price(outcome, asked);
        self.spent += outcome.spend.cost_usd;
        self.turns = self.turns.saturating_add(outcome.spend.turns.max(1));
        let mut row = self.row(outcome, estimated);
        let shared = Arc::clone(&self.shared);
        let cwd = self.cwd.clone();
        tasks::blocking("ledger", move || {
            row.repo_lang = language(shared.fs.as_ref(), &cwd);
            shared.ledger.add(&row);
        })
    }

    /// Fills in cost and source where the engine stated none; says whether the tokens are a guess.
    fn price(&self, outcome: &mut TurnOutcome, asked: usize) -> bool {
        let stated = outcome.cost_source.is_some() && !self.foreign;
        let mut guessed = false;
        let usage = outcome.usage.unwrap_or_else(|| {
            guessed = worked(outcome);
            if guessed { guess(asked, &outcome.text) } else { Usage::default() }
        });
        if guessed {
            outcome.spend.tokens_in = usage.read();
            outcome.spend.tokens_out = usage.output;
        }
        if stated {
            return guessed;
        }
        outcome.spend.estimated |= guessed;
        let model = self.model.as_deref().or(outcome.model.as_deref()).unwrap_or_default();
        let prices = &self.shared.prices;
        // What was configured may be a nickname; what the engine reports is the model itself.
        let found = prices.of(model).filter(|(_, source)| *source == Source::Registry);
        let found = found.or_else(|| prices.of(outcome.model.as_deref()?)).or_else(|| prices.of(model));
        let bounded = self.cap.is_some() || self.labels.capped || self.shared.daily_usd.is_some();
        let (price, source) = match found {
            Some((price, source)) => (Some(price), source),
            None if bounded && usage != Usage::default() => {
                outcome.spend.estimated = true;
                (Some(prices.dearest(self.engine)), Source::None)
            }
            None => (None, Source::None),
        };
        if price.is_some() && outcome.usage.is_some() {
            // It is known in full now; what was unknown was only its price.
            outcome.spend.estimated = source == Source::None || !outcome.ok;
        }
        outcome.spend.cost_usd = price.map_or(0.0, |price| price.of(usage));
        outcome.cost_source = Some(source.as_str().to_owned());
        guessed
    }

    fn row(&self, outcome: &TurnOutcome, tokens_estimated: bool) -> Row {
        let usage = outcome.usage.unwrap_or_default();
        let error = outcome.error.as_ref().map(|e| self.shared.redactor.text(&e.to_string()));
        let denied = outcome.permission_denials.len() as u64;
        Row {
            row_id: ids::sortable(),
            ts: self.shared.clock.wall(),
            session: self.title.clone(),
            engine: self.engine.to_owned(),
            model: self.model.clone().or_else(|| outcome.model.clone()),
            cwd: self.cwd.to_string_lossy().into_owned(),
            turn: self.turns,
            tokens_in: outcome.spend.tokens_in,
            tokens_out: outcome.spend.tokens_out,
            cached_tokens: usage.cached,
            cache_write_tokens: Some(usage.cache_write).filter(|n| *n > 0),
            cost_usd: outcome.spend.cost_usd,
            cost_source: outcome.cost_source.clone().unwrap_or_default(),
            tokens_estimated,
            duration_ms: outcome.duration_ms,
            tool_calls: outcome.tool_calls,
            tool_errors: outcome.tool_errors,
            permission_denials: Some(denied).filter(|n| *n > 0),
            ok: outcome.ok,
            error,
            parent: self.labels.parent.clone(),
            node: self.labels.node.clone(),
            node_kind: self.labels.node_kind.clone(),
            repo_lang: None,
            task_kind: self.labels.task_kind.clone(),
            verified: None,
            evidence_id: None,
            contract_id: None,
        }
    }
}

/// Whether a turn may have used something although the engine reported nothing: what was refused before it began has
/// not.
fn worked(outcome: &TurnOutcome) -> bool {
    let Some(error) = &outcome.error else { return true };
    match error.class {
        ErrorClass::Auth
        | ErrorClass::Quota
        | ErrorClass::Overloaded
        | ErrorClass::StartFailed
        | ErrorClass::NotSupported
        | ErrorClass::BudgetExceeded => !outcome.text.is_empty() || outcome.tool_calls > 0,
        ErrorClass::ContextOverflow
        | ErrorClass::PermissionDenied
        | ErrorClass::Refused
        | ErrorClass::Interrupted
        | ErrorClass::Timeout
        | ErrorClass::Crashed
        | ErrorClass::Protocol
        | ErrorClass::Other => true,
    }
}

/// Tokens of a turn by the length of its texts.
fn guess(asked: usize, reply: &str) -> Usage {
    let tokens = |chars: usize| (chars as u64).div_ceil(CHARS_PER_TOKEN);
    Usage { input: tokens(asked), output: tokens(reply.chars().count()), ..Usage::default() }
}

/// What the project in `dir` is written in, when a manifest there says so.
fn language(fs: &dyn Fs, dir: &Path) -> Option<String> {
    let found = MANIFESTS.iter().find(|(name, _)| fs.metadata(&dir.join(name)).is_ok());
    found.map(|(_, language)| (*language).to_owned())
}
