//! Messages about a model and a run.

use trine::{Context, Model};

use super::draft;
use super::timings::Timings;

/// At which width an any-precision model runs, and at which it could.
pub(super) fn widths(model: &Model, bits: u8) -> String {
    let list = |widths: &[u8]| {
        let widths: Vec<String> = widths.iter().map(u8::to_string).collect();
        widths.join(", ")
    };
    let there = model.weights().widths();
    let mut text = format!("any-precision: {bits} bits, of {}", list(there));
    if let Some(anyprec) = model.weights().any_precision().filter(|a| !a.is_whole()) {
        let made = list(&anyprec.header().bits);
        text += &format!("; the file ends early, it was made for {made}");
    }
    text
}

/// The times of the phases, on standard error.
pub(super) fn summary(context: &Context, timings: &Timings) {
    timings.print(context.stats());
    if let Some((options, speculator)) = context.drafts() {
        draft::print(options, speculator);
    }
}
