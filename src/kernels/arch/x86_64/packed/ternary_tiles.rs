//! Ternary codes, 32 rows interleaved, for AMX: the bytes of [`crate::packed::t2`] or of [`super::t5`], unpacked to a byte per
//! weight.
//!
//! A line of 64 packed bytes is a dword of 16 rows; one of its planes, a byte per weight, is a line of a tile of weights.
//! Activations are tiles of 16 tokens and 64 columns as they lie in memory, and the sums of 16 tokens and 16 rows
//! come out. Two by two such tiles share their loads.
//!
//! Types with scales go through the blocks one by one, all tokens over each: 8 KB of unpacked weights stay in the first-level
//! cache. While the tiles of one step are multiplied, the float chains of the step before advance and a part of the next block
//! is unpacked, all of which the processor does beside the products. Types without scales are unpacked row by row, and their
//! sums stay in the tiles from end to end.

use std::arch::x86_64::*;

use super::t2::{self, Act, ROWS, SCALES, UNIT};
use super::ternary_bytes::{COLUMNS, Codes, HALF, Trits, TwoBits};
use super::{check, prefetch, t5};
use crate::AlignedBytes;
#[cfg(test)]
use crate::arch::x86_64::tiles::Software;
use crate::arch::x86_64::tiles::{self, Hardware, Tiles};
use crate::packed::Layout;
#[cfg(test)]
use crate::packed::dword;

/// Tokens from which on tiles are faster than [`t2`]'s vectors: a product of tiles takes as long for one token as for 16.
const FROM: usize = 6;
/// The same beside [`t5`], which looks digits up for every token again.
const FROM_TRITS: usize = 2;
/// Tokens of a call: those whose sums stay in the first-level cache.
const TILE: usize = 256;
/// Columns of a tile, and tiles of a block.
const STEP: usize = tiles::ROW;
const STEPS: usize = COLUMNS / STEP;

pub(super) static TQ2_0: Layout = t2::with_scales(t2::pack_tq2_0, multiply_blocks, TILE);
/// TQ1_0 as codes of two bits.
pub(super) static TQ1_0: Layout = t2::with_scales(t2::pack_tq1_0, multiply_blocks, TILE);
pub(super) static I2_S: Layout = t2::i2_s(multiply_rows, TILE);
pub(super) static TL: Layout = t2::tl(multiply_rows, TILE);

/// The layouts of five digits to a byte.
macro_rules! trits {
    ($($name:ident $layout:ident $multiply:ident;)*) => {$(
        pub(super) static $name: Layout = Layout {
            multiply: $multiply,
            tile: TILE,
            ..t5::$layout
        };
    )*};
}

trits! {
    TQ1_0_TRITS TQ1_0 multiply_trits;
    TQ2_0_TRITS TQ2_0 multiply_trits;
    I2_S_TRITS I2_S multiply_trits_of_rows;
    TL_TRITS TL multiply_trits_of_rows;
}

/// `$few` for fewer than `$from` tokens, tiles for more: of `$layout`'s groups, with its rows of `$columns` activations.
macro_rules! products {
    ($name:ident, $from:ident, $few:expr, $layout:expr, $function:ident, $codes:expr, $columns:expr) => {
        fn $name(
            group: &[u8],
            acts: &[u8],
            n: usize,
            tokens: usize,
            ahead: usize,
            out: &mut [f32],
        ) {
            /// # Safety
            /// [`crate::Level::Amx`] and VBMI; lengths as [`check`] has them.
            #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
            unsafe fn on_tiles(
                group: &[u8],
                acts: &[u8],
                n: usize,
                tokens: usize,
                ahead: usize,
                out: &mut [f32],
            ) {
                // SAFETY: the caller has seen to it.
                unsafe { $function::<Hardware, _>($codes, group, acts, n, tokens, ahead, out) }
            }
            if tokens < $from {
                return $few(group, acts, n, tokens, ahead, out);
            }
            check(&$layout, group, acts, n, tokens, out);
            // SAFETY: `layouts` hands the layout out only for an `Isa` with these instructions; `check` has compared all
            // lengths.
            unsafe { on_tiles(group, acts, $columns(n), tokens, ahead, out) }
        }
    };
}

products!(
    multiply_blocks,
    FROM,
    t2::multiply_tq2_0,
    TQ2_0,
    blocks,
    TwoBits::<false>,
    usize::from
);
products!(
    multiply_rows,
    FROM,
    t2::multiply_rows,
    TL,
    rows,
    TwoBits::<true>,
    whole_units
);
products!(
    multiply_trits,
    FROM_TRITS,
    t5::multiply_blocks,
    t5::TQ1_0,
    blocks,
    Trits::new(),
    usize::from
);
products!(
    multiply_trits_of_rows,
    FROM_TRITS,
    t5::multiply_rows,
    t5::TL,
    rows,
    Trits::new(),
    whole_blocks
);

/// Columns of units with those of `n` weights.
fn whole_units(n: usize) -> usize {
    n.next_multiple_of(UNIT)
}

/// Columns of blocks with those of `n` weights.
fn whole_blocks(n: usize) -> usize {
    n.next_multiple_of(COLUMNS)
}

/// Tiles, and what is done to their bytes and sums by vectors of 16 rows.
trait Machine: Tiles {
    /// Scales of 16 rows.
    type Scales: Copy;

    /// 16 half floats.
    unsafe fn scales(from: *const u8) -> Self::Scales;
    /// `sums[t] + isums[t] * (dy[t] * scales)` for `tokens` tokens, every operation rounded by itself; sums are `ROWS`
    /// apart, the scales of tokens `stride` floats.
    unsafe fn settle(
        isums: *const i32,
        scales: Self::Scales,
        dy: *const f32,
        stride: usize,
        tokens: usize,
        sums: *mut f32,
    );
    /// `((f32) isums - (f32) S) / a` of one token, the head of whose activations is at `act`.
    unsafe fn finish(isums: *const i32, act: *const u8, out: *mut f32);
}

impl Machine for Hardware {
    type Scales = __m512;

    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn scales(from: *const u8) -> __m512 {
        // SAFETY: the caller points at 16 half floats.
        _mm512_cvtph_ps(unsafe { _mm256_loadu_si256(from.cast()) })
    }
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn settle(
        isums: *const i32,
        scales: __m512,
        dy: *const f32,
        stride: usize,
        tokens: usize,
        sums: *mut f32,
    ) {
        let step = |t: usize| {
            // SAFETY: the caller has so many sums and scales of tokens.
            unsafe {
                let isum = _mm512_cvtepi32_ps(_mm512_load_si512(isums.add(16 * t).cast()));
                let dy = _mm512_set1_ps(dy.add(t * stride).read_unaligned());
                let term = _mm512_mul_ps(isum, _mm512_mul_ps(dy, scales));
                let sum = sums.add(t * ROWS);
                _mm512_storeu_ps(sum, _mm512_add_ps(_mm512_loadu_ps(sum), term));
            }
        };
        match tokens {
            16 => (0..16).for_each(step),
            _ => (0..tokens).for_each(step),
        }
    }
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn finish(isums: *const i32, act: *const u8, out: *mut f32) {
        // SAFETY: 16 sums, and the head of a row of activations.
        unsafe {
            let head = std::slice::from_raw_parts(act, 8);
            let out_of = t2::row_step(_mm512_load_si512(isums.cast()), head);
            _mm512_storeu_ps(out, out_of);
        }
    }
}

#[cfg(test)]
impl Machine for Software {
    type Scales = [f32; 16];

    unsafe fn scales(from: *const u8) -> [f32; 16] {
        // SAFETY: the caller points at 16 half floats.
        let halves = unsafe { from.cast::<[[u8; 2]; 16]>().read() };
        halves.map(|half| trine_formats::types::num::f16_to_f32(u16::from_le_bytes(half)))
    }
    unsafe fn settle(
        isums: *const i32,
        scales: [f32; 16],
        dy: *const f32,
        stride: usize,
        tokens: usize,
        sums: *mut f32,
    ) {
        for t in 0..tokens {
            for (row, scale) in scales.into_iter().enumerate() {
                // SAFETY: the caller has so many sums and scales of tokens.
                unsafe {
                    let isum = isums.add(16 * t + row).read() as f32;
                    *sums.add(t * ROWS + row) +=
                        isum * (dy.add(t * stride).read_unaligned() * scale);
                }
            }
        }
    }
    unsafe fn finish(isums: *const i32, act: *const u8, out: *mut f32) {
        // SAFETY: 16 sums, and the head of a row of activations.
        unsafe {
            let head = std::slice::from_raw_parts(act, 8);
            let (a, sum) = (
                f32::from_le_bytes(dword(head, 0)),
                i32::from_le_bytes(dword(head, 1)),
            );
            for row in 0..16 {
                *out.add(row) = (*isums.add(row) as f32 - sum as f32) / a;
            }
        }
    }
}

/// Tiles of tokens: 16 each, of which the last two overlap where the tokens are no whole tiles; fewer than 16 are one
/// tile of as many rows.
#[derive(Clone, Copy)]
struct Tokens {
    count: usize,
    /// Rows of a tile.
    rows: usize,
    /// Number of tiles.
    tiles: usize,
}

impl Tokens {
    fn new(count: usize) -> Tokens {
        Tokens {
            count,
            rows: count.min(tiles::ROWS),
            tiles: count.div_ceil(tiles::ROWS),
        }
    }

    /// First token of a tile.
    #[inline(always)]
    fn start(self, tile: usize) -> usize {
        (tile * tiles::ROWS).min(self.count - self.rows)
    }

    /// Rows of the eight tiles: two of tokens, two of weights, four of sums.
    fn shapes(self) -> [u8; 8] {
        let rows = self.rows as u8;
        [rows, rows, 16, 16, rows, rows, rows, rows]
    }
}

/// Expanded weights of the block in work and of the next, and integer sums of the step in work and of the last.
#[repr(C, align(64))]
struct Scratch {
    weights: [[[u8; HALF]; 2]; 2],
    isums: [[[i32; 256]; 4]; 2],
}

/// Multiplies `PAIR` or one tile of tokens with two of weights, 64 columns.
#[inline(always)]
unsafe fn columns<M: Machine, const LOWER: bool, const PAIR: bool>(
    m: &mut M,
    q: [*const u8; 2],
    stride: usize,
    weights: [*const u8; 2],
) {
    macro_rules! dot {
        ($c:literal, $a:literal, $b:literal) => {
            if LOWER {
                m.dot_signed::<$c, $a, $b>();
            } else {
                m.dot_signed_by_unsigned::<$c, $a, $b>();
            }
        };
    }
    // SAFETY: the caller has the tokens' rows and two tiles of weights; sums are cleared before the first columns.
    unsafe {
        m.load::<0>(q[0], stride);
        m.load::<2>(weights[0], STEP);
        dot!(4, 0, 2);
        m.load::<3>(weights[1], STEP);
        dot!(5, 0, 3);
        if PAIR {
            m.load::<1>(q[1], stride);
            dot!(6, 1, 2);
            dot!(7, 1, 3);
        }
    }
}

#[inline(always)]
unsafe fn clear<M: Tiles, const PAIR: bool>(m: &mut M) {
    // SAFETY: the caller has set the tiles up.
    unsafe {
        m.clear::<4>();
        m.clear::<5>();
        if PAIR {
            m.clear::<6>();
            m.clear::<7>();
        }
    }
}

#[inline(always)]
unsafe fn put_down<M: Tiles, const PAIR: bool>(m: &M, isums: *mut [i32; 256]) {
    // SAFETY: the caller has set the tiles up and has room for four.
    unsafe {
        m.store::<4>(isums.cast());
        m.store::<5>(isums.add(1).cast());
        if PAIR {
            m.store::<6>(isums.add(2).cast());
            m.store::<7>(isums.add(3).cast());
        }
    }
}

/// A step whose integer sums are known and whose float chains have not advanced yet.
#[derive(Clone, Copy)]
struct Pending<S> {
    isums: *const [i32; 256],
    scales: [S; 2],
    /// The first of one or two tiles of tokens.
    tile: usize,
    pair: bool,
    block: usize,
}

/// Products of types with scales.
struct Blocks<'a> {
    acts: &'a [u8],
    act_bytes: usize,
    n: usize,
    tokens: Tokens,
    out: *mut f32,
    /// Sums of the last tile, where it overlaps the one before: they would be added to twice.
    last: *mut f32,
}

impl Blocks<'_> {
    /// The float chains of tile `part / 2` of a pending step, rows `16 (part % 2)` on.
    #[inline(always)]
    unsafe fn settle<M: Machine>(&self, pending: &Pending<M::Scales>, part: usize) {
        if part >= 2 && !pending.pair {
            return;
        }
        let (tile, half) = (pending.tile + part / 2, part % 2);
        let first = self.tokens.start(tile);
        // SAFETY: sums of every token of the tile, and the scales of its blocks, are there.
        unsafe {
            let sums = match first == tile * tiles::ROWS {
                true => self.out.add(first * ROWS),
                false => self.last,
            };
            let dy = Act::new(
                &self.acts[first * self.act_bytes..][..self.act_bytes],
                self.n,
            )
            .scales
            .add(pending.block);
            M::settle(
                pending.isums.add(part).cast(),
                pending.scales[half],
                dy,
                self.act_bytes / 4,
                self.tokens.rows,
                sums.add(16 * half),
            );
        }
    }

    /// One step: a pair of tiles of tokens, or one, with one block.
    #[inline(always)]
    #[allow(clippy::too_many_arguments, reason = "what a step is made of")]
    unsafe fn step<M: Machine, C: Codes, const PAIR: bool>(
        &self,
        m: &mut M,
        codes: &C,
        tile: usize,
        block: usize,
        weights: *const [u8; HALF],
        isums: *mut [i32; 256],
        pending: Option<&Pending<M::Scales>>,
        next: Option<(*const u8, *mut [u8; HALF])>,
    ) {
        let q = |tile: usize| {
            let first = self.tokens.start(tile) * self.act_bytes;
            self.acts[first..].as_ptr().wrapping_add(256 * block)
        };
        let q = [q(tile), if PAIR { q(tile + 1) } else { q(tile) }];
        // SAFETY: the block has its codes and activations, the buffers their sizes.
        unsafe {
            clear::<M, PAIR>(m);
            for step in 0..STEPS {
                let q = q.map(|q| q.add(STEP * step));
                let weights =
                    [weights, weights.add(1)].map(|half| half.cast::<u8>().add(tiles::TILE * step));
                columns::<M, true, PAIR>(m, q, self.act_bytes, weights);
                if let Some(pending) = pending {
                    self.settle::<M>(pending, step);
                }
                if let Some((block, to)) = next {
                    unpack_part(codes, block, to, step);
                }
            }
            put_down::<M, PAIR>(m, isums);
        }
    }
}

/// The part of a block that is unpacked in a step: a unit of half of the rows, or nothing in every other step where the
/// block is one unit.
#[inline(always)]
unsafe fn unpack_part<C: Codes>(codes: &C, block: *const u8, to: *mut [u8; HALF], part: usize) {
    let (half, unit) = (part / 2, part % 2);
    if unit < COLUMNS / C::UNIT {
        // SAFETY: the block has its units, each half of the result 64 lines.
        unsafe {
            let from = block.add(SCALES + unit * C::BYTES);
            let to = to.add(half).cast::<u8>().add(16 * C::UNIT * unit);
            codes.unpack::<true>(from, half, to);
        }
    }
}

#[inline(always)]
unsafe fn blocks<M: Machine, C: Codes>(
    codes: C,
    group: &[u8],
    acts: &[u8],
    n: usize,
    tokens: usize,
    ahead: usize,
    out: &mut [f32],
) {
    let tokens = Tokens::new(tokens);
    let mut scratch = std::mem::MaybeUninit::<Scratch>::uninit();
    let mut last = [0f32; tiles::ROWS * ROWS];
    out.fill(0.0);
    let product = Blocks {
        acts,
        act_bytes: t2::act_bytes_q8_k(n),
        n,
        tokens,
        out: out.as_mut_ptr(),
        last: last.as_mut_ptr(),
    };
    let block_bytes = C::BLOCK;
    let count = group.len() / block_bytes;
    let mut pending: Option<Pending<M::Scales>> = None;
    // SAFETY: the caller has the tiles and says that all lengths fit; scratch memory is written before it is read.
    unsafe {
        let (weights, isums) = {
            let scratch = scratch.as_mut_ptr();
            (
                (&raw mut (*scratch).weights).cast::<[[u8; HALF]; 2]>(),
                (&raw mut (*scratch).isums).cast::<[[i32; 256]; 4]>(),
            )
        };
        let mut m = M::with_rows(tokens.shapes());
        for part in 0..STEPS.min(4 * count) {
            unpack_part(&codes, group.as_ptr(), weights.cast(), part);
        }
        let mut turn = 0;
        for b in 0..count {
            let block = group.as_ptr().add(b * block_bytes);
            prefetch(block, block_bytes, ahead);
            let scales = [M::scales(block), M::scales(block.add(SCALES / 2))];
            let here = weights.add(b % 2).cast::<[u8; HALF]>();
            let mut next =
                (b + 1 < count).then(|| (block.add(block_bytes), weights.add((b + 1) % 2).cast()));
            for tile in (0..tokens.tiles).step_by(2) {
                let pair = tile + 1 < tokens.tiles;
                let isums = isums.add(turn % 2).cast::<[i32; 256]>();
                let (before, after) = (pending.as_ref(), next.take());
                if pair {
                    product.step::<M, C, true>(&mut m, &codes, tile, b, here, isums, before, after);
                } else {
                    product
                        .step::<M, C, false>(&mut m, &codes, tile, b, here, isums, before, after);
                }
                pending = Some(Pending {
                    isums,
                    scales,
                    tile,
                    pair,
                    block: b,
                });
                turn += 1;
            }
        }
        for part in 0..4 {
            if let Some(pending) = &pending {
                product.settle::<M>(pending, part);
            }
        }
    }
    let first = tokens.start(tokens.tiles - 1);
    if first != (tokens.tiles - 1) * tiles::ROWS {
        out[first * ROWS..].copy_from_slice(&last);
    }
}

#[inline(always)]
unsafe fn rows<M: Machine, C: Codes>(
    codes: C,
    group: &[u8],
    acts: &[u8],
    n: usize,
    tokens: usize,
    ahead: usize,
    out: &mut [f32],
) {
    let tokens = Tokens::new(tokens);
    let stride = acts.len() / tokens.count;
    let mut weights = AlignedBytes::scratch(ROWS * n);
    let mut isums = std::mem::MaybeUninit::<Scratch>::uninit();
    // SAFETY: the caller has the tiles and says that all lengths fit; scratch memory is written before it is read.
    unsafe {
        let isums = (&raw mut (*isums.as_mut_ptr()).isums).cast::<[i32; 256]>();
        let halves = [weights.as_mut_ptr(), weights.as_mut_ptr().add(16 * n)];
        for unit in 0..n / C::UNIT {
            let from = group.as_ptr().add(unit * C::BYTES);
            prefetch(from, C::BYTES, ahead);
            for (half, to) in halves.into_iter().enumerate() {
                codes.unpack::<false>(from, half, to.add(16 * C::UNIT * unit));
            }
        }
        let halves = halves.map(|half| half.cast_const());
        let mut m = M::with_rows(tokens.shapes());
        for tile in (0..tokens.tiles).step_by(2) {
            let pair = tile + 1 < tokens.tiles;
            let act = |tile: usize| acts[tokens.start(tile) * stride..].as_ptr();
            let heads = [act(tile), act(tile + usize::from(pair))];
            let at = |step: usize| {
                (
                    heads.map(|head| head.add(64 + STEP * step)),
                    halves.map(|half| half.add(tiles::TILE * step)),
                )
            };
            if pair {
                clear::<M, true>(&mut m);
                for step in 0..n / STEP {
                    let (q, weights) = at(step);
                    columns::<M, false, true>(&mut m, q, stride, weights);
                }
                put_down::<M, true>(&m, isums);
            } else {
                clear::<M, false>(&mut m);
                for step in 0..n / STEP {
                    let (q, weights) = at(step);
                    columns::<M, false, false>(&mut m, q, stride, weights);
                }
                put_down::<M, false>(&m, isums);
            }
            for part in 0..if pair { 4 } else { 2 } {
                let first = tokens.start(tile + part / 2);
                for t in 0..tokens.rows {
                    let to = out.as_mut_ptr().add((first + t) * ROWS + 16 * (part % 2));
                    let isums = isums.add(part).cast::<i32>().add(16 * t);
                    M::finish(isums, heads[part / 2].add(t * stride), to);
                }
            }
        }
    }
}

/// The same with tiles in memory and vectors in portable Rust, on any processor.
#[cfg(test)]
pub(super) mod software {
    use super::*;

    pub static TQ2_0: Layout = t2::with_scales(t2::pack_tq2_0, multiply, TILE);
    pub static TQ1_0: Layout = t2::with_scales(t2::pack_tq1_0, multiply, TILE);
    pub static I2_S: Layout = t2::i2_s(multiply_whole, TILE);
    pub static TL: Layout = t2::tl(multiply_whole, TILE);

    /// [`TwoBits`] in portable Rust.
    struct Portable<const REVERSED: bool>;

    impl<const REVERSED: bool> Codes for Portable<REVERSED> {
        const UNIT: usize = UNIT;
        const BYTES: usize = t2::UNIT_BYTES;

        unsafe fn unpack<const LOWER: bool>(&self, unit: *const u8, half: usize, to: *mut u8) {
            for c in 0..8 {
                // SAFETY: eight chunks of two halves.
                let codes = unsafe { unit.add(128 * c + 64 * half).cast::<[u8; 64]>().read() };
                for s in 0..4 {
                    let line = 8 * if REVERSED { 3 - s } else { s } + c;
                    let weights =
                        codes.map(|code| (code >> (2 * s) & 3).wrapping_sub(u8::from(LOWER)));
                    // SAFETY: 32 lines.
                    unsafe { to.add(64 * line).cast::<[u8; 64]>().write(weights) };
                }
            }
        }
    }

    fn multiply(group: &[u8], acts: &[u8], n: usize, tokens: usize, _: usize, out: &mut [f32]) {
        check(&TQ2_0, group, acts, n, tokens, out);
        // SAFETY: `check` has compared all lengths.
        unsafe { blocks::<Software, _>(Portable::<false>, group, acts, n, tokens, 0, out) }
    }

    fn multiply_whole(
        group: &[u8],
        acts: &[u8],
        n: usize,
        tokens: usize,
        _: usize,
        out: &mut [f32],
    ) {
        check(&TL, group, acts, n, tokens, out);
        // SAFETY: `check` has compared all lengths.
        unsafe {
            rows::<Software, _>(
                Portable::<true>,
                group,
                acts,
                n.next_multiple_of(UNIT),
                tokens,
                0,
                out,
            )
        }
    }
}
