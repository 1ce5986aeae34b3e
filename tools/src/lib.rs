//! Modules that the command-line tools share.

/// A line on standard error, in which nothing that comes from a file does more than be read. Unlike `eprintln!` it does
/// not panic when nobody can read it.
#[macro_export]
macro_rules! note {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let mut line = $crate::shown::message(&format!($($text)*));
        line.push('\n');
        let _ = $crate::progress::above(|| std::io::stderr().write_all(line.as_bytes()));
    }};
}

pub mod adapters;
pub mod anyprec;
pub mod args;
pub mod bench;
pub mod commands;
pub mod convert;
pub mod device;
mod drawing;
pub mod evaluate;
pub mod exit;
pub mod feed;
pub mod generate;
pub mod goal;
pub mod gptq;
pub mod imatrix;
pub mod inputs;
pub mod inspect;
pub mod interrupt;
pub mod isolate;
pub mod load;
mod lock;
pub mod manual;
pub mod memory;
pub mod models;
pub mod outfile;
pub mod overrides;
pub mod packing;
pub mod progress;
pub mod prove;
pub mod provenance;
pub mod quantize;
pub mod rotation;
pub mod runner;
pub mod sampling;
pub mod sequential;
pub mod shown;
pub mod signals;
pub mod split;
pub mod stats;
pub mod table;
pub mod templates;
pub mod terminal;
pub mod text;
pub mod threads;
pub mod tokenize;
pub mod version;
pub mod widely;
