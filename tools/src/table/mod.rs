//! Tables for people. A table that is wider than the terminal, or than 80 columns in files and pipes, is written in its
//! narrow form: texts that are the same in all rows stand above it, long names lose their middle, and columns for which
//! there is no room follow in further tables with the same keys.

mod layout;

use std::io::{self, Write};

use crate::terminal;
use layout::{Layout, Part};

/// Columns of a line that goes to no terminal.
pub const COLUMNS: usize = 80;

/// Columns that a line on standard output may have.
pub fn columns() -> usize {
    terminal::columns(&io::stdout()).unwrap_or(COLUMNS)
}

/// The place of a cell in the narrow form; the wide one has all cells side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// In the first table that has room.
    Value,
    /// In every table, at its left.
    Key,
    /// Above the tables, as often as it changes.
    Above,
    /// On a line of its own below the row.
    Below,
    /// Nowhere: other forms of the output have it.
    Nowhere,
}

/// One cell of a row.
#[derive(Clone, Debug)]
pub struct Cell {
    head: &'static str,
    /// Least width of its column; longer texts take more, unless they may be cut.
    width: usize,
    is_right: bool,
    place: Place,
    /// The width to which the narrow form may cut its text.
    least: Option<usize>,
    text: String,
}

impl Cell {
    /// A text, set to the left of a column of at least `width`.
    pub fn left(head: &'static str, width: usize, text: impl Into<String>) -> Cell {
        Cell { head, width, is_right: false, place: Place::Value, least: None, text: text.into() }
    }

    /// A number, set to the right of a column of at least `width`.
    pub fn right(head: &'static str, width: usize, text: impl Into<String>) -> Cell {
        Cell { is_right: true, ..Cell::left(head, width, text) }
    }

    /// The narrow form repeats it in every table: it tells rows apart.
    pub fn key(self) -> Cell {
        Cell { place: Place::Key, ..self }
    }

    /// The narrow form has it above the table: it is the same in many rows.
    pub fn above(self) -> Cell {
        Cell { place: Place::Above, ..self }
    }

    /// The narrow form has it on a line below the row: it is wide, and wanted whole.
    pub fn below(self) -> Cell {
        Cell { place: Place::Below, ..self }
    }

    /// The narrow form leaves it out: JSON has it.
    pub fn wide_only(self) -> Cell {
        Cell { place: Place::Nowhere, ..self }
    }

    /// The narrow form may cut its text to `least` characters, in the middle.
    pub fn cut_to(self, least: usize) -> Cell {
        Cell { least: Some(least), ..self }
    }
}

/// The signs between cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Spaces, after so many at the beginning of a line.
    Spaces(usize),
    /// Those of a table in Markdown.
    Markdown,
}

impl Form {
    /// Columns of a line beside its cells.
    fn around(self, cells: usize) -> usize {
        match self {
            Form::Spaces(indent) => indent + 2 * cells.saturating_sub(1),
            Form::Markdown => 3 * cells + 1,
        }
    }

    fn line(self, texts: &[String]) -> String {
        match self {
            Form::Spaces(indent) => {
                let line = format!("{}{}", " ".repeat(indent), texts.join("  "));
                line.trim_end().to_owned()
            }
            Form::Markdown => format!("| {} |", texts.join(" | ")),
        }
    }
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

#[cfg(test)]
mod tests;
