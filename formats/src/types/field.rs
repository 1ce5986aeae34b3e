//! Where the parts of a block stand.

/// A part of a block: it begins at a byte and ends where the next part begins, or with the block.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Its meaning.
    pub part: Part,
    /// Number format of the field.
    pub format: Format,
    /// Its first byte in the block.
    pub at: usize,
}

/// Meaning of a part of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Part {
    /// The value itself, in types that are plain numbers.
    Value,
    /// Factor on the codes, or on the scales of the groups.
    Scale,
    /// Minima of the groups, or the one minimum of the block.
    Min,
    /// Scales of the block's groups, and their minima where there are any.
    GroupScales,
    /// The codes, without the bits that stand apart.
    Codes,
    /// The upper bits of the codes.
    HighBits,
    /// Signs of the weights, where they stand apart.
    Signs,
    /// Sums of the codes, of each 16 or of the whole block.
    Sums,
}

/// How a part of a block is written, little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// IEEE double.
    F64,
    /// IEEE single.
    F32,
    /// IEEE half.
    F16,
    /// The upper half of an IEEE single.
    Bf16,
    /// A power of two as one byte: the exponent plus 127; 255 is not a number.
    E8m0,
    /// An IEEE half of which each of four 16-bit words holds a nibble, in its upper bits (IQ1_M).
    F16Nibbles,
    /// Signed bytes.
    I8,
    /// Signed 16-bit integers.
    I16,
    /// Bits as the file of the type says.
    Bits,
}

impl Field {
    pub(super) const fn new(part: Part, format: Format, at: usize) -> Field {
        Field { part, format, at }
    }
}
