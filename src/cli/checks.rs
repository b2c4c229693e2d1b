//! `-c` and `--contract`: from flags to the contract a caller of the tools would write.

use clap::Args;
use serde_json::{Value, json};

use super::{context::json_file, failure::Failure};

/// Milliseconds in a minute.
pub(crate) const MINUTE_MS: u64 = 60_000;
/// Longest limit a flag in minutes may name: a week.
pub(crate) const MINUTES_MAX: u64 = 7 * 24 * 60;

/// Flags that make a contract.
#[derive(Debug, Clone, Args)]
pub(crate) struct CheckArgs {
    /// A command that must exit 0; repeatable, split on spaces, no shell
    #[arg(short = 'c', long = "check", value_name = "COMMAND")]
    checks: Vec<String>,
    /// A contract as a JSON file ('-' for standard input); the checks of -c are added
    #[arg(long, value_name = "FILE")]
    contract: Option<String>,
    /// Limit of each -c check in minutes
    #[arg(long, value_name = "MIN", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=MINUTES_MAX))]
    check_timeout: u64,
}

impl CheckArgs {
    /// The contract, if any check was named. What is in the file is checked by whoever starts the run.
    pub(crate) fn contract(&self) -> Result<Option<Value>, Failure> {
        let mut contract = match &self.contract {
            Some(path) => json_file(path, "contract")?,
            None if self.checks.is_empty() => return Ok(None),
            None => json!({ "checks": [] }),
        };
        for (position, command) in self.checks.iter().enumerate() {
            let check = command_check(position + 1, command, self.check_timeout * MINUTE_MS)?;
            let list =
                contract.as_object_mut().and_then(|c| c.entry("checks").or_insert_with(|| json!([])).as_array_mut());
            match list {
                Some(list) => list.push(check),
                None => {
                    return Err(Failure::usage(
                        "the contract is not an object with a list of checks",
                        "write { \"checks\": [ { \"type\": \"command\", \"cmd\": \"cargo\", \"args\": [\"test\"] } ] }",
                    ));
                }
            }
        }
        Ok(Some(contract))
    }
}

/// One `-c` check. Quotes would only be understood by a shell, and there is none.
fn command_check(number: usize, command: &str, timeout_ms: u64) -> Result<Value, Failure> {
    if command.contains(['\'', '"', '`', '\\']) {
        return Err(Failure::usage(
            format!("-c '{command}' holds a quote character, and no shell would read it; nothing was started"),
            "write the check with its argument list into a file and give it with --contract",
        ));
    }
    let mut words = command.split_whitespace();
    let Some(program) = words.next() else {
        return Err(Failure::usage("-c is empty; nothing was started", "name a program, for example -c 'cargo test'"));
    };
    let args: Vec<&str> = words.collect();
    Ok(json!({
        "id": format!("check-{number}"),
        "spec": { "type": "command", "cmd": program, "args": args, "timeoutMs": timeout_ms },
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(checks: &[&str]) -> CheckArgs {
        CheckArgs { checks: checks.iter().map(|c| (*c).to_owned()).collect(), contract: None, check_timeout: 2 }
    }

    /// Scenario 3 of the surfaces: a quote is refused with the way out.
    #[test]
    fn quotes_are_refused() {
        for bad in ["sh -c \"exit 0\"", "sh -c 'x'", "echo `date`", "a\\ b", "   "] {
            let failure = args(&[bad]).contract().unwrap_err();
            assert_eq!(failure.exit(), 2, "{bad}");
            assert!(bad.trim().is_empty() || failure.advice().unwrap().contains("--contract"), "{bad}");
        }
    }

    #[test]
    fn checks_become_argument_lists() {
        assert_eq!(args(&[]).contract().unwrap(), None);
        let contract = args(&["cargo  test --lib", "true"]).contract().unwrap().unwrap();
        assert_eq!(
            contract,
            json!({ "checks": [
                { "id": "check-1", "spec": { "type": "command", "cmd": "cargo", "args": ["test", "--lib"], "timeoutMs": 120_000 } },
                { "id": "check-2", "spec": { "type": "command", "cmd": "true", "args": [], "timeoutMs": 120_000 } },
            ]})
        );
    }
}
