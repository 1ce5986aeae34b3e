//! Points of the codebooks, normal numbers, importance, and what is no number.

use super::super::super::{REGISTRY, TypeInfo};
use super::*;

const COLUMNS: usize = 1024;

/// Every type that is encoded.
fn types() -> impl Iterator<Item = &'static TypeInfo> {
    let all = REGISTRY.iter().filter(|info| by_importance(info.id).is_some());
    assert_eq!(all.clone().count(), 10);
    all
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }

    /// A normal number, nearly.
    fn normal(&mut self) -> f32 {
        (0..12).map(|_| self.below(1 << 20) as f32 / (1 << 20) as f32).sum::<f32>() - 6.0
    }

    fn row(&mut self) -> Vec<f32> {
        (0..COLUMNS).map(|_| self.normal()).collect()
    }
}

fn encoded(info: &TypeInfo, x: &[f32], importance: Option<&[f32]>) -> Vec<u8> {
    let mut row = vec![0xA5; info.row_bytes(x.len() as u64).unwrap() as usize];
    info.encode.unwrap()(x, importance, &mut row);
    row
}

fn decoded(info: &TypeInfo, row: &[u8], columns: usize) -> Vec<f32> {
    let mut y = vec![0.0; columns];
    info.decode.unwrap()(row, &mut y);
    y
}

/// The squared error of a row, weighed, relative to its squares.
fn error(x: &[f32], y: &[f32], weights: &[f32]) -> f64 {
    let sum = |of: &dyn Fn(usize) -> f32| (0..x.len()).map(|i| f64::from(weights[i] * (of(i) * of(i)))).sum::<f64>();
    sum(&|i| x[i] - y[i]) / sum(&|i| x[i])
}

/// The error of normal rows with importance of one.
fn of_normal(ty: TypeId) -> f64 {
    let (info, ones, mut random) = (ty.info().unwrap(), [1.0; COLUMNS], Random(5));
    let mut row = || {
        let x = random.row();
        error(&x, &decoded(info, &encoded(info, &x, Some(&ones)), COLUMNS), &ones)
    };
    (0..8).map(|_| row()).sum()
}

/// Rows of points of the codebooks come back: each group begins with the end of its codebook, and one of them has the
/// highest multiple, which the search begins with.
#[test]
fn points_of_codebooks_come_back() {
    let mut random = Random(1);
    for info in types() {
        let places = places_of(info.id);
        let form = places.form();
        let Multiples { low, high, step } = places.multiples;
        for _ in 0..20 {
            let mut row = vec![0; info.row_bytes(COLUMNS as u64).unwrap() as usize];
            let d = 0.001953125f32;
            match form.head {
                0 => {}
                2 => put_f16(&mut row, 0, d),
                _ => row[..4].copy_from_slice(&d.to_le_bytes()),
            }
            for block in row[form.head..].chunks_exact_mut(form.bytes) {
                if form.head == 0 {
                    put_f16(block, 0, d);
                }
                let mut choices: Vec<Choice> = (0..form.groups)
                    .map(|_| Choice {
                        multiple: low + step * random.below(((high - low) / step + 1) as u64) as i32,
                        second: places.book.has_halves() && random.below(2) == 1,
                    })
                    .collect();
                choices[1].multiple = low;
                places.put(&choices, block);
                let (count, per_group) = match places.book {
                    Book::Levels(halves) => (u64::from(halves[0].code(f32::INFINITY)) + 1, WIDEST / form.groups),
                    Book::Points(_) => (32, WIDEST / form.groups / 2),
                };
                let mut codes: Vec<u8> = (0..per_group * form.groups).map(|_| random.below(count) as u8).collect();
                codes.chunks_mut(per_group).for_each(|codes| codes[0] = 0);
                (places.place)(&codes, block);
            }
            let x = decoded(info, &row, COLUMNS);
            let y = decoded(info, &encoded(info, &x, None), COLUMNS);
            for (i, (x, y)) in x.iter().zip(&y).enumerate() {
                // A scale of 32 bits may come back one unit off, that of 16 does not.
                let off = if form.head == 4 { x.abs() * 3e-7 } else { 0.0 };
                assert!((x - y).abs() <= off, "{} column {i}: {x} {y}", info.name);
            }
        }
    }
}

/// Less error than llama.cpp's types of the same size, and by how much at least; the last of the pairs are smaller.
#[test]
fn normal_rows_err_less_than_in_types_of_the_same_size() {
    for (ours, other, most) in [
        (TypeId::IQ4_K, TypeId::Q4_K, 0.78),
        (TypeId::IQ5_K, TypeId::Q5_K, 0.76),
        (TypeId::IQ3_K, TypeId::Q3_K, 0.84),
        (TypeId::IQ3_K, TypeId::IQ3_S, 0.94),
        (TypeId::IQ4_KS, TypeId::IQ4_XS, 0.94),
        (TypeId::IQ6_K, TypeId::Q6_K, 0.72),
        (TypeId::IQ2_KL, TypeId::Q2_K, 0.76),
        (TypeId::IQ5_KS, TypeId::Q5_K, 1.0),
        (TypeId::IQ3_KS, TypeId::Q3_K, 1.12),
        (TypeId::IQ2_K, TypeId::IQ2_XS, 0.9),
        (TypeId::IQ2_KS, TypeId::IQ2_XXS, 0.86),
    ] {
        let [a, b] = [ours, other].map(of_normal);
        assert!(a < most * b, "{ours} {other}: {}", a / b);
    }
}

#[test]
fn columns_that_matter_err_less() {
    for info in types() {
        let mut random = Random(7);
        let x = random.row();
        let importance: Vec<f32> = (0..COLUMNS).map(|_| if random.below(4) == 0 { 100.0 } else { 1.0 }).collect();
        let of = |given: Option<&[f32]>| error(&x, &decoded(info, &encoded(info, &x, given), COLUMNS), &importance);
        let (with, without) = (of(Some(&importance)), of(None));
        assert!(with < 0.8 * without, "{}: {with} {without}", info.name);
        // A common factor of all columns says nothing.
        let twice: Vec<f32> = importance.iter().map(|w| 2.0 * w).collect();
        assert_eq!(encoded(info, &x, Some(&importance)), encoded(info, &x, Some(&twice)), "{}", info.name);
    }
}

/// By importance alone the plain error is less, which is what errors that are fed back are.
#[test]
fn errors_may_count_by_importance_alone() {
    let ones = [1.0; COLUMNS];
    for info in types() {
        let x = Random(9).row();
        let mut row = encoded(info, &x, Some(&ones));
        let with_size = error(&x, &decoded(info, &row, COLUMNS), &ones);
        by_importance(info.id).unwrap()(&x, Some(&ones), &mut row);
        let alone = error(&x, &decoded(info, &row, COLUMNS), &ones);
        assert!(alone < with_size, "{}: {alone} {with_size}", info.name);
    }
}

#[test]
fn odd_weights_and_odd_importance() {
    let x = Random(11).row();
    for info in types() {
        let zeros = decoded(info, &encoded(info, &[0.0; COLUMNS], None), COLUMNS);
        assert!(zeros.iter().all(|y| *y == 0.0), "{}", info.name);
        for odd in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, 1e-40, 1e30] {
            let mut with = x.clone();
            with[300] = odd;
            // Whatever it becomes, it becomes that twice.
            assert_eq!(encoded(info, &with, None), encoded(info, &with, None), "{} {odd}", info.name);
            let mut importance = vec![1.0; COLUMNS];
            importance[3] = odd;
            let y = decoded(info, &encoded(info, &x, Some(&importance)), COLUMNS);
            let bound = x.iter().fold(0.0f32, |m, x| x.abs().max(m)) * 1.5;
            assert!(y.iter().all(|y| y.abs() <= bound), "{} importance {odd}", info.name);
        }
        // Columns without importance stay near to what they were.
        let y = decoded(info, &encoded(info, &x, Some(&[0.0; COLUMNS])), COLUMNS);
        assert!(error(&x, &y, &[1.0; COLUMNS]) < 0.15, "{}", info.name);
        let half: Vec<f32> = (0..COLUMNS).map(|j| if j < 512 { 0.0 } else { 1.0 }).collect();
        let y = decoded(info, &encoded(info, &x, Some(&half)), COLUMNS);
        assert!(error(&x[..512], &y[..512], &[1.0; 512]) < 0.15, "{}", info.name);
    }
}
