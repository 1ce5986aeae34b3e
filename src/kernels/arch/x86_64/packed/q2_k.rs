//! Q2_K: the bytes of [`crate::shared::packed::k_quants::q2_k`].
//!
//! The sum of an odd p, 4 times too large, is shifted to the high half of its dword and the even one added below
//! it, with a bias that keeps it from borrowing; one `dpwssd` applies both scales, and the integer starts at what
//! takes the bias back. (Expanding a block to the bytes scale * code, once for many tokens, is no faster.)

use std::arch::x86_64::*;

use super::zmm::{Zmm, dpwssd};
use super::{PrefetchDistance, with_prefetch};
use crate::arch::x86_64::rows::lanes::Lanes;
use crate::arch::x86_64::rows::q2_k::Head;
use crate::proof::{Avx512, Proof};
use crate::shared::packed::k_quants::ROWS;
use crate::shared::packed::k_quants::q2_k::{ACT, BYTES, CODES, act_bytes, layout};
use crate::shared::packed::{Call, Layout};

/// Above the magnitude of the sum of a group.
const BIAS: i32 = 16384;

pub(super) static LAYOUTS: &[Layout] = &[layout(Avx512::NEEDS, multiply, 32)];

fn multiply(call: Call<'_>) {
    let Call { group, acts, n, ahead, out, .. } = call.check(&LAYOUTS[0]);
    let act = act_bytes(n);
    for (acts, out) in acts.chunks(8 * act).zip(out.chunks_mut(8 * ROWS)) {
        let y = acts.as_ptr();
        // SAFETY: `check` has seen the proof of these instructions and compared all lengths.
        unsafe {
            match out.len() / ROWS {
                0 => {}
                1 => with_prefetch!(ahead => tile::<1>(group, y, act, ahead, out)),
                2 => with_prefetch!(ahead => tile::<2>(group, y, act, ahead, out)),
                3 => with_prefetch!(ahead => tile::<3>(group, y, act, ahead, out)),
                4 => with_prefetch!(ahead => tile::<4>(group, y, act, ahead, out)),
                5 => with_prefetch!(ahead => tile::<5>(group, y, act, ahead, out)),
                6 => with_prefetch!(ahead => tile::<6>(group, y, act, ahead, out)),
                7 => with_prefetch!(ahead => tile::<7>(group, y, act, ahead, out)),
                _ => with_prefetch!(ahead => tile::<8>(group, y, act, ahead, out)),
            }
        }
    }
}

/// Pairs of scales of groups (0, 2), (1, 3), (4, 6) .., and where the integer starts, to make up for the bias.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
fn scales(head: &Head<Zmm>) -> ([__m512i; 8], __m512i) {
    let low = _mm512_set1_epi16(15);
    let zero = _mm512_setzero_si512();
    let (mut scales, mut sum) = ([zero; 8], zero);
    for (scales, line) in scales.as_chunks_mut::<2>().0.iter_mut().zip(head.lines) {
        *scales = [_mm512_and_si512(line, low), _mm512_and_si512(_mm512_srli_epi16::<8>(line), low)];
        sum = _mm512_add_epi16(sum, _mm512_add_epi16(scales[0], scales[1]));
    }
    (scales, dpwssd(zero, sum, _mm512_set1_epi32(-BIAS & 0xFFFF)))
}

/// Adds the groups of the lower two planes of a set to the integer. `y`: the quants of the first.
/// `prefetch(c)` is called eight times on the way.
///
/// # Safety
/// The processor has these features; two groups of 16 quants are readable at `y`, the second 32 bytes after the first.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn add_pair(
    acc: __m512i,
    lines: &[__m512i; 4],
    scales: __m512i,
    y: *const u8,
    prefetch: impl Fn(usize),
) -> __m512i {
    let (even, odd) = (_mm512_set1_epi8(0x03), _mm512_set1_epi8(0x0C));
    let mut sums = _mm512_set1_epi32(BIAS >> 14);
    for (c, line) in lines.iter().enumerate() {
        // SAFETY: two groups of 16 quants lie at `y`, the second 32 bytes after the first.
        let q = unsafe { Zmm::broadcast(y.add(32 + 4 * c)) };
        prefetch(c);
        sums = _mm512_dpbusd_epi32(sums, _mm512_and_si512(*line, odd), q);
    }
    sums = _mm512_slli_epi32::<14>(sums);
    for (c, line) in lines.iter().enumerate() {
        // SAFETY: two groups of 16 quants lie at `y`, the second 32 bytes after the first.
        let q = unsafe { Zmm::broadcast(y.add(4 * c)) };
        prefetch(4 + c);
        sums = _mm512_dpbusd_epi32(sums, _mm512_and_si512(*line, even), q);
    }
    dpwssd(acc, sums, scales)
}

/// The product with T tokens: as many as have room in the registers and share the unpacked codes.
///
/// # Safety
/// The processor has these features; `T` tokens have the arranged activations of all blocks of the group at `acts`,
/// `act` bytes apart.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn tile<const T: usize>(
    group: &[u8],
    acts: *const u8,
    act: usize,
    ahead: impl PrefetchDistance,
    out: &mut [f32],
) {
    let mut chains = [_mm512_setzero_ps(); T];
    for (b, block) in group.as_chunks::<BYTES>().0.iter().enumerate() {
        // SAFETY: block b of the activations of all tokens is there, as `check` saw.
        unsafe {
            let (w, y) = (block.as_ptr(), acts.add(ACT * b));
            let head = Head::new(w, 0);
            let (scales_of, start) = scales(&head);
            let mut sums = [start; T];
            for set in 0..4 {
                let w = w.add(CODES + 256 * set);
                let y = y.add(set / 2 * 128 + set % 2 * 16);
                let from = block.as_ptr().wrapping_add(BYTES / 4 * set);
                let lines = [Zmm::load(w), Zmm::load(w.add(64)), Zmm::load(w.add(128)), Zmm::load(w.add(192))];
                let upper = lines.map(|line| _mm512_srli_epi16::<4>(line));
                let (h, i) = (set / 2, set % 2);
                let scales = [scales_of[4 * h + i], scales_of[4 * h + 2 + i]];
                for (t, sum) in sums.iter_mut().enumerate() {
                    let y = y.add(act * t);
                    // With the first token.
                    let prefetch = |first: usize| {
                        move |i| {
                            if t == 0 {
                                ahead.share(from, BYTES.div_ceil(4), first + i, 16);
                            }
                        }
                    };
                    *sum = add_pair(*sum, &lines, scales[0], y, prefetch(0));
                    *sum = add_pair(*sum, &upper, scales[1], y.add(64), prefetch(8));
                }
            }
            for (t, chain) in chains.iter_mut().enumerate() {
                *chain = head.step(*chain, sums[t], y.add(act * t));
            }
        }
    }
    for (chain, out) in chains.iter().zip(out.chunks_exact_mut(ROWS)) {
        // SAFETY: sixteen floats.
        unsafe { _mm512_storeu_ps(out.as_mut_ptr(), *chain) }
    }
}
