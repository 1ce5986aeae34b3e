//! The table, for people or as comma-separated values: a line appears when its file and width are done.

use std::io::{self, Write};

use super::entry::Entry;
use crate::shown;
use crate::table::{self, Cell, Form};

/// Columns after the name: what they are called, how wide they are, and their names for programs.
const COLUMNS: [(&str, usize, &str); 13] = [
    ("bits", 4, "bits"),
    ("MB", 8, "megabytes"),
    ("bits/w", 7, "bits_per_weight"),
    ("in blocks", 9, "block_bits_per_weight"),
    ("PPL", 9, "ppl"),
    ("+/-", 8, "ppl_error"),
    ("ln ratio", 8, "ln_ppl_ratio"),
    ("KLD", 8, "kld"),
    ("+/-", 8, "kld_error"),
    ("99.9 %", 8, "kld_999"),
    ("top %", 7, "same_top_percent"),
    ("prompt t/s", 10, "prompt_tokens_per_second"),
    ("decode t/s", 10, "decode_tokens_per_second"),
];

/// Style of the lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Columns of equal width.
    Columns,
    /// Commas (RFC 4180), all columns, nothing where there is no value.
    Csv,
}

/// Writes lines.
pub struct Table<W: Write> {
    out: W,
    /// Width of the column of names.
    names: usize,
    speed: bool,
    style: Style,
    people: table::Table,
}

impl<W: Write> Table<W> {
    /// Begins the table; `names` are those of all lines, `speed` says whether the last column is there.
    ///
    /// # Errors
    /// The output is closed.
    pub fn new<'a>(
        mut out: W,
        names: impl Iterator<Item = &'a str>,
        speed: bool,
        style: Style,
    ) -> io::Result<Table<W>> {
        let names = names.map(|n| shown::name(n).chars().count()).max().unwrap_or(0).max(4);
        if style == Style::Csv {
            writeln!(out, "file,{}", COLUMNS.map(|(_, _, name)| name).join(","))?;
            out.flush()?;
        }
        Ok(Table { out, names, speed, style, people: table::Table::new(Form::Spaces(0)) })
    }

    /// Writes a line.
    ///
    /// # Errors
    /// The output is closed.
    pub fn row(&mut self, e: &Entry) -> io::Result<()> {
        let none = match self.style {
            Style::Columns => "-",
            Style::Csv => "",
        };
        let or_none = |v: Option<String>| v.unwrap_or_else(|| none.to_owned());
        let texts = [
            or_none(e.footprint.bits.map(|b| b.to_string())),
            format!("{:.2}", e.footprint.bytes as f64 / 1e6),
            format!("{:.4}", e.bits_per_weight),
            or_none(e.footprint.block_bits().map(|b| format!("{b:.4}"))),
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
        if self.style == Style::Csv {
            writeln!(self.out, "{},{}", quoted(&e.name), texts.join(","))?;
            return self.out.flush();
        }
        let shown = COLUMNS.len() - usize::from(!self.speed);
        let numbers = texts.into_iter().zip(COLUMNS).take(shown);
        let numbers = numbers.map(|(text, (head, width, _))| Cell::right(head, width, text));
        let mut cells = vec![Cell::left("file", self.names, shown::name(&e.name)).key().cut_to(20)];
        cells.extend(numbers);
        // The width belongs to the name.
        cells[1] = cells[1].clone().key();
        self.people.row(&cells, &mut self.out)
    }

    /// Writes the columns for which the first lines had no room.
    ///
    /// # Errors
    /// The output is closed.
    pub fn finish(mut self) -> io::Result<()> {
        self.people.finish(&mut self.out)
    }
}

/// A text as a field: in quotes where it has to be.
fn quoted(text: &str) -> String {
    if text.contains(['"', ',', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_commas_stay_one_field() {
        assert_eq!(quoted("a.gguf"), "a.gguf");
        assert_eq!(quoted("a,\"b\".gguf"), "\"a,\"\"b\"\".gguf\"");
    }
}
