//! The options of `rquantize --tune`.

use std::path::{Path, PathBuf};

use clap::Args;
use trine::tune::RATE;

use crate::load::positive;

/// The options of scales that are tuned.
#[derive(Args)]
#[command(next_help_heading = "Tuned scales")]
pub struct TuneArgs {
    /// Move the scales and minima of a quantized file so that it predicts TEXT more like its original; the codes stay
    ///
    /// The Kullback-Leibler divergence from --reference is made less by gradient. The file keeps its types and its size,
    /// and OUT.gguf is followed by no TYPE. An eighth of the sequences is held out: the scales that are best there are
    /// written, and nothing where none are better than those of IN.gguf. The same files, text and options give the same
    /// bytes on any machine
    #[arg(long, value_name = "TEXT", requires = "reference")]
    pub tune: Option<PathBuf>,

    /// The model that the file was made of: F16, or whatever is nearest to it
    #[arg(long, value_name = "FILE", requires = "tune")]
    pub reference: Option<PathBuf>,

    /// Sequences of the text, each of which is one step
    #[arg(long, value_name = "N", default_value = "128", requires = "tune", value_parser = positive)]
    pub samples: usize,

    /// Tokens of a sequence
    #[arg(long, value_name = "N", default_value = "256", requires = "tune", value_parser = positive)]
    pub seq_len: usize,

    /// Seed of the choice of sequences and of their order
    #[arg(long, value_name = "N", default_value = "0", requires = "tune")]
    pub seed: u32,

    /// How far a scale moves in one of the first steps, as a share of itself
    #[arg(long, value_name = "SHARE", default_value_t = RATE, requires = "tune", value_parser = rate)]
    pub rate: f64,
}

impl TuneArgs {
    /// The text and the reference, where scales are to be tuned.
    pub fn given(&self) -> Option<(&Path, &Path)> {
        self.tune.as_deref().zip(self.reference.as_deref())
    }
}

fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate: &f64| *rate > 0.0 && *rate <= 0.5);
    rate.ok_or_else(|| "write a share above 0 and up to 0.5, such as 0.002".to_owned())
}
