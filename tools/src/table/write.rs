//! Rows as they come, in either form.

use std::io::{self, Write};

use super::cell::{Cell, Form};
use super::layout::{self, Layout, Part};
use crate::terminal;

/// Columns of a line that goes to no terminal.
const COLUMNS: usize = 80;

/// Columns that a line on standard output may have.
pub fn columns() -> usize {
    terminal::columns(&io::stdout()).unwrap_or(COLUMNS)
}

/// Writes rows as they come. The narrow form keeps what has no room in the first table until [`Table::finish`].
pub struct Table {
    form: Form,
    columns: usize,
    layout: Option<Layout>,
    /// The texts above the current table.
    above: Vec<String>,
    /// The lines of the tables after the first.
    later: Vec<Vec<String>>,
    rows: usize,
}

impl Table {
    /// A table on standard output.
    pub fn new(form: Form) -> Table {
        Table::within(form, columns())
    }

    /// A table whose lines have at most `columns` columns where that can be.
    pub fn within(form: Form, columns: usize) -> Table {
        Table { form, columns, layout: None, above: Vec::new(), later: Vec::new(), rows: 0 }
    }

    /// Writes a row, with the heads before the first. All rows have the cells of the first.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn row(&mut self, cells: &[Cell], out: &mut dyn Write) -> io::Result<()> {
        let layout = match self.layout.take() {
            Some(layout) => layout,
            None => Layout::of(cells, self.form, self.columns),
        };
        let above: Vec<String> = layout.above.iter().map(|&i| cells[i].text.clone()).collect();
        if self.rows == 0 || above != self.above {
            if self.rows > 0 {
                self.rest(out)?;
                writeln!(out)?;
            }
            if !above.is_empty() {
                let words = layout.above.iter().map(|&i| format!("{} {}", cells[i].head, cells[i].text));
                let line = words.collect::<Vec<_>>().join(", ");
                for line in terminal::lines(&line, Some(self.columns), 2) {
                    writeln!(out, "{line}")?;
                }
                writeln!(out)?;
            }
            self.later = vec![Vec::new(); layout.parts.len().saturating_sub(1)];
            for (i, part) in layout.parts.iter().enumerate() {
                for line in self.heads(cells, part) {
                    match i.checked_sub(1) {
                        None => writeln!(out, "{line}")?,
                        Some(later) => self.later[later].push(line),
                    }
                }
            }
            self.above = above;
        }
        self.rows += 1;
        for (i, part) in layout.parts.iter().enumerate() {
            let line = self.form.line(&part.texts(cells));
            match i.checked_sub(1) {
                None => writeln!(out, "{line}")?,
                Some(later) => self.later[later].push(line),
            }
        }
        for &i in &layout.below {
            writeln!(out, "      {} {}", cells[i].head, cells[i].text)?;
        }
        self.layout = Some(layout);
        out.flush()
    }

    /// Writes the rest of the narrow form.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn finish(mut self, out: &mut dyn Write) -> io::Result<()> {
        self.rest(out)?;
        out.flush()
    }

    fn rest(&mut self, out: &mut dyn Write) -> io::Result<()> {
        for lines in std::mem::take(&mut self.later) {
            writeln!(out)?;
            lines.iter().try_for_each(|line| writeln!(out, "{line}"))?;
        }
        Ok(())
    }

    fn heads(&self, cells: &[Cell], part: &Part) -> Vec<String> {
        let mut lines = vec![self.form.line(&part.heads(cells))];
        if self.form == Form::Markdown {
            lines.push(self.form.line(&part.rules(cells)));
        }
        lines
    }
}

/// Writes a table of which all rows are known, with columns as wide as their texts.
///
/// # Errors
/// Those of `out`.
pub fn write(form: Form, mut rows: Vec<Vec<Cell>>, out: &mut dyn Write) -> io::Result<()> {
    let cells = rows.first().map_or(0, Vec::len);
    for i in 0..cells {
        let width = rows.iter().map(|row| layout::width(&row[i].text)).max().unwrap_or(0);
        rows.iter_mut().for_each(|row| row[i].width = width);
    }
    let mut table = Table::new(form);
    rows.iter().try_for_each(|row| table.row(row, out))?;
    table.finish(out)
}

/// A row as a line on standard error without heads, behind its number from 1 among `total`.
pub fn counted(index: usize, total: usize, cells: &[Cell]) -> String {
    let count = format!("[{:>4}/{total}] ", index + 1);
    let columns = terminal::columns(&io::stderr()).unwrap_or(COLUMNS).saturating_sub(count.len());
    let layout = Layout::of(cells, Form::Spaces(0), columns);
    layout.parts.first().map_or(String::new(), |part| count + &Form::Spaces(0).line(&part.texts(cells)))
}
