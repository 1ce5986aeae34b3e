//! Types with 32-element blocks and one float chain per row, 32 rows interleaved: the bytes of
//! [`crate::packed::block32`].
//!
//! Lane = row: eight dot products with the broadcast dwords of a token give the block's integer sums of 16 rows, and
//! every lane goes through the float chain of its row. A block's lines are unpacked once, to sixteen registers, and
//! used for all tokens, whose sums stay in the first-level cache. The tokens of a block do not wait for one another, so
//! that the processor runs several at once by itself.

use std::arch::x86_64::*;

use super::{Ahead, asking_once, with_ahead};
use crate::packed::block32::{self, Block32, LINE, PackedStep, RECORD, ROWS, layouts_of_block32};
use crate::packed::{Call, Layout};
use crate::proof::{Avx512, Proof};

/// Vectors of sixteen of the rows.
const VECTORS: usize = ROWS / 16;

const fn layout<B: Block32>() -> Layout {
    block32::layout::<B>(Avx512::NEEDS, multiply::<B>)
}

pub(super) static LAYOUTS: &[Layout] = &layouts_of_block32!(layout);

pub(super) fn multiply<B: Block32>(call: Call<'_>) {
    let Call { group, acts, tokens, ahead, out, .. } = call.check(const { &layout::<B>() });
    // SAFETY: `check` has seen the proof of these instructions and compared all lengths.
    unsafe {
        if tokens == 1 {
            with_ahead!(ahead => one::<B>(group, acts, ahead, out));
        } else {
            many::<B>(group, acts, acts.len() / tokens.max(1), ahead, out);
        }
    }
}

/// A block, unpacked.
pub(super) struct Block {
    /// Codes without a sign: dword k of every row.
    pub(super) codes: [[__m512i; VECTORS]; 8],
    pub(super) scales: [__m512; VECTORS],
    pub(super) offsets: [__m512; VECTORS],
}

impl Block {
    /// # Safety
    /// The processor has these instructions; a packed block is readable.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    pub(super) unsafe fn unpack<B: Block32>(block: *const u8) -> Block {
        // SAFETY: a packed block begins with its scales; offsets, fifth bits and lines follow where the type says.
        unsafe {
            let mut codes = codes::<B>(block.add(B::LINES_START));
            if B::FIFTH_AT.is_some() {
                add_fifth_bits(&mut codes, block.add(B::MASKS_START));
            }
            Block {
                codes,
                scales: std::array::from_fn(|v| match B::SCALE_BYTES {
                    2 => halves(block.add(32 * v)),
                    _ => powers(block.add(16 * v)),
                }),
                offsets: std::array::from_fn(|v| match B::STEP {
                    PackedStep::PlusOffset => halves(block.add(B::SCALE_BYTES * ROWS + 32 * v)),
                    _ => _mm512_setzero_ps(),
                }),
            }
        }
    }

    /// The block step of one token: its sums plus the block's terms. `ask(i)` is called 16 times on the way.
    ///
    /// # Safety
    /// The processor has these instructions; a record is readable.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
    unsafe fn step<B: Block32>(&self, totals: &mut [__m512; VECTORS], record: *const u8, ask: impl Fn(usize)) {
        // SAFETY: a record has 48 bytes.
        let (start, dx, sx) = unsafe {
            let q = |at: usize| record.add(at).cast::<i32>().read_unaligned();
            let f = |at: usize| _mm512_set1_ps(record.add(at).cast::<f32>().read_unaligned());
            (_mm512_set1_epi32(q(36)), f(32), f(40))
        };
        let mut isums = [start; VECTORS];
        for (g, codes) in self.codes.iter().enumerate() {
            // SAFETY: eight dwords of activations.
            let q = unsafe { record.add(4 * g).cast::<i32>().read_unaligned() };
            let q = _mm512_set1_epi32(q);
            for (v, (isum, codes)) in isums.iter_mut().zip(codes).enumerate() {
                ask(VECTORS * g + v);
                *isum = _mm512_dpbusd_epi32(*isum, *codes, q);
            }
        }
        for v in 0..VECTORS {
            let (isum, dw) = (_mm512_cvtepi32_ps(isums[v]), self.scales[v]);
            let term = match B::STEP {
                PackedStep::SumFirst => _mm512_mul_ps(_mm512_mul_ps(isum, dw), dx),
                PackedStep::ScaleFirst => _mm512_mul_ps(_mm512_mul_ps(dw, dx), isum),
                PackedStep::PlusOffset => {
                    _mm512_add_ps(_mm512_mul_ps(_mm512_mul_ps(dw, dx), isum), _mm512_mul_ps(self.offsets[v], sx))
                }
            };
            totals[v] = _mm512_add_ps(totals[v], term);
        }
    }
}

/// What the lines of a block hold, without fifth bits.
///
/// # Safety
/// The processor has these instructions; the lines are readable.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn codes<B: Block32>(lines: *const u8) -> [[__m512i; VECTORS]; 8] {
    let mut codes = [[_mm512_setzero_si512(); VECTORS]; 8];
    for g in 0..B::LINES {
        let line: [__m512i; VECTORS] = std::array::from_fn(|v| {
            // SAFETY: a packed block has `LINES` lines.
            unsafe { _mm512_loadu_si512(lines.add(LINE * g + 64 * v).cast()) }
        });
        if B::LINES == 8 {
            codes[g] = line;
        } else {
            let low = _mm512_set1_epi8(15);
            codes[g] = line.map(|line| _mm512_and_si512(line, low));
            codes[g + 4] = line.map(|line| _mm512_and_si512(_mm512_srli_epi16::<4>(line), low));
        }
    }
    if let Some(table) = B::TABLE {
        // SAFETY: a table of 16 bytes.
        let table = _mm512_broadcast_i32x4(unsafe { _mm_loadu_si128(table.as_ptr().cast()) });
        for code in codes.as_flattened_mut() {
            *code = _mm512_shuffle_epi8(table, *code);
        }
    }
    codes
}

/// # Safety
/// The processor has these instructions; eight masks are readable.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn add_fifth_bits(codes: &mut [[__m512i; VECTORS]; 8], masks: *const u8) {
    for (i, code) in codes.as_flattened_mut().iter_mut().enumerate() {
        // SAFETY: eight masks, 64 bits for each vector.
        let mask = unsafe { masks.add(8 * i).cast::<u64>().read_unaligned() };
        *code = _mm512_mask_add_epi8(*code, mask, *code, _mm512_set1_epi8(16));
    }
}

/// # Safety
/// The processor has AVX-512; sixteen f16 are readable.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn halves(p: *const u8) -> __m512 {
    // SAFETY: the caller has 16 f16 there.
    _mm512_cvtph_ps(unsafe { _mm256_loadu_si256(p.cast()) })
}

/// Half of 2^(e - 127) for sixteen exponents e; the two smallest are denormal.
///
/// # Safety
/// The processor has AVX-512; sixteen bytes are readable.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn powers(p: *const u8) -> __m512 {
    // SAFETY: 16 exponents.
    let e = _mm512_cvtepu8_epi32(unsafe { _mm_loadu_si128(p.cast()) });
    let normal = _mm512_slli_epi32::<23>(_mm512_sub_epi32(e, _mm512_set1_epi32(1)));
    let denormal = _mm512_sllv_epi32(_mm512_set1_epi32(0x0020_0000), e);
    let small = _mm512_cmplt_epi32_mask(e, _mm512_set1_epi32(2));
    _mm512_castsi512_ps(_mm512_mask_mov_epi32(normal, small, denormal))
}

#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn one<B: Block32>(group: &[u8], act: &[u8], ahead: impl Ahead, out: &mut [f32]) {
    let mut totals = [_mm512_setzero_ps(); VECTORS];
    for (block, record) in group.chunks_exact(B::PACKED).zip(act.chunks_exact(RECORD)) {
        let block = block.as_ptr();
        let ask = |i| ahead.share(block, B::PACKED, i, 8 * VECTORS);
        // SAFETY: a whole block and a whole record.
        unsafe { Block::unpack::<B>(block).step::<B>(&mut totals, record.as_ptr(), ask) }
    }
    store(&totals, out);
}

#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn many<B: Block32>(group: &[u8], acts: &[u8], act_bytes: usize, ahead: usize, out: &mut [f32]) {
    out.fill(0.0);
    for (b, block) in group.chunks_exact(B::PACKED).enumerate() {
        let mut ask = Some(|i| ahead.share(block.as_ptr(), B::PACKED, i, 8 * VECTORS));
        // SAFETY: a whole block.
        let block = unsafe { Block::unpack::<B>(block.as_ptr()) };
        for (act, out) in acts.chunks_exact(act_bytes).zip(out.chunks_exact_mut(ROWS)) {
            let record = &act[RECORD * b..][..RECORD];
            // SAFETY: 16 floats for each vector; a whole record.
            unsafe {
                let mut totals = std::array::from_fn(|v| _mm512_loadu_ps(out[16 * v..].as_ptr()));
                asking_once!(ask, ahead => block.step::<B>(&mut totals, record.as_ptr(), ask));
                store(&totals, out);
            }
        }
    }
}

/// Writes the sums of a token.
#[inline]
#[target_feature(enable = "avx512f")]
fn store(totals: &[__m512; VECTORS], out: &mut [f32]) {
    for (total, out) in totals.iter().zip(out.chunks_exact_mut(16)) {
        // SAFETY: 16 floats.
        unsafe { _mm512_storeu_ps(out.as_mut_ptr(), *total) }
    }
}
