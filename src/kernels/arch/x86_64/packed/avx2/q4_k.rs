//! Q4_K and Q5_K for AVX2: the bytes of [`q4_k`], eight rows at a time.
//!
//! `maddubs` sums two products of a sub-block in 16 bits, 7936 at most in magnitude; `madd` with the scale in both
//! halves of a dword adds the two sums and applies the scale. With AVX-VNNI and several tokens, units go in pairs: see
//! [`super::vnni`].

use std::arch::x86_64::*;

use trine_formats::types::{Part, info};

use super::super::lanes::{BLOCK, CHAINS, Q8_K, ROWS, TILE};
use super::super::q4_k::{self, ACT, CODES, CodesOf32, DMIN, Q4K, Q5K, REST, SCALE, SCALES, SUMS, act_bytes, bytes};
use super::super::{Ahead, with_ahead};
use super::lanes::{Kernel, PartSums, Tile, Token, VECTORS, by_lane, part_sum, shuffle_dwords};
use super::vnni::PairSums;
use super::{broadcast, broadcast_float, by_tokens, halves, load};
use crate::Isa;
use crate::packed::{Call, Layout};
use crate::proof::{Avx2, AvxVnni, Proof};

/// A type's codes, eight rows at a time.
trait CodesOf32x8: CodesOf32 {
    /// The codes of the eight sub-blocks of a part.
    ///
    /// # Safety
    /// The eight rows of the part's lines are readable; the processor has AVX2.
    unsafe fn codes(part: *const u8) -> [__m256i; 8];
}

impl CodesOf32x8 for Q4K {
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn codes(part: *const u8) -> [__m256i; 8] {
        let low = _mm256_set1_epi8(0x0F);
        let mut codes = [low; 8];
        for p in 0..4 {
            // SAFETY: four lines.
            let q = unsafe { load(part.add(64 * p)) };
            codes[2 * p] = _mm256_and_si256(q, low);
            codes[2 * p + 1] = _mm256_and_si256(_mm256_srli_epi16::<4>(q), low);
        }
        codes
    }
}

impl CodesOf32x8 for Q5K {
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn codes(part: *const u8) -> [__m256i; 8] {
        let (five, two) = (_mm256_set1_epi8(0x1F), _mm256_set1_epi8(3));
        // SAFETY: five lines.
        let rest = unsafe { load(part.add(256)) };
        let rest = [rest, _mm256_srli_epi16::<2>(rest), _mm256_srli_epi16::<4>(rest), _mm256_srli_epi16::<6>(rest)];
        let mut codes = [five; 8];
        for p in 0..4 {
            // SAFETY: a part of Q5_K has five lines; this is one of the first four.
            let q = unsafe { load(part.add(64 * p)) };
            let upper = _mm256_and_si256(_mm256_srli_epi16::<3>(q), _mm256_set1_epi8(0x1C));
            codes[2 * p] = _mm256_and_si256(q, five);
            codes[2 * p + 1] = _mm256_or_si256(upper, _mm256_and_si256(rest[p], two));
        }
        codes
    }
}

/// How an instruction set multiplies the codes of a part with several tokens.
trait Products: Proof + Sums<1> + Sums<2> + Sums<3> + Sums<4> {}
impl<P: Proof + Sums<1> + Sums<2> + Sums<3> + Sums<4>> Products for P {}

/// Products of T tokens.
trait Sums<const T: usize> {
    /// The integers of a chain of tokens whose activations are `stride` bytes apart.
    ///
    /// # Safety
    /// The processor has the instruction set; 32 bytes of activations are readable for each token.
    unsafe fn sums<C: CodesOf32>(header: &Header, codes: &[__m256i; 8], y: *const u8, stride: usize) -> [__m256i; T];
}

impl<const T: usize> Sums<T> for Avx2
where
    Kernel: PartSums<T>,
{
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn sums<C: CodesOf32>(header: &Header, codes: &[__m256i; 8], y: *const u8, stride: usize) -> [__m256i; T] {
        // SAFETY: the caller's activations.
        unsafe { Kernel::plain(&header.scales, codes, y, stride) }
    }
}

impl<const T: usize> Sums<T> for AvxVnni
where
    AvxVnni: PairSums<T>,
{
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn sums<C: CodesOf32>(header: &Header, codes: &[__m256i; 8], y: *const u8, stride: usize) -> [__m256i; T] {
        // SAFETY: the caller's processor and activations.
        unsafe { Self::pair_sums(&header.pairs, codes, y, stride, C::BIAS, header.start) }
    }
}

const fn layout<P: Products, C: CodesOf32x8>() -> Layout {
    Layout { needs: P::NEEDS, arrange, multiply: multiply::<P, C>, ..q4_k::layout::<C>() }
}

pub(super) static LAYOUTS: &[Layout] =
    &[layout::<Avx2, Q4K>(), layout::<Avx2, Q5K>(), layout::<AvxVnni, Q4K>(), layout::<AvxVnni, Q5K>()];

fn arrange(isa: Isa, act: &[u8], n: usize, out: &mut [u8]) {
    assert_eq!(act.len(), n / BLOCK * Q8_K, "activation row");
    let _avx2 = Avx2::of(isa);
    let blocks = act.as_chunks::<Q8_K>().0;
    for (act, out) in blocks.iter().zip(out.as_chunks_mut::<ACT>().0) {
        let quants = &act[info::Q8_K.at(Part::Codes)..].as_chunks().0[0];
        // SAFETY: `_avx2` proves these instructions.
        unsafe { by_lane(quants, &mut out.as_chunks_mut().0[0]) };
        q4_k::arrange_sums(act, out);
    }
}

fn multiply<P: Products, C: CodesOf32x8>(call: Call<'_>) {
    let Call { group, acts, n, ahead, out, .. } = call.check(const { &layout::<P, C>() });
    let stride = act_bytes(n);
    for (acts, out) in acts.chunks(TILE * stride).zip(out.chunks_mut(TILE * ROWS)) {
        // SAFETY: `check` has seen the proof of these instructions and compared all lengths.
        unsafe {
            if out.len() == ROWS {
                with_ahead!(ahead => one::<C>(group, acts.as_ptr(), ahead, out));
            } else {
                tile::<P, C>(group, acts.as_ptr(), stride, ahead, out);
            }
        }
    }
}

/// What a block's header says of eight rows.
struct Header {
    d: __m256,
    dmin: __m256,
    /// The scale of each sub-block in both halves of a dword.
    scales: [__m256i; 8],
    /// Pairs of scales and of minima, 2p and 2p + 1.
    pairs: [__m256i; 4],
    mins: [__m256i; 4],
    /// Where a chain's integer starts that pairs are added to, to make up for the bias.
    start: __m256i,
}

/// Byte k of each dword in both halves, as i16.
#[inline]
#[target_feature(enable = "avx2")]
fn both(v: __m256i, k: i8) -> __m256i {
    shuffle_dwords(v, [k, -1, k, -1])
}

/// Bytes 2k and 2k + 1 of each dword, as i16.
#[inline]
#[target_feature(enable = "avx2")]
fn pair(v: __m256i, k: i8) -> __m256i {
    shuffle_dwords(v, [2 * k, -1, 2 * k + 1, -1])
}

/// The header of vector v.
#[inline]
#[target_feature(enable = "avx2,f16c")]
unsafe fn header<C: CodesOf32>(w: *const u8, v: usize) -> Header {
    // SAFETY: the caller's block has a header.
    let (d, dmin, [a, b, c]) = unsafe {
        (
            halves(w.add(16 * v)),
            halves(w.add(DMIN + 16 * v)),
            [0, 64, 128].map(|line| load(w.add(SCALES + line + 32 * v))),
        )
    };
    let (low6, low4) = (_mm256_set1_epi8(0x3F), _mm256_set1_epi8(0x0F));
    let upper = |v| _mm256_and_si256(_mm256_srli_epi16::<2>(v), _mm256_set1_epi8(0x30));
    let (s0, m0) = (_mm256_and_si256(a, low6), _mm256_and_si256(b, low6));
    let s1 = _mm256_or_si256(_mm256_and_si256(c, low4), upper(a));
    let m1 = _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16::<4>(c), low4), upper(b));
    let pairs = [pair(s0, 0), pair(s0, 1), pair(s1, 0), pair(s1, 1)];
    let mut start = _mm256_setzero_si256();
    for pair in pairs {
        let bias = _mm256_set1_epi32(-C::BIAS & 0xFFFF);
        start = _mm256_add_epi32(start, _mm256_madd_epi16(pair, bias));
    }
    Header {
        d,
        dmin,
        pairs,
        start,
        scales: [
            both(s0, 0),
            both(s0, 1),
            both(s0, 2),
            both(s0, 3),
            both(s1, 0),
            both(s1, 1),
            both(s1, 2),
            both(s1, 3),
        ],
        mins: [pair(m0, 0), pair(m0, 1), pair(m1, 0), pair(m1, 1)],
    }
}

impl Header {
    /// Starts a block of a token: takes away `dmin * dy * sum(mins * sums)` and notes the product of the scales.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn start(&self, token: &mut Token, y: *const u8) {
        let mut sum = _mm256_setzero_si256();
        // SAFETY: the caller's activations have sums and a scale.
        let dy = unsafe {
            for (p, mins) in self.mins.iter().enumerate() {
                let product = _mm256_madd_epi16(*mins, broadcast(y.add(SUMS + 4 * p)));
                sum = _mm256_add_epi32(sum, product);
            }
            if y.add(REST).cast::<u128>().read_unaligned() != 0 {
                for (p, mins) in self.mins.iter().enumerate() {
                    let product = _mm256_madd_epi16(*mins, broadcast(y.add(REST + 4 * p)));
                    sum = _mm256_add_epi32(sum, product);
                }
            }
            broadcast_float(y.add(SCALE))
        };
        let product = _mm256_mul_ps(_mm256_mul_ps(self.dmin, dy), _mm256_cvtepi32_ps(sum));
        token.minus = _mm256_sub_ps(token.minus, product);
        token.d = _mm256_mul_ps(self.d, dy);
    }
}

/// Part l of vector v.
#[inline(always)]
fn part<C: CodesOf32>(block: *const u8, v: usize, l: usize) -> *const u8 {
    block.wrapping_add(CODES + C::PART * l + 32 * v)
}

#[target_feature(enable = "avx2,f16c")]
unsafe fn one<C: CodesOf32x8>(group: &[u8], acts: *const u8, ahead: impl Ahead, out: &mut [f32]) {
    let mut rows = [Token::new(), Token::new()];
    for (b, block) in group.chunks_exact(bytes::<C>()).enumerate() {
        let block = block.as_ptr();
        // SAFETY: block b of the activations is there, as `check` saw.
        unsafe {
            let y = acts.add(ACT * b);
            let headers = [header::<C>(block, 0), header::<C>(block, 1)];
            for (header, token) in headers.iter().zip(&mut rows) {
                header.start(token, y);
            }
            for l in 0..CHAINS {
                let from = block.wrapping_add(bytes::<C>() / CHAINS * l);
                let part_bytes = const { bytes::<C>().div_ceil(CHAINS) };
                for (v, (header, token)) in headers.iter().zip(&mut rows).enumerate() {
                    let codes = C::codes(part::<C>(block, v, l));
                    let ask = |j| ahead.share(from, part_bytes, 8 * v + j, 8 * VECTORS);
                    let sum = part_sum::<false>(&header.scales, &codes, y.add(32 * l), ask);
                    token.step(l, sum);
                }
            }
        }
    }
    for (token, out) in rows.iter().zip(out.chunks_exact_mut(8)) {
        token.finish(out);
    }
}

#[target_feature(enable = "avx2,f16c")]
unsafe fn tile<P: Products, C: CodesOf32x8>(
    group: &[u8],
    acts: *const u8,
    stride: usize,
    ahead: usize,
    out: &mut [f32],
) {
    let mut tile = Tile::new();
    for v in 0..VECTORS {
        let tile = tile.start(out.len() / ROWS);
        for (b, block) in group.chunks_exact(bytes::<C>()).enumerate() {
            let block = block.as_ptr();
            // SAFETY: block b of the activations of all tokens is there, as `check` saw.
            unsafe {
                let acts = acts.add(ACT * b);
                let header = header::<C>(block, v);
                for (t, token) in tile.iter_mut().enumerate() {
                    header.start(token, acts.add(stride * t));
                }
                for l in 0..CHAINS {
                    let from = block.wrapping_add(bytes::<C>() / CHAINS * l);
                    let part_bytes = const { bytes::<C>().div_ceil(CHAINS) };
                    let codes = C::codes(part::<C>(block, v, l));
                    by_tokens!(t in tile.len(), T => {
                        let y = acts.add(stride * t + 32 * l);
                        // The other half of the rows finds the lines in the cache.
                        let ahead = if v == 0 && t == 0 { ahead } else { 0 };
                        ahead.share(from, part_bytes, T, 1 + T);
                        let sums = <P as Sums<T>>::sums::<C>(&header, &codes, y, stride);
                        for (t, (token, sum)) in tile[t..].iter_mut().zip(sums).enumerate() {
                            ahead.share(from, part_bytes, t, 1 + T);
                            token.step(l, sum);
                        }
                    });
                }
            }
        }
        for (token, out) in tile.iter().zip(out.chunks_exact_mut(ROWS)) {
            token.finish(&mut out[8 * v..]);
        }
    }
}
