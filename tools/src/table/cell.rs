//! The cells of a row, and the signs between them.

/// The place of a cell in the narrow form; the wide one has all cells side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
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
    pub(super) head: &'static str,
    /// Least width of its column; longer texts take more, unless they may be cut.
    pub(super) width: usize,
    pub(super) is_right: bool,
    pub(super) place: Place,
    /// The width to which the narrow form may cut its text.
    pub(super) least: Option<usize>,
    pub(super) text: String,
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
    pub(super) fn around(self, cells: usize) -> usize {
        match self {
            Form::Spaces(indent) => indent + 2 * cells.saturating_sub(1),
            Form::Markdown => 3 * cells + 1,
        }
    }

    pub(super) fn line(self, texts: &[String]) -> String {
        match self {
            Form::Spaces(indent) => {
                let line = format!("{}{}", " ".repeat(indent), texts.join("  "));
                line.trim_end().to_owned()
            }
            Form::Markdown => format!("| {} |", texts.join(" | ")),
        }
    }
}
