//! The sides a code base is reviewed from, in the order they are taken.

/// One reviewer.
#[derive(Debug)]
pub(super) struct Angle {
    /// Its name.
    pub(super) name: &'static str,
    /// What it looks for, as it is told.
    pub(super) brief: &'static str,
}

/// What every reviewer is told after its own brief.
pub(super) const SHARED: &str = include_str!("../../../prompts/ultrareview/shared.md");

const fn angle(name: &'static str, brief: &'static str) -> Angle {
    Angle { name, brief }
}

/// All of them.
pub(super) const ANGLES: [Angle; 20] = [
    angle(
        "SecurityReviewer",
        "You review as an attacker would read. Look for every way in: input that reaches a shell, a query, a path or a \
         template; authentication that can be passed by; data that is shown to the wrong people; secrets committed to \
         the tree; and whatever else is among the OWASP top ten.",
    ),
    angle(
        "LogicReviewer",
        "You review for wrong results. Look at the boundaries of every range, at loops that do one round too many or \
         too few, at values that may be absent, at assumptions nobody checks, and at code that is right only in the \
         order in which it happens to be called.",
    ),
    angle(
        "PerformanceReviewer",
        "You review for wasted time and memory. Look for loops inside loops over the same data, one query or request \
         per item, copies and allocations nobody needs, and results that are computed again and again instead of kept.",
    ),
    angle(
        "APIReviewer",
        "You review what callers meet. Look for shapes that differ where they should be alike, input that is taken \
         unchecked, errors nobody defined, and changes that break those who call already.",
    ),
    angle(
        "TestReviewer",
        "You review what the tests miss. Look for paths no test runs, edge cases nobody tried, assertions that would \
         hold for broken code too, and tests that pass or fail by luck.",
    ),
    angle(
        "TypeReviewer",
        "You review the types. Look for casts that accept anything, assertions about a type that nothing proves, \
         absent values that are used as if they were there, and generics or narrowing that promise more than they hold.",
    ),
    angle(
        "ConcurrencyReviewer",
        "You review what happens at the same time. Look for races, locks taken in different orders, state that is \
         shared and changed, errors that vanish in asynchronous code, and tasks that are started and awaited by nobody.",
    ),
    angle(
        "ErrorReviewer",
        "You review how failures are met. Look for errors that are swallowed, calls that can fail and are not guarded, \
         messages that help nobody, and anything that brings the program down when it starts.",
    ),
    angle(
        "DependencyReviewer",
        "You review what the project depends on. Look for packages that are old, abandoned or known to be vulnerable, \
         packages it could do without, versions that are not pinned, and licences that do not fit.",
    ),
    angle(
        "ReadabilityReviewer",
        "You review as the next person to change this code. Look for names that mislead, functions that do too much, \
         control flow nobody can follow, code that is never reached, and decisions whose reason is written nowhere.",
    ),
    angle(
        "DataReviewer",
        "You review what happens to data. Look for gaps in validation, schemas that have drifted from the code, \
         migrations that cannot be run twice or undone, mistakes with encodings, and every way in which data can be \
         lost or left half written.",
    ),
    angle(
        "ConfigReviewer",
        "You review configuration. Look for values that are baked in and should not be, environment variables that are \
         read but documented nowhere, defaults that are unsafe, and settings without which the program does not come up.",
    ),
    angle(
        "ScalabilityReviewer",
        "You review for growth. Look for single points of failure, state that ties the program to one process or one \
         machine, lists without pages, and queues, caches or files that nothing bounds.",
    ),
    angle(
        "DocReviewer",
        "You review what is written about the code. Look for documentation that is missing or out of date, comments \
         that say something else than the code does, and behaviour that users meet and no document mentions.",
    ),
    angle(
        "A11yReviewer",
        "You review for people who use the product differently. Look at roles and labels, at whether everything can be \
         reached and left with a keyboard, at contrast, and at what a screen reader would say.",
    ),
    angle(
        "I18nReviewer",
        "You review for other languages and places. Look for texts fixed in the code, for dates, numbers and sorting \
         that assume one locale, for plurals, and for layouts that break when text runs from right to left.",
    ),
    angle(
        "NetworkReviewer",
        "You review what crosses the network. Look for calls without a time limit, retries that are missing or never \
         end, connections opened for each call, and requests or answers of unbounded size.",
    ),
    angle(
        "AuthReviewer",
        "You review who may do what. Look at how tokens and sessions are made, kept, renewed and ended, at forged \
         requests from other sites, and at every place where a permission should be checked and is not.",
    ),
    angle(
        "CryptoReviewer",
        "You review cryptography. Look for weak or home-made algorithms, keys that are stored or passed around \
         carelessly, randomness that can be guessed, and hashes used for what they cannot do.",
    ),
    angle(
        "MemoryReviewer",
        "You review what is kept alive. Look for memory that is never given back, objects that refer to each other in \
         a ring, large values held longer than needed, and streams, files or listeners that nobody closes.",
    ),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::kernel::spec::{MEMBER_RESERVED, REVIEWERS_MAX, member_name};

    #[test]
    fn every_angle_has_a_usable_name_and_a_brief() {
        assert_eq!(ANGLES.len(), REVIEWERS_MAX);
        let mut seen = BTreeSet::new();
        for angle in &ANGLES {
            member_name(angle.name, MEMBER_RESERVED, &mut seen).unwrap();
            assert!(angle.brief.starts_with("You review") && angle.brief.len() > 100, "{}", angle.name);
        }
    }
}
