//! Lines to a user.

use std::io;

use crate::terminal;

/// Says a line, which a narrow terminal has on several.
pub(super) fn say(line: &str) {
    say_below(line, 0);
}

/// The same, where all lines but the first begin with `indent` spaces.
pub(super) fn say_below(line: &str, indent: usize) {
    for line in terminal::lines(line, terminal::columns(&io::stderr()), indent) {
        note!("{line}");
    }
}
