//! Keeping a process tree from writing, with Landlock where the kernel has it. Reading stays as it is.

use std::path::Path;

#[cfg(target_os = "linux")]
use landlock::{
    ABI, AccessFs, CompatLevel, Compatible as _, Ruleset, RulesetAttr as _, RulesetCreatedAttr as _, path_beneath_rules,
};

/// Devices that programs write to without leaving anything behind.
#[cfg(target_os = "linux")]
const DEVICES: &[&str] = &["/dev/full", "/dev/null", "/dev/ptmx", "/dev/pts", "/dev/shm", "/dev/tty", "/dev/zero"];

/// Rights of the version that knows about truncation: an older kernel could be held to less than nothing.
#[cfg(target_os = "linux")]
const RIGHTS: ABI = ABI::V3;

/// Whether this kernel can hold programs to places where they may write.
pub fn can_confine() -> bool {
    #[cfg(target_os = "linux")]
    return rules().is_ok();
    #[cfg(not(target_os = "linux"))]
    return false;
}

#[cfg(target_os = "linux")]
fn rules() -> Result<landlock::RulesetCreated, landlock::RulesetError> {
    let strict = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    strict.handle_access(AccessFs::from_write(RIGHTS))?.create()
}

/// From now on this process and all that it starts write only below `writable`, of which what does not exist is
/// left out. There is no way back.
pub(super) fn confine<'a>(writable: impl Iterator<Item = &'a Path>) -> Result<(), String> {
    #[cfg(target_os = "linux")]
    {
        let writes = AccessFs::from_write(RIGHTS);
        let paths = writable.chain(DEVICES.iter().map(Path::new));
        let held = rules().and_then(|rules| rules.add_rules(path_beneath_rules(paths, writes))?.restrict_self());
        held.map(drop).map_err(|e| e.to_string())
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = writable;
        Err("this system has no means for it".to_owned())
    }
}
