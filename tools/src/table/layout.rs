//! How the cells of a row are divided among tables.

use super::cell::{Cell, Form, Place};

/// Columns of a text on the screen.
pub fn width(text: &str) -> usize {
    console::measure_text_width(text)
}

/// A table: its cells, by their places in the row, with their widths.
pub struct Part(Vec<(usize, usize)>);

/// The places of the cells of a row.
pub struct Layout {
    pub above: Vec<usize>,
    pub below: Vec<usize>,
    /// At least one.
    pub parts: Vec<Part>,
}

impl Layout {
    /// The wide form if it fits, or else the narrow one.
    pub fn of(cells: &[Cell], form: Form, columns: usize) -> Layout {
        let all: Vec<usize> = (0..cells.len()).collect();
        let whole = all.iter().map(|&i| own(&cells[i])).sum::<usize>() + form.around(all.len());
        if whole <= columns {
            let part = Part(all.iter().map(|&i| (i, own(&cells[i]))).collect());
            return Layout { above: Vec::new(), below: Vec::new(), parts: vec![part] };
        }
        let at = |place: Place| all.iter().copied().filter(move |&i| cells[i].place == place);
        let keys: Vec<usize> = at(Place::Key).collect();
        let mut tables: Vec<Vec<usize>> = Vec::new();
        for value in at(Place::Value) {
            let with = |table: &[usize]| table.iter().chain([&value]).map(|&i| least(&cells[i])).sum::<usize>();
            match tables.last_mut() {
                Some(table) if with(table) + form.around(table.len() + 1) <= columns => table.push(value),
                _ => tables.push(keys.iter().copied().chain([value]).collect()),
            }
        }
        if tables.is_empty() {
            tables.push(keys);
        }
        let parts = tables.into_iter().map(|table| Part::of(cells, table, form, columns)).collect();
        Layout { above: at(Place::Above).collect(), below: at(Place::Below).collect(), parts }
    }
}

/// The width of a cell that nobody cuts.
fn own(cell: &Cell) -> usize {
    cell.width.max(width(cell.head)).max(width(&cell.text))
}

/// The width that a cell needs.
fn least(cell: &Cell) -> usize {
    let whole = cell.width.max(width(cell.head));
    cell.least.map_or(whole, |least| whole.min(least.max(width(cell.head))))
}

impl Part {
    /// Shares what is left of the columns among the cells that may be cut, in their order.
    fn of(cells: &[Cell], table: Vec<usize>, form: Form, columns: usize) -> Part {
        let taken = table.iter().map(|&i| least(&cells[i])).sum::<usize>() + form.around(table.len());
        let mut left = columns.saturating_sub(taken);
        let widths = table.into_iter().map(|i| {
            let more = (cells[i].width.max(least(&cells[i])) - least(&cells[i])).min(left);
            left -= more;
            (i, least(&cells[i]) + more)
        });
        Part(widths.collect())
    }

    /// The texts of a row, each filled up to its width.
    pub fn texts(&self, cells: &[Cell]) -> Vec<String> {
        let texts = self.0.iter().map(|&(i, columns)| {
            let cell = &cells[i];
            match cell.least {
                Some(_) => pad(&cut(&cell.text, columns), columns, cell.is_right),
                None => pad(&cell.text, columns, cell.is_right),
            }
        });
        texts.collect()
    }

    /// The heads of the columns.
    pub fn heads(&self, cells: &[Cell]) -> Vec<String> {
        self.0.iter().map(|&(i, columns)| pad(cells[i].head, columns, cells[i].is_right)).collect()
    }

    /// The line of Markdown between heads and rows.
    pub fn rules(&self, cells: &[Cell]) -> Vec<String> {
        let rules = self.0.iter().map(|&(i, columns)| match cells[i].is_right {
            true => format!("{}:", "-".repeat(columns.saturating_sub(1))),
            false => "-".repeat(columns),
        });
        rules.collect()
    }
}

fn pad(text: &str, columns: usize, is_right: bool) -> String {
    let spaces = " ".repeat(columns.saturating_sub(width(text)));
    if is_right { spaces + text } else { text.to_owned() + &spaces }
}

/// A text of at most `columns` columns: without its middle where it is longer.
fn cut(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let room = columns.saturating_sub(1);
    let (mut head, mut tail) = (String::new(), String::new());
    for c in text.chars() {
        if width(&head) + width(c.encode_utf8(&mut [0; 4])) > room.div_ceil(2) {
            break;
        }
        head.push(c);
    }
    for c in text.chars().rev() {
        if width(&head) + width(&tail) + width(c.encode_utf8(&mut [0; 4])) > room {
            break;
        }
        tail.insert(0, c);
    }
    format!("{head}…{tail}")
}
