//! Q4_K and Q5_K, 16 rows interleaved.
//!
//! The bytes are those of [`crate::packed::k_quants::of_32`].
//!
//! An odd code is used where it lies, as 16 or 8 times its value: `dpbusd` sums four products, a shift brings the sum
//! into the high half of the dword, where the even sub-block's is added below it by the next `dpbusd`. One `dpwssd`
//! multiplies both by their scales. A bias keeps the low sum from borrowing; since it meets the scale of the
//! even sub-block whatever the activations are, the integer of every chain starts at what takes it back.

use std::arch::x86_64::*;
use std::mem::take;

use trine_formats::types::TypeId;
use trine_formats::types::{Part, info};

use super::lanes::{
    BLOCK, CHAINS, Q8_K, ROWS, TILE, Tile, broadcast, by_lane, dpwssd, dpwssd_at, finish, load, scales, step, store,
    unroll,
};
use super::{Ahead, asking_once, with_ahead};
use crate::Isa;
use crate::packed::k_quants::of_32::pack;
pub(super) use crate::packed::k_quants::of_32::{CODES, DMIN, Layout32, Q4K, Q5K, SCALES, bytes};
use crate::packed::{Arranged, Call, Encoding, Layout};
use crate::proof::{Avx512, Proof};

/// Arranged activations of a block: the quants by lane, the sums of each 32 as two i16 that add up to
/// them, the scale.
pub(super) const ACT: usize = 320;
pub(super) const SUMS: usize = 256;
pub(super) const REST: usize = 272;
pub(super) const SCALE: usize = 288;

/// A type's codes.
pub(super) trait CodesOf32: Layout32 {
    /// Odd codes are used times `2^(16 - SHIFT)`.
    const SHIFT: u32;
    /// Above the magnitude of any sum of four products.
    const BIAS: i32;
    /// The four pairs of a part.
    ///
    /// # Safety
    /// The part is readable; the processor has AVX-512 F.
    unsafe fn unpack(part: *const u8) -> [[__m512i; 2]; 4];
}

impl CodesOf32 for Q4K {
    const SHIFT: u32 = 12;
    const BIAS: i32 = 8192;

    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn unpack(part: *const u8) -> [[__m512i; 2]; 4] {
        let (low, high) = (_mm512_set1_epi8(0x0F), _mm512_set1_epi8(0xF0u8 as i8));
        let mut codes = [[low; 2]; 4];
        for (p, codes) in codes.iter_mut().enumerate() {
            // SAFETY: four lines.
            let q = unsafe { load(part.add(64 * p)) };
            *codes = [_mm512_and_si512(q, low), _mm512_and_si512(q, high)];
        }
        codes
    }
}

impl CodesOf32 for Q5K {
    const SHIFT: u32 = 13;
    const BIAS: i32 = 16384;

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    unsafe fn unpack(part: *const u8) -> [[__m512i; 2]; 4] {
        let (even, odd) = (_mm512_set1_epi8(0x1F), _mm512_set1_epi8(0xE0u8 as i8));
        // SAFETY: five lines.
        let rest = unsafe { load(part.add(256)) };
        let rest = [
            _mm512_slli_epi16::<3>(rest),
            _mm512_slli_epi16::<1>(rest),
            _mm512_srli_epi16::<1>(rest),
            _mm512_srli_epi16::<3>(rest),
        ];
        let mut codes = [[even; 2]; 4];
        for (p, codes) in codes.iter_mut().enumerate() {
            // SAFETY: a part of Q5_K has five lines; this is one of the first four.
            let q = unsafe { load(part.add(64 * p)) };
            let rest = _mm512_and_si512(rest[p], _mm512_set1_epi8(0x18));
            // rest | q & odd
            let odd = _mm512_ternarylogic_epi32::<0xF8>(rest, q, odd);
            *codes = [_mm512_and_si512(q, even), odd];
        }
        codes
    }
}

pub(super) const fn layout<C: CodesOf32>() -> Layout {
    Layout {
        types: C::TYPES,
        needs: Avx512::NEEDS,
        name: C::NAME,
        dense: false,
        rows: ROWS,
        encoding: Encoding::Type(TypeId::Q8_K),
        group_bytes: |n| n / BLOCK * bytes::<C>(),
        pack: pack::<C>,
        acts: Arranged::Q8K(TypeId::Q4_K),
        act_bytes,
        arrange,
        multiply: multiply::<C>,
        tile: TILE,
    }
}

pub(super) static LAYOUTS: &[Layout] = &[layout::<Q4K>(), layout::<Q5K>()];

/// An odd number of cache lines: rows of a tile then do not fall on the same few sets of the cache.
pub(super) fn act_bytes(n: usize) -> usize {
    let lines = n / BLOCK * (ACT / 64);
    64 * (lines | 1)
}

fn arrange(isa: Isa, act: &[u8], n: usize, out: &mut [u8]) {
    assert_eq!(act.len(), n / BLOCK * Q8_K, "activation row");
    let _avx512 = Avx512::of(isa);
    let blocks = act.as_chunks::<Q8_K>().0;
    for (act, out) in blocks.iter().zip(out.as_chunks_mut::<ACT>().0) {
        // SAFETY: `_avx512` proves these instructions.
        unsafe { arrange_block(act, out) };
    }
}

#[target_feature(enable = "avx512f,avx512bw")]
fn arrange_block(act: &[u8; Q8_K], out: &mut [u8; ACT]) {
    let quants = by_lane(&act[info::Q8_K.at(Part::Codes)..].as_chunks().0[0]);
    for (out, q) in out.as_chunks_mut().0.iter_mut().zip(quants) {
        store(out, q);
    }
    arrange_sums(act, out);
}

/// The part of the arranged activations behind the quants.
pub(super) fn arrange_sums(act: &[u8; Q8_K], out: &mut [u8; ACT]) {
    for (j, sums) in act[info::Q8_K.at(Part::Sums)..].as_chunks::<4>().0.iter().enumerate() {
        let [a, b, c, d] = *sums;
        let sum = i32::from(i16::from_le_bytes([a, b])) + i32::from(i16::from_le_bytes([c, d]));
        // Only sums that no quants have need the rest.
        let part = sum.clamp(i16::MIN.into(), i16::MAX.into());
        out[SUMS + 2 * j..][..2].copy_from_slice(&(part as i16).to_le_bytes());
        out[REST + 2 * j..][..2].copy_from_slice(&((sum - part) as i16).to_le_bytes());
    }
    out[SCALE..][..4].copy_from_slice(&act[..4]);
}

fn multiply<C: CodesOf32>(call: Call<'_>) {
    let Call { group, acts, n, tokens, mut ahead, out, .. } = call.check(const { &layout::<C>() });
    let act = act_bytes(n);
    if tokens == 1 {
        // SAFETY: `check` has seen the proof of these instructions and compared all lengths.
        unsafe { with_ahead!(ahead => one::<C>(group, acts.as_ptr(), ahead, out)) };
        return;
    }
    for (acts, out) in acts.chunks(TILE * act).zip(out.chunks_mut(TILE * ROWS)) {
        // SAFETY: `check` has seen the proof of these instructions and compared all lengths.
        unsafe { tile::<C>(group, acts.as_ptr(), act, take(&mut ahead), out) };
    }
}

/// What a block's header says.
pub(super) struct Header {
    pub(super) d: __m512,
    dmin: __m512,
    /// Pairs of scales and of minima, 2p and 2p + 1.
    pub(super) scales: [__m512i; 4],
    mins: [__m512i; 4],
    /// Where a chain's integer starts, to make up for the bias.
    start: __m512i,
}

/// Bytes 2k and 2k + 1 of each dword, as i16.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn pair(v: __m512i, k: i32) -> __m512i {
    let bytes = _mm_setr_epi8(0, -1, 1, -1, 4, -1, 5, -1, 8, -1, 9, -1, 12, -1, 13, -1);
    let second = _mm_setr_epi8(2, -1, 3, -1, 6, -1, 7, -1, 10, -1, 11, -1, 14, -1, 15, -1);
    let bytes = if k == 0 { bytes } else { second };
    _mm512_shuffle_epi8(v, _mm512_broadcast_i32x4(bytes))
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
pub(super) unsafe fn header<C: CodesOf32>(w: *const u8) -> Header {
    // SAFETY: the caller's block has a header.
    let (d, dmin, a, b, c) = unsafe {
        (scales(w), scales(w.add(DMIN)), load(w.add(SCALES)), load(w.add(SCALES + 64)), load(w.add(SCALES + 128)))
    };
    let (low6, low4) = (_mm512_set1_epi8(0x3F), _mm512_set1_epi8(0x0F));
    let upper = |v| _mm512_and_si512(_mm512_srli_epi16::<2>(v), _mm512_set1_epi8(0x30));
    let (s0, m0) = (_mm512_and_si512(a, low6), _mm512_and_si512(b, low6));
    let s1 = _mm512_or_si512(_mm512_and_si512(c, low4), upper(a));
    let m1 = _mm512_or_si512(_mm512_and_si512(_mm512_srli_epi16::<4>(c), low4), upper(b));
    let scales = [pair(s0, 0), pair(s0, 1), pair(s1, 0), pair(s1, 1)];
    let mins = [pair(m0, 0), pair(m0, 1), pair(m1, 0), pair(m1, 1)];
    let mut start = _mm512_setzero_si512();
    for s in scales {
        start = dpwssd(start, s, _mm512_set1_epi32(-C::BIAS & 0xFFFF));
    }
    Header { d, dmin, scales, mins, start }
}

/// The integer of a chain: codes times activations times scales. `ask(i)` is called eight times on the way.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn lane_sum<C: CodesOf32>(h: &Header, codes: &[[__m512i; 2]; 4], y: *const u8, ask: impl Fn(usize)) -> __m512i {
    let shift = _mm_cvtsi32_si128(C::SHIFT as i32);
    let mut acc = h.start;
    for (p, ([even, odd], scales)) in codes.iter().zip(&h.scales).enumerate() {
        // SAFETY: the caller's activations have eight dwords.
        let (y0, y1) = unsafe { (broadcast(y.add(8 * p)), broadcast(y.add(8 * p + 4))) };
        ask(2 * p);
        // The sum of the odd sub-block goes to the high half, with the bias for the low one below it.
        let sums = _mm512_dpbusd_epi32(_mm512_set1_epi32(C::BIAS >> C::SHIFT), *odd, y1);
        ask(2 * p + 1);
        let sums = _mm512_dpbusd_epi32(_mm512_sll_epi32(sums, shift), *even, y0);
        acc = dpwssd(acc, sums, *scales);
    }
    acc
}

/// `minus - dmin * dy * sum(mins * sums)`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
pub(super) unsafe fn subtract_mins(minus: __m512, h: &Header, y: *const u8, dy: __m512) -> __m512 {
    let mut sum = _mm512_setzero_si512();
    // SAFETY: the caller's activations have sums.
    unsafe {
        unroll!(P in [0 1 2 3] {
            sum = dpwssd_at::<{ SUMS + 4 * P }>(sum, h.mins[P], y);
        });
        if y.add(REST).cast::<u128>().read_unaligned() != 0 {
            unroll!(P in [0 1 2 3] {
                sum = dpwssd_at::<{ REST + 4 * P }>(sum, h.mins[P], y);
            });
        }
    }
    let d = _mm512_mul_ps(h.dmin, dy);
    _mm512_sub_ps(minus, _mm512_mul_ps(d, _mm512_cvtepi32_ps(sum)))
}

#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn one<C: CodesOf32>(group: &[u8], acts: *const u8, ahead: impl Ahead, out: &mut [f32]) {
    let mut chains = [_mm512_setzero_ps(); CHAINS];
    let mut minus = _mm512_setzero_ps();
    for (b, block) in group.chunks_exact(bytes::<C>()).enumerate() {
        // SAFETY: block b of the activations is there, as `check` saw.
        unsafe {
            let y = acts.add(ACT * b);
            let h = header::<C>(block.as_ptr());
            let dy = _mm512_castsi512_ps(broadcast(y.add(SCALE)));
            minus = subtract_mins(minus, &h, y, dy);
            let d = _mm512_mul_ps(h.d, dy);
            for (l, chain) in chains.iter_mut().enumerate() {
                let part = block.as_ptr().add(CODES + C::PART * l);
                let codes = C::unpack(part);
                let from = block.as_ptr().wrapping_add(bytes::<C>() / CHAINS * l);
                let ask = |i| ahead.share(from, const { bytes::<C>().div_ceil(CHAINS) }, i, 8);
                *chain = step(*chain, d, lane_sum::<C>(&h, &codes, y.add(32 * l), ask));
            }
        }
    }
    finish(minus, chains, out);
}

#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn tile<C: CodesOf32>(group: &[u8], acts: *const u8, act: usize, ahead: usize, out: &mut [f32]) {
    let mut tile = Tile::new();
    let tile = tile.start(out.len() / ROWS);
    for (b, block) in group.chunks_exact(bytes::<C>()).enumerate() {
        // SAFETY: block b of the activations of all tokens is there, as `check` saw.
        unsafe {
            let acts = acts.add(ACT * b);
            let h = header::<C>(block.as_ptr());
            for (t, token) in tile.iter_mut().enumerate() {
                let y = acts.add(act * t);
                let dy = _mm512_castsi512_ps(broadcast(y.add(SCALE)));
                token.minus = subtract_mins(token.minus, &h, y, dy);
                token.d = _mm512_mul_ps(h.d, dy);
            }
            for l in 0..CHAINS {
                let codes = C::unpack(block.as_ptr().add(CODES + C::PART * l));
                let from = block.as_ptr().wrapping_add(bytes::<C>() / CHAINS * l);
                let mut ask = Some(|i| ahead.share(from, const { bytes::<C>().div_ceil(CHAINS) }, i, 8));
                for (t, token) in tile.iter_mut().enumerate() {
                    let y = acts.add(act * t + 32 * l);
                    let sum = asking_once!(ask, ahead => lane_sum::<C>(&h, &codes, y, ask));
                    token.chains[l] = step(token.chains[l], token.d, sum);
                }
            }
        }
    }
    for (token, out) in tile.iter().zip(out.chunks_exact_mut(ROWS)) {
        finish(token.minus, token.chains, out);
    }
}
