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
    /// True if matrices must be whole numbers times scales, which are kept.
    pub exact: bool,
}

const fn float(name: &'static str, ty: TypeId, ftype: u32) -> OutType {
    OutType { name, matrix: ty, embedding: ty, ftype, ternary: false, exact: false }
}

const fn ternary(name: &'static str, ty: TypeId, ftype: u32) -> OutType {
    OutType { name, matrix: ty, embedding: TypeId::F16, ftype, ternary: true, exact: false }
}

const fn exact(name: &'static str, ty: TypeId, ftype: u32) -> OutType {
    OutType { name, matrix: ty, embedding: TypeId::F16, ftype, ternary: false, exact: true }
}

impl OutType {
    /// 32-bit floats.
    pub const F32: OutType = float("f32", TypeId::F32, 0);
    /// IEEE half precision.
    pub const F16: OutType = float("f16", TypeId::F16, 1);
    /// The upper half of an f32.
    pub const BF16: OutType = float("bf16", TypeId::BF16, 32);

    /// Ternary with one scale for 256 weights.
    pub const TQ2_0: OutType = ternary("tq2_0", TypeId::TQ2_0, 37);
    /// The first ternary type of `OutType::WIDTHS` that holds every matrix exactly, which is found out.
    pub const TERNARY: OutType = OutType { name: "ternary", ..OutType::TQ2_0 };
    /// Types with one scale for 256, 128 and 64 weights.
    pub(super) const WIDTHS: [OutType; 3] =
        [OutType::TQ2_0, ternary("pq2_0", TypeId::PQ2_0, 141), ternary("q2_0", TypeId::Q2_0, 41)];

    /// All of them.
    pub const ALL: [OutType; 15] = [
        OutType::F32,
        OutType::F16,
        OutType::BF16,
        ternary("tq1_0", TypeId::TQ1_0, 36),
        OutType::WIDTHS[0],
        OutType::WIDTHS[1],
        ternary("ptq1_0", TypeId::PTQ1_0, 143),
        OutType::WIDTHS[2],
        ternary("q1_0", TypeId::Q1_0, 40),
        OutType::TERNARY,
        exact("q4_0", TypeId::Q4_0, 2),
        exact("q4_1", TypeId::Q4_1, 3),
        exact("q5_0", TypeId::Q5_0, 8),
        exact("q5_1", TypeId::Q5_1, 9),
        exact("q8_0", TypeId::Q8_0, 7),
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
