//! Products of Q6_K and Q3_K: codes with an offset, in groups of 16 with a signed scale. The bytes are those of
//! [`crate::shared::packed::k_quants::of_16`].
//!
//! With few tokens, codes are multiplied with activations in pairs, an addition takes back what the excess of the codes
//! over the weights makes of the activations, and one multiplication of words applies two scales. With more, an
//! instruction set that sums four products at once expands parts to products of weight and scale.

#![allow(clippy::needless_range_loop, reason = "registers are indexed by rows, chain and token alike")]

use std::marker::PhantomData;
use std::mem::take;

use trine_formats::types::{Part, TypeId, info};

use super::chains::{
    Acts, CORRECTION, KSet, MOST, Parts, Product, TILE, Tile, Token, chain_sum, finish, finish_tile, vectors,
};
use super::lanes::{Ints, Kernel, Lanes, by_tokens, prefetching_first};
use crate::Isa;
use crate::arch::x86_64::ahead::{PrefetchDistance, with_prefetch};
use crate::shared::packed::k_quants::of_16::{Layout16, at, group_bytes, pack};
use crate::shared::packed::k_quants::{BLOCK, CHAINS, Q8_K, ROWS};
use crate::shared::packed::{Arranged, Call, Encoding, Layout};

/// Where the rest of the arranged activations of a block begins, behind the quants by lane and their corrections: the
/// scale, then what the type wants. A correction is the sum of two neighbours that share a scale, i16, times what the
/// codes of their unit exceed the weights by, negated.
pub(crate) const SCALE: usize = 512;

/// A type's codes.
pub(crate) trait CodesOf16: Layout16 {
    /// Units from `LOW` on are unpacked to `32 / OFFSET` times their codes.
    const LOW: usize;
    /// Bytes of a block of the arranged activations.
    const ACT: usize;

    /// Adds what the type wants beside the common to the arranged activations of a block.
    fn arrange(_block: &mut [u8]) {}

    /// The scales of a register of rows, line g: 4g .. 4g + 3 as bytes.
    ///
    /// # Safety
    /// The processor has the registers; the rows of the block's lines are readable.
    unsafe fn scales<L: Lanes>(block: *const u8) -> [L::Ints; 4];

    /// The codes of the units of a part.
    ///
    /// # Safety
    /// The processor has the registers; the rows of the part's lines are readable.
    unsafe fn unpack<L: Lanes>(part: *const u8) -> [L::Ints; 8];
}

/// An instruction set that multiplies a type.
pub(crate) trait Set16<C>: KSet {
    /// Tokens from which on the parts of a type are expanded, if they are.
    const EXPANDED_FROM: usize = usize::MAX;

    /// The product with expanded parts.
    ///
    /// # Safety
    /// The processor has the instruction set.
    unsafe fn expanded(_call: Product<'_, ()>) {
        unreachable!("types are expanded from a number of tokens on")
    }
}

pub(crate) const fn layout<S: Set16<C>, C: CodesOf16>() -> Layout {
    Layout {
        types: C::TYPES,
        needs: S::NEEDS,
        name: C::NAME,
        dense: false,
        rows: ROWS,
        encoding: Encoding::Type(TypeId::Q8_K),
        group_bytes: group_bytes::<C>,
        pack: pack::<C>,
        acts: Arranged::Q8K(C::TYPES[0]),
        act_bytes: act_bytes::<C>,
        arrange: arrange::<S, C>,
        multiply: multiply::<S, C>,
        tile: TILE,
    }
}

/// An odd number of cache lines: rows of a tile then do not fall on the same few sets of the cache.
pub(crate) fn act_bytes<C: CodesOf16>(n: usize) -> usize {
    let lines = n / BLOCK * (C::ACT / 64);
    64 * (lines | 1)
}

fn arrange<S: KSet, C: CodesOf16>(isa: Isa, act: &[u8], n: usize, out: &mut [u8]) {
    assert_eq!(act.len(), n / BLOCK * Q8_K, "activation row");
    let _set = S::of(isa);
    let blocks = act.as_chunks::<Q8_K>().0;
    for (act, out) in blocks.iter().zip(out.chunks_exact_mut(C::ACT)) {
        // SAFETY: `_set` proves these instructions.
        unsafe { S::run::<Arrange<S, C>>((act, &mut *out)) };
        out[SCALE..][..4].copy_from_slice(&act[..4]);
        C::arrange(out);
    }
}

/// Arranges the quants of a block and their corrections.
struct Arrange<S, C>(PhantomData<(S, C)>);

impl<S: KSet, C: CodesOf16> Kernel for Arrange<S, C> {
    type Call<'a> = (&'a [u8; Q8_K], &'a mut [u8]);

    #[inline(always)]
    unsafe fn run((act, out): Self::Call<'_>) {
        let (quants, rest) = out.split_at_mut(BLOCK);
        let quants = &mut quants.as_chunks_mut().0[0];
        let corrections = rest[..BLOCK].chunks_exact_mut(4 * S::L::ROWS);
        // A dword for each unit, which repeat for every l.
        let mut excess = [[[32u8; 4]; 8]; 2];
        for excess in &mut excess {
            excess[..C::LOW].fill([C::OFFSET as u8; 4]);
        }
        // SAFETY: the caller has the instruction set; a register of quants and of corrections each.
        unsafe {
            S::by_lane(&act[info::Q8_K.at(Part::Codes)..].as_chunks().0[0], quants);
            let excess = S::L::load(excess.as_flattened().as_flattened().as_ptr());
            for (q, out) in quants.chunks_exact(4 * S::L::ROWS).zip(corrections) {
                let sums = S::L::pairs(excess, S::L::load(q.as_ptr()));
                S::L::store_bytes(out.as_mut_ptr(), S::L::sub_words(S::L::dwords(0), sums));
            }
        }
    }
}

fn multiply<S: Set16<C>, C: CodesOf16>(call: Call<'_>) {
    let Call { group, acts, n, mut ahead, out, .. } = call.check(const { &layout::<S, C>() });
    let stride = act_bytes::<C>(n);
    for (acts, out) in acts.chunks(TILE * stride).zip(out.chunks_mut(TILE * ROWS)) {
        let acts = Acts { at: acts.as_ptr(), blocks: n / BLOCK, stride };
        let (group, ahead) = (group.as_ptr(), take(&mut ahead));
        // SAFETY: `check` has seen the proof of these instructions and compared all lengths.
        unsafe {
            match out.len() / ROWS {
                1 => with_prefetch!(ahead => S::run::<One<S, C, _>>(Product { group, acts, ahead, out })),
                tokens if tokens >= S::EXPANDED_FROM => S::expanded(Product { group, acts, ahead: (), out }),
                _ => S::run::<Many<S, C>>(Product { group, acts, ahead, out }),
            }
        }
    }
}

/// Scales 2J and 2J + 1 as i16, from those of [`CodesOf16::scales`].
///
/// # Safety
/// The processor has the registers.
#[inline(always)]
pub(crate) unsafe fn pair_scales<L: Lanes>(scales: [L::Ints; 4]) -> [L::Ints; 8] {
    // SAFETY: the caller's promise.
    unsafe {
        let mut all = [scales[0]; 8];
        for (two, bytes) in all.as_chunks_mut::<2>().0.iter_mut().zip(scales) {
            // The upper bytes of words, shifted down with their sign.
            *two = [L::shuffle(bytes, [-1, 0, -1, 1]), L::shuffle(bytes, [-1, 2, -1, 3])];
            *two = [L::sar(two[0], 8), L::sar(two[1], 8)];
        }
        all
    }
}

/// A block's head for a register of rows.
pub(crate) struct Head<L: Lanes> {
    pub(crate) d: L::Floats,
    /// Scales 2J and 2J + 1 as i16.
    pub(crate) scales: [L::Ints; 8],
    /// Address of the parts.
    pub(crate) parts: *const u8,
}

impl<L: Lanes> Head<L> {
    /// The head of register v of block b.
    ///
    /// # Safety
    /// The processor has the registers; the group has this block.
    #[inline(always)]
    pub(crate) unsafe fn new<C: CodesOf16>(group: *const u8, b: usize, v: usize) -> Head<L> {
        let (d, block) = at::<C>(b);
        // SAFETY: the caller's group has this block.
        unsafe {
            let block = group.add(block + 4 * L::ROWS * v);
            let d = L::halves(group.add(d + 2 * L::ROWS * v));
            Head { d, scales: pair_scales::<L>(C::scales::<L>(block)), parts: block.wrapping_add(C::CODES) }
        }
    }

    /// The same with scales that make up for what units before `LOW` lack.
    ///
    /// # Safety
    /// As [`Head::new`].
    #[inline(always)]
    unsafe fn even<C: CodesOf16>(group: *const u8, b: usize, v: usize) -> Head<L> {
        // SAFETY: the caller's promise.
        unsafe {
            let mut head = Head::<L>::new::<C>(group, b, v);
            for scales in &mut head.scales[..C::LOW] {
                *scales = L::shl(*scales, const { times::<C>() });
            }
            head
        }
    }

    /// The codes of a part.
    ///
    /// # Safety
    /// As [`Head::new`].
    #[inline(always)]
    pub(crate) unsafe fn part<C: CodesOf16>(&self, l: usize) -> [L::Ints; 8] {
        // SAFETY: the caller's promise.
        unsafe { C::unpack::<L>(self.parts.add(64 * C::PART_LINES * l)) }
    }
}

/// The power of two that chains' integers are multiplied with on the way.
pub(crate) const fn times<C: CodesOf16>() -> u32 {
    (32 / C::OFFSET).ilog2()
}

/// Starts a block of all tokens, whose activations of it are at `y`: notes the products of its scale `d` and theirs.
///
/// # Safety
/// The processor has the registers; the activations are readable.
#[inline(always)]
pub(crate) unsafe fn start<L: Lanes>(tile: &mut [Token<L>], d: L::Floats, y: *const u8, stride: usize) {
    for (t, token) in tile.iter_mut().enumerate() {
        // SAFETY: the caller's promise.
        token.d = unsafe { L::mul(d, L::broadcast_float(y.add(stride * t + SCALE))) };
    }
}

/// One token.
struct One<S, C, A>(PhantomData<(S, C, A)>);

impl<S: KSet, C: CodesOf16, A: PrefetchDistance> Kernel for One<S, C, A> {
    type Call<'a> = Product<'a, A>;

    #[inline(always)]
    unsafe fn run(Product { group, acts, ahead, out }: Product<'_, A>) {
        let vectors = const { vectors::<S::L>() };
        // SAFETY: the caller has the instruction set; block b is there, of the activations too.
        unsafe {
            let zero = S::L::float(0.0);
            let (mut chains, mut d) = ([[zero; CHAINS]; MOST], [zero; MOST]);
            for b in 0..acts.blocks {
                let y = acts.at.add(C::ACT * b);
                let heads: [Head<S::L>; MOST] = [Head::even::<C>(group, b, 0), Head::even::<C>(group, b, vectors - 1)];
                for v in 0..vectors {
                    d[v] = S::L::mul(heads[v].d, S::L::broadcast_float(y.add(SCALE)));
                }
                for l in 0..CHAINS {
                    let from = group.wrapping_add(at::<C>(b).1 + C::BYTES / CHAINS * l);
                    for v in 0..vectors {
                        let prefetch =
                            |j| ahead.share(from, const { C::BYTES.div_ceil(CHAINS) }, 8 * v + j, 8 * vectors);
                        let codes = heads[v].part::<C>(l);
                        let sum = chain_sum::<S::L, true>(&heads[v].scales, &codes, y.add(32 * l), prefetch);
                        let sum = S::L::sar_dwords(sum, const { times::<C>() });
                        chains[v][l] = S::L::step(chains[v][l], d[v], sum);
                    }
                }
            }
            for (chains, out) in chains.iter().zip(out.chunks_exact_mut(S::L::ROWS)) {
                finish::<S::L>(zero, chains, out);
            }
        }
    }
}

/// Up to [`TILE`] tokens.
struct Many<S, C>(PhantomData<(S, C)>);

impl<S: KSet, C: CodesOf16> Kernel for Many<S, C> {
    type Call<'a> = Product<'a, usize>;

    #[inline(always)]
    unsafe fn run(Product { group, acts, ahead, out }: Product<'_, usize>) {
        let mut tile = Tile::<S::L>::new();
        // SAFETY: the caller has the instruction set; block b is there, of all activations too.
        unsafe {
            for v in 0..const { vectors::<S::L>() } {
                let tile = tile.start(out.len() / ROWS);
                for b in 0..acts.blocks {
                    let y = acts.at.add(C::ACT * b);
                    let head = Head::<S::L>::even::<C>(group, b, v);
                    start(tile, head.d, y, acts.stride);
                    for l in 0..CHAINS {
                        let from = group.wrapping_add(at::<C>(b).1 + C::BYTES / CHAINS * l);
                        let codes = head.part::<C>(l);
                        by_tokens!(t in tile.len(), S::TOKENS, T => {
                            let y = y.add(acts.stride * t + 32 * l);
                            // The other registers of rows find the lines in the cache.
                            let sums: [Ints<S>; T] = prefetching_first!(
                                S, v == 0 && t == 0, ahead,
                                |j| ahead.share(from, const { C::BYTES.div_ceil(CHAINS) }, j, S::PREFETCHES),
                                prefetch => <S as Parts<T>>::sums::<true>(&head.scales, &codes, y, acts.stride, prefetch)
                            );
                            for (token, sum) in tile[t..].iter_mut().zip(sums) {
                                token.step(l, S::L::sar_dwords(sum, const { times::<C>() }));
                            }
                        });
                    }
                }
                finish_tile(tile, v, out);
            }
        }
    }
}
const _: () = assert!(CORRECTION + BLOCK == SCALE);
