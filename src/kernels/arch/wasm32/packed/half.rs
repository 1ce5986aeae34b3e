//! Half floats and bfloats, 32 rows interleaved: the layouts of [`crate::arch::packed::half`].

use trine_formats::types::num::f16_to_f32;

use crate::arch::packed::half::{Set, bf16, f16};
use crate::proof::Simd128;
use crate::shared::halves::SCALE;
use crate::shared::packed::Layout;

impl Set for Simd128 {
    fn widen(self, halves: &[[[u8; 2]; 8]], out: &mut [[[u8; 8]; 8]]) {
        for (half, out) in halves.as_flattened().iter().zip(out.as_flattened_mut()) {
            *out = (f64::from(f16_to_f32(u16::from_le_bytes(*half))) * SCALE).to_le_bytes();
        }
    }
}

pub(super) static LAYOUTS: &[Layout] = &[f16::<Simd128>(), bf16::<Simd128>()];
