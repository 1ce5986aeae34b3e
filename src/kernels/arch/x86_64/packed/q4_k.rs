//! Q4_K and Q5_K, 16 rows interleaved.
//!
//! Block of a group, 16 times the size of the file's block:
//!
//! ```text
//! byte   0                32                  64                           256
//!        | d: f16 per row | dmin: f16 per row | 3 x 64 B of packed scales  | 8 parts of codes
//! scales: line k, row r = dword k of the 12 scale bytes of row r
//! ```
//!
//! Part l, 4 or 5 lines of 64 bytes, has the codes of the elements that are l mod 8. Byte i of row r in a line p < 4
//! is about element l + 8i of the sub-blocks 2p and 2p + 1:
//!
//! ```text
//! Q4_K: even | odd << 4                       as in the file
//! Q5_K: even | (odd >> 2) << 5,  line 4: (odd & 3) << 2p, for all p together
//! ```
//!
//! An odd code is used where it lies, as 16 or 8 times its value: `dpbusd` sums four products, a shift brings the sum
//! into the high half of the dword, where the even sub-block's is added below it by the next `dpbusd`. One `dpwssd`
//! multiplies both by their scales. A bias keeps the low sum from borrowing; since it meets the scale of the
//! even sub-block whatever the activations are, the integer of every chain starts at what takes it back.

use std::arch::x86_64::*;

use trine_formats::types::TypeId;
use trine_formats::types::{Part, info};

use super::lanes::{
    BLOCK, CHAINS, Q8_K, ROWS, TILE, Tile, broadcast, by_lane, count_rows, dpwssd, dpwssd_at,
    finish, load, scales, step, store, unroll,
};
use super::{check, prefetch};
use crate::packed::{Encoding, Layout};

/// d, dmin and packed scales of a block of the file.
const FILE_HEADER: usize = 16;
/// Offsets in a block of the group.
pub(super) const DMIN: usize = 32;
pub(super) const SCALES: usize = 64;
pub(super) const CODES: usize = 256;
const _: () = assert!(CODES == ROWS * FILE_HEADER);

/// Arranged activations of a block: the quants by lane, the sums of each 32 as two i16 that add up to
/// them, the scale.
pub(super) const ACT: usize = 320;
pub(super) const SUMS: usize = 256;
pub(super) const REST: usize = 272;
pub(super) const SCALE: usize = 288;

/// A type's codes.
pub(super) trait CodesOf32 {
    const NAME: &'static str;
    /// Bytes of a block of the file.
    const FILE: usize;
    /// Odd codes are used times `2^(16 - SHIFT)`.
    const SHIFT: u32;
    /// Above the magnitude of any sum of four products.
    const BIAS: i32;
    /// Bytes of a part.
    const PART: usize = ROWS * (Self::FILE - FILE_HEADER) / CHAINS;

    /// The lines of a row's block, not yet split into parts: byte e is about element e of the sub-blocks. `q`:
    /// the file's block from its codes on. Only as many lines as a part has are used.
    fn lines(q: &[u8]) -> [[u8; 32]; 5];
    /// The four pairs of a part.
    ///
    /// # Safety
    /// The part is readable; the processor has AVX-512 F.
    unsafe fn unpack(part: *const u8) -> [[__m512i; 2]; 4];
}

pub(super) struct Q4K;
pub(super) struct Q5K;

impl CodesOf32 for Q4K {
    const NAME: &'static str = "q4_k x16";
    const FILE: usize = info::Q4_K.bytes;
    const SHIFT: u32 = 12;
    const BIAS: i32 = 8192;

    fn lines(q: &[u8]) -> [[u8; 32]; 5] {
        let mut lines = [[0; 32]; 5];
        lines.as_flattened_mut()[..128].copy_from_slice(q);
        lines
    }

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
    const NAME: &'static str = "q5_k x16";
    const FILE: usize = info::Q5_K.bytes;
    const SHIFT: u32 = 13;
    const BIAS: i32 = 16384;

    fn lines(q: &[u8]) -> [[u8; 32]; 5] {
        let mut lines = [[0; 32]; 5];
        let (fifth, q) = q.split_at(32);
        for (p, q) in q.as_chunks::<32>().0.iter().enumerate() {
            for e in 0..32 {
                let fifth = fifth[e] >> (2 * p);
                let (even, odd) = (q[e] & 15 | (fifth & 1) << 4, q[e] >> 4 | (fifth & 2) << 3);
                lines[p][e] = even | (odd >> 2) << 5;
                lines[4][e] |= (odd & 3) << (2 * p);
            }
        }
        lines
    }

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

pub(super) const fn bytes<C: CodesOf32>() -> usize {
    ROWS * C::FILE
}

pub(super) const fn layout<C: CodesOf32>() -> Layout {
    Layout {
        name: C::NAME,
        dense: false,
        rows: ROWS,
        encoding: Encoding::Type(TypeId::Q8_K),
        group_bytes: |n| n / BLOCK * bytes::<C>(),
        pack: pack::<C>,
        acts: "q8_k by lane, sums of 32",
        act_bytes,
        arrange,
        multiply: multiply::<C>,
        tile: TILE,
        expansion: None,
    }
}

pub(super) static Q4_K: Layout = layout::<Q4K>();
pub(super) static Q5_K: Layout = layout::<Q5K>();

fn pack<C: CodesOf32>(w: &[u8], n: usize, out: &mut [u8]) -> bool {
    let row_bytes = n / BLOCK * C::FILE;
    let rows = count_rows(w, row_bytes);
    if rows == 0 {
        return true;
    }
    for (b, out) in out.chunks_exact_mut(bytes::<C>()).enumerate() {
        for r in 0..ROWS {
            // Rows that are not there repeat the last; nobody looks at their outputs.
            let block = &w[r.min(rows - 1) * row_bytes + b * C::FILE..][..C::FILE];
            out[2 * r..][..2].copy_from_slice(&block[..2]);
            out[DMIN + 2 * r..][..2].copy_from_slice(&block[2..4]);
            for k in 0..3 {
                out[SCALES + 64 * k + 4 * r..][..4].copy_from_slice(&block[4 + 4 * k..][..4]);
            }
            let lines = C::lines(&block[FILE_HEADER..]);
            for (p, q) in lines.iter().enumerate().take(C::PART / 64) {
                for l in 0..CHAINS {
                    let to = CODES + C::PART * l + 64 * p + 4 * r;
                    out[to..][..4].copy_from_slice(&[q[l], q[l + 8], q[l + 16], q[l + 24]]);
                }
            }
        }
    }
    true
}

/// An odd number of cache lines: rows of a tile then do not fall on the same few sets of the cache.
pub(super) fn act_bytes(n: usize) -> usize {
    let lines = n / BLOCK * (ACT / 64);
    64 * (lines | 1)
}

fn arrange(act: &[u8], n: usize, out: &mut [u8]) {
    assert_eq!(act.len(), n / BLOCK * Q8_K, "activation row");
    let blocks = act.as_chunks::<Q8_K>().0;
    for (act, out) in blocks.iter().zip(out.as_chunks_mut::<ACT>().0) {
        // SAFETY: `layouts` hands the layout out only for an `Isa` with these instructions.
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
    for (j, sums) in act[info::Q8_K.at(Part::Sums)..]
        .as_chunks::<4>()
        .0
        .iter()
        .enumerate()
    {
        let [a, b, c, d] = *sums;
        let sum = i32::from(i16::from_le_bytes([a, b])) + i32::from(i16::from_le_bytes([c, d]));
        // Only sums that no quants have need the rest.
        let part = sum.clamp(i16::MIN.into(), i16::MAX.into());
        out[SUMS + 2 * j..][..2].copy_from_slice(&(part as i16).to_le_bytes());
        out[REST + 2 * j..][..2].copy_from_slice(&((sum - part) as i16).to_le_bytes());
    }
    out[SCALE..][..4].copy_from_slice(&act[..4]);
}

fn multiply<C: CodesOf32>(
    group: &[u8],
    acts: &[u8],
    n: usize,
    tokens: usize,
    ahead: usize,
    out: &mut [f32],
) {
    check(const { &layout::<C>() }, group, acts, n, tokens, out);
    let act = act_bytes(n);
    if tokens == 1 {
        // SAFETY: `layouts` hands the layout out only for an `Isa` with these instructions;
        // `check` has compared all lengths.
        unsafe { one::<C>(group, acts.as_ptr(), ahead, out) };
        return;
    }
    for (acts, out) in acts.chunks(TILE * act).zip(out.chunks_mut(TILE * ROWS)) {
        // SAFETY: `layouts` hands the layout out only for an `Isa` with these instructions;
        // `check` has compared all lengths.
        unsafe { tile::<C>(group, acts.as_ptr(), act, out) };
    }
}

/// What a block's header says.
struct Header {
    d: __m512,
    dmin: __m512,
    /// Pairs of scales and of minima, 2p and 2p + 1.
    scales: [__m512i; 4],
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
unsafe fn header<C: CodesOf32>(w: *const u8) -> Header {
    // SAFETY: the caller's block has a header.
    let (d, dmin, a, b, c) = unsafe {
        (
            scales(w),
            scales(w.add(DMIN)),
            load(w.add(SCALES)),
            load(w.add(SCALES + 64)),
            load(w.add(SCALES + 128)),
        )
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
    Header {
        d,
        dmin,
        scales,
        mins,
        start,
    }
}

/// The integer of a chain: codes times activations times scales.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn lane_sum<C: CodesOf32>(h: &Header, codes: &[[__m512i; 2]; 4], y: *const u8) -> __m512i {
    let shift = _mm_cvtsi32_si128(C::SHIFT as i32);
    let mut acc = h.start;
    for (p, ([even, odd], scales)) in codes.iter().zip(&h.scales).enumerate() {
        // SAFETY: the caller's activations have eight dwords.
        let (y0, y1) = unsafe { (broadcast(y.add(8 * p)), broadcast(y.add(8 * p + 4))) };
        // The sum of the odd sub-block goes to the high half, with the bias for the low one below it.
        let sums = _mm512_dpbusd_epi32(_mm512_set1_epi32(C::BIAS >> C::SHIFT), *odd, y1);
        let sums = _mm512_dpbusd_epi32(_mm512_sll_epi32(sums, shift), *even, y0);
        acc = dpwssd(acc, sums, *scales);
    }
    acc
}

/// `minus - dmin * dy * sum(mins * sums)`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn subtract_mins(minus: __m512, h: &Header, y: *const u8, dy: __m512) -> __m512 {
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
unsafe fn one<C: CodesOf32>(group: &[u8], acts: *const u8, ahead: usize, out: &mut [f32]) {
    let mut chains = [_mm512_setzero_ps(); CHAINS];
    let mut minus = _mm512_setzero_ps();
    for (b, block) in group.chunks_exact(bytes::<C>()).enumerate() {
        prefetch(block.as_ptr(), bytes::<C>(), ahead);
        // SAFETY: block b of the activations is there, as `check` saw.
        unsafe {
            let y = acts.add(ACT * b);
            let h = header::<C>(block.as_ptr());
            let dy = _mm512_castsi512_ps(broadcast(y.add(SCALE)));
            minus = subtract_mins(minus, &h, y, dy);
            let d = _mm512_mul_ps(h.d, dy);
            for (l, chain) in chains.iter_mut().enumerate() {
                let codes = C::unpack(block.as_ptr().add(CODES + C::PART * l));
                *chain = step(*chain, d, lane_sum::<C>(&h, &codes, y.add(32 * l)));
            }
        }
    }
    finish(minus, chains, out);
}

#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn tile<C: CodesOf32>(group: &[u8], acts: *const u8, act: usize, out: &mut [f32]) {
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
                for (t, token) in tile.iter_mut().enumerate() {
                    let sum = lane_sum::<C>(&h, &codes, acts.add(act * t + 32 * l));
                    token.chains[l] = step(token.chains[l], token.d, sum);
                }
            }
        }
    }
    for (token, out) in tile.iter().zip(out.chunks_exact_mut(ROWS)) {
        finish(token.minus, token.chains, out);
    }
}
