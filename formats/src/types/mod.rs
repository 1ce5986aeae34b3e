//! Tensor types: one file per type that trine computes with, and the registry that lists them all.
//!
//! A type is a number in the file ([`TypeId`]); what is known of it stands in one [`TypeInfo`]. Ids
//! without an entry are kept as they are: a file that holds them can still be listed and copied.
//!
//! All codecs work on whole rows: `n` weights, `n` a multiple of the block, little-endian bytes. The
//! exceptions are the types of bitnet.cpp, which have one scale per tensor and no rows of their own:
//! [`ternary`] reads and writes them.

mod bf16;
mod block32;
pub mod cells;
pub mod codebook;
pub mod exact;
mod f16;
mod f32;
mod field;
pub mod grid;
pub mod i2_s;
pub mod ik;
pub mod integers;
mod iq1_m;
mod iq1_s;
mod iq2_s;
mod iq2_xs;
mod iq2_xxs;
mod iq3_s;
mod iq3_xxs;
mod iq4_nl;
mod iq4_xs;
mod k_affine;
mod k_block;
mod k_symmetric;
pub mod lanes;
mod mxfp4;
pub mod num;
mod number;
pub mod numbers;
mod nvfp4;
mod private;
mod q1_0;
mod q2_0;
mod q2_0c;
mod q2_k;
mod q3_k;
mod q4_0;
mod q4_1;
mod q4_k;
mod q5_0;
mod q5_1;
mod q5_k;
mod q6_k;
mod q8_0;
mod q8_1;
mod q8_k;
mod search;
pub mod stq1_0;
pub mod ternary;
mod ternary_layout;
pub mod tl1;
pub mod tl2;
pub mod tq1_0;
mod tq2_0;
pub mod trits;
mod type_info;
mod weighted;

/// Row encoders that search: each is its type's [`TypeInfo::encode`] on the instruction set that is its first
/// argument, for kernels to instantiate where that instruction set is enabled.
pub mod encode_on {
    use super::codebook;
    use super::lanes::Simd;

    macro_rules! of_codebooks {
        ($($name:ident: $type:ident)*) => { $(
            #[allow(missing_docs, reason = "the names are ggml's")]
            #[inline(always)]
            pub fn $name<S: Simd>(simd: S, x: &[f32], importance: Option<&[f32]>, row: &mut [u8]) {
                codebook::encode_on::<S, super::$name::$type, _, _, _>(simd, x, importance, row);
            }
        )* };
    }

    of_codebooks! { iq2_s: Iq2S iq2_xs: Iq2Xs iq2_xxs: Iq2Xxs iq3_s: Iq3S iq3_xxs: Iq3Xxs }

    pub use super::iq1_m::encode_on as iq1_m;
    pub use super::iq1_s::encode_on as iq1_s;
    pub use super::q2_k::encode_on as q2_k;
    pub use super::q3_k::encode_on as q3_k;
    pub use super::q4_0::encode_on as q4_0;
    pub use super::q4_1::encode_on as q4_1;
    pub use super::q4_k::encode_on as q4_k;
    pub use super::q5_0::encode_on as q5_0;
    pub use super::q5_1::encode_on as q5_1;
    pub use super::q5_k::encode_on as q5_k;
    pub use super::q6_k::encode_on as q6_k;
}

pub use field::{Field, Format, Part};
pub use type_info::{DecodeFn, DotFn, EncodeFn, TypeId, TypeInfo};
use type_info::{per_tensor, size_only};

use std::fmt;

/// Type ids of bitnet.cpp's numbering. No file can hold a number with the upper bit set.
const BITNET: u32 = 0x8001_0000;
/// Type ids of PrismML's fork of llama.cpp.
const PRISM: u32 = 0x8002_0000;
/// Type ids of the Fairy2i fork of llama.cpp.
const FAIRY2I: u32 = 0x8003_0000;
/// Type ids of Tencent's files.
const TENCENT: u32 = 0x8005_0000;
/// Type ids of the first version of Tencent's.
const TENCENT_FIRST: u32 = 0x8008_0000;
/// Type ids of Pestle's files.
const PESTLE: u32 = 0x8006_0000;
/// Type ids of Neutrino's files.
const NEUTRINO: u32 = 0x8007_0000;
/// Type ids of ik_llama.cpp.
const IK: u32 = 0x8004_0000;
/// Type ids of rows of its interleaved types that are no rows of another type. No file has them.
const IK_ROWS: u32 = 0x8009_0000;

impl TypeInfo {
    /// Bytes of a tensor of `rows` rows of `columns` weights without padding, or `None` when rows are no
    /// whole number of blocks or the size overflows. A type per tensor has a size for any width, as its
    /// writers do; [`ternary::Packing::check`] tells whether the tensor makes sense.
    pub fn tensor_bytes(&self, columns: u64, rows: u64) -> Option<u64> {
        match self.id {
            TypeId::I2_S => i2_s::tensor_bytes(columns, rows),
            TypeId::TL1 => tl1::tensor_bytes(columns, rows),
            TypeId::TL2 => tl2::tensor_bytes(columns, rows),
            _ => self.row_bytes(columns)?.checked_mul(rows),
        }
    }

    /// True if the type has one scale for the whole tensor and is read by [`ternary`], not row by row.
    pub fn is_per_tensor(&self) -> bool {
        matches!(self.id, TypeId::I2_S | TypeId::TL1 | TypeId::TL2)
    }
}

impl TypeId {
    /// The number of this type in a GGUF file. Not unique: 39 is MXFP4 in ggml and TL2 in bitnet.cpp.
    pub fn file_id(self) -> u32 {
        if self.0 & 0x8000_0000 == 0 { self.0 } else { self.0 & 0xFFFF }
    }

    /// The type that ik_llama.cpp has under this number, where trine knows it.
    pub fn of_ik(file_id: u32) -> Option<TypeId> {
        let ty = TypeId(IK | file_id);
        (file_id <= 0xFFFF && ty.info().is_some()).then_some(ty)
    }

    /// The registry's entry of this type, if there is one.
    pub fn info(self) -> Option<&'static TypeInfo> {
        REGISTRY.iter().find(|t| t.id == self)
    }

    /// The values of a block's codes once its scales are decided; `None` for types without such a grid.
    pub fn grid(self) -> Option<&'static grid::Grid> {
        Some(match self {
            TypeId::Q4_0 => &q4_0::GRID,
            TypeId::Q4_1 => &q4_1::GRID,
            TypeId::Q5_0 => &q5_0::GRID,
            TypeId::Q5_1 => &q5_1::GRID,
            TypeId::Q8_0 => &q8_0::GRID,
            TypeId::IQ4_NL => &iq4_nl::GRID,
            TypeId::IQ4_XS => &iq4_xs::GRID,
            TypeId::MXFP4 => &mxfp4::GRID,
            TypeId::NVFP4 => &nvfp4::GRID,
            TypeId::Q1_0 => &q1_0::GRID,
            TypeId::Q2_0 => &q2_0::GRID,
            TypeId::PQ2_0 => &q2_0::WIDE_GRID,
            TypeId::Q2_0C => &q2_0c::GRID,
            TypeId::TQ1_0 => &tq1_0::GRID,
            TypeId::PTQ1_0 => &tq1_0::NARROW_GRID,
            TypeId::TQ2_0 => &tq2_0::GRID,
            TypeId::Q2_K => &q2_k::GRID,
            TypeId::Q3_K => &q3_k::GRID,
            TypeId::Q4_K => &q4_k::GRID,
            TypeId::Q5_K => &q5_k::GRID,
            TypeId::Q6_K => &q6_k::GRID,
            TypeId::IQ2_K => &ik::grids::IQ2_K,
            TypeId::IQ3_K => &ik::grids::IQ3_K,
            TypeId::IQ4_K => &ik::grids::IQ4_K,
            TypeId::IQ5_K => &ik::grids::IQ5_K,
            TypeId::IQ6_K => &ik::grids::IQ6_K,
            TypeId::IQ4_KS => &ik::grids::IQ4_KS,
            TypeId::IQ5_KS => &ik::grids::IQ5_KS,
            TypeId::IQ2_KS => &ik::grids::IQ2_KS,
            TypeId::IQ3_KS => &ik::grids::IQ3_KS,
            _ => return None,
        })
    }

    /// The values of a block's pairs once its scales are decided; `None` for types whose weights are no such pairs.
    pub fn pairs(self) -> Option<&'static grid::Pairs> {
        (self == TypeId::IQ2_KL).then_some(&ik::grids::IQ2_KL)
    }

    /// The values of a block's points once its scales are decided; `None` for types that are no points of a codebook.
    pub fn cells(self) -> Option<&'static cells::Cells> {
        Some(match self {
            TypeId::IQ1_S => &iq1_s::CELLS,
            TypeId::IQ1_M => &iq1_m::CELLS,
            TypeId::IQ2_XXS => &iq2_xxs::CELLS,
            TypeId::IQ2_XS => &iq2_xs::CELLS,
            TypeId::IQ2_S => &iq2_s::CELLS,
            TypeId::IQ3_XXS => &iq3_xxs::CELLS,
            TypeId::IQ3_S => &iq3_s::CELLS,
            _ => return None,
        })
    }

    /// The type as integers; `None` for floats, for types with formulas of their own and for those whose codes have one
    /// scale for the whole tensor.
    pub fn integers(self) -> Option<&'static integers::IntegerForm> {
        Some(match self {
            TypeId::Q8_0 => &q8_0::INTEGERS,
            TypeId::Q4_1 => &block32::Q4_1,
            TypeId::Q5_0 => &block32::Q5_0,
            TypeId::Q5_1 => &block32::Q5_1,
            TypeId::IQ4_NL => &iq4_nl::INTEGERS,
            TypeId::MXFP4 => &mxfp4::INTEGERS,
            TypeId::NVFP4 => &nvfp4::INTEGERS,
            TypeId::Q1_0 => &q1_0::INTEGERS,
            TypeId::Q2_0 | TypeId::PQ2_0 | TypeId::Q2_0_G128 => &q2_0::INTEGERS,
            TypeId::PTQ1_0 => &tq1_0::NARROW_INTEGERS,
            TypeId::TQ1_0 => &tq1_0::INTEGERS,
            TypeId::TQ2_0 => &tq2_0::INTEGERS,
            TypeId::STQ1_0 | TypeId::STQ1_0_43 => &stq1_0::INTEGERS,
            TypeId::STQ1_0_CONTIGUOUS => &stq1_0::CONTIGUOUS_INTEGERS,
            TypeId::Q2_K => &q2_k::INTEGERS,
            TypeId::Q3_K => &q3_k::INTEGERS,
            TypeId::Q4_K => &q4_k::INTEGERS,
            TypeId::Q5_K => &q5_k::INTEGERS,
            TypeId::Q6_K => &q6_k::INTEGERS,
            TypeId::IQ1_S => &iq1_s::INTEGERS,
            TypeId::IQ1_M => &iq1_m::INTEGERS,
            TypeId::IQ2_XXS => &iq2_xxs::INTEGERS,
            TypeId::IQ2_XS => &iq2_xs::INTEGERS,
            TypeId::IQ2_S => &iq2_s::INTEGERS,
            TypeId::IQ3_XXS => &iq3_xxs::INTEGERS,
            TypeId::IQ3_S => &iq3_s::INTEGERS,
            TypeId::IQ4_XS => &iq4_xs::INTEGERS,
            TypeId::FV5B => &private::FV5B_INTEGERS,
            _ => return ik::integers(self),
        })
    }

    /// How the steps of a super-block are kept; `None` for types that have a float for each, or no grid.
    pub fn multiples(self) -> Option<&'static grid::Multiples> {
        Some(match self {
            TypeId::IQ4_XS => &iq4_xs::MULTIPLES,
            TypeId::Q2_K => &q2_k::MULTIPLES,
            TypeId::Q3_K => &q3_k::MULTIPLES,
            TypeId::Q4_K => &q4_k::MULTIPLES,
            TypeId::Q5_K => &q5_k::MULTIPLES,
            TypeId::Q6_K => &q6_k::MULTIPLES,
            _ => return None,
        })
    }

    /// The type with this name, in any case (`Q4_K`, `q4_k`).
    pub fn from_name(name: &str) -> Option<TypeId> {
        REGISTRY.iter().find(|t| t.name.eq_ignore_ascii_case(name)).map(|t| t.id)
    }
}

impl fmt::Display for TypeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.info() {
            Some(t) => f.write_str(t.name),
            None => write!(f, "type {}", self.file_id()),
        }
    }
}

impl fmt::Debug for TypeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

const DOUBLE: &[Field] = &[Field::new(Part::Value, Format::F64, 0)];

/// Makes the names, the table and the constants of all types: `name = id => what is known;`.
macro_rules! registry {
    ($d:tt $($name:ident = $id:expr => $info:expr;)*) => {
        #[allow(missing_docs, reason = "the names are ggml's")]
        impl TypeId {
            $(pub const $name: TypeId = TypeId($id);)*
        }

        /// The entry of each type, for constants: kernels take the places in a block from here.
        #[allow(missing_docs, reason = "the names are ggml's")]
        pub mod info {
            use super::*;
            $(pub const $name: TypeInfo = $info;)*
        }

        /// Every type of ggml and the known ones of its forks, in the order of the ids.
        pub static REGISTRY: &[TypeInfo] = &[$(info::$name),*];

        /// `with_type_names!(callback, tokens)` is `callback!(tokens NAME NAME ..)` with the names of all types: for
        /// tables of functions that know their type at compile time.
        #[macro_export]
        macro_rules! with_type_names {
            ($d callback:ident, $d ($d tokens:tt)*) => {
                $d callback!($d ($d tokens)* $($name)*)
            };
        }
    };
}

// A new type is one file, its `mod` above and one line here.
registry! { $
    F32 = 0 => f32::INFO;
    F16 = 1 => f16::INFO;
    Q4_0 = 2 => q4_0::INFO;
    Q4_1 = 3 => q4_1::INFO;
    Q5_0 = 6 => q5_0::INFO;
    Q5_1 = 7 => q5_1::INFO;
    Q8_0 = 8 => q8_0::INFO;
    Q8_1 = 9 => q8_1::INFO;
    Q2_K = 10 => q2_k::INFO;
    Q3_K = 11 => q3_k::INFO;
    Q4_K = 12 => q4_k::INFO;
    Q5_K = 13 => q5_k::INFO;
    Q6_K = 14 => q6_k::INFO;
    Q8_K = 15 => q8_k::INFO;
    IQ2_XXS = 16 => iq2_xxs::INFO;
    IQ2_XS = 17 => iq2_xs::INFO;
    IQ3_XXS = 18 => iq3_xxs::INFO;
    IQ1_S = 19 => iq1_s::INFO;
    IQ4_NL = 20 => iq4_nl::INFO;
    IQ3_S = 21 => iq3_s::INFO;
    IQ2_S = 22 => iq2_s::INFO;
    IQ4_XS = 23 => iq4_xs::INFO;
    I8 = 24 => size_only(TypeId::I8, "i8", 1, 1, &[]);
    I16 = 25 => size_only(TypeId::I16, "i16", 1, 2, &[]);
    I32 = 26 => size_only(TypeId::I32, "i32", 1, 4, &[]);
    I64 = 27 => size_only(TypeId::I64, "i64", 1, 8, &[]);
    F64 = 28 => size_only(TypeId::F64, "f64", 1, 8, DOUBLE);
    IQ1_M = 29 => iq1_m::INFO;
    BF16 = 30 => bf16::INFO;
    TQ1_0 = 34 => tq1_0::INFO;
    TQ2_0 = 35 => tq2_0::INFO;
    MXFP4 = 39 => mxfp4::INFO;
    NVFP4 = 40 => nvfp4::INFO;
    Q1_0 = 41 => q1_0::INFO;
    Q2_0 = 42 => q2_0::INFO;
    I2_S = BITNET | 36 => i2_s::INFO;
    I8_S = BITNET | 37 => size_only(TypeId::I8_S, "i8_s", 1, 1, &[]);
    TL1 = BITNET | 38 => tl1::INFO;
    TL2 = BITNET | 39 => tl2::INFO;
    Q2_0_G128 = PRISM | 42 => TypeInfo { id: TypeId::Q2_0_G128, name: "q2_0_g128", ..q2_0::PQ2_0 };
    PQ2_0 = PRISM | 142 => q2_0::PQ2_0;
    PTQ1_0 = PRISM | 143 => tq1_0::PTQ1_0;
    Q6_0 = IK | 133 => ik::info::<{ IK | 133 }>("q6_0");
    IQ1_BN = IK | 134 => ik::IQ1_BN;
    IQ2_BN = IK | 135 => ik::IQ2_BN;
    IQ2_K = IK | 137 => ik::encoded::<{ IK | 137 }>("iq2_k");
    IQ3_K = IK | 138 => ik::encoded::<{ IK | 138 }>("iq3_k");
    IQ4_K = IK | 139 => ik::encoded::<{ IK | 139 }>("iq4_k");
    IQ5_K = IK | 140 => ik::encoded::<{ IK | 140 }>("iq5_k");
    IQ6_K = IK | 141 => ik::encoded::<{ IK | 141 }>("iq6_k");
    IQ4_KS = IK | 144 => ik::encoded::<{ IK | 144 }>("iq4_ks");
    IQ2_KS = IK | 145 => ik::encoded::<{ IK | 145 }>("iq2_ks");
    IQ4_KSS = IK | 146 => ik::info::<{ IK | 146 }>("iq4_kss");
    Q8_KV = IK | 151 => ik::info::<{ IK | 151 }>("q8_KV");
    IQ5_KS = IK | 152 => ik::encoded::<{ IK | 152 }>("iq5_ks");
    IQ2_KT = IK | 153 => ik::info::<{ IK | 153 }>("iq2_kt");
    IQ3_KT = IK | 154 => ik::info::<{ IK | 154 }>("iq3_kt");
    IQ4_KT = IK | 155 => ik::info::<{ IK | 155 }>("iq4_kt");
    IQ3_KS = IK | 156 => ik::encoded::<{ IK | 156 }>("iq3_ks");
    IQ2_KL = IK | 157 => ik::encoded::<{ IK | 157 }>("iq2_kl");
    IQ1_KT = IK | 158 => ik::info::<{ IK | 158 }>("iq1_kt");
    Q4_0_R8 = IK | 202 => ik::interleaved(TypeId::Q4_0_R8, "q4_0_r8", 32, 18, 0);
    Q5_0_R4 = IK | 206 => ik::interleaved(TypeId::Q5_0_R4, "q5_0_r4", 32, 22, 0);
    Q8_0_R8 = IK | 208 => ik::interleaved(TypeId::Q8_0_R8, "q8_0_r8", 32, 34, 0);
    Q2_K_R4 = IK | 210 => ik::interleaved(TypeId::Q2_K_R4, "q2_k_r4", 256, 84, 0);
    Q3_K_R4 = IK | 211 => ik::interleaved(TypeId::Q3_K_R4, "q3_k_r4", 256, 110, 0);
    Q4_K_R4 = IK | 212 => ik::interleaved(TypeId::Q4_K_R4, "q4_k_r4", 256, 144, 0);
    Q5_K_R4 = IK | 213 => ik::interleaved(TypeId::Q5_K_R4, "q5_k_r4", 256, 176, 0);
    Q6_K_R4 = IK | 214 => ik::interleaved(TypeId::Q6_K_R4, "q6_k_r4", 256, 210, 0);
    IQ2_XXS_R4 = IK | 216 => ik::interleaved(TypeId::IQ2_XXS_R4, "iq2_xxs_r4", 256, 66, 0);
    IQ2_XS_R4 = IK | 217 => ik::interleaved(TypeId::IQ2_XS_R4, "iq2_xs_r4", 256, 74, 0);
    IQ3_XXS_R4 = IK | 218 => ik::interleaved(TypeId::IQ3_XXS_R4, "iq3_xxs_r4", 256, 98, 0);
    IQ1_S_R4 = IK | 219 => ik::interleaved(TypeId::IQ1_S_R4, "iq1_s_r4", 32, 6, 2);
    IQ4_NL_R4 = IK | 220 => ik::interleaved(TypeId::IQ4_NL_R4, "iq4_nl_r4", 32, 18, 0);
    IQ3_S_R4 = IK | 221 => ik::interleaved(TypeId::IQ3_S_R4, "iq3_s_r4", 256, 110, 0);
    IQ2_S_R4 = IK | 222 => ik::interleaved(TypeId::IQ2_S_R4, "iq2_s_r4", 256, 82, 0);
    IQ4_XS_R8 = IK | 223 => ik::interleaved(TypeId::IQ4_XS_R8, "iq4_xs_r8", 256, 136, 0);
    IQ1_M_R4 = IK | 229 => ik::interleaved(TypeId::IQ1_M_R4, "iq1_m_r4", 32, 7, 2);
    BF16_R16 = IK | 230 => ik::interleaved(TypeId::BF16_R16, "bf16_r16", 2, 4, 0);
    Q6_0_R4 = IK | 233 => ik::interleaved(TypeId::Q6_0_R4, "q6_0_r4", 32, 26, 0);
    IQ2_BN_R4 = IK | 335 => ik::interleaved(TypeId::IQ2_BN_R4, "iq2_bn_r4", 64, 16, 4);
    IQ2_K_R4 = IK | 337 => ik::interleaved(TypeId::IQ2_K_R4, "iq2_k_r4", 256, 76, 0);
    IQ3_K_R4 = IK | 338 => ik::interleaved(TypeId::IQ3_K_R4, "iq3_k_r4", 256, 110, 0);
    IQ4_K_R4 = IK | 339 => ik::interleaved(TypeId::IQ4_K_R4, "iq4_k_r4", 256, 144, 0);
    IQ5_K_R4 = IK | 340 => ik::interleaved(TypeId::IQ5_K_R4, "iq5_k_r4", 256, 176, 0);
    IQ4_KS_R4 = IK | 344 => ik::interleaved(TypeId::IQ4_KS_R4, "iq4_ks_r4", 256, 136, 4);
    IQ5_KS_R4 = IK | 352 => ik::interleaved(TypeId::IQ5_KS_R4, "iq5_ks_r4", 256, 168, 4);
    MXFP4_R8 = IK | 353 => ik::interleaved(TypeId::MXFP4_R8, "mxfp4_r8", 32, 17, 0);
    Q8_K_R16 = IK | 397 => ik::interleaved(TypeId::Q8_K_R16, "q8_k_r16", 256, 258, 0);
    Q8_KV_R8 = IK | 398 => ik::interleaved(TypeId::Q8_KV_R8, "q8_KV_r8", 32, 32, 4);
    Q8_K_R8 = IK | 399 => ik::interleaved(TypeId::Q8_K_R8, "q8_k_r8", 256, 258, 0);
    IQ1_S_R1 = IK_ROWS | 219 => ik::info::<{ IK_ROWS | 219 }>("iq1_s_r1");
    IQ1_M_R1 = IK_ROWS | 229 => ik::info::<{ IK_ROWS | 229 }>("iq1_m_r1");
    Q8_K_R1 = IK_ROWS | 399 => ik::info::<{ IK_ROWS | 399 }>("q8_k_r1");
    Q2_0C = TENCENT | 40 => q2_0c::INFO;
    STQ1_0 = TENCENT | 42 => stq1_0::INFO;
    STQ1_0_43 = TENCENT | 43 => TypeInfo { id: TypeId::STQ1_0_43, name: "stq1_0_43", ..stq1_0::INFO };
    STQ1_0_CONTIGUOUS = TENCENT_FIRST | 42 => stq1_0::CONTIGUOUS;
    G8_0 = PESTLE | 143 => private::G8_0;
    FV5 = NEUTRINO | 43 => private::FV5;
    FV5B = NEUTRINO | 44 => private::FV5B;
    FAIRY2I_TILE64 = FAIRY2I | 42 => size_only(TypeId::FAIRY2I_TILE64, "fairy2i_tile64_v2", 64, 20, &[]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_the_block_from_end_to_end() {
        for info in REGISTRY.iter().filter(|info| !info.fields.is_empty()) {
            assert_eq!(info.fields[0].at, 0, "{}", info.name);
            let ends = info.fields[1..].iter().map(|f| f.at).chain([info.bytes]);
            for (field, end) in info.fields.iter().zip(ends) {
                let bytes = end.checked_sub(field.at).unwrap();
                let fits = match field.format {
                    Format::F64 | Format::F16Nibbles => bytes == 8,
                    Format::F32 => bytes == 4,
                    Format::F16 | Format::Bf16 => bytes == 2,
                    Format::E8m0 => bytes == 1,
                    Format::I16 => bytes > 0 && bytes.is_multiple_of(2),
                    Format::I8 | Format::Bits => bytes > 0,
                };
                assert!(fits, "{}: {field:?} has {bytes} bytes", info.name);
            }
            if info.decode.is_some() || info.dot_ref.is_some() {
                assert!(!info.fields.is_empty(), "{}", info.name);
            }
        }
    }
}
