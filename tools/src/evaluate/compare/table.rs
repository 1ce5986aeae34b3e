//! The table: a line appears when its file and width are done.

use std::io::{self, Write};

use super::entry::Entry;
use crate::shown;

/// Columns after the name: what they are called and how wide they are.
const COLUMNS: [(&str, usize); 13] = [
    ("bits", 4),
    ("MiB", 9),
    ("bits/weight", 11),
    ("in blocks", 9),
    ("PPL", 10),
    ("+/-", 9),
    ("ln ratio", 9),
    ("KLD", 9),
    ("+/-", 9),
    ("99.9% KLD", 10),
    ("same top %", 10),
    ("prompt t/s", 10),
    ("decode t/s", 10),
];

/// Writes lines.
pub struct Table<W: Write> {
    out: W,
    /// Width of the column of names.
    names: usize,
    speed: bool,
}

impl<W: Write> Table<W> {
    /// Writes the head; `names` are those of all lines, `speed` says whether the last column is there.
    ///
    /// # Errors
    /// The output is closed.
    pub fn new<'a>(
        out: W,
        names: impl Iterator<Item = &'a str>,
        speed: bool,
    ) -> io::Result<Table<W>> {
        let names = names
            .map(|n| shown::name(n).chars().count())
            .max()
            .unwrap_or(0)
            .max(4);
        let mut table = Table { out, names, speed };
        table.line("file", &COLUMNS.map(|(name, _)| name.to_owned()))?;
        Ok(table)
    }

    /// Writes a line.
    ///
    /// # Errors
    /// The output is closed.
    pub fn row(&mut self, e: &Entry) -> io::Result<()> {
        let or_none = |v: Option<String>| v.unwrap_or_else(|| "-".to_owned());
        let cells = [
            or_none(e.form.bits.map(|b| b.to_string())),
            format!("{:.2}", e.form.bytes as f64 / f64::from(1 << 20)),
            format!("{:.4}", e.bits_per_weight),
            or_none(e.form.block_bits().map(|b| format!("{b:.4}"))),
            format!("{:.4}", e.ppl.value),
            format!("{:.5}", e.ppl.error),
            format!("{:.5}", e.log_ratio.value),
            format!("{:.6}", e.kld.value),
            format!("{:.6}", e.kld.error),
            format!("{:.6}", e.kld_999),
            format!("{:.3}", 100.0 * e.same_top.value),
            or_none(e.prompt.map(|r| format!("{r:.1}"))),
            or_none(e.generation.map(|r| format!("{r:.2}"))),
        ];
        self.line(&e.name, &cells)
    }

    fn line(&mut self, name: &str, cells: &[String; COLUMNS.len()]) -> io::Result<()> {
        let shown = COLUMNS.len() - usize::from(!self.speed);
        let mut line = format!("{:<width$}", shown::name(name), width = self.names);
        for (cell, (_, width)) in cells[..shown].iter().zip(COLUMNS) {
            line.push_str(&format!(" {cell:>width$}"));
        }
        writeln!(self.out, "{line}")?;
        self.out.flush()
    }
}
