//! Types of the weights in the output: the choices of `--outtype`.

use trine_formats::safetensors::Dtype;
use trine_formats::types::TypeId;

/// A choice and what it means. A further type is one line in [`OutType::ALL`], where the registry of
/// tensor types can encode it row by row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutType {
    /// As on the command line.
    pub name: &'static str,
    /// Type of matrices.
    pub matrix: TypeId,
    /// Type of the token embedding and the output matrix.
    pub embedding: TypeId,
    /// `general.file_type`.
    pub ftype: u32,
    /// True if matrices must be ternary to be held exactly.
    pub ternary: bool,
}

const fn float(name: &'static str, ty: TypeId, ftype: u32) -> OutType {
    OutType { name, matrix: ty, embedding: ty, ftype, ternary: false }
}

const fn ternary(name: &'static str, ty: TypeId, ftype: u32) -> OutType {
    OutType { name, matrix: ty, embedding: TypeId::F16, ftype, ternary: true }
}

impl OutType {
    /// 32-bit floats.
    pub const F32: OutType = float("f32", TypeId::F32, 0);
    /// IEEE half precision.
    pub const F16: OutType = float("f16", TypeId::F16, 1);
    /// The upper half of an f32.
    pub const BF16: OutType = float("bf16", TypeId::BF16, 32);

    /// All of them.
    pub const ALL: [OutType; 5] = [
        OutType::F32,
        OutType::F16,
        OutType::BF16,
        ternary("tq1_0", TypeId::TQ1_0, 36),
        ternary("tq2_0", TypeId::TQ2_0, 37),
    ];

    /// The choice with this name, in any case.
    pub fn from_name(name: &str) -> Option<OutType> {
        OutType::ALL.into_iter().find(|t| t.name.eq_ignore_ascii_case(name))
    }

    /// The meaning of `auto` for a checkpoint: the type of its first matrix of 16-bit floats, else F16.
    pub(super) fn of_matrices(dtypes: impl Iterator<Item = Dtype>) -> OutType {
        for dtype in dtypes {
            match dtype {
                Dtype::BF16 => return OutType::BF16,
                Dtype::F16 => return OutType::F16,
                _ => {}
            }
        }
        OutType::F16
    }
}
