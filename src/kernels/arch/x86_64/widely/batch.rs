//! Sixteen tokens at once: the loops of [`crate::shared::widely::batch`] for each instruction set.

use std::arch::x86_64::*;
use std::hint::black_box;

use super::super::simd::{Avx2, Avx512};
use crate::arch::widely::chains::{self, BLOCK, Lane, STEP, Steps, Sums};
use crate::arch::widely::groups::{self, Entries, RowSums, SCALES, Tables};
use crate::shared::widely::batch::{Outputs, TOKENS, WeightRows};
use crate::shared::widely::{BLOCK_CHUNKS, CHUNK_BYTES};
use crate::{Isa, Level};

/// [`crate::shared::widely::batch::multiply`] in single precision, once lengths were checked.
pub(crate) fn chains(isa: Isa, rows: &WeightRows<'_>, acts: &[f32], memory: &mut chains::Memory, out: &mut [Outputs]) {
    // SAFETY: `isa` proves that the processor has the instruction set.
    unsafe {
        match isa.vectors() {
            Level::Avx512 if isa.has_vbmi() => chains_vbmi2(rows, acts, memory, out),
            Level::Avx512 => chains_avx512(rows, acts, memory, out),
            Level::Avx2 => chains_avx2(rows, acts, memory, out),
            _ => panic!("batches of {isa}"),
        }
    }
}

/// [`crate::shared::widely::batch::multiply`] with 8-bit activations, once lengths were checked.
pub(crate) fn groups(
    isa: Isa,
    rows: &WeightRows<'_>,
    acts: (&[u8], &[f32]),
    memory: &mut groups::Memory,
    out: &mut [Outputs],
) {
    // SAFETY: `isa` proves that the processor has the instruction set.
    unsafe {
        match isa.vectors() {
            Level::Avx512 => groups_avx512(rows, acts, memory, out),
            Level::Avx2 => groups_avx2(rows, acts, memory, out),
            _ => panic!("batches of {isa}"),
        }
    }
}

macro_rules! level {
    ($features:literal, $simd:ty, $chains:ident, $walk:ident, $groups:ident, $add:ident) => {
        /// # Safety
        /// The processor has the features; the lengths are those that [`crate::shared::widely::batch::multiply`] compares.
        #[target_feature(enable = $features)]
        unsafe fn $chains(rows: &WeightRows<'_>, acts: &[f32], memory: &mut chains::Memory, out: &mut [Outputs]) {
            // SAFETY: the caller says that the processor has the instruction set.
            unsafe { chains::multiply(<$simd>::here(), $walk, rows, acts, memory, out) }
        }

        /// A [`chains::Walk`]. A test looks at the machine code of its loop, which is part of the function above.
        ///
        /// # Safety
        /// As there, and the processor has the instruction set.
        #[target_feature(enable = $features)]
        unsafe fn $walk(x: &Lane, sets: &[u64], pairs: &[[u8; 2]], out: &mut [Sums]) {
            // SAFETY: as the caller says.
            unsafe { chains::walk(<$simd>::here(), x, sets, pairs, out) }
        }

        /// # Safety
        /// The processor has the features; the lengths are those that [`crate::shared::widely::batch::multiply`] compares.
        #[target_feature(enable = $features)]
        unsafe fn $groups(
            rows: &WeightRows<'_>,
            acts: (&[u8], &[f32]),
            memory: &mut groups::Memory,
            out: &mut [Outputs],
        ) {
            // SAFETY: the caller says that the processor has the instruction set.
            unsafe { groups::multiply(<$simd>::here(), $add, rows, acts, memory, out) }
        }
    };
}

level!("avx2,fma,f16c,bmi1,popcnt", Avx2, chains_avx2, walk_avx2, groups_avx2, add_avx2);
level!(
    "avx2,fma,f16c,bmi1,popcnt,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni",
    Avx512,
    chains_avx512,
    walk_avx512,
    groups_avx512,
    add_avx512
);

/// [`chains_avx512`] with lists of steps.
///
/// # Safety
/// The processor has AVX-512 with VBMI2, and the lengths fit.
#[target_feature(enable = "avx2,fma,f16c,bmi1,popcnt,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi2")]
unsafe fn chains_vbmi2(rows: &WeightRows<'_>, acts: &[f32], memory: &mut chains::Memory, out: &mut [Outputs]) {
    // SAFETY: the caller says that the processor has the instruction set.
    unsafe { chains::multiply(Avx512::here(), walk_lists_vbmi2, rows, acts, memory, out) }
}

/// A [`chains::Walk`] along lists: the numbers of a set's bits are compressed all at once. A test looks at the machine
/// code of its loop, which is part of the function above.
///
/// # Safety
/// As there, and the processor has AVX-512 with VBMI2.
#[target_feature(enable = "avx2,fma,f16c,bmi1,popcnt,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi2")]
unsafe fn walk_lists_vbmi2(x: &Lane, sets: &[u64], pairs: &[[u8; 2]], out: &mut [Sums]) {
    const NUMBERS: [u8; 64] = {
        let mut numbers = [0; 64];
        let mut i = 0;
        while i < 64 {
            numbers[i] = i as u8;
            i += 1;
        }
        numbers
    };
    const _: () = assert!(2 * BLOCK == 64 && STEP == 1 << 5);
    // SAFETY: 64 bytes.
    let numbers = unsafe { _mm512_loadu_si512(NUMBERS.as_ptr().cast()) };
    let none = _mm512_set1_epi8(2 * BLOCK as i8);
    let list = |set: u64| {
        // a set has a bit for each chunk at most, so that the lower half has all of them
        let numbers = _mm512_mask_compress_epi8(none, set, numbers);
        let numbers = _mm512_cvtepu8_epi16(_mm512_castsi512_si256(numbers));
        let places = _mm512_slli_epi16::<5>(numbers);
        let mut steps = Steps([0; BLOCK]);
        // SAFETY: 64 bytes.
        unsafe { _mm512_storeu_si512(steps.0.as_mut_ptr().cast(), places) };
        steps
    };
    // SAFETY: as the caller says; the list has the numbers of bits times the floats of a step, and after them those of
    // the zeros.
    unsafe { chains::walk_lists(Avx512::here(), list, x, sets, pairs, out) }
}

/// Bytes of the tables of a chunk, of one of its four groups, and from an entry's number, which is sixteenfold, to its
/// bytes.
const CHUNK_TABLES: usize = 4 * GROUP_TABLE;
const GROUP_TABLE: usize = 16 * ENTRY;
const ENTRY: usize = 4 * TOKENS;
const SCALE: usize = ENTRY / 16;

/// A [`groups::Add`].
///
/// # Safety
/// As there, and the processor has AVX2.
#[inline(never)]
#[target_feature(enable = "avx2")]
unsafe fn add_avx2(tables: &Tables, entries: &Entries, scales: &[f32; SCALES], sums: &mut [RowSums]) {
    // Of a loop that it could unroll the compiler would put off additions and keep what they add on the stack.
    let chunks = black_box(BLOCK_CHUNKS);
    let scales = scales.as_chunks::<8>().0;
    for (r, RowSums(sums)) in sums.iter_mut().enumerate() {
        // with `p` and with `q`: of real and of imaginary parts
        let mut with = [[_mm256_setzero_si256(); 2]; 2];
        for chunk in 0..chunks {
            // SAFETY: a row has four bytes of each of four chunks, for entries of four groups, whose numbers are below
            // 16.
            unsafe {
                let tables = tables.0.as_ptr().cast::<u8>().add(CHUNK_TABLES * chunk);
                for (with, numbers) in with.iter_mut().zip(entries) {
                    let numbers = numbers.as_ptr().add(CHUNK_BYTES * chunk + 4 * r);
                    let numbers = numbers.cast::<[u8; 4]>().read();
                    for (group, number) in numbers.into_iter().enumerate() {
                        let entry = tables.add(GROUP_TABLE * group + SCALE * usize::from(number));
                        let entry = entry.cast::<__m256i>();
                        with[0] = _mm256_add_epi16(with[0], _mm256_load_si256(entry));
                        with[1] = _mm256_add_epi16(with[1], _mm256_load_si256(entry.add(1)));
                    }
                }
            }
        }
        let [p, q] = with;
        let half = |twice| _mm256_srai_epi16::<1>(twice);
        let integers = [
            half(_mm256_add_epi16(p[0], q[0])),
            half(_mm256_add_epi16(p[1], q[1])),
            half(_mm256_sub_epi16(p[0], q[0])),
            half(_mm256_sub_epi16(p[1], q[1])),
        ];
        for (k, (integers, sums)) in integers.into_iter().zip(sums).enumerate() {
            let low = _mm256_cvtepi16_epi32(_mm256_castsi256_si128(integers));
            let high = _mm256_cvtepi16_epi32(_mm256_extracti128_si256::<1>(integers));
            let [to_low, to_high] = [0, 8].map(|at| sums[at..].as_mut_ptr());
            let scales = &scales[2 * (k % 2)..];
            // SAFETY: eight floats each.
            unsafe {
                let product = |i: usize, integers| {
                    _mm256_mul_ps(_mm256_loadu_ps(scales[i].as_ptr()), _mm256_cvtepi32_ps(integers))
                };
                let sum = _mm256_add_ps(_mm256_loadu_ps(to_low), product(0, low));
                _mm256_storeu_ps(to_low, sum);
                let sum = _mm256_add_ps(_mm256_loadu_ps(to_high), product(1, high));
                _mm256_storeu_ps(to_high, sum);
            }
        }
    }
}

/// A [`groups::Add`] with real and imaginary parts in one vector.
///
/// # Safety
/// As there, and the processor has AVX-512.
#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
unsafe fn add_avx512(tables: &Tables, entries: &Entries, scales: &[f32; SCALES], sums: &mut [RowSums]) {
    // as above
    let chunks = black_box(BLOCK_CHUNKS);
    let scales = scales.as_chunks::<TOKENS>().0;
    for (r, RowSums(sums)) in sums.iter_mut().enumerate() {
        let mut with = [_mm512_setzero_si512(); 2];
        for chunk in 0..chunks {
            // SAFETY: a row has four bytes of each of four chunks, for entries of four groups, whose numbers are below
            // 16.
            unsafe {
                let tables = tables.0.as_ptr().cast::<u8>().add(CHUNK_TABLES * chunk);
                for (with, numbers) in with.iter_mut().zip(entries) {
                    let numbers = numbers.as_ptr().add(CHUNK_BYTES * chunk + 4 * r);
                    let numbers = numbers.cast::<[u8; 4]>().read();
                    for (group, number) in numbers.into_iter().enumerate() {
                        let entry = tables.add(GROUP_TABLE * group + SCALE * usize::from(number));
                        *with = _mm512_add_epi16(*with, _mm512_load_si512(entry.cast()));
                    }
                }
            }
        }
        let [p, q] = with;
        let axes = [_mm512_add_epi16(p, q), _mm512_sub_epi16(p, q)];
        for (twice, sums) in axes.into_iter().zip(sums.as_chunks_mut::<2>().0) {
            let integers = _mm512_srai_epi16::<1>(twice);
            let parts = [_mm512_castsi512_si256(integers), _mm512_extracti64x4_epi64::<1>(integers)];
            for ((part, sums), scales) in parts.into_iter().zip(sums).zip(scales) {
                let integers = _mm512_cvtepi32_ps(_mm512_cvtepi16_epi32(part));
                // SAFETY: sixteen floats each.
                unsafe {
                    let product = _mm512_mul_ps(_mm512_loadu_ps(scales.as_ptr()), integers);
                    let sum = _mm512_add_ps(_mm512_loadu_ps(sums.as_ptr()), product);
                    _mm512_storeu_ps(sums.as_mut_ptr(), sum);
                }
            }
        }
    }
}
