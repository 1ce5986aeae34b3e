//! The types of ik_llama.cpp as levels: how each of them is read.
//!
//! Tables of up to 32 levels are looked up, and raised groups told by their scales. The levels of IQ6_K and of the
//! trellis types are too many: they stand as bytes.

use trine_formats::types::ik::{self, IQ2, IQ3, IQ4, IQ5};
use trine_formats::types::{TypeId, ik::BlockFormat};

use super::super::grouped::GroupStep;
use super::levels::{Levels, Weights, ascending};
use crate::shared::packed::k_quants::BLOCK;

/// `$layout` of every type.
macro_rules! layouts_of_ik_levels {
    ($layout:ident) => {{
        use $crate::arch::x86_64::packed::ik_levels::*;
        $crate::shared::packed::layouts_of!($layout: Iq2K Iq3K Iq4K Iq5K Iq6K Iq2Ks Iq3Ks Iq4Ks Iq5Ks Iq4Kss Iq2Kl
            Iq1Kt Iq2Kt Iq3Kt Iq4Kt Q8KR1)
    }};
}
pub(super) use layouts_of_ik_levels;

/// No table: levels stand as bytes.
const BYTES: ([i8; 32], usize) = ([0; 32], 0);

macro_rules! types {
    ($($codes:ident: $ty:ident, $name:literal, $values:expr $(, raised $raised:literal)? $(, odd $odd:literal)?;)*) => {$(
        pub(super) struct $codes;

        impl Levels for $codes {
            const TYPES: &'static [TypeId] = &[TypeId::$ty];
            const NAME: &'static str = concat!($name, " x16");
            const BYTES: usize = ik::form(TypeId::$ty).bytes;
            const HEAD: usize = ik::form(TypeId::$ty).head;
            const STEP: GroupStep = GroupStep::Block;
            const LAST: f32 = 1.0;
            const VALUES: ([i8; 32], usize) = $values;
            const OF_16: bool = ik::form(TypeId::$ty).groups == 16;
            const ACTS_OF: TypeId = TypeId::IQ4_K;
            $(const RAISED: i16 = $raised;)?
            $(const ODD: bool = $odd;)?

            unsafe fn read(block: &[u8]) -> Weights {
                read(const { ik::form(TypeId::$ty) }, block)
            }
        }
    )*};
}

/// The plain half of a table, whose other half is the same raised.
const fn plain(table: &[i8]) -> ([i8; 32], usize) {
    ascending(table.split_at(table.len() / 2).0)
}

types! {
    Iq2K: IQ2_K, "iq2_k", plain(&IQ2), raised 5;
    Iq3K: IQ3_K, "iq3_k", plain(&IQ3), raised 4;
    Iq4K: IQ4_K, "iq4_k", plain(&IQ4), raised 4;
    Iq5K: IQ5_K, "iq5_k", plain(&IQ5), raised 2;
    Iq6K: IQ6_K, "iq6_k", BYTES;
    Iq2Ks: IQ2_KS, "iq2_ks", plain(&IQ2), raised 5;
    Iq3Ks: IQ3_KS, "iq3_ks", plain(&IQ3), raised 4;
    Iq4Ks: IQ4_KS, "iq4_ks", plain(&IQ4), raised 4, odd true;
    Iq5Ks: IQ5_KS, "iq5_ks", plain(&IQ5), raised 2, odd true;
    Iq4Kss: IQ4_KSS, "iq4_kss", plain(&IQ4), raised 4, odd true;
    Iq2Kl: IQ2_KL, "iq2_kl", plain(&IQ3);
    Iq1Kt: IQ1_KT, "iq1_kt", BYTES;
    Iq2Kt: IQ2_KT, "iq2_kt", BYTES;
    Iq3Kt: IQ3_KT, "iq3_kt", BYTES;
    Iq4Kt: IQ4_KT, "iq4_kt", BYTES;
    Q8KR1: Q8_K_R1, "q8_k_r1", BYTES;
}

/// The levels and scales of a block.
fn read(form: &BlockFormat, block: &[u8]) -> Weights {
    let mut weights = Weights { levels: [0; BLOCK], scales: [0; 16] };
    (form.levels)(block, &mut weights.levels);
    for (g, scale) in weights.scales.iter_mut().enumerate() {
        // A scale of several sixteens is theirs alike; none is too large for a byte.
        *scale = (form.scale)(block, g * form.groups / 16) as i8;
    }
    weights
}
