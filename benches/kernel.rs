//! The kernel over the store: whole workflows, status, listings, folding.
#![expect(clippy::unwrap_used, reason = "a bench")]
#![expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "benches stand outside the product's layers")]
#![expect(unreachable_pub, dead_code, reason = "benches share helpers")]

mod common;

use claw_orchestrator::{
    app::App,
    kernel::{ListQuery, StatusQuery, spec, state},
    model::{RunId, Time},
    store::Line,
};
use common::{Place, fill, idle, looping, routers};
use divan::{Bencher, counter::ItemsCount};
use tokio::runtime::Runtime;

/// Events in a fold.
const EVENTS: usize = 10_000;

fn main() {
    divan::main();
}

/// A whole process over a place, and the runtime it lives in.
struct Process {
    runtime: Runtime,
    app: App,
    place: Place,
}

impl Process {
    fn new(place: Place) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let app = runtime.block_on(place.app());
        Self { runtime, app, place }
    }

    /// Runs a workflow to its end.
    fn run(&self, spec: serde_json::Value) -> String {
        let run = self.runtime.block_on(self.place.start(&self.app.kernel, spec));
        idle(&self.app.kernel);
        run
    }

    fn end(self) -> Place {
        self.runtime.block_on(self.app.shutdown());
        self.place
    }
}

/// A workflow of that many routers, its creation included.
#[divan::bench(args = [50, 500], sample_count = 10, sample_size = 1)]
fn workflow(bencher: Bencher<'_, '_>, nodes: usize) {
    let process = Process::new(Place::new());
    bencher.counter(ItemsCount::new(nodes)).bench_local(|| process.run(routers(nodes)));
    process.end();
}

/// What its creation and its commits need of the disk at least.
#[divan::bench(args = [50, 500], sample_count = 10, sample_size = 1)]
fn workflow_bare(bencher: Bencher<'_, '_>, nodes: usize) {
    let process = Process::new(Place::new());
    let run = process.run(routers(nodes));
    bencher.counter(ItemsCount::new(nodes)).bench_local(|| process.place.bare_run(&run));
    process.end();
}

/// A status of an ended run, read from the disk.
#[divan::bench(args = [50, 500])]
fn status(bencher: Bencher<'_, '_>, nodes: usize) {
    let process = Process::new(Place::new());
    let run = process.run(routers(nodes));
    let kernel = &process.app.kernel;
    bencher.bench_local(|| process.runtime.block_on(kernel.status(&run, StatusQuery::default())).unwrap());
    process.end();
}

/// A page of 25 runs when nothing changed since the last one.
#[divan::bench(args = [10, 1000, 10_000])]
fn list_warm(bencher: Bencher<'_, '_>, runs: usize) {
    let process = Process::new(filled(runs));
    let list = || process.runtime.block_on(process.app.kernel.list(ListQuery::default())).unwrap();
    list();
    // Until then a change could hide in the same tick of the file system's clock.
    std::thread::sleep(std::time::Duration::from_millis(2100));
    list();
    bencher.bench_local(list);
    process.end();
}

/// The first page of 25 runs of a process.
#[divan::bench(args = [10, 1000, 10_000], sample_count = 10, sample_size = 1)]
fn list_cold(bencher: Bencher<'_, '_>, runs: usize) {
    let mut place = Some(filled(runs));
    let kept = std::cell::RefCell::new(Vec::new());
    bencher.with_inputs(|| Process::new(place.take().or_else(|| kept.borrow_mut().pop()).unwrap())).bench_local_values(
        |process| {
            process.runtime.block_on(process.app.kernel.list(ListQuery::default())).unwrap();
            kept.borrow_mut().push(process.end());
        },
    );
}

fn filled(runs: usize) -> Place {
    let process = Process::new(Place::new());
    let run = process.run(routers(3));
    let place = process.end();
    fill(&place, &run, runs);
    place
}

/// Folding a log of a loop of fifty nodes.
#[divan::bench]
fn fold(bencher: Bencher<'_, '_>) {
    let spec = spec::read(&looping(), "", spec::Origin::Caller, Some("/"), None).spec.unwrap();
    let line = |seq: usize| Line {
        seq: seq as u64,
        epoch: 1,
        ts: Time::from_millis(0),
        events: common::moves(&format!("r{}", seq % 50), &format!("r{}", (seq + 1) % 50), 1 + seq / 50),
    };
    let lines: Vec<Line> = (1..=EVENTS / 2).map(line).collect();
    let run = RunId::parse("a").unwrap();
    bencher.counter(ItemsCount::new(EVENTS)).bench_local(|| {
        let mut record = state::empty(&run, &spec);
        state::apply_stored(&mut record, &spec, &lines);
        record
    });
}
