//! Types with nested chains for AVX2 and AVX-VNNI: the bytes of [`nested`].
//!
//! One token: codes meet activations in the registers they are unpacked to. More: a block is unpacked once for all,
//! four of which run over it together, 16 rows at a time; the inner chains stay in registers, the sums of the rows in
//! memory.

use std::arch::x86_64::*;

use super::super::super::{Ahead, with_ahead};
use super::super::{broadcast_float, by_tokens, halves, load, store};
use super::{Codes, Dot, Products, TILES, VECTORS};
use crate::packed::block32::{LINE, RECORD, ROWS};
use crate::packed::nested::{self, MOST_SUBS, Nested, layouts_of_nested};
use crate::packed::{Call, Layout};
use crate::proof::{Avx2, AvxVnni};

const fn layout<P: Products, C: Nested>() -> Layout {
    nested::layout::<C>(P::NEEDS, multiply::<P, C>)
}

pub static PLAIN: &[Layout] = &layouts_of_nested!(layout, Avx2);
pub static BY_VNNI: &[Layout] = &layouts_of_nested!(layout, AvxVnni);

fn multiply<P: Products, C: Nested>(call: Call<'_>) {
    let Call { group, acts, tokens, ahead, out, .. } = call.check(const { &layout::<P, C>() });
    // SAFETY: `check` has seen the proof of these instructions and compared all lengths.
    unsafe {
        if tokens == 1 {
            with_ahead!(ahead => one::<P, C>(group, acts, ahead, out));
        } else {
            many::<P, C>(group, acts, acts.len() / tokens.max(1), ahead, out);
        }
    }
}

/// The codes of eight rows and 32 weights: dword k in vector k.
///
/// # Safety
/// The processor has AVX2; the rows' part of the lines is readable.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn codes<C: Nested>(lines: *const u8) -> [__m256i; 8] {
    // SAFETY: the caller's lines.
    let line = |p| unsafe { load(lines.add(LINE * p)) };
    if C::LINES == 1 {
        let (line, two) = (line(0), _mm256_set1_epi8(2));
        let code = |bits| _mm256_and_si256(bits, two);
        return [
            code(_mm256_add_epi8(line, line)),
            code(line),
            code(_mm256_srli_epi16::<1>(line)),
            code(_mm256_srli_epi16::<2>(line)),
            code(_mm256_srli_epi16::<3>(line)),
            code(_mm256_srli_epi16::<4>(line)),
            code(_mm256_srli_epi16::<5>(line)),
            code(_mm256_srli_epi16::<6>(line)),
        ];
    }
    let three = _mm256_set1_epi8(3);
    let planes = |line| {
        [
            _mm256_and_si256(line, three),
            _mm256_and_si256(_mm256_srli_epi16::<2>(line), three),
            _mm256_and_si256(_mm256_srli_epi16::<4>(line), three),
            _mm256_and_si256(_mm256_srli_epi16::<6>(line), three),
        ]
    };
    let ([a, b, c, d], [e, f, g, h]) = (planes(line(0)), planes(line(1)));
    [a, b, c, d, e, f, g, h]
}

/// The inner chain a step further: `chain + dx * isum`, each operation rounded by itself.
#[inline]
#[target_feature(enable = "avx2")]
fn inner(chain: __m256, dx: __m256, isum: __m256i) -> __m256 {
    _mm256_add_ps(chain, _mm256_mul_ps(dx, _mm256_cvtepi32_ps(isum)))
}

#[target_feature(enable = "avx2,f16c")]
unsafe fn one<P: Products, C: Nested>(group: &[u8], act: &[u8], ahead: impl Ahead, out: &mut [f32]) {
    let mut totals = [_mm256_setzero_ps(); ROWS / 8];
    let records = act.chunks_exact(C::SUBS * RECORD);
    for (block, records) in group.chunks_exact(C::PACKED).zip(records) {
        let (block, records) = (block.as_ptr(), records.as_ptr());
        let mut chains = [_mm256_setzero_ps(); ROWS / 8];
        // SAFETY: a whole block, and the records of its 32 weights each.
        unsafe {
            for sub in 0..C::SUBS {
                let lines = block.add(C::LINES_START + LINE * C::LINES * sub);
                let record = records.add(RECORD * sub);
                let dx = broadcast_float(record.add(32));
                let from = block.wrapping_add(C::PACKED / C::SUBS * sub);
                for (v, chain) in chains.iter_mut().enumerate() {
                    ahead.share(from, const { C::PACKED.div_ceil(C::SUBS) }, v, ROWS / 8);
                    let isum = P::one_dot::<C>(&codes::<C>(lines.add(32 * v)), record);
                    *chain = inner(*chain, dx, isum);
                }
            }
            for (v, (total, chain)) in totals.iter_mut().zip(chains).enumerate() {
                *total = _mm256_add_ps(*total, _mm256_mul_ps(halves(block.add(16 * v)), chain));
            }
        }
    }
    for (total, out) in totals.iter().zip(out.chunks_exact_mut(8)) {
        store(out, *total);
    }
}

#[target_feature(enable = "avx2,f16c")]
unsafe fn many<P: Products, C: Nested>(group: &[u8], acts: &[u8], stride: usize, ahead: usize, out: &mut [f32]) {
    let tokens = out.len() / ROWS;
    let mut room = [[[_mm256_setzero_si256(); ROWS / 8]; 8]; MOST_SUBS];
    out.fill(0.0);
    for (b, block) in group.chunks_exact(C::PACKED).enumerate() {
        let block = block.as_ptr();
        // SAFETY: a whole block, and its records of all tokens, as `check` saw.
        unsafe {
            for (sub, room) in room[..C::SUBS].iter_mut().enumerate() {
                let lines = block.add(C::LINES_START + LINE * C::LINES * sub);
                let from = block.wrapping_add(C::PACKED / C::SUBS * sub);
                for v in 0..ROWS / 8 {
                    ahead.share(from, const { C::PACKED.div_ceil(C::SUBS) }, v, ROWS / 8);
                    let codes = codes::<C>(lines.add(32 * v));
                    for (room, codes) in room.iter_mut().zip(codes) {
                        room[v] = codes;
                    }
                }
            }
            let scales: [_; ROWS / 8] = std::array::from_fn(|v| halves(block.add(16 * v)));
            let records = acts.as_ptr().add(RECORD * C::SUBS * b);
            by_tokens!(t in tokens, T => for h in 0..TILES {
                let scales = &scales[VECTORS * h..][..VECTORS];
                let out = &mut out[ROWS * t + 8 * VECTORS * h..];
                add::<P, C, T>(&room, h, scales, records.add(stride * t), stride, out);
            });
        }
    }
}

/// The block step of the rows of tile h and of T tokens, whose sums are in `out`, those of a token [`ROWS`] after those
/// of the one before.
///
/// # Safety
/// The processor has the instruction set; the records are readable.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn add<P: Dot<T>, C: Nested, const T: usize>(
    room: &[Codes; MOST_SUBS],
    h: usize,
    scales: &[__m256],
    records: *const u8,
    stride: usize,
    out: &mut [f32],
) {
    let mut chains = [[_mm256_setzero_ps(); VECTORS]; T];
    for (sub, codes) in room[..C::SUBS].iter().enumerate() {
        // SAFETY: the caller's records.
        unsafe {
            let codes = (&raw const *codes).cast::<u8>();
            let record = records.add(RECORD * sub);
            let isums = P::dot::<C>(codes.add(32 * VECTORS * h), record, stride);
            for (t, (chains, isums)) in chains.iter_mut().zip(isums).enumerate() {
                let dx = broadcast_float(record.add(stride * t + 32));
                for (chain, isum) in chains.iter_mut().zip(isums) {
                    *chain = inner(*chain, dx, isum);
                }
            }
        }
    }
    for (chains, out) in chains.iter().zip(out.chunks_mut(ROWS)) {
        for ((chain, scale), out) in chains.iter().zip(scales).zip(out.chunks_exact_mut(8)) {
            // SAFETY: eight floats.
            let total = unsafe { _mm256_loadu_ps(out.as_ptr()) };
            store(out, _mm256_add_ps(total, _mm256_mul_ps(*scale, *chain)));
        }
    }
}
