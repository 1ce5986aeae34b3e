//! A change of basis of rows of weights, in f64.

use trine_formats::types::TypeId;

/// Rotates rows, or rotates them back.
///
/// A row is put into the order of the heads' training, multiplied by the signs, and each block by the matrix with entries
/// `(-1)^popcount(i & j) / sqrt(block)`. The way back undoes this in the opposite order.
#[derive(Clone, Debug, PartialEq)]
pub struct Basis {
    /// Elements of a block, a power of two that divides a row.
    pub block: usize,
    /// 1 or -1 for each element of a row; none where all are 1.
    pub signs: Vec<f32>,
    /// Set where heads change their places.
    pub heads: Option<Heads>,
    /// True for the way back.
    pub back: bool,
}

/// Heads of values and of keys of linear attention: in a file the heads of values take turns among the keys, in training
/// those of a key follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heads {
    /// Heads of values.
    pub values: usize,
    /// Heads of keys, which divide those of values.
    pub keys: usize,
}

impl Basis {
    /// Turns one row where it is.
    pub fn turn(&self, row: &mut [f64]) {
        if self.back {
            row.chunks_exact_mut(self.block).for_each(transform);
            self.multiply_signs(row);
            self.move_heads(row);
        } else {
            self.move_heads(row);
            self.multiply_signs(row);
            row.chunks_exact_mut(self.block).for_each(transform);
        }
    }

    fn multiply_signs(&self, row: &mut [f64]) {
        row.iter_mut().zip(&self.signs).for_each(|(v, &sign)| *v *= f64::from(sign));
    }

    fn move_heads(&self, row: &mut [f64]) {
        let Some(Heads { values, keys }) = self.heads else {
            return;
        };
        let (size, turns) = (row.len() / values, values / keys);
        let old = row.to_vec();
        for (key, turn) in (0..keys).flat_map(|key| (0..turns).map(move |turn| (key, turn))) {
            let (of_file, of_training) = (size * (key + keys * turn), size * (turn + turns * key));
            let [from, to] = if self.back { [of_training, of_file] } else { [of_file, of_training] };
            row[to..to + size].copy_from_slice(&old[from..from + size]);
        }
    }
}

/// Multiplies a block by the symmetric matrix of the transform: sums and differences first, one product in the end.
fn transform(x: &mut [f64]) {
    let mut apart = 1;
    while apart < x.len() {
        for pairs in x.chunks_exact_mut(2 * apart) {
            let (low, high) = pairs.split_at_mut(apart);
            for (a, b) in low.iter_mut().zip(high) {
                (*a, *b) = (*a + *b, *a - *b);
            }
        }
        apart *= 2;
    }
    let scale = 1.0 / (x.len() as f64).sqrt();
    x.iter_mut().for_each(|v| *v *= scale);
}

/// The f32 that an encoder of `ty` makes into the value of the type that is nearest to `x`.
///
/// For F16 and BF16 this is not the nearest f32, because a number that is rounded twice may not end at the nearest one: it
/// is `x` cut off, with the last bit set where something was lost, which no longer type takes for the middle of two.
pub fn round(x: f64, ty: TypeId) -> f32 {
    let nearest = x as f32;
    if ty == TypeId::F32 || f64::from(nearest) == x {
        return nearest;
    }
    let bits = nearest.to_bits();
    let too_far = f64::from(nearest).abs() > x.abs();
    f32::from_bits((bits - u32::from(too_far)) | 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row of small integers without a pattern that the transform has.
    fn row(n: usize) -> Vec<f64> {
        (0..n).map(|i| (i * 37 % 101) as f64 - 50.0).collect()
    }

    #[test]
    fn the_way_back_ends_where_it_began() {
        let signs: Vec<f32> = (0..96).map(|i| if i * i % 7 < 3 { 1.0 } else { -1.0 }).collect();
        let there = Basis { block: 16, signs, heads: Some(Heads { values: 6, keys: 2 }), back: false };
        let back = Basis { back: true, ..there.clone() };
        let mut x = row(96);
        there.turn(&mut x);
        assert_ne!(x, row(96));
        back.turn(&mut x);
        assert_eq!(x, row(96));
    }

    /// The definition: head `key + keys * turn` of a file is head `turn + turns * key` of the training.
    #[test]
    fn heads_of_a_key_follow_each_other() {
        let basis = Basis { block: 1, signs: Vec::new(), heads: Some(Heads { values: 6, keys: 2 }), back: false };
        let mut x: Vec<f64> = (0..12).map(f64::from).collect();
        basis.turn(&mut x);
        assert_eq!(x, [0., 1., 4., 5., 8., 9., 2., 3., 6., 7., 10., 11.]);
    }

    #[test]
    fn elements_are_products_with_the_matrix() {
        let basis = Basis { block: 64, signs: Vec::new(), heads: None, back: false };
        let mut y = row(128);
        basis.turn(&mut y);
        for (block, (x, y)) in row(128).chunks_exact(64).zip(y.chunks_exact(64)).enumerate() {
            for (i, y) in y.iter().enumerate() {
                let entry = |j: usize| if (i & j).count_ones().is_multiple_of(2) { 0.125 } else { -0.125 };
                let sum: f64 = x.iter().enumerate().map(|(j, x)| entry(j) * x).sum();
                assert_eq!(*y, sum, "element {i} of block {block}");
            }
        }
    }

    #[test]
    fn numbers_are_rounded_once() {
        let encode = |x: f64, ty: TypeId| {
            let mut out = [0; 2];
            (ty.info().and_then(|t| t.encode).expect("an encoder"))(&[round(x, ty)], None, &mut out);
            u16::from_le_bytes(out)
        };
        let power = |n: u32| 1.0 / (1u64 << n) as f64;
        let tiny = power(40);
        // the middle of 1 and the next number of each type, and a little more or less, which f32 cannot tell
        for (ty, step) in [(TypeId::F16, power(10)), (TypeId::BF16, power(7))] {
            let one = encode(1.0, ty);
            let middle = 1.0 + step / 2.0;
            let found = [-tiny, 0.0, tiny].map(|off| encode(middle + off, ty) - one);
            assert_eq!(found, [0, 0, 1], "{ty}");
            let found = [-tiny, 0.0, tiny].map(|off| encode(-middle - step - off, ty) - encode(-1.0, ty));
            assert_eq!(found, [1, 2, 2], "{ty}");
        }
        assert_eq!(round(1.0 + tiny, TypeId::F32), 1.0);
        assert_eq!(round(1e300, TypeId::F32), f32::INFINITY);
        assert_eq!(encode(-1e-300, TypeId::F16), 0x8000);
    }
}
