//! The routines against plain loops, and their bits on every instruction set and number of threads.

use super::*;
use crate::kernels::Isa;

struct Random(u64);

impl Random {
    /// In -1..1.
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }
}

/// Rows of correlated numbers.
fn rows(count: usize, columns: usize, seed: u64) -> Vec<f32> {
    let mut random = Random(seed);
    let mut out = Vec::with_capacity(count * columns);
    for _ in 0..count {
        let common = random.next();
        out.extend((0..columns).map(|_| (0.7 * common + random.next()) as f32));
    }
    out
}

/// A positive definite matrix, `[n][n]`, both triangles.
fn positive(n: usize, seed: u64) -> Vec<f64> {
    let x = rows(2 * n + 3, n, seed);
    let mut lower = vec![0.0; triangle(n)];
    add_gram(Isa::scalar(), &x, n, &mut lower);
    let at = |i: usize, j: usize| lower[triangle(i.max(j)) + i.min(j)];
    (0..n * n).map(|e| at(e / n, e % n)).collect()
}

const SIZES: [usize; 7] = [1, 3, 16, 61, 128, 129, 300];

fn everywhere<T: PartialEq + std::fmt::Debug + Send>(what: impl Fn(Isa) -> T + Sync) -> T {
    let want = what(Isa::scalar());
    for isa in Isa::available() {
        for threads in [1, 2, 7] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
            let got = pool.expect("threads").install(|| what(isa));
            assert!(got == want, "{isa}, {threads} threads");
        }
    }
    want
}

#[test]
fn sums_of_products_are_those_of_their_definition() {
    for n in SIZES {
        let x = rows(200, n, 1);
        let bits = everywhere(|isa| {
            let mut sums = vec![1.0; triangle(n)];
            add_gram(isa, &x, n, &mut sums);
            sums.iter().map(|s| s.to_bits()).collect::<Vec<_>>()
        });
        for i in 0..n {
            for j in 0..=i {
                let mut want = 1.0;
                for block in x.chunks(BLOCK * n) {
                    let products = block.chunks(n).map(|row| row[i] * row[j]);
                    want += f64::from(products.fold(0.0, |s, p| s + p));
                }
                assert_eq!(bits[triangle(i) + j], f64::to_bits(want), "{n}: {i} {j}");
            }
        }
    }
}

#[test]
fn a_factor_times_its_transpose_is_the_matrix() {
    for n in SIZES {
        let a = positive(n, 2);
        let l = everywhere(|isa| {
            let mut l = a.clone();
            cholesky(isa, n, &mut l).expect("a positive definite matrix");
            for i in 0..n {
                l[i * n + i + 1..(i + 1) * n].fill(0.0);
            }
            l
        });
        for i in 0..n {
            for j in 0..=i {
                let sum: f64 = (0..=j).map(|k| l[i * n + k] * l[j * n + k]).sum();
                let scale = (a[i * n + i] * a[j * n + j]).sqrt();
                assert!((sum - a[i * n + j]).abs() < 1e-13 * scale, "{n}: {i} {j}");
            }
        }
    }
}

#[test]
fn the_definition_of_a_factor_is_followed_to_the_bit() {
    // Within the first block an element is one chain of subtractions.
    let n = 100;
    let a = positive(n, 5);
    let mut want = a.clone();
    for j in 0..n {
        for i in j..n {
            let mut s = want[i * n + j];
            for k in 0..j {
                s -= want[i * n + k] * want[j * n + k];
            }
            want[i * n + j] = if i == j { s.sqrt() } else { s / want[j * n + j] };
        }
    }
    let mut got = a;
    cholesky(Isa::detect(), n, &mut got).expect("a positive definite matrix");
    for i in 0..n {
        assert_eq!(got[i * n..=i * n + i], want[i * n..=i * n + i], "row {i}");
    }
}

#[test]
fn an_inverse_times_its_matrix_is_one() {
    for n in SIZES {
        let mut l = positive(n, 3);
        cholesky(Isa::detect(), n, &mut l).expect("a positive definite matrix");
        let panels = everywhere(|isa| invert_lower(isa, n, &l));
        let inverse = |i: usize, j: usize| panels[(j / COLUMNS * n + i) * COLUMNS + j % COLUMNS];
        for i in 0..n {
            for j in 0..n {
                if j > i {
                    assert_eq!(inverse(i, j), 0.0);
                    continue;
                }
                let sum: f64 = (j..=i).map(|k| l[i * n + k] * inverse(k, j)).sum();
                let want = if i == j { 1.0 } else { 0.0 };
                assert!((sum - want).abs() < 1e-10, "{n}: {i} {j} {sum}");
            }
        }
    }
}

#[test]
fn what_is_not_positive_definite_is_named_by_its_column() {
    let n = 200;
    for (bad, value) in [(0, 0.0), (37, -1.0), (150, f64::NAN), (199, f64::INFINITY)] {
        let mut a = vec![0.0; n * n];
        (0..n).for_each(|i| a[i * n + i] = 1.0);
        a[bad * n + bad] = value;
        assert_eq!(cholesky(Isa::detect(), n, &mut a), Err(bad));
    }
}
