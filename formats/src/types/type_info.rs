//! The number of a tensor type, and the facts of one.

use super::field::{Field, Format, Part};

/// `decode(row, out)`: one row of blocks to `f32`; `out.len()` is the number of weights.
/// Total: defined for every byte pattern. Source: ggml `dequantize_row_*`.
pub type DecodeFn = fn(&[u8], &mut [f32]);

/// `encode(x, importance, row)`: one row of `f32` to blocks. `importance` has one weight per column
/// (ggml's `quant_weights`) and is ignored by types that ggml ignores it for.
/// Source: ggml `quantize_row_*_ref` without importance, `quantize_*` with it.
pub type EncodeFn = fn(&[f32], Option<&[f32]>, &mut [u8]);

/// `dot_ref(w, x)`: the definition of the dot product of a weight row with an activation row that was
/// encoded as the type's [`TypeInfo::act`]. Source: ggml `ggml_vec_dot_*_generic`.
pub type DotFn = fn(&[u8], &[u8]) -> f32;

/// A tensor type. For ggml's own types and for ids this version does not know it is the number in the GGUF
/// file. A type of a fork that took a number ggml uses otherwise has a number of trine's, above all that a
/// file can hold: see [`TypeId::file_id`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TypeId(pub u32);

/// The registry's entry of one tensor type.
#[derive(Debug)]
pub struct TypeInfo {
    /// The id in GGUF files (`enum ggml_type`).
    pub id: TypeId,
    /// ggml's own spelling: `f32`, `q4_K`, `tq2_0`.
    pub name: &'static str,
    /// Weights per block; rows are whole blocks.
    pub block: usize,
    /// Bytes per block.
    pub bytes: usize,
    /// Bytes before the blocks of every row, which begin with the [scale](TypeInfo::row_scale) of the row; mostly none.
    pub head: usize,
    /// The parts of a block, in order, from its first byte to its last; the [scale](TypeInfo::row_scale) of a row is
    /// none of them. Empty for types of which only the size is known, and for integers and [types per
    /// tensor](TypeInfo::is_per_tensor).
    pub fields: &'static [Field],
    /// The values of the 16 codes, in units of the scale, where they are a table.
    pub codebook: Option<&'static [i8; 16]>,
    /// The type an activation row is encoded to before `dot_ref`.
    pub act: Option<TypeId>,
    /// Row decoder, where trine has one.
    pub decode: Option<DecodeFn>,
    /// Row encoder, where trine has one.
    pub encode: Option<EncodeFn>,
    /// The definition of the dot product, where trine has one.
    pub dot_ref: Option<DotFn>,
}

impl TypeInfo {
    /// The size of a type's blocks and nothing else: what every entry adds to.
    pub(super) const fn sized(id: TypeId, name: &'static str, block: usize, bytes: usize) -> TypeInfo {
        TypeInfo {
            id,
            name,
            block,
            bytes,
            head: 0,
            fields: &[],
            codebook: None,
            act: None,
            decode: None,
            encode: None,
            dot_ref: None,
        }
    }

    /// The first byte of a part of a block.
    ///
    /// # Panics
    /// The type has no such part: when it is a constant, which it should be, that is an error of the compiler.
    #[inline]
    pub const fn at(&self, part: Part) -> usize {
        let mut i = 0;
        while i < self.fields.len() {
            if self.fields[i].part as u8 == part as u8 {
                return self.fields[i].at;
            }
            i += 1;
        }
        panic!("the blocks of this type have no such part")
    }

    /// The codebook plus `by`, which makes all of it bytes without a sign.
    ///
    /// # Panics
    /// The type has no codebook, or `by` is not enough or too much for a byte: in a constant an error of the compiler.
    pub const fn raised_codebook(&self, by: i32) -> [u8; 16] {
        let Some(codebook) = self.codebook else {
            panic!("the codes of this type do not stand in a table");
        };
        let mut raised = [0; 16];
        let mut i = 0;
        while i < 16 {
            let level = codebook[i] as i32 + by;
            assert!(0 <= level && level <= 255);
            raised[i] = level as u8;
            i += 1;
        }
        raised
    }

    /// Bytes of a row of `n` weights, or `None` when `n` is not a multiple of the block or overflows, and
    /// for types [per tensor](TypeInfo::is_per_tensor), whose rows cannot be taken apart.
    pub fn row_bytes(&self, n: u64) -> Option<u64> {
        if !n.is_multiple_of(self.block as u64) || self.is_per_tensor() {
            return None;
        }
        let blocks = (n / self.block as u64).checked_mul(self.bytes as u64)?;
        blocks.checked_add(self.head as u64)
    }

    /// How the scale before the blocks of every row is written, where there is one.
    pub const fn row_scale(&self) -> Option<Format> {
        match self.head {
            0 => None,
            2 => Some(Format::F16),
            _ => Some(Format::F32),
        }
    }

    /// Bits per weight, scales included; of types per tensor, without the scale.
    pub fn bits_per_weight(&self) -> f64 {
        self.bytes as f64 * 8.0 / self.block as f64
    }

    /// True if the type is a quantization, that is, not a plain float or integer.
    pub fn is_quantized(&self) -> bool {
        self.block > 1
    }
}

/// A type of which only the size is known, and perhaps where its scale stands.
pub(super) const fn size_only(
    id: TypeId,
    name: &'static str,
    block: usize,
    bytes: usize,
    fields: &'static [Field],
) -> TypeInfo {
    TypeInfo { fields, ..TypeInfo::sized(id, name, block, bytes) }
}

pub(super) const fn per_tensor(id: TypeId, name: &'static str, block: usize, bytes: usize) -> TypeInfo {
    // Without row codecs: a row does not hold its scale.
    TypeInfo::sized(id, name, block, bytes)
}
