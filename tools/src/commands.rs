//! All tools of this crate by their command lines, for the pages that are made from them.

use clap::{Command, CommandFactory};

use crate::{bench, convert, evaluate, generate, imatrix, inspect, quantize, tokenize};

/// A tool.
pub struct Tool {
    /// Its command line.
    pub command: Command,
    /// Its options of several letters behind one dash, and their long names.
    pub short: &'static [(&'static str, &'static str)],
}

fn tool<T: CommandFactory>(short: &'static [(&'static str, &'static str)]) -> Tool {
    let command = T::command();
    Tool { command, short }
}

/// All of them, by name.
pub fn all() -> Vec<Tool> {
    vec![
        tool::<bench::args::Args>(bench::args::SHORT),
        tool::<convert::args::Args>(&[]),
        tool::<generate::args::Args>(generate::args::SHORT),
        tool::<imatrix::args::Args>(imatrix::args::SHORT),
        tool::<inspect::command::Args>(&[]),
        tool::<evaluate::args::Args>(evaluate::args::SHORT),
        tool::<quantize::args::Args>(&[]),
        tool::<tokenize::Args>(&[]),
    ]
}
