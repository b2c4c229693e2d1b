//! Every death of small workflows, one by one and in pairs.

use crate::{case::Case, flow::*, oracle, script::{Script, Temper}};

#[test]
fn smoke() {
    for seed in 0..5 {
        let flow = flow(vec![step(What::Agent(Temper::Flaky)).retry(2, 100), step(What::Verifier { run: false, advisory: false })]);
        let predicted = oracle::predict(&flow, Script { seed });
        let lived = Case::new(flow, seed).live().unwrap();
        println!("{predicted:?}\n{lived:?}");
    }
}
