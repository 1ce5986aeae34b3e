//! Sixteen tokens at once: the loops of [`crate::shared::widely::batch`]. In single precision they are the portable ones, whose
//! vectors the compiler makes of four registers.

use std::arch::aarch64::*;

use trine_formats::types::lanes::Portable;

use crate::Isa;
use crate::arch::widely::chains::{self, Lane, Sums};
use crate::arch::widely::groups::{self, Entries, RowSums, SCALES, Tables};
use crate::shared::widely::CHUNK_BYTES;
use crate::shared::widely::batch::{Outputs, TOKENS, WeightRows};

/// [`crate::shared::widely::batch::multiply`] in single precision, once lengths were checked.
pub(crate) fn chains(_: Isa, rows: &WeightRows<'_>, acts: &[f32], memory: &mut chains::Memory, out: &mut [Outputs]) {
    // SAFETY: `walk` is compiled for every processor, and the lengths were checked.
    unsafe { chains::multiply(Portable, walk, rows, acts, memory, out) }
}

/// A [`chains::Walk`].
///
/// # Safety
/// As there.
#[inline(never)]
unsafe fn walk(x: &Lane, sets: &[u64], pairs: &[[u8; 2]], out: &mut [Sums]) {
    // SAFETY: as the caller says.
    unsafe { chains::walk(Portable, x, sets, pairs, out) }
}

/// [`crate::shared::widely::batch::multiply`] with 8-bit activations, once lengths were checked.
pub(crate) fn groups(
    isa: Isa,
    rows: &WeightRows<'_>,
    acts: (&[u8], &[f32]),
    memory: &mut groups::Memory,
    out: &mut [Outputs],
) {
    assert!(isa.has(crate::Level::Neon), "batches of {isa}");
    // SAFETY: `isa` proves that the processor has NEON.
    unsafe { groups::multiply(Portable, add_neon, rows, acts, memory, out) }
}

/// A [`groups::Add`].
///
/// # Safety
/// As there, and the processor has NEON.
#[inline(never)]
#[target_feature(enable = "neon")]
unsafe fn add_neon(tables: &Tables, entries: &Entries, scales: &[f32; SCALES], sums: &mut [RowSums]) {
    let scales = scales.as_chunks::<TOKENS>().0;
    for (r, RowSums(sums)) in sums.iter_mut().enumerate() {
        // of real and of imaginary parts, two registers of tokens each
        let [p, q] = entries.each_ref().map(|numbers| {
            let mut with = [vdupq_n_s16(0); 4];
            for (chunk, tables) in tables.0.as_chunks::<4>().0.iter().enumerate() {
                let numbers = &numbers[CHUNK_BYTES * chunk + 4 * r..][..4];
                for (table, number) in tables.iter().zip(numbers) {
                    let entry = table[usize::from(number >> 4)].as_flattened();
                    for (with, tokens) in with.iter_mut().zip(entry.as_chunks::<8>().0) {
                        // SAFETY: eight integers.
                        *with = vaddq_s16(*with, unsafe { vld1q_s16(tokens.as_ptr()) });
                    }
                }
            }
            with
        });
        for i in 0..4 {
            let (part, half) = (i / 2, i % 2);
            let axes = [vaddq_s16(p[i], q[i]), vsubq_s16(p[i], q[i])];
            for (axis, twice) in axes.into_iter().enumerate() {
                let integers = vshrq_n_s16::<1>(twice);
                let fours = [vmovl_s16(vget_low_s16(integers)), vmovl_high_s16(integers)];
                let sums = sums[2 * axis + part][8 * half..].as_chunks_mut::<4>().0;
                let scales = scales[part][8 * half..].as_chunks::<4>().0;
                for ((four, sums), scales) in fours.into_iter().zip(sums).zip(scales) {
                    // SAFETY: four floats each.
                    unsafe {
                        let product = vmulq_f32(vld1q_f32(scales.as_ptr()), vcvtq_f32_s32(four));
                        let sum = vaddq_f32(vld1q_f32(sums.as_ptr()), product);
                        vst1q_f32(sums.as_mut_ptr(), sum);
                    }
                }
            }
        }
    }
}
