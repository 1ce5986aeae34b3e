//! How many threads are worth starting.

use std::collections::HashSet;

/// Threads to use: as many as `wanted`, else one per physical core, but not more than the processors that this
/// process may use (its affinity and control group): threads that wait for each other's turn on a processor only hold
/// each other up. Where the system does not tell, as in a browser, who asks for threads knows better.
pub fn usable_threads(wanted: Option<usize>) -> usize {
    let allowed = std::thread::available_parallelism().ok().map(usize::from);
    let wanted = wanted.or_else(physical_cores).or(allowed).unwrap_or(1);
    wanted.clamp(1, allowed.unwrap_or(usize::MAX))
}

/// Distinct cores in Linux's list of processors; `None` where there is no such list.
fn physical_cores() -> Option<usize> {
    let list = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let field = |entry: &str, name: &str| {
        let line = entry.lines().find(|l| l.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let cores: HashSet<_> =
        list.split("\n\n").filter_map(|e| Some((field(e, "physical id")?, field(e, "core id")?))).collect();
    Some(cores.len()).filter(|&n| n > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_least_one_thread_and_no_more_than_processors() {
        let allowed = std::thread::available_parallelism().map_or(1, usize::from);
        assert_eq!(usable_threads(Some(0)), 1);
        assert_eq!(usable_threads(Some(1)), 1);
        assert_eq!(usable_threads(Some(100_000)), allowed);
        assert!((1..=allowed).contains(&usable_threads(None)));
    }
}
