//! How the C library's allocator keeps memory that was freed.

/// Arenas. Every thread of the blocking pool would else get one of its own, and each keeps what a long listing or a
/// large reply once needed there: with ten thousand runs listed that doubles what a server holds. Threads have
/// small caches of their own besides, and a server waits for disks and agents, not for its allocator.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const ARENAS: i32 = 1;

/// Lets all threads share one arena. To be called before there are threads.
pub fn share_arena() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    #[expect(unsafe_code, reason = "the C library offers no safe call")]
    // SAFETY: sets a number of the allocator while no other thread exists.
    let _ = unsafe { nix::libc::mallopt(nix::libc::M_ARENA_MAX, ARENAS) };
}
