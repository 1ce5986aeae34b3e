//! The options of rotations: `rquantize --rotate` and `--unrotate`.

use clap::Args;
use trine::quant::rotate::Turn;

/// The options of rotations.
#[derive(Args)]
pub struct RotateArgs {
    /// Rotate the matrices by the Walsh-Hadamard transform in blocks of BLOCK, with random signs after :signs
    ///
    /// BLOCK is a power of two that divides the rows of the matrices; 1024:signs=7 makes the signs of seed 7, without which
    /// it is 0. The keys prism.hadamard.* say it to trine and PrismML's fork of llama.cpp; other programs write gibberish.
    /// Rotated weights have no outliers and lose less when they are quantized afterwards. Matrices keep the type that
    /// they have (F32, F16 or BF16), or get the TYPE behind OUT.gguf, and every weight is rounded once
    #[arg(long, value_name = "BLOCK[:signs]", conflicts_with = "unrotate", value_parser = rotate)]
    pub rotate: Option<Turn>,

    /// Rotate the matrices of a rotated model back and remove the keys
    #[arg(long)]
    pub unrotate: bool,
}

/// Parses `BLOCK`, `BLOCK:signs` or `BLOCK:signs=SEED`.
fn rotate(text: &str) -> Result<Turn, String> {
    let wrong = || "write BLOCK, BLOCK:signs or BLOCK:signs=SEED, such as 1024:signs".to_owned();
    let (block, signs) = match text.split_once(':') {
        None => (text, None),
        Some((block, "signs")) => (block, Some(0)),
        Some((block, signs)) => {
            let seed = signs.strip_prefix("signs=").and_then(|seed| seed.parse().ok());
            (block, Some(seed.ok_or_else(wrong)?))
        }
    };
    let block: u32 = block.parse().map_err(|_| wrong())?;
    Ok(Turn::Rotate { block: block as usize, signs })
}

impl RotateArgs {
    /// The way that is asked for, and its option.
    pub fn given(&self) -> Option<(Turn, &'static str)> {
        let back = self.unrotate.then_some((Turn::Unrotate, "--unrotate"));
        self.rotate.map(|turn| (turn, "--rotate")).or(back)
    }
}
