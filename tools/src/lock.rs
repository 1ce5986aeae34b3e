//! `--mlock`: a loaded model stays in memory.

#[cfg(unix)]
use nix::sys::mman::{MlockAllFlags, mlockall};

/// Locks what is in memory now, and what of the maps that are there is read later, so that the system never moves it to
/// a disk. Says how much that is, or why the system refuses; the model runs either way, as in llama.cpp.
pub fn lock() {
    match lock_all() {
        Ok(()) => match resident_bytes() {
            Some(bytes) => note!("{:.1} MiB of memory are locked", bytes as f64 / 1_048_576.0),
            None => note!("memory is locked"),
        },
        Err(why) => note!("warning: --mlock: memory is not locked: {why}"),
    }
}

#[cfg(unix)]
fn lock_all() -> Result<(), String> {
    // Source pages of weights that were copied into other layouts were given back; they are not read in again for this.
    #[cfg(target_os = "linux")]
    let flags = MlockAllFlags::MCL_CURRENT | MlockAllFlags::from_bits_retain(nix::libc::MCL_ONFAULT);
    #[cfg(not(target_os = "linux"))]
    let flags = MlockAllFlags::MCL_CURRENT;
    mlockall(flags).map_err(|e| match limit() {
        Some(bytes) => format!("{e}; the limit is {} KiB, `ulimit -l` raises it", bytes / 1024),
        None => e.to_string(),
    })
}

/// Bytes that may be locked, where the system says that it is not all.
#[cfg(target_os = "linux")]
fn limit() -> Option<u64> {
    use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};

    let (limit, _) = getrlimit(Resource::RLIMIT_MEMLOCK).ok()?;
    (limit != RLIM_INFINITY).then_some(limit)
}

#[cfg(all(unix, not(target_os = "linux")))]
fn limit() -> Option<u64> {
    None
}

#[cfg(not(unix))]
fn lock_all() -> Result<(), String> {
    Err("trine does not know how to ask this system for it".to_owned())
}

/// Bytes that this process has in memory, all of which is locked then; `None` where the system does not tell.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|l| l.starts_with("VmRSS:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}
