//! K-quants with eight chains per row for AMX: the bytes of [`crate::shared::packed::k_quants`], expanded to weights times
//! their scales.
//!
//! A product of weight and scale has at most 14 bits, two limbs of a byte each: part l of a block becomes two tiles of
//! eight lines, whose products with 16 tokens are the upper and the lower limb of the integers of chain l. They are
//! half a tile deep and leave the tiles at once, because every block has its own d; their float chains advance while
//! the next two are in work.
//!
//! All blocks of a group are expanded first, then 32 tokens at a time run over them: their chains and a block stay in
//! the first-level cache.

use std::arch::x86_64::*;
use std::mem::MaybeUninit;

use super::block32_tiles::opaque;
use super::zmm::Zmm;
use crate::AlignedBytes;
use crate::arch::x86_64::rows::chains::{TILE as CHUNK, Tile, Token, finish};
use crate::arch::x86_64::rows::lanes::Lanes;
use crate::arch::x86_64::tiles::{self, Hardware, Tiles, Tokens};
use crate::proof::{Amx, Proof};
use crate::shared::packed::k_quants::of_16::{Q3K, Q6K};
use crate::shared::packed::k_quants::of_32::{Q4K, Q5K};
use crate::shared::packed::k_quants::{BLOCK, CHAINS, ROWS};
use crate::shared::packed::{Call, Layout};
use limbs::join;
use types::{LIMB, Limbs, Of16, Of32, PART};

mod limbs;
mod types;

/// Tokens behind the last whole tile that vectors take.
const REST: usize = 8;
/// Tokens of a call, over which the expansion is spread.
const TILE: usize = 256;
/// Tokens of a tile.
const SIDE: usize = tiles::ROWS;
const _: () = assert!(CHUNK == 2 * SIDE && ROWS == SIDE);
const EXPANDED: usize = CHAINS * PART;

const fn layout<L: Limbs>() -> Layout {
    Layout { needs: Amx::NEEDS, tile: TILE, multiply: multiply::<L>, ..L::VECTORS }
}

macro_rules! all {
    () => {
        &[layout::<Of16<Q3K>>(), layout::<Of32<Q4K>>(), layout::<Of32<Q5K>>(), layout::<Of16<Q6K>>()]
    };
}

pub(super) static LAYOUTS: &[Layout] = all!();

fn multiply<L: Limbs>(call: Call<'_>) {
    if call.tokens < L::FROM {
        return (L::VECTORS.multiply)(call);
    }
    let Call { isa, group, acts, n, tokens, out, .. } = call.check(const { &layout::<L>() });
    let whole = Tokens::in_tiles(tokens, REST);
    let (acts, rest) = acts.split_at(acts.len() / tokens * whole);
    let (out, out_of_rest) = out.split_at_mut(ROWS * whole);
    // SAFETY: `check` has seen the proof of the tiles and compared all lengths.
    unsafe { product::<Hardware, L>(group, acts, n, whole, out) }
    if whole < tokens {
        (L::VECTORS.multiply)(Call { isa, group, acts: rest, n, tokens: tokens - whole, ahead: 0, out: out_of_rest });
    }
}

/// Upper and lower limbs of the integers of a chain, of two tiles of tokens.
#[repr(C, align(64))]
struct Isums([[[i32; SIDE * ROWS]; 2]; 2]);

/// A group and its tokens.
struct Product<'a> {
    group: &'a [u8],
    expanded: &'a [u8],
    acts: &'a [u8],
    /// Bytes from token to token.
    stride: usize,
    blocks: usize,
}

/// # Safety
/// AVX-512 F, BW and VNNI, and [`crate::Level::Amx`] where the tiles are the processor's; lengths as [`Call::check`] has
/// them, at least 16 tokens.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn product<M: Tiles, L: Limbs>(group: &[u8], acts: &[u8], n: usize, tokens: usize, out: &mut [f32]) {
    let blocks = n / BLOCK;
    if blocks == 0 {
        return out.fill(0.0);
    }
    let mut expanded = AlignedBytes::scratch(blocks * EXPANDED);
    for (b, to) in expanded.chunks_exact_mut(EXPANDED).enumerate() {
        // SAFETY: the group has block b, and there is room for its expansion.
        unsafe { L::expand(group.as_ptr(), b, to.as_mut_ptr()) };
    }
    let product = Product { group, expanded: &expanded, acts, stride: acts.len() / tokens, blocks };
    let mut isums = [const { MaybeUninit::uninit() }; 2];
    let tokens = Tokens::new(tokens);
    // SAFETY: the caller has the tiles and says that all lengths fit; all blocks are expanded.
    unsafe {
        // Two tiles of tokens, two of weights, four of sums.
        let mut m = M::with_shapes([16, 16, 8, 8, 16, 16, 16, 16], [32, 32, 64, 64, 64, 64, 64, 64]);
        for tile in (0..tokens.tiles).step_by(2) {
            let first = tokens.start(tile);
            if tile + 1 < tokens.tiles {
                // The last tile takes some tokens of the one before again where tokens are no whole tiles.
                let first = [first, tokens.start(tile + 1)];
                chunk::<M, L, 2>(&mut m, &product, first, &mut isums, out);
            } else {
                chunk::<M, L, 1>(&mut m, &product, [first], &mut isums, out);
            }
        }
    }
}

/// The outputs of `T` tiles of tokens that begin at `first`; `isums` is room for the chain in work and for the last.
///
/// # Safety
/// As [`product`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn chunk<M: Tiles, L: Limbs, const T: usize>(
    m: &mut M,
    product: &Product<'_>,
    first: [usize; T],
    isums: &mut [MaybeUninit<Isums>; 2],
    out: &mut [f32],
) {
    let mut room = Tile::new();
    // SAFETY: this function has the instructions.
    let all = unsafe { room.start(SIDE * T) }.as_chunks_mut::<SIDE>().0;
    let stride = product.stride;
    let [even, odd] = isums.each_mut().map(MaybeUninit::as_mut_ptr);
    for b in 0..product.blocks {
        // SAFETY: the group has block b, expanded too, and all tokens their activations of it. Integers are settled one
        // turn after they were stored.
        unsafe {
            let head = L::head(product.group.as_ptr(), b);
            let weights = product.expanded[EXPANDED * b..].as_ptr();
            let y = first.map(|first| product.acts[stride * first + L::ACT * b..].as_ptr());
            let part = |l: usize| (weights.add(PART * l), y.map(|y| y.add(32 * l)));
            // The chain before chain 0 is the last of the block before, whose scales all tokens have until it is
            // settled.
            let last = (b > 0).then_some((CHAINS - 1, odd.cast_const()));
            turn(m, part(0), stride, even, all, last);
            for (tokens, y) in all.iter_mut().zip(y) {
                for (t, token) in tokens.iter_mut().enumerate() {
                    L::start(&head, token, y.add(stride * t));
                }
            }
            for l in (1..CHAINS).step_by(2) {
                turn(m, part(l), stride, odd, all, Some((l - 1, even)));
                if l + 1 < CHAINS {
                    turn(m, part(l + 1), stride, even, all, Some((l, odd)));
                }
            }
        }
    }
    for (i, (tokens, first)) in all.iter_mut().zip(first).enumerate() {
        // SAFETY: the last turn has stored these.
        unsafe { settle(tokens, CHAINS - 1, &(*odd).0[i]) };
        for (token, out) in tokens.iter().zip(out[ROWS * first..].chunks_exact_mut(ROWS)) {
            // SAFETY: this function has the instructions.
            unsafe { finish::<Zmm>(token.minus, &token.chains, out) };
        }
    }
}

/// Multiplies a part with `T` tiles of tokens, to `isums`, and takes a chain a step further meanwhile: the number and
/// the integers of `last`.
///
/// # Safety
/// As [`product`]; a part and 32 bytes of 16 tokens from each `y` on are readable, the last integers were stored.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn turn<M: Tiles, const T: usize>(
    m: &mut M,
    (weights, y): (*const u8, [*const u8; T]),
    stride: usize,
    isums: *mut Isums,
    all: &mut [[Token<Zmm>; SIDE]],
    last: Option<(usize, *const Isums)>,
) {
    // SAFETY: the caller has tiles, weights, activations, integers and room for them.
    unsafe {
        m.load::<2>(weights, tiles::ROW);
        m.load::<3>(weights.add(LIMB), tiles::ROW);
        m.clear::<4>();
        m.clear::<5>();
        m.load::<0>(y[0], stride);
        m.dot_signed::<4, 0, 2>();
        m.dot_signed::<5, 0, 3>();
        if let Some((l, isums)) = last {
            settle(&mut all[0], l, &(*isums).0[0]);
        }
        if T > 1 {
            m.clear::<6>();
            m.clear::<7>();
            m.load::<1>(y[T - 1], stride);
            m.dot_signed::<6, 1, 2>();
            m.dot_signed::<7, 1, 3>();
            if let Some((l, isums)) = last {
                settle(&mut all[T - 1], l, &(*isums).0[T - 1]);
            }
        }
        let to = &raw mut (*isums).0;
        m.store::<4>((&raw mut (*to)[0][0]).cast());
        m.store::<5>((&raw mut (*to)[0][1]).cast());
        if T > 1 {
            m.store::<6>((&raw mut (*to)[1][0]).cast());
            m.store::<7>((&raw mut (*to)[1][1]).cast());
        }
    }
}

/// Takes chain l of the 16 tokens of a tile a step further.
#[inline]
#[target_feature(enable = "avx512f")]
fn settle(tokens: &mut [Token<Zmm>; SIDE], l: usize, isums: &[[i32; SIDE * ROWS]; 2]) {
    const STRIDE: usize = size_of::<Token<Zmm>>();
    assert!(l < CHAINS);
    let (tokens, isums) = (tokens.as_mut_ptr(), isums.as_ptr().cast::<__m512i>());
    // SAFETY: each token has chain l; 16 vectors of upper limbs, then 16 of lower ones.
    unsafe {
        // A register for all tokens; adding l to every address would take twice as long.
        let chains = opaque((&raw const (*tokens).chains).cast::<__m512>().add(l).cast());
        for t in 0..SIDE {
            let chain = chains.add(STRIDE * t).cast::<__m512>().cast_mut();
            let sum = join(*isums.add(t), *isums.add(SIDE + t));
            *chain = Zmm::step(*chain, (*tokens.add(t)).d, sum);
        }
    }
}

/// The same with tiles in memory, on any processor with AVX-512.
#[cfg(test)]
pub(super) mod software {
    use super::*;
    use crate::arch::x86_64::tiles::Software;

    const fn layout<L: Limbs>() -> Layout {
        Layout { multiply: multiply::<L>, ..L::VECTORS }
    }

    pub static LAYOUTS: &[Layout] = all!();

    fn multiply<L: Limbs>(call: Call<'_>) {
        let Call { group, acts, n, tokens, out, .. } = call.check(const { &layout::<L>() });
        if tokens >= SIDE {
            // SAFETY: `check` has seen the proof of AVX-512 and compared all lengths.
            return unsafe { product::<Software, L>(group, acts, n, tokens, out) };
        }
        // Only whole tiles of tokens are taken: the last token stands for those that are missing.
        let stride = acts.len() / tokens;
        let mut padded = AlignedBytes::new(SIDE * stride);
        for (t, to) in padded.chunks_exact_mut(stride).enumerate() {
            to.copy_from_slice(&acts[stride * t.min(tokens - 1)..][..stride]);
        }
        let mut all = [0.0; SIDE * ROWS];
        // SAFETY: as above.
        unsafe { product::<Software, L>(group, &padded, n, SIDE, &mut all) };
        out.copy_from_slice(&all[..ROWS * tokens]);
    }
}
