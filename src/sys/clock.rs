//! Two clocks: wall time for people and due times, boot time for durations. Both are parameters.

use std::{fmt, time::Duration};

use crate::model::Time;

/// Where time comes from.
pub trait Clock: Send + Sync + fmt::Debug + 'static {
    /// Wall time; may jump.
    fn wall(&self) -> Time;
    /// Time since boot, suspend included; never goes back.
    fn boot(&self) -> Duration;
}

/// The machine's clocks.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the wall clock")]
    fn wall(&self) -> Time {
        Time::new(jiff::Timestamp::now())
    }

    fn boot(&self) -> Duration {
        let at = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Duration::new(at.tv_sec.unsigned_abs(), u32::try_from(at.tv_nsec).unwrap_or(0))
    }
}
