//! 2-bit ternary codes by `SMMLA`: two rows times two tokens, eight columns at a time.
//!
//! Chunks c and c + 1 of four rows, dword by dword in turns, are two registers of two rows with eight columns each. Of
//! two tokens the same columns are put side by side, 256 columns of all tokens of a tile at a time, which stay in the
//! first-level cache. Four rows meet up to 16 tokens: 16 registers of sums. Planes go one after another into them, as
//! in [`super::t2`], which is taken where tokens are too few for half of a register to stay unused.

#![allow(clippy::needless_range_loop, reason = "registers are indexed by row and token alike")]

use std::arch::aarch64::*;

use super::super::dot::{halves, load, two_by_two};
use super::t2::{CHUNK, TILE, dotprod, place, plane, row_step};
use super::{FOUR, store};
use crate::proof::{I8mm, Proof};
use crate::shared::packed::t2::{Act, BLOCK, ROWS, SCALES, UNIT, UNIT_BYTES, act_bytes_int8, act_bytes_q8_k, layouts};
use crate::shared::packed::{Call, Layout};

/// Tokens of a tile.
const TOKENS: usize = 16;
/// Tokens from which on tiles are used.
const FEW: usize = 4;
/// Columns whose activations are put side by side at a time.
const COLUMNS: usize = 2 * UNIT;
/// Registers of four rows in a group.
const FOURS: usize = ROWS / FOUR;

pub(super) static LAYOUTS: &[Layout] = &layouts(I8mm::NEEDS, multiply_blocks, multiply_rows, TILE);

/// Activations of [`COLUMNS`] columns: eight of the first token of a pair, the same eight of the second.
struct Pairs<const P: usize>([[[i8; 16]; P]; COLUMNS / 8]);

impl<const P: usize> Pairs<P> {
    const EMPTY: Pairs<P> = Pairs([[[0; 16]; P]; COLUMNS / 8]);

    /// Pairs of `columns` columns, a multiple of 16, of the tokens at `q`.
    ///
    /// # Safety
    /// The columns of all tokens are readable.
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn fill(&mut self, q: &[[*const u8; 2]; P], columns: usize) {
        for (i, to) in self.0[..columns / 8].as_chunks_mut::<2>().0.iter_mut().enumerate() {
            for p in 0..P {
                // SAFETY: 16 columns of each token, and room for 16 bytes twice.
                unsafe {
                    let [a, b] = q[p].map(|q| vreinterpretq_s64_s8(load(q.add(16 * i))));
                    vst1q_s8(to[0][p].as_mut_ptr(), vreinterpretq_s8_s64(vzip1q_s64(a, b)));
                    vst1q_s8(to[1][p].as_mut_ptr(), vreinterpretq_s8_s64(vzip2q_s64(a, b)));
                }
            }
        }
    }
}

/// Integer sums of rows 0 and 1, and 2 and 3, with each pair of tokens.
type Sums<const P: usize> = [[int32x4_t; P]; 2];

/// Adds plane `S` of some units, four rows whose first code bytes are at `w`.
///
/// # Safety
/// The units are readable; there are no more of them than `y` has activations for.
#[inline]
#[target_feature(enable = "neon,i8mm")]
unsafe fn add_plane<const REVERSED: bool, const S: usize, const P: usize>(
    w: *const u8,
    y: &Pairs<P>,
    units: usize,
    sums: &mut Sums<P>,
) {
    for i in 0..4 * units {
        // SAFETY: two of the eight chunks of unit i / 4.
        let (a, b) = unsafe { (load(w.add(2 * CHUNK * i)), load(w.add(2 * CHUNK * i + CHUNK))) };
        let (a, b) = (vreinterpretq_s32_s8(plane::<S>(a)), vreinterpretq_s32_s8(plane::<S>(b)));
        let rows = [vzip1q_s32(a, b), vzip2q_s32(a, b)].map(|v| vreinterpretq_s8_s32(v));
        let line = &y.0[UNIT / 8 * (i / 4) + place::<REVERSED>(S) / 8 + i % 4];
        for p in 0..P {
            // SAFETY: 16 bytes.
            let y = unsafe { vld1q_s8(line[p].as_ptr()) };
            for h in 0..2 {
                sums[h][p] = two_by_two(sums[h][p], rows[h], y);
            }
        }
    }
}

/// The sums of some units, plane after plane.
///
/// # Safety
/// As for [`add_plane`].
#[inline]
#[target_feature(enable = "neon,i8mm")]
unsafe fn units<const REVERSED: bool, const P: usize>(w: *const u8, y: &Pairs<P>, units: usize) -> Sums<P> {
    let mut sums = [[vdupq_n_s32(0); P]; 2];
    let quarter = |sums: &mut Sums<P>| {
        for sum in sums.as_flattened_mut() {
            *sum = vshrq_n_s32::<2>(*sum);
        }
    };
    // SAFETY: the caller's promise.
    unsafe {
        add_plane::<REVERSED, 2, P>(w, y, units, &mut sums);
        quarter(&mut sums);
        add_plane::<REVERSED, 1, P>(w, y, units, &mut sums);
        quarter(&mut sums);
        add_plane::<REVERSED, 0, P>(w, y, units, &mut sums);
        add_plane::<REVERSED, 3, P>(w, y, units, &mut sums);
    }
    sums
}

/// The tokens of pair p, the last twice if it has no partner.
fn pair<const P: usize>(tokens: usize) -> [[usize; 2]; P] {
    std::array::from_fn(|p| [2 * p, 2 * p + 1].map(|t| t.min(tokens - 1)))
}

/// Products of the tokens that `out` has room for, `P` pairs at most, with blocks that have scales.
///
/// # Safety
/// The processor has the features; `check` has compared the lengths.
#[target_feature(enable = "neon,i8mm")]
unsafe fn blocks<const P: usize>(group: &[u8], acts: &[u8], n: usize, out: &mut [f32]) {
    let tokens = out.len() / ROWS;
    let stride = act_bytes_q8_k(n);
    let pairs = pair::<P>(tokens).map(|two| two.map(|t| Act::new(&acts[t * stride..][..stride], n)));
    let mut y = Pairs::EMPTY;
    let mut sums = [[[vdupq_n_f32(0.0); P]; 2]; FOURS];
    for (b, block) in group.chunks_exact(BLOCK).enumerate() {
        let block = block.as_ptr();
        // SAFETY: block b of the group and of the activations are there, as the caller has checked.
        unsafe {
            y.fill(&pairs.map(|two| two.map(|act| act.q.add(COLUMNS * b))), COLUMNS);
            let mut dy = [vdupq_n_f32(0.0); P];
            let mut start = [vdupq_n_s32(0); P];
            for p in 0..P {
                let scales = pairs[p].map(|act| act.scales.add(b).read_unaligned());
                let starts = pairs[p].map(|act| act.sums.add(b).read_unaligned());
                dy[p] = vreinterpretq_f32_u64(vdupq_n_u64(two_words(scales.map(f32::to_bits))));
                start[p] = vreinterpretq_s32_u64(vdupq_n_u64(two_words(starts.map(i32::cast_unsigned))));
            }
            for (r, sums) in sums.iter_mut().enumerate() {
                let isum = units::<false, P>(block.add(SCALES + 4 * FOUR * r), &y, 2);
                let dw = halves(block.add(2 * FOUR * r));
                let dw = [vzip1q_f32(dw, dw), vzip2q_f32(dw, dw)];
                for h in 0..2 {
                    for p in 0..P {
                        let isum = vcvtq_f32_s32(vsubq_s32(isum[h][p], start[p]));
                        let term = vmulq_f32(isum, vmulq_f32(dy[p], dw[h]));
                        sums[h][p] = vaddq_f32(sums[h][p], term);
                    }
                }
            }
        }
    }
    for (r, sums) in sums.iter().enumerate() {
        for p in 0..P {
            let [first, second] = [vuzp1q_f32(sums[0][p], sums[1][p]), vuzp2q_f32(sums[0][p], sums[1][p])];
            for (t, sum) in [(2 * p, first), (2 * p + 1, second)] {
                if t < tokens {
                    store(&mut out[ROWS * t + FOUR * r..], sum);
                }
            }
        }
    }
}

/// Two words of 32 bits, the first in the lower half.
fn two_words([a, b]: [u32; 2]) -> u64 {
    u64::from(a) | u64::from(b) << 32
}

/// Products of the tokens that `out` has room for, `P` pairs at most, with rows without block scales.
///
/// # Safety
/// The processor has the features; `check` has compared the lengths.
#[target_feature(enable = "neon,i8mm")]
unsafe fn rows<const P: usize>(group: &[u8], acts: &[u8], stride: usize, out: &mut [f32]) {
    let tokens = out.len() / ROWS;
    let pairs = pair::<P>(tokens);
    let mut y = Pairs::EMPTY;
    let mut total = [[[vdupq_n_s32(0); P]; 2]; FOURS];
    for (i, part) in group.chunks(2 * UNIT_BYTES).enumerate() {
        let count = part.len() / UNIT_BYTES;
        // SAFETY: the units of the part and their activations are there, as the caller has checked.
        unsafe {
            let q = acts.as_ptr().add(64 + COLUMNS * i);
            y.fill(&pairs.map(|two| two.map(|t| q.add(stride * t))), UNIT * count);
            for (r, total) in total.iter_mut().enumerate() {
                let sums = units::<true, P>(part.as_ptr().add(4 * FOUR * r), &y, count);
                for (total, sum) in total.as_flattened_mut().iter_mut().zip(sums.as_flattened()) {
                    *total = vaddq_s32(*total, *sum);
                }
            }
        }
    }
    for (r, total) in total.iter().enumerate() {
        for p in 0..P {
            let [first, second] = [vuzp1q_s32(total[0][p], total[1][p]), vuzp2q_s32(total[0][p], total[1][p])];
            for (t, d) in [(2 * p, first), (2 * p + 1, second)] {
                if t < tokens {
                    store(&mut out[ROWS * t + FOUR * r..], row_step(d, &acts[stride * t..]));
                }
            }
        }
    }
}

/// Calls `$tile` with as many pairs as `$tokens` tokens need.
macro_rules! tiles {
    ($tokens:expr, $tile:ident($($arg:expr),*)) => {
        match $tokens {
            0..=4 => $tile::<2>($($arg),*),
            5..=6 => $tile::<3>($($arg),*),
            7..=8 => $tile::<4>($($arg),*),
            9..=12 => $tile::<6>($($arg),*),
            _ => $tile::<8>($($arg),*),
        }
    };
}

fn multiply_blocks(call: Call<'_>) {
    let Call { isa, group, acts, n, ahead, out, .. } = call.check(&LAYOUTS[0]);
    let stride = act_bytes_q8_k(n);
    for (acts, out) in acts.chunks(TOKENS * stride).zip(out.chunks_mut(TOKENS * ROWS)) {
        let tokens = out.len() / ROWS;
        if tokens < FEW {
            dotprod::multiply_blocks(Call { isa, group, acts, n, tokens, ahead, out });
        } else {
            // SAFETY: `check` has seen the proof of these instructions and compared all lengths.
            unsafe { tiles!(tokens, blocks(group, acts, n, out)) }
        }
    }
}

fn multiply_rows(call: Call<'_>) {
    let Call { isa, group, acts, n, ahead, out, .. } = call.check(&LAYOUTS[3]);
    let stride = act_bytes_int8(n);
    for (acts, out) in acts.chunks(TOKENS * stride).zip(out.chunks_mut(TOKENS * ROWS)) {
        let tokens = out.len() / ROWS;
        if tokens < FEW {
            dotprod::multiply_rows(Call { isa, group, acts, n, tokens, ahead, out });
        } else {
            // SAFETY: `check` has seen the proof of these instructions and compared all lengths.
            unsafe { tiles!(tokens, rows(group, acts, stride, out)) }
        }
    }
}
