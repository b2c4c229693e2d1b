//! Keeps an engine that does not start from being started over and over.

use std::time::Duration;

/// Failed starts in a row that open it.
const FAILURES: u32 = 3;
/// First time it stays open; doubles with every further failure.
const FIRST: Duration = Duration::from_secs(1);
/// Longest time it stays open.
const LONGEST: Duration = Duration::from_secs(300);

/// One engine's record of starts. Times are of the boot clock.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Breaker {
    /// Failed starts in a row.
    failures: u32,
    open_until: Duration,
    last_error: String,
}

/// What an operator wants to see of a breaker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BreakerState {
    /// The engine.
    pub engine: String,
    /// Failed starts in a row.
    pub failures: u32,
    /// For how long starts are still refused; zero when they are not.
    pub open_for: Duration,
    /// Why the last start failed.
    pub last_error: String,
}

impl Breaker {
    /// Whether a start may be tried; otherwise how long to wait and why.
    pub fn check(&self, now: Duration) -> Result<(), (Duration, String)> {
        match self.open_until.checked_sub(now) {
            Some(left) if !left.is_zero() => Err((left, self.last_error.clone())),
            Some(_) | None => Ok(()),
        }
    }

    /// A start failed.
    pub fn failed(&mut self, now: Duration, error: impl Into<String>) {
        self.failures = self.failures.saturating_add(1);
        self.last_error = error.into();
        if let Some(more) = self.failures.checked_sub(FAILURES) {
            self.open_until = now + FIRST.saturating_mul(2_u32.saturating_pow(more)).min(LONGEST);
        }
    }

    /// A start went well.
    pub fn succeeded(&mut self) {
        *self = Self::default();
    }

    /// For an operator.
    pub fn state(&self, engine: &str, now: Duration) -> BreakerState {
        BreakerState {
            engine: engine.to_owned(),
            failures: self.failures,
            open_for: self.open_until.saturating_sub(now),
            last_error: self.last_error.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RL-2; acceptance 15 of the engines.
    #[test]
    fn three_failures_open_it_for_longer_and_longer() {
        let mut breaker = Breaker::default();
        let mut now = Duration::from_secs(1000);
        for _ in 0..2 {
            breaker.failed(now, "no");
            assert_eq!(breaker.check(now), Ok(()));
        }
        for seconds in [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300] {
            breaker.failed(now, "no");
            assert_eq!(breaker.check(now), Err((Duration::from_secs(seconds), "no".to_owned())));
            now += Duration::from_secs(seconds);
            assert_eq!(breaker.check(now), Ok(()));
        }
        breaker.succeeded();
        breaker.failed(now, "no");
        assert_eq!(breaker.check(now), Ok(()));
    }
}
