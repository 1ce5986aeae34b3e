//! Types with 32-element blocks and one float chain per row, 16 rows interleaved: the bytes of [`crate::packed::block32`].
//!
//! Lane = row: eight dot products with the broadcast dwords of a token give the block's 16 integer sums,
//! and every lane goes through the float chain of its row. A block's lines are unpacked once and used for
//! all tokens, whose sums stay in the first-level cache.

use std::arch::x86_64::*;

use super::{check, prefetch};
use crate::packed::Layout;
use crate::packed::block32::{
    self, Block32, Iq4Nl, Mxfp4, PackedStep, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, RECORD, ROWS,
};

const fn layout<B: Block32>(name: &'static str, acts: &'static str) -> Layout {
    block32::layout::<B>(name, acts, multiply::<B>)
}

pub(super) static Q8_0_X16: Layout = layout::<Q8_0>("q8_0 x16", "q8_0 bias 128");
pub(super) static Q4_0_X16: Layout = layout::<Q4_0>("q4_0 x16", "q8_0 bias 8");
pub(super) static Q4_1_X16: Layout = layout::<Q4_1>("q4_1 x16", "q8_1");
pub(super) static Q5_0_X16: Layout = layout::<Q5_0>("q5_0 x16", "q8_0 bias 16");
pub(super) static Q5_1_X16: Layout = layout::<Q5_1>("q5_1 x16", "q8_1");
pub(super) static IQ4_NL_X16: Layout = layout::<Iq4Nl>("iq4_nl x16", "q8_0 bias 128");
pub(super) static MXFP4_X16: Layout = layout::<Mxfp4>("mxfp4 x16", "q8_0 bias 12");

/// The unsigned codes of a block: vector k holds elements 4k .. 4k + 4 of every row.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn unpack<B: Block32>(block: *const u8) -> [__m512i; 8] {
    let mut codes = [_mm512_setzero_si512(); 8];
    for g in 0..B::LINES {
        // SAFETY: a packed block has `LINES` lines.
        let line = unsafe { _mm512_loadu_si512(block.add(B::LINES_START + 64 * g).cast()) };
        if B::LINES == 8 {
            codes[g] = line;
        } else {
            let low = _mm512_set1_epi8(15);
            codes[g] = _mm512_and_si512(line, low);
            codes[g + 4] = _mm512_and_si512(_mm512_srli_epi16::<4>(line), low);
        }
    }
    if let Some(table) = B::TABLE {
        // SAFETY: a table of 16 bytes.
        let table = _mm512_broadcast_i32x4(unsafe { _mm_loadu_si128(table.as_ptr().cast()) });
        for c in &mut codes {
            *c = _mm512_shuffle_epi8(table, *c);
        }
    }
    if B::FIFTH_AT.is_some() {
        for (g, c) in codes.iter_mut().enumerate() {
            // SAFETY: a packed block with fifth bits has eight masks.
            let mask = unsafe {
                block
                    .add(B::MASKS_START + 8 * g)
                    .cast::<u64>()
                    .read_unaligned()
            };
            *c = _mm512_mask_add_epi8(*c, mask, *c, _mm512_set1_epi8(16));
        }
    }
    codes
}

#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn halves(p: *const u8) -> __m512 {
    // SAFETY: the caller has 16 f16 there.
    _mm512_cvtph_ps(unsafe { _mm256_loadu_si256(p.cast()) })
}

/// The scales of 16 rows.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn scales<B: Block32>(block: *const u8) -> __m512 {
    if B::SCALE_BYTES == 2 {
        // SAFETY: 16 f16 scales.
        return unsafe { halves(block) };
    }
    // Half of 2^(e - 127) as bits; the two smallest are denormal.
    // SAFETY: 16 exponents.
    let e = _mm512_cvtepu8_epi32(unsafe { _mm_loadu_si128(block.cast()) });
    let normal = _mm512_slli_epi32::<23>(_mm512_sub_epi32(e, _mm512_set1_epi32(1)));
    let denormal = _mm512_sllv_epi32(_mm512_set1_epi32(0x0020_0000), e);
    let small = _mm512_cmplt_epi32_mask(e, _mm512_set1_epi32(2));
    _mm512_castsi512_ps(_mm512_mask_mov_epi32(normal, small, denormal))
}

fn multiply<B: Block32>(
    group: &[u8],
    acts: &[u8],
    n: usize,
    tokens: usize,
    ahead: usize,
    out: &mut [f32],
) {
    let p = const { &layout::<B>("32-blocks x16", "") };
    check(p, group, acts, n, tokens, out);
    // SAFETY: `layouts` hands the layout out only for an `Isa` with these instructions;
    // `check` has compared all lengths.
    unsafe {
        if tokens == 1 {
            one::<B>(group, acts, ahead, out);
        } else {
            many::<B>(group, acts, acts.len() / tokens.max(1), out);
        }
    }
}

/// The block step of one token: its sums plus the block's term.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn step<B: Block32>(
    sum: __m512,
    codes: &[__m512i; 8],
    dw: __m512,
    mw: __m512,
    record: *const u8,
) -> __m512 {
    // SAFETY: a record has 48 bytes.
    let (start, dx, sx) = unsafe {
        let q = |at: usize| record.add(at).cast::<i32>().read_unaligned();
        let f = |at: usize| _mm512_set1_ps(record.add(at).cast::<f32>().read_unaligned());
        (_mm512_set1_epi32(q(36)), f(32), f(40))
    };
    let mut isum = start;
    for (g, c) in codes.iter().enumerate() {
        // SAFETY: eight dwords of activations.
        let q = unsafe { record.add(4 * g).cast::<i32>().read_unaligned() };
        isum = _mm512_dpbusd_epi32(isum, *c, _mm512_set1_epi32(q));
    }
    let isum = _mm512_cvtepi32_ps(isum);
    let term = match B::STEP {
        PackedStep::SumFirst => _mm512_mul_ps(_mm512_mul_ps(isum, dw), dx),
        PackedStep::ScaleFirst => _mm512_mul_ps(_mm512_mul_ps(dw, dx), isum),
        PackedStep::PlusOffset => _mm512_add_ps(
            _mm512_mul_ps(_mm512_mul_ps(dw, dx), isum),
            _mm512_mul_ps(mw, sx),
        ),
    };
    _mm512_add_ps(sum, term)
}

#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn offsets<B: Block32>(block: *const u8) -> __m512 {
    if B::OFFSETS > 0 {
        // SAFETY: 16 f16 offsets behind the scales.
        unsafe { halves(block.add(B::SCALE_BYTES * ROWS)) }
    } else {
        _mm512_setzero_ps()
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn one<B: Block32>(group: &[u8], act: &[u8], ahead: usize, out: &mut [f32]) {
    let mut sum = _mm512_setzero_ps();
    for (block, record) in group.chunks_exact(B::PACKED).zip(act.chunks_exact(RECORD)) {
        let block = block.as_ptr();
        prefetch(block, B::PACKED, ahead);
        // SAFETY: a whole block and a whole record.
        unsafe {
            let codes = unpack::<B>(block);
            let (dw, mw) = (scales::<B>(block), offsets::<B>(block));
            sum = step::<B>(sum, &codes, dw, mw, record.as_ptr());
        }
    }
    // SAFETY: 16 floats.
    unsafe { _mm512_storeu_ps(out[..ROWS].as_mut_ptr(), sum) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn many<B: Block32>(group: &[u8], acts: &[u8], act_bytes: usize, out: &mut [f32]) {
    out.fill(0.0);
    for (b, block) in group.chunks_exact(B::PACKED).enumerate() {
        let block = block.as_ptr();
        // SAFETY: a whole block.
        let (codes, dw, mw) =
            unsafe { (unpack::<B>(block), scales::<B>(block), offsets::<B>(block)) };
        for (act, out) in acts.chunks_exact(act_bytes).zip(out.chunks_exact_mut(ROWS)) {
            let record = &act[RECORD * b..][..RECORD];
            // SAFETY: 16 floats; a whole record.
            unsafe {
                let sum = _mm512_loadu_ps(out.as_ptr());
                let sum = step::<B>(sum, &codes, dw, mw, record.as_ptr());
                _mm512_storeu_ps(out.as_mut_ptr(), sum);
            }
        }
    }
}
