//! Parts of all products of K-quants with eight chains per row: the rows of a register are its lanes, and the chain
//! that the reference keeps for the elements that are l mod 8 is register l.
//!
//! A block of 256 weights is walked l by l. Its 32 elements l, l + 8, .. are eight dwords s: the elements
//! 32s + l + 8i, i = 0..4, one broadcast of activations each.

use std::mem::MaybeUninit;

use super::lanes::{Ints, Lanes, Set};
use crate::shared::packed::k_quants::{BLOCK, CHAINS, ROWS};

/// Tokens whose chains are kept side by side in the first-level cache.
pub(crate) const TILE: usize = 32;
/// Registers of the rows of a group, at most.
pub(crate) const MOST: usize = 2;

/// Registers of the rows of a group: [`MOST`] or 1.
pub(crate) const fn vectors<L: Lanes>() -> usize {
    assert!(ROWS.is_multiple_of(L::ROWS) && ROWS / L::ROWS <= MOST);
    ROWS / L::ROWS
}

/// Arranged activations, and how they lie.
#[derive(Clone, Copy)]
pub(crate) struct Acts {
    pub(crate) at: *const u8,
    pub(crate) blocks: usize,
    /// Bytes from token to token.
    pub(crate) stride: usize,
}

/// The arguments of a product of one group with as many tokens as there is room for in `out`, [`TILE`] at most. The
/// group and the activations of these tokens have to be readable.
pub(crate) struct Product<'a, A> {
    pub(crate) group: *const u8,
    pub(crate) acts: Acts,
    pub(crate) ahead: A,
    pub(crate) out: &'a mut [f32],
}

/// Running sums of a token for the rows of a register.
pub(crate) struct Token<L: Lanes> {
    pub(crate) chains: [L::Floats; CHAINS],
    /// The chain of the minima.
    pub(crate) minus: L::Floats,
    /// The product of the scales of the current block.
    pub(crate) d: L::Floats,
}

impl<L: Lanes> Token<L> {
    /// All chains zero.
    ///
    /// # Safety
    /// The processor has the registers.
    #[inline(always)]
    pub(crate) unsafe fn new() -> Token<L> {
        // SAFETY: the caller's promise.
        let zero = unsafe { L::float(0.0) };
        Token { chains: [zero; CHAINS], minus: zero, d: zero }
    }

    /// `chain l + d * sum`, each operation rounded by itself.
    ///
    /// # Safety
    /// The processor has the registers.
    #[inline(always)]
    pub(crate) unsafe fn step(&mut self, l: usize, sum: L::Ints) {
        // SAFETY: the caller's promise.
        self.chains[l] = unsafe { L::step(self.chains[l], self.d, sum) };
    }
}

/// Room for a tile; few tokens must not pay for all of it.
pub(crate) struct Tile<L: Lanes>([MaybeUninit<Token<L>>; TILE]);

impl<L: Lanes> Tile<L> {
    #[inline(always)]
    pub(crate) fn new() -> Tile<L> {
        Tile([const { MaybeUninit::uninit() }; TILE])
    }

    /// The first `tokens`, all chains zero.
    ///
    /// # Safety
    /// The processor has the registers.
    #[inline(always)]
    pub(crate) unsafe fn start(&mut self, tokens: usize) -> &mut [Token<L>] {
        let tile = &mut self.0[..tokens];
        for token in &mut *tile {
            // SAFETY: the caller's promise.
            token.write(unsafe { Token::new() });
        }
        // SAFETY: all of these were written just now.
        unsafe { std::slice::from_raw_parts_mut(tile.as_mut_ptr().cast(), tokens) }
    }
}

/// `minus + chain 0 + chain 1 ...`, in this order, to the outputs of a register of rows.
///
/// # Safety
/// The processor has the registers.
#[inline(always)]
pub(crate) unsafe fn finish<L: Lanes>(minus: L::Floats, chains: &[L::Floats; CHAINS], out: &mut [f32]) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut sum = minus;
        for chain in chains {
            sum = L::add(sum, *chain);
        }
        L::store(out, sum);
    }
}

/// [`finish`] of register `v` of the rows, for every token.
///
/// # Safety
/// The processor has the registers.
#[inline(always)]
pub(crate) unsafe fn finish_tile<L: Lanes>(tile: &[Token<L>], v: usize, out: &mut [f32]) {
    for (token, out) in tile.iter().zip(out.chunks_exact_mut(ROWS)) {
        // SAFETY: the caller's promise.
        unsafe { finish::<L>(token.minus, &token.chains, &mut out[L::ROWS * v..]) };
    }
}

/// An instruction set that multiplies K-quants.
pub(crate) trait KSet: Set + Parts<1> + Parts<2> + Parts<3> + Parts<4> {
    /// Writes the quants of a block in the order in which the kernels walk them: dword s of l, the elements
    /// 32s + l + 8i, at byte 32l + 4s.
    ///
    /// # Safety
    /// The processor has the instruction set.
    unsafe fn by_lane(q: &[u8; BLOCK], out: &mut [u8; BLOCK]);
}

/// Bytes between a dword of activations and what is added to its products, where something is.
pub(crate) const CORRECTION: usize = BLOCK;

/// The integers of a chain: codes times activations times scales, for the eight dwords of a part and T tokens whose
/// activations are `stride` bytes apart.
pub(crate) trait Parts<const T: usize>: Set {
    /// As [`chain_sum`], for each token. `prefetch` is called [`Set::PREFETCHES`] times.
    ///
    /// # Safety
    /// The processor has the instruction set; 32 bytes of activations are readable for each token, and where it is
    /// corrected as many [`CORRECTION`] bytes behind them.
    unsafe fn sums<const CORRECTED: bool>(
        scales: &[Ints<Self>; 8],
        codes: &[Ints<Self>; 8],
        y: *const u8,
        stride: usize,
        prefetch: impl Fn(usize),
    ) -> [Ints<Self>; T];
}

/// The integer of a chain of one token. Where it is `CORRECTED`, the dword at [`CORRECTION`] bytes behind that of the
/// activations is added to the pairs of products. `prefetch(j)` is called eight times on the way.
///
/// # Safety
/// As [`Parts::sums`].
#[inline(always)]
pub(crate) unsafe fn chain_sum<L: Lanes, const CORRECTED: bool>(
    scales: &[L::Ints; 8],
    codes: &[L::Ints; 8],
    y: *const u8,
    prefetch: impl Fn(usize),
) -> L::Ints {
    // SAFETY: the caller's activations have eight dwords, and as many corrections.
    unsafe {
        let mut sums = [L::dwords(0); 2];
        for (j, (codes, scales)) in codes.iter().zip(scales).enumerate() {
            prefetch(j);
            let y = y.add(4 * j);
            let mut pairs = L::pairs(*codes, L::broadcast(y));
            if CORRECTED {
                pairs = L::add_words(pairs, L::broadcast(y.add(CORRECTION)));
            }
            sums[j % L::SUMS] = L::add_scaled(sums[j % L::SUMS], pairs, *scales);
        }
        if L::SUMS == 1 { sums[0] } else { L::add_dwords(sums[0], sums[1]) }
    }
}

/// Eight dwords of products of weights and scales, each of all rows, for one part or two side by side: as many as there
/// are registers of rows.
pub(crate) type Lines<L> = [[[<L as Lanes>::Ints; MOST]; MOST]; 8];

/// Integers of the rows of a group and T tokens.
pub(crate) type RowSums<L, const T: usize> = [[<L as Lanes>::Ints; MOST]; T];

/// An instruction set that sums products of expanded parts.
pub(crate) trait Expands: KSet + Sums<1> + Sums<2> + Sums<3> + Sums<4> {
    /// Widens the 32 activations of a part to words, in each dword the first and the third, then the others.
    ///
    /// # Safety
    /// The processor has the instruction set; 32 bytes are readable at `y`.
    unsafe fn widen(y: *const u8, to: &mut [u8; 64]);
}

/// Products of expanded parts and T tokens.
pub(crate) trait Sums<const T: usize>: Set {
    /// `acc` plus the products of the lines of part `side`, bytes without a sign, and of the tokens, whose activations
    /// are `stride` bytes apart.
    ///
    /// # Safety
    /// The processor has the instruction set; 32 bytes of activations are readable for each token.
    unsafe fn add_bytes(
        lines: &Lines<Self::L>,
        side: usize,
        y: *const u8,
        stride: usize,
        acc: RowSums<Self::L, T>,
    ) -> RowSums<Self::L, T>;

    /// The same of dwords that are two words each, of either.
    ///
    /// # Safety
    /// As [`Sums::add_bytes`].
    unsafe fn add_words(
        lines: &Lines<Self::L>,
        side: usize,
        y: *const u8,
        stride: usize,
        acc: RowSums<Self::L, T>,
    ) -> RowSums<Self::L, T>;
}

/// Chain `l` of the tokens from `t` on a step further.
///
/// # Safety
/// The processor has the registers.
#[inline(always)]
pub(crate) unsafe fn step<L: Lanes, const T: usize>(
    tiles: &mut [&mut [Token<L>]; MOST],
    t: usize,
    l: usize,
    sums: RowSums<L, T>,
) {
    for (v, tile) in tiles.iter_mut().enumerate().take(vectors::<L>()) {
        for (token, sums) in tile[t..].iter_mut().zip(sums) {
            // SAFETY: the caller's promise.
            unsafe { token.step(l, sums[v]) };
        }
    }
}
