//! Numbers and lines of reports.

use std::io;

use crate::terminal;

/// A float as the shortest decimal that names it, so that an `f32` is not shown with an `f64`'s digits;
/// what JSON has no number for becomes text.
pub(super) fn shortest(v: f32) -> serde_json::Value {
    let text = format!("{v:?}");
    match text.parse::<f64>() {
        Ok(wide) if wide.is_finite() => wide.into(),
        _ => text.into(),
    }
}

/// Writes one line, on several where it is wider than the terminal; kept apart so that every report line ends in the same
/// way.
pub(super) fn line(out: &mut dyn io::Write, text: &str) -> io::Result<()> {
    let lines = terminal::lines(text.trim_end(), terminal::columns(&io::stdout()), 4);
    lines.iter().try_for_each(|line| writeln!(out, "{line}"))
}
