//! The loops of [`crate::shared::halves`], once for all instruction sets.

// Indices, so that every loop unrolls and its arrays become registers.
#![allow(clippy::needless_range_loop)]

use std::ops::Range;

#[cfg(target_arch = "aarch64")]
use super::native::Neon;
#[cfg(target_arch = "x86_64")]
use super::native::{Avx2, Avx512};
#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
use super::wasm32::Simd128;
use crate::AlignedBytes;
use crate::arch::doubles::{Doubles, Scalar};
use crate::shared::halves::{BLOCK, LANES, LINE, Line, STEPS};
use crate::{Isa, Level};

/// Prefetch distance in lines where there is more than one row, and in the tiles of a cache, which are too short for
/// the processor to prefetch by itself. How far it does in the long rows of weights depends on the processor.
pub const AHEAD: usize = 32;
const _: () = assert!(BLOCK <= STEPS, "a field for every line that is prefetched");
/// Words of steps that stay in the first-level cache until all passes over them are done: 4 KB.
const CHUNK: usize = 16;

/// Words of some tiles.
#[derive(Clone, Copy)]
pub struct Words {
    pub first: *const Line,
    /// Lines from one word of steps to the next.
    pub stride: usize,
    /// Words of steps in a tile.
    pub quads: usize,
    /// Lines from one tile to the next.
    pub tile: usize,
    /// Prefetch distance, lines.
    ahead: usize,
}

impl Words {
    /// The same from a line of the block on.
    pub fn line_on(self, line: usize) -> Words {
        Words { first: self.first.wrapping_add(line), ..self }
    }

    /// The first line of word `from`, and how many of the words up to `to` are in the same tile.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub fn in_tile(self, from: usize, to: usize) -> (*const Line, usize) {
        let tile = from / self.quads;
        let quad = from - tile * self.quads;
        let first = tile * self.tile + quad * self.stride;
        (self.first.wrapping_add(first), (self.quads - quad).min(to - from))
    }
}

/// Adds the words `from..to` of steps to `L` lines by `R` rows of sums; `PREFETCH` prefetches lines.
///
/// All rows run over a line that was widened once; the order of the loops keeps the sums, one field of
/// `L` lines and nothing else in registers.
///
/// Lines are prefetched one at a time, each behind the work on a field, at an address that needs no arithmetic: on
/// Sapphire Rapids four requests in a row bring two thirds of what four apart do, and so do four whose addresses are
/// ready at the same moment.
///
/// # Safety
/// The processor has the instruction set; the words of `L` lines, and `R` rows of coefficients of their steps,
/// `coef_stride` apart, are readable.
#[inline(always)]
unsafe fn add_block<S: Doubles, const L: usize, const R: usize, const BRAIN: bool, const PREFETCH: bool>(
    acc: &mut [[S::Sums; L]; R],
    words: Words,
    (mut from, to): (usize, usize),
    coefs: *const f64,
    coef_stride: usize,
) {
    while from < to {
        let tile = from / words.quads;
        let end = to.min((tile + 1) * words.quads);
        // SAFETY: these words of `L` lines and `R` rows of their coefficients are there, as the caller checked.
        unsafe {
            let quad = from - tile * words.quads;
            let mut lines = words.first.add(tile * words.tile + quad * words.stride);
            let mut coming = lines.wrapping_add(words.ahead);
            if R == 1
                && words.stride == BLOCK
                && let Some(acc) = acc[0].first_chunk_mut::<BLOCK>()
            {
                let ahead = words.ahead * size_of::<Line>();
                let coefs = coefs.add(STEPS * from);
                if S::add_row::<BRAIN>(acc, lines, end - from, coefs, ahead) {
                    from = end;
                    continue;
                }
            }
            for quad in from..end {
                let mut x = [S::no_words(); L];
                for l in 0..L {
                    x[l] = S::words(lines.add(l));
                }
                macro_rules! step {
                    ($k:literal) => {
                        let mut w = [S::zero(); L];
                        for l in 0..L {
                            w[l] = S::field::<$k, BRAIN>(x[l]);
                        }
                        for r in 0..R {
                            let c = coefs.add(r * coef_stride + STEPS * quad + $k);
                            for l in 0..L {
                                acc[r][l] = S::add(acc[r][l], w[l], c);
                            }
                        }
                        if PREFETCH && $k < L {
                            S::prefetch(coming.wrapping_add($k));
                        }
                    };
                }
                step!(0);
                step!(1);
                step!(2);
                step!(3);
                lines = lines.wrapping_add(words.stride);
                coming = coming.wrapping_add(words.stride);
            }
        }
        from = end;
    }
}

/// Begin and end of sums: the values that they start from, and the memory that they go to.
pub trait Target: Copy {
    /// True if sums can be put down and taken up again in between.
    #[cfg(target_arch = "x86_64")]
    const KEEPS: bool;
    /// # Safety
    /// Eight lanes from `lane` of row `row` are inside the target, and the processor has the instruction set.
    unsafe fn load<S: Doubles>(self, row: usize, lane: usize) -> S::Sums;
    /// # Safety
    /// As for `load`.
    unsafe fn store<S: Doubles>(self, row: usize, lane: usize, sums: S::Sums);
}

/// From zero, rounded once at the end.
#[derive(Clone, Copy)]
pub struct Rounded {
    pub out: *mut f32,
    pub stride: usize,
}

impl Target for Rounded {
    #[cfg(target_arch = "x86_64")]
    const KEEPS: bool = false;

    #[inline(always)]
    unsafe fn load<S: Doubles>(self, _: usize, _: usize) -> S::Sums {
        // SAFETY: `load` asks for the instruction set.
        unsafe { S::zero() }
    }
    #[inline(always)]
    unsafe fn store<S: Doubles>(self, row: usize, lane: usize, sums: S::Sums) {
        // SAFETY: the caller says that eight lanes from here on are inside the target.
        unsafe { S::store_f32(self.out.add(row * self.stride + lane), sums) }
    }
}

/// From where they stand, and back.
#[derive(Clone, Copy)]
pub struct InPlace {
    pub acc: *mut f64,
    pub stride: usize,
}

impl Target for InPlace {
    #[cfg(target_arch = "x86_64")]
    const KEEPS: bool = true;

    #[inline(always)]
    unsafe fn load<S: Doubles>(self, row: usize, lane: usize) -> S::Sums {
        // SAFETY: the caller says that eight lanes from here on are inside the target.
        unsafe { S::load(self.acc.add(row * self.stride + lane)) }
    }
    #[inline(always)]
    unsafe fn store<S: Doubles>(self, row: usize, lane: usize, sums: S::Sums) {
        // SAFETY: the caller says that eight lanes from here on are inside the target.
        unsafe { S::store(self.acc.add(row * self.stride + lane), sums) }
    }
}

/// Words of half floats, or of bfloats, times coefficients.
pub struct Call<'a, T, const BRAIN: bool> {
    /// Tiles of `quads` words of steps by `lines` lines.
    pub words: *const Line,
    pub lines: usize,
    pub quads: usize,
    /// Lines wanted, from a block's start on; the first is lane 0 of the target.
    pub line: usize,
    pub line_end: usize,
    /// Words of steps to add, counted from the first tile.
    pub from: usize,
    pub to: usize,
    /// Words of steps after which the sums are put down and other lines have their turn.
    pub at_once: usize,
    pub coefs: *const f64,
    pub coef_stride: usize,
    pub rows: usize,
    /// Words of steps that each row sees, where these are not all; neither end falls from one row to the next.
    pub seen: Option<&'a dyn Fn(usize) -> Range<usize>>,
    /// Prefetch distance where there is one row, lines; 0: no prefetch.
    pub ahead: usize,
    pub target: T,
}

impl<const BRAIN: bool> Call<'_, Rounded, BRAIN> {
    /// As [`Call::run`]; where words come from memory and a block of lines takes four passes, a chunk of words after
    /// the other, so that memory is read in sequence. Sums are stored as `f64` in between, which is exact.
    ///
    /// # Safety
    /// Words, coefficients and target are as large as the numbers say.
    pub unsafe fn run_in_chunks(self, isa: Isa) {
        let passes = isa.vectors() == Level::Avx2 && self.rows > 2;
        if !passes || self.ahead <= AHEAD {
            // SAFETY: as the caller says.
            return unsafe { self.run(isa) };
        }
        let mut sums = AlignedBytes::new(self.rows * LANES * 8);
        let target = InPlace { acc: sums.as_mut_ptr().cast(), stride: LANES };
        let in_place = Call::<_, BRAIN> {
            words: self.words,
            lines: self.lines,
            quads: self.quads,
            line: self.line,
            line_end: self.line_end,
            from: self.from,
            to: self.to,
            at_once: CHUNK,
            coefs: self.coefs,
            coef_stride: self.coef_stride,
            rows: self.rows,
            ahead: self.ahead,
            seen: None,
            target,
        };
        // SAFETY: the same numbers, and sums for all rows.
        unsafe { in_place.run(isa) };
        for (r, sums) in sums.chunks_exact(LANES * 8).enumerate() {
            for (lane, sum) in sums.as_chunks::<8>().0.iter().enumerate() {
                // SAFETY: the caller has a row of outputs there.
                unsafe { *self.target.out.add(r * self.target.stride + lane) = f64::from_le_bytes(*sum) as f32 };
            }
        }
    }
}

impl<T: Target, const BRAIN: bool> Call<'_, T, BRAIN> {
    /// # Safety
    /// Words, coefficients and target are as large as the numbers say.
    pub unsafe fn run(self, isa: Isa) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the caller says that the numbers fit the pointers.
        if unsafe { self.in_strips(isa) } {
            return;
        }
        // SAFETY: `isa` proves that the processor has the instruction set, and the caller says that the numbers fit the
        // pointers.
        unsafe {
            match isa.vectors() {
                #[cfg(target_arch = "x86_64")]
                Level::Avx2 => self.avx2(),
                #[cfg(target_arch = "x86_64")]
                Level::Avx512 => self.avx512(),
                #[cfg(target_arch = "aarch64")]
                Level::Neon | Level::Dotprod | Level::I8mm => self.neon(),
                #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
                Level::Simd128 => self.all::<Simd128>(),
                // The portable one, and those of other architectures, which are never found here.
                _ => self.all::<Scalar>(),
            }
        }
    }

    /// # Safety
    /// The processor has these features; words, coefficients and target are as large as the numbers say.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma")]
    unsafe fn avx2(&self) {
        // SAFETY: this function has the features, and its caller says that the numbers fit the pointers.
        unsafe { self.all::<Avx2>() }
    }

    /// # Safety
    /// The processor has these features; words, coefficients and target are as large as the numbers say.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512dq")]
    unsafe fn avx512(&self) {
        // SAFETY: this function has the features, and its caller says that the numbers fit the pointers.
        unsafe { self.all::<Avx512>() }
    }

    /// # Safety
    /// The processor has these features; words, coefficients and target are as large as the numbers say.
    #[cfg(target_arch = "aarch64")]
    #[target_feature(enable = "neon")]
    unsafe fn neon(&self) {
        // SAFETY: this function has the features, and its caller says that the numbers fit the pointers.
        unsafe { self.all::<Neon>() }
    }

    /// All rows, in even turns of as many as the registers hold.
    ///
    /// # Safety
    /// The processor has the instruction set; words, coefficients and target are as large as the numbers say.
    #[inline(always)]
    unsafe fn all<S: Doubles>(&self) {
        let turns = self.rows.div_ceil(S::ROWS);
        let mut row = 0;
        for turn in 0..turns {
            let rows = (self.rows - row).div_ceil(turns - turn);
            // SAFETY: the rows of a turn are among those of the call, whose numbers fit the pointers.
            unsafe {
                match rows {
                    1 => self.turn::<S, 1>(row),
                    2 => self.turn::<S, 2>(row),
                    3 => self.turn::<S, 3>(row),
                    4 => self.turn::<S, 4>(row),
                    _ => self.turn::<S, 5>(row),
                }
            }
            row += rows;
        }
    }

    /// Words of steps that some of these rows see.
    pub fn seen_by(&self, row: usize, rows: usize) -> Range<usize> {
        match self.seen {
            Some(seen) => {
                let (first, last) = (seen(row), seen(row + rows - 1));
                first.start.max(self.from)..last.end.min(self.to)
            }
            None => self.from..self.to,
        }
    }

    /// The block that begins with a line.
    #[inline(always)]
    pub fn block_of_words(&self, line: usize) -> Words {
        Words {
            first: self.words.wrapping_add(line * self.quads),
            stride: BLOCK.min(self.lines - line),
            quads: self.quads,
            tile: self.quads * self.lines,
            ahead: self.ahead,
        }
    }

    /// # Safety
    /// As [`Call::all`]; rows `row .. row + R` are among those of the call.
    #[inline(always)]
    unsafe fn turn<S: Doubles, const R: usize>(&self, row: usize) {
        let seen = self.seen_by(row, R);
        for from in seen.clone().step_by(self.at_once) {
            let quads = (from, seen.end.min(from + self.at_once));
            for block in (self.line..self.line_end).step_by(BLOCK) {
                let words = Words {
                    ahead: if R > 1 { self.ahead.max(AHEAD) } else { self.ahead },
                    ..self.block_of_words(block)
                };
                let mut line = 0;
                while line < words.stride {
                    let lines = S::lines(R).min(words.stride - line);
                    let at = (row, block - self.line + line);
                    // SAFETY: the lines are within the block, the block within its tile, and the rows among those of
                    // the call.
                    unsafe {
                        let words = words.line_on(line);
                        match lines {
                            1 => self.block::<S, 1, R>(words, quads, at),
                            2 => self.block::<S, 2, R>(words, quads, at),
                            3 => self.block::<S, 3, R>(words, quads, at),
                            _ => self.block::<S, 4, R>(words, quads, at),
                        }
                    }
                    line += lines;
                }
            }
        }
    }

    /// # Safety
    /// As [`Call::turn`]; the words are those of `L` lines of a block, of which the first is line `line` of the target.
    #[inline(always)]
    unsafe fn block<S: Doubles, const L: usize, const R: usize>(
        &self,
        words: Words,
        quads: (usize, usize),
        (row, line): (usize, usize),
    ) {
        // SAFETY: the block lies within the words, the coefficients and the target.
        unsafe {
            let mut acc = [[S::zero(); L]; R];
            for r in 0..R {
                for l in 0..L {
                    acc[r][l] = self.target.load::<S>(row + r, LINE * (line + l));
                }
            }
            let coefs = self.coefs.add(row * self.coef_stride);
            let stride = self.coef_stride;
            match words.ahead {
                0 => add_block::<S, L, R, BRAIN, false>(&mut acc, words, quads, coefs, stride),
                _ => add_block::<S, L, R, BRAIN, true>(&mut acc, words, quads, coefs, stride),
            }
            for r in 0..R {
                for l in 0..L {
                    self.target.store::<S>(row + r, LINE * (line + l), acc[r][l]);
                }
            }
        }
    }
}
