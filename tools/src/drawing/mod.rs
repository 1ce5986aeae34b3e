//! Common parts of pictures: axes, colours, texts.

mod axis;

use std::error::Error;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

pub use axis::Axis;

/// Pixels around the head.
pub const MARGIN: i32 = 20;

/// Height of a title, in pixels.
pub const TITLE: i32 = 18;
/// Height of texts, in pixels.
pub const TEXT: i32 = 14;
/// Height of labels, in pixels.
pub const SMALL: i32 = 12;

/// Colour of axes and of the text beside them.
pub const GREY: RGBColor = RGBColor(90, 90, 90);
/// Colour of the lines of a grid.
pub const PALE: RGBColor = RGBColor(225, 225, 225);

/// Told apart by most eyes (Okabe and Ito 2008).
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(120, 94, 240),
];

/// The area to draw on.
pub type Canvas<'a> = DrawingArea<SVGBackend<'a>, Shift>;
/// Errors of the drawing library.
pub type Failure = Box<dyn Error + Send + Sync>;

/// A text without the characters that XML cannot hold or that would be invisible; each is replaced.
pub fn printable(text: &str) -> String {
    let shown = |c: char| !c.is_control() && !matches!(c, '\u{fffe}' | '\u{ffff}');
    text.chars().map(|c| if shown(c) { c } else { '\u{fffd}' }).collect()
}

/// The colour of the file, or series, of this number.
pub fn colour(file: usize) -> RGBColor {
    match COLOURS.get(file) {
        Some(colour) => *colour,
        None => {
            // steps of the golden ratio come near to no earlier hue for long
            let hue = (file as f64 * 0.618_033_988_749_895).fract();
            let (r, g, b) = HSLColor(hue, 0.6, 0.4).rgb();
            RGBColor(r, g, b)
        }
    }
}

/// A text's style; the library divides sizes by 1.24.
pub fn text(size: i32, colour: &RGBColor, h: HPos, v: VPos) -> TextStyle<'static> {
    ("sans-serif", f64::from(size) * 1.24).into_font().color(colour).pos(Pos::new(h, v))
}
