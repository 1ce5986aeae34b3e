//! Rotations of rows by signs and the Walsh-Hadamard transform.

use super::CHUNK;
use crate::kernels::{Isa, elements};
use crate::pool;

/// A rotation `R` of rows: every element times its sign, then the normalized Walsh-Hadamard transform of every block.
/// Weights that were multiplied by the inverse along their inputs give the products of the original weights when their
/// inputs are rotated: `W x = (W R^-1) (R x)`.
///
/// Signs are exact factors; the order of the transform's sums is that of [`elements::hadamard`].
#[derive(Clone, Debug, PartialEq)]
pub struct Hadamard {
    /// Elements of a block, a power of two that divides a row.
    pub block: usize,
    /// 1 or -1 for each element of a row; none where all are 1.
    pub signs: Vec<f32>,
    /// True if rows are rotated back: the transform first, then the signs.
    pub inverse: bool,
}

impl Hadamard {
    /// Rotates the rows of `x` where they are.
    pub fn apply(&self, isa: Isa, x: &mut [f32]) {
        let row = self.signs.len().max(self.block);
        let at_once = CHUNK.div_ceil(row) * row;
        pool::chunks_mut(x, at_once, |_, x| {
            if !self.inverse {
                self.multiply_signs(x);
            }
            elements::hadamard(isa, x, self.block);
            if self.inverse {
                self.multiply_signs(x);
            }
        });
    }

    fn multiply_signs(&self, x: &mut [f32]) {
        for row in x.chunks_exact_mut(self.signs.len().max(1)) {
            row.iter_mut().zip(&self.signs).for_each(|(v, sign)| *v *= sign);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::Pool;

    /// A row of signs without a pattern that the transform has.
    fn signs(n: usize) -> Vec<f32> {
        (0..n).map(|i| if i * i % 7 < 3 { 1.0 } else { -1.0 }).collect()
    }

    #[test]
    fn rows_are_rotated_and_back() {
        let rotate = Hadamard { block: 64, signs: signs(192), inverse: false };
        let back = Hadamard { inverse: true, ..rotate.clone() };
        // sums of 64 of these numbers, divided by 8 twice, are exact
        let x: Vec<f32> = (0..192 * 200).map(|i| (i * 37 % 101) as f32).collect();
        let mut y = x.clone();
        let pool = Pool::new(3).expect("threads");
        pool.install(|| rotate.apply(Isa::detect(), &mut y));
        for (row, (x, y)) in x.chunks_exact(192).zip(y.chunks_exact(192)).enumerate() {
            // the first element of a block is the sum of all
            let sums = x.chunks_exact(64).zip(rotate.signs.chunks_exact(64));
            let sums = sums.map(|(x, s)| x.iter().zip(s).map(|(x, s)| x * s).sum::<f32>() / 8.0);
            assert!(sums.eq(y.iter().step_by(64).copied()), "row {row}");
        }
        pool.install(|| back.apply(Isa::scalar(), &mut y));
        assert_eq!(x, y);
    }

    #[test]
    fn without_signs_a_rotation_is_its_own_inverse() {
        let rotation = Hadamard { block: 16, signs: Vec::new(), inverse: false };
        let mut x: Vec<f32> = (0..160).map(|i| i as f32).collect();
        rotation.apply(Isa::detect(), &mut x);
        assert_eq!(x[0], (0..16).sum::<i32>() as f32 / 4.0);
        Hadamard { inverse: true, ..rotation }.apply(Isa::detect(), &mut x);
        assert!(x.iter().enumerate().all(|(i, x)| *x == i as f32));
    }
}
