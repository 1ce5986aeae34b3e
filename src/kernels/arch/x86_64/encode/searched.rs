//! The K-quants and IQ types, whose encoders search for scales and points: the searches of `trine_formats` on the
//! vectors of each instruction set. They are inlined into these functions, so that the compiler may use what the
//! functions enable.

use trine_formats::types::encode_on;

use super::super::simd::{Avx2, Avx512};

macro_rules! encoders {
    ($($name:ident: $avx2:ident $avx512:ident;)*) => { $(
        #[target_feature(enable = "avx2,fma,f16c")]
        pub(super) fn $avx2(x: &[f32], importance: Option<&[f32]>, row: &mut [u8]) {
            encode_on::$name(Avx2::here(), x, importance, row);
        }

        #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
        pub(super) fn $avx512(x: &[f32], importance: Option<&[f32]>, row: &mut [u8]) {
            encode_on::$name(Avx512::here(), x, importance, row);
        }
    )* };
}

encoders! {
    q2_k: q2_k_avx2 q2_k_avx512;
    q3_k: q3_k_avx2 q3_k_avx512;
    q4_k: q4_k_avx2 q4_k_avx512;
    q5_k: q5_k_avx2 q5_k_avx512;
    q6_k: q6_k_avx2 q6_k_avx512;
    iq1_s: iq1_s_avx2 iq1_s_avx512;
    iq1_m: iq1_m_avx2 iq1_m_avx512;
    iq2_xxs: iq2_xxs_avx2 iq2_xxs_avx512;
    iq2_xs: iq2_xs_avx2 iq2_xs_avx512;
    iq2_s: iq2_s_avx2 iq2_s_avx512;
    iq3_xxs: iq3_xxs_avx2 iq3_xxs_avx512;
    iq3_s: iq3_s_avx2 iq3_s_avx512;
}
