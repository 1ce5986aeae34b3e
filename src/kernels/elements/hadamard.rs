//! The normalized Walsh-Hadamard transform.

use crate::Isa;
use crate::proof::compiled_for;

/// Elements whose first four rounds are computed together, in registers.
const TOGETHER: usize = 16;

/// Multiplies every `n` elements of `x`, a power of two, by the symmetric matrix with entries
/// `(-1)^popcount(i & j) / sqrt(n)`, which is its own inverse.
///
/// All elements are first multiplied by `1 / sqrt(n)`, rounded; then come sums and differences of pairs that are 1, 2,
/// 4 … elements apart (ggml `ggml_compute_forward_fwht`).
///
/// # Panics
/// When `n` is no power of two.
pub fn hadamard(isa: Isa, x: &mut [f32], n: usize) {
    assert!(n.is_power_of_two(), "blocks of {n} elements");
    compiled_for!(isa, blocks(x: &mut [f32], n: usize));
}

#[inline(always)]
fn blocks(x: &mut [f32], n: usize) {
    let scale = 1.0 / (n as f32).sqrt();
    for x in x.chunks_exact_mut(n) {
        x.iter_mut().for_each(|v| *v *= scale);
        let (few, rest) = x.as_chunks_mut::<TOGETHER>();
        few.iter_mut().for_each(|x| rounds(x, 1));
        // blocks of less than sixteen
        rounds(rest, 1);
        if n > TOGETHER {
            rounds(x, TOGETHER);
        }
    }
}

/// Sums and differences of pairs that are `apart`, twice as much … elements apart.
#[inline(always)]
fn rounds(x: &mut [f32], mut apart: usize) {
    while apart < x.len() {
        for pairs in x.chunks_exact_mut(2 * apart) {
            let (low, high) = pairs.split_at_mut(apart);
            for (a, b) in low.iter_mut().zip(high) {
                (*a, *b) = (*a + *b, *a - *b);
            }
        }
        apart *= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Random, isas, same};

    #[test]
    fn the_transform_is_a_product_with_signs() {
        let x: Vec<f32> = (0..128).map(|i| (i * 37 % 101) as f32).collect();
        let mut found = x.clone();
        hadamard(Isa::detect(), &mut found, 64);
        for (i, &found) in found.iter().enumerate() {
            let block = &x[i / 64 * 64..][..64];
            let signed = |(j, v): (usize, &f32)| match ((i % 64) & j).count_ones() % 2 {
                0 => *v,
                _ => -*v,
            };
            // numbers below 128 divided by 8 and 64 of them added up are exact
            let sum: f32 = block.iter().enumerate().map(signed).sum();
            assert_eq!(found, sum / 8.0, "element {i}");
        }
    }

    /// The rounds one after the other, as the definition has them.
    fn definition(x: &mut [f32], n: usize) {
        let scale = 1.0 / (n as f32).sqrt();
        x.iter_mut().for_each(|v| *v *= scale);
        for block in x.chunks_exact_mut(n) {
            for round in 0..n.trailing_zeros() {
                let apart = 1 << round;
                for i in (0..n).filter(|i| i & apart == 0) {
                    let (a, b) = (block[i], block[i + apart]);
                    (block[i], block[i + apart]) = (a + b, a - b);
                }
            }
        }
    }

    #[test]
    fn every_instruction_set_gives_the_bits_of_the_rounds() {
        let mut random = Random(0x4ada);
        for isa in isas() {
            for n in (0..14).map(|k| 1usize << k) {
                let mut x: Vec<f32> = (0..3 * n).map(|_| f32::from_bits(random.bits() as u32)).collect();
                let mut expected = x.clone();
                hadamard(isa, &mut x, n);
                definition(&mut expected, n);
                let equal = x.iter().zip(&expected).all(|(a, b)| same(*a, *b));
                assert!(equal, "{isa} blocks of {n}");
            }
        }
    }
}
