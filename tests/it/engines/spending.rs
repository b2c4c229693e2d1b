//! What turns cost, out of whatever an engine says of them, and the caps that rest on it.

use std::{
    collections::VecDeque,
    path::PathBuf,
    sync::{Arc, Mutex},
};

use claw_orchestrator::{
    config::file::PriceTable,
    engines::{
        Boxed, Capabilities, Engine, EngineError, ErrorClass, Limits, Opt, Pool, PooledSession, Registry, Session,
        SessionSpec, Support, TurnOutcome, TurnRequest, Usage,
        account::{Counter, Counting},
    },
    model::{Code, run::Spend, spec::EngineChoice},
    store::ledger::{Row, shards},
    sys::{RealFs, SystemClock},
};
use tokio_util::sync::CancellationToken;

use super::support::{Bench, say};

/// An engine whose turns end as they were told to.
#[derive(Debug)]
struct Told {
    name: &'static str,
    outcomes: Arc<Mutex<VecDeque<TurnOutcome>>>,
}

#[derive(Debug)]
struct ToldSession(Arc<Mutex<VecDeque<TurnOutcome>>>);

impl Session for ToldSession {
    fn turn<'a>(&'a mut self, _request: TurnRequest<'a>) -> Boxed<'a, TurnOutcome> {
        let outcome = self.0.lock().unwrap().pop_front().expect("no turn was to begin");
        Box::pin(std::future::ready(outcome))
    }

    fn native_id(&self) -> Option<String> {
        None
    }

    fn stop(self: Box<Self>) -> Boxed<'static, Vec<String>> {
        Box::pin(std::future::ready(Vec::new()))
    }
}

impl Engine for Told {
    fn name(&self) -> &'static str {
        self.name
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            resume: true,
            append_system_prompt: true,
            read_only: true,
            interrupt: false,
            steer: false,
            compact: false,
            goals: false,
            own_cost: false,
            counting: Counting::PerTurn,
            efforts: &[],
            permission_modes: &[],
            verified: true,
        }
    }

    fn program(&self) -> Option<PathBuf> {
        Some("/bin/true".into())
    }

    fn version(&self) -> Boxed<'_, Option<String>> {
        Box::pin(std::future::ready(None))
    }

    fn check(&self, _choice: &EngineChoice) -> Vec<String> {
        Vec::new()
    }

    fn support(&self, _option: Opt) -> Support {
        Support::Native
    }

    fn open(&self, _spec: SessionSpec, _cancel: CancellationToken) -> Boxed<'_, Result<Box<dyn Session>, EngineError>> {
        let session: Box<dyn Session> = Box::new(ToldSession(Arc::clone(&self.outcomes)));
        Box::pin(std::future::ready(Ok(session)))
    }
}

fn usage(input: u64, cached: u64, output: u64) -> Usage {
    Usage { input, cached, cache_write: 0, output }
}

/// A turn as an adapter reports it.
fn turn(used: Option<Usage>, stated: Option<f64>) -> TurnOutcome {
    let tokens = used.unwrap_or_default();
    TurnOutcome {
        ok: true,
        text: "r".repeat(40),
        usage: used,
        cost_source: stated.map(|_| "engine".to_owned()),
        spend: Spend {
            cost_usd: stated.unwrap_or_default(),
            turns: 1,
            tokens_in: tokens.read(),
            tokens_out: tokens.output,
            estimated: false,
        },
        ..TurnOutcome::default()
    }
}

/// A session of an engine called `name` whose turns end so.
async fn session(
    bench: &Bench,
    name: &'static str,
    outcomes: Vec<TurnOutcome>,
    with: impl FnOnce(&mut SessionSpec),
) -> PooledSession {
    let engine: Arc<dyn Engine> = Arc::new(Told { name, outcomes: Arc::new(Mutex::new(outcomes.into())) });
    let config = Arc::new(bench.config.clone());
    let registry =
        Registry::of(config, "owner", Arc::new(SystemClock), Arc::new(RealFs), Limits::default(), vec![engine]);
    let pool = Pool::new(Arc::new(registry), &bench.path("home"), Arc::new(RealFs), 4);
    let mut spec = bench.spec("gpt-6.2-sol");
    spec.choice.engine = Some(name.to_owned());
    with(&mut spec);
    pool.open(spec, CancellationToken::new(), |_| {}).await.unwrap()
}

fn rows(bench: &Bench) -> Vec<Row> {
    let mut rows = Vec::new();
    for shard in shards(&RealFs, &bench.config.runs_dir).unwrap() {
        assert_eq!(shard.read(&RealFs, |row| rows.push(row)).unwrap(), 0);
    }
    rows
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-12
}

/// Acceptance 10 of the engines: whatever an engine's numbers are totals of, the rows of a conversation add up to it, over
/// a resume too.
#[tokio::test]
async fn shares_of_every_way_of_counting_add_up() {
    let bench = Bench::new();
    // Totals of a thread, which the next process goes on from.
    let totals = [usage(100_000, 0, 1000), usage(150_000, 80_000, 3000), usage(150_000, 300_000, 9000)];
    let mut before = Counter::fresh();
    let first: Vec<TurnOutcome> = totals[..2].iter().map(|total| turn(before.share(*total), None)).collect();
    let mut after = Counter::from(before.total());
    let second = vec![turn(after.share(totals[2]), None)];
    let mut spent = 0.0;
    for outcomes in [first, second] {
        let turns = outcomes.len();
        let mut session = session(&bench, "codex", outcomes, |_| {}).await;
        for _ in 0..turns {
            assert_eq!(say(&mut session, "go").await.cost_source.as_deref(), Some("registry"));
        }
        spent += session.spent_usd();
    }
    // 150 000 tokens at 2, 300 000 cached at 0.1 and 9000 written at 10 dollars a million.
    assert!(near(spent, 0.3 + 0.03 + 0.09), "{spent}");
    let sums = rows(&bench).iter().fold((0, 0, 0, 0.0), |sum, row| {
        (sum.0 + row.tokens_in, sum.1 + row.cached_tokens, sum.2 + row.tokens_out, sum.3 + row.cost_usd)
    });
    assert_eq!((sums.0, sums.1, sums.2), (450_000, 300_000, 9000));
    assert!(near(sums.3, spent));
    // Each turn its own, and an engine that sends its own bill.
    let each = vec![turn(Some(usage(1000, 0, 100)), None), turn(Some(usage(1000, 0, 100)), None)];
    let mut opencode = session(&bench, "opencode", each, |_| {}).await;
    say(&mut opencode, "go").await;
    say(&mut opencode, "go").await;
    assert!(near(opencode.spent_usd(), 2.0 * 0.003));
    let billed = vec![turn(Some(usage(1000, 0, 100)), Some(0.25)), turn(Some(usage(1000, 0, 100)), Some(0.5))];
    let mut claude = session(&bench, "claude", billed, |_| {}).await;
    assert_eq!(say(&mut claude, "go").await.cost_source.as_deref(), Some("engine"));
    say(&mut claude, "go").await;
    assert!(near(claude.spent_usd(), 0.75));
    let all = rows(&bench);
    assert_eq!(all.iter().map(|row| row.turn).collect::<Vec<_>>(), [1, 2, 1, 1, 2, 1, 2]);
}

/// Surface 4.6: a first report that is only a baseline, and an engine that counts nothing, are counted by their texts.
#[tokio::test]
async fn tokens_nobody_counted_are_estimated() {
    let bench = Bench::new();
    let mut unknown = Counter::from(None);
    let baseline = turn(unknown.share(usage(500_000, 0, 50_000)), None);
    let next = turn(unknown.share(usage(501_000, 0, 50_100)), None);
    let mut session = session(&bench, "codex", vec![baseline, next], |_| {}).await;
    let first = say(&mut session, &"m".repeat(400)).await;
    assert_eq!((first.spend.tokens_in, first.spend.tokens_out, first.spend.estimated), (100, 10, true));
    assert!(near(first.spend.cost_usd, 100.0 * 2e-6 + 10.0 * 10e-6));
    let second = say(&mut session, "go").await;
    assert_eq!((second.spend.tokens_in, second.spend.tokens_out, second.spend.estimated), (1000, 100, false));
    let rows = rows(&bench);
    assert_eq!(rows.iter().map(|row| row.tokens_estimated).collect::<Vec<_>>(), [true, false]);
}

/// Surface 4.6: what an engine states as cost is not believed of somebody else's endpoint; a price of the user's is.
#[tokio::test]
async fn a_foreign_endpoint_has_other_prices() {
    let mut bench = Bench::new();
    let stated = || vec![turn(Some(usage(1_000_000, 0, 0)), Some(9.0))];
    let mut foreign = session(&bench, "claude", stated(), |spec| {
        spec.options.base_url = Some("https://example.invalid".to_owned());
        spec.choice.model = Some("claude-opus-4-8".to_owned());
    })
    .await;
    let outcome = say(&mut foreign, "go").await;
    assert_eq!((outcome.cost_source.as_deref(), outcome.spend.cost_usd), (Some("registry"), 5.0));
    let price = PriceTable { input: Some(0.5), ..PriceTable::default() };
    bench.config.prices.insert("local-1".to_owned(), price);
    let mut own = session(&bench, "claude", stated(), |spec| {
        spec.options.base_url = Some("https://example.invalid".to_owned());
        spec.choice.model = Some("local-1".to_owned());
    })
    .await;
    assert_eq!(say(&mut own, "go").await.spend.cost_usd, 0.5);
}

/// CB-4: a model without a price costs nothing where no money is bounded, and the vendor's dearest price where it is.
#[tokio::test]
async fn a_model_without_a_price_counts_as_a_dear_one_under_a_cap() {
    let bench = Bench::new();
    let used = || vec![turn(Some(usage(1_000_000, 0, 0)), None)];
    let unknown = |spec: &mut SessionSpec| spec.choice.model = Some("secret-model".to_owned());
    let mut free = session(&bench, "codex", used(), unknown).await;
    let outcome = say(&mut free, "go").await;
    assert_eq!((outcome.cost_source.as_deref(), outcome.spend.cost_usd), (Some("none"), 0.0));
    let mut capped = session(&bench, "codex", used(), |spec| {
        unknown(spec);
        spec.max_budget_usd = Some(5.0);
    })
    .await;
    let outcome = say(&mut capped, "go").await;
    assert_eq!((outcome.spend.cost_usd, outcome.spend.estimated), (10.0, true));
    assert_eq!(say(&mut capped, "go").await.error.unwrap().class, ErrorClass::BudgetExceeded);
}

/// Surface scenario 26: the turn that goes over the cap is the last one; caps that are no amount of money are none.
#[tokio::test]
async fn a_used_up_cap_refuses_before_anything_starts() {
    let bench = Bench::new();
    let dear = || turn(Some(usage(1, 0, 1)), Some(0.02));
    let mut capped = session(&bench, "codex", vec![dear()], |spec| spec.max_budget_usd = Some(0.01)).await;
    assert!(say(&mut capped, "go").await.ok);
    // No outcome is left, so a turn that began would panic.
    let error = say(&mut capped, "go").await.error.unwrap();
    assert_eq!(error.class, ErrorClass::BudgetExceeded);
    let over = error.over.as_deref().unwrap();
    assert_eq!((over.code(), over.spent_usd, over.cap_usd), (Code::BudgetExceeded, 0.02, 0.01));
    assert_eq!(
        over.details(),
        serde_json::json!({ "session": "test-session", "engine": "codex", "spentUsd": 0.02, "capUsd": 0.01 })
    );
    let text = error.to_string();
    assert!(text.contains("0.0200 of 0.0100") && text.contains("raise the cap or start a new session"), "{text}");
    assert_eq!(rows(&bench).len(), 1, "a turn that did not begin leaves no row");
    for cap in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let mut open = session(&bench, "codex", vec![dear(), dear()], |spec| spec.max_budget_usd = Some(cap)).await;
        assert!(say(&mut open, "go").await.ok && say(&mut open, "go").await.ok, "{cap}");
        assert_eq!(open.cap_usd(), None);
    }
}
