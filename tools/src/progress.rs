//! Progress on standard error: bars on a terminal, and lines that say how long the work will take.

use std::time::{Duration, Instant};

use indicatif::{HumanDuration, ProgressBar, ProgressStyle};

use crate::shown;

/// A bar of `total` steps in indicatif's language; it hides itself where standard error is no terminal.
pub fn bar(total: u64, template: &str) -> ProgressBar {
    let style =
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(total).with_style(style)
}

/// A bar that counts bytes and says how long the rest will take.
pub fn byte_bar(total: u64) -> ProgressBar {
    bar(
        total,
        "{bar:30} {percent:>3}% {bytes}/{total_bytes} {bytes_per_sec} ETA {eta} {wide_msg}",
    )
}

/// Says what `left` steps, each a `unit`, will take if all take as long as `one`.
pub fn expect(unit: &str, one: Duration, left: usize) {
    let all = one * u32::try_from(left).unwrap_or(u32::MAX);
    let seconds = one.as_secs_f64();
    note!(
        "{seconds:.2} seconds per {unit} - ETA {}",
        HumanDuration(all)
    );
}

/// Counts steps such as chunks of a text. The first say how long all of them will take.
pub struct Steps {
    unit: &'static str,
    start: Instant,
    is_expected: bool,
    first: usize,
    total: usize,
    bar: ProgressBar,
}

impl Steps {
    /// `total` steps, each a `unit`.
    pub fn new(unit: &'static str, total: usize) -> Steps {
        Steps::after(unit, 0, total)
    }

    /// The same, where an earlier run has done the `first` ones.
    pub fn after(unit: &'static str, first: usize, total: usize) -> Steps {
        let template = format!("{{bar:30}} {{pos}}/{{len}} {unit}s, ETA {{eta}} {{wide_msg}}");
        let bar = bar(total as u64, &template);
        bar.set_position(first as u64);
        bar.reset_eta();
        Steps {
            unit,
            start: Instant::now(),
            is_expected: false,
            first,
            total,
            bar,
        }
    }

    /// `done` steps are done, those of earlier runs included.
    pub fn tick(&mut self, done: usize) {
        if !self.is_expected && done > self.first {
            self.is_expected = true;
            let steps = u32::try_from(done - self.first).unwrap_or(u32::MAX);
            let one = self.start.elapsed() / steps;
            expect(self.unit, one, self.total - self.first);
        }
        self.bar.set_position(done as u64);
    }

    /// Shows `text` beside the bar.
    pub fn say(&self, text: String) {
        self.bar.set_message(text);
    }

    /// There are no more steps, or they are not waited for.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// Counts the bytes of tensors, beside the name of the one that is worked on.
pub struct TensorBar {
    bar: ProgressBar,
    verbose: bool,
}

impl TensorBar {
    /// `total` bytes; `verbose` gives every tensor a line that stays.
    pub fn new(total: u64, verbose: bool) -> TensorBar {
        let bar = byte_bar(total);
        TensorBar { bar, verbose }
    }

    /// The work on tensor `name` begins; `line` is what is said of it.
    pub fn tensor(&self, name: &str, line: impl FnOnce() -> String) {
        self.bar.set_message(shown::name(name));
        if self.verbose {
            self.bar.suspend(|| note!("{}", line()));
        }
    }

    /// `bytes` more are done.
    pub fn advance(&self, bytes: u64) {
        self.bar.inc(bytes);
    }

    /// The work is over.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// A size for people: `66.3 MiB`.
pub fn human_bytes(bytes: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if bytes < 1024 {
        format!("{bytes} B")
    } else {
        format!("{value:.1} {}", units[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::human_bytes;

    #[test]
    fn sizes() {
        assert_eq!(human_bytes(1023), "1023 B");
        assert_eq!(human_bytes(1024), "1.0 KiB");
        assert_eq!(human_bytes(81_849_344), "78.1 MiB");
        assert_eq!(human_bytes(5 << 40), "5.0 TiB");
    }
}
