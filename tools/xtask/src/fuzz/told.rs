//! Reads libFuzzer's standard error.

/// The sums of a run.
#[derive(Debug, Default, PartialEq)]
pub struct Told {
    pub executions: u64,
    pub per_second: u64,
    /// Edges between basic blocks that were reached.
    pub coverage: u64,
    /// Features: edges, and how often they were taken, what was compared, and the like.
    pub features: u64,
    /// The file with the input of a crash.
    pub crash: Option<String>,
}

impl Told {
    /// Reads a log. Numbers of which it says nothing are 0.
    pub fn of(log: &str) -> Told {
        let mut told = Told::default();
        for line in log.lines() {
            let stat = |name| line.strip_prefix("stat::")?.strip_prefix(name)?.trim().parse().ok();
            if let Some(number) = stat("number_of_executed_units:") {
                told.executions = number;
            } else if let Some(number) = stat("average_exec_per_sec:") {
                told.per_second = number;
            } else if let Some((_, path)) = line.split_once("Test unit written to ") {
                told.crash = Some(path.trim().to_owned());
            } else if line.starts_with('#') {
                let number = |name| line.split_whitespace().skip_while(|word| *word != name).nth(1)?.parse().ok();
                told.coverage = number("cov:").unwrap_or(told.coverage);
                told.features = number("ft:").unwrap_or(told.features);
            }
        }
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sums_of_a_run() {
        let log = "INFO: Seed: 1\n#2\tINITED cov: 17 ft: 18 corp: 1/1b exec/s: 0 rss: 40Mb\n\
            #4096\tpulse  cov: 1024 ft: 90 corp: 9/22b lim: 43 exec/s: 2048 rss: 44Mb\n#5000\tDONE   no numbers\n\
            stat::number_of_executed_units: 5000\nstat::average_exec_per_sec:     2500\nstat::new_units_added: 8\n";
        let sums = Told { executions: 5000, per_second: 2500, coverage: 1024, features: 90, crash: None };
        assert_eq!(Told::of(log), sums);
        let log = "==1== ERROR: libFuzzer: deadly signal\nartifact_prefix='a/'; Test unit written to a/crash-12\n";
        assert_eq!(Told::of(log).crash.as_deref(), Some("a/crash-12"));
    }
}
