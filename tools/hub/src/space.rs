//! How much a disk has room for.

use std::path::Path;

/// Bytes that the disk of a folder has free for this user; `None` where the system does not tell.
#[cfg(unix)]
pub fn free(folder: &Path) -> Option<u64> {
    let stat = nix::sys::statvfs::statvfs(folder).ok()?;
    // The types of the two differ between systems.
    #[allow(clippy::unnecessary_cast)]
    (stat.blocks_available() as u64).checked_mul(stat.fragment_size() as u64)
}

/// `None`: the free space is not known on this system.
#[cfg(not(unix))]
pub fn free(_: &Path) -> Option<u64> {
    None
}

/// A size for people, in the units that hubs show files in: `66.3 MB` is 66.3 million bytes.
pub fn human(bytes: u64) -> String {
    let units = ["kB", "MB", "GB", "TB"];
    let mut value = bytes as f64 / 1000.0;
    let mut unit = 0;
    while value >= 1000.0 && unit + 1 < units.len() {
        value /= 1000.0;
        unit += 1;
    }
    if bytes < 1000 { format!("{bytes} B") } else { format!("{value:.1} {}", units[unit]) }
}
