//! Half floats and bfloats, 32 rows interleaved: the layouts of [`crate::arch::packed::half`].

use std::arch::aarch64::*;

use crate::arch::halves::native::widen;
use crate::arch::packed::half::{Set, bf16, f16};
use crate::proof::Neon;
use crate::shared::halves::SCALE;
use crate::shared::packed::Layout;

impl Set for Neon {
    fn widen(self, halves: &[[[u8; 2]; 8]], out: &mut [[[u8; 8]; 8]]) {
        for (halves, out) in halves.iter().zip(out) {
            let (halves, out) = (halves.as_ptr().cast::<u16>(), out.as_mut_ptr().cast::<f64>());
            for four in [0, 4] {
                // SAFETY: a value of this type proves NEON; eight values on both sides; no alignment is asked for.
                unsafe {
                    let x = widen(vreinterpret_u16_u8(vld1_u8(halves.add(four).cast())));
                    let low = vmulq_n_f64(vcvt_f64_f32(vget_low_f32(x)), SCALE);
                    let high = vmulq_n_f64(vcvt_high_f64_f32(x), SCALE);
                    vst1q_u8(out.add(four).cast(), vreinterpretq_u8_f64(low));
                    vst1q_u8(out.add(four + 2).cast(), vreinterpretq_u8_f64(high));
                }
            }
        }
    }
}

pub(super) static LAYOUTS: &[Layout] = &[f16::<Neon>(), bf16::<Neon>()];
