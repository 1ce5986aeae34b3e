//! Tables for people. A table that is wider than the terminal, or than 80 columns in files and pipes, is written in its
//! narrow form: texts that are the same in all rows stand above it, long names lose their middle, and columns for which
//! there is no room follow in further tables with the same keys.

mod cell;
mod layout;
#[cfg(test)]
mod tests;
mod write;

pub use cell::{Cell, Form};
pub use write::{Table, columns, counted, write};
