//! All tools of this crate: how each begins, and its command line for the pages that are made from it.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Command, Parser};

use crate::args::{self, Short, Words};
use crate::{bench, convert, evaluate, exit, generate, imatrix, inspect, quantize, tokenize};

/// A tool.
pub struct Tool {
    /// Its name.
    pub name: &'static str,
    /// Its options of several letters behind one dash, and their long names.
    pub short: Short,
    command: fn() -> Command,
    main: Box<dyn FnOnce(Words) -> ExitCode>,
}

impl Tool {
    /// The tool that parses its command line as `T` and then does what `run` does.
    pub fn new<T: Parser + 'static>(name: &'static str, short: Short, run: fn(&T) -> Result<()>) -> Tool {
        Tool {
            name,
            short,
            command: args::command::<T>,
            main: Box::new(move |words| exit::run(name, || run(&args::parse(short, words)?))),
        }
    }

    /// Its command line.
    pub fn command(&self) -> Command {
        (self.command)()
    }

    /// Runs it with the words of a command line, of which the first is a name for it. To be called by the first thread,
    /// before there are others.
    pub fn start(self, words: Words) -> ExitCode {
        (self.main)(words)
    }
}

/// `rbench`: how fast models and kernels are.
pub fn rbench() -> Tool {
    Tool::new("rbench", bench::args::SHORT, bench::run)
}

/// `rconvert`: the folder of a Hugging Face checkpoint becomes a GGUF file.
pub fn rconvert() -> Tool {
    Tool::new("rconvert", convert::args::SHORT, convert::run)
}

/// `rgen`: continues a text, or chats.
pub fn rgen() -> Tool {
    Tool::new("rgen", generate::args::SHORT, generate::run)
}

/// `rimatrix`: measures which weights matter.
pub fn rimatrix() -> Tool {
    Tool::new("rimatrix", imatrix::args::SHORT, imatrix::run)
}

/// `rinspect`: what is in a GGUF file.
pub fn rinspect() -> Tool {
    Tool::new("rinspect", &[], inspect::command::run)
}

/// `rperplexity`: measures how well a model predicts a text.
pub fn rperplexity() -> Tool {
    Tool::new("rperplexity", evaluate::args::SHORT, evaluate::run)
}

/// `rquantize`: quantizes GGUF models into the files that llama-quantize writes.
pub fn rquantize() -> Tool {
    Tool::new("rquantize", &[], quantize::run)
}

/// `rtokenize`: shows the tokens of a text.
pub fn rtokenize() -> Tool {
    Tool::new("rtokenize", &[], tokenize::run)
}

/// All of them, by name.
pub fn all() -> Vec<Tool> {
    vec![rbench(), rconvert(), rgen(), rimatrix(), rinspect(), rperplexity(), rquantize(), rtokenize()]
}
