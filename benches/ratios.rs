//! What durability costs beside the bare work on the same disk, in turns: prints a table.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a bench")]
#![expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "benches stand outside the product's layers")]
#![expect(unreachable_pub, dead_code, reason = "benches share helpers")]

mod common;

use std::time::{Duration, Instant};

use claw_orchestrator::{
    kernel::{Kernel, StartRequest},
    store::{Claim, Store},
};
use common::{Place, bare, batch, idle, looping, new_run, routers};

/// Commits and bare appends in turns.
const COMMITS: usize = 1000;

fn main() {
    // Cargo asks benches for a list of tests; there are none.
    if std::env::args().any(|a| a == "--list" || a == "--test") {
        return;
    }
    println!("| What | Time | Beside | Ratio |\n| --- | --- | --- | --- |");
    commits();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let place = Place::new();
    let app = runtime.block_on(place.app());
    transitions(&runtime, &place, &app.kernel, 50, 25);
    transitions(&runtime, &place, &app.kernel, 500, 7);
    visits(&runtime, &place, &app.kernel);
    together(&runtime, &place, &app.kernel);
    runtime.block_on(app.shutdown());
}

fn row(what: &str, took: Duration, beside: &str, other: Duration) {
    let ratio = took.as_secs_f64() / other.as_secs_f64();
    println!("| {what} | {:.3} ms | {beside} {:.3} ms | {ratio:.2} |", millis(took), millis(other));
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn commits() {
    let place = Place::new();
    let store = place.store();
    let mut claim: Box<dyn Claim> = store.create(new_run("a")).unwrap();
    let line = place.lines("a").pop().unwrap();
    let (mut raw, events) = (place.raw(), batch());
    let (mut own, mut raws) = (Vec::new(), Vec::new());
    claim.commit(&events).unwrap();
    let line = place.lines("a").pop().unwrap_or(line);
    for _ in 0..COMMITS {
        let begun = Instant::now();
        claim.commit(&events).unwrap();
        own.push(begun.elapsed());
        raws.push(bare::append(&mut raw, &line).unwrap());
    }
    row(&format!("Commit of {} bytes", line.len()), median(&mut own), "append and sync", median(&mut raws));
}

fn transitions(runtime: &tokio::runtime::Runtime, place: &Place, kernel: &Kernel, count: usize, rounds: usize) {
    let (mut own, mut bare, mut lines) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        // The creation is no transition: the clock starts when it is answered.
        let run = runtime.block_on(place.start(kernel, routers(count)));
        let begun = Instant::now();
        idle(kernel);
        own.push(begun.elapsed());
        lines = place.lines(&run);
        bare.push(place.bare_log(&run));
    }
    let bytes: usize = lines.iter().map(Vec::len).sum();
    let what = format!("{count} routers, {} commits, {} bytes each", lines.len(), bytes / lines.len().max(1));
    row(&what, median(&mut own), "appends and syncs", median(&mut bare));
}

/// The last fifty visits of five hundred beside the first fifty.
fn visits(runtime: &tokio::runtime::Runtime, place: &Place, kernel: &Kernel) {
    let (mut first, mut last) = (Vec::new(), Vec::new());
    for _ in 0..7 {
        let run = runtime.block_on(place.start(kernel, looping()));
        idle(kernel);
        let times: Vec<Duration> = runtime.block_on(times(kernel, &run));
        let span = |from: usize, to: usize| times.get(to).zip(times.get(from)).map(|(b, a)| *b - *a);
        first.extend(span(1, 51));
        last.extend(span(450, 500));
    }
    row("Visits 450 to 500 of a loop", mean(&last), "visits 1 to 50", mean(&first));
}

fn mean(times: &[Duration]) -> Duration {
    times.iter().sum::<Duration>() / u32::try_from(times.len().max(1)).unwrap()
}

/// When each line was committed, to the millisecond.
async fn times(kernel: &Kernel, run: &str) -> Vec<Duration> {
    let run = claw_orchestrator::model::RunId::parse(run).unwrap();
    let lines = kernel.store().lines(&run, 0, usize::MAX).unwrap();
    lines.iter().map(|l| Duration::from_millis(u64::try_from(l.ts.millis()).unwrap())).collect()
}

/// Fifty runs at once beside the files and syncs of each of them, one after another.
fn together(runtime: &tokio::runtime::Runtime, place: &Place, kernel: &Kernel) {
    let (mut own, mut bare) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        let begun = Instant::now();
        let starts: Vec<_> =
            (0..50).map(|_| runtime.spawn(start(kernel.clone(), place.request(routers(10))))).collect();
        let runs: Vec<String> = starts.into_iter().map(|start| runtime.block_on(start).unwrap()).collect();
        idle(kernel);
        own.push(begun.elapsed());
        bare.push(runs.iter().map(|run| place.bare_run(run)).sum());
    }
    row(
        "50 runs of 10 routers at once",
        median(&mut own),
        "their files and syncs one after another",
        median(&mut bare),
    );
}

async fn start(kernel: Kernel, request: StartRequest) -> String {
    kernel.start(request).await.unwrap().run_id.to_string()
}
