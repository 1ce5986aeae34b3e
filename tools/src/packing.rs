//! The options that say how I2_S, TL1 and TL2 tensors are laid out, which their files may not.

use clap::{Args, ValueEnum};
use trine_formats::gguf::{PackingOptions, ShapeTiles};
use trine_formats::types::i2_s::Interleave;

/// `--i2s-layout`.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, ValueEnum)]
pub enum I2sLayout {
    /// Blocks of 128 weights: every published file.
    #[default]
    Usual,
    /// Blocks of 64 weights: written by bitnet.cpp on ARM since November 2025.
    Arm64,
}

impl I2sLayout {
    /// As the formats name it.
    pub fn interleave(self) -> Interleave {
        match self {
            I2sLayout::Usual => Interleave::Usual,
            I2sLayout::Arm64 => Interleave::Arm64,
        }
    }
}

/// How to read tensors of bitnet.cpp's types.
#[derive(Args, Clone, Debug, Default)]
pub struct PackingArgs {
    /// Tiles of TL1 and TL2 matrices of one shape, where the file does not say; may be repeated
    #[arg(long, value_name = "ROWSxCOLUMNS=BM,BK,bm")]
    pub tl_tiles: Vec<ShapeTiles>,

    /// Layout of I2_S tensors; arm64 for files that bitnet.cpp wrote on ARM since November 2025
    #[arg(long, value_name = "LAYOUT", value_enum, default_value_t)]
    pub i2s_layout: I2sLayout,
}

impl PackingArgs {
    /// As the formats take them.
    pub fn options(&self) -> PackingOptions {
        PackingOptions { interleave: self.i2s_layout.interleave(), tiles: self.tl_tiles.clone() }
    }
}
