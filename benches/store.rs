//! The store by itself: commits, reading logs, listings.
#![expect(clippy::unwrap_used, reason = "a bench")]
#![expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "benches stand outside the product's layers")]
#![expect(unreachable_pub, dead_code, reason = "benches share helpers")]

mod common;

use std::time::Duration;

use claw_orchestrator::{model::RunId, store::Store};
use common::{Place, bare, batch, fill, new_run};
use divan::Bencher;

/// Numbers of runs in a listing.
const RUNS: [usize; 3] = [10, 1000, 10_000];

fn main() {
    divan::main();
}

/// One commit of the store.
#[divan::bench]
fn commit(bencher: Bencher<'_, '_>) {
    let place = Place::new();
    let mut claim = place.store().create(new_run("a")).unwrap();
    let events = batch();
    bencher.bench_local(|| claim.commit(&events).unwrap());
}

/// What it cannot do without: the same bytes appended and synced, on the same disk.
#[divan::bench]
fn commit_bare(bencher: Bencher<'_, '_>) {
    let place = Place::new();
    let mut claim = place.store().create(new_run("a")).unwrap();
    claim.commit(&batch()).unwrap();
    let line = place.lines("a").pop().unwrap();
    let mut file = place.raw();
    bencher.bench_local(|| bare::append(&mut file, &line).unwrap());
}

/// A commit on a disk that does not sync: the proof of ownership, the encoding of the line, the write.
#[divan::bench]
fn commit_without_sync(bencher: Bencher<'_, '_>) {
    let place = Place::new();
    let mut claim = place.store_on(std::sync::Arc::new(common::support::files::NoSync)).create(new_run("a")).unwrap();
    let events = batch();
    bencher.bench_local(|| claim.commit(&events).unwrap());
}

/// Reading and verifying a log of that many lines, by a process that has not seen it.
#[divan::bench(args = [100, 10_000])]
fn read_log(bencher: Bencher<'_, '_>, lines: usize) {
    let place = Place::new();
    let mut claim = place.store_on(std::sync::Arc::new(common::support::files::NoSync)).create(new_run("a")).unwrap();
    for _ in 1..lines {
        claim.commit(&batch()).unwrap();
    }
    let run = RunId::parse("a").unwrap();
    bencher.with_inputs(|| place.store()).bench_local_values(|store| store.lines(&run, 0, usize::MAX).unwrap());
}

fn filled(runs: usize) -> Place {
    let place = Place::new();
    place.store().create(new_run("first")).unwrap().release().unwrap();
    fill(&place, "first", runs);
    place
}

/// The first listing of a process.
#[divan::bench(args = RUNS, sample_count = 10, sample_size = 1)]
fn list_cold(bencher: Bencher<'_, '_>, runs: usize) {
    let place = filled(runs);
    bencher.with_inputs(|| place.store()).bench_local_values(|store| store.list().unwrap());
}

/// A listing when no run came or went since the last one.
#[divan::bench(args = RUNS)]
fn list_warm(bencher: Bencher<'_, '_>, runs: usize) {
    let place = filled(runs);
    let store = place.store();
    store.list().unwrap();
    // Until then a change could hide in the same tick of the file system's clock.
    std::thread::sleep(Duration::from_millis(2100));
    store.list().unwrap();
    bencher.bench_local(|| store.list().unwrap());
}

/// A listing right after another process made a run.
#[divan::bench(args = RUNS, sample_count = 20, sample_size = 1)]
fn list_after_a_change(bencher: Bencher<'_, '_>, runs: usize) {
    let place = filled(runs);
    let (store, other) = (place.store(), place.store());
    store.list().unwrap();
    let mut made = 0;
    bencher
        .with_inputs(|| {
            made += 1;
            drop(other.create(new_run(&format!("made-{made}"))).unwrap());
        })
        .bench_local_values(|()| store.list().unwrap());
}
