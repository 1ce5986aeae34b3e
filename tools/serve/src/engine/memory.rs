//! How much memory there is.

use std::fs;

/// Bytes that the program may still take: what the system says is available, within the limits of the control group
/// it runs in and of its address space. `None` where the system does not say.
pub fn available() -> Option<usize> {
    let system = meminfo(&fs::read_to_string("/proc/meminfo").ok()?)?;
    let limits = [cgroup(), address_space()];
    Some(limits.into_iter().flatten().fold(system, usize::min))
}

/// Bytes that the limit of the address space leaves, as `ulimit -v` sets it.
fn address_space() -> Option<usize> {
    let most = soft_limit(&fs::read_to_string("/proc/self/limits").ok()?)?;
    let pages = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: usize = pages.split(' ').next()?.parse().ok()?;
    Some(most.saturating_sub(pages * 4096))
}

/// The soft limit of the address space in /proc/self/limits; `None` without one.
fn soft_limit(text: &str) -> Option<usize> {
    let line = text.lines().find_map(|l| l.strip_prefix("Max address space"))?;
    line.split_whitespace().next()?.parse().ok()
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
    use super::{meminfo, soft_limit};

    #[test]
    fn the_line_of_limits() {
        let line = |soft| format!("Max stack size 1 2 bytes\nMax address space {soft:>20} unlimited bytes\n");
        assert_eq!(soft_limit(&line("4000000000")), Some(4_000_000_000));
        assert_eq!(soft_limit(&line("unlimited")), None);
    }

    #[test]
    fn the_line_of_meminfo() {
        let text = "MemTotal:       24000000 kB\nMemAvailable:   18000000 kB\nBuffers: 1 kB\n";
        assert_eq!(meminfo(text), Some(18_000_000 * 1024));
        assert_eq!(meminfo("MemTotal: 3 kB"), None);
        assert_eq!(meminfo("MemAvailable: x kB"), None);
    }
}
