//! Rows looked up with AVX-512: the walk over the blocks of a row, and what puts its weights into memory.

use std::arch::x86_64::*;
use std::ops::Range;

use super::codes512::codes;
use super::lut::{Bytes, Fixed, fixed, odd_group};
use super::{PAIR, odd};
use crate::shared::bitplane::{Arrangement, PlaneRows};

/// A table of 64, 128 or 256 entries, the lower and the upper bytes apart; smaller ones are there several times, so
/// that the upper bits of a code do not matter.
#[derive(Clone, Copy)]
pub(super) struct Tables {
    pub lower: [__m512i; 4],
    pub upper: [__m512i; 4],
}

/// Byte `byte` of 32 doublewords, twice.
const fn gather(byte: usize) -> Bytes {
    let mut out = [0; 64];
    let mut i = 0;
    while i < 64 {
        out[i] = (4 * (i % 32) + byte) as u8;
        i += 1;
    }
    Bytes(out)
}

static GATHER: [Bytes; 2] = [gather(0), gather(1)];

/// Two bytes of one word each from two registers: the first or the second pair of each four weights.
const fn pairs(second: usize) -> Bytes {
    let mut out = [0; 64];
    let mut i = 0;
    while i < 64 {
        out[i] = (4 * (i / 4) + 2 * second + i % 4 / 2 + 64 * (i % 2)) as u8;
        i += 1;
    }
    Bytes(out)
}

static PAIRS: [Bytes; 2] = [pairs(0), pairs(1)];

/// The words of half of the weights in their order.
const fn words_of(half: usize) -> Bytes {
    let mut out = [0; 64];
    let mut i = 0;
    while i < 64 {
        out[i] = (32 * half + i / 2 + 64 * (i % 2)) as u8;
        i += 1;
    }
    Bytes(out)
}

static HALVES: [Bytes; 2] = [words_of(0), words_of(1)];

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn lookup<const B: usize>(table: &[__m512i; 4], codes: __m512i) -> __m512i {
    if B <= 6 {
        return _mm512_permutexvar_epi8(codes, table[0]);
    }
    let lower = _mm512_permutex2var_epi8(table[0], codes, table[1]);
    if B == 7 {
        return lower;
    }
    let upper = _mm512_permutex2var_epi8(table[2], codes, table[3]);
    _mm512_mask_blend_epi8(_mm512_movepi8_mask(codes), lower, upper)
}

impl Tables {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    pub(super) fn lower<const B: usize>(&self, codes: __m512i) -> __m512i {
        lookup::<B>(&self.lower, codes)
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    pub(super) fn upper<const B: usize>(&self, codes: __m512i) -> __m512i {
        lookup::<B>(&self.upper, codes)
    }

    /// Entries of two bytes: `order` says of which codes.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    fn words<const B: usize>(&self, codes: __m512i, order: &[Bytes; 2]) -> [__m512i; 2] {
        let (lower, upper) = (self.lower::<B>(codes), self.upper::<B>(codes));
        [
            _mm512_permutex2var_epi8(lower, order[0].load(), upper),
            _mm512_permutex2var_epi8(lower, order[1].load(), upper),
        ]
    }

    /// Entries that are half floats, in order.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    pub(super) fn floats<const B: usize>(&self, codes: __m512i) -> [__m512; 4] {
        let [a, b] = self.words::<B>(codes, &HALVES);
        [
            _mm512_cvtph_ps(_mm512_castsi512_si256(a)),
            _mm512_cvtph_ps(_mm512_extracti64x4_epi64::<1>(a)),
            _mm512_cvtph_ps(_mm512_castsi512_si256(b)),
            _mm512_cvtph_ps(_mm512_extracti64x4_epi64::<1>(b)),
        ]
    }

    /// Up to 16 doublewords each, the entries in their lower 16 bits; `flip` is applied to the upper bytes.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    fn new<const B: usize>(sixteen: impl Fn(usize) -> __m512i, flip: u8) -> Tables {
        let zero = [_mm512_setzero_si512(); 4];
        let mut tables = Tables { lower: zero, upper: zero };
        let flip = _mm512_set1_epi8(flip.cast_signed());
        let count = (1usize << B).div_ceil(64);
        for j in 0..count {
            let (a, b) = (sixteen(4 * j), sixteen(4 * j + 1));
            for (byte, table) in [&mut tables.lower, &mut tables.upper].into_iter().enumerate() {
                let order = GATHER[byte].load();
                let mut all = _mm512_permutex2var_epi8(a, order, b);
                if B > 5 {
                    let (c, d) = (sixteen(4 * j + 2), sixteen(4 * j + 3));
                    let rest = _mm512_permutex2var_epi8(c, order, d);
                    all = _mm512_mask_blend_epi64(0xF0, all, rest);
                }
                table[j] = all;
            }
            tables.upper[j] = _mm512_xor_si512(tables.upper[j], flip);
        }
        tables
    }
}

/// Takes the codes of a row, block by block.
pub(super) trait Sink {
    /// True if entries are the half floats of the file, or else fixed point.
    const HALVES: bool;
    /// Bits that are flipped in the upper bytes of the entries.
    const FLIP: u8;

    /// # Safety
    /// AVX-512 with VNNI, VBMI and GFNI; the row has this block.
    unsafe fn block<const B: usize>(&mut self, t: &Tables, block: usize, codes: __m512i);
}

/// The codes of one block: a word of a plane says to which bytes a bit is added.
///
/// # Safety
/// AVX-512; the planes have the block.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn codes_of<const B: usize>(planes: [*const u8; B], block: usize) -> __m512i {
    let mut codes = _mm512_setzero_si512();
    for (i, plane) in planes.into_iter().enumerate() {
        // SAFETY: the caller says that the planes have the block, a word of eight bytes each.
        let bits = unsafe { plane.cast::<u64>().add(block).read_unaligned() };
        let bit = _mm512_set1_epi8((1u8 << (B - 1 - i)).cast_signed());
        codes = _mm512_mask_add_epi8(codes, bits, codes, bit);
    }
    codes
}

/// Hands the blocks of row `row` to `sink`. `fixed` is what [`fixed`](super::lut::fixed) says of the row.
///
/// # Safety
/// AVX-512 with VNNI, VBMI and GFNI. The rows have this one, of width `B`; groups are whole blocks.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512vbmi,gfni,avx2,fma,f16c")]
pub(super) unsafe fn walk<const B: usize, S: Sink>(
    rows: &PlaneRows<'_>,
    row: usize,
    fixed: Option<Fixed>,
    sink: &mut S,
) {
    let mut planes = [std::ptr::null::<u8>(); B];
    let (bytes, lut) = rows.row(row);
    for (plane, bytes) in planes.iter_mut().zip(bytes) {
        *plane = bytes.as_ptr();
    }
    let factor = fixed.map(|f| f.factor);
    let (blocks, groups) = (rows.blocks(), rows.groups);
    for (group, lut) in lut.chunks_exact(2 << B).enumerate() {
        // the last block of a row with one group may be shorter; with more, all are whole
        let range = group * blocks / groups..(group + 1) * blocks / groups;
        // SAFETY: the caller says that the row is there: of its planes a word for each block is read, of its tables 2^B
        // entries of two bytes; the sink has room for the blocks.
        unsafe {
            let tables = tables::<B>(lut, factor, S::FLIP, || odd_group(rows, row, group));
            let mut at = range.start;
            while at + 8 <= range.end {
                let mut words = [_mm512_setzero_si512(); B];
                for (word, plane) in words.iter_mut().zip(planes) {
                    *word = _mm512_loadu_si512(plane.add(8 * at).cast());
                }
                let codes = codes::<B>(words);
                sink.block::<B>(&tables, at, codes[0]);
                sink.block::<B>(&tables, at + 1, codes[1]);
                sink.block::<B>(&tables, at + 2, codes[2]);
                sink.block::<B>(&tables, at + 3, codes[3]);
                sink.block::<B>(&tables, at + 4, codes[4]);
                sink.block::<B>(&tables, at + 5, codes[5]);
                sink.block::<B>(&tables, at + 6, codes[6]);
                sink.block::<B>(&tables, at + 7, codes[7]);
                at += 8;
            }
            for block in at..range.end {
                sink.block::<B>(&tables, block, codes_of(planes, block));
            }
        }
    }
}

/// The table of a group. `factor`: `None` for the half floats themselves, `Some(None)` for fixed point that
/// `odd` computes.
///
/// # Safety
/// The processor has these features; `lut` has 2^B entries of two bytes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512vbmi,gfni,avx2,fma,f16c")]
pub(super) unsafe fn tables<const B: usize>(
    lut: &[u8],
    factor: Option<Option<f32>>,
    flip: u8,
    odd: impl FnOnce() -> [u16; 256],
) -> Tables {
    let entries = |lut: *const u8, i: usize| {
        // SAFETY: the caller's table has 2^B entries of two bytes, that of `odd` 256; the widest ones are asked for 16 at
        // a time.
        unsafe {
            match B {
                1 => _mm256_set1_epi32(lut.cast::<i32>().read_unaligned()),
                2 => _mm256_set1_epi64x(lut.cast::<i64>().read_unaligned()),
                3 => _mm256_broadcastsi128_si256(_mm_loadu_si128(lut.cast())),
                _ => {
                    let i = i % (1usize << B >> 4).max(1);
                    _mm256_loadu_si256(lut.add(32 * i).cast())
                }
            }
        }
    };
    let lut = lut.as_ptr();
    match factor {
        None => Tables::new::<B>(|i| _mm512_cvtepu16_epi32(entries(lut, i)), flip),
        Some(Some(factor)) => {
            let factor = _mm512_set1_ps(factor);
            let fixed = |i| {
                // rounded to nearest, ties to even
                let centroids = _mm512_cvtph_ps(entries(lut, i));
                _mm512_cvtps_epi32(_mm512_mul_ps(centroids, factor))
            };
            Tables::new::<B>(fixed, flip)
        }
        Some(None) => {
            let odd = odd();
            let odd = odd.as_ptr().cast::<u8>();
            Tables::new::<B>(|i| _mm512_cvtepu16_epi32(entries(odd, i)), flip)
        }
    }
}

/// Puts weights into memory, arranged as activations in [`Arrangement::Words`] are.
struct Words(*mut __m512i);

impl Sink for Words {
    const HALVES: bool = false;
    const FLIP: u8 = 0;

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    unsafe fn block<const B: usize>(&mut self, t: &Tables, block: usize, codes: __m512i) {
        let [a, b] = t.words::<B>(codes, &PAIRS);
        // SAFETY: the memory has two lines for each block.
        unsafe {
            _mm512_store_si512(self.0.add(2 * block), a);
            _mm512_store_si512(self.0.add(2 * block + 1), b);
        }
    }
}

/// Puts weights into memory, in order.
struct Floats(*mut f32);

impl Sink for Floats {
    const HALVES: bool = true;
    const FLIP: u8 = 0;

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    unsafe fn block<const B: usize>(&mut self, t: &Tables, block: usize, codes: __m512i) {
        for (j, w) in t.floats::<B>(codes).into_iter().enumerate() {
            // SAFETY: the memory has room for the whole block.
            unsafe { _mm512_store_ps(self.0.add(64 * block + 16 * j), w) };
        }
    }
}

/// Rows that are gone through block by block.
pub(super) trait Walk {
    /// Weights per row.
    fn columns(&self) -> usize;

    /// The rows, when groups are not whole blocks, so that they cannot be walked over.
    fn odd(&self) -> Option<&PlaneRows<'_>>;

    /// Hands the blocks of a row to `sink`; the scale of the row.
    ///
    /// # Safety
    /// AVX-512 with VNNI, VBMI and GFNI. The row is there.
    unsafe fn walk<S: Sink>(&self, row: usize, sink: &mut S) -> f32;
}

impl Walk for PlaneRows<'_> {
    fn columns(&self) -> usize {
        self.columns
    }

    fn odd(&self) -> Option<&PlaneRows<'_>> {
        (!self.in_blocks()).then_some(self)
    }

    unsafe fn walk<S: Sink>(&self, row: usize, sink: &mut S) -> f32 {
        // SAFETY: `Walk::walk` asks that the processor has the instructions and that the row is there; `in_blocks`
        // holds.
        unsafe {
            let fixed = if S::HALVES { None } else { Some(fixed(self, row)) };
            by_width!(self.width(), B => walk::<B, S>(self, row, fixed, sink));
            fixed.map_or(1.0, |f| f.scale)
        }
    }
}

/// Looks up rows for [`Arrangement::Words`].
///
/// # Safety
/// AVX-512 with VNNI, VBMI and GFNI. The rows are there, and `memory`, aligned to 64, has room for them.
pub(super) unsafe fn words<R: Walk>(rows: &R, range: Range<usize>, memory: &mut [u8]) -> [f32; PAIR] {
    let row_bytes = Arrangement::Words.act_bytes(rows.columns());
    let mut scales = [0.0; PAIR];
    for ((i, memory), scale) in range.zip(memory.chunks_exact_mut(row_bytes)).zip(&mut scales) {
        *scale = match rows.odd() {
            Some(rows) => odd::words(rows, i, memory),
            None => {
                let mut sink = Words(memory.as_mut_ptr().cast());
                // SAFETY: the caller says that the processor has the instructions and the row is there; `memory` has
                // room for its blocks.
                unsafe { rows.walk(i, &mut sink) }
            }
        };
    }
    scales
}

/// Looks up rows for [`Arrangement::Floats`].
///
/// # Safety
/// As [`words`].
pub(super) unsafe fn floats<R: Walk>(rows: &R, range: Range<usize>, memory: &mut [u8]) -> [f32; PAIR] {
    let row_bytes = Arrangement::Floats.act_bytes(rows.columns());
    for (i, memory) in range.zip(memory.chunks_exact_mut(row_bytes)) {
        match rows.odd() {
            Some(rows) => odd::floats(rows, i, memory),
            None => {
                let mut sink = Floats(memory.as_mut_ptr().cast());
                // SAFETY: the caller says that the processor has the instructions and the row is there; `memory` has
                // room for its blocks.
                unsafe { rows.walk(i, &mut sink) };
                memory[4 * rows.columns()..].fill(0);
            }
        }
    }
    [1.0; PAIR]
}
