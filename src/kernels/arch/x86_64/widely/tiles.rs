//! Up to sixteen tokens at once with 8-bit activations on AMX.
//!
//! A code becomes two bytes, its factors on the real and on the imaginary axis, which are looked up as
//! [`super::bytes512`] does it. The factors of a block of one stream of sixteen rows are two tiles; real and imaginary
//! parts of the tokens' activations are two more, as they lie in memory. Their four products are the integers of the
//! block.

use std::arch::x86_64::*;

use super::super::tiles::{Hardware, ROW, TILE, Tiles};
use super::bytes256::TABLES;
use crate::shared::widely::batch::{Outputs, TOKENS, WeightRows};
use crate::shared::widely::{
    BLOCK_BYTES, BLOCK_CHUNKS, CHUNK_BYTES, CodeLayout, Path, ROWS, RowSums, Unit, block, blocks_of, combine_rows,
    row_scales,
};
use crate::{Isa, Level};

/// Factors of a block of one stream on both axes.
#[repr(align(64))]
struct Factors([[u8; TILE]; 2]);

/// The integers `rr`, `ri`, `ir`, `ii` of a block of one stream, `[token][row]`.
#[repr(align(64))]
struct Integers([[[i32; ROWS]; TOKENS]; 4]);

/// Working memory of a thread. Two blocks are in work: while the tiles of one are multiplied, the factors of the next
/// one are looked up and the integers of the one before are added.
pub(crate) struct Memory {
    factors: [Factors; 2],
    integers: [Integers; 2],
    /// `[token]`.
    sums: [RowSums; TOKENS],
}

impl Default for Memory {
    fn default() -> Memory {
        let factors = || Factors([[0; TILE]; 2]);
        let integers = || Integers([[[0; ROWS]; TOKENS]; 4]);
        Memory { factors: [factors(), factors()], integers: [integers(), integers()], sums: Default::default() }
    }
}

/// [`crate::shared::widely::batch::multiply`] for one to sixteen tokens.
///
/// # Panics
/// When there are no tiles, or lengths do not fit.
pub(crate) fn tiles(isa: Isa, rows: &WeightRows<'_>, acts: &[u8], memory: &mut Memory, out: &mut [Outputs]) {
    assert!(isa.has(Level::Amx), "tiles of {isa}");
    let row = Path::Int8.act_bytes(rows.shape);
    let tokens = acts.len() / row;
    assert!((1..=TOKENS).contains(&tokens), "{tokens} tokens");
    assert_eq!(acts.len(), tokens * row, "activations");
    // SAFETY: `isa` proves that the process may use tiles, and the lengths were compared.
    unsafe { multiply::<Hardware>(rows, acts, memory, out) }
}

/// # Safety
/// The processor has AVX-512, and the process [`crate::Level::Amx`] where the tiles are the processor's; lengths fit.
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512dq")]
unsafe fn multiply<T: Tiles>(rows: &WeightRows<'_>, acts: &[u8], memory: &mut Memory, out: &mut [Outputs]) {
    let shape = rows.shape;
    let tokens = acts.len() / Path::Int8.act_bytes(shape);
    let few = tokens as u8;
    // SAFETY: the caller says that there are tiles; tokens are from 1 to 16.
    let mut tiles = unsafe { T::with_rows([few, few, 16, 16, few, few, few, few]) };
    let weights = rows.weights.chunks_exact(CodeLayout::Rows16.unit_bytes(shape));
    for (i, (weights, out)) in weights.zip(out.chunks_mut(ROWS)).enumerate() {
        let unit = Unit {
            shape,
            first: rows.first + ROWS * i,
            rows: out.len(),
            form: CodeLayout::Rows16,
            weights,
            scales: rows.scales,
            ahead: 0,
        };
        // SAFETY: as the caller says.
        unsafe { multiply_unit(&mut tiles, &unit, acts, tokens, memory, out) };
    }
}

/// # Safety
/// As [`multiply`]; tiles 0, 1 and 4 to 7 have a row for each token.
#[inline]
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512dq")]
unsafe fn multiply_unit<T: Tiles>(
    tiles: &mut T,
    unit: &Unit<'_>,
    acts: &[u8],
    tokens: usize,
    memory: &mut Memory,
    out: &mut [Outputs],
) {
    let (streams, stages) = (unit.shape.streams(), unit.shape.stages);
    let (of_tile, blocks) = blocks_of(unit.shape);
    let row = acts.len() / tokens;
    let codes = unit.weights.as_chunks::<BLOCK_BYTES>().0;
    let Memory { factors, integers, sums } = memory;
    let mut y = [[[0.0; ROWS]; 2]; TOKENS];
    // of the activations of two blocks in turn
    let mut scales = [[[0.0; 2]; TOKENS]; 2];
    for (tile, first) in (0..blocks).step_by(of_tile).enumerate() {
        sums[..tokens].fill(RowSums::default());
        let work = first * streams..(first + of_tile) * streams;
        let mut add = |i: usize, integers: &[Integers; 2], scales: &[[[f32; 2]; TOKENS]; 2]| {
            let (integers, scales) = (&integers[i % 2], &scales[i / streams % 2]);
            add(integers, scales, i % streams, &mut sums[..tokens]);
        };
        look_up(&codes[work.start], &mut factors[work.start % 2]);
        for i in work.clone() {
            if i % streams == 0 {
                let number = i / streams;
                let rows = acts.chunks_exact(row).zip(&mut scales[number % 2]);
                rows.for_each(|(acts, scales)| *scales = block(acts, blocks, number).scales);
                // SAFETY: `with_rows` has set the tiles up; a block of a row of activations has 64 bytes of real and 64
                // of imaginary parts, and rows of activations follow one another.
                unsafe {
                    let x = acts.as_ptr().add(2 * ROW * number);
                    tiles.load::<0>(x, row);
                    tiles.load::<1>(x.add(ROW), row);
                }
            }
            // SAFETY: the activations of the block were loaded, and the caller says that the instructions are there.
            unsafe {
                products(tiles, &factors[i % 2], &mut integers[i % 2]);
                if i + 1 < work.end {
                    look_up(&codes[i + 1], &mut factors[(i + 1) % 2]);
                }
            }
            if i > work.start {
                add(i - 1, integers, &scales);
            }
        }
        add(work.end - 1, integers, &scales);
        let of_rows = row_scales(unit, tile);
        for (sums, y) in sums[..tokens].iter().zip(&mut y) {
            combine_rows(stages, &of_rows, sums, y);
        }
    }
    for (r, out) in out.iter_mut().enumerate() {
        for (part, out) in out.iter_mut().enumerate() {
            *out = std::array::from_fn(|t| y[t][part][r]);
        }
    }
}

/// Looks up the factors of all codes of a block of one stream.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn look_up(codes: &[u8; BLOCK_BYTES], Factors(to): &mut Factors) {
    // The factors themselves: `TABLES` holds factor + 1, for kernels that subtract the sum of the activations.
    let table = |t: &[i8; 16]| {
        // SAFETY: sixteen bytes.
        let table = _mm512_broadcast_i32x4(unsafe { _mm_loadu_si128(t.as_ptr().cast()) });
        _mm512_sub_epi8(table, _mm512_set1_epi8(1))
    };
    let tables = TABLES.each_ref().map(|axes| axes.each_ref().map(table));
    let nibble = _mm512_set1_epi8(15);
    for chunk in 0..BLOCK_CHUNKS {
        // SAFETY: one of the block's four chunks, and one of sixteen lines of either tile.
        unsafe {
            let bytes = _mm512_loadu_si512(codes.as_ptr().add(CHUNK_BYTES * chunk).cast());
            let low = _mm512_and_si512(bytes, nibble);
            let high = _mm512_and_si512(_mm512_srli_epi16::<4>(bytes), nibble);
            for field in 0..4 {
                let codes = if field < 2 { low } else { high };
                let line = ROW * (4 * chunk + field);
                for (table, to) in tables[field % 2].into_iter().zip(&mut *to) {
                    let factors = _mm512_shuffle_epi8(table, codes);
                    _mm512_store_si512(to.as_mut_ptr().add(line).cast(), factors);
                }
            }
        }
    }
}

/// The integers of a block of one stream: the activations are in tiles 0 and 1.
///
/// # Safety
/// The tiles are set up and the activations loaded.
#[inline(always)]
unsafe fn products<T: Tiles>(tiles: &mut T, Factors([real, imaginary]): &Factors, Integers(to): &mut Integers) {
    // SAFETY: the caller has set the tiles up; factors are whole tiles, and there is room for the sums of sixteen
    // tokens.
    unsafe {
        tiles.load::<2>(real.as_ptr(), ROW);
        tiles.clear::<4>();
        tiles.dot_signed::<4, 0, 2>();
        tiles.clear::<5>();
        tiles.dot_signed::<5, 1, 2>();
        tiles.load::<3>(imaginary.as_ptr(), ROW);
        tiles.clear::<6>();
        tiles.dot_signed::<6, 0, 3>();
        tiles.clear::<7>();
        tiles.dot_signed::<7, 1, 3>();
        tiles.store::<4>(to[0].as_mut_ptr().cast());
        tiles.store::<5>(to[1].as_mut_ptr().cast());
        tiles.store::<6>(to[2].as_mut_ptr().cast());
        tiles.store::<7>(to[3].as_mut_ptr().cast());
    }
}

/// Adds the integers of a block of one stream, times the scales `[token][real, imaginary]` of the activations, to the
/// sums of all tokens.
#[inline]
#[target_feature(enable = "avx512f")]
fn add(Integers(integers): &Integers, scales: &[[f32; 2]; TOKENS], stream: usize, sums: &mut [RowSums]) {
    for (t, (scales, sums)) in scales.iter().zip(sums).enumerate() {
        for (k, sums) in sums[stream].iter_mut().enumerate() {
            // SAFETY: sixteen integers and sixteen floats.
            unsafe {
                let integers = _mm512_loadu_si512(integers[k][t].as_ptr().cast());
                let scale = _mm512_set1_ps(scales[k % 2]);
                let product = _mm512_mul_ps(scale, _mm512_cvtepi32_ps(integers));
                let sum = _mm512_add_ps(_mm512_loadu_ps(sums.as_ptr()), product);
                _mm512_storeu_ps(sums.as_mut_ptr(), sum);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use trine_formats::widely::{Rule, Scope, int8};

    use super::super::super::tiles::Software;
    use super::*;
    use crate::testing::{Random, same, skipped};
    use crate::{AlignedBytes, Isa, Level};

    /// With tiles in memory, on every processor that has the vectors.
    #[test]
    fn tiles_have_the_bits_of_the_definition() {
        if Isa::of(Level::Avx512).is_none() {
            return skipped("look-ups for tiles", &Level::Avx512.missing().join(", "));
        }
        let mut random = Random(31);
        for (rows, columns, stages, scope, tokens) in
            [(3, 200, 2, Scope::Tensor, 16), (21, 64, 1, Scope::Row, 1), (16, 130, 4, Scope::Tile64, 7)]
        {
            let rule = Rule { stages, scope, profile: Default::default(), tie: Default::default() };
            let shape = rule.shape(2 * rows, 2 * columns).expect("even sides");
            let words = random.bytes(4 * rows * shape.row_words());
            let scales: Vec<f32> = (0..shape.groups() * shape.group_scales()).map(|_| random.float()).collect();
            let (row, unit) = (4 * shape.row_words(), CodeLayout::Rows16.unit_bytes(&shape));
            let mut weights = vec![0; rows.div_ceil(ROWS) * unit];
            let packed = weights.chunks_mut(unit).zip(words.chunks(ROWS * row));
            packed.for_each(|(out, words)| CodeLayout::Rows16.pack(&shape, words, out));
            let mut acts = AlignedBytes::new(tokens * Path::Int8.act_bytes(&shape));
            let mut xs = Vec::new();
            for out in acts.chunks_exact_mut(Path::Int8.act_bytes(&shape)) {
                let x: Vec<f32> = (0..2 * columns).map(|_| random.float()).collect();
                Path::Int8.arrange(Isa::scalar(), &shape, &x, out);
                xs.push(int8::quantize(&shape, &x));
            }
            let mut out = vec![[[f32::NAN; TOKENS]; 2]; rows];
            let all =
                WeightRows { shape: &shape, first: 0, form: CodeLayout::Rows16, weights: &weights, scales: &scales };
            // SAFETY: the vectors were found, and the tiles are in memory; all lengths are those of the shape.
            unsafe { multiply::<Software>(&all, &acts, &mut Memory::default(), &mut out) };
            for (r, out) in out.iter().enumerate() {
                let words: Vec<u32> =
                    words[r * row..][..row].as_chunks().0.iter().map(|&w| u32::from_le_bytes(w)).collect();
                for (t, x) in xs.iter().enumerate() {
                    let (re, im) = int8::product_row(&shape, r, &words, &scales, x);
                    assert!(same(out[0][t], re) && same(out[1][t], im), "{scope:?}: row {r}, token {t}");
                }
            }
        }
    }
}
