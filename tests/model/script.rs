//! What every agent and person of a case does. It depends on the step, its visit and how often it failed before,
//! and on nothing else, so that a life that is cut off and continued meets the same world again.

/// What a run's script depends on besides its own steps: for a child run, where its parent stood.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Context(u64);

impl Context {
    /// The context of a child run.
    pub fn below(self, node: &str, visit: u32, failures: u32) -> Self {
        Self(mix(&[self.0, text(node), visit.into(), failures.into(), 77]))
    }
}

/// How an agent tends to behave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Temper {
    /// Always succeeds.
    Steady,
    /// Fails often.
    Flaky,
    /// Always fails.
    Broken,
    /// Says nothing at times, until it is stopped.
    Hanging,
    /// Is refused at times, and then a retry is hopeless.
    Denied,
    /// Meets a used-up quota in each visit once.
    Rationed,
    /// Succeeds after [`LONG_MS`].
    Long,
}

/// How long a long turn takes.
pub const LONG_MS: u64 = 40_000;
/// How long a quota is used up, as its engine says.
pub const QUOTA_MS: u64 = 1000;

/// How a turn ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    Good,
    Bad,
    Denied,
    Hangs,
    /// The quota is used up for another [`QUOTA_MS`].
    Rationed,
}

/// What an agent writes into the project, which the checks look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word {
    Good,
    BadA,
    BadB,
}

impl Word {
    /// Whether the first and the second check hold.
    pub fn holds(self) -> (bool, bool) {
        match self {
            Self::Good => (true, true),
            Self::BadA => (true, false),
            Self::BadB => (false, true),
        }
    }
}

/// One turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Act {
    pub how: How,
    /// How long it takes; a hanging one until it is stopped.
    pub after_ms: u64,
    /// How long it takes to stop when told to.
    pub deaf_ms: u64,
    pub cents: u64,
    pub word: Option<Word>,
}

/// Who takes a turn: the node's only agent, a member of a fan-out, or the merge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place<'a> {
    pub context: Context,
    pub node: &'a str,
    pub visit: u32,
    pub failures: u32,
    /// Empty, the member's name, or `synthesis`.
    pub who: &'a str,
}

/// The world of one case.
#[derive(Debug, Clone, Copy)]
pub struct Script {
    pub seed: u64,
}

impl Script {
    fn dice(self, place: &Place<'_>, salt: u64) -> u64 {
        let Place { context, node, visit, failures, who } = place;
        mix(&[self.seed, context.0, text(node), (*visit).into(), (*failures).into(), text(who), salt])
    }

    /// What the agent at a place does first, when its quota is used up.
    pub fn rationed(self, place: &Place<'_>) -> Act {
        Act { how: How::Rationed, after_ms: 1 + self.dice(place, 9) % 50, deaf_ms: 0, cents: 0, word: None }
    }

    /// What the agent at a place does.
    pub fn act(self, temper: Temper, place: &Place<'_>) -> Act {
        let roll = self.dice(place, 1) % 100;
        let how = match temper {
            Temper::Steady | Temper::Rationed | Temper::Long => How::Good,
            Temper::Flaky if roll < 55 => How::Bad,
            Temper::Broken => How::Bad,
            Temper::Hanging if roll < 45 => How::Hangs,
            Temper::Denied if roll < 35 => How::Denied,
            Temper::Denied if roll < 60 => How::Bad,
            Temper::Flaky | Temper::Hanging | Temper::Denied => How::Good,
        };
        let word = match self.dice(place, 2) % 10 {
            0..=3 => Some(Word::Good),
            4..=6 => Some(Word::BadA),
            7 => Some(Word::BadB),
            _ => None,
        };
        // A member's word would depend on who of them is last.
        let word = word.filter(|_| place.who.is_empty() && how != How::Hangs);
        // Never at once: what begins together must not depend on what ended in the same moment.
        let after_ms = if self.dice(place, 3).is_multiple_of(4) { 1 } else { 1 + self.dice(place, 4) % 400 };
        let after_ms = if temper == Temper::Long { LONG_MS } else { after_ms };
        Act { how, after_ms, deaf_ms: self.dice(place, 5) % 60, cents: self.dice(place, 6) % 4, word }
    }

    /// What a person says at a gate, and how long it takes.
    pub fn answer(self, context: Context, node: &str, visit: u32) -> (bool, u64) {
        let place = Place { context, node, visit, failures: 0, who: "person" };
        (self.dice(&place, 7) % 100 < 75, 100 + self.dice(&place, 8) % 900)
    }
}

fn text(word: &str) -> u64 {
    word.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// SplitMix64 over the parts.
fn mix(parts: &[u64]) -> u64 {
    parts.iter().fold(0x9e37_79b9_7f4a_7c15, |state, part| {
        let mut z = (state ^ part).wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    })
}
