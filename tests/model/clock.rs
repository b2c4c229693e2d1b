//! Both clocks of a test: boot time is tokio's paused time, over all lives of the process; wall time is that and
//! whatever somebody has set the clock by.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

use claw_orchestrator::{model::Time, sys::Clock};
use tokio::time::Instant;

/// Wall time at the start of every test, in milliseconds.
const START: i64 = 1_800_000_000_000;

/// The clocks.
#[derive(Debug, Default)]
pub struct ModelClock {
    /// Time of former lives and between them.
    past: Mutex<Duration>,
    /// When this life began, in its runtime's time.
    born: Mutex<Option<Instant>>,
    /// What the wall clock was set by, in milliseconds.
    set_by: AtomicI64,
    jumps: AtomicU64,
    forward: AtomicBool,
    lenient: AtomicBool,
    born_ms: AtomicU64,
    /// A defect for the table of defects: boot time that follows the wall clock.
    pub boot_is_wall: AtomicBool,
}

impl ModelClock {
    /// A life begins in the runtime around the caller.
    pub fn begin(&self) {
        *self.born.lock().unwrap() = Some(Instant::now());
        self.born_ms.store(self.ms(), Ordering::SeqCst);
    }

    /// It ends, and the next one begins after `pause`.
    pub fn end(&self, pause: Duration) {
        let lived = self.born.lock().unwrap().take().map(|born| born.elapsed());
        *self.past.lock().unwrap() += lived.unwrap_or_default() + pause;
    }

    /// Sets the wall clock by so much.
    pub fn jump(&self, by: i64) {
        self.set_by.fetch_add(by, Ordering::SeqCst);
        self.jumps.fetch_add(1, Ordering::SeqCst);
        self.forward.fetch_or(by > 0, Ordering::SeqCst);
    }

    /// How often it was set.
    pub fn jumps(&self) -> u64 {
        self.jumps.load(Ordering::SeqCst)
    }

    /// Whether it was ever set forward.
    pub fn was_set_forward(&self) -> bool {
        self.forward.load(Ordering::SeqCst)
    }

    /// When this life began, in true milliseconds.
    pub fn born_ms(&self) -> u64 {
        self.born_ms.load(Ordering::SeqCst)
    }

    /// Lets waits end late: somewhere a disk fails, and then a run pauses for it.
    pub fn be_lenient(&self) {
        self.lenient.store(true, Ordering::SeqCst);
    }

    /// Whether every wait must end to the millisecond.
    pub fn strict(&self) -> bool {
        !self.lenient.load(Ordering::SeqCst)
    }

    /// True time since the test began.
    pub fn elapsed(&self) -> Duration {
        let lived = self.born.lock().unwrap().map(|born| born.elapsed());
        *self.past.lock().unwrap() + lived.unwrap_or_default()
    }

    /// True time in milliseconds.
    pub fn ms(&self) -> u64 {
        u64::try_from(self.elapsed().as_millis()).unwrap()
    }
}

impl Clock for ModelClock {
    fn wall(&self) -> Time {
        let now = i64::try_from(self.ms()).unwrap();
        Time::from_millis(START + now + self.set_by.load(Ordering::SeqCst))
    }

    fn boot(&self) -> Duration {
        if self.boot_is_wall.load(Ordering::SeqCst) {
            return Duration::from_millis(u64::try_from(self.wall().millis()).unwrap_or(0));
        }
        self.elapsed()
    }
}
