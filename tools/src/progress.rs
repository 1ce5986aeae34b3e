//! Progress on standard error: bars on a terminal, and lines that say how long the work will take.

use std::fmt;
use std::io::{self, IsTerminal as _};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle, WeakProgressBar};

use crate::shown;

/// The bar on the screen, if there is one.
static SHOWN: Mutex<Option<WeakProgressBar>> = Mutex::new(None);

/// The widest bar, and what stands beside it at least.
const WIDEST: u16 = 30;
const BESIDE: u16 = 36;

/// A bar of `total` steps; `beside` is in indicatif's language, and `{tokens_per_sec}` is one of its words. It hides
/// itself where standard error is no terminal. What is written meanwhile stands above it, if that is whole lines.
pub fn bar(total: u64, beside: &str) -> ProgressBar {
    let (_, columns) = console::Term::stderr().size();
    let width = columns.saturating_sub(BESIDE);
    let template = format!("{{bar:{}}} {beside}", width.clamp(4, WIDEST));
    let style = ProgressStyle::with_template(&template).unwrap_or_else(|_| ProgressStyle::default_bar());
    let rate = |state: &ProgressState, out: &mut dyn fmt::Write| {
        let _ = write!(out, "{:.0} tokens/s", state.per_sec());
    };
    let style = style.with_key("tokens_per_sec", rate);
    let bar = ProgressBar::new(total).with_style(style);
    *SHOWN.lock().unwrap_or_else(PoisonError::into_inner) = Some(bar.downgrade());
    bar
}

/// The bar on the screen.
fn on_screen(last: Option<&WeakProgressBar>) -> Option<ProgressBar> {
    let bar = last?.upgrade()?;
    (!bar.is_hidden() && !bar.is_finished()).then_some(bar)
}

/// Writes to the terminal: a bar makes room and comes back below.
pub fn above<T>(write: impl FnOnce() -> T) -> T {
    let last = SHOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let bar = on_screen(last.as_ref());
    drop(last);
    match bar {
        Some(bar) => bar.suspend(write),
        None => write(),
    }
}

/// True if a bar is on the screen, as far as that can be known without waiting for anybody.
pub fn is_shown() -> bool {
    let last = SHOWN.try_lock();
    last.is_ok_and(|last| on_screen(last.as_ref()).is_some())
}

/// A bar that counts bytes and says how long the rest will take.
pub fn byte_bar(total: u64) -> ProgressBar {
    bar(total, "{percent:>3}% {decimal_bytes}/{decimal_total_bytes} {decimal_bytes_per_sec} ETA {eta} {wide_msg}")
}

/// Hides a bar where results go to the same screen that are no whole lines: they say how far the work is.
pub fn leave_to_results(bar: &ProgressBar) {
    if io::stdout().is_terminal() {
        bar.finish_and_clear();
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
}

/// Says what `left` steps, each a `unit`, will take if all take as long as `one`.
pub fn expect(unit: &str, one: Duration, left: usize) {
    let all = one * u32::try_from(left).unwrap_or(u32::MAX);
    let seconds = one.as_secs_f64();
    note!("{seconds:.2} seconds per {unit} - ETA {}", HumanDuration(all));
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
        let beside = format!("{{pos}}/{{len}} {unit}s, ETA {{eta}} {{wide_msg}}");
        let bar = bar(total as u64, &beside);
        bar.set_position(first as u64);
        bar.reset_eta();
        Steps { unit, start: Instant::now(), is_expected: false, first, total, bar }
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

    /// The same beside results that are no whole lines: on their screen there is no bar.
    pub fn with_results(self) -> Steps {
        leave_to_results(&self.bar);
        self
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
            note!("{}", line());
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

/// A size for people, in the units that hubs and folders show files in: `66.3 MB` is 66.3 million bytes.
pub fn human_bytes(bytes: u64) -> String {
    let units = ["kB", "MB", "GB", "TB"];
    let mut value = bytes as f64 / 1000.0;
    let mut unit = 0;
    while value >= 1000.0 && unit + 1 < units.len() {
        value /= 1000.0;
        unit += 1;
    }
    if bytes < 1000 { format!("{bytes} B") } else { format!("{value:.1} {}", units[unit]) }
}

#[cfg(test)]
mod tests {
    use super::human_bytes;

    #[test]
    fn sizes() {
        assert_eq!(human_bytes(999), "999 B");
        assert_eq!(human_bytes(1000), "1.0 kB");
        assert_eq!(human_bytes(81_849_344), "81.8 MB");
        assert_eq!(human_bytes(5_000_000_000_000_000), "5000.0 TB");
    }
}
