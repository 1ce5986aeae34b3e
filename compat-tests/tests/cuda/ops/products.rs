//! Products of all types, with the quantizers before them.

use trine_compat_tests::inputs::Rng;
use trine_cuda::plan;
use trine_cuda::program::Matrix;
use trine_cuda::ptx::FLOATS;
use trine_formats::types::{REGISTRY, TypeId};

use super::{Case, rows, shows};
use crate::product::assert_same;

/// Multiplies rows that hurt by a matrix of random bytes, or of encoded floats, every seventh of which is that much smaller.
fn check(ty: TypeId, count: usize, columns: usize, smaller: Option<f32>) {
    let info = ty.info().expect("a type");
    let of_row = info.row_bytes(columns as u64).expect("whole blocks") as usize;
    let mut rng = Rng::new((count * columns) as u64);
    let mut data = rng.bytes(count * of_row);
    if let Some(factor) = smaller {
        for row in data.chunks_exact_mut(of_row) {
            let size = |i: usize| if i % 7 == 3 { factor } else { 1.0 };
            let x: Vec<f32> = (0..columns).map(|i| size(i) * (2.0 * rng.unit() - 1.0)).collect();
            info.encode.expect("an encoder")(&x, None, row);
        }
    }
    let x = rows(columns, 9);
    let act = info.act.and_then(|act| act.info()).expect("a type");
    let act_row = act.row_bytes(columns as u64).expect("whole blocks") as usize;
    let mut expected = Vec::new();
    for x in x.chunks_exact(columns) {
        let mut row = vec![0; act_row];
        act.encode.expect("an encoder")(x, None, &mut row);
        let dot = info.dot_ref.expect("a definition");
        expected.extend(data.chunks_exact(of_row).map(|w| dot(w, &row)));
    }
    let data: &'static [u8] = data.leak();
    let case = Case { results: count, ..Case::new(&x, columns) };
    let found = case.run(|r, x| {
        let matrix = Matrix { name: "a matrix", ty, rows: count, columns, data, scale: 1.0 };
        r.product(matrix, x)
    });
    assert_same(&found, &expected, &format!("{ty} {count} x {columns}"));
}

#[test]
fn by_floats() {
    // Weights below the normal ones: their products are rounded, or lost.
    for (ty, smaller) in [(TypeId::F16, 1e-6), (TypeId::BF16, 1e-39), (TypeId::F32, 1e-41)] {
        check(ty, 33, 300, Some(smaller));
    }
    // One token and several, columns that blocks share, and rows that are no whole tiles.
    for (count, columns) in [(1, 1), (33, 7), (70, 256), (32, 511), (1, 2100), (33, 1030)] {
        for ty in [TypeId::F16, TypeId::BF16, TypeId::F32] {
            check(ty, count, columns, None);
            check(ty, count, columns, Some(1.0));
        }
    }
}

/// Rows whose sums depend on their order, and the products with them by the definition: magnitudes that differ by more than
/// double precision holds, the largest of which cancel out.
fn by_order(ty: TypeId, columns: usize) -> (Matrix<'static>, &'static [f32], Vec<f32>) {
    let info = ty.info().expect("a type");
    let mut rng = Rng::new(11);
    let rows = 5;
    let mut number = |i: usize| {
        let power = if ty == TypeId::F16 { [15, -8, -24][i / 4 % 3] } else { [40, 3, -30][i / 4 % 3] };
        let sign = if i.is_multiple_of(2) { 1.0 } else { -1.0 };
        // The largest cancel out, and leave of the others what double precision held beside them.
        let mantissa = if (i / 4).is_multiple_of(3) { 1.0 } else { 1.0 + rng.unit() };
        sign * mantissa * f32::from_bits(((127 + power) as u32) << 23)
    };
    let of_row = info.row_bytes(columns as u64).expect("whole blocks") as usize;
    let mut data = vec![0; rows * of_row];
    for row in data.chunks_exact_mut(of_row) {
        let w: Vec<f32> = (0..columns).map(&mut number).collect();
        info.encode.expect("an encoder")(&w, None, row);
    }
    let x: Vec<f32> = (0..columns).map(|i| number(i).abs()).collect();
    let mut act = vec![0; of_row];
    info.encode.expect("an encoder")(&x, None, &mut act);
    let dot = info.dot_ref.expect("a definition");
    let expected = data.chunks_exact(of_row).map(|w| dot(w, &act)).collect();
    (Matrix { name: "a matrix", ty, rows, columns, data: data.leak(), scale: 1.0 }, x.leak(), expected)
}

#[test]
fn sums_that_depend_on_their_order_are_made_in_order() {
    for ty in [TypeId::F16, TypeId::BF16, TypeId::F32] {
        let (matrix, x, expected) = by_order(ty, 1200);
        let case = Case { results: matrix.rows, ..Case::new(x, matrix.columns) };
        let found = case.run(|r, x| r.product(matrix, x));
        assert_same(&found, &expected, &format!("{ty}"));
        let name = match ty {
            TypeId::F16 => "f16_product_1",
            TypeId::BF16 => "bf16_product_1",
            _ => "f32_product_1",
        };
        let of = |change: &dyn Fn(&str) -> String| {
            shows((FLOATS, name), change, &case, &expected, |r, x| r.product(matrix, x))
        };
        assert!(!of(&|t| format!("{t} ")), "{ty}: no mistake");
        // 2^-52, which rounding errors are multiplied by.
        assert!(of(&|t| t.replace("0d3CB0000000000000", "0d0000000000000000")), "{ty}: no error");
        assert!(of(&|t| t.replace("bar.sync", "bar.warp.sync -1; // ")), "{ty}: barriers of a warp");
        assert!(of(&|t| t.replacen("fence.acq_rel.gpu;", "", 1)), "{ty}: no fence");
        // 2^53 times a power, below which doubles hold every sum: 2^253 in its place.
        let exact = |t: &str| t.replace("1128267776", "1337982976");
        assert!(of(&exact), "{ty}: any order for sums that are not exact");
    }
}

#[test]
fn by_the_types_of_blocks() {
    for info in REGISTRY.iter().filter(|info| info.encode.is_some() && plan::multiplies(info.id)) {
        check(info.id, 40, 512, None);
        check(info.id, 17, 768, Some(1.0));
    }
    // An odd number of blocks, and a last group that is not full.
    check(TypeId::Q8_0, 20, 288, Some(1.0));
    check(TypeId::Q4_0, 20, 96, Some(1.0));
}
