//! Kernels of the packed layouts.

use trine_formats::types::TypeId;

use crate::packed::{Layout, check, dword};
use crate::{Isa, Level};
use ahead::asking_once;
pub(in crate::arch::x86_64) use ahead::{Ahead, Never, with_ahead};

/// The layouts of the types with blocks of 32 elements, each made by `$layout` of a name and that of the activations'
/// arrangement.
macro_rules! layouts_of_block32 {
    ($visible:vis, $layout:ident $(, $products:ty)?) => {
        layouts_of_block32! {
            $visible, $layout, ($($products)?),
            Q8_0_X32 Q8_0 "q8_0 x32" "q8_0 bias 128",
            Q4_0_X32 Q4_0 "q4_0 x32" "q8_0 bias 8",
            Q4_1_X32 Q4_1 "q4_1 x32" "q8_1",
            Q5_0_X32 Q5_0 "q5_0 x32" "q8_0 bias 16",
            Q5_1_X32 Q5_1 "q5_1 x32" "q8_1",
            IQ4_NL_X32 Iq4Nl "iq4_nl x32" "q8_0 bias 128",
            MXFP4_X32 Mxfp4 "mxfp4 x32" "q8_0 bias 12"
        }
    };
    ($visible:vis, $layout:ident, (), $($name:ident $codes:ident $called:literal $acts:literal),*) => {
        $($visible static $name: Layout =
            $layout::<crate::packed::block32::$codes>($called, $acts);)*
    };
    ($visible:vis, $layout:ident, ($products:ty), $($name:ident $codes:ident $called:literal $acts:literal),*) => {
        $($visible static $name: Layout =
            $layout::<$products, crate::packed::block32::$codes>($called, $acts);)*
    };
}

/// The same of the types with nested chains.
macro_rules! layouts_of_nested {
    ($visible:vis, $layout:path $(, $products:ty)?) => {
        layouts_of_nested! {
            $visible, $layout, ($($products)?),
            Q2_0_X32 Q2_0 "q2_0 x32",
            PQ2_0_X32 Pq2_0 "pq2_0 x32",
            PTQ1_0_X32 Ptq1_0 "ptq1_0 x32",
            Q1_0_X32 Q1_0 "q1_0 x32"
        }
    };
    ($visible:vis, $layout:path, (), $($name:ident $codes:ident $called:literal),*) => {
        $($visible static $name: Layout = {
            use $layout as layout;
            layout::<crate::packed::nested::$codes>($called)
        };)*
    };
    ($visible:vis, $layout:path, ($products:ty), $($name:ident $codes:ident $called:literal),*) => {
        $($visible static $name: Layout = {
            use $layout as layout;
            layout::<$products, crate::packed::nested::$codes>($called)
        };)*
    };
}

pub(in crate::arch::x86_64) mod ahead;
mod avx2;
mod block32;
mod block32_tiles;
mod half;
pub(in crate::arch::x86_64) mod half_levels;
pub(in crate::arch::x86_64) mod half_limbs;
mod half_tiles;
mod k16;
mod k_tiles;
mod lanes;
mod level_bytes;
mod level_tiles;
mod levels;
mod nested;
mod q2_k;
mod q3_k;
mod q4_k;
mod q6_k;
mod t2;
mod t5;
mod ternary_bytes;
mod ternary_tiles;

macro_rules! list {
    ($($layout:path),*) => {{
        static LIST: &[&Layout] = &[$(&$layout),*];
        LIST
    }};
}

/// The layouts of a type that have kernels for an instruction set that the processor has, the best first.
pub(crate) fn layouts(ty: TypeId, isa: Isa) -> &'static [&'static Layout] {
    let vbmi = isa.has_vbmi();
    if isa.has(Level::Amx) {
        match ty {
            TypeId::TQ1_0 if vbmi => {
                return list![ternary_tiles::TQ1_0_TRITS, ternary_tiles::TQ1_0];
            }
            TypeId::TQ2_0 if vbmi => {
                return list![ternary_tiles::TQ2_0_TRITS, ternary_tiles::TQ2_0];
            }
            TypeId::I2_S if vbmi => return list![ternary_tiles::I2_S_TRITS, ternary_tiles::I2_S],
            TypeId::TL1 | TypeId::TL2 if vbmi => {
                return list![ternary_tiles::TL_TRITS, ternary_tiles::TL];
            }
            TypeId::F16 => return list![half_tiles::F16],
            TypeId::Q8_0 => return list![block32_tiles::Q8_0_X32],
            TypeId::Q4_0 => return list![block32_tiles::Q4_0_X32],
            TypeId::Q4_1 => return list![block32_tiles::Q4_1_X32],
            TypeId::Q5_0 => return list![block32_tiles::Q5_0_X32],
            TypeId::Q5_1 => return list![block32_tiles::Q5_1_X32],
            TypeId::IQ4_NL => return list![block32_tiles::IQ4_NL_X32],
            TypeId::MXFP4 => return list![block32_tiles::MXFP4_X32],
            TypeId::Q3_K => return list![k_tiles::Q3_K],
            TypeId::Q4_K => return list![k_tiles::Q4_K],
            TypeId::Q5_K => return list![k_tiles::Q5_K],
            TypeId::Q6_K => return list![k_tiles::Q6_K],
            TypeId::IQ2_XXS if vbmi => return list![level_tiles::IQ2_XXS],
            TypeId::IQ2_XS if vbmi => return list![level_tiles::IQ2_XS],
            TypeId::IQ2_S if vbmi => return list![level_tiles::IQ2_S],
            TypeId::IQ3_XXS if vbmi => return list![level_tiles::IQ3_XXS],
            TypeId::IQ3_S if vbmi => return list![level_tiles::IQ3_S],
            TypeId::IQ4_XS if vbmi => return list![level_tiles::IQ4_XS],
            _ => {}
        }
    }
    if isa.level() == Level::AvxVnni {
        match ty {
            TypeId::TQ1_0 => return list![avx2::t2::by_vnni::TQ1_0],
            TypeId::TQ2_0 => return list![avx2::t2::by_vnni::TQ2_0],
            TypeId::I2_S => return list![avx2::t2::by_vnni::I2_S],
            TypeId::TL1 | TypeId::TL2 => return list![avx2::t2::by_vnni::TL],
            TypeId::Q8_0 => return list![avx2::block32::by_vnni::Q8_0_X32],
            TypeId::Q4_0 => return list![avx2::block32::by_vnni::Q4_0_X32],
            TypeId::Q4_1 => return list![avx2::block32::by_vnni::Q4_1_X32],
            TypeId::Q5_0 => return list![avx2::block32::by_vnni::Q5_0_X32],
            TypeId::Q5_1 => return list![avx2::block32::by_vnni::Q5_1_X32],
            TypeId::IQ4_NL => return list![avx2::block32::by_vnni::IQ4_NL_X32],
            TypeId::MXFP4 => return list![avx2::block32::by_vnni::MXFP4_X32],
            TypeId::Q2_0 => return list![avx2::block32::by_vnni::Q2_0_X32],
            TypeId::PQ2_0 | TypeId::Q2_0_G128 => return list![avx2::block32::by_vnni::PQ2_0_X32],
            TypeId::PTQ1_0 => return list![avx2::block32::by_vnni::PTQ1_0_X32],
            TypeId::Q1_0 => return list![avx2::block32::by_vnni::Q1_0_X32],
            TypeId::Q2_K => return list![avx2::q2_k::Q2_K_BY_VNNI],
            TypeId::Q3_K => return list![avx2::q3_k::Q3_K_BY_VNNI],
            TypeId::Q6_K => return list![avx2::q6_k::Q6_K_BY_VNNI],
            TypeId::Q4_K => return list![avx2::q4_k::Q4_K_BY_VNNI],
            TypeId::Q5_K => return list![avx2::q4_k::Q5_K_BY_VNNI],
            _ => {}
        }
    }
    match (isa.vectors(), ty) {
        (Level::Avx512, TypeId::Q2_K) => list![q2_k::Q2_K],
        (Level::Avx512, TypeId::Q3_K) => list![q3_k::Q3_K],
        (Level::Avx512, TypeId::Q4_K) => list![q4_k::Q4_K],
        (Level::Avx512, TypeId::Q5_K) => list![q4_k::Q5_K],
        (Level::Avx512, TypeId::Q6_K) => list![q6_k::Q6_K],
        (Level::Avx512, TypeId::TQ1_0) if vbmi => list![t5::TQ1_0, t2::TQ1_0],
        (Level::Avx512, TypeId::TQ2_0) if vbmi => list![t5::TQ2_0, t2::TQ2_0],
        (Level::Avx512, TypeId::TQ2_0) => list![t2::TQ2_0],
        (Level::Avx512, TypeId::I2_S) if vbmi => list![t5::I2_S, t2::I2_S],
        (Level::Avx512, TypeId::I2_S) => list![t2::I2_S],
        (Level::Avx512, TypeId::TL1 | TypeId::TL2) if vbmi => list![t5::TL, t2::TL],
        (Level::Avx512, TypeId::TL1 | TypeId::TL2) => list![t2::TL],
        (Level::Avx512, TypeId::Q8_0) => list![block32::Q8_0_X32],
        (Level::Avx512, TypeId::Q4_0) => list![block32::Q4_0_X32],
        (Level::Avx512, TypeId::Q4_1) => list![block32::Q4_1_X32],
        (Level::Avx512, TypeId::Q5_0) => list![block32::Q5_0_X32],
        (Level::Avx512, TypeId::Q5_1) => list![block32::Q5_1_X32],
        (Level::Avx512, TypeId::IQ4_NL) => list![block32::IQ4_NL_X32],
        (Level::Avx512, TypeId::MXFP4) => list![block32::MXFP4_X32],
        (Level::Avx512, TypeId::Q2_0) => list![nested::Q2_0_X32],
        (Level::Avx512, TypeId::PQ2_0 | TypeId::Q2_0_G128) => list![nested::PQ2_0_X32],
        (Level::Avx512, TypeId::PTQ1_0) => list![nested::PTQ1_0_X32],
        (Level::Avx512, TypeId::Q1_0) => list![nested::Q1_0_X32],
        (Level::Avx512, TypeId::F16) => list![half::F16],
        (Level::Avx512, TypeId::BF16) => list![half::BF16],
        (Level::Avx2, TypeId::TQ1_0) => list![avx2::t2::plain::TQ1_0],
        (Level::Avx2, TypeId::TQ2_0) => list![avx2::t2::plain::TQ2_0],
        (Level::Avx2, TypeId::I2_S) => list![avx2::t2::plain::I2_S],
        (Level::Avx2, TypeId::TL1 | TypeId::TL2) => list![avx2::t2::plain::TL],
        (Level::Avx2, TypeId::Q2_K) => list![avx2::q2_k::Q2_K],
        (Level::Avx2, TypeId::Q3_K) => list![avx2::q3_k::Q3_K],
        (Level::Avx2, TypeId::Q6_K) => list![avx2::q6_k::Q6_K],
        (Level::Avx2, TypeId::Q4_K) => list![avx2::q4_k::Q4_K],
        (Level::Avx2, TypeId::Q5_K) => list![avx2::q4_k::Q5_K],
        (Level::Avx2, TypeId::Q8_0) => list![avx2::block32::plain::Q8_0_X32],
        (Level::Avx2, TypeId::Q4_0) => list![avx2::block32::plain::Q4_0_X32],
        (Level::Avx2, TypeId::Q4_1) => list![avx2::block32::plain::Q4_1_X32],
        (Level::Avx2, TypeId::Q5_0) => list![avx2::block32::plain::Q5_0_X32],
        (Level::Avx2, TypeId::Q5_1) => list![avx2::block32::plain::Q5_1_X32],
        (Level::Avx2, TypeId::IQ4_NL) => list![avx2::block32::plain::IQ4_NL_X32],
        (Level::Avx2, TypeId::MXFP4) => list![avx2::block32::plain::MXFP4_X32],
        (Level::Avx2, TypeId::Q2_0) => list![avx2::block32::plain::Q2_0_X32],
        (Level::Avx2, TypeId::PQ2_0 | TypeId::Q2_0_G128) => {
            list![avx2::block32::plain::PQ2_0_X32]
        }
        (Level::Avx2, TypeId::PTQ1_0) => list![avx2::block32::plain::PTQ1_0_X32],
        (Level::Avx2, TypeId::Q1_0) => list![avx2::block32::plain::Q1_0_X32],
        (Level::Avx2, TypeId::F16) => list![half::F16_AVX2],
        (Level::Avx2, TypeId::BF16) => list![half::BF16_AVX2],
        (Level::Avx512, TypeId::IQ2_XXS) if vbmi => list![level_bytes::IQ2_XXS],
        (Level::Avx512, TypeId::IQ2_XS) if vbmi => list![level_bytes::IQ2_XS],
        (Level::Avx512, TypeId::IQ2_S) if vbmi => list![level_bytes::IQ2_S],
        (Level::Avx512, TypeId::IQ3_XXS) if vbmi => list![level_bytes::IQ3_XXS],
        (Level::Avx512, TypeId::IQ3_S) if vbmi => list![level_bytes::IQ3_S],
        (Level::Avx512, TypeId::IQ4_XS) if vbmi => list![level_bytes::IQ4_XS],
        // Without VBMI these kernels are AVX2's.
        (Level::Avx2 | Level::Avx512, TypeId::IQ2_XXS) => list![avx2::levels::IQ2_XXS],
        (Level::Avx2 | Level::Avx512, TypeId::IQ2_XS) => list![avx2::levels::IQ2_XS],
        (Level::Avx2 | Level::Avx512, TypeId::IQ2_S) => list![avx2::levels::IQ2_S],
        (Level::Avx2 | Level::Avx512, TypeId::IQ3_XXS) => list![avx2::levels::IQ3_XXS],
        (Level::Avx2 | Level::Avx512, TypeId::IQ3_S) => list![avx2::levels::IQ3_S],
        (Level::Avx2 | Level::Avx512, TypeId::IQ4_XS) => list![avx2::levels::IQ4_XS],
        _ => list![],
    }
}

/// Layouts whose kernels multiply tiles in memory instead of the processor's, for tests on any processor.
#[cfg(test)]
pub(crate) fn software_layouts(ty: TypeId) -> &'static [&'static Layout] {
    let vectors = Isa::of(Level::Avx512).is_some();
    match ty {
        TypeId::TQ1_0 => list![ternary_tiles::software::TQ1_0],
        TypeId::TQ2_0 => list![ternary_tiles::software::TQ2_0],
        TypeId::I2_S => list![ternary_tiles::software::I2_S],
        TypeId::TL1 | TypeId::TL2 => list![ternary_tiles::software::TL],
        TypeId::F16 if vectors => list![half_tiles::software::F16],
        TypeId::Q8_0 => list![block32_tiles::software::Q8_0_X32],
        TypeId::Q4_0 => list![block32_tiles::software::Q4_0_X32],
        TypeId::Q4_1 => list![block32_tiles::software::Q4_1_X32],
        TypeId::Q5_0 => list![block32_tiles::software::Q5_0_X32],
        TypeId::Q5_1 => list![block32_tiles::software::Q5_1_X32],
        TypeId::IQ4_NL => list![block32_tiles::software::IQ4_NL_X32],
        TypeId::MXFP4 => list![block32_tiles::software::MXFP4_X32],
        TypeId::Q3_K if vectors => list![k_tiles::software::Q3_K],
        TypeId::Q4_K if vectors => list![k_tiles::software::Q4_K],
        TypeId::Q5_K if vectors => list![k_tiles::software::Q5_K],
        TypeId::Q6_K if vectors => list![k_tiles::software::Q6_K],
        _ if !Isa::of(Level::Avx512).is_some_and(Isa::has_vbmi) => list![],
        TypeId::IQ2_XXS => list![level_tiles::software::IQ2_XXS],
        TypeId::IQ2_XS => list![level_tiles::software::IQ2_XS],
        TypeId::IQ2_S => list![level_tiles::software::IQ2_S],
        TypeId::IQ3_XXS => list![level_tiles::software::IQ3_XXS],
        TypeId::IQ3_S => list![level_tiles::software::IQ3_S],
        TypeId::IQ4_XS => list![level_tiles::software::IQ4_XS],
        _ => list![],
    }
}
