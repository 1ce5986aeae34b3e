//! Types with nested chains by AVX-512: the bytes of [`nested`], sixteen rows a vector.
//!
//! As in [`super::block32`], 32 weights of all rows are unpacked to sixteen registers and used for all tokens, whose
//! inner chains and sums stay in the first-level cache.

use std::arch::x86_64::*;

use super::lanes::load;
use super::{Ahead, asking_once, with_ahead};
use crate::packed::block32::{LINE, RECORD, ROWS};
use crate::packed::nested::{self, Nested, layouts_of_nested};
use crate::packed::{Call, Layout};
use crate::proof::{Avx512, Proof};

/// Vectors of sixteen of the rows.
const VECTORS: usize = ROWS / 16;
/// Tokens whose inner chains are kept.
const TILE: usize = 32;

const fn layout<C: Nested>() -> Layout {
    nested::layout::<C>(Avx512::NEEDS, multiply::<C>)
}

pub(super) static LAYOUTS: &[Layout] = &layouts_of_nested!(layout);

fn multiply<C: Nested>(call: Call<'_>) {
    let Call { group, acts, tokens, ahead, out, .. } = call.check(const { &layout::<C>() });
    let stride = acts.len() / tokens.max(1);
    for (acts, out) in acts.chunks(TILE * stride.max(1)).zip(out.chunks_mut(TILE * ROWS)) {
        // SAFETY: `check` has seen the proof of these instructions and compared all lengths, and no portion has more than `TILE` tokens.
        unsafe {
            if out.len() == ROWS {
                with_ahead!(ahead => one::<C>(group, acts, ahead, out));
            } else {
                many::<C>(group, acts, stride, ahead, out);
            }
        }
    }
}

/// The codes of 32 weights: dword k of every row.
type Codes = [[__m512i; VECTORS]; 8];

/// # Safety
/// The processor has AVX-512; the lines are readable.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn codes<C: Nested>(lines: *const u8) -> Codes {
    let mut codes = [[_mm512_setzero_si512(); VECTORS]; 8];
    for v in 0..VECTORS {
        // SAFETY: the caller's lines.
        let line = |p| unsafe { load(lines.add(LINE * p + 64 * v)) };
        if C::LINES == 1 {
            let (line, two) = (line(0), _mm512_set1_epi8(2));
            let shifted = [
                _mm512_add_epi8(line, line),
                line,
                _mm512_srli_epi16::<1>(line),
                _mm512_srli_epi16::<2>(line),
                _mm512_srli_epi16::<3>(line),
                _mm512_srli_epi16::<4>(line),
                _mm512_srli_epi16::<5>(line),
                _mm512_srli_epi16::<6>(line),
            ];
            for (codes, bits) in codes.iter_mut().zip(shifted) {
                codes[v] = _mm512_and_si512(bits, two);
            }
        } else {
            let three = _mm512_set1_epi8(3);
            for (p, codes) in codes.as_chunks_mut::<4>().0.iter_mut().enumerate() {
                let line = line(p);
                codes[0][v] = _mm512_and_si512(line, three);
                codes[1][v] = _mm512_and_si512(_mm512_srli_epi16::<2>(line), three);
                codes[2][v] = _mm512_and_si512(_mm512_srli_epi16::<4>(line), three);
                codes[3][v] = _mm512_and_si512(_mm512_srli_epi16::<6>(line), three);
            }
        }
    }
    codes
}

/// The inner chains a step further: `chain + dx * isum`, each operation rounded by itself. `ask(k)` is called eight
/// times on the way.
///
/// # Safety
/// The processor has these instructions; a record is readable.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn inner(chains: &mut [__m512; VECTORS], codes: &Codes, record: *const u8, ask: impl Fn(usize)) {
    // SAFETY: a record has 48 bytes.
    let dword = |at: usize| unsafe { record.add(at).cast::<i32>().read_unaligned() };
    let mut isums = [_mm512_set1_epi32(dword(36)); VECTORS];
    for (k, codes) in codes.iter().enumerate() {
        ask(k);
        let q = _mm512_set1_epi32(dword(4 * k));
        for (isum, codes) in isums.iter_mut().zip(codes) {
            *isum = _mm512_dpbusd_epi32(*isum, *codes, q);
        }
    }
    let dx = _mm512_castsi512_ps(_mm512_set1_epi32(dword(32)));
    for (chain, isum) in chains.iter_mut().zip(isums) {
        *chain = _mm512_add_ps(*chain, _mm512_mul_ps(dx, _mm512_cvtepi32_ps(isum)));
    }
}

/// The sums of the rows, their inner chains times the block's scales.
///
/// # Safety
/// The processor has AVX-512; a packed block is readable.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn outer(totals: &mut [__m512; VECTORS], chains: &[__m512; VECTORS], block: *const u8) {
    for (v, (total, chain)) in totals.iter_mut().zip(chains).enumerate() {
        // SAFETY: a block begins with 32 f16.
        let scale = _mm512_cvtph_ps(unsafe { _mm256_loadu_si256(block.add(32 * v).cast()) });
        *total = _mm512_add_ps(*total, _mm512_mul_ps(scale, *chain));
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn one<C: Nested>(group: &[u8], act: &[u8], ahead: impl Ahead, out: &mut [f32]) {
    let mut totals = [_mm512_setzero_ps(); VECTORS];
    let records = act.chunks_exact(C::SUBS * RECORD);
    for (block, records) in group.chunks_exact(C::PACKED).zip(records) {
        let block = block.as_ptr();
        let mut chains = [_mm512_setzero_ps(); VECTORS];
        // SAFETY: a whole block, and the records of its 32 weights each.
        unsafe {
            for sub in 0..C::SUBS {
                let codes = codes::<C>(block.add(C::LINES_START + LINE * C::LINES * sub));
                let from = block.wrapping_add(C::PACKED / C::SUBS * sub);
                let ask = |k| ahead.share(from, const { C::PACKED.div_ceil(C::SUBS) }, k, 8);
                inner(&mut chains, &codes, records[RECORD * sub..].as_ptr(), ask);
            }
            outer(&mut totals, &chains, block);
        }
    }
    store(out, &totals);
}

#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn many<C: Nested>(group: &[u8], acts: &[u8], stride: usize, ahead: usize, out: &mut [f32]) {
    let zero = [_mm512_setzero_ps(); VECTORS];
    let mut room = [zero; TILE];
    out.fill(0.0);
    for (b, block) in group.chunks_exact(C::PACKED).enumerate() {
        let block = block.as_ptr();
        for sub in 0..C::SUBS {
            let from = block.wrapping_add(C::PACKED / C::SUBS * sub);
            let mut ask = Some(|k| ahead.share(from, const { C::PACKED.div_ceil(C::SUBS) }, k, 8));
            // SAFETY: a whole block, and its records of all tokens, as `check` saw.
            unsafe {
                let codes = codes::<C>(block.add(C::LINES_START + LINE * C::LINES * sub));
                let records = acts.as_ptr().add(RECORD * (C::SUBS * b + sub));
                for (t, (chains, out)) in room.iter_mut().zip(out.chunks_exact_mut(ROWS)).enumerate() {
                    // A copy, so that it may stay in registers.
                    let mut chain = if sub == 0 { zero } else { *chains };
                    let record = records.add(stride * t);
                    asking_once!(ask, ahead => inner(&mut chain, &codes, record, ask));
                    if sub + 1 < C::SUBS {
                        *chains = chain;
                        continue;
                    }
                    let mut totals = std::array::from_fn(|v| _mm512_loadu_ps(out[16 * v..].as_ptr()));
                    outer(&mut totals, &chain, block);
                    store(out, &totals);
                }
            }
        }
    }
}

/// Writes the sums of a token.
#[inline]
#[target_feature(enable = "avx512f")]
fn store(out: &mut [f32], totals: &[__m512; VECTORS]) {
    for (total, out) in totals.iter().zip(out.chunks_exact_mut(16)) {
        // SAFETY: 16 floats.
        unsafe { _mm512_storeu_ps(out.as_mut_ptr(), *total) }
    }
}
