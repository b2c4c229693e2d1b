//! The bare work of the disk that `scripts/measure` compares runs with: `bare_disk log|run DIR RUN...` does in `DIR`
//! what the logs, or all files, of these runs need at least, one after another, and prints the milliseconds.
#![expect(clippy::print_stdout, clippy::disallowed_methods, clippy::disallowed_types, reason = "a program of its own")]
#![expect(unreachable_pub, reason = "benches share it")]

use std::{io, path::Path, time::Duration};

#[path = "../common/bare.rs"]
mod bare;

fn main() -> io::Result<()> {
    let usage = || io::Error::new(io::ErrorKind::InvalidInput, "usage: bare_disk log|run DIR RUN...");
    let mut args = std::env::args().skip(1);
    let (Some(what), Some(dir)) = (args.next(), args.next()) else { return Err(usage()) };
    let work = match what.as_str() {
        "log" => bare::log,
        "run" => bare::run,
        _ => return Err(usage()),
    };
    let took: io::Result<Duration> = args.map(|run| work(Path::new(&dir), Path::new(&run))).sum();
    println!("{:.3}", took?.as_secs_f64() * 1000.0);
    Ok(())
}
