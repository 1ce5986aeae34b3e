//! How much memory there is.

use std::fs;

/// Bytes that the program may still take: what the system says is available, within the limit of the control group it
/// runs in. `None` where the system does not say.
pub(super) fn available() -> Option<usize> {
    let system = meminfo(&fs::read_to_string("/proc/meminfo").ok()?)?;
    Some(match cgroup() {
        Some(left) => system.min(left),
        None => system,
    })
}

/// `MemAvailable` of /proc/meminfo.
fn meminfo(text: &str) -> Option<usize> {
    let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
    let kilobytes: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1024)
}

/// Returns the memory that the limit of the control group leaves.
fn cgroup() -> Option<usize> {
    let path = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = path.lines().find_map(|l| l.strip_prefix("0::"))?;
    let folder = format!("/sys/fs/cgroup{path}");
    let number = |name: &str| -> Option<usize> {
        let text = fs::read_to_string(format!("{folder}/{name}")).ok()?;
        text.trim().parse().ok()
    };
    Some(number("memory.max")?.saturating_sub(number("memory.current")?))
}

#[cfg(test)]
mod tests {
    use super::meminfo;

    #[test]
    fn the_line_of_meminfo() {
        let text = "MemTotal:       24000000 kB\nMemAvailable:   18000000 kB\nBuffers: 1 kB\n";
        assert_eq!(meminfo(text), Some(18_000_000 * 1024));
        assert_eq!(meminfo("MemTotal: 3 kB"), None);
        assert_eq!(meminfo("MemAvailable: x kB"), None);
    }
}
