//! The types of bitnet.cpp that a whole file can be made of.

use trine_formats::types::TypeId;

/// A file of bitnet.cpp: every matrix in one of its types, embeddings and output as floats.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Packed {
    /// 2 bits per weight, for any CPU.
    I2S,
    /// 2 bits per weight, for table look-ups on ARM.
    Tl1,
    /// 1.67 bits per weight, for table look-ups on x86.
    Tl2,
}

impl Packed {
    /// All of them, in the order of help.
    pub const ALL: [Packed; 3] = [Packed::I2S, Packed::Tl1, Packed::Tl2];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Packed::I2S => "I2_S",
            Packed::Tl1 => "TL1",
            Packed::Tl2 => "TL2",
        }
    }

    /// The type of the matrices.
    pub fn type_id(self) -> TypeId {
        match self {
            Packed::I2S => TypeId::I2_S,
            Packed::Tl1 => TypeId::TL1,
            Packed::Tl2 => TypeId::TL2,
        }
    }

    /// `general.file_type` as bitnet.cpp numbers it; llama.cpp gives these numbers to others.
    pub fn file_type(self) -> u32 {
        match self {
            Packed::I2S => 40,
            Packed::Tl1 => 38,
            Packed::Tl2 => 39,
        }
    }

    /// A remark about it, in a few words.
    pub fn note(self) -> &'static str {
        match self {
            Packed::I2S => "a scale per tensor; embeddings and output stay F16",
            Packed::Tl1 => "the same in tiles of pairs, for ARM; see --tl-tiles",
            Packed::Tl2 => "the same in tiles of triples, for x86; see --tl-tiles",
        }
    }
}
