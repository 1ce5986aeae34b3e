//! Words of codes on NEON: masks come from testing a word for a bit for each lane.

use std::arch::aarch64::*;

/// The sum of sixteen lanes, halves first.
#[inline]
#[target_feature(enable = "neon")]
fn reduce(lanes: [float32x4_t; 4]) -> f32 {
    let [a, b, c, d] = lanes;
    let four = vaddq_f32(vaddq_f32(a, c), vaddq_f32(b, d));
    let two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
    vget_lane_f32::<0>(two) + vget_lane_f32::<1>(two)
}

/// The sums of all streams over `chunks` chunks, as [`StreamSums`](crate::shared::widely::StreamSums) has them. One stream at a
/// time: its accumulators fill half of the registers.
///
/// # Safety
/// The processor has NEON; `words` are `4 · streams` bytes for each chunk, `re` and `im` 64.
#[inline(never)]
#[target_feature(enable = "neon")]
pub(super) unsafe fn word_sums_neon(
    streams: usize,
    chunks: usize,
    words: &[u8],
    re: &[u8],
    im: &[u8],
    out: &mut [[f32; 4]],
) {
    // for each four lanes the bits that say that they are positive, and that they are on the imaginary axis
    let bits: [[uint32x4_t; 2]; 4] = std::array::from_fn(|q| {
        [0, 1].map(|axis| {
            let four: [u32; 4] = std::array::from_fn(|l| 1 << (2 * (4 * q + l) + axis));
            // SAFETY: four integers.
            unsafe { vld1q_u32(four.as_ptr()) }
        })
    });
    let sign = vdupq_n_u32(1 << 31);
    for (stream, out) in out.iter_mut().enumerate() {
        // rr, ri, ir, ii
        let mut sums = [[vdupq_n_f32(0.0); 4]; 4];
        // SAFETY: of `stream < streams` words of each of `chunks` chunks, and of 16 floats of each, the caller says
        // that they are there.
        unsafe {
            let mut word = words.as_ptr().add(4 * stream);
            let (mut re, mut im) = (re.as_ptr().cast::<f32>(), im.as_ptr().cast::<f32>());
            for _ in 0..chunks {
                let codes = vdupq_n_u32(word.cast::<u32>().read_unaligned());
                for (q, [positive, imaginary]) in bits.into_iter().enumerate() {
                    let change = vbicq_u32(sign, vtstq_u32(codes, positive));
                    let on_imaginary = vtstq_u32(codes, imaginary);
                    let [rr, ri, ir, ii] = &mut sums;
                    for (x, real, imaginary) in [(re, rr, ir), (im, ri, ii)] {
                        let x = vreinterpretq_u32_f32(vld1q_f32(x.add(4 * q)));
                        let x = veorq_u32(x, change);
                        let on_real = vreinterpretq_f32_u32(vbicq_u32(x, on_imaginary));
                        let x = vreinterpretq_f32_u32(vandq_u32(x, on_imaginary));
                        real[q] = vaddq_f32(real[q], on_real);
                        imaginary[q] = vaddq_f32(imaginary[q], x);
                    }
                }
                word = word.add(4 * streams);
                (re, im) = (re.add(16), im.add(16));
            }
        }
        *out = sums.map(|lanes| reduce(lanes));
    }
}
