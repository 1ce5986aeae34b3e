//! What the command-line tools share.

/// A line on standard error. Unlike `eprintln!` it does not panic when nobody can read it.
#[macro_export]
macro_rules! note {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($text)*);
    }};
}

pub mod anyprec;
pub mod args;
pub mod bench;
pub mod evaluate;
pub mod exit;
pub mod feed;
pub mod generate;
pub mod goal;
pub mod imatrix;
pub mod inspect;
pub mod interrupt;
pub mod load;
pub mod outfile;
pub mod packing;
pub mod progress;
pub mod quantize;
pub mod stats;
pub mod text;
pub mod widely;
