//! Products of Q4_K and Q5_K: codes in units of 32 with a scale and a minimum. The bytes are those of
//! [`crate::shared::packed::k_quants::of_32`].
//!
//! AVX2 sums two products of a unit in 16 bits, 7936 at most in magnitude; a multiplication with the scale in both
//! halves of a dword adds the two sums and applies the scale.
//!
//! Where four products are summed at once, units go in pairs: the sum of the odd one goes to the high half of a dword,
//! where that of the even one is added below it, and one multiplication of words applies both scales. A bias keeps the
//! low sum from borrowing; since it meets the scale of the even unit whatever the activations are, the integer of every
//! chain starts at what takes it back.

#![allow(clippy::needless_range_loop, reason = "registers are indexed by rows, chain and token alike")]

use std::marker::PhantomData;
use std::mem::take;

use trine_formats::types::{Part, TypeId, info};

use super::chains::{Acts, KSet, MOST, Product, TILE, Tile, chain_sum, finish, finish_tile, vectors};
use super::lanes::{Ints, Kernel, Lanes, Set, by_tokens, prefetching_first, unroll};
use crate::Isa;
use crate::arch::x86_64::ahead::{PrefetchDistance, with_prefetch};
use crate::shared::packed::k_quants::of_32::{CODES, DMIN, Layout32, Q4K, Q5K, SCALES, bytes, pack};
use crate::shared::packed::k_quants::{BLOCK, CHAINS, Q8_K, ROWS};
use crate::shared::packed::{Arranged, Call, Encoding, Layout};

/// Arranged activations of a block: the quants by lane, the sums of each 32 as two i16 that add up to
/// them, the scale.
pub(crate) const ACT: usize = 320;
const SUMS: usize = 256;
const REST: usize = 272;
const SCALE: usize = 288;

/// A type's codes.
pub(crate) trait CodesOf32: Layout32 {
    /// Odd codes that stay in place are `2^(16 - SHIFT)` times their value.
    const SHIFT: u32;
    /// Above the magnitude of any sum of four products.
    const BIAS: i32;

    /// The codes of the eight units of a part; where odd ones stay `IN_PLACE`, times a power of two.
    ///
    /// # Safety
    /// The processor has the registers; the rows of the part's lines are readable.
    unsafe fn unpack<L: Lanes, const IN_PLACE: bool>(part: *const u8) -> [L::Ints; 8];
}

impl CodesOf32 for Q4K {
    const SHIFT: u32 = 12;
    const BIAS: i32 = 8192;

    #[inline(always)]
    unsafe fn unpack<L: Lanes, const IN_PLACE: bool>(part: *const u8) -> [L::Ints; 8] {
        // SAFETY: the caller has the registers; a part has four lines.
        unsafe {
            let low = L::bytes(0x0F);
            let mut codes = [low; 8];
            for (p, codes) in codes.as_chunks_mut::<2>().0.iter_mut().enumerate() {
                let q = L::load(part.add(64 * p));
                let odd = if IN_PLACE { L::and(q, L::bytes(0xF0)) } else { L::and(L::shr(q, 4), low) };
                *codes = [L::and(q, low), odd];
            }
            codes
        }
    }
}

impl CodesOf32 for Q5K {
    const SHIFT: u32 = 13;
    const BIAS: i32 = 16384;

    #[inline(always)]
    unsafe fn unpack<L: Lanes, const IN_PLACE: bool>(part: *const u8) -> [L::Ints; 8] {
        // SAFETY: the caller has the registers; a part has five lines.
        unsafe {
            let even = L::bytes(0x1F);
            let rest = L::load(part.add(256));
            let rest = match IN_PLACE {
                true => [L::shl(rest, 3), L::shl(rest, 1), L::shr(rest, 1), L::shr(rest, 3)],
                false => [rest, L::shr(rest, 2), L::shr(rest, 4), L::shr(rest, 6)],
            };
            let mut codes = [even; 8];
            for (p, codes) in codes.as_chunks_mut::<2>().0.iter_mut().enumerate() {
                let q = L::load(part.add(64 * p));
                let odd = match IN_PLACE {
                    true => L::or(L::and(rest[p], L::bytes(0x18)), L::and(q, L::bytes(0xE0))),
                    false => L::or(L::and(L::shr(q, 3), L::bytes(0x1C)), L::and(rest[p], L::bytes(3))),
                };
                *codes = [L::and(q, even), odd];
            }
            codes
        }
    }
}

/// An instruction set that multiplies these types.
pub(crate) trait Set32: KSet + Chains<1> + Chains<2> + Chains<3> + Chains<4> {
    /// True if odd codes stay in place, and one token is multiplied as several are. Otherwise it is by [`chain_sum`].
    const IN_PLACE: bool;
}

/// Products of a part and T tokens.
pub(crate) trait Chains<const T: usize>: Set {
    /// The integers of a chain of tokens whose activations are `stride` bytes apart. `prefetch` is called
    /// [`Set::PREFETCHES`] times.
    ///
    /// # Safety
    /// The processor has the instruction set; 32 bytes of activations are readable for each token.
    unsafe fn chains<C: CodesOf32>(
        header: &Header<Self::L>,
        codes: &[Ints<Self>; 8],
        y: *const u8,
        stride: usize,
        prefetch: impl Fn(usize),
    ) -> [Ints<Self>; T];
}

pub(crate) const fn layout<S: Set32, C: CodesOf32>() -> Layout {
    Layout {
        types: C::TYPES,
        needs: S::NEEDS,
        name: C::NAME,
        dense: false,
        rows: ROWS,
        encoding: Encoding::Type(TypeId::Q8_K),
        group_bytes: |n| n / BLOCK * bytes::<C>(),
        pack: pack::<C>,
        acts: Arranged::Q8K(TypeId::Q4_K),
        act_bytes,
        arrange: arrange::<S>,
        multiply: multiply::<S, C>,
        tile: TILE,
    }
}

/// An odd number of cache lines: rows of a tile then do not fall on the same few sets of the cache.
fn act_bytes(n: usize) -> usize {
    let lines = n / BLOCK * (ACT / 64);
    64 * (lines | 1)
}

fn arrange<S: KSet>(isa: Isa, act: &[u8], n: usize, out: &mut [u8]) {
    assert_eq!(act.len(), n / BLOCK * Q8_K, "activation row");
    let _set = S::of(isa);
    let blocks = act.as_chunks::<Q8_K>().0;
    for (act, out) in blocks.iter().zip(out.as_chunks_mut::<ACT>().0) {
        let quants = &act[info::Q8_K.at(Part::Codes)..].as_chunks().0[0];
        // SAFETY: `_set` proves these instructions.
        unsafe { S::by_lane(quants, &mut out.as_chunks_mut().0[0]) };
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
}

fn multiply<S: Set32, C: CodesOf32>(call: Call<'_>) {
    let Call { group, acts, n, mut ahead, out, .. } = call.check(const { &layout::<S, C>() });
    let stride = act_bytes(n);
    for (acts, out) in acts.chunks(TILE * stride).zip(out.chunks_mut(TILE * ROWS)) {
        let acts = Acts { at: acts.as_ptr(), blocks: n / BLOCK, stride };
        let (group, ahead) = (group.as_ptr(), take(&mut ahead));
        // SAFETY: `check` has seen the proof of these instructions and compared all lengths.
        unsafe {
            if out.len() == ROWS {
                with_prefetch!(ahead => S::run::<One<S, C, _>>(Product { group, acts, ahead, out }));
            } else {
                S::run::<Many<S, C>>(Product { group, acts, ahead, out });
            }
        }
    }
}

/// A block's header for a register of rows.
pub(crate) struct Header<L: Lanes> {
    d: L::Floats,
    dmin: L::Floats,
    /// The scale of each unit in both halves of a dword.
    pub(crate) scales: [L::Ints; 8],
    /// Pairs of scales and of minima, 2p and 2p + 1.
    pub(crate) pairs: [L::Ints; 4],
    mins: [L::Ints; 4],
    /// Where a chain's integer starts that pairs are added to, to make up for the bias.
    pub(crate) start: L::Ints,
}

/// Bytes `0 .. 2` and `2 .. 4` of each dword of both registers, as words.
///
/// # Safety
/// The processor has the registers.
#[inline(always)]
unsafe fn pairs<L: Lanes>(first: L::Ints, second: L::Ints) -> [L::Ints; 4] {
    // SAFETY: the caller's promise.
    unsafe {
        let (low, high) = ([0, -1, 1, -1], [2, -1, 3, -1]);
        [L::shuffle(first, low), L::shuffle(first, high), L::shuffle(second, low), L::shuffle(second, high)]
    }
}

impl<L: Lanes> Header<L> {
    /// The header of register v of a block's rows.
    ///
    /// # Safety
    /// The processor has the registers; the block is readable.
    #[inline(always)]
    pub(crate) unsafe fn new<C: CodesOf32>(block: *const u8, v: usize) -> Header<L> {
        // SAFETY: the caller's promise; a block begins with d, dmin and three lines of scales.
        unsafe {
            let (d, lines) = (block.add(2 * L::ROWS * v), block.add(SCALES + 4 * L::ROWS * v));
            let (d, dmin) = (L::halves(d), L::halves(d.add(DMIN)));
            let [a, b, c] = [L::load(lines), L::load(lines.add(64)), L::load(lines.add(128))];
            let (low6, low4, upper) = (L::bytes(0x3F), L::bytes(0x0F), L::bytes(0x30));
            let (s0, m0) = (L::and(a, low6), L::and(b, low6));
            let s1 = L::or(L::and(c, low4), L::and(L::shr(a, 2), upper));
            let m1 = L::or(L::and(L::shr(c, 4), low4), L::and(L::shr(b, 2), upper));
            let mut scales = [s0; 8];
            unroll!(J in [0 1 2 3 4 5 6 7] {
                let byte = const { J as i8 % 4 };
                scales[J] = L::shuffle(if J < 4 { s0 } else { s1 }, [byte, -1, byte, -1]);
            });
            let pairs_of_scales = pairs::<L>(s0, s1);
            let mut start = L::dwords(0);
            for pair in pairs_of_scales {
                start = L::add_scaled(start, pair, L::dwords(-C::BIAS & 0xFFFF));
            }
            Header { d, dmin, scales, pairs: pairs_of_scales, mins: pairs::<L>(m0, m1), start }
        }
    }

    /// Starts a block of a token: takes `dmin * dy * sum(mins * sums)` from `minus`, and sets `d` to the
    /// product of the scales.
    ///
    /// # Safety
    /// The processor has the registers; a block of activations is readable at `y`.
    #[inline(always)]
    pub(crate) unsafe fn start(&self, minus: &mut L::Floats, d: &mut L::Floats, y: *const u8) {
        // SAFETY: the caller's promise.
        unsafe {
            let mut sum = L::dwords(0);
            unroll!(P in [0 1 2 3] { sum = L::add_scaled_at::<{ SUMS + 4 * P }>(sum, self.mins[P], y); });
            if y.add(REST).cast::<u128>().read_unaligned() != 0 {
                unroll!(P in [0 1 2 3] { sum = L::add_scaled_at::<{ REST + 4 * P }>(sum, self.mins[P], y); });
            }
            let dy = L::broadcast_float(y.add(SCALE));
            *minus = L::sub(*minus, L::mul(L::mul(self.dmin, dy), L::floats(sum)));
            *d = L::mul(self.d, dy);
        }
    }
}

/// Part l of register v of a block's rows.
#[inline(always)]
pub(crate) fn part<L: Lanes, C: CodesOf32>(block: *const u8, v: usize, l: usize) -> *const u8 {
    block.wrapping_add(CODES + C::PART * l + 4 * L::ROWS * v)
}

/// One token.
struct One<S, C, A>(PhantomData<(S, C, A)>);

impl<S: Set32, C: CodesOf32, A: PrefetchDistance> Kernel for One<S, C, A> {
    type Call<'a> = Product<'a, A>;

    #[inline(always)]
    unsafe fn run(Product { group, acts, ahead, out }: Product<'_, A>) {
        let vectors = const { vectors::<S::L>() };
        // SAFETY: the caller has the instruction set; block b is there, of the activations too.
        unsafe {
            let zero = S::L::float(0.0);
            let (mut chains, mut minus, mut d) = ([[zero; CHAINS]; MOST], [zero; MOST], [zero; MOST]);
            for b in 0..acts.blocks {
                let (block, y) = (group.add(bytes::<C>() * b), acts.at.add(ACT * b));
                let headers = [Header::new::<C>(block, 0), Header::new::<C>(block, vectors - 1)];
                for v in 0..vectors {
                    headers[v].start(&mut minus[v], &mut d[v], y);
                }
                for l in 0..CHAINS {
                    let from = block.wrapping_add(bytes::<C>() / CHAINS * l);
                    for v in 0..vectors {
                        let prefetch =
                            |j| ahead.share(from, const { bytes::<C>().div_ceil(CHAINS) }, 8 * v + j, 8 * vectors);
                        let (header, y) = (&headers[v], y.add(32 * l));
                        let part = part::<S::L, C>(block, v, l);
                        let sum = if S::IN_PLACE {
                            let codes = C::unpack::<S::L, true>(part);
                            let [sum] = <S as Chains<1>>::chains::<C>(header, &codes, y, 0, prefetch);
                            sum
                        } else {
                            let codes = C::unpack::<S::L, false>(part);
                            chain_sum::<S::L, false>(&header.scales, &codes, y, prefetch)
                        };
                        chains[v][l] = S::L::step(chains[v][l], d[v], sum);
                    }
                }
            }
            for (v, out) in out.chunks_exact_mut(S::L::ROWS).enumerate() {
                finish::<S::L>(minus[v], &chains[v], out);
            }
        }
    }
}

/// Up to [`TILE`] tokens.
struct Many<S, C>(PhantomData<(S, C)>);

impl<S: Set32, C: CodesOf32> Kernel for Many<S, C> {
    type Call<'a> = Product<'a, usize>;

    #[inline(always)]
    unsafe fn run(Product { group, acts, ahead, out }: Product<'_, usize>) {
        let mut tile = Tile::<S::L>::new();
        // SAFETY: the caller has the instruction set; block b is there, of all activations too.
        unsafe {
            for v in 0..const { vectors::<S::L>() } {
                let tile = tile.start(out.len() / ROWS);
                for b in 0..acts.blocks {
                    let (block, y) = (group.add(bytes::<C>() * b), acts.at.add(ACT * b));
                    let header = Header::new::<C>(block, v);
                    for (t, token) in tile.iter_mut().enumerate() {
                        header.start(&mut token.minus, &mut token.d, y.add(acts.stride * t));
                    }
                    for l in 0..CHAINS {
                        let from = block.wrapping_add(bytes::<C>() / CHAINS * l);
                        let part = part::<S::L, C>(block, v, l);
                        let codes = match S::IN_PLACE {
                            true => C::unpack::<S::L, true>(part),
                            false => C::unpack::<S::L, false>(part),
                        };
                        by_tokens!(t in tile.len(), S::TOKENS, T => {
                            let y = y.add(acts.stride * t + 32 * l);
                            // The other registers of rows find the lines in the cache.
                            let sums: [Ints<S>; T] = prefetching_first!(
                                S, v == 0 && t == 0, ahead,
                                |j| ahead.share(from, const { bytes::<C>().div_ceil(CHAINS) }, j, S::PREFETCHES),
                                prefetch => <S as Chains<T>>::chains::<C>(&header, &codes, y, acts.stride, prefetch)
                            );
                            for (token, sum) in tile[t..].iter_mut().zip(sums) {
                                token.step(l, sum);
                            }
                        });
                    }
                }
                finish_tile(tile, v, out);
            }
        }
    }
}
