//! The legend of the colours, above the panels.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::super::entry::Entry;
use super::labels::extent;
use crate::drawing::{Canvas, Failure, GREY, MARGIN, TEXT, colour, text};

/// Height of a line of the legend, and length of the strokes in it.
const LINE: i32 = 22;
const STROKE: i32 = 26;

/// An entry of the legend.
pub struct Key {
    text: String,
    /// The file, `None` for the reference.
    file: Option<usize>,
    line: i32,
    left: i32,
}

/// The entries of the files `used` and of the reference, as many to a line as fit into `width`.
pub fn legend(entries: &[Entry], reference: &str, labels: &[String], used: &[usize], width: i32) -> Vec<Key> {
    let first = entries.iter().find(|e| e.file.is_none()).map(|e| {
        let mut text =
            format!("{reference} (reference): perplexity {:.4}, {:.2} bits per weight", e.ppl.value, e.bits_per_weight);
        if let Some(rate) = e.generation {
            text += &format!(", {rate:.1} tokens per second");
        }
        (None, text)
    });
    let files = used.iter().map(|&i| (Some(i), labels[i].clone()));
    let (mut line, mut left) = (0, 0);
    let mut keys = Vec::new();
    for (file, text) in first.into_iter().chain(files) {
        let wide = STROKE + 8 + extent(&text, TEXT).0 + 24;
        if left > 0 && left + wide > width {
            (line, left) = (line + 1, 0);
        }
        keys.push(Key { text, file, line, left });
        left += wide;
    }
    keys
}

/// Height of all lines, in pixels.
pub fn height(keys: &[Key]) -> i32 {
    keys.last().map_or(0, |k| (k.line + 1) * LINE)
}

impl Key {
    /// Draws it into the head, whose keys begin at `top`.
    ///
    /// # Errors
    /// The drawing library's.
    pub fn draw(&self, area: &Canvas<'_>, top: i32) -> Result<(), Failure> {
        let (left, middle) = (MARGIN + self.left, top + self.line * LINE + LINE / 2);
        let stroke = |from: i32, to: i32, style: ShapeStyle| {
            PathElement::new(vec![(left + from, middle), (left + to, middle)], style)
        };
        match self.file {
            Some(file) => {
                let colour = colour(file);
                area.draw(&stroke(0, STROKE, colour.stroke_width(2)))?;
                area.draw(&Circle::new((left + STROKE / 2, middle), 4, colour.filled()))?;
            }
            None => {
                for from in [0, 10, 20] {
                    area.draw(&stroke(from, from + 6, GREY.stroke_width(1)))?;
                }
            }
        }
        let style = text(TEXT, &BLACK, HPos::Left, VPos::Center);
        area.draw(&Text::new(self.text.clone(), (left + STROKE + 8, middle), style))?;
        Ok(())
    }
}
