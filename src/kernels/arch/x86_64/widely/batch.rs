//! Sixteen tokens at once: columns sorted by their axis.

use std::arch::x86_64::*;
use std::cell::RefCell;

use trine_formats::widely::{CHUNK, combine};

use super::super::simd::{Avx2, Avx512};
use crate::simd::{Simd, Vector};
use crate::widely::batch::{COLUMN, Outputs, ROWS, Rows, TOKENS};
use crate::widely::{Form, ROWS as UNIT, lane_words};
use crate::{Isa, Level};

/// Chunks that are sorted together: the activations of one lane are 16 KB, which stay in the first-level cache.
const BLOCK: usize = 64;
/// Places of the sorted columns of a lane: 64, and room for what a store of eight writes past them.
const LIST: usize = BLOCK + 8;

/// For each byte of eight bits the places of the bits that are set, ascending, and how many they are; and the bits as bytes.
struct Tables {
    places: [u64; 256],
    counts: [u8; 256],
    spread: [u64; 256],
}

static TABLES: Tables = tables();

const fn tables() -> Tables {
    let mut tables = Tables {
        places: [0; 256],
        counts: [0; 256],
        spread: [0; 256],
    };
    let mut byte = 0;
    while byte < 256 {
        let mut bit = 0;
        while bit < 8 {
            if byte >> bit & 1 == 1 {
                tables.places[byte] |= (bit as u64) << (8 * tables.counts[byte]);
                tables.counts[byte] += 1;
                tables.spread[byte] |= 1 << (8 * bit);
            }
            bit += 1;
        }
        byte += 1;
    }
    tables
}

/// The columns of one lane in a block: those on the real axis, then those on the imaginary one. A column is twice the
/// number of its chunk, and 1 more where its weight is negative.
#[derive(Clone, Copy)]
struct List {
    columns: [u8; LIST],
    real: u8,
    all: u8,
}

impl List {
    const EMPTY: List = List {
        columns: [0; LIST],
        real: 0,
        all: 0,
    };
}

/// Working memory of a thread.
struct Memory {
    /// `[row][stream][lane]`.
    lists: Vec<List>,
    /// `[row][stream][lane]` of the real axis times real and imaginary parts, and of the imaginary axis.
    sums: Vec<[[f32; TOKENS]; 4]>,
}

thread_local! {
    static MEMORY: RefCell<Memory> = const {
        RefCell::new(Memory {
            lists: Vec::new(),
            sums: Vec::new(),
        })
    };
}

/// [`crate::widely::batch::multiply`], once lengths were checked.
pub(crate) fn batch(isa: Isa, rows: &Rows<'_>, acts: &[f32], out: &mut [Outputs]) {
    MEMORY.with_borrow_mut(|memory| {
        let count = ROWS * 8 * CHUNK;
        memory.lists.resize(count, List::EMPTY);
        memory.sums.resize(count, [[0.0; TOKENS]; 4]);
        // SAFETY: `isa` proves that the processor has the instruction set; `multiply` has compared the lengths.
        unsafe {
            match isa.level() {
                Level::Avx512 => multiply_avx512(rows, acts, memory, out),
                _ => multiply_avx2(rows, acts, memory, out),
            }
        }
    });
}

#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn multiply_avx2(rows: &Rows<'_>, acts: &[f32], memory: &mut Memory, out: &mut [Outputs]) {
    // SAFETY: as the caller says.
    unsafe { multiply(Avx2::here(), rows, acts, memory, out) }
}

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
unsafe fn multiply_avx512(rows: &Rows<'_>, acts: &[f32], memory: &mut Memory, out: &mut [Outputs]) {
    // SAFETY: as the caller says.
    unsafe { multiply(Avx512::here(), rows, acts, memory, out) }
}

/// # Safety
/// The lengths fit, and the processor has AVX2.
#[inline(always)]
unsafe fn multiply<S: Simd>(
    s: S,
    rows: &Rows<'_>,
    acts: &[f32],
    memory: &mut Memory,
    out: &mut [Outputs],
) {
    let (streams, chunks) = (rows.shape.streams(), rows.shape.chunks());
    let used = out.len() * streams * CHUNK;
    let (lists, sums) = (&mut memory.lists[..used], &mut memory.sums[..used]);
    sums.fill([[0.0; TOKENS]; 4]);
    for first in (0..chunks).step_by(BLOCK) {
        let count = BLOCK.min(chunks - first);
        for (i, lists) in lists.chunks_exact_mut(CHUNK).enumerate() {
            let (row, stream) = (i / streams, i % streams);
            if rows.form == Form::Lanes {
                // SAFETY: the caller says that the processor has AVX2.
                unsafe { sort_lanes(rows, row, stream, first, count, lists) };
                continue;
            }
            let mut words = [0u32; BLOCK];
            let at = (row * chunks + first) * streams + stream;
            let all = rows.weights.as_chunks::<4>().0[at..]
                .iter()
                .step_by(streams);
            for (word, bytes) in words[..count].iter_mut().zip(all) {
                *word = u32::from_le_bytes(*bytes);
            }
            // SAFETY: the caller says that the processor has AVX2.
            unsafe { sort(rows.form, &words, count, lists) };
        }
        for lane in 0..CHUNK {
            let x = &acts[(lane * chunks + first) * COLUMN..][..count * COLUMN];
            let pairs = lists[lane..].iter().step_by(CHUNK);
            for (list, sums) in pairs.zip(sums[lane..].iter_mut().step_by(CHUNK)) {
                let [rr, ri, ir, ii] = sums;
                let (real, imaginary) =
                    list.columns[..usize::from(list.all)].split_at(list.real.into());
                // SAFETY: a list names columns of chunks below `count`, with a sign of 0 or 1: places inside of `x`.
                unsafe {
                    add(s, x, real, rr, ri);
                    add(s, x, imaginary, ir, ii);
                }
            }
        }
    }
    for (row, (out, sums)) in out
        .iter_mut()
        .zip(sums.chunks_exact(streams * CHUNK))
        .enumerate()
    {
        let zero = s.splat(0.0);
        let mut all = [[zero; 4]; 8];
        for (all, sums) in all.iter_mut().zip(sums.chunks_exact(CHUNK)) {
            for (k, sum) in all.iter_mut().enumerate() {
                let mut lanes = [zero; CHUNK];
                for (lane, sums) in lanes.iter_mut().zip(sums) {
                    *lane = s.load(&sums[k]);
                }
                for half in [8, 4, 2, 1] {
                    for i in 0..half {
                        lanes[i] = lanes[i] + lanes[i + half];
                    }
                }
                *sum = lanes[0];
            }
        }
        let scales = rows.shape.scales_of(rows.scales, rows.first + row, 0);
        let mut y = (zero, zero);
        combine(&mut y, &all[..streams], |i| s.splat(scales[i]));
        *out = [y.0.to_array(), y.1.to_array()];
    }
}

/// Adds the columns of a list to the sums of its axis.
///
/// # Safety
/// Every column of the list is one of `x`, `[chunk][sign]` of 32 floats.
#[inline(always)]
unsafe fn add<S: Simd>(
    s: S,
    x: &[f32],
    list: &[u8],
    re: &mut [f32; TOKENS],
    im: &mut [f32; TOKENS],
) {
    let (mut to_re, mut to_im) = (s.load(re), s.load(im));
    for &column in list {
        // SAFETY: the caller says that they are there.
        let parts: &[[f32; TOKENS]; 2] =
            unsafe { &*x.as_ptr().add(COLUMN / 2 * usize::from(column)).cast() };
        to_re = to_re + s.load(&parts[0]);
        to_im = to_im + s.load(&parts[1]);
    }
    (*re, *im) = (to_re.to_array(), to_im.to_array());
}

/// The lists of the sixteen lanes of the first `count` words.
///
/// # Safety
/// The processor has AVX2.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn sort(form: Form, words: &[u32; BLOCK], count: usize, lists: &mut [List]) {
    // byte g of bit b: that bit of eight words from 8g on
    let mut bits = [[0u8; BLOCK / 8]; 32];
    for (g, words) in words.as_chunks::<8>().0.iter().enumerate() {
        // SAFETY: eight words.
        let mut words = unsafe { _mm256_loadu_si256(words.as_ptr().cast()) };
        for bits in bits.iter_mut().rev() {
            bits[g] = _mm256_movemask_ps(_mm256_castsi256_ps(words)) as u8;
            words = _mm256_add_epi32(words, words);
        }
    }
    for (j, list) in lists.iter_mut().enumerate() {
        let (negative, axis) = match form {
            Form::Planes => (bits[j], bits[CHUNK + j]),
            _ => (bits[2 * j].map(|b| !b), bits[2 * j + 1]),
        };
        // SAFETY: the caller says that the processor has AVX2.
        unsafe { fill(negative, u64::from_le_bytes(axis), count, list) };
    }
}

/// The lists of the sixteen lanes of row number `row` in [`Form::Lanes`], of `count` chunks from `first` on.
///
/// # Safety
/// The processor has AVX2.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn sort_lanes(
    rows: &Rows<'_>,
    row: usize,
    stream: usize,
    first: usize,
    count: usize,
    lists: &mut [List],
) {
    let (streams, of_lane) = (rows.shape.streams(), lane_words(rows.shape));
    let words = rows.weights.as_chunks::<4>().0;
    let row = (rows.first + row) % UNIT;
    for (lane, list) in lists.iter_mut().enumerate() {
        let at = ((lane * streams + stream) * of_lane + first / CHUNK) * UNIT + row;
        let (mut positive, mut axis) = (0, 0);
        for i in 0..count.div_ceil(CHUNK) {
            let word = u32::from_le_bytes(words[at + i * UNIT]);
            positive |= even_bits(word) << (CHUNK * i);
            axis |= even_bits(word >> 1) << (CHUNK * i);
        }
        // SAFETY: the caller says that the processor has AVX2.
        unsafe { fill((!positive).to_le_bytes(), axis, count, list) };
    }
}

/// Bits 0, 2, 4 … of a word side by side.
fn even_bits(word: u32) -> u64 {
    let mut bits = word & 0x5555_5555;
    for (distance, kept) in [
        (1, 0x3333_3333),
        (2, 0x0F0F_0F0F),
        (4, 0x00FF_00FF),
        (8, 0xFFFF),
    ] {
        bits = (bits | bits >> distance) & kept;
    }
    bits.into()
}

/// Fills a list from the bits of up to 64 chunks: which are negative, and which are on the imaginary axis.
///
/// # Safety
/// The processor has AVX2.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn fill(negative: [u8; BLOCK / 8], axis: u64, count: usize, list: &mut List) {
    let valid = u64::MAX >> (BLOCK - count);
    let real = put(!axis & valid, &negative, 0, list);
    list.real = real as u8;
    list.all = put(axis & valid, &negative, real, list) as u8;
}

/// Puts the columns whose bits are set in `chosen` into a list from `at` on; where the next one goes.
#[inline]
#[target_feature(enable = "avx2")]
fn put(chosen: u64, negative: &[u8; BLOCK / 8], mut at: usize, list: &mut List) -> usize {
    /// Twice the numbers of eight chunks.
    const EIGHT: u64 = 0x0E0C_0A08_0604_0200;
    for (g, (chosen, &negative)) in chosen.to_le_bytes().into_iter().zip(negative).enumerate() {
        let chosen = usize::from(chosen);
        let columns =
            EIGHT + 0x1010_1010_1010_1010 * g as u64 + TABLES.spread[usize::from(negative)];
        let columns = _mm_shuffle_epi8(
            _mm_cvtsi64_si128(columns as i64),
            _mm_cvtsi64_si128(TABLES.places[chosen] as i64),
        );
        let columns = (_mm_cvtsi128_si64(columns) as u64).to_le_bytes();
        // at most 64 columns stand before, so that eight more have room
        list.columns[at..at + 8].copy_from_slice(&columns);
        at += usize::from(TABLES.counts[chosen]);
    }
    at
}
