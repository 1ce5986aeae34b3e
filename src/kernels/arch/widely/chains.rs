//! Sixteen tokens at once in single precision.
//!
//! A lane of the definition has two pairs of accumulators, of the real axis and of the imaginary one, and a weight
//! changes one of them. With a token in every lane of a vector the weight is the same for all, so nothing has to be
//! masked: what one pair adds is a chain of columns in their order, and the two chains of a lane share its columns,
//! half as many additions as masks ask for.
//!
//! A chain over a block of 32 chunks is a set of bits: bit `2c` says that it adds chunk `c`, bit `2c + 1` that it takes
//! it away. The lowest bit names the next step and is cleared; an empty set names step 64, which is zeros. Activations
//! stand beside what they are with the other sign, so that nothing but additions is left.
//!
//! Two chains are walked side by side, or additions would wait for one another. They are chosen to be equally long, and
//! walked from short to long, so that neither adds zeros nor the processor is wrong about where a walk ends.

use trine_formats::types::lanes::{Simd, Vector};
use trine_formats::widely::{CHUNK, Shape, combine};

use crate::shared::widely::batch::{Outputs, TOKENS, WeightRows};
use crate::shared::widely::{CodeLayout, Path, ROWS, lane_words};

/// Chunks of a block.
pub(crate) const BLOCK: usize = 32;
/// Floats of a step: real and imaginary parts of all tokens.
pub(crate) const STEP: usize = 2 * TOKENS;
/// Floats of a lane of a block: two steps for each chunk, plus and minus, and one of zeros.
const LANE: usize = (2 * BLOCK + 1) * STEP;
/// Rows times streams of a unit, at most.
const JOBS: usize = ROWS * 8;
/// The lower bit of every code of a word.
const LOWER: u64 = 0x5555_5555_5555_5555;

/// Sums of a chain, of real parts and of imaginary parts.
#[derive(Clone, Copy, Default)]
#[repr(align(64))]
pub(crate) struct Sums([[f32; TOKENS]; 2]);

/// Activations of a lane of a block.
pub(crate) type Lane = [f32; LANE];

/// `walk(x, chains, pairs, sums)`: adds the steps of each pair of chains to their sums; `x` is a lane of a block.
///
/// # Safety
/// The two numbers of a pair differ and are below the numbers of chains and of sums; the processor has what the function
/// is compiled for.
pub(crate) type Walk = unsafe fn(&Lane, &[u64], &[[u8; 2]], &mut [Sums]);

/// Working memory of a thread.
#[derive(Default)]
pub(crate) struct Memory {
    /// A unit of [`CodeLayout::Lanes`], where rows stand in another form.
    unit: Vec<u8>,
    /// `[lane][stream][row][axis]`.
    sums: Vec<Sums>,
}

fn blocks(shape: &Shape) -> usize {
    shape.chunks().div_ceil(BLOCK)
}

/// Floats of the arranged activations.
pub(crate) fn act_floats(shape: &Shape) -> usize {
    CHUNK * blocks(shape) * LANE
}

/// Arranges activations `[lane][block][chunk][sign][real, imaginary][token]`, each lane of a block followed by the
/// zeros.
pub(crate) fn arrange(shape: &Shape, acts: &[u8], out: &mut [f32]) {
    let row = Path::Exact.act_bytes(shape);
    let blocks = blocks(shape);
    let out = out.as_chunks_mut::<LANE>().0;
    for chunk in 0..blocks * BLOCK {
        // what is read side by side first, then what is written side by side
        let mut lanes = [[0.0; STEP]; CHUNK];
        if chunk < shape.chunks() {
            for (t, acts) in acts.chunks_exact(row).enumerate() {
                for (part, acts) in acts.chunks_exact(row / 2).enumerate() {
                    let x = acts.as_chunks::<4>().0[CHUNK * chunk..].iter();
                    for (lane, x) in lanes.iter_mut().zip(x) {
                        lane[TOKENS * part + t] = f32::from_le_bytes(*x);
                    }
                }
            }
        }
        for (lane, x) in lanes.iter().enumerate() {
            let out = &mut out[lane * blocks + chunk / BLOCK];
            let steps = &mut out.as_chunks_mut::<STEP>().0[2 * (chunk % BLOCK)..][..2];
            steps[0] = *x;
            steps[1] = x.map(|x| -x);
        }
    }
    for lane in out {
        lane[2 * BLOCK * STEP..].fill(0.0);
    }
}

/// The products, a unit of sixteen rows after the other. To be compiled for the instruction set of its caller.
///
/// # Safety
/// The processor has what `walk` is compiled for, and lengths fit.
#[inline(always)]
pub(crate) unsafe fn multiply<S: Simd>(
    s: S,
    walk: Walk,
    rows: &WeightRows<'_>,
    acts: &[f32],
    memory: &mut Memory,
    out: &mut [Outputs],
) {
    let shape = rows.shape;
    let source = match rows.form {
        CodeLayout::Lanes => rows.form.unit_bytes(shape),
        _ => ROWS * rows.form.unit_bytes(shape),
    };
    let units = rows.weights.chunks(source).zip(out.chunks_mut(ROWS));
    for (i, (weights, out)) in units.enumerate() {
        let unit = if rows.form == CodeLayout::Lanes {
            weights
        } else {
            memory.unit.resize(CodeLayout::Lanes.unit_bytes(shape), 0);
            rows.form.pack_lanes(shape, weights, &mut memory.unit);
            &memory.unit
        };
        // SAFETY: as the caller says.
        unsafe { unit_sums(walk, shape, unit, out.len(), acts, &mut memory.sums) };
        let first = rows.first + ROWS * i;
        finish(s, rows, first, &mut memory.sums, out);
    }
}

/// The sums of all chains of a unit, of which `rows` rows are there.
///
/// # Safety
/// The processor has what `walk` is compiled for.
#[inline(always)]
unsafe fn unit_sums(walk: Walk, shape: &Shape, unit: &[u8], rows: usize, acts: &[f32], sums: &mut Vec<Sums>) {
    let (streams, count, blocks) = (shape.streams(), lane_words(shape), blocks(shape));
    let jobs = streams * ROWS;
    sums.clear();
    sums.resize(CHUNK * 2 * jobs, Sums::default());
    let words = unit.as_chunks::<{ 4 * ROWS }>().0;
    let acts = acts.as_chunks::<LANE>().0;
    let mut chains = [0; 2 * JOBS];
    let mut pairs = [[0; 2]; JOBS];
    for lane in 0..CHUNK {
        let sums = &mut sums[lane * 2 * jobs..][..2 * jobs];
        for block in 0..blocks {
            let chunks = BLOCK.min(shape.chunks() - block * BLOCK);
            for stream in 0..streams {
                let at = (lane * streams + stream) * count + 2 * block;
                let low = &words[at];
                let high = (2 * block + 1 < count).then(|| &words[at + 1]);
                let chains = &mut chains[2 * stream * ROWS..][..2 * ROWS];
                split(chunks, low, high.unwrap_or(&[0; 4 * ROWS]), chains);
            }
            let pairs = pair(streams, rows, &chains, &mut pairs);
            // SAFETY: the numbers of pairs are those of chains, of which there are as many as sums.
            unsafe { walk(&acts[lane * blocks + block], &chains, pairs, sums) };
        }
    }
}

/// The chains `[row][axis]` of one stream of a block, of which `chunks` chunks are there.
#[inline(always)]
fn split(chunks: usize, low: &[u8; 4 * ROWS], high: &[u8; 4 * ROWS], chains: &mut [u64]) {
    let there = u64::MAX >> (2 * (BLOCK - chunks));
    let words = low.as_chunks().0.iter().zip(high.as_chunks().0);
    for ((low, high), chains) in words.zip(chains.as_chunks_mut::<2>().0) {
        let [low, high] = [low, high].map(|w| u64::from(u32::from_le_bytes(*w)));
        let codes = low | high << 32;
        let (positive, imaginary) = (codes & LOWER, codes >> 1 & LOWER);
        let steps = (positive | (!codes & LOWER) << 1) & there;
        let imaginary = imaginary | imaginary << 1;
        *chains = [steps & !imaginary, steps & imaginary];
    }
}

/// Pairs the chains of the first `rows` rows: jobs, a row of a stream each, by the length of their chains on the real
/// axis, then those on the imaginary axis likewise.
#[inline(always)]
fn pair<'a>(streams: usize, rows: usize, chains: &[u64; 2 * JOBS], pairs: &'a mut [[u8; 2]; JOBS]) -> &'a [[u8; 2]] {
    let length = |job: usize| chains[2 * job].count_ones() as usize;
    // where jobs of each length go
    let mut places = [0; BLOCK + 2];
    for stream in 0..streams {
        for job in stream * ROWS..stream * ROWS + rows {
            places[length(job) + 1] += 1;
        }
    }
    for n in 0..=BLOCK {
        places[n + 1] += places[n];
    }
    let mut sorted = [0; JOBS];
    for stream in 0..streams {
        for job in stream * ROWS..stream * ROWS + rows {
            let place = &mut places[length(job)];
            sorted[*place] = 2 * job as u8;
            *place += 1;
        }
    }
    let (twos, single) = sorted[..streams * rows].as_chunks::<2>();
    let on_imaginary = twos.iter().rev().map(|[a, b]| [a + 1, b + 1]);
    // one job that is left has its two chains side by side
    let single = single.iter().map(|&job| [job, job + 1]);
    let all = twos.iter().copied().chain(on_imaginary).chain(single);
    let mut count = 0;
    for (pair, chains) in pairs.iter_mut().zip(all) {
        *pair = chains;
        count += 1;
    }
    &pairs[..count]
}

/// A [`Walk`]. To be compiled for the instruction set of its caller.
///
/// # Safety
/// As [`Walk`] has it.
#[inline(always)]
pub(crate) unsafe fn walk<S: Simd>(s: S, x: &Lane, chains: &[u64], pairs: &[[u8; 2]], sums: &mut [Sums]) {
    for pair in pairs {
        let [a, b] = pair.map(usize::from);
        // SAFETY: the caller says that both are there and differ.
        let (mut set_a, mut set_b, to) = unsafe {
            let sets = (*chains.get_unchecked(a), *chains.get_unchecked(b));
            (sets.0, sets.1, sums.get_disjoint_unchecked_mut([a, b]))
        };
        let [to_a, to_b] = to;
        let mut y_a = to_a.0.each_ref().map(|v| s.load(v));
        let mut y_b = to_b.0.each_ref().map(|v| s.load(v));
        for _ in 0..set_a.count_ones().max(set_b.count_ones()) {
            set_a = step(s, x, set_a, &mut y_a);
            set_b = step(s, x, set_b, &mut y_b);
        }
        to_a.0 = y_a.map(|v| v.to_array());
        to_b.0 = y_b.map(|v| v.to_array());
    }
}

/// Numbers of the floats at which the steps of a chain begin, filled up with those of the zeros.
#[derive(Clone, Copy)]
#[repr(align(64))]
#[cfg(target_arch = "x86_64")]
pub(crate) struct Steps(pub [u16; BLOCK]);

/// A [`Walk`] where an instruction makes the list of a chain's steps of its set: `list(set)`. To be compiled for the
/// instruction set of its caller.
///
/// # Safety
/// As [`Walk`] has it, and `list` gives numbers of steps.
#[inline(always)]
#[cfg(target_arch = "x86_64")]
pub(crate) unsafe fn walk_lists<S: Simd>(
    s: S,
    list: impl Fn(u64) -> Steps,
    x: &Lane,
    chains: &[u64],
    pairs: &[[u8; 2]],
    sums: &mut [Sums],
) {
    for pair in pairs {
        let [a, b] = pair.map(usize::from);
        // SAFETY: the caller says that both are there and differ.
        let (set_a, set_b, to) = unsafe {
            let sets = (*chains.get_unchecked(a), *chains.get_unchecked(b));
            (sets.0, sets.1, sums.get_disjoint_unchecked_mut([a, b]))
        };
        let [to_a, to_b] = to;
        let lists = [list(set_a), list(set_b)];
        let mut y_a = to_a.0.each_ref().map(|v| s.load(v));
        let mut y_b = to_b.0.each_ref().map(|v| s.load(v));
        let longest = set_a.count_ones().max(set_b.count_ones()) as usize;
        // two at a time, so that more walks are of the same length
        let steps = lists[0].0.as_chunks::<2>().0.iter();
        let steps = steps.zip(lists[1].0.as_chunks::<2>().0);
        for (a, b) in steps.take(longest.div_ceil(2)) {
            for (&a, &b) in a.iter().zip(b) {
                // SAFETY: the caller says that these are numbers of steps.
                unsafe {
                    add(s, x, a.into(), &mut y_a);
                    add(s, x, b.into(), &mut y_b);
                }
            }
        }
        to_a.0 = y_a.map(|v| v.to_array());
        to_b.0 = y_b.map(|v| v.to_array());
    }
}

/// Adds the step whose floats begin at `at`.
///
/// # Safety
/// A step begins there.
#[inline(always)]
unsafe fn add<S: Simd>(s: S, x: &Lane, at: usize, y: &mut [S::F; 2]) {
    // SAFETY: as the caller says.
    let parts: &[[f32; TOKENS]; 2] = unsafe { &*x.as_ptr().add(at).cast() };
    *y = [y[0] + s.load(&parts[0]), y[1] + s.load(&parts[1])];
}

/// Adds the first step of a chain; what is left of the chain.
#[inline(always)]
fn step<S: Simd>(s: S, x: &Lane, set: u64, y: &mut [S::F; 2]) -> u64 {
    let at = STEP * set.trailing_zeros() as usize;
    // SAFETY: bits have numbers up to 63, an empty set has 64, and a lane has 65 steps.
    unsafe { add(s, x, at, y) };
    set & set.wrapping_sub(1)
}

/// The outputs of a unit from the sums of its chains: lanes are added in halves, and the scales follow.
#[inline(always)]
fn finish<S: Simd>(s: S, rows: &WeightRows<'_>, first: usize, sums: &mut [Sums], out: &mut [Outputs]) {
    let shape = rows.shape;
    let streams = shape.streams();
    let of_lane = 2 * streams * ROWS;
    for half in [8, 4, 2, 1] {
        let (low, high) = sums[..2 * half * of_lane].split_at_mut(half * of_lane);
        for (low, high) in low.iter_mut().zip(high) {
            for (low, high) in low.0.iter_mut().zip(&high.0) {
                *low = (s.load(low) + s.load(high)).to_array();
            }
        }
    }
    let zero = s.splat(0.0);
    for (r, out) in out.iter_mut().enumerate() {
        let mut all = [[zero; 4]; 8];
        for (stream, all) in all[..streams].iter_mut().enumerate() {
            let [real, imaginary] = [0, 1].map(|axis| &sums[2 * (stream * ROWS + r) + axis].0);
            let [[rr, ri], [ir, ii]] = [real, imaginary];
            *all = [rr, ri, ir, ii].map(|v| s.load(v));
        }
        let scales = shape.scales_of(rows.scales, first + r, 0);
        let mut y = (zero, zero);
        combine(&mut y, &all[..streams], |i| s.splat(scales[i]));
        *out = [y.0.to_array(), y.1.to_array()];
    }
}
